"""What the lab does not show: https, requests that go past the scheduler, a run after a run.

R1 to R6 and R12, in three runs that follow one another at once and share their state.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from scrapy_walsh.findings import Finding, held_if, unseen
from scrapy_walsh.policy.backoff import MAX_RETRIES
from scrapy_walsh.proof.conformance.check import MUST_NOT, Row
from scrapy_walsh.proof.conformance.evidence import (
    LIST_URL,
    OPERATOR_HOST,
    ROBOTS,
    Evidence,
    asked_for,
    exact_user_agent,
    intervals,
    never,
    nothing_of,
    spaced,
    split,
)
from scrapy_walsh.proof.conformance.part import operator_site, site
from scrapy_walsh.proof.conformance.scene import Scene, stage
from scrapy_walsh.proof.sandbox import Route, Site, routes
from scrapy_walsh.proof.sandbox.routes import LIST, text

if TYPE_CHECKING:
    from scrapy_walsh.proof.conformance.crawl import Bot

_CONTROL: Final = "http://start.test/page"
_SECURE: Final = ("https://schemes.test/denied", "https://secure.test/denied")
_SECURE_CONTROLS: Final = ("http://schemes.test/page", "https://secure.test/page")
_YEARS: Final = ("http://years.test/a", "http://years.test/b")
_PREFIX: Final = ("http://prefix-delay.test/a", "http://prefix-delay.test/b")
_LIMITED: Final = "http://limited-robots.test/page"
_FAILING: Final = "http://failing-robots.test/page"
#: These answer 503 and 429 to every request.
_DOWN: Final = ("http://down.test/page", "http://busy.test/page")
_PAST: Final = ("http://past.test/page", "http://blocked.test/page", "http://start.test/denied")
#: Older than a list (PT6H) and than a robots.txt (a day), younger than any upper limit.
_LIST_AGED: Final = 25_000.0
_ROBOTS_AGED: Final = 90_000.0
_DELAY: Final = 8.0
#: Seconds that a robots.txt's own 503 asks for.
_RETRY_AFTER: Final = 2.0


def _sites(token: str) -> list[Site]:
    deny = f"User-agent: {token}\nDisallow: /denied\n"
    busy = routes.busy("0")
    down = routes.down("0")
    start = token.lower()[: max(1, len(token) // 2)]
    soon = routes.down(f"{_RETRY_AFTER:g}")
    failing = Route(sequence=(soon, down, text(f"User-agent: {token}\nDisallow: /\n")))
    return [
        operator_site(),
        site("start.test", deny),
        site("schemes.test"),
        site("https://schemes.test", deny),
        site("https://secure.test", deny),
        site("years.test", "User-agent: *\nCrawl-delay: 100000\n"),
        site(
            "prefix-delay.test",
            f"User-agent: *\nDisallow:\n\nUser-agent: {start}\nCrawl-delay: 2\n",
        ),
        site("down.test", page=down),
        site("busy.test", page=busy),
        site("limited-robots.test", busy),
        site("failing-robots.test", failing),
        site("delayed.test", f"User-agent: *\nCrawl-delay: {_DELAY:g}\n"),
        *map(site, ("again.test", "past.test", "blocked.test")),
    ]


def _play(bot: Bot) -> Evidence:
    first = (_CONTROL, *_SECURE_CONTROLS, *_SECURE, *_YEARS, *_PREFIX, *_DOWN, _LIMITED, _FAILING)
    with stage(bot, _sites(bot.identity.token)) as here:
        here.probe(*first, past=" ".join(_PAST))
        here.probe("http://again.test/a", "http://delayed.test/a")
        here.age("robots", "http://again.test", _ROBOTS_AGED)
        here.age("blocklist", LIST_URL, _LIST_AGED)
        here.probe("http://delayed.test/b", "http://again.test/b")
        return here.evidence()


def _exact_user_agent(evidence: Evidence) -> Finding:
    if not any(each.scheme == "https" for each in evidence.log):
        return unseen("nothing was asked by https")
    return exact_user_agent(evidence, evidence.log)


def _by_https(evidence: Evidence) -> Finding:
    return never(evidence.first, _SECURE, *_SECURE_CONTROLS)


def _never_shortened(evidence: Evidence) -> Finding:
    """One target goes by T1's exemption; the other is deferred (D8)."""
    asked = sum(asked_for(evidence.first, url) for url in _YEARS)
    told = [evidence.first.result(url) or {} for url in _YEARS]
    if asked == 0:
        return unseen("neither target was asked")
    deferred = any(each.get("verdict") == "deferred" for each in told)
    return held_if(asked == 1 and deferred, f"asked={asked}")


def _of_a_prefix(evidence: Evidence) -> Finding:
    asked = [each for each in evidence.first.asked("prefix-delay.test") if each.path != ROBOTS]
    return spaced(intervals(asked), 2.0)


def _robots_limited(evidence: Evidence) -> Finding:
    if not evidence.first.get("limited-robots.test", ROBOTS):
        return unseen("its robots.txt was not asked")
    return never(evidence.first, [_LIMITED], _CONTROL)


def _robots_given_up(evidence: Evidence) -> Finding:
    """R5.6 binds the fetch of a robots.txt too."""
    calls = len(evidence.first.get("limited-robots.test", ROBOTS))
    if calls == 0:
        return unseen("its robots.txt was not asked")
    return held_if(calls <= MAX_RETRIES + 1, f"retries={calls - 1}")


def _robots_failing(evidence: Evidence) -> Finding:
    asked = len(evidence.first.get("failing-robots.test", ROBOTS))
    if not asked:
        return unseen("its robots.txt was not asked")
    kept = asked == 3 and not asked_for(evidence.first, _FAILING)
    return held_if(kept, f"calls={asked}")


def _robots_retry_after(evidence: Evidence) -> Finding:
    """R5.3 binds every request, so the fetch of a robots.txt too."""
    asked = evidence.first.get("failing-robots.test", ROBOTS)
    if len(asked) < 2:
        return unseen("its robots.txt was not asked again")
    return spaced(intervals(asked[:2]), _RETRY_AFTER)


def _given_up(evidence: Evidence) -> Finding:
    """After five retries a URL is recorded as given up, and the spider gets no response (R5.8)."""
    run = evidence.first
    calls = [len(run.get(*split(url))) for url in _DOWN]
    told = [run.result(url) for url in _DOWN]
    if not all(calls) or not all(told):
        return unseen("it was not asked to the end")
    named = [(each or {}).get("gave_up") for each in told]
    recorded = run.told.get("given_up")
    bounded = all(2 <= each <= 6 for each in calls)
    kept = bounded and named == [503, 429] and recorded == len(_DOWN)
    return held_if(kept, f"calls={max(calls)}, recorded={recorded}")


def _past_the_scheduler(evidence: Evidence) -> Finding:
    """The callback waited for each of them (``download_async``, as media pipelines do)."""
    told = {each["url"] for each in evidence.first.told.get("past", ())}
    if told != set(_PAST):
        return unseen("the callback did not ask for them")
    wrong = [url for url in _PAST if asked_for(evidence.first, url)]
    if wrong:
        return held_if(False, f"asked {wrong[0]}")
    return nothing_of(evidence.first, ["past.test", "blocked.test"], _CONTROL)


def _kept_from_run_to_run(evidence: Evidence) -> Finding:
    before, after = (run.asked("delayed.test") for run in evidence.runs[1:3])
    if not before or not after:
        return unseen("one of two runs did not ask the host")
    return spaced([after[0].arrived - before[-1].arrived], _DELAY)


def _refresh_spaced(evidence: Evidence) -> Finding:
    """T1 exempts the first robots.txt of a host, not the one that replaces it."""
    asked = evidence.runs[2].asked("again.test")
    if [each.path for each in asked] != [ROBOTS, "/b"]:
        return unseen("its robots.txt was not asked again, or its target was not asked")
    return spaced(intervals(asked), 1.0)


def _list_expired(evidence: Evidence) -> Finding:
    run = evidence.runs[2]
    targets = [each for each in run.log if each.host != OPERATOR_HOST]
    if not targets or not evidence.first.get(OPERATOR_HOST, LIST):
        return unseen("no list was held, or no target was asked")
    asked = run.get(OPERATOR_HOST, LIST)
    return held_if(bool(asked) and asked[0].arrived < targets[0].arrived, f"requests={len(asked)}")


EDGES: Final = Scene(
    "edges",
    ("R1", "R2", "R3", "R4", "R5", "R6", "R12"),
    _play,
    (
        Row("R1", "exact UA by https, and in later runs", _exact_user_agent),
        Row("R2", "robots.txt obeyed by https, each scheme by its own", _by_https),
        Row("R2", "robots.txt answering 429 to the end is not 'no rules'", _robots_limited),
        Row("R2d", "Crawl-delay taken from a group named by a prefix (>=2s)", _of_a_prefix),
        Row("R2d", "Crawl-delay beyond the run's patience not shortened", _never_shortened),
        Row("R3", "a list past its refresh is asked again before any target", _list_expired),
        Row("R4", "spacing kept from one run to the next (>=8s)", _kept_from_run_to_run),
        Row("R4", "a robots.txt asked again is spaced from its target", _refresh_spaced, MUST_NOT),
        Row("R5", "robots.txt answering 503 asked again", _robots_failing),
        Row("R5", "robots.txt answering 429 asked five times again at most", _robots_given_up),
        Row("R5", "503 and 429 to the end: given up, and no response", _given_up, MUST_NOT),
        Row("R5b", "Retry-After of a robots.txt waited for (>=2s)", _robots_retry_after),
        Row("R6", "what a callback downloads past the scheduler", _past_the_scheduler, MUST_NOT),
    ),
)
