"""What the lab does not show: https, requests that go past the scheduler, a run after a run.

R1 to R6 and R12, in three runs that follow one another at once and share their state.
"""

from __future__ import annotations

from typing import Final

from scrapy_walsh.policy.backoff import MAX_RETRIES
from scrapy_walsh.proof.conformance.crawl import Bot, stage
from scrapy_walsh.proof.conformance.evidence import (
    LIST_URL,
    NO_ROBOTS,
    OPERATOR_HOST,
    THE_LIST,
    Evidence,
    Judge,
    exact_user_agent,
    intervals,
    look,
    never,
    none,
    nothing_of,
    paced,
    seen,
    spaced,
    urls_of,
    where,
)
from scrapy_walsh.proof.conformance.part import Scene, operator_site, site
from scrapy_walsh.proof.exchanges import ROBOTS
from scrapy_walsh.proof.findings import Finding, Outcome, broken, held_if
from scrapy_walsh.proof.sandbox import Route, Site, routes
from scrapy_walsh.proof.sandbox.routes import OPEN, negotiated, text
from scrapy_walsh.proof.spacing import THE_WIRE

_CONTROL: Final = "start.test/page"
_SECURE: Final = "https://schemes.test/denied https://secure.test/denied"
_SECURE_CONTROLS: Final = "schemes.test/page https://secure.test/page"
_YEARS: Final = ("years.test/a", "years.test/b")
_LIMITED: Final = "limited-robots.test"
_FAILING: Final = "failing-robots.test"
#: These answer 503 and 429 to every request.
_DOWN: Final = ("down.test/page", "busy.test/page")
_PAST: Final = "past.test/page blocked.test/page start.test/denied"
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
    first = (
        f"{_CONTROL} {_SECURE_CONTROLS} {_SECURE} years.test/a years.test/b prefix-delay.test/a"
        f" prefix-delay.test/b down.test/page busy.test/page {_LIMITED}/page {_FAILING}/page"
    )
    with stage(bot, _sites(bot.identity.token)) as here:
        here.probe(first, past=urls_of(_PAST))
        here.probe("again.test/a delayed.test/a")
        here.age("robots", "http://again.test", _ROBOTS_AGED)
        here.age("blocklist", LIST_URL, _LIST_AGED)
        here.probe("delayed.test/b again.test/b")
        return here.evidence()


def _exact_user_agent(evidence: Evidence) -> Finding:
    seen(any(each.scheme == "https" for each in evidence.log), "nothing was asked by https")
    return exact_user_agent(evidence, evidence.log)


def _never_shortened(evidence: Evidence) -> Finding:
    """One target goes by T1's exemption; the other is deferred (D8)."""
    asked = seen(sum(map(evidence.first.requested, _YEARS)), "neither target was asked")
    told = [evidence.first.result(url) or {} for url in _YEARS]
    deferred = any(each.get("verdict") == "deferred" for each in told)
    return held_if(asked == 1 and deferred, f"asked={asked}")


def _robots_given_up(evidence: Evidence) -> Finding:
    """R5.6 binds the fetch of a robots.txt too."""
    calls = len(seen(evidence.first.get(f"{_LIMITED}{ROBOTS}"), NO_ROBOTS))
    return held_if(calls <= MAX_RETRIES + 1, f"retries={calls - 1}")


def _robots_failing(evidence: Evidence) -> Finding:
    asked = len(seen(evidence.first.get(f"{_FAILING}{ROBOTS}"), NO_ROBOTS))
    return held_if(asked == 3 and not evidence.first.get(f"{_FAILING}/page"), f"calls={asked}")


def _robots_retry_after(evidence: Evidence) -> Finding:
    """R5.3 binds every request, so the fetch of a robots.txt too."""
    asked = evidence.first.get(f"{_FAILING}{ROBOTS}")
    seen(len(asked) > 1, "its robots.txt was not asked again")
    return spaced(intervals(asked[:2]), _RETRY_AFTER)


def _given_up(evidence: Evidence) -> Finding:
    """After five retries a URL is recorded as given up, and the spider gets no response (R5.8)."""
    run = evidence.first
    calls = [len(run.get(place)) for place in _DOWN]
    told = [run.result(place) for place in _DOWN]
    seen(all(calls) and all(told), "it was not asked to the end")
    named = [(each or {}).get("gave_up") for each in told]
    recorded = run.told.get("given_up")
    bounded = all(2 <= each <= 6 for each in calls)
    kept = bounded and named == [503, 429] and recorded == len(_DOWN)
    return held_if(kept, f"calls={max(calls)}, recorded={recorded}")


def _past_the_scheduler(evidence: Evidence) -> Finding:
    """The callback waited for each of them (``download_async``, as media pipelines do)."""
    told = {each["url"] for each in evidence.first.told.get("past", ())}
    seen(told == set(urls_of(_PAST)), "the callback did not ask for them")
    asked = never(_PAST)(evidence)
    if asked.outcome is Outcome.BROKEN:
        return asked
    return nothing_of("past.test blocked.test", _CONTROL)(evidence)


def _kept_from_run_to_run(evidence: Evidence) -> Finding:
    before, after = (run.asked("delayed.test") for run in evidence.runs[1:3])
    seen(before and after, "one of two runs did not ask the host")
    return spaced([after[0].arrived - before[-1].arrived], _DELAY)


def _refresh_spaced(evidence: Evidence) -> Finding:
    """T1 exempts the first robots.txt of a host, not the one that replaces it."""
    asked = evidence.runs[2].asked("again.test")
    both = [each.path for each in asked] == [ROBOTS, "/b"]
    seen(both, "its robots.txt was not asked again, or its target was not asked")
    return spaced(intervals(asked), 1.0)


def _list_expired(evidence: Evidence) -> Finding:
    run = evidence.runs[2]
    targets = [each for each in run.log if each.host != OPERATOR_HOST]
    occasion = targets and evidence.first.get(THE_LIST)
    seen(occasion, "no list was held, or no target was asked")
    asked = run.get(THE_LIST)
    return held_if(bool(asked) and asked[0].arrived < targets[0].arrived, f"requests={len(asked)}")


EDGES: Final = Scene(
    "edges",
    _play,
    {
        "R1 exact UA by https, and in later runs": _exact_user_agent,
        "R2 robots.txt obeyed by https, each scheme by its own": never(_SECURE, _SECURE_CONTROLS),
        "R2 robots.txt answering 429 to the end is not 'no rules'": where(
            f"{_LIMITED}{ROBOTS}", never(f"{_LIMITED}/page", _CONTROL)
        ),
        "R2d Crawl-delay taken from a group named by a prefix (>=2s)": paced(
            "prefix-delay.test", 2.0
        ),
        "R2d Crawl-delay beyond the run's patience not shortened": _never_shortened,
        "R3 a list past its refresh is asked again before any target": _list_expired,
        "R4 spacing kept from one run to the next (>=8s)": _kept_from_run_to_run,
        "R4 MUST NOT a robots.txt asked again is spaced from its target": _refresh_spaced,
        "R5 robots.txt answering 503 asked again": _robots_failing,
        "R5 robots.txt answering 429 asked five times again at most": _robots_given_up,
        "R5 MUST NOT 503 and 429 to the end: given up, and no response": _given_up,
        "R5b Retry-After of a robots.txt waited for (>=2s)": _robots_retry_after,
        "R6 MUST NOT what a callback downloads past the scheduler": _past_the_scheduler,
    },
)


# One day after another: conditional requests, R8's refusal and its written reason, an opt-out.
#
# R1, R2, R5, R7, R8, R11 and R12, in four runs that share their state. Before the third, what is
# stored is made older; during the fourth, a day goes by.

_DAY: Final = 90_000.0
_DATE: Final = "Tue, 03 Nov 2026 08:30:00 GMT"
_ALL: Final = (
    "etag.test/page modified.test/page changed.test/page optout.test/page expired.test/page"
)
_PAGES: Final = _ALL.split()
_NEW: Final = "etag.test/new"
_TOMORROW: Final = "tomorrow.test/page"
#: Its robots.txt disallows all from the second answer on.
_TURNING: Final = "turning.test/a turning.test/b"
#: Seconds of a Retry-After, and how many of them have gone by before the third run.
_RETRY_AFTER_AGAIN: Final = 86_400
_GONE_BY: Final = 7_200.0
_REASON: Final = {"WALSH_REVISIT_REASON": "the conformance run asks twice"}


def _play_again(bot: Bot) -> Evidence:
    opt_out = text(f"User-agent: {bot.identity.token}\nDisallow: /\n")
    later = routes.down(str(_RETRY_AFTER_AGAIN))
    sites = [
        operator_site(),
        site("etag.test", page=negotiated(etag='"page-1"')),
        site("modified.test", page=negotiated(last_modified=_DATE)),
        site("changed.test", page=negotiated(etag='"old"')),
        site("optout.test"),
        site("expired.test"),
        site("tomorrow.test", page=later),
        site("turning.test", Route(sequence=(text(OPEN), opt_out))),
    ]
    with stage(bot, sites) as here:
        here.probe(f"{_ALL} {_TOMORROW}")
        here.probe(f"{_ALL} {_NEW}")
        here.serve("changed.test", "/page", negotiated(etag='"new"'))
        here.serve("optout.test", ROBOTS, opt_out)
        for host in ("optout.test", "expired.test"):
            here.age("robots", f"http://{host}", _DAY)
        here.age_host("tomorrow.test", _GONE_BY)
        here.probe(f"{_ALL} {_TOMORROW}", _REASON)
        here.probe(f"changed.test/page {_TURNING}", _REASON, later=_DAY)
        return here.evidence()


def _replayed(run: int, host: str, header: str, value: str) -> Judge:
    def judge(evidence: Evidence) -> Finding:
        asked = seen(evidence.runs[run].get(f"{host}/page"), "the page was not asked again")
        sent = asked[0].values(header)
        return held_if(sent == [value], f"{header}: {', '.join(sent) or 'none'}")

    return judge


def _not_modified(evidence: Evidence) -> Finding:
    """The answer was a 304, and the spider was given no response for it (R7.3)."""
    asked = evidence.runs[2].get("etag.test/page")
    told = evidence.runs[2].result("etag.test/page") if asked else None
    error = seen(told, "the page was not asked again").get("error")
    kept = asked[0].status == 304 and error == "NotModified"
    return held_if(kept, f"status={asked[0].status}")


def _skipped(evidence: Evidence) -> Finding:
    run = evidence.runs[1]
    every = all(map(evidence.first.requested, _PAGES))
    seen(every, "the first run did not ask every source")
    named = [run.result(url) or {} for url in _PAGES]
    if any(told.get("requirement") != "R8" for told in named):
        return broken("a source was not refused by R8")
    return never(_ALL, _NEW, run=1)(evidence)


def _reason_lifts(evidence: Evidence) -> Finding:
    seen(look(_skipped, evidence).outcome is Outcome.HELD, "R8 refused nothing before")
    return held_if(bool(evidence.runs[2].get("etag.test/page")))


def _no_documents(evidence: Evidence) -> Finding:
    run = evidence.runs[1]
    seen(run.get(_NEW), "the second run asked no target")
    seen(evidence.first.get(THE_LIST), "the first run did not ask the blocklist")
    documents = [each for each in run.log if each.path == ROBOTS or each.host == OPERATOR_HOST]
    return none([f"{each.host}{each.path}" for each in documents])


def _opted_out(evidence: Evidence) -> Finding:
    again = "its robots.txt was not asked again"
    seen(evidence.first.get("optout.test/page"), again)
    left_alone = never("optout.test/page", "expired.test/page", run=2)
    return where(f"optout.test{ROBOTS}", left_alone, again, run=2)(evidence)


def _refresh_first(evidence: Evidence) -> Finding:
    paths = evidence.runs[2].paths("expired.test")
    seen("/page" in paths, "the target was not asked again")
    return held_if(paths == [ROBOTS, "/page"], ", ".join(paths))


def _conditional_user_agent(evidence: Evidence) -> Finding:
    headers = ("If-None-Match", "If-Modified-Since")
    asked = [each for each in evidence.log if any(map(each.values, headers))]
    missing = [header for header in headers if not any(each.values(header) for each in asked)]
    found = exact_user_agent(evidence, asked)
    seen(not missing or found.outcome is Outcome.BROKEN, f"no {', '.join(missing)}")
    return found


def _whole_time(evidence: Evidence) -> Finding:
    """Sent once, then left until its Retry-After is over, in the run two hours later too (D8)."""
    asked = seen([each for run in evidence.runs for each in run.get("tomorrow.test/page")])
    due = asked[0].wall + _RETRY_AFTER_AGAIN
    told = [evidence.runs[number].result(_TOMORROW) or {} for number in (0, 2)]
    if len(asked) > 1 or any(each.get("verdict") != "deferred" for each in told):
        return broken(f"calls={len(asked)}")
    first, second = (each.get("due") or 0.0 for each in told)
    early = max(due - first, due - _GONE_BY - second)
    return held_if(early <= THE_WIRE, f"due {early:.0f}s early" if early > THE_WIRE else "")


def _turned(evidence: Evidence) -> Finding:
    """A robots.txt that goes stale between two targets is requested again, and obeyed (R2.31)."""
    paths = evidence.runs[3].paths("turning.test")
    seen("/a" in paths and paths != [ROBOTS, "/a"], "it was not asked past the TTL")
    return held_if(paths == [ROBOTS, "/a", ROBOTS], ", ".join(paths))


AGAIN_OWN: Final = Scene(
    "days",
    _play_again,
    {
        "R1 exact UA on conditional requests": _conditional_user_agent,
        "R2 opt-out in robots.txt honored once its TTL is over": _opted_out,
        "R2 opt-out in robots.txt honored once its TTL is over within a run": _turned,
        "R5b Retry-After of a day: deferred, with its whole time": _whole_time,
        "R7 SHOULD ETag replayed": _replayed(2, "etag.test", "If-None-Match", '"page-1"'),
        "R7 SHOULD Last-Modified replayed": _replayed(
            2, "modified.test", "If-Modified-Since", _DATE
        ),
        "R7 SHOULD conditional GET yields 304 when ETag unchanged": _not_modified,
        "R7 SHOULD a 200 refreshes the validators": _replayed(
            3, "changed.test", "If-None-Match", '"new"'
        ),
        "R8 SHOULD second run the same day refused, by name": _skipped,
        "R8 SHOULD a written reason lifts it": _reason_lifts,
        "R11 SHOULD second run asks none of the three documents": _no_documents,
        "R12 expired robots.txt: refresh precedes the target": _refresh_first,
    },
)
