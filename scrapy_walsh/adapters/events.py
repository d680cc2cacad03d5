"""Records decisions and exchanges in the log, the stats and the ledger of a crawl.

All three are made from one value, so they cannot contradict each other. Nothing is decided here.

A host that is down would fill the log. So only the first event of a kind and verdict on a host is
logged at its level, and the others like it at DEBUG. Deferrals, and each robots.txt that cannot be
fetched, are INFO at most. At the end of the crawl one warning for each cause reports them.
"""

from __future__ import annotations

import logging
import math
import os
import secrets
from collections import Counter
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from msgspec import structs

from scrapy_walsh import signals
from scrapy_walsh.exceptions import StateError, visible
from scrapy_walsh.policy import event as events
from scrapy_walsh.policy.throttle import MIN_REQUEST_INTERVAL
from scrapy_walsh.policy.times import iso
from scrapy_walsh.policy.verdict import (
    ALLOWED_EXPLICIT,
    ALLOWED_IMPLICIT,
    DEFERRED,
    EXCLUDED_TLD,
    NAMES,
    PRIVATE_ADDRESS,
    REMEDIES,
    ROBOTS_NAMES,
    remedy_of,
)
from scrapy_walsh.policy.words import plural
from scrapy_walsh.terminal import leave_out_queries, shown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from scrapy.crawler import Crawler

    from scrapy_walsh.ledger import Ledger

logger = logging.getLogger("scrapy_walsh")
_FORMATTER: Final = logging.Formatter()


def _escape(record: logging.LogRecord) -> bool:
    """Make sure that a record is one line, whatever a server put into it (``visible``)."""
    record.msg, record.args = visible(record.getMessage()), None
    return True


logger.addFilter(_escape)


def redact_logs() -> None:
    """Leave out the queries of URLs in each log record of this process, Scrapy's too.

    The records are changed when they are made, because handlers may be added at any time.
    """
    make = logging.getLogRecordFactory()
    leave_out_queries()
    if getattr(make, "redacts", False):
        return

    def made(*arguments: Any, **options: Any) -> logging.LogRecord:
        record = make(*arguments, **options)
        with suppress(Exception):  # its arguments do not fit: logging reports that
            record.msg, record.args = shown(record.getMessage()), None
        if record.exc_info:
            record.exc_text = shown(_FORMATTER.formatException(record.exc_info))
        return record

    made.redacts = True  # type: ignore[attr-defined]
    logging.setLogRecordFactory(made)


def _is_heard(level: int) -> bool:
    """Whether a handler takes records of *level*: Scrapy sets it at handlers, not at loggers."""
    handlers = (*logger.handlers, *logging.root.handlers)
    return level > logging.INFO or any(handler.level <= level for handler in handlers)


#: Kinds of events that are at DEBUG in the log, and those that are a WARNING; others are INFO. A
#: refusal for a private address is a WARNING too: a site has led the crawl into its own network.
_QUIET: Final = (events.HELD, events.FETCHED, events.ANSWERED, events.TAKEN_UP)
_WARNED: Final = (events.DEFERRED, events.GIVEN_UP, events.REJECTED, events.TOO_MANY_REDIRECTS)
#: Kinds and requirements of events with a reason that holds for a whole host.
_OF_HOSTS: Final = ((events.DEFERRED, "R2"), (events.DEFERRED, "R3"), (events.REJECTED, "R2"))
#: Hosts that have stats and, for each kind and verdict, lines of their own.
_HOSTS: Final = 1000
#: Hosts that a line about many of them names.
_HOSTS_NAMED: Final = 10
#: Entries of a queue that cannot be used and get a line in the log.
_ASIDE_NAMED: Final = 20
#: The most lines `declared` that are written to the ledger at once: some milliseconds.
_DECLARED_AT_ONCE: Final = 256


def process_name() -> str:
    """The name of this process in the ledger; requests of one process never overlap (R4.1).

    A forked child has a name of its own, even if its parent had imported this module.
    """
    return _name_of(os.getpid())


@cache
def _name_of(_process_id: int) -> str:
    return secrets.token_hex(4)


#: Libraries that we use and that log at DEBUG, Scrapy's default level, for each octet or line that
#: a server sends. Scrapy quiets those that it uses itself.
_TALKATIVE: Final = ("markdown_it", "protego", "redis")


def quiet_libraries() -> None:
    """Keep debug records of those libraries out of the log, unless the project set a level."""
    for name in _TALKATIVE:
        library = logging.getLogger(name)
        if library.level == logging.NOTSET:
            library.setLevel(logging.INFO)


class _Alike(NamedTuple):
    """The members that events of many hosts share; one line at the end reports these events."""

    kind: str
    requirement: str
    verdict: str
    reason: str


@dataclass(slots=True)
class Recorder:
    """Records every event of one crawl."""

    crawler: Crawler
    ledger: Ledger | None = None
    #: Items of this run that a feed has not stored.
    unstored: int = 0
    run: str = field(default_factory=lambda: secrets.token_hex(4))
    #: Called when lines begin to wait: :meth:`flush` follows soon. None: no exchange's line waits.
    soon: Callable[[], None] | None = None
    #: Whether an earlier run has told what an event says of a target.
    known: Callable[[events.Event], bool] = lambda _: False
    #: By host, why its robots.txt was rejected in this run, a word; empty if one was adopted.
    robots: dict[str, str] = field(default_factory=dict)
    #: Hosts of which a warning has said that less than a week ago.
    robots_known: set[str] = field(default_factory=set)
    #: Lines of the ledger that were not written yet: :meth:`declare`, :meth:`exchange`.
    _waiting: list[dict[str, Any]] = field(default_factory=list)
    #: Refusals by requirement and verdict; requests that were sent, by purpose.
    rules: Counter[tuple[str, ...]] = field(default_factory=Counter)
    sent: Counter[tuple[str, ...]] = field(default_factory=Counter)
    #: By kind, requirement and verdict, the hosts of events that had a line; if an event is about
    #: no host, its reason.
    _told: dict[tuple[str, ...], set[str]] = field(default_factory=dict)
    #: For each line at the end of the crawl, the number of targets by host.
    _alike: dict[_Alike, Counter[str]] = field(default_factory=dict)
    #: For each of these lines, how many of its targets were given up.
    _gave_up: Counter[_Alike] = field(default_factory=Counter)
    #: The lines among them that no earlier run has logged.
    _new: set[_Alike] = field(default_factory=set)
    #: By host, the number of targets that R4 defers, and their latest due time, Unix seconds.
    _put_off: dict[str, tuple[int, float]] = field(default_factory=dict)
    #: By host, the last network error, in a few words; whether any host has answered.
    _errors: dict[str, str] = field(default_factory=dict)
    _answered: bool = False
    #: Hosts with a stat of their own for what was refused.
    _denied: set[str] = field(default_factory=set)
    #: The causes of our own faults; the hosts that get no request because of one.
    own_faults: set[str] = field(default_factory=set)
    _unasked: set[str] = field(default_factory=set)
    #: The first fault that loses records of the next run.
    lost: str | None = None

    def own_fault(self, line: str, cause: str = "", host: str = "", *, kept: bool = False) -> None:
        """Log an error on our side in one line. The run then ends with exit code 1.

        *line*: the failure, and the remedy. *cause*: each one is logged once; by default the line.
        *host*: the one that gets no request because of it, if there is one. *kept*: it concerns
        records that runs keep, so the next run may know less.
        """
        if kept and self.lost is None:
            self.lost = line
        if host:
            self._unasked.add(host)
        cause = cause or line
        if cause not in self.own_faults:
            self.own_faults.add(cause)
            self.count("own_faults")
            logger.error("%s", line, extra={"crawler": self.crawler})

    def set_aside(self, stat: str, line: str) -> None:
        """Count an entry of a queue that cannot be used; *line* names it, for the first ones."""
        self.count(stat)
        if self.crawler.stats.get_value(f"walsh/{stat}") > _ASIDE_NAMED:
            line = f"further entries set aside are only counted: walsh/{stat}"
        self.own_fault(line)

    def tell_not_well(self) -> None:
        """Log the consequence of our own faults; called last of all."""
        if self.lost is not None:
            logger.warning(
                "the next run may request hosts and sources again too early, because what this run "
                "or an earlier one has learned could not be kept: %s",
                self.lost,
            )
        elif self.own_faults:
            count = plural(len(self.own_faults), "internal error")
            cost = ""
            if self._unasked:
                cost = f"; nothing was requested from {plural(len(self._unasked), 'host')}"
            logger.warning("this run failed: %s%s; see ERROR above", count, cost)

    def record(self, event: events.Event, *, trial: bool = False) -> None:
        """Log *event*, count it, and write it to the ledger.

        *trial*: of a trial of https: if it gets no answer, that is no error, since http follows.
        """
        remedy = ""
        if (event.kind, event.requirement, event.verdict) not in self._told:
            remedy = remedy_of(event.requirement, event.verdict, event.url)
        if _is_heard(level := self._level(event, trial=trial)):
            line = f"{event}; {remedy}" if remedy else str(event)
            logger.log(level, "%s", line, extra={"crawler": self.crawler, "walsh_event": event})
        self.note(**structs.asdict(event))
        self.count(event.kind)
        if event.requirement == "R2" and event.kind in (events.ADOPTED, events.REJECTED):
            is_rejected = event.kind == events.REJECTED
            self.robots[event.host] = (event.verdict or event.kind) if is_rejected else ""
        if event.kind in (events.REFUSED, events.DEFERRED):
            self.count(f"verdict/{event.verdict}")
        if event.kind == events.REFUSED:
            self.rules[event.requirement, event.verdict] += 1
            self.count(f"refused/{event.requirement}")
            if len(self._denied) < _HOSTS:
                self._denied.add(event.host)
            has_stat = event.host in self._denied
            self.count(f"denied/host/{event.host}" if has_stat else "denied/other_hosts")
        self._send(signals.OF_KIND[event.kind], event=event)

    def _level(self, event: events.Event, *, trial: bool) -> int:
        """The level of *event* in the log, which counts as logged from now on."""
        subjects = self._told.setdefault((event.kind, event.requirement, event.verdict), set())
        subject = event.host or event.reason
        alike = self._count_alike(event)
        if event.kind in _QUIET or subject in subjects or len(subjects) >= _HOSTS:
            return logging.DEBUG
        subjects.add(subject)
        is_warning = event.kind in _WARNED or event.verdict == PRIVATE_ADDRESS
        if not is_warning or self.known(event):
            return logging.INFO
        if alike is not None:
            if event.kind != events.REJECTED:  # at the end it is known for which hosts it is news
                self._new.add(alike)
            return logging.INFO
        # An error of the network: as Scrapy's "Error downloading".
        is_error = event.kind == events.GIVEN_UP and event.status is None and not trial
        return logging.ERROR if is_error else logging.WARNING

    def _count_alike(self, event: events.Event) -> _Alike | None:
        """Count *event* for a line at the end of the crawl; that line, or None if it has none."""
        if event.error:
            self._errors[event.host] = event.error
        if event.kind == events.DEFERRED and event.requirement == "R4":
            self._count_put_off(event)
        alike = self._alike_of(event)
        if alike is None:
            return None
        if alike not in self._alike:
            if len(self._alike) >= _HOSTS:
                return None
            self._alike[alike] = Counter()
        self._alike[alike][event.host] += 1
        self._gave_up[alike] += event.kind == events.GIVEN_UP
        return alike

    def _alike_of(self, event: events.Event) -> _Alike | None:
        """The members that *event* shares with those of other hosts; None if it is no such event.

        A target that was given up, because its host gives no answer, is in the line of those that
        were deferred for that.
        """
        silent = event.unanswered
        if silent is not None:
            reason = silent.reason("the host" if silent.host == event.host else silent.host)
            if silent.host in self._errors:
                reason = f"{reason} ({self._errors[silent.host]})"
            return _Alike(events.DEFERRED, "R5", DEFERRED, reason)
        if (event.kind, event.requirement) in _OF_HOSTS:
            return _Alike(event.kind, event.requirement, event.verdict, event.reason)
        return None

    def _count_put_off(self, event: events.Event) -> None:
        count, _ = self._put_off.get(event.host, (0, 0.0))
        if event.due is not None and (count or len(self._put_off) < _HOSTS):
            self._put_off[event.host] = (count + 1, event.due)

    def tell_alike(self) -> None:
        """Log one line for each reason to leave hosts alone, or to do without their robots.txt.

        One more line has the targets that R4 defers, with the due time of each host.
        """
        self._tell_put_off()
        deferred: set[str] = set()
        for alike, counts in self._alike.items():
            if alike.kind == events.DEFERRED:
                deferred.update(counts)
        for alike, counts in self._alike.items():
            if alike.kind == events.DEFERRED:
                gave_up = self._gave_up[alike]
                parts = [
                    f"{what} {plural(count, 'target')}"
                    for what, count in (
                        ("gave up", gave_up),
                        ("deferred", counts.total() - gave_up),
                    )
                    if count
                ]
                self._tell_hosts(alike, list(counts), " and ".join(parts))
            elif hosts := [host for host in counts if host not in deferred]:
                news = [host for host in hosts if host not in self.robots_known]
                if news:
                    self._new.add(alike)
                self._tell_hosts(alike, news or hosts, f"{alike.kind} robots.txt")

    def _tell_put_off(self) -> None:
        if not self._put_off:
            return
        parts = [
            f"{plural(count, 'target')} of {host} until {iso(math.ceil(due))}"
            for host, (count, due) in self._put_off.items()
        ]
        surplus = len(parts) - _HOSTS_NAMED
        if surplus > 0:
            parts[_HOSTS_NAMED:] = [f"and those of {plural(surplus, 'other host')}"]
        logger.info(
            "deferred (R4): %s",
            "; ".join(parts),
            extra={"crawler": self.crawler},
        )

    def _tell_hosts(self, alike: _Alike, hosts: list[str], subject: str) -> None:
        names = ", ".join(hosts[:_HOSTS_NAMED])
        if len(hosts) > _HOSTS_NAMED:
            names = f"{names} and {plural(len(hosts) - _HOSTS_NAMED, 'other host')}"
        rule = f"{alike.requirement} {alike.verdict}".strip()
        line = f"{subject} of {names} ({rule}): {alike.reason}"
        remedy = REMEDIES.get((alike.requirement, alike.verdict), "")
        if not self._answered and len(hosts) > 1:
            remedy = "no request was answered: check this machine's network"
        if remedy:
            line = f"{line}; {remedy}"
        level = logging.INFO
        if alike in self._new:
            # R5 leaves a host alone that gives no answer.
            level = logging.ERROR if alike.requirement == "R5" else logging.WARNING
        logger.log(level, "%s", line, extra={"crawler": self.crawler})

    def exchange(self, exchange: events.Exchange) -> None:
        """Note *exchange* for the ledger; count it, and log it if it is out of the ordinary.

        Its line is written with the next event, or some milliseconds later, and before anything
        else is sent.
        """
        self.sent[(exchange.purpose,)] += 1
        if exchange.purpose != events.TARGET:
            self.count(f"documents/{exchange.purpose}")
            self.count("documents/octets", exchange.octets or 0)
            answer = exchange.status or "no answer"
            logger.debug("requested %s (%s): %s", exchange.url, exchange.purpose, answer)
        answered = exchange.status is not None or bool(exchange.cut)
        self._answered = self._answered or answered
        if self.ledger is not None:
            self._waiting.append(structs.asdict(exchange))
            (self.soon or self.flush)()
        if exchange.again:
            self.count("asked_again")
            logger.info("requested again in this run: %s", exchange.url)
        if exchange.visit:
            self.count("slow_visits")
        if exchange.learned is not None:  # D28
            self.count("learned", int(exchange.learned > exchange.interval))
            logger.info(
                "%s answered 429 (Too Many Requests): after its next accepted answer its requests "
                "are at least %.3g s apart, in later runs too; they were %.3g s apart",
                exchange.host,
                max(exchange.learned, MIN_REQUEST_INTERVAL),
                exchange.interval,
            )
        if (exchange.reset or 0.0) > exchange.interval:
            logger.info(
                "%s: nothing is left of its rate limit (RateLimit), so it gets no request for "
                "%.0f s",
                exchange.host,
                exchange.reset,
            )
        if exchange.server_wait is not None:  # T43
            self.count("server_waits")
            logger.info(
                "%s: hosts there answer 429 (Too Many Requests), so all of them wait for %.0f s; "
                "then they are spaced as one host (WALSH_PACE_BY)",
                exchange.server.removeprefix("@"),
                exchange.server_wait,
            )
        if exchange.silent and not exchange.once:  # after a trial of https, http is tried
            self.count("silent_hosts")
            self.count("silent_hosts/answered", int(answered))
        self._send(signals.walsh_asked, exchange=exchange)

    def _send(self, signal: object, **arguments: object) -> None:
        """Send a signal. If a receiver raises an error, Scrapy logs it."""
        crawler = self.crawler
        crawler.signals.send_catch_log(signal, spider=crawler.spider, **arguments)

    def note(self, kind: str, **members: Any) -> None:
        """Write to the ledger an event, or a line that is none, for example the end of a run."""
        if self.ledger is not None:
            self._waiting.append({"kind": kind, **members})
            self.flush()

    def declare(self, **members: object) -> None:
        """Note a declared target for the ledger, which gets many of them at once (:meth:`flush`).

        They are written before any other line, and before anything is sent.
        """
        if self.ledger is not None:
            self._waiting.append({"kind": "declared", **members})
            if len(self._waiting) >= _DECLARED_AT_ONCE:
                self.flush()

    def flush(self) -> None:
        """Write the lines that wait to the ledger, in one piece."""
        if self._waiting and (ledger := self.ledger) is not None:
            waiting, self._waiting = self._waiting, []
            with self.told_once():
                ledger.write(self.run, *waiting)

    def keep(self, kind: str, body: bytes, digest: str) -> None:
        """Keep a document beside the ledger, because decisions were made from it."""
        if self.ledger is not None:
            with self.told_once():
                self.ledger.keep(kind, body, digest)

    def close(self) -> None:
        """Put the ledger's last line into the stats, and close the ledger."""
        self.flush()
        if self.ledger is not None:
            self.set("ledger/line", self.ledger.number)
            self.set("ledger/head", self.ledger.head)
            self.ledger.close()
            self.ledger = None

    @contextmanager
    def told_once(self) -> Iterator[None]:
        """A ledger that cannot be written is logged once, and does not stop the crawl.

        Then log what is damaged in the ledger, and which part of it is deleted.
        """
        try:
            yield
        except StateError as error:
            self.own_fault(str(error), "ledger")
        while self.ledger is not None and self.ledger.notices:
            logger.warning("%s", self.ledger.notices.pop(0))

    def rates(self) -> None:
        """Set two rates (docs/reference.md): allowed by robots.txt, and excluded by TLD."""
        get = self.crawler.stats.get_value
        verdicts = {name: get(f"walsh/verdict/{name}", 0) for name in NAMES}
        if robots := sum(verdicts[name] for name in ROBOTS_NAMES):
            allowed = verdicts[ALLOWED_EXPLICIT] + verdicts[ALLOWED_IMPLICIT]
            self.set("robots/allow_rate", allowed / robots)
        if total := sum(verdicts.values()):
            self.set("tld_skip_rate", verdicts[EXCLUDED_TLD] / total)

    def count(self, name: str, by: int = 1) -> None:
        """Add to the stat ``walsh/NAME``."""
        self.crawler.stats.inc_value(f"walsh/{name}", by)

    def set(self, name: str, value: object) -> None:
        """Set the stat ``walsh/NAME``."""
        self.crawler.stats.set_value(f"walsh/{name}", value)
