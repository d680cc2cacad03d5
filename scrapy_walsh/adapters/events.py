"""Events to the log, the stats, the ledger and the account of a crawl. Decides nothing."""

from __future__ import annotations

import logging
import secrets
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from scrapy_walsh.errors import StateError
from scrapy_walsh.ledger.lines import entry_of
from scrapy_walsh.policy import event as events
from scrapy_walsh.policy.verdict import (
    ALLOWED_EXPLICIT,
    ALLOWED_IMPLICIT,
    EXCLUDED_TLD,
    NAMES,
    ROBOTS_NAMES,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from scrapy.crawler import Crawler

    from scrapy_walsh.ledger import Ledger
    from scrapy_walsh.policy.event import Event, Exchange
    from scrapy_walsh.policy.verdict import Verdict

logger = logging.getLogger("scrapy_walsh")

_LEVELS: Final = {
    events.REFUSED: logging.INFO,
    events.HELD: logging.DEBUG,
    events.FETCHED: logging.DEBUG,
    events.RETRIED: logging.INFO,
    events.DEFERRED: logging.WARNING,
    events.GIVEN_UP: logging.WARNING,
    events.NOT_MODIFIED: logging.INFO,
    events.ADOPTED: logging.INFO,
    events.REJECTED: logging.WARNING,
    events.TAKEN_UP: logging.DEBUG,
}
_VERDICT_STATS: Final = {name: f"walsh/verdict/{name}" for name in NAMES}
#: Hosts counted one by one in the stats; beyond them, together.
_HOSTS_COUNTED: Final = 1000
#: Lines of one kind that the account lists.
_LINES_LISTED: Final = 50
#: Names this process in the ledger: its requests never overlap (R4.1).
PROCESS: Final = secrets.token_hex(4)


@dataclass(slots=True)
class Recorder:
    """Takes every event of one crawl."""

    crawler: Crawler
    ledger: Ledger | None = None
    run: str = field(default_factory=lambda: secrets.token_hex(4))
    _ledger_failed: bool = False
    _kinds: Counter[str] = field(default_factory=Counter)
    _verdicts: Counter[str] = field(default_factory=Counter)
    _rules: Counter[tuple[str, str]] = field(default_factory=Counter)
    _lines: dict[str, list[str]] = field(default_factory=dict)
    _denied_hosts: set[str] = field(default_factory=set)

    def record(self, event: Event) -> None:
        """Log it, count it, and keep it for the account."""
        logger.log(_LEVELS[event.kind], "%s", event, extra={"crawler": self.crawler})
        if self.ledger is not None:
            self._write(entry_of(event))
        self._kinds[event.kind] += 1
        self.count(event.kind)
        if event.kind in (events.REFUSED, events.DEFERRED):
            self._verdicts[event.verdict] += 1
            self.count(f"verdict/{event.verdict}")
        if event.kind == events.REFUSED:
            self._record_refusal(event)
        if event.kind in (events.REFUSED, events.DEFERRED, events.GIVEN_UP):
            lines = self._lines.setdefault(event.kind, [])
            if len(lines) < _LINES_LISTED:
                lines.append(str(event))

    def exchange(self, exchange: Exchange) -> None:
        """Put what was on the wire into the ledger."""
        if self.ledger is not None:
            self._write(entry_of(exchange))

    def note(self, kind: str, **members: object) -> None:
        """Put what is no decision into the ledger: a run's start and end, a declared target."""
        if self.ledger is not None:
            self._write({"kind": kind, **members})

    def keep(self, kind: str, body: bytes, digest: str) -> None:
        """Keep a document that decisions rest on beside the ledger."""
        if self.ledger is not None:
            with self._told_once():
                self.ledger.keep(kind, body, digest)

    def close(self) -> None:
        """Say where the ledger ends, and let go of it."""
        if self.ledger is not None:
            self.set("ledger/line", self.ledger.number)
            self.set("ledger/head", self.ledger.head)
            self.ledger.close()
            self.ledger = None

    def _write(self, entry: dict[str, Any]) -> None:
        with self._told_once():
            if self.ledger is not None:
                self.ledger.write(self.run, entry)

    @contextmanager
    def _told_once(self) -> Iterator[None]:
        """A ledger that cannot be written is said once, and does not stop the crawl."""
        try:
            yield
        except StateError as error:
            if not self._ledger_failed:
                logger.error("%s", error)
            self._ledger_failed = True

    def verdict(self, verdict: Verdict) -> None:
        """Count a verdict that let a request pass."""
        self._verdicts[verdict.name] += 1
        self.crawler.stats.inc_value(_VERDICT_STATS[verdict.name])

    def rates(self) -> None:
        """Put SPYDER's rates into the stats: what robots.txt allowed, what suffixes excluded."""
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
        self._rules[event.requirement, event.verdict] += 1
        self.count(f"refused/{event.requirement}")
        if event.host in self._denied_hosts or len(self._denied_hosts) < _HOSTS_COUNTED:
            self._denied_hosts.add(event.host)
            self.count(f"denied/host/{event.host}")
        else:
            self.count("denied/other_hosts")

    def account(self) -> list[str]:
        """The readable account of the crawl, a line each."""
        kinds = self._kinds
        rules = ", ".join(
            f"{count} by {requirement} {verdict}"
            for (requirement, verdict), count in sorted(self._rules.items())
        )
        lines = [
            (
                f"fetched {kinds[events.FETCHED]}, not modified {kinds[events.NOT_MODIFIED]}, "
                f"refused {kinds[events.REFUSED]}{f' ({rules})' if rules else ''}, "
                f"backed off {kinds[events.RETRIED]}, given up {kinds[events.GIVEN_UP]}, "
                f"deferred {kinds[events.DEFERRED]}"
            )
        ]
        for kind, listed in self._lines.items():
            lines += [f"  {line}" for line in listed]
            if kinds[kind] > len(listed):
                lines.append(f"  ... and {kinds[kind] - len(listed)} more {kind}")
        return lines
