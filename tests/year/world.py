"""A year of hosts: what each answers at which moment, and what the operator declares.

A host is a row of phases; dates are those of a whole year, drawn together for a shorter one.
Nothing here knows the package: the judge reads the same phases as the servers' own configuration.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from tests.year.answer import Answer

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

HOUR, DAY = 3600.0, 86400.0
OPERATOR: Final = "wal.sh"
LIST: Final = "/.well-known/walsh-research/blocklist.json"
#: Seconds that the operator's list asks to be kept.
REFRESH: Final = 6 * HOUR
START: Final = datetime(2025, 1, 1, tzinfo=UTC).timestamp()

FEED, MARKDOWN, HTML, LLMS, FORM = "feed", "markdown", "html", "llms", "form"
_TYPES: Final = {
    FEED: "application/rss+xml",
    MARKDOWN: "text/markdown",
    HTML: "text/html",
    LLMS: "text/plain",
    FORM: "application/json",
}


@dataclass(frozen=True)
class Rules:
    """A robots.txt: path prefixes that nobody may ask, and seconds between two requests."""

    disallow: tuple[str, ...] = ()
    delay: float = 0.0

    def text(self) -> str:
        """The file."""
        lines = ["User-agent: *", *(f"Disallow: {each}" for each in self.disallow)]
        return "\n".join([*lines, *([f"Crawl-delay: {self.delay:g}"] if self.delay else [])]) + "\n"

    def forbids(self, path: str) -> bool:
        """Whether *path* may not be asked."""
        return any(path.startswith(each) for each in self.disallow)


UP, REFUSES, HANGS = "answers", "refuses", "hangs"


@dataclass(frozen=True)
class Phase:
    """How a host is from ``since`` (Unix seconds) on, until its next phase.

    ``status``: of every target. ``retry_after``: seconds, with a 503. ``moved``: the URL that a
    301 names. ``listed``: the operator's list names the host. ``frozen``: nothing new appears.
    ``busy``: the first request of a run to a target is answered 503, with a Retry-After of 20 s.
    ``limit``: a target within so many seconds of the last one that was not is answered 429.
    """

    since: float
    rules: Rules = Rules()
    reach: str = UP
    status: int = 200
    retry_after: int | None = None
    moved: str | None = None
    listed: bool = False
    frozen: bool = False
    busy: bool = False
    limit: float = 0.0


@dataclass(frozen=True)
class Host:
    """A host, its pages by path (each a kind of page), and its life."""

    name: str
    pages: dict[str, str]
    phases: tuple[Phase, ...]
    every: float = DAY
    #: No answer by https, which a bare host is asked by first.
    plain_only: bool = False

    def has(self, url: str) -> bool:
        """Whether anybody listens at the scheme of *url*."""
        return not (self.plain_only and url.startswith("https:"))

    def phase(self, now: float) -> Phase:
        """The phase at *now*; before its beginning, the first."""
        return [each for each in self.phases if each.since <= now or each is self.phases[0]][-1]

    def phases_within(self, begin: float, end: float) -> list[Phase]:
        """The phases of which any moment is from *begin* to *end*."""
        later = [each for each in self.phases if begin < each.since <= end]
        return [self.phase(begin), *later]


@dataclass(frozen=True)
class Source:
    """A line of the operator's list. ``also``: URLs that may be asked if the first is of no use.

    ``body``: of a POST. ``written``: what the file says in place of ``url``. ``revisit``: what it
    says of its cadence, and ``every``: the seconds that this means.
    """

    url: str
    also: tuple[str, ...] = ()
    written: str | None = None
    body: str = ""
    revisit: str | int | None = None
    every: float = DAY

    @property
    def method(self) -> str:
        """GET, or POST for what has a body."""
        return "POST" if self.body else "GET"

    @property
    def host(self) -> str:
        """The host that it names."""
        return urlsplit(self.url).netloc


@dataclass
class World:
    """``days`` of it from ``start`` (Unix seconds) on."""

    days: int
    seed: int = 1
    start: float = START
    hosts: dict[str, Host] = field(init=False)
    sources: list[Source] = field(init=False)
    _asked: Counter[str] = field(default_factory=Counter)
    #: By host that limits, when it took the last target.
    _took: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.hosts = {host.name: host for host in _hosts(self)}
        self.sources = [*_sources()]

    def at(self, month: int, day: int) -> float:
        """That day of the year, at midnight UTC in a whole year."""
        number = (date(2025, month, day) - date(2025, 1, 1)).days
        return self.start + number * DAY * self.days / 365

    def declared(self, run: int) -> list[Source]:
        """What the operator's file says before *run*: some sources come and go."""
        rng = random.Random(f"{self.seed} {run}")
        return [s for s in self.sources if not s.host.startswith("churn") or rng.random() < 0.5]

    def listed(self, host: str, now: float) -> bool:
        """Whether the operator's list names *host*, or one above it, at *now*."""
        return any(
            host == name or host.endswith(f".{name}")
            for name, each in self.hosts.items()
            if each.phase(now).listed
        )

    # -- answers --------------------------------------------------------------------------

    def answer(self, now: float, request: Any) -> Answer:
        """What the host of *request* does at *now*."""
        parts = urlsplit(request.url)
        if parts.netloc == OPERATOR:
            return self._operators(now, parts.path)
        host = self.hosts.get(parts.netloc)
        if host is None or not host.has(request.url):
            return Answer(None, refuses=True)
        phase, latency = host.phase(now), self._latency(request.url, now)
        if phase.reach != UP:
            return Answer(None, refuses=phase.reach == REFUSES, latency=latency)
        if parts.path == "/robots.txt":
            kind = {"Content-Type": "text/plain"}
            return Answer(200, phase.rules.text().encode(), kind, latency)
        found = self._page(host, phase, parts.path, now, request)
        return found._replace(latency=latency)

    def _page(self, host: Host, phase: Phase, path: str, now: float, request: Any) -> Answer:
        if path not in host.pages:
            return Answer(404)
        if phase.limit and now - self._took.get(host.name, -phase.limit) < phase.limit:
            return Answer(429)
        self._took[host.name] = now
        self._asked[request.url] += 1
        hindrance = _hindrance(phase, first=self._asked[request.url] == 1)
        if hindrance is not None:
            return hindrance
        number, kind = self._number(host, now), host.pages[path]
        if kind == FORM:
            return Answer(200, request.body, {"Content-Type": _TYPES[kind]})
        etag = f'"{host.name}{path}-{number}"'
        if request.headers.get("If-None-Match") == etag.encode():
            return Answer(304, headers={"ETag": etag})
        body = _body(kind, f"http://{host.name}{path}", number)
        return Answer(200, body, {"Content-Type": _TYPES[kind], "ETag": etag})

    def _number(self, host: Host, now: float) -> int:
        """How many links a page of *host* has brought so far."""
        thawed = now
        for phase in host.phases:
            if phase.since <= now and phase.frozen:
                later = [each.since for each in host.phases if each.since > phase.since]
                thawed -= min([now, *later]) - phase.since
        return int((thawed - self.start) // host.every)

    def links(self, now: float) -> int:
        """The links that all pages together have shown until *now*, at most."""
        return sum(len(host.pages) * (self._number(host, now) + 5) for host in self.hosts.values())

    def _latency(self, url: str, now: float) -> float:
        return random.Random(f"{self.seed} {url} {int(now)}").uniform(0.02, 0.4)

    def _operators(self, now: float, path: str) -> Answer:
        if path != LIST:
            return Answer(404)
        named = sorted(name for name, host in self.hosts.items() if host.phase(now).listed)
        document = {
            "contract": "walsh-research-blocklist/v1",
            "updated": datetime.fromtimestamp(now, UTC).strftime("%Y-%m-%dT00:00:00Z"),
            "operator": "the operator",
            "contact": f"opt-out@{OPERATOR}",
            "policy": f"https://{OPERATOR}/bot/",
            "refresh": "PT6H",
            "blocked": [{"domain": name, "added": "2025-01-01"} for name in ("x.test", *named)],
            "schema": {"type": "object", "required": ["contract", "blocked"]},
        }
        return Answer(200, json.dumps(document).encode(), {"Content-Type": "application/json"})


def _hindrance(phase: Phase, *, first: bool) -> Answer | None:
    """What a host answers in place of a page."""
    if phase.retry_after is not None or (phase.busy and first):
        return Answer(503, headers={"Retry-After": str(phase.retry_after or 20)})
    if phase.moved is not None:
        return Answer(301, headers={"Location": phase.moved})
    return Answer(phase.status) if phase.status != 200 else None


def _body(kind: str, base: str, number: int) -> bytes:
    """A page with the five latest links; each link comes once and goes for good."""
    links = [(f"{base}/{n}", f"Note {n}") for n in range(number, number - 5, -1)]
    if kind == FEED:
        items = "".join(
            f"<item><title>{title}</title><link>{link}</link></item>" for link, title in links
        )
        text = f"<rss version='2.0'><channel><title>{base}</title>{items}</channel></rss>"
    elif kind == HTML:
        text = "<!doctype html><html><body><p>a page</p></body></html>"
    else:
        text = "# Notes\n\n" + "".join(f"- [{title}]({link})\n" for link, title in links)
    return text.encode()


# -- the hosts ----------------------------------------------------------------------------

SLOW: Final = 600.0
LIMIT: Final = 2.0


def _hosts(world: World) -> Iterator[Host]:
    start, at = world.start, world.at
    always = Phase(start)
    week = min(7 * DAY, world.days * DAY / 4)

    def life(*changes: Phase, first: Phase = always) -> tuple[Phase, ...]:
        return (first, *changes)

    def feeds(name: str, count: int = 1, **more: Any) -> Host:
        pages = {f"/{letter}/feed.xml": FEED for letter in "abcdef"[:count]}
        return Host(name, pages, **{"phases": life(), **more})

    for number in range(5):
        yield feeds(f"plain{number}.test", every=DAY * (number + 1))
    for number in range(4):
        yield feeds(f"churn{number}.test", every=7 * DAY)
    yield feeds(
        "unchanged.test",
        phases=life(Phase(at(2, 1), frozen=True), Phase(at(11, 1))),
    )
    slow = Rules(delay=SLOW)
    yield feeds("slow.test", 4, phases=(Phase(start, slow),))
    yield feeds("patient.test", 2, phases=(Phase(start, Rules(delay=120)),))
    yield feeds("dead.test", phases=life(Phase(at(2, 10), reach=REFUSES), Phase(at(2, 10) + week)))
    yield feeds("hangs.test", phases=(Phase(start, reach=HANGS), Phase(at(10, 20))))
    yield feeds("sleeps.test", phases=life(Phase(at(6, 1), reach=HANGS), Phase(at(6, 1) + week)))
    moved = "http://newhome.test/a/feed.xml"
    yield feeds("moved.test", phases=life(Phase(at(5, 1), moved=moved)))
    yield feeds("newhome.test")
    merged = "http://plain0.test/a/feed.xml"
    yield feeds("merged.test", phases=life(Phase(at(9, 1), moved=merged)))
    closed = Rules(disallow=("/",))
    yield feeds("optout.test", phases=life(Phase(at(3, 3), closed), Phase(at(6, 20))))
    yield feeds("listed.test", phases=life(Phase(at(3, 10), listed=True), Phase(at(6, 15))))
    yield feeds("www.listed.test")
    yield feeds(
        "rules.test",
        2,
        phases=life(
            Phase(at(4, 1), Rules(("/b/",))),
            Phase(at(7, 1)),
            Phase(at(8, 1), Rules(delay=5)),
            Phase(at(9, 20), Rules(delay=400)),
            Phase(at(11, 15)),
        ),
    )
    private = Rules(("/b/",))
    yield feeds(
        "outage.test",
        2,
        phases=(
            Phase(start, private),
            Phase(at(5, 10), private, reach=REFUSES),
            Phase(at(5, 10) + week, private),
        ),
    )
    yield feeds("forbidden.test", phases=life(Phase(at(7, 15), status=403)))
    yield feeds(
        "later.test", phases=life(Phase(at(4, 20), retry_after=3 * 86400), Phase(at(4, 20) + DAY))
    )
    yield feeds("busy.test", phases=life(Phase(at(8, 10), busy=True), Phase(at(9, 10))))
    yield feeds("limits.test", 6, phases=(Phase(start, limit=LIMIT),))
    yield Host("bare.test", {"/": HTML, "/llms.txt": LLMS}, life(), plain_only=True)
    yield Host("notes.test", {"/notes": MARKDOWN}, life())
    yield Host("form.test", {"/query": FORM}, life())


#: Sources with a cadence of their own: as the file has it, and in seconds.
CADENCES: Final[dict[str, tuple[str | int, float]]] = {
    "plain1/a": (3600, HOUR),
    "plain2/a": ("P2D", 2 * DAY),
    "plain3/a": ("P1W", 7 * DAY),
    "dead/a": ("P3DT12H", 3.5 * DAY),
    "patient/b": (4 * 86400, 4 * DAY),
}


def _sources() -> Iterator[Source]:
    llms = "/llms.txt"
    names = [f"plain{n}" for n in range(5)] + [f"churn{n}" for n in range(4)]
    names += ["unchanged", "dead", "hangs", "sleeps", "moved", "merged", "optout", "listed"]
    names += ["www.listed", "forbidden", "later", "busy"]
    paths = {"slow": "abcd", "patient": "ab", "rules": "ab", "outage": "ab", "limits": "abcdef"}
    for name in [*names, *paths]:
        for letter in paths.get(name, "a"):
            base = f"http://{name}.test"
            cadence = CADENCES.get(f"{name}/{letter}", (None, DAY))
            yield Source(f"{base}/{letter}/feed.xml", (base + llms,), None, "", *cadence)
    yield Source("http://notes.test/notes", ("http://notes.test" + llms,))
    # Written without a scheme: https is tried, then http.
    also = ("https://bare.test" + llms, "http://bare.test" + llms)
    yield Source("http://bare.test/", ("https://bare.test/", *also), written="bare.test")


def forms() -> list[Source]:
    """What the second spider declares: three queries at one URL."""
    source = Source("http://form.test/query")
    return [replace(source, body=f"page={number}") for number in (1, 2, 3)]


def as_file(sources: Sequence[Source]) -> str:
    """The ``.jsonl`` that names *sources*."""

    def entry(each: Source) -> dict[str, Any]:
        more = {} if each.revisit is None else {"revisit": each.revisit}
        return {"url": each.written or each.url, **more}

    return "".join(f"{json.dumps(entry(each))}\n" for each in sources)


__all__ = ["Host", "Phase", "Rules", "Source", "World"]
