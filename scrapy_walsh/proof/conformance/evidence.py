"""What the judges look at, the server's log of each run and the bot's own account, and how they do.

Most functions that many rows use make a judge. Values in, findings out. Times are the server's,
from arrival to arrival: a bot that waits from the end of an answer is then never judged by how late
the server stamped it. *run* is the number of the run that is looked at. A judge whose occasion did
not occur says NOT SEEN: it asks for that occasion by :func:`seen`, or stands in a :func:`where`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar
from urllib.parse import urlsplit

from scrapy_walsh.proof.exchanges import ROBOTS, gaps
from scrapy_walsh.proof.findings import Finding, Outcome, broken, held, held_if, unseen
from scrapy_walsh.proof.sandbox import LoggedRequest, exchanged, host_key, hosts, requests
from scrapy_walsh.proof.sandbox.routes import LIST, OPERATOR_HOST, SCHEMA
from scrapy_walsh.proof.spacing import THE_WIRE, is_short

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

#: The operator's documents, as a log's place (``host/path``) and as a URL.
THE_LIST: Final = f"{OPERATOR_HOST}{LIST}"
THE_SCHEMA: Final = f"{OPERATOR_HOST}{SCHEMA}"
LIST_URL: Final = f"http://{THE_LIST}"
SCHEMA_URL: Final = f"http://{THE_SCHEMA}"


@dataclass(frozen=True)
class Run:
    """One finished run of a bot.

    ``log``: what the server saw, in order of arrival. ``declared``: the target URLs it was given.
    ``told``: the bot's own account, empty for another crawler. ``items``: what it yielded.
    ``output``: the end of its output or log. ``code``: exit code, None when it was cut off.
    """

    log: Sequence[LoggedRequest]
    declared: Sequence[str] = ()
    told: Mapping[str, Any] = field(default_factory=dict)
    items: Sequence[Mapping[str, Any]] = ()
    output: str = ""
    code: int | None = 0

    def asked(self, host: str) -> list[LoggedRequest]:
        """The requests to *host* (``host[:port]``), in order of arrival."""
        return requests(self.log, host)

    def paths(self, host: str) -> list[str]:
        """The paths requested from *host*."""
        return [each.path for each in self.asked(host)]

    def targets(self, host: str) -> list[LoggedRequest]:
        """The requests to *host*, but those for its robots.txt."""
        return [each for each in self.asked(host) if each.path != ROBOTS]

    def get(self, place: str) -> list[LoggedRequest]:
        """The requests for one path of a host: ``host/path``."""
        host, slash, path = place.partition("/")
        return [each for each in self.asked(host) if each.path == slash + path]

    def requested(self, url: str) -> bool:
        """Whether *url* was requested, its query included, with R13's tags or without.

        By the server's log, or where the bot says itself that it had an answer.
        """
        host, path = split(full(url))
        had = (each["url"] for each in self.told.get("received", ()))
        logged = any(is_form_of(target_of(each), path) for each in self.asked(host))
        return logged or any(is_form_of(each, full(url)) for each in had)

    def results(self, url: str) -> list[Mapping[str, Any]]:
        """What the bot says became of its target *url*, each time; empty where it says nothing."""
        return [each for each in self.told.get("results", ()) if each["url"] == full(url)]

    def result(self, url: str) -> Mapping[str, Any]:
        """The first of :meth:`results`. NotSeen where there is none."""
        return seen(self.results(url), "the crawl came to no answer")[0]


@dataclass(frozen=True)
class Evidence:
    """What one scene showed: its runs, and the User-Agent that the bot must use.

    ``robots_pace``: seconds that a target may wait for after the first robots.txt (T1). ``keys``:
    of the bot's key directory, where its requests are to be signed.
    """

    user_agent: str
    runs: Sequence[Run]
    robots_pace: float = 0.0
    keys: Sequence[dict[str, Any]] = ()

    @property
    def first(self) -> Run:
        """The first run."""
        return self.run(0)

    def run(self, number: int) -> Run:
        """One of the runs, from 0; where there was none, a run of which nothing was seen."""
        return self.runs[number] if number < len(self.runs) else Run(())

    @property
    def log(self) -> list[LoggedRequest]:
        """The requests of all runs."""
        return [each for run in self.runs for each in requests(run.log)]

    @property
    def cut_off(self) -> str:
        """Which run did not come to its end; empty when all did."""
        for number, run in enumerate(self.runs, 1):
            if run.code is None:
                return f"run {number} was cut off"
        return ""


def full(url: str) -> str:
    """*url*, which may lack the scheme of http."""
    return url if "://" in url else f"http://{url}"


def urls_of(given: str) -> list[str]:
    """The URLs in a text, by spaces."""
    return [full(url) for url in given.split()]


def split(url: str) -> tuple[str, str]:
    """The host (``host[:port]``, as the log's keys) and the path with query of *url*."""
    parts = urlsplit(url)
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return host_key(parts.scheme, parts.netloc), path


def target_of(request: LoggedRequest) -> str:
    """Path and query of a logged request, which may be anything that a client sent."""
    _, absolute, rest = request.target.partition("://")
    if not absolute:
        return request.target
    return "/" + rest.partition("/")[2].partition("#")[0]


def is_form_of(sent: str, url: str) -> bool:
    """Whether *sent* is *url*, with R13's tags or without."""
    return sent == url or sent.startswith((f"{url}?impl=", f"{url}&impl="))


# -- what many rows ask ------------------------------------------------------------------------

Judge: TypeAlias = Callable[[Evidence], Finding]
_T = TypeVar("_T")


class NotSeen(Exception):
    """The occasion of a row did not occur; the message says what was missing."""


def seen(found: _T | None, why: str = "it was not asked") -> _T:
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


def where(occasion: Judge, judge: Judge) -> Judge:
    """*judge*, where *occasion* holds; else NOT SEEN, for what *occasion* finds."""

    def judged(evidence: Evidence) -> Finding:
        found = look(occasion, evidence)
        seen(found.outcome is Outcome.HELD, found.text)
        return judge(evidence)

    return judged


#: What counts when several judges have looked: the worst.
_WORST_FIRST: Final = (Outcome.BROKEN, Outcome.UNSEEN, Outcome.HELD)


def every(*judges: Judge) -> Judge:
    """The worst of what *judges* find; of findings that are as bad, the first."""

    def judge(evidence: Evidence) -> Finding:
        found = [look(each, evidence) for each in judges]
        return min(found, key=lambda each: _WORST_FIRST.index(each.outcome))

    return judge


def none(wrong: Sequence[_T], said: Callable[[_T], str] = str, kept: str = "") -> Finding:
    """Broken by the first of *wrong*, as *said* of it; held, and *kept*, where there is none."""
    return broken(said(wrong[0])) if wrong else held(kept)


def never(urls: str, controls: str = "", run: int = 0) -> Judge:
    """None of *urls* was requested, though each of *controls* was."""

    def judge(evidence: Evidence) -> Finding:
        here = evidence.run(run)
        for url in urls_of(urls):
            if here.requested(url):
                return broken(f"asked {url}")
        missing = [url for url in urls_of(controls) if not here.requested(url)]
        return unseen(f"{missing[0]} was not asked either") if missing else held()

    return judge


def nothing_of(names: str, control: str, run: int = 0) -> Judge:
    """None of the hosts *names* had a request or a CONNECT, though *control* was requested."""

    def judge(evidence: Evidence) -> Finding:
        here = evidence.run(run)
        reached = hosts(here.log)
        for name in names.split():
            if name in reached:
                return broken(f"{name} was asked {', '.join(here.paths(name)) or 'CONNECT'}")
        asked = here.requested(control)
        return held() if asked else unseen(f"{full(control)} was not asked either")

    return judge


def was_asked(urls: str, run: int = 0) -> Judge:
    """Every one of *urls* was requested."""

    def judge(evidence: Evidence) -> Finding:
        here = evidence.run(run)
        seen(here.log, f"nothing was asked in run {run + 1}")
        missing = [url for url in urls_of(urls) if not here.requested(url)]
        return none([f"{url} was not asked in run {run + 1}" for url in missing])

    return judge


def only(host: str, *paths: str, run: int = 0) -> Judge:
    """All that was requested of *host* were *paths*, in this order."""

    def judge(evidence: Evidence) -> Finding:
        found = seen(evidence.run(run).paths(host))
        return held_if(found == [*paths], ", ".join(found))

    return judge


def list_first(*runs: int) -> Judge:
    """In each of *runs* the blocklist was requested, and answered, before any other host."""

    def judge(evidence: Evidence) -> Finding:
        for run in map(evidence.run, runs):
            others = [each for each in requests(run.log) if each.host != OPERATOR_HOST]
            first = seen(others, "no other host was asked")[0]
            listed = run.get(THE_LIST)
            if not listed or (listed[0].completed or first.arrived) > first.arrived:
                return broken(f"{first.host}{first.path} was asked first")
        return held()

    return judge


def counted(of: Callable[[Run], Sequence[LoggedRequest]], most: int) -> Judge:
    """There were so many requests of this kind in the first run, or fewer."""

    def judge(evidence: Evidence) -> Finding:
        found = len(seen(of(evidence.first)))
        return held_if(found <= most, f"requests={found}")

    return judge


def paced(host: str, seconds: float) -> Judge:
    """The targets of *host* were so far apart in the first run."""
    return lambda evidence: spaced(intervals(evidence.first.targets(host)), seconds)


def refused(urls: str, requirement: str, verdict: str = "", run: int = 0) -> Judge:
    """The bot says that it refused *urls*, and by what; none of them was requested."""

    def judge(evidence: Evidence) -> Finding:
        told = [evidence.run(run).result(url) for url in urls_of(urls)]
        wrong = [
            f"{each.get('requirement')} {each.get('verdict', each.get('why'))}"
            for each in told
            if each.get("requirement") != requirement or verdict not in ("", each.get("verdict"))
        ]
        return none(wrong, kept=f"{told[0].get('verdict')} by {told[0].get('rule')}")

    return every(judge, never(urls, run=run))


def exact_user_agent(of: Callable[[LoggedRequest], object] = bool) -> Judge:
    """Each request *of* a kind had the bot's User-Agent, in one line."""

    def judge(evidence: Evidence) -> Finding:
        asked = seen([each for each in evidence.log if of(each)])
        wrong = [each for each in asked if each.values("User-Agent") != [evidence.user_agent]]
        return none(wrong, _other_agent, f"requests={len(asked)}")

    return judge


def _other_agent(request: LoggedRequest) -> str:
    return f"{', '.join(request.values('User-Agent')) or 'none'!r} to {request.host}{request.path}"


def intervals(asked: Sequence[LoggedRequest]) -> list[float]:
    """Seconds from each request of a host to its next one, by arrival."""
    return [gap.apart for gap in gaps(exchanged(asked))]


def spaced(found: Sequence[float], seconds: float) -> Finding:
    """Every interval is at least *seconds*; NOT SEEN where there is none."""
    if not found:
        return unseen("no two requests to compare")
    return held_if(not is_short(min(found), seconds, THE_WIRE), f"gap={min(found):.3f}s")
