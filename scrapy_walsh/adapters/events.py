"""Records what was decided: in the log, the stats, the ledger and the account of a crawl.

All four are made from one value, so they cannot contradict each other. Nothing is decided here.
"""

from __future__ import annotations

import logging
import os
import secrets
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from msgspec import structs

from scrapy_walsh import signals
from scrapy_walsh.exceptions import StateError
from scrapy_walsh.policy import event as events
from scrapy_walsh.policy.throttle import MIN_REQUEST_INTERVAL
from scrapy_walsh.policy.verdict import (
    ALLOWED_EXPLICIT,
    ALLOWED_IMPLICIT,
    DEFERRED,
    EXCLUDED_TLD,
    OWNERS_NO,
    REMEDIES,
    ROBOTS_NAMES,
    UNKNOWN_PARSE_ERROR,
    UNKNOWN_UNREACHABLE,
)
from scrapy_walsh.policy.words import plural, visible

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from scrapy.crawler import Crawler

    from scrapy_walsh.ledger import Ledger
    from scrapy_walsh.policy.event import Event, Exchange

logger = logging.getLogger("scrapy_walsh")


def _escape(record: logging.LogRecord) -> bool:
    """Make sure that a record is one line, whatever a server put into it (``visible``).

    A record with several lines on purpose has ``several_lines``; they were escaped one by one.
    """
    if not getattr(record, "several_lines", False):
        record.msg, record.args = visible(record.getMessage()), None
    return True


logger.addFilter(_escape)

#: The level of an event of each kind in the log; of any other kind it is INFO.
_LEVELS: Final = {
    **dict.fromkeys((events.HELD, events.FETCHED, events.TAKEN_UP), logging.DEBUG),
    **dict.fromkeys((events.DEFERRED, events.GIVEN_UP, events.REJECTED), logging.WARNING),
    events.TOO_MANY_REDIRECTS: logging.WARNING,
}
#: Events that end a target and that a person should see: the account lists them one by one.
_LISTED: Final = (
    events.REFUSED,
    events.DEFERRED,
    events.GIVEN_UP,
    events.TOO_MANY_REDIRECTS,
)
#: Hosts that have a stat of their own; refusals of all others are counted together.
_HOSTS_COUNTED: Final = 1000
#: The most lines `declared` that are written to the ledger at once: some milliseconds.
_DECLARED_AT_ONCE: Final = 256
#: Entries of a queue that cannot be used and get a line in the log.
_ASIDE_NAMED: Final = 20
#: The most lines of one kind that the account lists.
_LINES_LISTED: Final = 50
#: Deferrals, by requirement and verdict, that concern all targets of a host alike. When the crawl
#: ends they are logged in one line for each host, at this level. (INFO where a warning was logged
#: when the robots.txt came.)
_OF_HOSTS: Final = {
    ("R5", DEFERRED): logging.WARNING,
    ("R2", UNKNOWN_UNREACHABLE): logging.WARNING,
    ("R2", DEFERRED): logging.WARNING,
    ("R2", UNKNOWN_PARSE_ERROR): logging.INFO,
}
#: What the reason of an event has in it whose host gave no answer; why follows.
NO_ANSWER: Final = "no answer: "
#: Of a robots.txt: said at the end, where the host's targets were requested all the same.
_OF_NO_ANSWER: Final = (events.REJECTED, "R2")
#: Hosts that such a line names.
_HOSTS_NAMED: Final = 10


def process_name() -> str:
    """The name of this process in the ledger; requests of one process never overlap (R4.1).

    A forked child has a name of its own, also where its parent had imported this module.
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


@dataclass(slots=True)
class _Alike:
    """Targets that ended for one reason. ``line``: of the first. ``hosts``: how many of each."""

    line: str
    hosts: Counter[str] = field(default_factory=Counter)


@dataclass(slots=True)
class Recorder:
    """Records every event of one crawl."""

    crawler: Crawler
    ledger: Ledger | None = None
    run: str = field(default_factory=lambda: secrets.token_hex(4))
    #: Called where lines begin to wait: :meth:`flush` follows soon. None: no exchange's line waits.
    soon: Callable[[], None] | None = None
    #: Whether an earlier run has told what an event says of a target or a robots.txt.
    known: Callable[[Event], bool] = lambda _: False
    #: Lines of the ledger that were not written yet: :meth:`declare`, :meth:`exchange`.
    _waiting: list[dict[str, Any]] = field(default_factory=list)
    _kinds: Counter[str] = field(default_factory=Counter)
    _verdicts: Counter[str] = field(default_factory=Counter)
    #: Refusals by requirement and verdict; requests that were sent, by purpose.
    rules: Counter[tuple[str, ...]] = field(default_factory=Counter)
    sent: Counter[tuple[str, ...]] = field(default_factory=Counter)
    _lines: dict[str, list[str]] = field(default_factory=dict)
    _unlisted: Counter[str] = field(default_factory=Counter)
    _denied_hosts: set[str] = field(default_factory=set)
    #: Requirements and verdicts whose remedy was logged.
    _advised: set[tuple[str, str]] = field(default_factory=set)
    #: By what they have in common, targets that are told of together (:func:`_shared`).
    _alike: dict[tuple[Any, ...], _Alike] = field(default_factory=dict)
    #: Why hosts gave no answer, in a few words; whether any gave one.
    _causes: dict[str, str] = field(default_factory=dict)
    _answered: bool = False
    #: What failed on this side, by cause: the hosts of which nothing is requested for that reason.
    own_faults: dict[str, set[str]] = field(default_factory=dict)
    #: The first of them that means that records are lost to the next run.
    lost: str | None = None

    def own_fault(self, line: str, cause: str = "", host: str = "", *, kept: bool = False) -> None:
        """Say in one line what failed because of us: from now on, this run is not well (exit 1).

        *line*: what failed, and what to do. *cause*: what is said once; by default the line.
        *host*: of which nothing is requested for that reason, if it is one. *kept*: it is about
        what is kept between runs, so the next one may go by less.
        """
        if kept and self.lost is None:
            self.lost = line
        cause = cause or line
        known = cause in self.own_faults
        hosts = self.own_faults.setdefault(cause, set())
        if host and len(hosts) < _HOSTS_COUNTED:
            hosts.add(host)
        if known:
            return
        self.count("own_faults")
        logger.error("%s", line, extra={"crawler": self.crawler})

    def set_aside(self, stat: str, line: str) -> None:
        """Count an entry of a queue that cannot be used; *line* names it, of the first of them."""
        self.count(stat)
        count = self.crawler.stats.get_value(f"walsh/{stat}")
        if count <= _ASIDE_NAMED:
            self.own_fault(line)
        else:
            self.own_fault(f"further entries set aside are only counted: walsh/{stat}")

    def tell_not_well(self) -> None:
        """Log what follows from what failed; called last of all."""
        if self.lost is not None:
            logger.warning(
                "the next run may request hosts and sources again too early, because what this run "
                "or an earlier one has learned could not be kept: %s",
                self.lost,
            )
        elif self.own_faults:
            count = plural(len(self.own_faults), "thing")
            hosts: set[str] = set().union(*self.own_faults.values())
            cost = f"; nothing was requested of {plural(len(hosts), 'host')}" if hosts else ""
            logger.warning(
                "this run is not well: %s of ours failed%s; see ERROR above", count, cost
            )

    def record(self, event: Event) -> None:
        """Log *event*, count it, write it to the ledger, and keep it for the account."""
        level = _LEVELS.get(event.kind, logging.INFO)
        if level == logging.WARNING and self.known(event):
            level = logging.INFO
        alone = not (shared := self._count_alike(event, level))
        level = shared or level
        line = f"{event}{self._remedy(event)}"
        logger.log(level, "%s", line, extra={"crawler": self.crawler, "walsh_event": event})
        if self.ledger is not None:
            self._write(structs.asdict(event))
        self._kinds[event.kind] += 1
        self.count(event.kind)
        if event.kind in (events.REFUSED, events.DEFERRED):
            self.verdict(event.verdict)
        if event.kind == events.REFUSED:
            self._record_refusal(event)
        if alone and event.kind in _LISTED:
            self._list(event.kind, str(event))
        self._send(signals.OF_KIND[event.kind], event=event)

    def _remedy(self, event: Event) -> str:
        """What to do about the first target that was refused or deferred for this reason."""
        rule = _rule(event)
        if event.kind not in (events.REFUSED, events.DEFERRED) or rule in self._advised:
            return ""
        self._advised.add(rule)
        return f"; {REMEDIES[rule]}" if rule in REMEDIES else ""

    def _count_alike(self, event: Event, level: int) -> int | None:
        """Count *event* where it is told of with others; the level of its own line, None if not.

        *level*: of a line that tells of it alone.
        """
        kind, rule, shared = event.kind, _rule(event), _shared(event)
        if kind == events.GIVEN_UP:
            kind, rule = events.DEFERRED, ("R5", DEFERRED)
        key = (kind, *rule, shared, self._causes.get(event.host, ""), level)
        known = key in self._alike
        if not shared or (len(self._alike) >= _HOSTS_COUNTED and not known):
            return None
        self._alike.setdefault(key, _Alike(str(event))).hosts[event.host] += 1
        at_the_end = kind == events.DEFERRED or (kind, rule[0]) == _OF_NO_ANSWER
        return logging.DEBUG if known or at_the_end else level

    def tell_hosts(self) -> None:
        """Log, and keep for the account, one line for each reason that held for whole hosts."""
        left: set[str] = set()
        for (kind, *rule, shared, cause, level), alike in self._alike.items():
            if kind == events.DEFERRED:
                left |= alike.hosts.keys()
                self._tell_deferred((rule[0], rule[1]), shared, cause, alike, level)
            elif kind == events.REFUSED:
                more = plural(alike.hosts.total() - 1, "more target")
                more = f" (and {more} of {shared})" if alike.hosts.total() > 1 else ""
                self._list(kind, f"{alike.line}{more}")
        for (kind, requirement, _, shared, *_), alike in self._alike.items():
            hosts = [each for each in alike.hosts if each not in left]
            if (kind, requirement) == _OF_NO_ANSWER and hosts:
                logger.warning("rejected robots.txt of %s (R2): %s", _named(hosts), shared)
        self._alike.clear()

    def _tell_deferred(
        self, rule: tuple[str, str], shared: str, cause: str, alike: _Alike, level: int
    ) -> None:
        hosts, remedy = list(alike.hosts), REMEDIES[rule]
        who = f"{hosts[0]} "
        if len(hosts) > 1:
            who = "each "
            if not self._answered:
                remedy = "nothing at all was answered: see this machine's network"
        line = (
            f"deferred {plural(alike.hosts.total(), 'target')} of {_named(hosts)} to the next run "
            f"({rule[0]} {rule[1]}): {who if rule[0] == 'R5' else ''}{shared}"
            f"{f' ({cause})' if cause and cause not in shared else ''}; {remedy}"
        )
        logger.log(min(level, _OF_HOSTS[rule]), "%s", line, extra={"crawler": self.crawler})
        self._list(events.DEFERRED, line)

    def _list(self, kind: str, line: str) -> None:
        lines = self._lines.setdefault(kind, [])
        if len(lines) < _LINES_LISTED:
            lines.append(line)
        else:
            self._unlisted[kind] += 1

    def exchange(self, exchange: Exchange) -> None:
        """Note *exchange* for the ledger; count and log what is out of the ordinary.

        Its line is written together with what follows from its answer, or some milliseconds later,
        and before anything else is sent.
        """
        self.sent[(exchange.purpose,)] += 1
        self._answered = self._answered or exchange.status is not None
        if self.ledger is not None:
            self._waiting.append(structs.asdict(exchange))
            (self.soon or self.flush)()
        if exchange.again:
            self.count("asked_again")
            logger.info("requested again in this run: %s", exchange.url)
        if exchange.visit:
            self.count("slow_visits")
            logger.info(
                "%s asks for %g s between requests: one target a day follows its robots.txt (%s)",
                exchange.host,
                exchange.interval,
                exchange.url,
            )
        if exchange.learned is not None:
            self._learned(exchange, exchange.learned)
        if exchange.silent and not exchange.once:  # after a trial of https, http is tried
            self.count("silent_hosts")
            self.count("silent_hosts/answered", int(exchange.status is not None))
        self._send(signals.walsh_asked, exchange=exchange)

    def no_answer(self, host: str, cause: str) -> None:
        """Note that *host* gave no answer, and why, in a few words."""
        if len(self._causes) < _HOSTS_COUNTED:
            self._causes[host] = cause

    def _learned(self, exchange: Exchange, seconds: float) -> None:
        """Log and count that a host's answers have changed its interval (D28)."""
        host = exchange.host
        if seconds > exchange.interval:
            self.count("learned")
            logger.info(
                "%s has answered 429 (Too Many Requests) again: its requests are at least %.3g s "
                "apart from now on, in later runs too; they were %.3g s apart",
                host,
                seconds,
                exchange.interval,
            )
        else:
            logger.info(
                "%s has not answered 429 for a while: its requests are at least %.3g s apart from "
                "now on, or as its robots.txt asks",
                host,
                max(seconds, MIN_REQUEST_INTERVAL),
            )

    def _send(self, signal: object, **arguments: object) -> None:
        """Send a signal to whoever listens; what a receiver raises is logged by Scrapy."""
        crawler = self.crawler
        crawler.signals.send_catch_log(signal, spider=crawler.spider, **arguments)

    def note(self, kind: str, **members: object) -> None:
        """Write to the ledger what is not a decision: the start of a run, and its end."""
        if self.ledger is not None:
            self._write({"kind": kind, **members})

    def declare(self, **members: object) -> None:
        """Note a declared target for the ledger, which gets many of them at once (:meth:`flush`).

        They are written before any other line, and before anything is sent.
        """
        if self.ledger is not None:
            self._waiting.append({"kind": "declared", **members})
            if len(self._waiting) >= _DECLARED_AT_ONCE:
                self.flush()

    def flush(self) -> None:
        """Write what waits to the ledger, in one piece."""
        if self._waiting and (ledger := self.ledger) is not None:
            waiting, self._waiting = self._waiting, []
            try:
                ledger.write(self.run, *waiting)
            except StateError as error:  # as ``told_once``, without its steps in each request
                self.own_fault(str(error), "ledger")
            self.tell_ledger()

    def keep(self, kind: str, body: bytes, digest: str) -> None:
        """Keep a document beside the ledger, because decisions were made from it."""
        if self.ledger is not None:
            with self.told_once():
                self.ledger.keep(kind, body, digest)
            self.tell_ledger()

    def tell_ledger(self) -> None:
        """Log what was found damaged in the ledger, and what of it will go."""
        while self.ledger is not None and self.ledger.notices:
            logger.warning("%s", self.ledger.notices.pop(0))

    def close(self) -> None:
        """Put the ledger's last line into the stats, and close the ledger."""
        self.flush()
        if self.ledger is not None:
            self.set("ledger/line", self.ledger.number)
            self.set("ledger/head", self.ledger.head)
            self.ledger.close()
            self.ledger = None

    def _write(self, entry: dict[str, Any]) -> None:
        self._waiting.append(entry)
        self.flush()

    @contextmanager
    def told_once(self) -> Iterator[None]:
        """A ledger that cannot be written is logged once, and does not stop the crawl."""
        try:
            yield
        except StateError as error:
            self.own_fault(str(error), "ledger")

    def verdict(self, name: str) -> None:
        """Count the verdict by which a target has ended, or was let through when it has ended."""
        self._verdicts[name] += 1
        self.count(f"verdict/{name}")

    def rates(self) -> None:
        """Put two rates into the stats (docs/stats.md): allowed by robots.txt, excluded by TLD."""
        verdicts = self._verdicts
        robots = sum(verdicts[name] for name in ROBOTS_NAMES)
        if robots:
            allowed = verdicts[ALLOWED_EXPLICIT] + verdicts[ALLOWED_IMPLICIT]
            self.set("robots/allow_rate", allowed / robots)
        if verdicts.total():
            self.set("tld_skip_rate", verdicts[EXCLUDED_TLD] / verdicts.total())

    def count(self, name: str, by: int = 1) -> None:
        """Add to the stat ``walsh/NAME``."""
        self.crawler.stats.inc_value(f"walsh/{name}", by)

    def set(self, name: str, value: object) -> None:
        """Set the stat ``walsh/NAME``."""
        self.crawler.stats.set_value(f"walsh/{name}", value)

    def _record_refusal(self, event: Event) -> None:
        self.rules[event.requirement, event.verdict] += 1
        self.count(f"refused/{event.requirement}")
        if event.host in self._denied_hosts or len(self._denied_hosts) < _HOSTS_COUNTED:
            self._denied_hosts.add(event.host)
            self.count(f"denied/host/{event.host}")
        else:
            self.count("denied/other_hosts")

    def tell_account(self) -> None:
        """Log what became of the targets."""
        account = "\n".join(self.account())
        logger.info("account of the crawl:\n%s", account, extra={"several_lines": True})

    def account(self) -> list[str]:
        """The lines that say at the end of the crawl what became of its targets."""
        kinds = self._kinds
        rules = ", ".join(
            f"{count} by {requirement} {verdict}"
            for (requirement, verdict), count in sorted(self.rules.items())
        )
        lines = [
            (
                f"fetched {kinds[events.FETCHED]}, not modified {kinds[events.NOT_MODIFIED]}, "
                f"refused {kinds[events.REFUSED]}{f' ({rules})' if rules else ''}, "
                f"backed off {kinds[events.RETRIED]}, given up {kinds[events.GIVEN_UP]}, "
                f"deferred {kinds[events.DEFERRED]}, "
                f"redirected too often {kinds[events.TOO_MANY_REDIRECTS]}"
            )
        ]
        for kind, listed in self._lines.items():
            lines += [f"  {visible(line)}" for line in listed]
            if self._unlisted[kind]:
                lines.append(f"  ... and {self._unlisted[kind]} more {kind}")
        return lines


def _rule(event: Event) -> tuple[str, str]:
    return event.requirement, event.verdict


def _shared(event: Event) -> str:
    """By what *event* is told of together with others: a reason of whole hosts; "" for none.

    A refusal by its owner is told of with those of the same host, all else with other hosts', too.
    """
    rule, host = _rule(event), event.host
    if event.kind == events.GIVEN_UP:  # where the reason ends with that of its host
        return event.reason.partition(f": {host} ")[2]
    if event.kind == events.REFUSED and rule in OWNERS_NO:
        return host
    silent = NO_ANSWER in event.reason
    if event.kind == events.RETRIED and silent:  # but for the number of the retry
        return event.reason.partition(";")[0]
    if event.kind == events.REJECTED and (silent or event.requirement == "R3"):
        return event.reason
    with_host = event.kind == events.DEFERRED and rule in _OF_HOSTS
    return event.reason.removeprefix(f"{host} ") if with_host else ""


def _named(hosts: list[str]) -> str:
    """*hosts*, and how many they are where that cannot be seen."""
    if len(hosts) == 1:
        return hosts[0]
    more = f" and {len(hosts) - _HOSTS_NAMED} more" if len(hosts) > _HOSTS_NAMED else ""
    return f"{len(hosts)} hosts ({', '.join(hosts[:_HOSTS_NAMED])}{more})"
