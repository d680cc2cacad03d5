"""A spider that misbehaves: it sets User-Agents, requests undeclared URLs, is redirected.

R1, R2, R3, R5 and R6, in one run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from scrapy_walsh.proof.conformance.crawl import Bot, stage
from scrapy_walsh.proof.conformance.evidence import (
    Judge,
    exact_user_agent,
    full,
    never,
    nothing_of,
    seen,
    urls_of,
    where,
)
from scrapy_walsh.proof.conformance.part import Scene, operator_site, refreshing, site
from scrapy_walsh.proof.conformance.parts_rules import misled
from scrapy_walsh.proof.exchanges import ROBOTS
from scrapy_walsh.proof.findings import Finding, Outcome, broken, held_if, unseen
from scrapy_walsh.proof.sandbox import Route, routes
from scrapy_walsh.proof.sandbox.routes import TEXT

if TYPE_CHECKING:
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


def _play(bot: Bot) -> Evidence:
    sites = [
        operator_site(),
        site("start.test", f"User-agent: {bot.identity.token}\nDisallow: /denied\n"),
        site("tomorrow.test", page=routes.down("86400")),
        *(site(host, page=Route(302, location=target)) for host, target in _HOPS.items()),
        site("robots-moved.test", Route(302, location="http://blocked.test/robots.txt")),
        site("refresh.test", page=refreshing("/by-meta", "/by-header")),
        site("post.test", error=Route(500, "no\n", TEXT), broken=Route(behaviour="close")),
        *map(site, ("blocked.test", "elsewhere.test")),
    ]
    urls = (
        f"{_START} start.test/denied blocked.test/notes tomorrow.test/page robots-moved.test/page"
        f" {_REFRESHING} hop-blocked.test/page hop-denied.test/page hop-allowed.test/page"
    )
    with stage(bot, sites) as here:
        here.probe(
            urls,
            undeclared=urls_of(_UNDECLARED),
            also=urls_of(_ALSO),
            posts=urls_of(" ".join(_POSTS)),
            headers=_HEADERS,
            user_agents=_FOREIGN,
        )
        return here.evidence()


def _user_agent_kept(evidence: Evidence) -> Finding:
    seen(any(each.host == "start.test" for each in evidence.log), "nothing was asked")
    return exact_user_agent(evidence, evidence.log)


def _headers_kept(evidence: Evidence) -> Finding:
    """Neither a name that misleads nor a spider's own Host or Transfer-Encoding (R1)."""
    start = evidence.first.asked("start.test")
    framed = [each for each in evidence.log if each.values("Transfer-Encoding")]
    if framed or any(each.values("Host") != [each.host] for each in start):
        return broken("a spider's Host or Transfer-Encoding was sent")
    seen(start, "nothing was asked")
    return misled(evidence)


def _posted_once(evidence: Evidence) -> Finding:
    """A POST is sent once: unless 429 or 503 says that it did nothing, it may have had effect."""
    calls = [len(evidence.first.get(place)) for place in _POSTS]
    seen(all(calls), "not asked")
    return held_if(max(calls) == 1, f"calls={max(calls)}")


def _refused(url: str, requirement: str, name: str) -> Judge:
    """The bot says that it refused *url*, and by which requirement; *url* was not requested."""

    def judge(evidence: Evidence) -> Finding:
        if evidence.first.requested(url):
            return broken("it was asked")
        told = evidence.first.result(url)
        if told is None:
            return unseen("nothing was said of it")
        said = f"{told.get('requirement', '')} {told.get('verdict', told.get('error', ''))}"
        return held_if(said == f"{requirement} {name}", said)

    return judge


def _hop_refused(host: str) -> Judge:
    return never(_HOPS[host], f"{host}/page")


def _not_refreshed(evidence: Evidence) -> Finding:
    """The spider gets the answer of the page itself, and no refresh is followed."""
    told = seen(evidence.first.result(_REFRESHING), "nothing was said of it")
    if (told.get("status"), told.get("final")) != (200, full(_REFRESHING)):
        return broken(str(told.get("why", told.get("final"))))
    return never("refresh.test/by-meta refresh.test/by-header", _REFRESHING)(evidence)


def _undeclared(evidence: Evidence) -> Finding:
    found = [_refused(url, "R6", "out_of_scope")(evidence) for url in _UNDECLARED.split()]
    return next((each for each in found if each.outcome is not Outcome.HELD), found[0])


def _not_a_success(evidence: Evidence) -> Finding:
    """A 503 with a Retry-After beyond this run: sent once, no response for the spider (R5.8)."""
    asked = evidence.first.get("tomorrow.test/page")
    told = evidence.first.result("tomorrow.test/page")
    seen(asked and told)
    return held_if(len(asked) == 1 and "error" in (told or {}), f"calls={len(asked)}")


SPIDER: Final = Scene(
    "spider",
    _play,
    {
        "R1 MUST NOT UA set by a spider does not reach the wire": _user_agent_kept,
        "R1 MUST NOT headers that mislead do not reach the wire": _headers_kept,
        "R2 robots.txt blocks /denied, named as the reason": _refused(
            "start.test/denied", "R2", "disallowed_explicit"
        ),
        "R2 redirect to a disallowed path not followed": _hop_refused("hop-denied.test"),
        "R3 operator blocklist blocks the apex, named as the reason": _refused(
            "blocked.test/notes", "R3", "blocked_operator"
        ),
        "R3 redirect to a listed host not followed": _hop_refused("hop-blocked.test"),
        "R3 robots.txt redirected to a listed host not followed": where(
            f"robots-moved.test{ROBOTS}", nothing_of("blocked.test", _START)
        ),
        "R5 MUST NOT 503 is never a success": _not_a_success,
        "R5 MUST NOT a POST that failed is not sent again": _posted_once,
        "R6 MUST NOT a page that refreshes is the answer itself": _not_refreshed,
        "R6 MUST NOT undeclared requests of a callback refused, by name": _undeclared,
        "R6 MUST NOT a callback that says it declares a URL declares nothing": _refused(
            _ALSO, "R6", "out_of_scope"
        ),
    },
)
