"""R2: robots.txt as a document. Every host of a crawl has a server with a habit of its own."""

from __future__ import annotations

import gzip
import zlib
from typing import TYPE_CHECKING, Any

import pytest
from scrapy.settings import default_settings

from scrapy_walsh.proof.sandbox import Route, Sandbox, Site, hosts, max_in_flight, user_agents
from tests.crawl.harness import (
    LIST_SPIDER,
    OPEN,
    RULES,
    USER_AGENT,
    Crawl,
    age_document,
    answer,
    closed_port,
    crawl,
    kept,
    make_project,
    site,
    solo,
    too_soon,
)

if TYPE_CHECKING:
    from pathlib import Path

RETRY_ONCE: dict[str, Any] = {"WALSH_MAX_RETRIES": 1, "WALSH_BACKOFF_BASE": 0.01}
PACKED = gzip.compress(RULES.encode())
PADDING = "# padding\n" * 60_000
#: Reaches ports of this machine without the sandbox, which is the proxy for all else.
DIRECT_SPIDER = f'import os\n\nos.environ["no_proxy"] = "127.0.0.1"\n{LIST_SPIDER}'


def hop(location: str, status: int = 302) -> Route:
    return Route(status, location=location)


def packed(body: bytes, encoding: str, status: int = 200) -> Route:
    return answer(body, status, headers={"Content-Encoding": encoding})


#: The rules in the answer are in force: /private/ is refused, all else is fetched.
PARSED = {
    "200.test": answer(),
    "203.test": answer(status=203),
    "octets.test": answer(content_type="application/octet-stream"),
    "image.test": answer(content_type="image/png"),
    "typed-html.test": answer(content_type="text/html"),
    "untyped.test": answer(content_type=None),
    "gzip.test": packed(PACKED, "gzip"),
    "two-members.test": packed(gzip.compress(b"# one\n") + PACKED, "gzip"),
    "x-gzip.test": packed(PACKED, "X-GZIP"),
    "zlib.test": packed(zlib.compress(RULES.encode()), "deflate"),
    "bomb.test": lambda _: packed(gzip.compress(RULES.encode() + bytes(64 << 20), 1), "gzip"),
    "endless.test": answer(behaviour="endless", pause=0.001),
    "2gib.test": answer(behaviour="endless", pause=0.001, headers={"Content-Length": str(2**31)}),
    "long.test": answer(RULES + PADDING),
    "moved-301.test": hop("/elsewhere", 301),
    "moved-302.test": hop("elsewhere", 302),
    "moved-303.test": hop("/elsewhere", 303),
    "moved-307.test": hop("/elsewhere#part", 307),
    "moved-308.test": hop("http://moved-308.test/elsewhere", 308),
    "five-hops.test": hop("/hop/4"),
    "other-host.test": hop("http://rules.test/robots.txt"),
    "other-host-too.test": hop("http://rules.test/robots.txt"),
    "to-https.test": hop("https://to-https.test/robots.txt"),
    "to-port.test": hop("http://to-port.test:8080/robots.txt"),
    "500-once.test": Route(sequence=(answer(OPEN, 500), answer())),
    "503-once.test": Route(sequence=(answer(OPEN, 503, headers={"Retry-After": "2"}), answer())),
    "429-once.test": Route(sequence=(answer(OPEN, 429), answer())),
    "reset-once.test": Route(sequence=(Route(behaviour="reset"), answer())),
    "cut-off-once.test": Route(sequence=(answer(OPEN, behaviour="truncate"), answer())),
}
#: No rules: a plain answer that there are none. Bodies here are never to be read.
NO_RULES = {
    "204.test": answer(status=204),
    "400.test": answer(status=400),
    "401.test": answer(status=401),
    "403.test": answer(status=403),
    "404.test": answer(status=404),
    "410.test": answer(status=410),
    "451.test": answer(status=451),
    "404-brotli.test": packed(b"\x8b\x02\x80", "br", 404),
    "html.test": Route(body="<html><body><p>Disallow: nothing</p></body></html>"),
    "empty.test": answer(""),
}
#: Unreachable to the end, so the target is fetched by WALSH_ROBOTS_UNREACHABLE = "allow".
UNREACHABLE = {
    "500.test": answer(status=500),
    "502.test": answer(status=502),
    "503.test": answer(status=503),
    "599.test": answer(status=599),
    "hang.test": Route(behaviour="hang"),
    "close.test": Route(behaviour="close"),
    "reset.test": Route(behaviour="reset"),
    "cut-off.test": answer(behaviour="truncate"),
    "2gib-cut-off.test": answer(behaviour="truncate", headers={"Content-Length": str(2**31)}),
}
#: Redirects that lead nowhere: not retried, and unreachable too.
NOWHERE = {
    "300.test": hop("/elsewhere", 300),
    "no-location.test": Route(302),
    "loop.test": hop("/robots.txt"),
    "six-hops.test": hop("/hop/5"),
    "to-ftp.test": hop("ftp://rules.test/robots.txt"),
    "to-file.test": hop("file:///etc/hostname"),
    "to-bad-host.test": hop("http://[bad/robots.txt"),
    "to-bad-port.test": hop("http://rules.test:99999/robots.txt"),
    "to-no-host.test": hop("http:///robots.txt"),
}
#: Redirects that may not be followed: no permission, and not unreachable either (D37; until
#: 2026-11-27 it was that).
REFUSED = {
    "to-blocked.test": hop("http://www.blocked.test/robots.txt"),
    "to-blocked-later.test": hop("/to-blocked"),
    "to-excluded.test": hop("http://office.gov/robots.txt"),
}
#: What a plain request cannot have: another question was answered, and the host is left alone.
UNASKED = {"304.test": Route(304), "206.test": answer(OPEN, 206)}
#: A packing that nobody asked for, and that does not open: nothing is known, nothing is fetched.
UNREADABLE = {
    "brotli.test": packed(b"\x8b\x02\x80", "br"),
    "not-gzip.test": packed(RULES.encode(), "gzip"),
    "cut-gzip.test": packed(PACKED[:-20], "gzip"),
    "twice.test": packed(gzip.compress(PACKED), "gzip, gzip"),
}
HABITS = PARSED | NO_RULES | UNREACHABLE | NOWHERE | REFUSED | UNASKED | UNREADABLE
MORE = {
    "/elsewhere": answer(),
    "/to-blocked": hop("http://blocked.test/robots.txt"),
    "/hop/0": answer(),
    **{f"/hop/{left}": hop(f"/hop/{left - 1}") for left in range(1, 6)},
}


@pytest.fixture(scope="module")
def habits(tmp_path_factory: pytest.TempPathFactory) -> Crawl:
    sites = [site(host, MORE, route) for host, route in HABITS.items()]
    sites += [
        site("429.test", {}, answer(OPEN, 429)),
        site("rules.test", {}, RULES),
        site("to-port.test:8080", {}, RULES),
        site("https://to-https.test", {}, RULES),
        Site("plain.test", tls=False),
    ]
    paths = [f"http://{each.host}/{path}" for each in sites[:-3] for path in ("open", "private/x")]
    with closed_port() as port:
        return solo(
            tmp_path_factory.mktemp("habits"),
            *paths,
            "https://plain.test/open",
            f"http://127.0.0.1:{port}/open",
            sites=tuple(sites),
            spider=DIRECT_SPIDER,
            settings={
                **RETRY_ONCE,
                "DOWNLOAD_TIMEOUT": 2,
                "WALSH_EXCLUDED_TLDS": ["gov"],
            },
            timeout=120,
        )


@pytest.mark.parametrize("host", PARSED)
def test_r2_5_the_rules_that_were_served_are_in_force(habits: Crawl, host: str) -> None:
    assert habits.fetched(f"http://{host}/open"), habits.why(f"http://{host}/open")
    assert "disallowed_explicit" in habits.why(f"http://{host}/private/x")
    assert "/private/x" not in habits.asked(host)


@pytest.mark.parametrize("host", NO_RULES)
def test_r2_6_no_rules_is_an_answer_and_all_is_allowed(habits: Crawl, host: str) -> None:
    assert habits.robots_asked(host) == 1
    assert sorted(habits.targets(host)) == ["/open", "/private/x"]


@pytest.mark.parametrize("host", [*UNREACHABLE, *NOWHERE])
def test_r2_7_unreachable_is_open_and_said(habits: Crawl, host: str) -> None:
    assert "/open" in habits.targets(host)
    assert "/private/x" in habits.targets(host), "a body that is none was parsed"
    assert habits.lines(f"rejected http://{host}/robots.txt", "unreachable")
    assert habits.lines("fetched", f"http://{host}/open", "unknown_unreachable")


@pytest.mark.parametrize("host", REFUSED)
def test_r2_a_redirect_that_is_refused_defers_the_targets(habits: Crawl, host: str) -> None:
    assert habits.targets(host) in ([], ["/to-blocked"])
    for path in ("open", "private/x"):
        assert "R2 deferred" in habits.why(f"http://{host}/{path}")
    assert habits.lines(f"rejected http://{host}/robots.txt", "which is refused")


@pytest.mark.parametrize("host", UNREACHABLE)
def test_r5_1_unreachable_is_said_after_the_retries_only(habits: Crawl, host: str) -> None:
    assert habits.robots_asked(host) == 2
    assert habits.lines("retried", f"http://{host}/robots.txt")


@pytest.mark.parametrize("host", UNREADABLE)
def test_what_cannot_be_unpacked_defers_the_host_and_says_so(habits: Crawl, host: str) -> None:
    assert habits.asked(host) == ["/robots.txt"]
    assert "unknown_parse_error" in habits.why(f"http://{host}/open")
    assert len(habits.lines(f"INFO: rejected http://{host}/robots.txt")) == 1


@pytest.mark.parametrize("host", UNASKED)
def test_an_answer_to_another_question_leaves_the_host_for_a_later_run(
    habits: Crawl, host: str
) -> None:
    assert habits.asked(host) == ["/robots.txt"]
    assert "deferred" in habits.why(f"http://{host}/open")


def test_r2_7_a_closed_port_is_unreachable(habits: Crawl) -> None:
    assert habits.lines("rejected http://127.0.0.1:", "/robots.txt", "unreachable")
    assert "did not answer 2 times" in habits.why("http://127.0.0.1:"), "no page to give (D13)"


def test_r2_7_a_host_that_does_not_speak_tls_is_unreachable(habits: Crawl) -> None:
    assert habits.lines("rejected https://plain.test/robots.txt", "unreachable")
    assert "GaveUp" in habits.why("https://plain.test/open")


def test_d7_a_429_to_the_end_leaves_the_host_and_is_never_no_rules(habits: Crawl) -> None:
    assert habits.asked("429.test") == ["/robots.txt"] * 2
    for path in ("open", "private/x"):
        assert "deferred" in habits.why(f"http://429.test/{path}")
    assert len(habits.lines("INFO: rejected http://429.test/robots.txt", "429")) == 1


@pytest.mark.parametrize("host", ["loop.test", "six-hops.test"])
def test_no_more_than_five_hops(habits: Crawl, host: str) -> None:
    asked = habits.asked(host)
    assert asked.index("/open") == 6
    assert "/hop/0" not in asked


def test_r3_2_no_hop_of_a_robots_txt_reaches_a_blocked_or_excluded_host(habits: Crawl) -> None:
    reached = set(hosts(habits.log))
    assert not {"blocked.test", "www.blocked.test", "office.gov"} & reached
    assert habits.asked("to-blocked-later.test")[:2] == ["/robots.txt", "/to-blocked"]


def test_r5_3_retry_after_is_waited_out_before_robots_txt_is_asked_again(habits: Crawl) -> None:
    assert kept(habits.gaps("503-once.test")[:1], 2.0)


def test_r4_2_hops_and_retries_of_robots_txt_are_spaced(habits: Crawl) -> None:
    # T1's exemption is for one plain first robots.txt; these had a second request for it.
    for host in ("moved-301.test", "five-hops.test", "500-once.test", "reset-once.test"):
        assert kept(habits.gaps(host), 1.0), host


def test_r4_2_the_host_that_rules_come_from_is_spaced_like_any_other(habits: Crawl) -> None:
    assert habits.robots_asked("rules.test") >= 3
    assert kept(habits.gaps("rules.test")[1:], 1.0)


def test_r4_2_no_host_is_asked_more_often_than_once_a_second(habits: Crawl) -> None:
    assert too_soon(habits.log) == []


def test_r4_1_one_request_at_a_time_also_where_a_body_is_left_unread(habits: Crawl) -> None:
    assert max_in_flight(habits.log) == 1


def test_r1_1_robots_txt_is_asked_under_the_exact_name_and_unpacked(habits: Crawl) -> None:
    assert user_agents(habits.log) == {USER_AGENT}
    asked = [each for each in habits.log if each.path == "/robots.txt"]
    assert {tuple(each.values("Accept-Encoding")) for each in asked} == {("identity",)}


def test_nothing_that_a_server_sends_ends_in_a_traceback(habits: Crawl) -> None:
    assert habits.returncode == 0
    assert "Traceback" not in habits.output
    assert len(habits.items) == 2 * (len(HABITS) + 2) + 2, "a request ended without a word"


# -- settings that are the project's business with its pages, not with robots.txt ----------


@pytest.fixture(scope="module")
def careless(tmp_path_factory: pytest.TempPathFactory) -> Crawl:
    cut_off = Route(sequence=(answer(OPEN, behaviour="truncate"), answer()))
    late_rules = answer(PADDING[:5000] + RULES)
    return solo(
        tmp_path_factory.mktemp("careless"),
        *(f"http://{host}.test/private/x" for host in ("cut-off", "long", "gzip")),
        sites=(
            site("cut-off.test", {}, cut_off),
            site("long.test", {}, late_rules),
            site("gzip.test", {}, packed(PACKED, "gzip")),
        ),
        settings={
            **RETRY_ONCE,
            "DOWNLOAD_FAIL_ON_DATALOSS": False,
            "DOWNLOAD_MAXSIZE": 1000,
            "COMPRESSION_ENABLED": False,
        },
    )


@pytest.mark.parametrize("host", ["cut-off.test", "long.test", "gzip.test"])
def test_r2_5_no_setting_for_pages_shortens_a_robots_txt(careless: Crawl, host: str) -> None:
    assert careless.targets(host) == []
    assert "disallowed_explicit" in careless.why(f"http://{host}/private/x")


# -- WALSH_ROBOTS_UNREACHABLE, and what comes after ---------------------------------------

DOWN = {"500.test": answer(OPEN, 500), "hang.test": Route(behaviour="hang")}


class Position:
    """A first run while robots.txt cannot be had, a second when it can."""

    def __init__(self, name: str, project: Path) -> None:
        self.name = name
        settings = {
            "WALSH_ROBOTS_UNREACHABLE": name,
            "WALSH_MAX_RETRIES": 0,
            "WALSH_BACKOFF_BASE": 0.01,
            "DOWNLOAD_TIMEOUT": 1,
        }
        make_project(project, DIRECT_SPIDER, settings)
        with Sandbox() as box, closed_port() as port:
            for host, route in DOWN.items():
                box.put(site(host, {}, route))
            self.closed = f"http://127.0.0.1:{port}/x"
            first = [f"http://{host}/x" for host in DOWN]
            self.down = crawl(project, box, *first, self.closed)
            for host in DOWN:
                box.put(site(host, {}, RULES))
            again = [f"http://{host}/{path}" for host in DOWN for path in ("y", "private/y")]
            self.recovered = crawl(project, box, *again)


@pytest.fixture(scope="module", params=["allow", "defer", "deny"])
def position(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Position:
    return Position(request.param, tmp_path_factory.mktemp(request.param))


@pytest.mark.parametrize("host", DOWN)
def test_r2_8_a_500_and_a_timeout_go_by_the_position(position: Position, host: str) -> None:
    run, url = position.down, f"http://{host}/x"
    if position.name == "allow":
        assert run.asked(host) == ["/robots.txt", "/x"]
        assert run.fetched(url)
    else:
        assert run.asked(host) == ["/robots.txt"]
        assert "unknown_unreachable" in run.why(url)
    assert position.name in run.lines(f"rejected http://{host}/robots.txt")[0]


def test_r2_8_a_closed_port_goes_by_the_position(position: Position) -> None:
    why = position.down.why(position.closed)
    # Under allow, no target is requested without a TCP connection (D13).
    assert ("did not answer" if position.name == "allow" else "unknown_unreachable") in why
    assert position.down.lines("rejected", position.closed[:-2], "unreachable")


def test_r2_8_deferred_is_listed_at_the_end_as_such(position: Position) -> None:
    listed = position.down.lines("deferred http://500.test/x")
    assert bool(listed) is (position.name == "defer")
    expected = {"allow": 1, "defer": 3}.get(position.name, 0)  # the closed port, by D13
    assert position.down.stats.get("walsh/deferred", 0) == expected


@pytest.mark.parametrize("host", DOWN)
def test_r2_9_after_recovery_the_next_run_fetches(position: Position, host: str) -> None:
    assert position.recovered.asked(host) == ["/robots.txt", "/y"]
    assert position.recovered.fetched(f"http://{host}/y")
    assert "disallowed_explicit" in position.recovered.why(f"http://{host}/private/y")


# -- the time that a robots.txt is kept ---------------------------------------------------

STALE = {
    "still-200.test": answer("User-agent: *\nDisallow: /open2\n"),
    "now-500.test": answer(OPEN, 500),
    "now-hang.test": Route(behaviour="hang"),
    "now-blocked.test": hop("http://blocked.test/robots.txt"),
    "now-404.test": answer(status=404),
    "now-429.test": answer(OPEN, 429),
    "clock.test": answer("User-agent: *\nDisallow: /open2\n"),
    "fresh.test": answer("User-agent: *\nDisallow: /open2\n"),
}


class Ages:
    """Three runs: the files are held, most of them grow stale, one is then asked too soon."""

    def __init__(self, project: Path) -> None:
        settings = {**RETRY_ONCE, "DOWNLOAD_TIMEOUT": 1}
        make_project(project, settings=settings)
        with Sandbox() as box:
            for host in STALE:
                box.put(site(host, {}, RULES))
            self.first = crawl(project, box, *(f"http://{host}/open1" for host in STALE))
            for host, route in STALE.items():
                seconds = {"clock.test": -90_000, "fresh.test": 86_000}.get(host, 90_000)
                age_document(project, "robots", f"http://{host}", seconds)
                box.put(site(host, {}, route))
            asked = [f"http://{host}/{path}" for host in STALE for path in ("open2", "private/x")]
            self.second = crawl(project, box, *asked)
            self.third = crawl(project, box, "http://now-429.test/open3", "http://200.test/open")


@pytest.fixture(scope="module")
def ages(tmp_path_factory: pytest.TempPathFactory) -> Ages:
    return Ages(tmp_path_factory.mktemp("ages"))


def test_r2_3_within_its_time_no_run_asks_again(ages: Ages) -> None:
    assert ages.first.asked("fresh.test") == ["/robots.txt", "/open1"]
    assert ages.second.asked("fresh.test") == ["/open2"]
    assert "disallowed_explicit" in ages.second.why("http://fresh.test/private/x")


@pytest.mark.parametrize("host", ["still-200.test", "clock.test"])
def test_r2_31_and_r12_1_a_stale_file_is_asked_for_before_any_target(ages: Ages, host: str) -> None:
    # clock.test: held since a time that has yet to come, which is stale too (D9).
    assert ages.second.asked(host) == ["/robots.txt", "/private/x"]
    assert "disallowed_explicit" in ages.second.why(f"http://{host}/open2")


def test_t1_a_refresh_is_spaced_like_any_request(ages: Ages) -> None:
    assert too_soon(ages.second.log, exempt=False) == []


def test_a_refresh_that_answers_5xx_is_not_retried_where_rules_are_known(ages: Ages) -> None:
    assert ages.second.robots_asked("now-500.test") == 1


@pytest.mark.parametrize("host", ["now-500.test", "now-hang.test", "now-blocked.test"])
def test_t6_the_last_known_rules_outlive_a_failed_refresh(ages: Ages, host: str) -> None:
    assert ages.second.robots_asked(host) > 0
    assert "disallowed_explicit" in ages.second.why(f"http://{host}/private/x")
    assert ages.second.fetched(f"http://{host}/open2")
    assert ages.second.lines(f"rejected http://{host}/robots.txt", "stay in force")
    assert "blocked.test" not in hosts(ages.second.log)


def test_r2_6_a_404_at_a_refresh_lifts_the_rules(ages: Ages) -> None:
    assert sorted(ages.second.targets("now-404.test")) == ["/open2", "/private/x"]


def test_d7_and_d8_a_429_at_a_refresh_holds_the_host_across_runs(ages: Ages) -> None:
    assert ages.second.asked("now-429.test") == ["/robots.txt"] * 2
    assert ages.second.lines("WARNING", "deferred http://now-429.test/open2", "not be requested")
    assert ages.third.asked("now-429.test") == [], "asked before the time that was announced"
    assert "deferred" in ages.third.why("http://now-429.test/open3")


# -- WALSH_ROBOTS_CACHE_SIZE --------------------------------------------------------------


@pytest.fixture(scope="module")
def small_cache(tmp_path_factory: pytest.TempPathFactory) -> Crawl:
    names = [f"held-{letter}.test" for letter in "abc"]
    down = [f"down-{letter}.test" for letter in "abc"]
    sites = [*(site(host) for host in names), *(site(host, {}, answer("", 500)) for host in down)]
    return solo(
        tmp_path_factory.mktemp("cache"),
        *(f"http://{host}/{number}" for number in range(3) for host in (*names, *down)),
        sites=tuple(sites),
        settings={"WALSH_ROBOTS_CACHE_SIZE": 1, "WALSH_MAX_RETRIES": 0, "WALSH_BACKOFF_BASE": 0.01},
    )


@pytest.mark.parametrize("letter", "abc")
def test_what_the_memory_drops_the_store_still_holds(small_cache: Crawl, letter: str) -> None:
    assert small_cache.robots_asked(f"held-{letter}.test") == 1
    assert len(small_cache.targets(f"held-{letter}.test")) == 3
    assert small_cache.final_stats()["robots/cached"] == 1


@pytest.mark.parametrize("letter", "abc")
def test_a_full_memory_does_not_ask_a_broken_host_again(small_cache: Crawl, letter: str) -> None:
    assert small_cache.robots_asked(f"down-{letter}.test") == 1
    assert len(small_cache.targets(f"down-{letter}.test")) == 3


# -- TLS and time-out are the crawl's -----------------------------------------------------

VERIFY: dict[str, Any] = (
    {"DOWNLOAD_VERIFY_CERTIFICATES": True}
    if hasattr(default_settings, "DOWNLOAD_VERIFY_CERTIFICATES")
    else {
        "DOWNLOADER_CLIENTCONTEXTFACTORY": (
            "scrapy.core.downloader.contextfactory.BrowserLikeContextFactory"
        )
    }
)


@pytest.mark.parametrize("verify", [False, True])
def test_r2_1_a_self_signed_host_is_read_exactly_when_the_crawl_reads_it(
    tmp_path: Path, verify: bool
) -> None:
    run = solo(
        tmp_path / "tls",
        "https://signed.test/open",
        "https://signed.test/private/x",
        sites=(site("signed.test", {}, RULES),),
        settings={
            "WALSH_MAX_RETRIES": 0,
            "WALSH_BACKOFF_BASE": 0.01,
            **(VERIFY if verify else {}),
        },
    )
    assert run.asked("signed.test") == ([] if verify else ["/robots.txt", "/open"])
    told = run.why(f"https://signed.test/{'open' if verify else 'private/x'}")
    assert ("GaveUp" if verify else "disallowed_explicit") in told
    assert bool(run.lines("rejected https://signed.test/robots.txt", "unreachable")) is verify


PAST_ITS_TIME = """
import asyncio
import scrapy
from scrapy.utils.defer import maybe_deferred_to_future

class Probe(scrapy.Spider):
    name = "probe"

    async def start(self):
        also = ["http://stale.test/a", "http://stale.test/b"]
        yield scrapy.Request("http://path.test/public", meta={"walsh_also": also})

    def ask(self, url):
        engine = self.crawler.engine
        if hasattr(engine, "download_async"):
            return engine.download_async(scrapy.Request(url))
        return maybe_deferred_to_future(engine.download(scrapy.Request(url)))

    async def parse(self, response):
        await asyncio.gather(*map(self.ask, response.request.meta["walsh_also"]))
"""


def test_r12_1_rules_that_go_stale_at_the_wire_are_asked_for_again_first(tmp_path: Path) -> None:
    run = solo(
        tmp_path / "stale",
        sites=(site("stale.test", {"/a": Route(delay=3.0), "/b": Route(delay=3.0)}),),
        spider=PAST_ITS_TIME,
        settings={"WALSH_ROBOTS_TTL": 2.5},
    )
    first, last = sorted(run.targets("stale.test"))
    assert (first, last) == ("/a", "/b")
    assert [path == "/robots.txt" for path in run.asked("stale.test")] == [True, False] * 2
    assert kept(run.gaps("stale.test")[1:], 1.0)


def test_a_short_ttl_does_not_ask_for_rules_alone(tmp_path: Path) -> None:
    """A host whose Crawl-delay is longer than the TTL would never be asked for a target."""
    run = solo(
        tmp_path / "short",
        *(f"http://short.test/{page}" for page in range(3)),
        sites=(site("short.test", robots="User-agent: *\nCrawl-delay: 2\n"),),
        settings={"WALSH_ROBOTS_TTL": 0.5},
    )
    assert sorted(run.targets("short.test")) == ["/0", "/1", "/2"]
    assert run.asked("short.test").count("/robots.txt") <= 3
    assert kept(run.gaps("short.test")[1:], 2.0)
