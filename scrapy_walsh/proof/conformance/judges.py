"""What many rows ask of the evidence. Most of these make a judge. Pure: values in, findings out.

Times are the server's, from arrival to arrival: a bot that waits from the end of an answer is then
never judged by how late the server stamped it. *run* is the number of the run that is looked at. A
judge whose occasion did not occur says NOT SEEN: it asks for that occasion by :func:`seen`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeAlias, TypeVar

from scrapy_walsh.findings import Finding, broken, held, held_if, unseen
from scrapy_walsh.proof.conformance.evidence import Evidence, Run, full, urls_of
from scrapy_walsh.proof.exchanges import gaps
from scrapy_walsh.proof.sandbox import LoggedRequest, exchanged, hosts
from scrapy_walsh.proof.spacing import THE_WIRE, is_short

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

Judge: TypeAlias = Callable[[Evidence], Finding]
_T = TypeVar("_T")

NOT_ASKED: Final = "it was not asked"
NO_ROBOTS: Final = "its robots.txt was not asked"


class NotSeen(Exception):
    """The occasion of a row did not occur; the message says what was missing."""


def seen(found: _T | None, why: str = NOT_ASKED) -> _T:
    """*found*, where there is any; else the row is NOT SEEN, and says *why*."""
    if not found:
        raise NotSeen(why)
    return found


def look(judge: Judge, evidence: Evidence) -> Finding:
    """What *judge* finds."""
    try:
        return judge(evidence)
    except NotSeen as error:
        return unseen(str(error))


def none(wrong: Sequence[_T], said: Callable[[_T], str] = str, kept: str = "") -> Finding:
    """Broken by the first of *wrong*, as *said* of it; held, and *kept*, where there is none."""
    return broken(said(wrong[0])) if wrong else held(kept)


def never(urls: str, controls: str = "", run: int = 0) -> Judge:
    """None of *urls* was requested, though each of *controls* was."""

    def judge(evidence: Evidence) -> Finding:
        here = evidence.runs[run]
        missing = [url for url in urls_of(controls) if not here.requested(url)]
        for url in urls_of(urls):
            if here.requested(url):
                return broken(f"asked {url}")
        return unseen(f"{missing[0]} was not asked either") if missing else held()

    return judge


def nothing_of(names: str, control: str, run: int = 0) -> Judge:
    """None of the hosts *names* had a request or a CONNECT, though *control* was requested."""

    def judge(evidence: Evidence) -> Finding:
        here = evidence.runs[run]
        reached = hosts(here.log)
        for name in names.split():
            if name in reached:
                return broken(f"{name} was asked {', '.join(here.paths(name)) or 'CONNECT'}")
        asked = here.requested(control)
        return held() if asked else unseen(f"{full(control)} was not asked either")

    return judge


def was_asked(urls: str) -> Judge:
    """Every one of *urls* was requested."""

    def judge(evidence: Evidence) -> Finding:
        seen(evidence.first.log, "nothing was asked")
        missing = [url for url in urls_of(urls) if not evidence.first.requested(url)]
        return none(missing, "{} was not asked".format)

    return judge


def counted(of: Callable[[Run], Sequence[LoggedRequest]], most: int, why: str = NOT_ASKED) -> Judge:
    """There were so many requests of this kind in the first run, or fewer."""

    def judge(evidence: Evidence) -> Finding:
        found = len(seen(of(evidence.first), why))
        return held_if(found <= most, f"requests={found}")

    return judge


def paced(host: str, seconds: float) -> Judge:
    """The targets of *host* were so far apart in the first run."""
    return lambda evidence: spaced(intervals(evidence.first.targets(host)), seconds)


def where(place: str, judge: Judge, why: str = NO_ROBOTS, run: int = 0) -> Judge:
    """*judge* where *place* was requested, else NOT SEEN and *why*."""

    def judged(evidence: Evidence) -> Finding:
        seen(evidence.runs[run].get(place), why)
        return judge(evidence)

    return judged


def exact_user_agent(evidence: Evidence, asked: Iterable[LoggedRequest]) -> Finding:
    """Each request in *asked* had the bot's User-Agent, in one line; NOT SEEN without any."""
    looked_at = seen(list(asked), "not asked")
    wrong = [each for each in looked_at if each.values("User-Agent") != [evidence.user_agent]]
    return none(wrong, _other_agent, f"requests={len(looked_at)}")


def _other_agent(request: LoggedRequest) -> str:
    return f"{', '.join(request.values('User-Agent')) or 'none'!r} to {request.host}{request.path}"


def intervals(asked: Sequence[LoggedRequest], *, exempt: bool = False) -> list[float]:
    """Seconds from each request of a host to its next one, by arrival; *exempt*: but T1's pair."""
    found = gaps(exchanged(asked))
    return [gap.apart for gap in found if not (exempt and gap.first_pair)]


def spaced(found: Sequence[float], seconds: float) -> Finding:
    """Every interval is at least *seconds*; NOT SEEN where there is none."""
    if not found:
        return unseen("no two requests to compare")
    return held_if(not is_short(min(found), seconds, THE_WIRE), f"gap={min(found):.3f}s")
