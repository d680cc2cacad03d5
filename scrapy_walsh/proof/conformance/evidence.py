"""The evidence that the judges look at: the server's log of each run, and the bot's own account.
And the judges that rows share.

Most functions that many rows use make a judge. Values in, findings out. Times are the server's,
from arrival to arrival: a bot that waits from the end of an answer is then never judged by how late
the server stamped it. *run* is the number of the run that is looked at. A judge says NOT SEEN if
its occasion did not occur: it calls :func:`seen` for the occasion, or stands in a :func:`where`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar
from urllib.parse import urlsplit

from scrapy_walsh.proof.exchanges import ROBOTS, gaps
from scrapy_walsh.proof.findings import (
    Finding,
    Outcome,
    broken,
    held,
    held_if,
    unseen,
)
from scrapy_walsh.proof.sandbox import (
    LoggedRequest,
    exchanged,
    host_key,
    hosts,
    requests,
)
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
        return [request.path for request in self.asked(host)]

    def targets(self, host: str) -> list[LoggedRequest]:
        """The requests to *host*, but those for its robots.txt."""
        return [request for request in self.asked(host) if request.path != ROBOTS]

    def get(self, place: str) -> list[LoggedRequest]:
        """The requests for one path of a host: ``host/path``."""
        host, slash, path = place.partition("/")
        return [request for request in self.asked(host) if request.path == slash + path]

    def requested(self, url: str) -> bool:
        """Whether *url* was requested, its query included, with R13's tags or without.

        By the server's log, or because the bot says itself that it had an answer.
        """
        host, path = split(full(url))
        had = (response["url"] for response in self.told.get("received", ()))
        logged = any(is_form_of(target_of(request), path) for request in self.asked(host))
        return logged or any(is_form_of(url_received, full(url)) for url_received in had)

    def results(self, url: str) -> list[Mapping[str, Any]]:
        """The results of its target *url* that the bot reports, in their order; empty if it reports
        none.
        """
        return [result for result in self.told.get("results", ()) if result["url"] == full(url)]

    def result(self, url: str) -> Mapping[str, Any]:
        """The first of :meth:`results`. NotSeen if there is none."""
        return seen(self.results(url), "the crawl came to no answer")[0]


@dataclass(frozen=True)
class Evidence:
    """The evidence of a scene: its runs, and the User-Agent that the bot must use.

    ``robots_pace``: seconds that a target may wait for after the first robots.txt (T1). ``keys``:
    of the bot's key directory, if its requests are to be signed.
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
        """One of the runs, from 0; an empty run if there was none."""
        if number < len(self.runs):
            return self.runs[number]
        return Run(())

    @property
    def log(self) -> list[LoggedRequest]:
        """The requests of all runs."""
        return [request for run in self.runs for request in requests(run.log)]

    @property
    def cut_off(self) -> str:
        """Which run did not come to its end; empty when all did."""
        for number, run in enumerate(self.runs, 1):
            if run.code is None:
                return f"run {number} was cut off"
        return ""


def full(url: str) -> str:
    """*url*, which may lack the scheme of http."""
    if "://" in url:
        return url
    return f"http://{url}"


def urls_of(text: str) -> list[str]:
    """The URLs in a text, by spaces."""
    return [full(url) for url in text.split()]


def split(url: str) -> tuple[str, str]:
    """The host (``host[:port]``, as the log's keys) and the path with query of *url*."""
    parts = urlsplit(url)
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return host_key(parts.scheme, parts.netloc), path


def target_of(request: LoggedRequest) -> str:
    """Path and query of a logged request, which may be anything that a client sent."""
    _, absolute, path = request.target.partition("://")
    if not absolute:
        return request.target
    return "/" + path.partition("/")[2].partition("#")[0]


def is_form_of(target: str, url: str) -> bool:
    """Whether *target* is *url*, with R13's tags or without."""
    return target == url or target.startswith((f"{url}?impl=", f"{url}&impl="))


# -- what many rows ask ------------------------------------------------------------------------

Judge: TypeAlias = Callable[[Evidence], Finding]
_T = TypeVar("_T")


class NotSeen(Exception):
    """The occasion of a row did not occur; the message says what was missing."""


def seen(value: _T | None, reason: str = "it was not asked") -> _T:
    """*value*, if there is any; else the row is NOT SEEN, and says *reason*."""
    if not value:
        raise NotSeen(reason)
    return value


def look(judge: Judge, evidence: Evidence) -> Finding:
    """What *judge* finds."""
    try:
        return judge(evidence)
    except NotSeen as error:
        return unseen(str(error))


def where(occasion: Judge, judge: Judge) -> Judge:
    """*judge*, if *occasion* holds; else NOT SEEN, with the reason of *occasion*."""

    def judged(evidence: Evidence) -> Finding:
        finding = look(occasion, evidence)
        seen(finding.outcome is Outcome.HELD, finding.text)
        return judge(evidence)

    return judged


#: The outcome of several judges, because the worst counts.
_WORST_FIRST: Final = (Outcome.BROKEN, Outcome.UNSEEN, Outcome.HELD)


def every(*judges: Judge) -> Judge:
    """The worst of what *judges* find; of findings that are as bad, the first."""

    def judge(evidence: Evidence) -> Finding:
        findings = [look(judge_of_row, evidence) for judge_of_row in judges]
        return min(findings, key=lambda finding: _WORST_FIRST.index(finding.outcome))

    return judge


def none(wrong: Sequence[_T], said: Callable[[_T], str] = str, kept: str = "") -> Finding:
    """Broken by the first of *wrong*, which *said* describes; held, with the text *kept*, if there
    is none.
    """
    if wrong:
        return broken(said(wrong[0]))
    return held(kept)


def never(urls: str, controls: str = "", run: int = 0) -> Judge:
    """None of *urls* was requested, though each of *controls* was."""

    def judge(evidence: Evidence) -> Finding:
        here = evidence.run(run)
        for url in urls_of(urls):
            if here.requested(url):
                return broken(f"asked {url}")
        unseen_urls = [url for url in urls_of(controls) if not here.requested(url)]
        if unseen_urls:
            return unseen(f"{unseen_urls[0]} was not asked either")
        return held()

    return judge


def nothing_of(names: str, control: str, run: int = 0) -> Judge:
    """None of the hosts *names* had a request or a CONNECT, though *control* was requested."""

    def judge(evidence: Evidence) -> Finding:
        here = evidence.run(run)
        reached = hosts(here.log)
        for name in names.split():
            if name in reached:
                return broken(f"{name} was asked {', '.join(here.paths(name)) or 'CONNECT'}")
        is_seen = here.requested(control)
        if is_seen:
            return held()
        return unseen(f"{full(control)} was not asked either")

    return judge


def was_asked(urls: str, run: int = 0) -> Judge:
    """Every one of *urls* was requested."""

    def judge(evidence: Evidence) -> Finding:
        here = evidence.run(run)
        seen(here.log, f"nothing was asked in run {run + 1}")
        unseen_urls = [url for url in urls_of(urls) if not here.requested(url)]
        return none([f"{url} was not asked in run {run + 1}" for url in unseen_urls])

    return judge


def only(host: str, *paths: str, run: int = 0) -> Judge:
    """All that was requested of *host* were *paths*, in this order."""

    def judge(evidence: Evidence) -> Finding:
        paths_seen = seen(evidence.run(run).paths(host))
        return held_if(paths_seen == [*paths], ", ".join(paths_seen))

    return judge


def list_first(*runs: int) -> Judge:
    """In each of *runs* the blocklist was requested, and answered, before any other host."""

    def judge(evidence: Evidence) -> Finding:
        for run in map(evidence.run, runs):
            requests_elsewhere = [
                request for request in requests(run.log) if request.host != OPERATOR_HOST
            ]
            first_request = seen(requests_elsewhere, "no other host was asked")[0]
            list_requests = run.get(THE_LIST)
            if (
                not list_requests
                or (list_requests[0].completed or first_request.arrived) > first_request.arrived
            ):
                return broken(f"{first_request.host}{first_request.path} was asked first")
        return held()

    return judge


def counted(of: Callable[[Run], Sequence[LoggedRequest]], limit: int) -> Judge:
    """There were so many requests of this kind in the first run, or fewer."""

    def judge(evidence: Evidence) -> Finding:
        count = len(seen(of(evidence.first)))
        return held_if(count <= limit, f"requests={count}")

    return judge


def paced(host: str, seconds: float) -> Judge:
    """The targets of *host* were so far apart in the first run."""
    return lambda evidence: spaced(intervals(evidence.first.targets(host)), seconds)


def refused(urls: str, requirement: str, verdict: str = "", run: int = 0) -> Judge:
    """The bot says that it refused *urls*, and by what; none of them was requested."""

    def judge(evidence: Evidence) -> Finding:
        results = [evidence.run(run).result(url) for url in urls_of(urls)]
        wrong = [
            f"{result.get('requirement')} {result.get('verdict', result.get('why'))}"
            for result in results
            if result.get("requirement") != requirement
            or verdict not in ("", result.get("verdict"))
        ]
        return none(
            wrong,
            kept=f"{results[0].get('verdict')} by {results[0].get('rule')}",
        )

    return every(judge, never(urls, run=run))


def exact_user_agent(of: Callable[[LoggedRequest], object] = bool) -> Judge:
    """Each request *of* a kind had the bot's User-Agent, in one line."""

    def judge(evidence: Evidence) -> Finding:
        requests_of = seen([request for request in evidence.log if of(request)])
        wrong = [
            request
            for request in requests_of
            if request.values("User-Agent") != [evidence.user_agent]
        ]
        return none(wrong, _other_agent, f"requests={len(requests_of)}")

    return judge


def _other_agent(request: LoggedRequest) -> str:
    return f"{', '.join(request.values('User-Agent')) or 'none'!r} to {request.host}{request.path}"


def intervals(requests: Sequence[LoggedRequest]) -> list[float]:
    """Seconds from each request of a host to its next one, by arrival."""
    return [gap.apart for gap in gaps(exchanged(requests))]


def spaced(gaps: Sequence[float], seconds: float) -> Finding:
    """Every interval is at least *seconds*; NOT SEEN if there is none."""
    if not gaps:
        return unseen("no two requests to compare")
    return held_if(not is_short(min(gaps), seconds, THE_WIRE), f"gap={min(gaps):.3f}s")
