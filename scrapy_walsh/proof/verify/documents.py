"""The documents in force in a run at each moment: lines ``adopted``, ``taken_up``, ``rejected``."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Protocol

from scrapy_walsh.policy import hosts

if TYPE_CHECKING:
    from scrapy_walsh.ledger.reading import Moment
    from scrapy_walsh.policy.blocklist import Blocklist
    from scrapy_walsh.policy.chain import Rules
    from scrapy_walsh.policy.robots import Robots
    from scrapy_walsh.policy.verdict import Verdict


class LookUp(Protocol):
    """Finds the documents that a ledger names, by their digests. None: it is not there."""

    def adopted_list(self, digest: str, schema: str | None, url: str) -> Blocklist | None:
        """The list with that digest, validated with the standalone schema of digest *schema*.

        DocumentInvalid where it must not be adopted.
        """

    def held_list(self, digest: str, url: str) -> Blocklist | None:
        """The list with that digest, which was validated before; DocumentInvalid as above."""

    def robots(self, digest: str, token: str, document: str) -> Robots | None:
        """The rules of the file with that digest, which came from *document*."""

    def altered(self, digest: str) -> bool:
        """Whether another body was found under that digest; known once it was looked up."""


@dataclass(frozen=True, slots=True)
class RulesHeld:
    """The rules of an origin. ``rules``: None where the document is not there to be read.

    ``since``: when they came into force. ``fetched_at``: when they were fetched, None where no
    line says so; both Unix seconds. ``ttl``, ``crawl_delay``: seconds. ``serial``: the line's
    number.
    """

    serial: int
    since: float
    rules: Rules | None
    fetched_at: float | None
    ttl: float
    digest: str | None = None
    crawl_delay: float = 0.0


@dataclass(frozen=True, slots=True)
class ListHeld:
    """The blocklist of a run; ``blocklist`` None where the document is not there to be read.

    ``rejected``: the last attempt to get a newer one failed. ``verdict``: on every target, where
    there is no list and nothing may be requested without one.
    """

    serial: int
    since: float
    blocklist: Blocklist | None
    fetched_at: float | None
    digest: str | None = None
    rejected: bool = False
    verdict: Verdict | None = None


@dataclass(frozen=True, slots=True)
class Known:
    """The last robots.txt of an origin that any run adopted."""

    digest: str | None
    status: int | None
    at: float
    line: int


@dataclass(slots=True)
class InForce:
    """The documents in force in one run, and of each the one before (see ``Moment``)."""

    _lists: list[ListHeld] = field(default_factory=list)
    _rules: dict[str, tuple[RulesHeld | None, RulesHeld | None]] = field(default_factory=dict)

    def blocklist(self, moment: Moment) -> ListHeld | None:
        """The list in force at that moment."""
        return next((held for held in reversed(self._lists) if moment.saw(held.since)), None)

    def latest_list(self) -> ListHeld | None:
        """The list in force now."""
        return self._lists[-1] if self._lists else None

    def put_list(self, held: ListHeld) -> None:
        """*held* is in force from now on."""
        self._lists = [*self._lists[-1:], held]

    def keep_list(self) -> None:
        """Note that an attempt to get a newer list failed."""
        self._lists[-1:] = [replace(self._lists[-1], rejected=True)]

    def rules(self, origin: str, moment: Moment) -> RulesHeld | None:
        """The rules of *origin* in force at that moment."""
        before, now = self._rules.get(origin, (None, None))
        return now if now is None or moment.saw(now.since) else before

    def put_rules(self, origin: str, held: RulesHeld | None) -> None:
        """*held* is in force for *origin* from now on; None: nothing is."""
        self._rules[origin] = (self._rules.get(origin, (None, None))[1], held)

    def crawl_delay(self, host: str, moment: Moment) -> float:
        """The longest Crawl-delay that the rules of both schemes of *host* ask for."""
        held = (self.rules(f"{scheme}://{host}", moment) for scheme in ("http", "https"))
        return max((each.crawl_delay for each in held if each is not None), default=0.0)


def origin_of(url: str) -> str:
    """The origin of *url*; *url* itself where it has none, which no document is held for."""
    try:
        return hosts.origin(url)
    except ValueError:
        return url
