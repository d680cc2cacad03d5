"""R3: which hosts the operator's list blocks; what becomes of a document: ``tests/documents``."""

from __future__ import annotations

import pytest

from scrapy_walsh.policy.identity import WALSH_RESEARCH
from scrapy_walsh.proof.sandbox import Route, hosts
from tests.crawl.harness import LIST, Crawl, listing, site, solo


def test_r5c_1_the_canonical_urls_are_the_default() -> None:
    base = "https://wal.sh/.well-known/walsh-research"
    assert WALSH_RESEARCH.blocklist_url == f"{base}/blocklist.json"
    assert WALSH_RESEARCH.schema_url == f"{base}/blocklist.schema.json"
    assert WALSH_RESEARCH.policy_url == "https://wal.sh/bot/"


BLOCKED = {
    "the apex": "http://example.com/",
    "a subdomain": "http://a.b.example.com/",
    "any case": "http://WWW.Example.COM/",
    "any port": "http://example.com:8080/",
    "https": "https://www.example.com/",
    "a trailing dot": "http://example.com./",
    "user information": "http://user:word@example.com/",
    "an entry with a star": "http://a.starred.test/",
    "an entry that is a URL": "http://spelt.test/",
    "an address": "http://192.0.2.7:8080/",
    "an address in another notation": "http://3221225991/",
}
OPEN_HOSTS = ("notexample.com", "example.com.evil.test", "test", "192.0.2.70")


@pytest.fixture(scope="module")
def hosts_crawl(tmp_path_factory: pytest.TempPathFactory) -> Crawl:
    operator = site(
        "operator.test",
        {LIST: listing("Example.com", "*.starred.test", "https://spelt.test/path", "192.0.2.7")},
    )
    redirects = site(
        "hop.test",
        {"/a": Route(302, location="http://www.example.com/x")},
    )
    robots = site("rules.test", robots=Route(302, location="http://www.example.com/robots.txt"))
    return solo(
        tmp_path_factory.mktemp("hosts"),
        *BLOCKED.values(),
        *(f"http://{host}/open" for host in OPEN_HOSTS),
        "http://hop.test/a",
        "http://rules.test/a",
        sites=(operator, redirects, robots, *(site(host) for host in OPEN_HOSTS)),
    )


@pytest.mark.parametrize("form", BLOCKED)
def test_r3_2_and_r3_3_every_form_of_a_listed_host_is_skipped(
    hosts_crawl: Crawl, form: str
) -> None:
    refused = [item for item in hosts_crawl.items if "R3 blocked_operator" in item.get("why", "")]
    assert BLOCKED[form].rpartition("//")[2].rpartition("@")[2].lower() in " ".join(
        item["url"].lower() for item in refused
    )


def test_r3_2_any_request_at_all_also_hops_and_robots_txt(hosts_crawl: Crawl) -> None:
    reached = {"operator.test", "hop.test", "rules.test", *OPEN_HOSTS}
    assert set(hosts(hosts_crawl.log)) == reached


def test_r3_2_what_only_looks_like_a_listed_host_is_fetched(hosts_crawl: Crawl) -> None:
    for host in OPEN_HOSTS:
        assert hosts_crawl.asked(host) == ["/robots.txt", "/open"]
