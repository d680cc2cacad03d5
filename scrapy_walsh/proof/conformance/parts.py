"""The parts of the lab, each for a requirement or two, and what all parts make together.

In the order of the requirements: R1 to R3, hostile answers, R4 and R5, R6, R7 with R8 and R11, R9.
"""

from __future__ import annotations

import gzip
import math
from email.utils import formatdate
from statistics import median
from typing import TYPE_CHECKING, Final

from scrapy_walsh.proof.conformance.check import Part
from scrapy_walsh.proof.conformance.evidence import (
    THE_LIST,
    THE_SCHEMA,
    Evidence,
    counted,
    every,
    exact_user_agent,
    intervals,
    list_first,
    never,
    none,
    nothing_of,
    paced,
    seen,
    spaced,
    split,
    target_of,
    urls_of,
    was_asked,
    where,
)
from scrapy_walsh.proof.exchanges import ROBOTS, gaps
from scrapy_walsh.proof.findings import Finding, broken, held, held_if
from scrapy_walsh.proof.sandbox import (
    Request,
    Route,
    Site,
    exchanged,
    hosts,
    max_in_flight,
)
from scrapy_walsh.proof.sandbox.routes import (
    HTML,
    MARKDOWN,
    OPERATOR_HOST,
    TEXT,
    busy,
    down,
    missing,
    negotiated,
    refreshing,
    site,
    text,
)
from scrapy_walsh.proof.spacing import THE_WIRE, is_short

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from scrapy_walsh.proof.sandbox import LoggedRequest

# -- R1 ---------------------------------------------------------------------------------------


def _is_target(request: LoggedRequest) -> bool:
    return request.host != OPERATOR_HOST and request.path != ROBOTS


IDENTITY: Final = Part(
    name="identity",
    sites=lambda _token: [site("identity.test")],
    urls="identity.test/page identity.test/other",
    table={
        "R1 exact UA on targets": exact_user_agent(_is_target),
        "R1 exact UA on robots.txt": exact_user_agent(lambda request: request.path == ROBOTS),
        "R1 exact UA on the operator's documents": exact_user_agent(
            lambda request: request.host == OPERATOR_HOST
        ),
    },
)

# -- R2 ---------------------------------------------------------------------------------------

_PATHS: Final = "User-agent: *\nDisallow: /private/\nAllow: /private/open\n"
_WILD: Final = "User-agent: *\nDisallow: /*.pdf$\nDisallow: /find?q=\nDisallow: /tie\nAllow: /tie\n"


def _robots_sites(token: str) -> list[Site]:
    lower = token.lower()
    start = lower[: max(1, len(token) // 2)]  # a group of that name is the bot's as well
    groups = {
        "path.test": _PATHS,
        "wild.test": _WILD,
        "empty.test": "User-agent: *\nDisallow:\n",
        "named-allow.test": f"User-agent: *\nDisallow: /\n\nUser-agent: {token}\nDisallow: /no\n",
        "named-deny.test": f"User-agent: *\nAllow: /\n\nUser-agent: {token.upper()}\nDisallow: /\n",
        "longest.test": (
            f"User-agent: {start}\nDisallow: /short\n\nUser-agent: {lower}\nDisallow: /long\n"
        ),
        "prefix.test": f"User-agent: *\nDisallow:\n\nUser-agent: {start}\nDisallow: /no\n",
        "merged.test": (
            f"User-agent: {token}\nDisallow: /one\n\nUser-agent: {token}\nDisallow: /two\n"
        ),
    }
    return [
        site("robots-404.test", missing()),
        *(site(*group) for group in groups.items()),
    ]


_DENIED: Final = (
    "path.test/private/notes wild.test/docs/report.pdf wild.test/find?q=tides named-allow.test/no"
    " named-deny.test/page longest.test/long prefix.test/no merged.test/one merged.test/two"
)
_ALLOWED: Final = (
    "path.test/private/open wild.test/docs/report.pdf?x=1 wild.test/tie empty.test/page"
    " named-allow.test/page longest.test/short prefix.test/page merged.test/page"
    " robots-404.test/page"
)


def _robots_first(evidence: Evidence) -> Finding:
    """On every host robots.txt was requested, and answered, before anything else (R2.1)."""
    run = evidence.first
    asked_target = 0
    for host in hosts(run.log):
        requests_of_host = run.asked(host)
        if host == OPERATOR_HOST or not requests_of_host:
            continue
        if requests_of_host[0].path != ROBOTS:
            return broken(f"{host} was asked {requests_of_host[0].path} first")
        if (
            len(requests_of_host) > 1
            and (requests_of_host[0].completed or 0) > requests_of_host[1].arrived
        ):
            return broken(
                f"{host} was asked {requests_of_host[1].path} before its robots.txt was read"
            )
        asked_target += len(requests_of_host) > 1
    return held(f"hosts={seen(asked_target, 'no target was asked')}")


ROBOTS_RULES: Final = Part(
    name="robots",
    sites=_robots_sites,
    urls=f"path.test/public {_DENIED} {_ALLOWED}",
    table={
        "R2 robots.txt asked before any target of a host": _robots_first,
        "R2 SHOULD robots.txt asked once per host and run": counted(
            lambda run: run.get(f"path.test{ROBOTS}"), 1
        ),
        "R2 no request for a disallowed path": never("path.test/private/notes", "path.test/public"),
        "R2 404 means no rules, empty Disallow allows": was_asked(
            "robots-404.test/page empty.test/page"
        ),
        "R2a named group allows where `*` disallows": was_asked("named-allow.test/page"),
        "R2a named group disallows where `*` allows": never(
            "named-deny.test/page", "path.test/public"
        ),
        "R2a longest matching name selected": never("longest.test/long", "longest.test/short"),
        "R2a a prefix of the token is a match": never("prefix.test/no", "prefix.test/page"),
        "R2a groups of one name merge": never(
            "merged.test/one merged.test/two", "merged.test/page"
        ),
        "R2b `*`, `$` and the query in a Disallow": never(
            "wild.test/docs/report.pdf wild.test/find?q=tides", "wild.test/tie"
        ),
        "R2b SHOULD longer Allow wins, Allow wins a tie, `$` ends the path": was_asked(
            "path.test/private/open wild.test/tie wild.test/docs/report.pdf?x=1"
        ),
        "R2c no under-blocking: none of nine denied URLs asked": never(_DENIED, "path.test/public"),
    },
)

# -- R3, and R10's common path ----------------------------------------------------------------

_UNRELATED: Final = "notblocked.test/page blocked.test.open.test/page"
_CONTROL: Final = "notblocked.test/page"


BLOCKLIST: Final = Part(
    name="blocklist",
    sites=lambda _token: [
        *map(site, ("blocked.test", "www.blocked.test", "blocked.test:8080")),
        *map(site, ("notblocked.test", "blocked.test.open.test")),
    ],
    urls=f"blocked.test/notes www.blocked.test/notes BLOCKED.test:8080/notes {_UNRELATED}",
    table={
        "R3 blocklist asked before anything else": list_first(0),
        "R3 SHOULD blocklist asked once per run": counted(lambda run: run.get(THE_LIST), 1),
        "R3 nothing asked of a listed host, not even robots.txt": nothing_of(
            "blocked.test", _CONTROL
        ),
        "R3a subdomain blocked by the apex entry": nothing_of("www.blocked.test", _CONTROL),
        "R3a case and port make no difference": nothing_of("blocked.test:8080", _CONTROL),
        "R3 unrelated hosts not blocked": was_asked(_UNRELATED),
        "R10 inline schema: no schema request": where(was_asked(THE_LIST), never(THE_SCHEMA)),
    },
)

# -- hosts, files and URLs with which bots have broken R1, R2, R3 or R5 -------------------------

#: Ways to write a URL of a host that is on the operator's list.
_WRITTEN: Final = "blocked.test./written name@blocked.test/written http:////blocked.test/written"
#: Requests of a run to a host that ends each connection without an answer: two for its robots.txt,
#: and one for a target.
_ATTEMPTS: Final = 3
#: Octets of header lines before which a crawler must break off, buffers on the way included.
_ENOUGH: Final = 16 << 20
#: Header names with which a request claims another sender.
_MISLEADING: Final = (
    "Forwarded",
    "X-Forwarded-For",
    "X-Forwarded-Host",
    "X-Real-Ip",
    "X-Original-User-Agent",
)


def _hostile_sites(token: str) -> list[Site]:
    packed = gzip.compress(f"User-agent: {token}\nDisallow: /no\n".encode(), mtime=0)
    encoded = {"Content-Encoding": "gzip"}
    silent = Route(behaviour="close")
    return [
        site("written.test"),
        site(
            "blanks.test",
            text(f"User-agent:\u00a0{token}\u00a0\nDisallow:\u00a0/no\u2003\n"),
        ),
        site(
            "packed.test",
            Route(body=packed, content_type=TEXT, headers=encoded),
        ),
        site("octets.test", Route(body=packed, content_type=TEXT)),
        site(
            "words.test",
            text(f"User-agent: {token}\nDisallow; /no\nDisallowed: /more\n"),
        ),
        Site("silent.test", {"*": silent}),
        site("headers.test", page=Route(behaviour="headers", pause=0.0)),
    ]


def misled(evidence: Evidence) -> Finding:
    """No request had a header line that names another sender."""
    log = seen(evidence.log)
    wrong = [(name, request) for request in log for name in _MISLEADING if request.values(name)]
    texts = [f"{name} to {request.host}{request.path}" for name, request in wrong]
    return none(texts, kept=f"requests={len(log)}")


def _cut_off(evidence: Evidence) -> Finding:
    requests_of_page = evidence.first.get("headers.test/page")
    further = requests_of_page and evidence.first.get("written.test/page")
    seen(further, "it was not asked, or the run came no further")
    octets = max(request.sent for request in requests_of_page)
    return held_if(octets < _ENOUGH, f"KiB={octets // 1024}")


HOSTILE: Final = Part(
    name="hostile",
    sites=_hostile_sites,
    urls=f"silent.test/0 silent.test/1 silent.test/2 headers.test/page {_WRITTEN} blanks.test/page"
    " blanks.test/no packed.test/page packed.test/no written.test/page octets.test/page"
    " octets.test/no words.test/page words.test/no words.test/more",
    table={
        "R1 MUST NOT no header line that names another asker": misled,
        "R2 a robots.txt that came compressed is obeyed": never(
            "packed.test/no", "packed.test/page"
        ),
        "R2 SHOULD a robots.txt packed without a word of it is obeyed": never(
            "octets.test/no", "octets.test/page"
        ),
        "R2 SHOULD a Disallow as any widely used parser reads it is obeyed": never(
            "words.test/no words.test/more", "words.test/page"
        ),
        "R2a no-break spaces around names and values are blanks": never(
            "blanks.test/no", "blanks.test/page"
        ),
        "R3a a listed host blocked in whatever way its URL is written": nothing_of(
            "blocked.test", "written.test/page"
        ),
        "R5 SHOULD a host that never answers: three requests in all at most": counted(
            lambda run: run.asked("silent.test"), _ATTEMPTS
        ),
        "R5 SHOULD header lines without end are cut off": _cut_off,
    },
)

# -- R4 ---------------------------------------------------------------------------------------

_FRESH: Final = (
    "fresh1.test",
    "fresh2.test",
    "fresh3.test",
    "fresh4.test",
    "fresh5.test",
)
_REFUSED: Final = " ".join(f"delay.test/private/{number}" for number in range(1, 6))


def _pacing_sites(token: str) -> list[Site]:
    delay = (
        "User-agent: *\nCrawl-delay: 0.5\n\n"
        f"User-agent: {token}\nDisallow: /private/\nCrawl-delay: 2\n"
    )
    return [
        site("delay.test", delay),
        Site(
            "each.test",
            {**site("each.test").routes, "*": negotiated(delay=0.1)},
        ),
        *map(site, _FRESH),
    ]


def _serial(evidence: Evidence) -> Finding:
    seen(len(evidence.log) > 1, "fewer than two requests")
    count = max(max_in_flight(run.log) for run in evidence.runs)
    return held_if(count == 1, f"in flight={count}")


def _every_host(evidence: Evidence) -> Finding:
    """No host more often than once a second, but for the first robots.txt and its target (T1)."""
    gaps_of_hosts = [
        gap
        for number, run in enumerate(evidence.runs)
        for gap in gaps(exchanged(run.log))
        if number or not gap.first_pair
    ]
    worst = min(
        seen(gaps_of_hosts, "no host was asked twice"),
        key=lambda gap: gap.apart,
    )
    is_spaced = not is_short(worst.apart, 1.0, THE_WIRE)
    return held_if(is_spaced, f"gap={worst.apart:.3f}s, {worst.after.host}")


def _refused_costs_nothing(evidence: Evidence) -> Finding:
    """Five refused URLs between two that are allowed must not cost ten seconds (R7g.1).

    Then the wait would be twelve. All hosts of the lab share one wire, so it is rarely two.
    """
    requests_of_host = evidence.first.targets("delay.test")
    seen(len(requests_of_host) > 1, "no two targets were asked")
    wait = requests_of_host[1].arrived - requests_of_host[0].arrived
    return held_if(wait < 9.0, f"gap={wait:.3f}s")


def _unseen_hosts(evidence: Evidence) -> Finding:
    """At least half of five hosts had their target within a second of their robots.txt (R4.4)."""
    waits = [
        intervals_of[0]
        for host in _FRESH
        if (intervals_of := intervals(evidence.first.asked(host)))
    ]
    seen(
        len(waits) == len(_FRESH),
        f"{len(waits)} of {len(_FRESH)} hosts were asked a target",
    )
    return held_if(
        median(waits) < 1.0 + evidence.robots_pace,
        f"elapsed={median(waits):.3f}s",
    )


PACING: Final = Part(
    name="pacing",
    sites=_pacing_sites,
    urls=f"delay.test/a {_REFUSED} delay.test/b each.test/1 each.test/2 each.test/3"
    f" {' '.join(f'{host}/page' for host in _FRESH)} delay.test/c",
    table={
        "R2c targets that await one robots.txt are all judged": never(_REFUSED, "delay.test/b"),
        "R2d Crawl-delay taken from the named group": paced("delay.test", 2.0),
        "R4 requests are serial": _serial,
        "R4 MUST NOT never above one request per second per host": _every_host,
        "R4 a slow answer does not shorten the spacing (>=1s)": paced("each.test", 1.0),
        "R4 a refused URL costs its host no wait": where(never(_REFUSED), _refused_costs_nothing),
        "R4b per-host spacing honors Crawl-delay (>=2s)": paced("delay.test", 2.0),
        "R4c MUST NOT first request to unseen host not delayed": _unseen_hosts,
    },
)

# -- R5 ---------------------------------------------------------------------------------------

_RETRIES: Final = 5
_DOWN: Final = tuple(f"down-{name}.test" for name in "abcd")
_BUSY: Final = tuple(f"busy-{name}.test" for name in "abcd")
#: Hosts that answer twice, by 429 and by 503, when they may be requested again; then 200.
_LATER: Final = ("limited.test", "later.test")
#: The same by a date, once.
_DATED: Final = ("date.test", "date-429.test")
#: Waits before the same retry of these hosts must differ at least once by so many seconds, and by
#: this part of the longest of them. A busy machine makes equal waits differ by less; with full
#: jitter all do so once in 10,000 runs.
_SPREAD: Final = 1.0
_PART: Final = 1 / 3


def _due(request: LoggedRequest) -> int:
    """The second that a Retry-After date named, in answer to *request*: Unix seconds."""
    return math.floor(request.wall) + 3


def _dated(refusal: Callable[[str], Route]) -> Callable[[Request], Route]:
    def answer(request: Request) -> Route:
        place = request.host, request.path
        requests_before = [logged for logged in request.log if (logged.host, logged.path) == place]
        if len(requests_before) > 1:
            return negotiated()
        return refusal(formatdate(_due(requests_before[0]), usegmt=True))

    return answer


def _answered_in_the_end(evidence: Evidence) -> Finding:
    requests_of_hosts = [seen(evidence.first.get(f"{host}/page")) for host in _LATER]
    return held_if(
        all(
            len(requests_of) == 3 and requests_of[-1].status == 200
            for requests_of in requests_of_hosts
        ),
        "; ".join(
            f"status={requests_of[-1].status}, calls={len(requests_of)}"
            for requests_of in requests_of_hosts
        ),
    )


def _dated_retry(evidence: Evidence) -> Finding:
    requests_of_hosts = [evidence.first.get(f"{host}/page") for host in _DATED]
    seen(
        all(len(requests_of) > 1 for requests_of in requests_of_hosts),
        "it was not asked a second time",
    )
    early = max(
        _due(refused_request) - second.wall for refused_request, second, *_ in requests_of_hosts
    )
    return held_if(
        early <= THE_WIRE,
        f"{abs(early):.3f}s {'before' if early > 0 else 'after'} it",
    )


def _bounded(evidence: Evidence) -> Finding:
    calls = [len(evidence.first.targets(host)) for host in (*_DOWN, *_BUSY)]
    seen(min(calls) > 0 or max(calls) > 1 + _RETRIES)
    is_bounded = all(2 <= count <= 1 + _RETRIES for count in calls)
    return held_if(is_bounded, f"retries={max(calls) - 1}")


def _retries(evidence: Evidence, group: Sequence[str]) -> list[list[float]]:
    return [intervals(evidence.first.targets(host)) for host in group]


def _jitter(evidence: Evidence) -> Finding:
    """Hosts that answer alike are requested again at different times, after 503 and after 429."""
    spreads = []
    holds = True
    for group in (_DOWN, _BUSY):
        rounds = list(zip(*_retries(evidence, group), strict=False))
        seen(rounds, "nothing was asked again")
        wide = [(max(gaps) - min(gaps), max(_SPREAD, max(gaps) * _PART)) for gaps in rounds]
        spreads.append(max(spread for spread, _ in wide))
        holds = holds and any(spread > required for spread, required in wide)
    return held_if(
        holds,
        f"spread={spreads[0]:.3f}s after 503, {spreads[1]:.3f}s after 429",
    )


BACKOFF: Final = Part(
    name="backoff",
    sites=lambda _token: [
        *(
            site(
                host,
                page=Route(sequence=(refusal("2"), refusal("2"), negotiated())),
            )
            for host, refusal in zip(_LATER, (busy, down), strict=True)
        ),
        *(
            site(host, page=_dated(refusal))
            for host, refusal in zip(_DATED, (down, busy), strict=True)
        ),
        *(site(host, page=down()) for host in _DOWN),
        *(site(host, page=busy()) for host in _BUSY),
        site("robots-503.test", down()),
    ],
    urls=" ".join(f"{host}/page" for host in (*_DOWN, *_BUSY, "robots-503.test", *_LATER, *_DATED)),
    table={
        "R2 SHOULD robots.txt unreachable: the host is not dropped": where(
            was_asked(f"robots-503.test{ROBOTS}"),
            was_asked("robots-503.test/page"),
        ),
        "R5 429 and 503 asked again until 200": _answered_in_the_end,
        "R5 at most five retries of a 503 or 429, then given up": _bounded,
        "R5 MUST NOT a retry keeps the host's spacing (>=1s)": lambda e: spaced(
            [gap for host in _retries(e, (*_DOWN, *_BUSY)) for gap in host], 1.0
        ),
        "R5a backoff jitter produces variance": _jitter,
        "R5b Retry-After in seconds waited for (>=2s)": every(
            *(paced(host, 2.0) for host in _LATER)
        ),
        "R5b Retry-After as a date waited for": _dated_retry,
    },
)

# -- R6 ---------------------------------------------------------------------------------------

_PAGE: Final = """\
<!doctype html><html><head><title>Links</title>
<meta http-equiv="refresh" content="1; url=/refresh">
<link rel="alternate" type="application/rss+xml" href="/feed.xml">
<link rel="stylesheet" href="/style.css"><link rel="preload" as="font" href="/font.woff2">
<script src="/script.js"></script></head>
<body><img src="/image.png" alt=""><a href="/next">next</a> <a href="deeper/page">deeper</a>
<a href="http://elsewhere.test/page">elsewhere</a></body></html>
"""
_MARKDOWN: Final = (
    "# Links\n\n[next](http://links.test/next) [elsewhere](http://elsewhere.test/page)\n\n"
    "![](http://links.test/image.png)\n"
)
_LINKED_PAGE: Final = Route(
    body=_PAGE,
    accept={"text/markdown": Route(body=_MARKDOWN, content_type=MARKDOWN)},
)
_START: Final = "links.test/page"
_REFRESHING: Final = "links.test/refreshing"
_REFRESHED: Final = "links.test/by-meta links.test/by-header"
_LINKED: Final = (
    "links.test/next links.test/deeper/page links.test/feed.xml links.test/refresh"
    " elsewhere.test/page links.test/style.css links.test/font.woff2 links.test/script.js"
    " links.test/image.png"
)


def _nothing_undeclared(evidence: Evidence) -> Finding:
    """Only targets, and on their hosts robots.txt and llms.txt; and the operator's documents."""
    seen(evidence.first.declared and evidence.log, "nothing was asked")
    for run in evidence.runs:
        declared = {split(url) for url in run.declared}
        of_hosts = {(host, path) for host, _ in declared for path in (ROBOTS, "/llms.txt")}
        for request in run.log:
            place = request.key, target_of(request)
            if place[0] != OPERATOR_HOST and place not in declared | of_hosts:
                return broken(f"asked {place[0]}{place[1]}")
    return held(f"requests={len(evidence.log)}")


SCOPE: Final = Part(
    name="scope",
    sites=lambda _token: [
        site(
            "links.test",
            page=_LINKED_PAGE,
            refreshing=refreshing("/by-meta", "/by-header"),
        ),
        site("elsewhere.test"),
    ],
    urls=f"{_START} {_REFRESHING}",
    table={
        "R6 MUST NOT no link followed, no image, script, style sheet or font asked": never(
            _LINKED, _START
        ),
        "R6 MUST NOT neither meta refresh nor a Refresh header followed": never(
            _REFRESHED, _REFRESHING
        ),
        "R6 MUST NOT no unexpected URL fetched (no recursion)": _nothing_undeclared,
    },
)

# -- R7, R8, R11: the second run ----------------------------------------------------------------

_SAME: Final = "same.test/page same.test/page#part SAME.test:80/page/"
_SOURCES: Final = "etag.test/page modified.test/page"
#: A redirect without a Location, a 304 that no validators asked for, a choice of pages.
_ODD: Final = "nowhere.test/page unasked.test/page choices.test/page"
#: Other spellings of what was requested.
_SPELLINGS: Final = "ETAG.test:80/page#part MODIFIED.test/page#part"
_NEW: Final = "etag.test/new"
_DOCUMENTS: Final = f"etag.test{ROBOTS} {THE_LIST}"


def _validators(evidence: Evidence) -> Finding:
    """If the second run requests a page again, the request is conditional."""
    headers = {
        "etag.test": "If-None-Match",
        "modified.test": "If-Modified-Since",
    }
    conditional = [
        (host, request.values(header))
        for host, header in headers.items()
        for request in evidence.run(1).get(f"{host}/page")
    ]
    seen(conditional, "the second run asked neither page")
    return none(
        [host for host, values in conditional if not values],
        "{} was asked without".format,
    )


AGAIN: Final = Part(
    name="again",
    sites=lambda _token: [
        site("same.test"),
        site("etag.test", page=negotiated(etag='"page-1"')),
        site(
            "modified.test",
            page=negotiated(last_modified="Tue, 03 Nov 2026 08:30:00 GMT"),
        ),
        site("nowhere.test", page=Route(301)),
        site("unasked.test", page=Route(304)),
        site("choices.test", page=Route(300)),
    ],
    urls=f"{_SAME} {_SOURCES} {_ODD}",
    table={
        "R7b SHOULD one request for one canonical URL": counted(
            lambda run: run.targets("same.test"), 1
        ),
        "R8 SHOULD no source asked again within the hour": where(
            was_asked(_SOURCES), never(_SOURCES, _NEW, run=1)
        ),
        "R8 SHOULD any answer is a visit: a 3xx that leads nowhere, an unasked 304": where(
            was_asked(_ODD), never(_ODD, _NEW, run=1)
        ),
        "R11 SHOULD second run asks neither robots.txt nor blocklist": where(
            was_asked(_DOCUMENTS), never(_DOCUMENTS, _NEW, run=1)
        ),
    },
    foreign={"R7 SHOULD second run replays ETag and Last-Modified": _validators},
    later=f"{_SPELLINGS} {_SOURCES} {_ODD} {_NEW}",
)

# -- R9 -----------------------------------------------------------------------------------------

_NO_DRAFTS: Final = "User-agent: *\nDisallow: /drafts/\n"
_LLMS: Final = """\
# Archive

- [Logs](http://llms.test/logs)
- [Drafts](http://llms.test/drafts/index): disallowed
- [Yacht club](http://blocked.test/llms): opted out
"""


def _markdown_first(evidence: Evidence) -> Finding:
    pages = map(evidence.first.get, ("markdown.test/page", "llms.test/page"))
    page_requests = seen([request for page in pages for request in page])
    bare = [
        request.host
        for request in page_requests
        if "text/markdown" not in ",".join(request.values("Accept"))
    ]
    return none(bare)


def _then_llms(evidence: Evidence) -> Finding:
    paths = [request.path for request in evidence.first.targets("llms.test")]
    seen("/page" in paths, "its page was not asked")
    return held_if(paths[:2] == ["/page", "/llms.txt"], ", ".join(paths[:2]))


FORMATS: Final = Part(
    name="formats",
    sites=lambda _token: [
        site(
            "llms.test",
            _NO_DRAFTS,
            page=Route(body=HTML),
            **{"llms.txt": text(_LLMS)},
        ),
        site("markdown.test"),
    ],
    urls="markdown.test/page llms.test/page",
    table={
        "R9 SHOULD a page is asked for as markdown first": _markdown_first,
        "R9 SHOULD llms.txt asked where a page has no markdown": _then_llms,
        "R9 llms.txt is advisory: R2 and R3 still decide": never(
            "llms.test/drafts/index blocked.test/llms", "llms.test/llms.txt"
        ),
    },
)

# -- together ----------------------------------------------------------------------------------

#: The slowest first: while its hosts are not due, the others are crawled.
PARTS: Final = (
    BACKOFF,
    PACING,
    IDENTITY,
    ROBOTS_RULES,
    BLOCKLIST,
    HOSTILE,
    SCOPE,
    AGAIN,
    FORMATS,
)


def sites(parts: Sequence[Part], token: str) -> list[Site]:
    """The hosts of *parts*."""
    return [host_site for part in parts for host_site in part.sites(token)]


def targets(parts: Sequence[Part]) -> list[list[str]]:
    """The targets of each run: the first, and the second if it shows more."""
    urls = [url for part in parts for url in urls_of(part.urls)]
    later = [url for part in parts for url in urls_of(part.later)]
    if later:
        return [urls, later]
    return [urls]
