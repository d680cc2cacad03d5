"""Scenes that the lab cannot show: this package's own spiders, in several runs if needed.

Edges, in three runs that follow one another at once and share their state: https, requests that go
past the scheduler, a run after a run (R1 to R6 and R12). Then one day after another; a spider that
misbehaves; and the main spider.
"""

from __future__ import annotations

from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

from scrapy_walsh.policy.gates import MAX_RETRIES
from scrapy_walsh.policy.identity import WALSH_RESEARCH
from scrapy_walsh.proof.conformance.check import Scene
from scrapy_walsh.proof.conformance.evidence import (
    Evidence,
    Judge,
    counted,
    every,
    exact_user_agent,
    full,
    intervals,
    never,
    none,
    nothing_of,
    only,
    refused,
    seen,
    spaced,
    urls_of,
    was_asked,
    where,
)
from scrapy_walsh.proof.exchanges import ROBOTS
from scrapy_walsh.proof.findings import Finding, broken, held_if
from scrapy_walsh.proof.sandbox import Route, Site, default_sites
from scrapy_walsh.proof.sandbox.routes import (
    HTML,
    MARKDOWN,
    OPEN,
    TEXT,
    busy,
    down,
    negotiated,
    refreshing,
    site,
    text,
)
from scrapy_walsh.proof.spacing import THE_WIRE

if TYPE_CHECKING:
    from scrapy_walsh.proof.conformance.crawl import Stage

_CONTROL: Final = "start.test/page"
_SECURE: Final = "https://schemes.test/denied https://secure.test/denied"
_SECURE_CONTROLS: Final = "schemes.test/page https://secure.test/page"
_YEARS: Final = ("years.test/a", "years.test/b")
_LIMITED: Final = "limited-robots.test"
_AWAY: Final = "away-robots.test"
#: Hosts with a robots.txt that fails at first, with 503 and with 429.
_FAILING: Final = ("failing-robots.test", "failing-429.test")
#: These answer 503 and 429 to every request.
_DOWN: Final = ("down.test/page", "busy.test/page")
#: Request targets that libraries put together in another way than the URL has them. They are asked
#: by https: what a proxy is sent for http is the whole URL, which hides it.
_EXACT: Final = ("//two/slashes", "/semicolon;", "/up/../dots;p=1?q=//x")
_PAST: Final = "past.test/page blocked.test/page start.test/denied"
#: Older than a robots.txt (a day).
_DAY: Final = 90_000.0
_DELAY: Final = 8.0
#: Seconds that a robots.txt's own 503 asks for.
_RETRY_AFTER: Final = 2.0


def _sites(token: str) -> list[Site]:
    deny = f"User-agent: {token}\nDisallow: /denied\n"
    closed = text(f"User-agent: {token}\nDisallow: /\n")
    waits = f"{_RETRY_AFTER:g}"
    return [
        site("start.test", deny),
        site("schemes.test"),
        site("https://schemes.test", deny),
        site("https://secure.test", deny),
        site("years.test", "User-agent: *\nCrawl-delay: 100000\n"),
        site("down.test", page=down("0")),
        site("busy.test", page=busy("0")),
        site(_LIMITED, busy("0")),
        site(_AWAY, down("0")),
        *(
            site(host, Route(sequence=(refusal(waits), refusal("0"), closed)))
            for host, refusal in zip(_FAILING, (down, busy), strict=True)
        ),
        site("delayed.test", f"User-agent: *\nCrawl-delay: {_DELAY:g}\n"),
        *map(
            site,
            ("again.test", "past.test", "blocked.test", "https://exact.test"),
        ),
    ]


def _play(here: Stage) -> None:
    urls = (
        f"{_CONTROL} {_SECURE_CONTROLS} {_SECURE} years.test/a years.test/b"
        f" down.test/page busy.test/page {_LIMITED}/page {_AWAY}/page"
        f" {' '.join(f'{host}/page' for host in _FAILING)}"
        f" {' '.join(f'https://exact.test{target}' for target in _EXACT)}"
    )
    here.probe(urls, past=urls_of(_PAST))
    here.probe("again.test/a delayed.test/a")
    here.age("robots", "http://again.test", _DAY)
    here.probe("delayed.test/b again.test/b")


def _never_shortened(evidence: Evidence) -> Finding:
    """T1 exempts one target; the other is deferred (D8)."""
    count = seen(sum(map(evidence.first.requested, _YEARS)), "neither target was asked")
    results = [evidence.first.result(url) for url in _YEARS]
    deferred = any(result.get("verdict") == "deferred" for result in results)
    return held_if(count == 1 and deferred, f"asked={count}")


def _robots_retry_after(evidence: Evidence) -> Finding:
    """R5.3 binds every request, so the fetch of a robots.txt too."""
    requests_of_hosts = [evidence.first.get(f"{host}{ROBOTS}")[:2] for host in _FAILING]
    seen(
        all(len(requests_of) == 2 for requests_of in requests_of_hosts),
        "it was not asked a second time",
    )
    return spaced(
        [gap for requests_of in requests_of_hosts for gap in intervals(requests_of)],
        _RETRY_AFTER,
    )


def _sent_as_judged(evidence: Evidence) -> Finding:
    """The server's log has each request target as its URL has it, and no other (D36)."""
    targets = [
        request.target for request in evidence.first.asked("exact.test") if request.path != ROBOTS
    ]
    seen(targets, "no such target was asked")
    wrong = [f"asked {target}" for target in targets if target not in _EXACT]
    seen(wrong or len(targets) == len(_EXACT), "not every target was asked")
    return none(wrong)


def _robots_bounded(host: str) -> Judge:
    return counted(lambda run: run.get(f"{host}{ROBOTS}"), MAX_RETRIES + 1)


def _given_up(evidence: Evidence) -> Finding:
    """After five retries a URL is given up, and the spider gets no response (R5.8)."""
    run = evidence.first
    calls = [len(run.get(place)) for place in _DOWN]
    seen(all(calls), "it was not asked to the end")
    statuses = [run.result(place).get("gave_up") for place in _DOWN]
    holds = statuses == [503, 429] and max(calls) <= 1 + MAX_RETRIES
    return held_if(holds, f"calls={max(calls)}")


def _went_past(evidence: Evidence) -> Finding:
    """The callback waited for each of them (``download_async``, as media pipelines do)."""
    past = evidence.first.told.get("past")
    return held_if(past == urls_of(_PAST), "the callback did not ask for them")


def _kept_from_run_to_run(evidence: Evidence) -> Finding:
    earlier, later = (evidence.run(number).asked("delayed.test") for number in (1, 2))
    seen(earlier and later, "one of two runs did not ask the host")
    return spaced([later[0].arrived - earlier[-1].arrived], _DELAY)


def _refresh_spaced(evidence: Evidence) -> Finding:
    """T1 exempts the first robots.txt of a host, and not the next."""
    seen(evidence.run(1).asked("again.test"), "the first run did not ask the host")
    return spaced(intervals(evidence.run(2).asked("again.test")), 1.0)


EDGES: Final = Scene(
    name="edges",
    sites=_sites,
    play=_play,
    table={
        "R1 exact UA by https, and in later runs": where(
            was_asked("https://secure.test/page"), exact_user_agent()
        ),
        "R2 robots.txt obeyed by https, each scheme by its own": never(_SECURE, _SECURE_CONTROLS),
        "R2 MUST NOT another path or query sent than was judged": _sent_as_judged,
        "R2 robots.txt answering 429 to the end is not 'no rules'": where(
            was_asked(f"{_LIMITED}{ROBOTS}"),
            never(f"{_LIMITED}/page", _CONTROL),
        ),
        "R2d Crawl-delay beyond the run's patience not shortened": _never_shortened,
        "R4 spacing kept from one run to the next (>=8s)": _kept_from_run_to_run,
        "R4 MUST NOT a robots.txt asked again is spaced from its target": _refresh_spaced,
        "R12 expired robots.txt: refresh precedes the target": only(
            "again.test", ROBOTS, "/b", run=2
        ),
        "R5 robots.txt answering 503 or 429 asked again": every(
            *(only(host, ROBOTS, ROBOTS, ROBOTS) for host in _FAILING)
        ),
        "R5 robots.txt answering 429 or 503 asked five times again at most": every(
            _robots_bounded(_LIMITED), _robots_bounded(_AWAY)
        ),
        "R5 MUST NOT 503 and 429 to the end: given up, and no response": _given_up,
        "R5b Retry-After of a robots.txt waited for (>=2s)": _robots_retry_after,
        "R6 MUST NOT what a callback downloads past the scheduler": where(
            _went_past,
            every(never(_PAST), nothing_of("past.test blocked.test", _CONTROL)),
        ),
    },
)


# One day after another: conditional requests, an opt-out, a Retry-After of a day.
#
# R1, R2, R5 and R7, in three runs that share their state. Before the second run the stored records
# are made older; during the third a day goes by.

_DATE: Final = "Tue, 03 Nov 2026 08:30:00 GMT"
_ALL: Final = "etag.test/page modified.test/page changed.test/page optout.test/page"
#: They answer 503 and 429 with a Retry-After of a day.
_TOMORROW: Final = ("tomorrow.test", "tomorrow-429.test")
#: Its robots.txt disallows all from the second answer on.
_TURNING: Final = "turning.test/a turning.test/b"
#: Seconds of a Retry-After, and how many of them are over before the second run.
_RETRY_AFTER_AGAIN: Final = 86_400
_GONE_BY: Final = 7_200.0
_REASON: Final = {"WALSH_REVISIT_REASON": "the conformance run asks twice"}


def _again_sites(token: str) -> list[Site]:
    return [
        site("etag.test", page=negotiated(etag='"page-1"')),
        site("modified.test", page=negotiated(last_modified=_DATE)),
        site("changed.test", page=negotiated(etag='"old"')),
        site("optout.test"),
        *(
            site(host, page=refusal(str(_RETRY_AFTER_AGAIN)))
            for host, refusal in zip(_TOMORROW, (down, busy), strict=True)
        ),
        site("turning.test", Route(sequence=(text(OPEN), _opt_out(token)))),
        site("portal.test", text(f"User-agent: {token}\nDisallow: /no\n")),
    ]


def _opt_out(token: str) -> Route:
    return text(f"User-agent: {token}\nDisallow: /\n")


def _play_again(here: Stage) -> None:
    tomorrow = " ".join(f"{host}/page" for host in _TOMORROW)
    both = f"{_ALL} {tomorrow} portal.test/page portal.test/no"
    here.probe(both)
    here.serve("changed.test", "/page", negotiated(etag='"new"'))
    here.serve("optout.test", ROBOTS, _opt_out(here.bot.identity.token))
    here.age("robots", "http://optout.test", _DAY)
    here.serve("portal.test", ROBOTS, Route(body=HTML, content_type="text/html"))
    here.age("robots", "http://portal.test", _DAY)
    for host in _TOMORROW:
        here.age("host", host, _GONE_BY)
    here.probe(both, _REASON)
    here.probe(f"changed.test/page {_TURNING}", _REASON, later=_DAY)


def _replayed(host: str, header: str, value: str, run: int = 1) -> Judge:
    def judge(evidence: Evidence) -> Finding:
        requests_of_page = seen(
            evidence.run(run).get(f"{host}/page"),
            "the page was not asked again",
        )
        values = requests_of_page[0].values(header)
        return held_if(values == [value], f"{header}: {', '.join(values) or 'none'}")

    return judge


def _not_modified(evidence: Evidence) -> Finding:
    """The answer was a 304, and the spider was given no response for it (R7.3)."""
    requests_of_page = seen(evidence.run(1).get("etag.test/page"), "the page was not asked again")
    error = evidence.run(1).result("etag.test/page").get("error")
    return held_if(
        requests_of_page[0].status == 304 and error == "NotModified",
        f"status={requests_of_page[0].status}",
    )


def _whole_time(host: str) -> Judge:
    return partial(_left_for_its_time, f"{host}/page")


def _left_for_its_time(place: str, evidence: Evidence) -> Finding:
    """Sent once, then left until its Retry-After is over, in the run two hours later too (D8)."""
    requests_of_place = seen([request for run in evidence.runs for request in run.get(place)])
    due = requests_of_place[0].wall + _RETRY_AFTER_AGAIN
    results = [result for run in evidence.runs for result in run.results(place)]
    if len(requests_of_place) > 1 or [result.get("verdict") for result in results] != [
        "deferred",
        "deferred",
    ]:
        return broken(f"calls={len(requests_of_place)}")
    due_at_first, second = (result.get("due") or 0.0 for result in results)
    early = max(due - due_at_first, due - _GONE_BY - second)
    return held_if(early <= THE_WIRE, f"due {early:.0f}s early" if early > THE_WIRE else "")


def _turned(evidence: Evidence) -> Finding:
    """A robots.txt that goes stale between two targets is requested again, and obeyed (R2.31).

    Both targets wait for the first robots.txt, and either may be the first to go.
    """
    paths = evidence.run(2).paths("turning.test")
    targets = [path for path in paths if path != ROBOTS]
    seen(
        targets and paths != [ROBOTS, targets[0]],
        "it was not asked past the TTL",
    )
    return held_if(paths == [ROBOTS, targets[0], ROBOTS], ", ".join(paths))


DAYS: Final = Scene(
    name="days",
    sites=_again_sites,
    play=_play_again,
    table={
        "R1 exact UA on conditional requests": every(
            exact_user_agent(lambda request: request.values("If-None-Match")),
            exact_user_agent(lambda request: request.values("If-Modified-Since")),
        ),
        "R2 opt-out in robots.txt honored once its TTL is over": where(
            every(
                was_asked("optout.test/page"),
                was_asked(f"optout.test{ROBOTS}", run=1),
            ),
            never("optout.test/page", "etag.test/page", run=1),
        ),
        "R2 opt-out in robots.txt honored once its TTL is over within a run": _turned,
        "R2 SHOULD a page in place of a known robots.txt lifts nothing": where(
            was_asked(f"portal.test{ROBOTS}", run=1),
            never("portal.test/no", "portal.test/page", run=1),
        ),
        "R5b Retry-After of a day: deferred, with its whole time": every(
            *map(_whole_time, _TOMORROW)
        ),
        "R7 SHOULD ETag replayed": _replayed("etag.test", "If-None-Match", '"page-1"'),
        "R7 SHOULD Last-Modified replayed": _replayed("modified.test", "If-Modified-Since", _DATE),
        "R7 SHOULD conditional GET yields 304 when ETag unchanged": _not_modified,
        "R7 SHOULD a 200 refreshes the validators": _replayed(
            "changed.test", "If-None-Match", '"new"', run=2
        ),
        "R8 SHOULD a written reason lifts it": where(
            was_asked("etag.test/page"), was_asked("etag.test/page", run=1)
        ),
    },
)


# What a server, its neighbours and a publisher ask for, beyond the specification.
#
# R2, R5 and R8. The second run is two hours later, and a source's interval is one hour.

_WAIT: Final = 3
_PAGES: Final = "closed.test/page hinted.test/page brief.test/page hourly.test/page"
_BLOGS: Final = ("a.blog.test", "b.blog.test")
_HOUR: Final = 3600


def _asking_sites(_token: str) -> list[Site]:
    def answer(**fields: str) -> Route:
        return Route(body=HTML, headers={name.replace("_", "-"): fields[name] for name in fields})

    used_up = answer(RateLimit=f'"all";r=0;t={_WAIT}')
    day = answer(Cache_Control=f"max-age={24 * _HOUR}")
    hour = Route(body=OPEN, content_type=TEXT, headers={"Cache-Control": f"max-age={_HOUR}"})
    refusing = Route(sequence=(busy(str(_WAIT)), answer()))
    return [
        site("closed.test", page=Route(402, "pay\n", TEXT)),
        site("hinted.test", page=day),
        site("brief.test", hour),
        site("hourly.test"),
        site("used-up.test", a=used_up, b=used_up),
        *(site(host, page=refusing) for host in _BLOGS),
    ]


def _play_asking(here: Stage) -> None:
    blogs = " ".join(f"{host}/page" for host in _BLOGS)
    here.probe(f"{_PAGES} used-up.test/a used-up.test/b {blogs}")
    for url in urls_of(_PAGES):
        here.age("visit", url, 2 * _HOUR)
        here.age("robots", url.removesuffix("/page"), 2 * _HOUR)
    here.probe(_PAGES)


def _left_alone(page: str) -> Judge:
    """In the second run *page* was not requested, though a page that asks for nothing was."""
    return where(was_asked(page), never(page, "hourly.test/page", run=1))


def _together(evidence: Evidence) -> Finding:
    """After a 429 of one blog none was requested before its wait was over; R4 holds for them."""
    requests = sorted(
        (request for host in _BLOGS for request in evidence.first.asked(host)),
        key=lambda request: request.arrived,
    )
    pairs = list(pairwise(requests))
    seen(any(before.status == 429 for before, _ in pairs), "no 429, or nothing after it")
    spare = min(
        after.arrived - before.arrived - (_WAIT if before.status == 429 else 1.0)
        for before, after in pairs
    )
    return held_if(spare > -THE_WIRE, f"early={max(0.0, -spare):.3f}s")


NEIGHBOUR: Final = Scene(
    name="neighbour",
    sites=_asking_sites,
    play=_play_asking,
    settings={"WALSH_REVISIT": _HOUR, "WALSH_PACE_BY": {"*.blog.test": "blogs"}},
    table={
        "R2 SHOULD robots.txt asked again once its max-age is over": where(
            was_asked("brief.test/page", run=1),
            every(
                was_asked(f"brief.test{ROBOTS}", run=1),
                never(f"hourly.test{ROBOTS}", "hourly.test/page", run=1),
            ),
        ),
        "R5 SHOULD a rate limit that is used up is waited for": lambda evidence: spaced(
            intervals(evidence.first.targets("used-up.test")), float(_WAIT)
        ),
        "R5 SHOULD hosts that belong together wait together": _together,
        "R8 SHOULD a source's hint not to come yet is kept": _left_alone("hinted.test/page"),
        "R8 SHOULD a door that asks for payment is left alone": _left_alone("closed.test/page"),
    },
)


# A spider that misbehaves: it sets header fields, requests undeclared URLs, is redirected.
#
# R1, R2, R3, R5 and R6, in one run.

_HOPS: Final = {
    "hop-blocked.test": "http://blocked.test/hop",
    "hop-denied.test": "http://start.test/denied/hop",
}
#: Where a cloud keeps its credentials (D38).
_METADATA: Final = "http://169.254.169.254/latest/meta-data/"
_REFRESHING: Final = "refresh.test/page"
_UNDECLARED: Final = "start.test/undeclared elsewhere.test/undeclared"
_ALSO: Final = "start.test/also"
_POSTS: Final = ("post.test/error", "post.test/broken")
#: The fields that a spider might set to be taken for another client, or to change how the message
#: ends.
_HEADERS: Final = {
    "Forwarded": "for=192.0.2.1",
    "X-Forwarded-For": "192.0.2.1",
    "X-Forwarded-Host": "other.test",
    "X-Real-Ip": "192.0.2.1",
    "X-Original-User-Agent": "Mozilla/5.0",
    "Host": "other.test",
    "Transfer-Encoding": "chunked",
    "User-Agent": "Mozilla/5.0 (X11; Linux x86_64; rv:130.0) Gecko/20100101 Firefox/130.0",
}


def _spider_sites(token: str) -> list[Site]:
    return [
        site("start.test", f"User-agent: {token}\nDisallow: /denied\n"),
        *(site(host, page=Route(302, location=target)) for host, target in _HOPS.items()),
        site(
            "robots-moved.test",
            Route(302, location="http://blocked.test/robots.txt"),
        ),
        site(
            "robots-away.test",
            Route(302, location="http://start.test/denied/rules"),
        ),
        site("hop-private.test", page=Route(302, location=_METADATA)),
        site("169.254.169.254"),
        site("slow.test", "User-agent: *\nCrawl-delay: 100000\n"),
        site("refresh.test", page=refreshing("/by-meta", "/by-header")),
        site(
            "post.test",
            error=Route(500, "no\n", TEXT),
            broken=Route(behaviour="close"),
        ),
        *map(site, ("blocked.test", "elsewhere.test")),
    ]


def _play_spider(here: Stage) -> None:
    here.probe(
        f"{_CONTROL} start.test/denied robots-moved.test/page robots-away.test/page"
        " hop-private.test/page slow.test/page"
        f" {_REFRESHING} hop-blocked.test/page hop-denied.test/page",
        undeclared=urls_of(_UNDECLARED),
        also=urls_of(_ALSO),
        posts=urls_of(" ".join(_POSTS)),
        headers=_HEADERS,
    )


def _none_of_its_headers(evidence: Evidence) -> Finding:
    """No value that the spider sets is sent: neither another sender, nor another framing (R1)."""
    wrong = [
        f"its {name} was sent to {request.host}"
        for request in evidence.log
        for name, value in _HEADERS.items()
        if value in request.values(name)
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
    result = evidence.first.result(_REFRESHING)
    itself = (result.get("status"), result.get("final")) == (
        200,
        full(_REFRESHING),
    )
    return held_if(itself, "" if itself else str(result.get("why", result.get("final"))))


SPIDER: Final = Scene(
    name="spider",
    sites=_spider_sites,
    play=_play_spider,
    settings={"WALSH_SLOW_HOSTS": "skip"},
    table={
        "R1 MUST NOT headers that mislead do not reach the wire": where(
            was_asked(_CONTROL), every(exact_user_agent(), _none_of_its_headers)
        ),
        "R2 robots.txt blocks /denied, named as the reason": refused(
            "start.test/denied", "R2", "disallowed_explicit"
        ),
        "R2 redirect to a disallowed path not followed": _hop_refused("hop-denied.test"),
        "R3 redirect to a listed host not followed": _hop_refused("hop-blocked.test"),
        "R3 robots.txt redirected to a listed host not followed": where(
            was_asked(f"robots-moved.test{ROBOTS}"),
            nothing_of("blocked.test", _CONTROL),
        ),
        "R2 robots.txt redirected to a page that is disallowed there: not followed": where(
            was_asked(f"robots-away.test{ROBOTS}"),
            never("start.test/denied/rules", _CONTROL),
        ),
        "R2 MUST NOT robots.txt whose redirect is refused is not 'no rules'": where(
            was_asked(f"robots-moved.test{ROBOTS}"),
            refused("robots-moved.test/page", "R2", "deferred"),
        ),
        "R4 MUST NOT a target that may not go in this run is not sent": (
            where(
                was_asked(f"slow.test{ROBOTS}"),
                refused("slow.test/page", "R4", "deferred"),
            )
        ),
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
        "D38 MUST NOT a redirect into a private network is not followed": never(
            _METADATA, "hop-private.test/page"
        ),
    },
)


# The main spider, and a source of each form.

_SOURCES: Final = """\
source = [
  { name = "feed", url = "http://rss.test/", feed = "http://rss.test/feed.xml" },
  { name = "index", sitemap = "http://quiet.test/index.xml" },
  { name = "children", sitemap = "http://index.test/index.xml", children = true },
  { name = "use", url = "http://use.test/page" },
  { name = "refused use", url = "http://use.test/refused/page" },
  { name = "html", url = "http://html.test/" },
]
"""
_WANTED: Final = ", children = true"
_MEMBERS: Final = frozenset(
    {
        "source",
        "title",
        "url",
        "published",
        "via",
        "canonical_url",
        "fetched_at",
        "usage",
    }
)


def _index(*urls: str) -> Route:
    entries = "".join(f"<sitemap><loc>{url}</loc></sitemap>" for url in urls)
    return Route(
        body=f"<sitemapindex>{entries}</sitemapindex>",
        content_type="application/xml",
    )


def _item_sites(token: str) -> list[Site]:
    """Two pages, and the use of one is refused; two indices, and one is to be followed."""
    lines = f"User-agent: {token}", "Allow: /", "Content-Usage: train-ai=y"
    use = "\n".join((*lines, "Content-Usage: /refused/ train-ai=n\n"))
    page = Route(body="[a page](http://use.test/a)", content_type=MARKDOWN)
    of_index = {
        "/index.xml": _index("http://elsewhere.test/second.xml", "http://index.test/deep.xml"),
        "/deep.xml": _index("http://index.test/deeper.xml"),
    }
    return [
        *(default for default in default_sites() if default.host in ("rss.test", "html.test")),
        site("use.test", use, page=page),
        Site("quiet.test", {"/index.xml": _index("http://quiet.test/first.xml")}),
        Site("index.test", of_index),
    ]


def _play_items(here: Stage) -> None:
    # walsh-research refuses a source that wants what an index lists: there none does.
    research = here.bot.identity.token.lower() == WALSH_RESEARCH.token.lower()
    here.metadata("sources.toml", _SOURCES.replace(_WANTED, "") if research else _SOURCES)


def _items(evidence: Evidence, source: str) -> list[Any]:
    return [item for item in evidence.first.items if item["source"] == source]


def _feed_alone(evidence: Evidence) -> Finding:
    """Of a source with a feed, the feed alone was requested, and gave the items."""
    paths = seen([request.path for request in evidence.first.targets("rss.test")])
    items = _items(evidence, "feed")
    holds = paths == ["/feed.xml"] and bool(items) and all(i["via"] == "feed" for i in items)
    return held_if(holds, f"{', '.join(paths)}: items={len(items)}")


def _use_said(evidence: Evidence) -> Finding:
    """The items have each statement, and its line."""
    usages = seen([item["usage"] or {} for item in _items(evidence, "use")], "no items")
    statements = {
        (statement["value"], statement.get("line"))
        for use in usages
        for statement in use.get("said", ())
    }
    return held_if(statements == {("train-ai=y", 3)}, f"said={sorted(statements, key=str)}")


def _left_out(evidence: Evidence) -> Finding:
    occasion = "/" in evidence.first.paths("html.test") and evidence.first.items
    seen(occasion, "its page was not asked, or no source gave any item")
    items = len(_items(evidence, "html"))
    return held_if(items == 0, f"items={items}")


def _metadata_only(evidence: Evidence) -> Finding:
    items = seen(evidence.first.items, "no items")
    extra = {name for item in items for name in item} - _MEMBERS
    return held_if(not extra, ", ".join(sorted(extra)) or f"items={len(items)}")


ITEMS: Final = Scene(
    name="items",
    sites=_item_sites,
    play=_play_items,
    settings={"WALSH_USAGE": {"train-ai": "refuse"}},
    table={
        "R6 MUST NOT metadata, no content, in the items": _metadata_only,
        "R9 SHOULD a feed is preferred": _feed_alone,
        "R2 SHOULD a use that robots.txt disallows, if refused": never(
            "use.test/refused/page", "use.test/page"
        ),
        "R2 SHOULD what robots.txt says about use, by line": _use_said,
        "R6 MUST NOT a sitemap index is followed only if declared so": never(
            "quiet.test/first.xml", "quiet.test/index.xml"
        ),
        "R6 MUST NOT of an index that is followed: its host, one level": every(
            never("index.test/deeper.xml", "index.test/index.xml"),
            nothing_of("elsewhere.test", "index.test/index.xml"),
        ),
        "R9 MUST NOT HTML is left out, not scraped": _left_out,
    },
)
