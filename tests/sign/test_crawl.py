"""Everything that leaves is signed, and what is signed is what was sent: by the server's log."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from scrapy.settings import default_settings

from scrapy_walsh.proof.sandbox import Route, blocklist, requests
from tests.crawl.harness import KEYS_URL, Crawl, keygen, site, solo
from tests.sign.verifier import as_sent, verify

if TYPE_CHECKING:
    from pathlib import Path

STANDALONE = Route(body=json.dumps(blocklist(inline=False)), content_type="application/json")
OPERATOR_SITE = site(
    "http://operator.test",
    {
        "/.well-known/walsh-research/blocklist.json": STANDALONE,
        "/.well-known/walsh-research/blocklist.schema.json": Route(
            body=json.dumps(blocklist()["schema"]), content_type="application/schema+json"
        ),
    },
)
#: A spider that signs by itself, badly, asks for media, posts, and goes past the scheduler.
SPIDER = """
import scrapy
from scrapy_walsh.adapters import compat

OWN = {
    "Signature": "sig=:AAAA:", "Signature-Input": 'sig=("@path");tag="web-bot-auth"',
    "Signature-Agent": '"https://other.test"', "Signature_Agent": 'x="https://other.test"',
}

class Probe(scrapy.Spider):
    name = "probe"

    def __init__(self, urls="", **kwargs):
        super().__init__(**kwargs)
        self.urls = urls.split()

    async def start(self):
        for url in self.urls:
            yield scrapy.Request(url, headers=OWN, errback=self.failed)
        yield scrapy.Request("http://post.test/in", method="POST", body=b"a=1", callback=self.more)

    def parse(self, response):
        own = [name for name in OWN if name in response.request.headers]
        yield {"url": response.url, "status": response.status, "kept": own}

    async def more(self, response):
        await compat.download(self.crawler, scrapy.Request("http://past.test/x"))
        yield {"image_urls": ["http://media.test/one.png"]}

    def failed(self, failure):
        yield {"url": failure.request.url, "error": failure.type.__name__}
"""
#: URLs whose parts are written in other ways than they are sent.
WRITTEN = (
    "http://Case.test:80/A%2fb?x=1#part",
    "http://empty.test",
    "http://empty.test?q",
    "http://odd.test//two//slashes/../up",
    "http://odd.test/a|b[1]{x}",
    "http://odd.test/\u00fc;p=1?\u00fc",
    "http://semi.test/;",
    "http://semi.test/x;?q",
    "https://secure.test/;",
    "http://port.test:8080/x",
    "http://dot.test./x",
    "http://m\u00fcnchen.test/x",
    "https://secure.test:443/x",
)


#: What each signature covers.
COVERED = ['"@authority"', '"signature-agent";key="sig"', '"@method"', '"@path"']


def check_all(run: Crawl, keys: list[dict[str, Any]]) -> int:
    """Verify each request of *run* by the second implementation; how many there were."""
    found = requests(run.log)
    for each in found:
        told = verify(as_sent(each), keys, now=each.wall)
        assert told["covered"] == COVERED
        assert told["directory"] == KEYS_URL
        assert told["expires"] - told["created"] == 300
        assert set(told) == {"created", "expires", "keyid", "tag", "covered", "directory"}
    return len(found)


class Signed(NamedTuple):
    run: Crawl
    keys: list[dict[str, Any]]
    project: Path


#: Scrapy's handlers read and send a URL each in its own way.
REACTORS: dict[str, dict[str, Any]] = {
    "Twisted": {},
    **(
        {"aiohttp": {"TWISTED_REACTOR_ENABLED": False}}
        if hasattr(default_settings, "TWISTED_REACTOR_ENABLED")
        else {}
    ),
}


@pytest.fixture(scope="module", params=REACTORS)
def signed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Signed:
    folder = tmp_path_factory.mktemp("signed")
    settings, keys = keygen(folder / "keys")
    project = folder / "project"
    run = solo(
        project,
        "http://path.test/public",
        "http://redirect.test/other",
        "http://flaky.test/feed.xml",
        "http://broken.test/reset",
        "http://moved.test/x",
        *WRITTEN,
        sites=(
            OPERATOR_SITE,
            site("moved.test", robots=Route(302, location="/robots2.txt")),
            *(site(f"{name}.test") for name in ("post", "past", "media")),
        ),
        spider=SPIDER,
        settings={
            **settings,
            "WALSH_MAX_RETRIES": 2,
            "WALSH_BACKOFF_BASE": 0.01,
            "WALSH_FOLLOW_LINKS": True,
            "WALSH_TAG_REQUESTS": True,
            "WALSH_IMPL": "org/repo@afd2c01",
            "ITEM_PIPELINES": {"scrapy.pipelines.images.ImagesPipeline": 1},
            "IMAGES_STORE": str(folder / "images"),
            **REACTORS[request.param],
        },
    )
    return Signed(run, keys, project)


def test_every_request_of_every_kind_is_signed_as_it_was_sent(signed: Signed) -> None:
    run = signed.run
    assert check_all(run, signed.keys) > 30
    asked = {(each.scheme, each.method, each.host, each.path) for each in requests(run.log)}
    for kind in (
        ("http", "GET", "operator.test", "/.well-known/walsh-research/blocklist.json"),
        ("http", "GET", "operator.test", "/.well-known/walsh-research/blocklist.schema.json"),
        ("http", "GET", "path.test", "/robots.txt"),
        ("http", "GET", "redirect.test", "/other"),
        ("http", "GET", "moved.test", "/robots2.txt"),
        ("http", "POST", "post.test", "/in"),
        ("http", "GET", "past.test", "/x"),
        ("http", "GET", "media.test", "/one.png"),
        ("https", "GET", "secure.test", "/x"),
        ("http", "GET", "broken.test", "/reset"),
    ):
        assert kind in asked
    assert [each for each in requests(run.log) if "impl=" in each.target]


def test_each_retry_and_hop_has_a_signature_of_its_own(signed: Signed) -> None:
    lines = [tuple(each.values("Signature")) for each in requests(signed.run.log)]
    assert len(set(lines)) == len(lines)
    assert signed.run.asked("broken.test").count("/reset") == 3


def test_a_spiders_own_signature_is_overridden_with_one_warning_for_each_field(
    signed: Signed,
) -> None:
    for name in ("Signature", "Signature-Input", "Signature-Agent", "Signature_Agent"):
        assert len(signed.run.lines("WARNING", f"the header {name} of http:", "is not sent")) == 1
    assert all(each.values("Signature_Agent") == [] for each in signed.run.log)


def test_the_request_that_a_spider_gets_back_has_no_signature(signed: Signed) -> None:
    assert [each["kept"] for each in signed.run.items if "kept" in each]
    assert not any(each.get("kept") for each in signed.run.items)


def test_a_crawl_of_many_hosts_is_signed_to_its_last_request(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    folder = tmp_path_factory.mktemp("many")
    settings, keys = keygen(folder / "keys")
    urls = [f"http://h{number}.test/{number}?q={number}" for number in range(80)]
    run = solo(folder / "project", *urls, settings=settings)
    assert check_all(run, keys) > 160
