"""The decisions of two other systems that hold here too, each by name, in real crawls.

Ladon's ADR-008 (robots.txt enforcement) and SPYDER's robots.txt component. Their own choices
that the spec forbids are tested for the spec's side: enforcement is not opt-in, a robots.txt
fetch does not pass by the rate limit, and a suffix is compared without regard to case.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from scrapy_walsh.config import DEFAULTS
from scrapy_walsh.proof.sandbox import Route, Sandbox, hosts, requests
from tests.crawl.harness import OPEN, Crawl, answer, crawl, kept, make_project, site, solo, too_soon

if TYPE_CHECKING:
    from pathlib import Path


QUERY = "User-agent: *\nDisallow: /search?q=\n"


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Crawl:
    sites = (
        site("http://scheme.test", {}, "User-agent: *\nDisallow: /a\n"),
        site("https://scheme.test", {}, "User-agent: *\nDisallow: /b\n"),
        site("port.test", {}, "User-agent: *\nDisallow: /a\n"),
        site("port.test:8080", {}, "User-agent: *\nDisallow: /b\n"),
        site("query.test", {}, QUERY),
        site("slower.test", {}, "User-agent: *\nCrawl-delay: 3\n"),
        site("faster.test", {}, "User-agent: *\nCrawl-delay: 0.1\n"),
        site("denied.test", {}, "User-agent: *\nDisallow: /\nCrawl-delay: 3\n"),
        site("hang.test", {}, Route(behaviour="hang")),
        site("down.test", {}, answer(OPEN, 500)),
        site("missing.test", {}, answer(status=404)),
        site("broken.test", {}, answer("<<< nothing of: sense >>>\n" * 50)),
        site("binary.test", {}, answer("<<< nothing \x00 of: sense >>>\n" * 50)),
        site(
            "named.test", {}, "User-agent: *\nDisallow: /\n\nUser-agent: walsh-research\nAllow: /\n"
        ),
        site(
            "wild.test", {}, "User-agent: other\nAllow: /\n\nUser-agent: *\nDisallow: /private/\n"
        ),
    )
    return solo(
        tmp_path_factory.mktemp("both"),
        *(f"{scheme}://scheme.test/{path}" for scheme in ("http", "https") for path in "ab"),
        *(f"http://port.test{port}/{path}" for port in ("", ":8080") for path in "ab"),
        "http://query.test/search?q=x",
        "http://query.test/search?p=x",
        *(f"http://{host}.test/{number}" for host in ("slower", "faster") for number in range(3)),
        *(f"http://denied.test/{number}" for number in range(5)),
        *(
            f"http://{host}.test/x"
            for host in ("hang", "down", "missing", "broken", "binary", "named")
        ),
        "http://wild.test/x",
        "http://wild.test/private/x",
        sites=sites,
        settings={"DOWNLOAD_TIMEOUT": 1, "WALSH_MAX_RETRIES": 1, "WALSH_BACKOFF_BASE": 0.01},
    )


def origin_paths(run: Crawl, host: str) -> set[tuple[str, str]]:
    return {
        (each.scheme, each.path)
        for each in requests(run.log)
        if each.host.partition(":")[0] == host and each.path != "/robots.txt"
    }


def test_ladon_enforcement_needs_no_opt_in(both: Crawl) -> None:
    assert both.targets("denied.test") == []


def test_ladon_cache_key_is_scheme_and_netloc(both: Crawl) -> None:
    assert origin_paths(both, "scheme.test") == {("http", "/b"), ("https", "/a")}
    assert both.targets("port.test") == ["/b"]
    assert both.targets("port.test:8080") == ["/a"]


def test_ladon_full_url_with_query_is_judged(both: Crawl) -> None:
    assert [each.target.partition("search")[2] for each in both.requests("query.test")[1:]] == [
        "?p=x"
    ]


def test_ladon_larger_of_interval_and_crawl_delay_wins(both: Crawl) -> None:
    assert kept(both.gaps("slower.test")[1:], 3.0)
    assert kept(both.gaps("faster.test")[1:], 1.0)


def test_ladon_robots_is_judged_before_a_rate_slot_is_spent(both: Crawl) -> None:
    assert both.asked("denied.test") == ["/robots.txt"]
    refused = [
        line for line in both.lines("refused http://denied.test/") if "[scrapy_walsh]" in line
    ]
    assert len(refused) == 5
    held = both.lines("held http://denied.test/")
    assert held == []


def test_ladon_robots_fetch_follows_the_crawls_timeout(both: Crawl) -> None:
    asked = [each for each in both.requests("hang.test") if each.path == "/robots.txt"]
    assert len(asked) == 2
    for each in asked:
        assert each.completed is not None
        assert 0.9 <= each.completed - each.arrived < 3.0  # DOWNLOAD_TIMEOUT is 1


def test_ladon_unreachable_is_open_by_default_and_a_switch(both: Crawl) -> None:
    assert DEFAULTS["WALSH_ROBOTS_UNREACHABLE"] == "allow"
    for host in ("hang.test", "down.test", "broken.test"):
        assert both.targets(host) == ["/x"]
    assert len(both.lines("INFO: rejected http://down.test/robots.txt", "allow")) == 1


def test_octets_that_are_no_text_are_not_open(both: Crawl) -> None:
    """They may hide a Disallow, so the switch for unreachable files is not asked (D1)."""
    assert both.asked("binary.test") == ["/robots.txt"]
    assert "R2 unknown_parse_error" in both.why("http://binary.test/x")


def test_ladon_robots_fetch_does_not_pass_by_the_rate_limit(both: Crawl) -> None:
    assert too_soon(both.log) == []
    assert kept(both.gaps("down.test"), 1.0)


def test_ladon_one_fetch_per_origin(both: Crawl) -> None:
    assert both.robots_asked("slower.test") == both.robots_asked("denied.test") == 1


def test_spyder_memory_is_4096_files_for_24_hours(both: Crawl) -> None:
    assert DEFAULTS["WALSH_ROBOTS_CACHE_SIZE"] == 4096
    assert DEFAULTS["WALSH_ROBOTS_TTL"] == 24 * 3600
    assert both.returncode == 0


def test_spyder_a_404_allows_all(both: Crawl) -> None:
    assert both.asked("missing.test") == ["/robots.txt", "/x"]


def test_spyder_the_named_group_goes_before_the_wildcard(both: Crawl) -> None:
    assert both.asked("named.test") == ["/robots.txt", "/x"]
    assert both.targets("wild.test") == ["/x"]


def test_spyder_no_error_of_a_robots_txt_ends_a_request_without_a_word(both: Crawl) -> None:
    assert len(both.items) == 4 + 4 + 2 + 6 + 5 + 6 + 2
    assert "Traceback" not in both.output


def test_spyder_a_tld_is_skipped_before_anything_is_asked(tmp_path: Path) -> None:
    run = solo(
        tmp_path / "tld",
        "http://example.gov/",
        "http://example.GOV/upper",
        "http://notgov/x",
        sites=(site("notgov"),),
        settings={"WALSH_EXCLUDED_TLDS": ["gov", "mil", "int"]},
    )
    assert hosts(run.log) == ["operator.test", "notgov"]


def test_spyder_a_bare_host_is_asked_by_https_and_then_by_http(tmp_path: Path) -> None:
    spiders = {"SPIDER_MODULES": ["scrapy_walsh.spiders"], "WALSH_MAX_RETRIES": 0}
    project = make_project(tmp_path / "bare", settings={**spiders, "WALSH_BACKOFF_BASE": 0.01})
    with Sandbox() as box:
        box.put(replace(site("plain.test"), tls=False))
        run = crawl(project, box, "plain.test", "secure.test", spider_name="walsh_metadata")
    tried = [each.scheme for each in run.log if each.host.partition(":")[0] == "plain.test"]
    assert tried[0] == "https"
    assert {each.scheme for each in run.requests("plain.test")} == {"http"}
    assert run.targets("plain.test")[0] == "/"
    assert {each.scheme for each in run.requests("secure.test")} == {"https"}
