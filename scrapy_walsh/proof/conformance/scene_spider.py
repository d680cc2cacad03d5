"""A spider that misbehaves: it sets User-Agents, requests undeclared URLs, is redirected.

R1, R2, R3, R5 and R6, in one run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from scrapy_walsh.proof.conformance.check import Scene
from scrapy_walsh.proof.conformance.evidence import (
    Judge,
    every,
    exact_user_agent,
    full,
    never,
    none,
    nothing_of,
    refused,
    seen,
    urls_of,
    was_asked,
    where,
)
from scrapy_walsh.proof.conformance.parts import misled
from scrapy_walsh.proof.exchanges import ROBOTS
from scrapy_walsh.proof.findings import Finding, held_if
from scrapy_walsh.proof.sandbox import Route, Site
from scrapy_walsh.proof.sandbox.routes import TEXT, down, refreshing, site

if TYPE_CHECKING:
    from scrapy_walsh.proof.conformance.crawl import Stage
    from scrapy_walsh.proof.conformance.evidence import Evidence

_START: Final = "start.test/page"
_HOPS: Final = {
    "hop-blocked.test": "http://blocked.test/hop",
    "hop-denied.test": "http://start.test/denied/hop",
    "hop-allowed.test": "http://hop-allowed.test/moved",
}
_REFRESHING: Final = "refresh.test/page"
_UNDECLARED: Final = "start.test/undeclared elsewhere.test/undeclared"
_ALSO: Final = "start.test/also"
_POSTS: Final = ("post.test/error", "post.test/broken")
#: What a spider might set to be taken for somebody else, or to change how the message ends.
_HEADERS: Final = {
    "Forwarded": "for=192.0.2.1",
    "X-Forwarded-For": "192.0.2.1",
    "X-Forwarded-Host": "other.test",
    "X-Real-Ip": "192.0.2.1",
    "X-Original-User-Agent": "Mozilla/5.0",
    "Host": "other.test",
    "Transfer-Encoding": "chunked",
}
_FOREIGN: Final = (
    "Mozilla/5.0 (X11; Linux x86_64; rv:130.0) Gecko/20100101 Firefox/130.0",
    "ExampleCrawler/2.1",
)


def _sites(token: str) -> list[Site]:
    return [
        site("start.test", f"User-agent: {token}\nDisallow: /denied\n"),
        site("tomorrow.test", page=down("86400")),
        *(site(host, page=Route(302, location=target)) for host, target in _HOPS.items()),
        site("robots-moved.test", Route(302, location="http://blocked.test/robots.txt")),
        site("refresh.test", page=refreshing("/by-meta", "/by-header")),
        site("post.test", error=Route(500, "no\n", TEXT), broken=Route(behaviour="close")),
        *map(site, ("blocked.test", "elsewhere.test")),
    ]


def _play(here: Stage) -> None:
    here.probe(
        f"{_START} start.test/denied blocked.test/notes tomorrow.test/page robots-moved.test/page"
        f" {_REFRESHING} hop-blocked.test/page hop-denied.test/page hop-allowed.test/page",
        undeclared=urls_of(_UNDECLARED),
        also=urls_of(_ALSO),
        posts=urls_of(" ".join(_POSTS)),
        headers=_HEADERS,
        user_agents=_FOREIGN,
    )


def _own_framing(evidence: Evidence) -> Finding:
    """Neither the Host nor the Transfer-Encoding that the spider sets is sent (R1)."""
    wrong = [
        f"its {name} was sent to {each.host}"
        for each in evidence.log
        for name in ("Host", "Transfer-Encoding")
        if _HEADERS[name] in each.values(name)
    ]
    return none(wrong)


def _posted_once(evidence: Evidence) -> Finding:
    """A POST is sent once: unless 429 or 503 says that it did nothing, it may have had effect."""
    calls = [len(evidence.first.get(place)) for place in _POSTS]
    seen(all(calls))
    return held_if(max(calls) == 1, f"calls={max(calls)}")


def _hop_refused(host: str) -> Judge:
    return never(_HOPS[host], f"{host}/page")


def _answer_itself(evidence: Evidence) -> Finding:
    told = evidence.first.result(_REFRESHING)
    itself = (told.get("status"), told.get("final")) == (200, full(_REFRESHING))
    return held_if(itself, "" if itself else str(told.get("why", told.get("final"))))


def _not_a_success(evidence: Evidence) -> Finding:
    """A 503 with a Retry-After beyond this run: sent once, no response for the spider (R5.8)."""
    asked = seen(evidence.first.get("tomorrow.test/page"))
    told = evidence.first.result("tomorrow.test/page")
    return held_if(len(asked) == 1 and "error" in told, f"calls={len(asked)}")


SPIDER: Final = Scene(
    name="spider",
    sites=_sites,
    play=_play,
    table={
        "R1 MUST NOT UA set by a spider does not reach the wire": where(
            was_asked(_START), exact_user_agent()
        ),
        "R1 MUST NOT headers that mislead do not reach the wire": where(
            was_asked(_START), every(misled, _own_framing)
        ),
        "R2 robots.txt blocks /denied, named as the reason": refused(
            "start.test/denied", "R2", "disallowed_explicit"
        ),
        "R2 redirect to a disallowed path not followed": _hop_refused("hop-denied.test"),
        "R3 operator blocklist blocks the apex, named as the reason": refused(
            "blocked.test/notes", "R3", "blocked_operator"
        ),
        "R3 redirect to a listed host not followed": _hop_refused("hop-blocked.test"),
        "R3 robots.txt redirected to a listed host not followed": where(
            was_asked(f"robots-moved.test{ROBOTS}"), nothing_of("blocked.test", _START)
        ),
        "R5 MUST NOT 503 is never a success": _not_a_success,
        "R5 MUST NOT a POST that failed is not sent again": _posted_once,
        "R6 MUST NOT a page that refreshes is the answer itself": every(
            _answer_itself, never("refresh.test/by-meta refresh.test/by-header")
        ),
        "R6 MUST NOT undeclared requests of a callback refused, by name": refused(
            _UNDECLARED, "R6", "out_of_scope"
        ),
        "R6 MUST NOT a callback that says it declares a URL declares nothing": refused(
            _ALSO, "R6", "out_of_scope"
        ),
    },
)
