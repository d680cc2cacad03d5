"""Whether a request, and the end of a target, came as far as its site. Pure.

A request without a connection is in no log of the site's server. And if our network or our proxy
fails, no page may say that the site gave no answer.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal

from scrapy_walsh.policy import event as events
from scrapy_walsh.policy import hosts
from scrapy_walsh.policy.event import ASKED
from scrapy_walsh.policy.verdict import DEFERRED

if TYPE_CHECKING:
    from scrapy_walsh.policy.event import Unsent
    from scrapy_walsh.proof.ledger import Line

#: Why a request may not have come to its site: a proxy took it, and gave no answer.
SILENT: Final = "silent"
Stage = Literal["name", "connection", "tls", "proxy", "ours", "silent", ""]


def stage_of(line: Line) -> Stage:
    """Where the exchange *line* ended, if its site may know nothing of it; "" if it arrived."""
    stage: Unsent | None = line.unsent
    if stage is not None:
        return stage
    if line.proxy and line.status is None and not line.cut:
        return SILENT
    return ""


@dataclass(slots=True)
class Reach:
    """Takes the lines of a ledger. Of each host, it knows where the last exchanges have ended."""

    _last: dict[str, Stage] = field(default_factory=dict)
    #: The same of the requests for its robots.txt.
    _robots: dict[str, Stage] = field(default_factory=dict)
    #: Hosts with a robots.txt that leads to a URL which may not be requested.
    _hops: set[str] = field(default_factory=set)

    def take(self, line: Line) -> None:
        """Note the end of an exchange, or of the fetch of a robots.txt."""
        if line.kind == ASKED:
            self._last[line.host] = stage_of(line)
            if line.purpose == "robots":
                asked_for = hosts.host_or_url(line.robots_of) if line.robots_of else line.host
                self._robots[asked_for] = stage_of(line)
        elif line.kind == events.REJECTED and line.hop:
            self._hops.add(line.host)
        elif line.kind in (events.REJECTED, events.ADOPTED):
            self._hops.discard(line.host)

    def stage(self, line: Line) -> Stage:
        """Why the site has no part in *line*, which ends a target or rejects a robots.txt.

        "" if the site has answered, or refuses it.
        """
        if line.requirement == "R3" and line.verdict == DEFERRED:
            return "ours"
        if line.requirement == "R2":
            if line.verdict == DEFERRED and line.host not in self._hops:
                return "ours"
            is_about_fetch = line.kind == events.REJECTED or line.rule is None
            return self._robots.get(line.host, "") if is_about_fetch else ""
        if line.requirement == "R5" or line.kind == events.GIVEN_UP:
            return self._last.get(line.robots_host or line.host, "")
        return ""
