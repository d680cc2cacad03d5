"""A user name and a password in a URL: in no request, log, ledger, state, JOBDIR or report."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from scrapy_walsh.proof.sandbox import Route, Sandbox
from tests.crawl.harness import OPERATOR, SETTINGS, Crawl, crawl, make_project, site

if TYPE_CHECKING:
    from pathlib import Path

SECRET = "s3cr3t"
USERINFO = f"someone:{SECRET}@"

SPIDER = f"""
import scrapy

class Probe(scrapy.Spider):
    name = "probe"

    async def start(self):
        meta = {{"walsh_also": ["http://{USERINFO}plain.test/also"]}}
        yield scrapy.Request("http://{USERINFO}plain.test/", meta=meta, errback=self.failed)
        yield scrapy.Request("http://{USERINFO}moved.test/", errback=self.failed)
        yield scrapy.Request("http://robots.test/", errback=self.failed)
        yield scrapy.Request("http:\\\\\\\\{USERINFO}odd.test/x", errback=self.failed)
        yield scrapy.Request("https://{USERINFO}secure.test/", errback=self.failed)
        yield scrapy.Request("http://{USERINFO}gone.test/", errback=self.failed)

    async def parse(self, response):
        yield {{"url": response.url}}
        if response.url == "http://plain.test/":
            yield scrapy.Request("http://{USERINFO}plain.test/also", errback=self.failed)
            yield scrapy.Request("http://{USERINFO}plain.test/also", errback=self.failed)
            yield scrapy.Request("ftp://{USERINFO}plain.test/file", errback=self.failed)
            yield scrapy.Request("http://{USERINFO}undeclared.test/", errback=self.failed)
            again = dict(dont_filter=True, callback=self.nothing)
            self.crawler.engine.crawl(scrapy.Request("http://{USERINFO}plain.test/", **again))
            try:
                fetch = getattr(self.crawler.engine, "download_async", None)
                if fetch:
                    await fetch(scrapy.Request("http://{USERINFO}plain.test/also"))
            except Exception as error:
                print("DOWNLOAD", error, flush=True)

    def nothing(self, response):
        pass

    def failed(self, failure):
        yield {{"url": failure.request.url, "why": str(failure.value)}}
"""
SITES = (
    site("plain.test"),
    site("moved.test", {"/": Route(302, location=f"http://{USERINFO}plain.test/hop")}),
    site("robots.test", robots=Route(302, location=f"//{USERINFO}rules.test/r.txt")),
    site("rules.test", {"/r.txt": Route(body="User-agent: *\nAllow: /\n")}),
    site("odd.test"),
    site("secure.test"),
    site("gone.test", {"/": Route(behaviour="close")}),
)


def files_of(project: Path) -> dict[str, bytes]:
    """Everything that a crawl has left behind, beside what its author wrote."""
    written = ("spiders.py", "probe_settings.py", "sources.toml")
    return {
        str(file.relative_to(project)): file.read_bytes()
        for file in project.rglob("*")
        if file.is_file() and file.name not in written and file.suffix != ".pyc"
    }


def assert_secret(done: Crawl, project: Path) -> None:
    assert SECRET not in done.output, done.lines(SECRET)
    assert [name for name, data in files_of(project).items() if SECRET.encode() in data] == []
    assert not [each for each in done.log if SECRET in str(each)]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Crawl, Path]:
    settings: dict[str, Any] = {
        "JOBDIR": "job",
        "DUPEFILTER_DEBUG": True,
        "WALSH_MAX_RETRIES": 0,
    }
    project = make_project(tmp_path_factory.mktemp("secrets"), SPIDER, settings)
    with Sandbox() as box:
        for each in SITES:
            box.put(each)
        return crawl(project, box), project


def test_a_password_in_a_url_is_written_nowhere(finished: tuple[Crawl, Path]) -> None:
    assert_secret(*finished)


def test_the_url_without_it_is_asked_and_judged(finished: tuple[Crawl, Path]) -> None:
    done, _ = finished
    assert {"/", "/also", "/hop"} <= set(done.asked("plain.test"))
    assert "/r.txt" in done.asked("rules.test")
    assert "/" in done.asked("robots.test")
    assert done.asked("undeclared.test") == []
    assert not [each for each in done.log if each.values("Authorization")]
    assert "/.well-known/walsh-research/blocklist.json" in done.asked("operator.test")


def test_one_warning_names_the_host_and_the_remedy(finished: tuple[Crawl, Path]) -> None:
    done, _ = finished
    (line,) = done.lines("WARNING", "a URL holds a user name or", "http_user", "http_auth_domain")
    assert line.isprintable()


def test_the_credentials_that_scrapy_has_settings_for_are_sent(tmp_path: Path) -> None:
    spider = """
import scrapy

class Probe(scrapy.Spider):
    name = "probe"
    start_urls = ["http://plain.test/"]
    http_user, http_pass, http_auth_domain = "someone", "s3cr3t", "plain.test"

    def parse(self, response):
        pass
"""
    project = make_project(tmp_path, spider)
    with Sandbox() as box:
        box.put(site("plain.test"))
        done = crawl(project, box)
    (page,) = [each for each in done.log if each.host == "plain.test" and each.path == "/"]
    assert page.values("Authorization")
    assert SECRET not in done.output


def test_a_sources_file_and_its_report_hold_none(tmp_path: Path) -> None:
    settings = {"SPIDER_MODULES": ["scrapy_walsh.spiders"]}
    project = make_project(tmp_path, settings=settings)
    (project / "sources.toml").write_text(
        f'[[source]]\nname = "a"\nurl = "http://{USERINFO}plain.test/"\n'
        f'feed = "http://{USERINFO}plain.test/feed"\n'
        f'[[source]]\nname = "b"\nurl = "{USERINFO}plain.test"\n'
        f'[[source]]\nname = "c"\nurl = "gopher://{USERINFO}plain.test/"\n'
    )
    arguments = ("-a", "sources=sources.toml", "-a", "report=report.json")
    with Sandbox() as box:
        box.put(site("plain.test"))
        done = crawl(project, box, spider_name="walsh_metadata", arguments=arguments)
    assert "/feed" in done.asked("plain.test")
    assert len(json.loads((project / "report.json").read_text())["problems"]) == 3
    assert len(done.lines("WARNING", "source 1 (a)", "plain.test", "http_user")) == 1
    assert_secret(done, project)


@pytest.mark.parametrize(
    "settings",
    [
        {"WALSH_BLOCKLIST_URL": f"gopher://{USERINFO}operator.test/"},
        {"WALSH_BLOCKLIST_URL": f"http://{USERINFO}operator.test/list.json"},
        {"WALSH_IDENTITY": {
            "product": "ExampleBot/1.0",
            "policy_url": f"http://{USERINFO}operator.test/bot/",
            "blocklist_url": f"{OPERATOR}/blocklist.json",
        }},
    ],
)  # fmt: skip
def test_a_refused_setting_is_named_without_it(tmp_path: Path, settings: dict[str, Any]) -> None:
    assert settings.keys() <= SETTINGS.keys()
    project = make_project(tmp_path, settings=settings)
    with Sandbox() as box:
        done = crawl(project, box, "http://path.test/")
    assert done.returncode != 0
    assert done.lines(next(iter(settings)))
    assert_secret(done, project)
