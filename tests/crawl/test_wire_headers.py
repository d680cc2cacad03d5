"""What a spider may not put on the wire, what is repeated, through whom, and by which handler."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from scrapy.settings import default_settings

from scrapy_walsh.proof.sandbox import Route
from tests.crawl.harness import (
    LIST_SPIDER,
    USER_AGENT,
    Crawl,
    make_project,
    run_scrapy,
    site,
    solo,
    state_dir,
    verify,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from scrapy_walsh.proof.sandbox import Sandbox

HEADERS = {
    "Transfer-Encoding": "chunked",
    "Content-Length": "3",
    "Connection": "keep-alive, X-Kept",
    "Keep-Alive": "timeout=600",
    "Host": "other.test",
    "Proxy-Connection": "keep-alive",
    "X-Forwarded-For": "192.0.2.1",
    "X_Forwarded_For": "192.0.2.1",
    "X-Forwarded-Host": "other.test",
    "Forwarded": "for=192.0.2.1",
    "Via": "1.1 other.test",
    "X-Real-Ip": "192.0.2.1",
    "From": "googlebot(at)googlebot.com",
    "Sec-Ch-Ua": '"Chromium";v="130"',
    "X-Original-User-Agent": "Mozilla/5.0 (X11)",
    "User_Agent": "Mozilla/5.0 (X11)",
    "Te": "trailers",
    "Upgrade": "h2c",
    "Cookie": "session=1",
    "Expect": "100-continue",
}
SPIDER = f"""
import scrapy

class Probe(scrapy.Spider):
    name = "probe"

    def __init__(self, urls="", **kwargs):
        super().__init__(**kwargs)
        self.urls = urls.split()

    async def start(self):
        for url in self.urls:
            own = {{"X-Kept": "1", "Proxy-Authorization": "Basic me", "User-Agent": "Other/1.0"}}
            yield scrapy.Request(
                url, headers={HEADERS!r} | own, cookies={{"own": "1"}}, errback=self.failed
            )

    def parse(self, response):
        yield {{"url": response.url, "status": response.status, "bytes": 0}}

    def failed(self, failure):
        error, why = failure.type.__name__, str(failure.value)
        yield {{"url": failure.request.url, "error": error, "why": why}}
"""

#: Settings of Scrapy's scheduler that have no effect.
QUEUES = (
    *("SCHEDULER_MEMORY_QUEUE", "SCHEDULER_DISK_QUEUE"),
    *("SCHEDULER_START_MEMORY_QUEUE", "SCHEDULER_START_DISK_QUEUE"),
)
FIFO = "scrapy.squeues.FifoMemoryQueue"


@pytest.fixture(scope="module")
def dressed(tmp_path_factory: pytest.TempPathFactory) -> Crawl:
    sites = (site("a.test"), site("b.test"))
    settings = {"HTTPPROXY_ENABLED": True, **dict.fromkeys(QUEUES, FIFO)}
    return solo(
        tmp_path_factory.mktemp("dressed"),
        "http://a.test/x", "http://b.test/x",
        sites=sites, spider=SPIDER, settings=settings,
    )  # fmt: skip


def test_r1_nothing_that_misleads_about_who_asks_is_sent(dressed: Crawl) -> None:
    for host in ("a.test", "b.test"):
        (page,) = [each for each in dressed.requests(host) if each.path == "/x"]
        assert page.values("User-Agent") == [USER_AGENT]
        assert page.values("Host") == [host]
        assert page.values("X-Kept") == ["1"]
        # The sandbox is the proxy that the environment names, and this is for the proxy.
        assert page.values("Proxy-Authorization") == ["Basic me"]
        assert page.values("Connection") in ([], ["close"])
        for name in HEADERS.keys() - {"Host", "Connection"}:
            assert page.values(name) == [], name


def test_r1_one_warning_for_each_name_and_run(dressed: Crawl) -> None:
    for name in HEADERS:
        shown = name.title() if "_" not in name else name
        lines = dressed.lines("WARNING", "is not sent")
        assert len([x for x in lines if f"header {shown} of" in x]) == 1, name


def test_cookies_of_requests_are_named_once(dressed: Crawl) -> None:
    assert len(dressed.lines("WARNING: the cookies of http://", "are not sent")) == 1


@pytest.mark.parametrize("name", QUEUES)
def test_a_queue_setting_without_effect_is_named_once(dressed: Crawl, name: str) -> None:
    assert len(dressed.lines(f"WARNING: {name} has no effect: ")) == 1


# -- what is not idempotent ---------------------------------------------------------------

POSTS = """
import scrapy

class Probe(scrapy.Spider):
    name = "probe"

    async def start(self):
        for host, method in (
            ("broken", "POST"), ("cut", "PATCH"), ("late", "POST"), ("busy", "POST"),
            ("put", "PUT"),
        ):
            url = f"http://{host}.test/x"
            yield scrapy.Request(url, method=method, body=b"b", errback=self.failed)

    def parse(self, response):
        yield {"url": response.url, "status": response.status, "bytes": 0}

    def failed(self, failure):
        error, why = failure.type.__name__, str(failure.value)
        yield {"url": failure.request.url, "error": error, "why": why}
"""


@pytest.fixture(scope="module")
def posted(tmp_path_factory: pytest.TempPathFactory) -> tuple[Crawl, Path]:
    sites = (
        site("broken.test", {"/x": Route(502)}),
        site("cut.test", {"/x": Route(behaviour="close")}),
        site("late.test", {"/x": Route(503)}),
        site("busy.test", {"/x": Route(429)}),
        site("put.test", {"/x": Route(500)}),
    )
    directory = tmp_path_factory.mktemp("posted")
    settings = {"WALSH_MAX_RETRIES": 1}
    return solo(directory, sites=sites, spider=POSTS, settings=settings), directory


@pytest.mark.parametrize(
    ("host", "times"), [("broken", 1), ("cut", 1), ("late", 2), ("busy", 2), ("put", 2)]
)
def test_r5_what_is_not_idempotent_is_repeated_after_429_and_503_alone(
    posted: tuple[Crawl, Path], host: str, times: int
) -> None:
    assert posted[0].asked(f"{host}.test").count("/x") == times


def test_r5_the_end_of_it_is_said(posted: tuple[Crawl, Path]) -> None:
    done, _ = posted
    assert done.lines("given_up http://broken.test/x", "POST", "is not repeated")
    told = [item["error"] for item in done.items if item["url"] == "http://broken.test/x"]
    assert told == ["GaveUp"]
    assert "GaveUp" in done.why("http://cut.test/x")


def assert_verified(project: Path) -> None:
    code, printed = verify(state_dir(project), "--json")
    assert code == 0, printed


def test_r5_verify_accepts_it(posted: tuple[Crawl, Path]) -> None:
    assert_verified(posted[1])


# -- proxies ------------------------------------------------------------------------------

PROXIES = """
import scrapy

class Probe(scrapy.Spider):
    name = "probe"

    async def start(self):
        for number, proxy in enumerate((
            "http://blocked.test:3128", "blocked.test:3128", "http://me:pw@www.blocked.test",
            "http://proxy.gov:80", "http://:80",
        )):
            meta = {"proxy": proxy}
            yield scrapy.Request(f"http://a.test/{number}", meta=meta, errback=self.failed)
        yield scrapy.Request("http://a.test/direct", errback=self.failed)

    def parse(self, response):
        yield {"url": response.url, "status": response.status, "bytes": 0}

    def failed(self, failure):
        error, why = failure.type.__name__, str(failure.value)
        yield {"url": failure.request.url, "error": error, "why": why}
"""


def test_r3_no_request_goes_through_a_proxy_that_has_opted_out(tmp_path: Path) -> None:
    settings = {"WALSH_EXCLUDED_TLDS": ["gov"]}
    done = solo(tmp_path, sites=(site("a.test"),), spider=PROXIES, settings=settings)
    assert done.asked("a.test") == ["/robots.txt", "/direct"]
    for number in (0, 1, 2):
        why = done.why(f"http://a.test/{number}")
        assert "R3 blocked_operator" in why
        assert "its proxy" in why
        assert "blocked.test" in why
    assert "excluded_tld" in done.why("http://a.test/3")
    assert_verified(tmp_path)


ENVIRONMENT = """
import os

os.environ["https_proxy"] = "http://blocked.test:1"  # before Scrapy's middleware reads it
"""


def test_r3_nor_through_one_that_the_environment_names(tmp_path: Path) -> None:
    """Not for a robots.txt either; what goes by http has another proxy."""
    urls = ("https://a.test/x", "http://a.test/y")
    done = solo(tmp_path, *urls, sites=(site("a.test"),), spider=ENVIRONMENT + LIST_SPIDER)
    assert [(each.scheme, each.path) for each in done.requests("a.test")] == [
        ("http", "/robots.txt"), ("http", "/y"),
    ]  # fmt: skip
    refused = [item["why"] for item in done.items if item["url"] == "https://a.test/x"]
    assert len(refused) == 1
    assert "its proxy blocked.test" in refused[0]
    assert_verified(tmp_path)


# -- the handler --------------------------------------------------------------------------

HANDLER = """
import scrapy
from scrapy.core.downloader.handlers.http11 import HTTP11DownloadHandler
from scrapy_walsh.adapters import compat

class Twice(HTTP11DownloadHandler):
    def download_request(self, request, *args):
        print("TWICE", request.url, flush=True)
        return super().download_request(request, *args)

class Probe(scrapy.Spider):
    name = "probe"
    custom_settings = {custom}
    start_urls = ["http://a.test/x"]

    def parse(self, response):
        yield {{"url": response.url, "status": response.status, "bytes": 0}}
{trusted}
"""
BASE = {"DOWNLOAD_HANDLERS_BASE": dict.fromkeys(("http", "https"), "spiders.Twice")}


@pytest.mark.parametrize("where", ["project", "spider"])
def test_r1_no_setting_replaces_scrapys_own_handler(tmp_path: Path, where: str) -> None:
    spider = HANDLER.format(custom=BASE if where == "spider" else {}, trusted="")
    settings = BASE if where == "project" else {}
    done = solo(tmp_path, sites=(site("a.test"),), spider=spider, settings=settings)
    assert done.asked("a.test") == ["/robots.txt", "/x"]
    assert "TWICE" not in done.output
    own = default_settings.DOWNLOAD_HANDLERS_BASE["http"]
    assert len(done.lines("WARNING", "DOWNLOAD_HANDLERS_BASE['http']", "overrides", own)) == 1


def test_r1_by_hand_another_handler_refuses_the_start(run: Callable[..., Crawl]) -> None:
    from tests.crawl.test_install import BY_HAND  # noqa: PLC0415  it has tests of its own

    spider = HANDLER.format(custom={}, trusted="")
    done = run(sites=(site("a.test"),), spider=spider, settings={**BY_HAND, **BASE})
    assert done.returncode != 0
    assert done.log == []
    assert done.lines("DOWNLOAD_HANDLERS_BASE['http']", "leave it as Scrapy has it")


def test_a_test_may_trust_a_handler_in_code(tmp_path: Path) -> None:
    spider = HANDLER.format(custom=BASE, trusted="compat.trust_handler(Twice)")
    done = solo(tmp_path, sites=(site("a.test"),), spider=spider)
    assert "TWICE http://a.test/x" in done.output
    assert done.lines("DOWNLOAD_HANDLERS_BASE") == []


# -- the add-on that is not there ---------------------------------------------------------

DROPPED = """
import scrapy

class Probe(scrapy.Spider):
    name = "probe"
    custom_settings = {"ADDONS": {}}
    start_urls = ["http://a.test/x"]

    def parse(self, response):
        pass
"""


def test_a_crawl_without_the_addon_says_so(tmp_path: Path) -> None:
    done = solo(tmp_path, sites=(site("a.test"),), spider=DROPPED)
    assert done.returncode == 1
    assert done.log == []
    (line,) = done.lines("ADDONS")
    assert "scrapy_walsh" in line


def test_doctor_sees_a_spider_without_the_addon(box: Sandbox, tmp_path: Path) -> None:
    project = make_project(tmp_path, DROPPED)
    done = run_scrapy(project, box, "walsh", "doctor")
    assert done.returncode == 1
    assert [x for x in done.stdout.splitlines() if "FAIL" in x and "probe" in x and "ADDONS" in x]


def test_no_output_without_the_addon(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"ADDONS": None, "WALSH_IDENTITY": None}
    done = solo(tmp_path, sites=(site("a.test"),), spider=DROPPED, settings=settings)
    assert done.lines("ERROR") == []
