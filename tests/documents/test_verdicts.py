"""The verdicts of design section 5: each by name in the log, in the stats and at the spider."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from scrapy_walsh.policy.verdict import NAMES
from scrapy_walsh.proof.sandbox import Route, Sandbox, hosts
from tests.crawl.harness import RULES, Crawl, answer, crawl, make_project, site, solo

if TYPE_CHECKING:
    from collections.abc import Mapping

#: Yields, beside what is declared, one request that is not (R6).
STRAYING_SPIDER = """
import scrapy

class Probe(scrapy.Spider):
    name = "probe"

    def __init__(self, urls="", **kwargs):
        super().__init__(**kwargs)
        self.start_urls = urls.split()

    async def start(self):
        for url in self.start_urls:
            yield scrapy.Request(url, callback=self.parse, errback=self.failed)

    def parse(self, response):
        yield {"url": response.url, "status": response.status}
        if response.url.endswith("/plain"):
            yield scrapy.Request("http://words.test/stray", self.parse, errback=self.failed)

    def failed(self, failure):
        verdict = getattr(failure.value, "verdict", None)
        yield {
            "url": failure.request.url,
            "error": failure.type.__name__,
            "why": str(failure.value),
            "verdict": verdict and verdict.name,
            "document": verdict and verdict.document,
            "line": verdict and verdict.line,
        }
"""
ALLOWED: Mapping[str, str] = {
    "http://words.test/allowed/x": "allowed_explicit",
    "http://words.test/plain": "allowed_implicit",
    "http://words.test/robots.txt": "allowed_implicit",
    "http://down.test/x": "unknown_unreachable",
}
REFUSED: Mapping[str, tuple[str, str]] = {
    "http://words.test/denied/x": ("R2", "disallowed_explicit"),
    "http://www.blocked.test/x": ("R3", "blocked_operator"),
    "http://office.gov/x": ("WALSH_EXCLUDED_TLDS", "excluded_tld"),
    "http://words.test/use/x": ("WALSH_USAGE", "disallowed_usage"),
    "http://words.test/stray": ("R6", "out_of_scope"),
    "http://10.0.0.1/x": ("WALSH_PRIVATE_ADDRESSES", "private_address"),
}
#: Left to the next run: its robots.txt is packed in a way that cannot be read.
PACKED = "http://packed.test/x"
LONG = ("http://long.test/1", "http://long.test/2")
#: Asked again by the second run, too soon (R8).
SOON = "http://words.test/plain"


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Crawl, Crawl]:
    settings = {
        "WALSH_MAX_RETRIES": 0,
        "WALSH_BACKOFF_BASE": 0.01,
        "WALSH_EXCLUDED_TLDS": ["gov"],
        "WALSH_USAGE": {"train-ai": "refuse"},
    }
    project = make_project(tmp_path_factory.mktemp("verdicts"), STRAYING_SPIDER, settings)
    with Sandbox() as box:
        robots = "User-agent: *\nAllow: /allowed/\nDisallow: /denied/\n"
        inward = {"/allowed/inward": Route(302, location="http://10.0.0.1/x")}
        box.put(site("words.test", inward, f"{robots}Content-Usage: /use/ train-ai=n\n"))
        box.put(site("down.test", {}, answer(status=500)))
        box.put(site("packed.test", {}, answer(b"\x8b\x02", headers={"Content-Encoding": "br"})))
        box.put(site("long.test", {}, "User-agent: *\nCrawl-delay: 86400\n"))
        led = ("http://words.test/stray", "http://10.0.0.1/x")
        declared = (url for url in REFUSED if url not in led)
        inward_url = "http://words.test/allowed/inward"
        first = crawl(project, box, *ALLOWED, *declared, PACKED, *LONG, inward_url)
        return first, crawl(project, box, SOON)


@pytest.mark.parametrize("url", ALLOWED)
def test_what_passes_is_named_in_the_log(runs: tuple[Crawl, Crawl], url: str) -> None:
    assert runs[0].fetched(url)
    assert len(runs[0].lines(f"fetched {url} (R2 {ALLOWED[url]})")) == 1


@pytest.mark.parametrize("url", REFUSED)
def test_what_is_refused_is_named_in_the_log_and_at_the_errback(
    runs: tuple[Crawl, Crawl], url: str
) -> None:
    requirement, name = REFUSED[url]
    level = "WARNING" if name == "private_address" else "INFO"
    assert len(runs[0].lines(level, f"refused {url} ({requirement} {name})")) == 1
    (told,) = [item for item in runs[0].items if item["url"] == url]
    assert told["verdict"] == name
    assert f"{requirement} {name}" in told["why"]


def test_deferred_names_the_host_and_its_time(runs: tuple[Crawl, Crawl]) -> None:
    (refused,) = [item for item in runs[0].items if item["url"] in LONG and "error" in item]
    assert refused["verdict"] == "deferred"
    assert runs[0].lines("WARNING", f"deferred {refused['url']} (R4 deferred)", "before 20")


def test_r2_27_a_robots_txt_that_is_no_text_defers_its_host(runs: tuple[Crawl, Crawl]) -> None:
    (told,) = [item for item in runs[0].items if item["url"] == PACKED]
    assert told["verdict"] == "unknown_parse_error"
    assert runs[0].lines(f"deferred {PACKED} (R2 unknown_parse_error)")


def test_r8_2_not_due_is_a_verdict_too(runs: tuple[Crawl, Crawl]) -> None:
    assert "R8 not_due" in runs[1].why(SOON)
    assert runs[1].stats["walsh/verdict/not_due"] == 1
    assert hosts(runs[1].log) == []


def test_every_verdict_is_counted_by_its_name(runs: tuple[Crawl, Crawl]) -> None:
    counted = {
        name.removeprefix("walsh/verdict/"): count
        for name, count in runs[0].stats.items()
        if name.startswith("walsh/verdict/")
    }
    assert counted == {
        "allowed_explicit": 1,
        "allowed_implicit": 3,  # /plain, /robots.txt and the first of long.test
        "disallowed_explicit": 1,
        "unknown_unreachable": 1,
        "unknown_parse_error": 1,
        "blocked_operator": 1,
        "excluded_tld": 1,
        "disallowed_usage": 1,
        "deferred": 1,
        "out_of_scope": 1,
        "private_address": 1,
    }
    # One has a test above, and one is for a blocklist that cannot be had.
    assert {*counted, "not_due", "unknown_blocklist"} == NAMES


def test_an_excluded_suffix_is_not_counted_under_r6(runs: tuple[Crawl, Crawl]) -> None:
    counted = {name: n for name, n in runs[0].stats.items() if name.startswith("walsh/refused/")}
    assert counted == {
        "walsh/refused/R2": 1,
        "walsh/refused/R3": 1,
        "walsh/refused/R6": 1,
        "walsh/refused/WALSH_EXCLUDED_TLDS": 1,
        "walsh/refused/WALSH_PRIVATE_ADDRESSES": 1,
        "walsh/refused/WALSH_USAGE": 1,
    }


def test_a_refusal_tells_the_document_and_the_line(runs: tuple[Crawl, Crawl]) -> None:
    told = {item["url"]: item for item in runs[0].items if "error" in item}
    denied = told["http://words.test/denied/x"]
    assert (denied["document"], denied["line"]) == ("http://words.test/robots.txt", 3)
    assert told["http://www.blocked.test/x"]["document"].endswith("/blocklist.json")
    assert runs[0].lines("refused http://words.test/denied/x", "[http://words.test/robots.txt:3]")


# -- WALSH_EXCLUDED_TLDS ------------------------------------------------------------------

EXCLUDED = ["gov", "mil", "int", ".edu", "", "co.uk"]
SKIPPED = {
    "tl3": "http://example.mil/x",
    "tl9 any case": "http://EXAMPLE.GOV/x",
    "tl12 a leading dot": "http://example.edu/x",
    "the suffix itself": "http://gov/x",
    "two labels": "http://shop.co.uk/x",
    "a port": "http://example.gov:8080/x",
    "a trailing dot": "http://example.gov./x",
    "https": "https://a.b.gov/x",
}
ASKED = {
    "tl5": "example.com",
    "tl8": "example.org",
    "tl13 an entry of its own is needed": "example.gov.uk",
    "tl17 by label": "notgov",
    "by label in the middle": "gov.example.com",
    "by label at two": "xco.uk",
}


@pytest.fixture(scope="module")
def suffixes(tmp_path_factory: pytest.TempPathFactory) -> Crawl:
    return solo(
        tmp_path_factory.mktemp("tlds"),
        *SKIPPED.values(),
        *(f"http://{host}/x" for host in ASKED.values()),
        sites=tuple(site(host) for host in ASKED.values()),
        settings={"WALSH_EXCLUDED_TLDS": EXCLUDED},
    )


@pytest.mark.parametrize("name", SKIPPED)
def test_an_excluded_host_is_never_asked(suffixes: Crawl, name: str) -> None:
    host = SKIPPED[name].partition("//")[2].removesuffix("/x").rstrip(".").lower()
    assert host not in hosts(suffixes.log)
    refused = [
        item
        for item in suffixes.items
        if "WALSH_EXCLUDED_TLDS excluded_tld" in item.get("why", "")
        and item["url"].lower() == SKIPPED[name].lower()
    ]
    assert len(refused) == 1


@pytest.mark.parametrize("name", ASKED)
def test_a_host_that_only_looks_excluded_is_asked(suffixes: Crawl, name: str) -> None:
    assert suffixes.asked(ASKED[name]) == ["/robots.txt", "/x"]


# -- the five rates that SPYDER recommends ------------------------------------------------


@pytest.fixture(scope="module")
def rates(tmp_path_factory: pytest.TempPathFactory) -> dict[str, float]:
    run = solo(
        tmp_path_factory.mktemp("rates"),
        *(f"http://a.test/{path}" for path in ("1", "private/1", "2", "private/2")),
        "http://down.test/1",
        "http://down.test/2",
        "http://office.gov/",
        sites=(site("a.test", {}, RULES), site("down.test", {}, answer(status=500))),
        settings={
            "WALSH_EXCLUDED_TLDS": ["gov"],
            "WALSH_MAX_RETRIES": 0,
            "WALSH_BACKOFF_BASE": 0.01,
        },
    )
    return run.final_stats()


def test_spyder_cache_hit_rate(rates: dict[str, float]) -> None:
    # Six decisions by robots.txt, two of which had to fetch it.
    assert (rates["robots/cache_hits"], rates["robots/cache_misses"]) == (4, 2)
    assert rates["robots/cache_hit_rate"] == pytest.approx(4 / 6)


def test_spyder_permission_allow_rate(rates: dict[str, float]) -> None:
    # Of six: two allowed, two disallowed, two unknown.
    assert rates["robots/allow_rate"] == pytest.approx(2 / 6)


def test_spyder_tld_skip_rate(rates: dict[str, float]) -> None:
    assert rates["tld_skip_rate"] == pytest.approx(1 / 7)


def test_spyder_fetch_success_rate(rates: dict[str, float]) -> None:
    assert rates["robots/fetch_success_rate"] == pytest.approx(1 / 2)


def test_spyder_denials_by_host(rates: dict[str, float]) -> None:
    denied = {name: count for name, count in rates.items() if name.startswith("denied/")}
    assert denied == {"denied/host/a.test": 2, "denied/host/office.gov": 1}
