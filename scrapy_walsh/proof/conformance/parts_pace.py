"""The parts of the lab for R4 and R5: spacing, and what follows a 429 or a 503."""

from __future__ import annotations

import math
from email.utils import formatdate
from statistics import median
from typing import TYPE_CHECKING, Final

from scrapy_walsh.findings import Finding, held_if, unseen
from scrapy_walsh.proof.conformance.check import MUST_NOT, SHOULD, Row
from scrapy_walsh.proof.conformance.evidence import (
    Evidence,
    asked_for,
    intervals,
    never,
    spaced,
    was_asked,
)
from scrapy_walsh.proof.conformance.part import Part, site
from scrapy_walsh.proof.exchanges import ROBOTS
from scrapy_walsh.proof.sandbox import Request, Route, Site, hosts, max_in_flight, routes
from scrapy_walsh.proof.sandbox.routes import negotiated
from scrapy_walsh.proof.spacing import THE_WIRE, is_short

if TYPE_CHECKING:
    from scrapy_walsh.proof.sandbox import LoggedRequest

# -- R4 ---------------------------------------------------------------------------------------

_FRESH: Final = tuple(f"fresh{number}.test" for number in range(1, 6))
_REFUSED: Final = tuple(f"http://delay.test/private/{number}" for number in range(1, 6))


def _pacing_sites(token: str) -> list[Site]:
    delay = (
        "User-agent: *\nCrawl-delay: 0.5\n\n"
        f"User-agent: {token}\nDisallow: /private/\nCrawl-delay: 2\n"
    )
    return [
        site("delay.test", delay),
        Site("each.test", {**site("each.test").routes, "*": negotiated(delay=0.1)}),
        *map(site, _FRESH),
    ]


def _targets(evidence: Evidence, host: str) -> list[LoggedRequest]:
    return [each for each in evidence.first.asked(host) if each.path != ROBOTS]


def _serial(evidence: Evidence) -> Finding:
    if len(evidence.log) < 2:
        return unseen("fewer than two requests")
    most = max(max_in_flight(run.log) for run in evidence.runs)
    return held_if(most == 1, f"in flight={most}")


def _every_host(evidence: Evidence) -> Finding:
    """No host more often than once a second, but for the first robots.txt and its target (T1)."""
    found = {
        (host, number): intervals(run.asked(host), exempt=number == 0)
        for number, run in enumerate(evidence.runs)
        for host in hosts(run.log)
    }
    closest = {host: min(each) for (host, _), each in found.items() if each}
    if not closest:
        return unseen("no host was asked twice")
    worst = min(closest, key=closest.__getitem__)
    return held_if(
        not is_short(closest[worst], 1.0, THE_WIRE), f"gap={closest[worst]:.3f}s, {worst}"
    )


def _crawl_delay(evidence: Evidence) -> Finding:
    return spaced(intervals(_targets(evidence, "delay.test")), 2.0)


def _refused_costs_nothing(evidence: Evidence) -> Finding:
    """Five refused URLs between two that are allowed must not cost ten seconds (R7g.1)."""
    asked = _targets(evidence, "delay.test")
    if any(asked_for(evidence.first, url) for url in _REFUSED):
        return unseen("they were not refused")
    if len(asked) < 2:
        return unseen("no two targets were asked")
    wait = asked[1].arrived - asked[0].arrived
    return held_if(wait < 6.0, f"gap={wait:.3f}s")


def _unseen_hosts(evidence: Evidence) -> Finding:
    """At least half of five hosts had their target within a second of their robots.txt (R4.4)."""
    waits = [each[0] for host in _FRESH if (each := intervals(evidence.first.asked(host)))]
    if len(waits) < len(_FRESH):
        return unseen(f"{len(waits)} of {len(_FRESH)} hosts were asked a target")
    return held_if(median(waits) < 1.0 + evidence.robots_pace, f"elapsed={median(waits):.3f}s")


PACING: Final = Part(
    "pacing",
    ("R4", "R2"),
    _pacing_sites,
    (
        "http://delay.test/a",
        *_REFUSED,
        "http://delay.test/b",
        *(f"http://each.test/{number}" for number in range(1, 4)),
        *(f"http://{host}/page" for host in _FRESH),
        "http://delay.test/c",
    ),
    (
        Row(
            "R2c",
            "targets that await one robots.txt are all judged",
            lambda e: never(e.first, _REFUSED, "http://delay.test/b"),
        ),
        Row("R2d", "Crawl-delay taken from the named group", _crawl_delay),
        Row("R4", "requests are serial", _serial),
        Row("R4", "never above one request per second per host", _every_host, MUST_NOT),
        Row(
            "R4",
            "a slow answer does not shorten the spacing (>=1s)",
            lambda e: spaced(intervals(_targets(e, "each.test")), 1.0),
        ),
        Row("R4", "a refused URL costs its host no wait", _refused_costs_nothing),
        Row("R4b", "per-host spacing honors Crawl-delay (>=2s)", _crawl_delay),
        Row("R4c", "first request to unseen host not delayed", _unseen_hosts, MUST_NOT),
    ),
)

# -- R5 ---------------------------------------------------------------------------------------

_RETRIES: Final = 5
_DOWN: Final = ("down-a.test", "down-b.test", "down-c.test")
#: Seconds by which waits before the same retry of these hosts must differ at least once. A busy
#: machine makes equal waits differ by less; with full jitter all do so once in a million runs.
_SPREAD: Final = 0.5


def _due(request: LoggedRequest) -> int:
    """The second that a Retry-After date named, in answer to *request*: Unix seconds."""
    return math.floor(request.wall) + 3


def _dated(request: Request) -> Route:
    own = [each for each in request.log if (each.host, each.path) == (request.host, request.path)]
    if len(own) > 1:
        return negotiated()
    due = formatdate(_due(own[0]), usegmt=True)
    return routes.down(due)


def _backoff_sites(_token: str) -> list[Site]:
    limited = routes.busy("2")
    down = routes.down()
    return [
        site("limited.test", page=Route(sequence=(limited, limited, negotiated()))),
        site("date.test", page=_dated),
        *(site(host, page=down) for host in _DOWN),
        site("robots-503.test", down),
    ]


def _answered_in_the_end(evidence: Evidence) -> Finding:
    asked = evidence.first.get("limited.test", "/page")
    if not asked:
        return unseen("it was not asked")
    return held_if(
        len(asked) == 3 and asked[-1].status == 200,
        f"status={asked[-1].status}, calls={len(asked)}",
    )


def _dated_retry(evidence: Evidence) -> Finding:
    asked = evidence.first.get("date.test", "/page")
    if len(asked) < 2:
        return unseen("it was not asked a second time")
    early = _due(asked[0]) - asked[1].wall
    return held_if(early <= THE_WIRE, f"{abs(early):.3f}s {'before' if early > 0 else 'after'} it")


def _bounded(evidence: Evidence) -> Finding:
    calls = [len(evidence.first.get(host, "/page")) for host in _DOWN]
    if min(calls) == 0 and max(calls) <= 1 + _RETRIES:
        return unseen("it was not asked")
    kept = all(2 <= each <= 1 + _RETRIES for each in calls)
    return held_if(kept, f"retries={max(calls) - 1}")


def _retries(evidence: Evidence) -> list[list[float]]:
    return [intervals(evidence.first.get(host, "/page")) for host in _DOWN]


def _jitter(evidence: Evidence) -> Finding:
    rounds = list(zip(*_retries(evidence), strict=False))
    if not rounds:
        return unseen("nothing was asked again")
    spread = max(max(gaps) - min(gaps) for gaps in rounds)
    return held_if(spread > _SPREAD, f"spread={spread:.3f}s")


def _fail_open(evidence: Evidence) -> Finding:
    if not evidence.first.get("robots-503.test", ROBOTS):
        return unseen("its robots.txt was not asked")
    return was_asked(evidence.first, "http://robots-503.test/page")


BACKOFF: Final = Part(
    "backoff",
    ("R5", "R2"),
    _backoff_sites,
    (
        *(f"http://{host}/page" for host in _DOWN),
        "http://robots-503.test/page",
        "http://limited.test/page",
        "http://date.test/page",
    ),
    (
        Row("R2", "robots.txt unreachable: the host is not dropped", _fail_open, SHOULD),
        Row("R5", "429 asked again until 200", _answered_in_the_end),
        Row("R5", "at most five retries of a 503, then given up", _bounded),
        Row(
            "R5",
            "a retry keeps the host's spacing (>=1s)",
            lambda e: spaced([gap for host in _retries(e) for gap in host], 1.0),
            MUST_NOT,
        ),
        Row("R5a", "backoff jitter produces variance", _jitter),
        Row(
            "R5b",
            "Retry-After in seconds waited for (>=2s)",
            lambda e: spaced(intervals(e.first.get("limited.test", "/page")), 2.0),
        ),
        Row("R5b", "Retry-After as a date waited for", _dated_retry),
    ),
)
