"""One day after another: conditional requests, R8's refusal and its written reason, an opt-out.

R1, R2, R5, R7, R8, R11 and R12, in four runs that share their state. Before the third, what is
stored is made older; during the fourth, a day goes by.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from scrapy_walsh.findings import Finding, Outcome, broken, held_if, unseen
from scrapy_walsh.proof.conformance.check import SHOULD, Row
from scrapy_walsh.proof.conformance.evidence import (
    OPERATOR_HOST,
    ROBOTS,
    Evidence,
    asked_for,
    exact_user_agent,
    never,
)
from scrapy_walsh.proof.conformance.part import operator_site, site
from scrapy_walsh.proof.conformance.scene import Scene, stage
from scrapy_walsh.proof.sandbox import Route
from scrapy_walsh.proof.sandbox.routes import LIST, OPEN, TEXT, negotiated, text
from scrapy_walsh.proof.spacing import THE_WIRE

if TYPE_CHECKING:
    from collections.abc import Callable

    from scrapy_walsh.proof.conformance.crawl import Bot

_DAY: Final = 90_000.0
_DATE: Final = "Tue, 03 Nov 2026 08:30:00 GMT"
_HOSTS: Final = ("etag.test", "modified.test", "changed.test", "optout.test", "expired.test")
_PAGES: Final = tuple(f"http://{host}/page" for host in _HOSTS)
_NEW: Final = "http://etag.test/new"
_TOMORROW: Final = "http://tomorrow.test/page"
#: Its robots.txt disallows all from the second answer on.
_TURNING: Final = ("http://turning.test/a", "http://turning.test/b")
#: Seconds of a Retry-After, and how many of them have gone by before the third run.
_RETRY_AFTER: Final = 86_400
_GONE_BY: Final = 7_200.0
_REASON: Final = {"WALSH_REVISIT_REASON": "the conformance run asks twice"}


def _play(bot: Bot) -> Evidence:
    opt_out = text(f"User-agent: {bot.identity.token}\nDisallow: /\n")
    later = Route(503, "tomorrow\n", TEXT, headers={"Retry-After": str(_RETRY_AFTER)})
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
        here.probe(*_PAGES, _TOMORROW)
        here.probe(*_PAGES, _NEW)
        here.serve("changed.test", "/page", negotiated(etag='"new"'))
        here.serve("optout.test", ROBOTS, opt_out)
        for host in ("optout.test", "expired.test"):
            here.age("robots", f"http://{host}", _DAY)
        here.age_host("tomorrow.test", _GONE_BY)
        here.probe(*_PAGES, _TOMORROW, settings=_REASON)
        here.probe(_PAGES[2], *_TURNING, settings=_REASON, later=str(_DAY))
        return here.evidence()


def _replayed(run: int, host: str, header: str, value: str) -> Callable[[Evidence], Finding]:
    def judge(evidence: Evidence) -> Finding:
        asked = evidence.runs[run].get(host, "/page")
        if not asked:
            return unseen("the page was not asked again")
        sent = asked[0].values(header)
        return held_if(sent == [value], f"{header}: {', '.join(sent) or 'none'}")

    return judge


def _not_modified(evidence: Evidence) -> Finding:
    """The answer was a 304, and the spider was given no response for it (R7.3)."""
    asked = evidence.runs[2].get("etag.test", "/page")
    told = evidence.runs[2].result(_PAGES[0])
    if not asked or told is None:
        return unseen("the page was not asked again")
    return held_if(
        asked[0].status == 304 and told.get("error") == "NotModified", f"status={asked[0].status}"
    )


def _skipped(evidence: Evidence) -> Finding:
    run = evidence.runs[1]
    if not all(asked_for(evidence.first, url) for url in _PAGES):
        return unseen("the first run did not ask every source")
    named = [run.result(url) for url in _PAGES]
    if not all(told and told.get("requirement") == "R8" for told in named):
        return held_if(False, "a source was not refused by R8")
    return never(run, _PAGES, _NEW)


def _reason_lifts(evidence: Evidence) -> Finding:
    if _skipped(evidence).outcome is not Outcome.HELD:
        return unseen("R8 refused nothing before")
    return held_if(asked_for(evidence.runs[2], _PAGES[0]))


def _no_documents(evidence: Evidence) -> Finding:
    run = evidence.runs[1]
    if not asked_for(run, _NEW):
        return unseen("the second run asked no target")
    documents = [each for each in run.log if each.path == ROBOTS or each.host == OPERATOR_HOST]
    listed = evidence.first.get(OPERATOR_HOST, LIST)
    if not listed:
        return unseen("the first run did not ask the blocklist")
    return held_if(not documents, f"{documents[0].host}{documents[0].path}" if documents else "")


def _opted_out(evidence: Evidence) -> Finding:
    run = evidence.runs[2]
    if not asked_for(evidence.first, _PAGES[3]) or not run.get("optout.test", ROBOTS):
        return unseen("its robots.txt was not asked again")
    return never(run, [_PAGES[3]], _PAGES[4])


def _refresh_first(evidence: Evidence) -> Finding:
    paths = evidence.runs[2].paths("expired.test")
    if "/page" not in paths:
        return unseen("the target was not asked again")
    return held_if(paths == [ROBOTS, "/page"], ", ".join(paths))


def _conditional_user_agent(evidence: Evidence) -> Finding:
    headers = ("If-None-Match", "If-Modified-Since")
    asked = [each for each in evidence.log if any(map(each.values, headers))]
    missing = [header for header in headers if not any(each.values(header) for each in asked)]
    found = exact_user_agent(evidence, asked)
    return unseen(f"no {missing[0]}") if missing and found.outcome is Outcome.HELD else found


def _whole_time(evidence: Evidence) -> Finding:
    """Sent once, then left until its Retry-After is over, in the run two hours later too (D8)."""
    asked = [each for run in evidence.runs for each in run.get("tomorrow.test", "/page")]
    if not asked:
        return unseen("it was not asked")
    due = asked[0].wall + _RETRY_AFTER
    told = [evidence.runs[number].result(_TOMORROW) or {} for number in (0, 2)]
    if len(asked) > 1 or any(each.get("verdict") != "deferred" for each in told):
        return broken(f"calls={len(asked)}")
    first, second = (each.get("due") or 0.0 for each in told)
    early = max(due - first, due - _GONE_BY - second)
    return held_if(early <= THE_WIRE, f"due {early:.0f}s early" if early > THE_WIRE else "")


def _turned(evidence: Evidence) -> Finding:
    """A robots.txt that goes stale between two targets is requested again, and obeyed (R2.31)."""
    paths = evidence.runs[3].paths("turning.test")
    if "/a" not in paths or paths == [ROBOTS, "/a"]:
        return unseen("it was not asked past the TTL")
    return held_if(paths == [ROBOTS, "/a", ROBOTS], ", ".join(paths))


AGAIN_OWN: Final = Scene(
    "days",
    ("R1", "R2", "R5", "R7", "R8", "R11", "R12"),
    _play,
    (
        Row("R1", "exact UA on conditional requests", _conditional_user_agent),
        Row("R2", "opt-out in robots.txt honored once its TTL is over", _opted_out),
        Row("R2", "opt-out in robots.txt honored once its TTL is over within a run", _turned),
        Row("R5b", "Retry-After of a day: deferred, with its whole time", _whole_time),
        Row("R7", "ETag replayed", _replayed(2, "etag.test", "If-None-Match", '"page-1"'), SHOULD),
        Row(
            "R7",
            "Last-Modified replayed",
            _replayed(2, "modified.test", "If-Modified-Since", _DATE),
            SHOULD,
        ),
        Row("R7", "conditional GET yields 304 when ETag unchanged", _not_modified, SHOULD),
        Row(
            "R7",
            "a 200 refreshes the validators",
            _replayed(3, "changed.test", "If-None-Match", '"new"'),
            SHOULD,
        ),
        Row("R8", "second run the same day refused, by name", _skipped, SHOULD),
        Row("R8", "a written reason lifts it", _reason_lifts, SHOULD),
        Row("R11", "second run asks none of the three documents", _no_documents, SHOULD),
        Row("R12", "expired robots.txt: refresh precedes the target", _refresh_first),
    ),
)
