"""The promises, as questions to the server's log; each answer is a list of what broke one."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from scrapy import version_info

from scrapy_walsh.proof.sandbox import hosts, requests
from tests.campaign.world import BLOCKED, INTERVALS, PLAIN
from tests.crawl.harness import TOLERANCE

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from scrapy_walsh.proof.sandbox import LoggedRequest
    from tests.campaign.world import Ended, Kill

#: Seconds from the end of an answer for which its reader may not yet have taken it.
_IN_FLIGHT = 0.25
#: Before 2.14 Scrapy hands an answer over a tenth of a second late: the next request may be out.
_HANDED_OVER_LATE = version_info < (2, 14)


def refused(log: Iterable[LoggedRequest]) -> list[str]:
    """Requests that an opt-out or a robots.txt forbids."""
    return [
        f"asked {each.host}{each.path}"
        for each in requests(log)
        if each.host.endswith(BLOCKED)
        or (each.host == PLAIN[0] and each.path.startswith("/private/"))
    ]


def too_soon(log: Sequence[LoggedRequest], cuts: Sequence[float] = ()) -> list[str]:
    """Requests before their host's time.

    From the end of one answer to the next request; from request to request where one process
    ended at a time of *cuts* (monotonic) and another went on. T1's pair is left out.
    """
    found = []
    for host in hosts(log):
        asked = requests(log, host)
        for number, (earlier, later) in enumerate(pairwise(asked)):
            cut = any(earlier.arrived <= at < later.arrived for at in cuts)
            exempt = number == 0 and earlier.path == "/robots.txt" != later.path
            if exempt and not cut:
                continue
            interval = 1.0 if later.path == "/robots.txt" else INTERVALS.get(host, 1.0)
            since = earlier.arrived if cut else earlier.completed or later.arrived
            if later.arrived - since < interval - TOLERANCE:
                kind = "across a restart" if cut else "within a run"
                gap = later.arrived - since
                found.append(f"{host}{earlier.path} -> {later.path} after {gap:.3f} s {kind}")
    return found


def asked_again(log: Sequence[LoggedRequest], kills: Sequence[Kill]) -> tuple[int, list[str]]:
    """How often a request was made again because a kill met it in flight; and what was repeated
    without that reason."""
    count, found = 0, []
    asked = requests(log)
    for number, earlier in enumerate(asked):
        later = next((each for each in asked[number + 1 :] if _same(each, earlier)), None)
        if later is None or earlier.status not in (200, None):
            continue
        if any(_met(at, number, asked) for at in kills):
            count += 1
        else:
            before = min((kill.ordered - (earlier.completed or 0.0) for kill in kills), key=abs)
            asked_for = f"{earlier.host}{earlier.path}"
            found.append(f"{asked_for} was asked again, answered {before:.3f} s before a kill")
    return count, found


def _same(one: LoggedRequest, other: LoggedRequest) -> bool:
    return (one.host, one.target) == (other.host, other.target)


def _met(kill: Kill, number: int, asked: Sequence[LoggedRequest]) -> bool:
    """Whether the kill met request *number*: the last one before it, and not yet taken."""
    last = _HANDED_OVER_LATE or number + 1 == len(asked) or asked[number + 1].arrived > kill.over
    completed = asked[number].completed
    return (
        last
        and asked[number].arrived <= kill.over
        and (completed is None or completed >= kill.ordered - _IN_FLIGHT)
    )


def lost(targets: Iterable[str], parsed: Sequence[str]) -> list[str]:
    """Targets that no spider was ever given a response for."""
    return [f"{url} was lost" for url in targets if url not in parsed]


def unclean(run: Ended, returncode: int = 0) -> list[str]:
    """A traceback, or another return code than the one expected."""
    found = []
    if "Traceback" in run.output:
        found.append("a traceback: " + run.output[run.output.index("Traceback") :][-600:])
    if run.returncode != returncode:
        found.append(f"return code {run.returncode}: {run.output[-300:]}")
    return found
