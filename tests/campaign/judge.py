"""The promises, as questions to the server's log; each answer is a list of what broke one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scrapy import version_info

from scrapy_walsh.proof import exchanges
from scrapy_walsh.proof.exchanges import ROBOTS
from scrapy_walsh.proof.sandbox import exchanged, requests
from tests.campaign.world import BLOCKED, BUSY, INTERVALS, PLAIN, RETRY_AFTER
from tests.crawl.harness import TOLERANCE

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from scrapy_walsh.proof.exchanges import Gap
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

    *cuts*: when one process had ended and another went on (monotonic).
    """
    asked = [each._replace(by=sum(cut <= each.start for cut in cuts)) for each in exchanged(log)]
    return [
        f"{gap} {'within a run' if gap.before.by == gap.after.by else 'across a restart'}"
        for gap in exchanges.too_soon(asked, _interval, TOLERANCE)
    ]


def _interval(gap: Gap[LoggedRequest]) -> float:
    return 1.0 if gap.after.path == ROBOTS else INTERVALS.get(gap.after.host, 1.0)


def cut_short(log: Iterable[LoggedRequest]) -> list[str]:
    """Requests to the host that said "in a second", before that second was over."""
    asked = exchanged(log, BUSY)
    told = (each._replace(hold=RETRY_AFTER if each.status == 503 else 0.0) for each in asked)
    return [
        f"{each.host}{each.path} {left:.3f} s before the end of a Retry-After"
        for each, left in exchanges.held(told, TOLERANCE)
    ]


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
