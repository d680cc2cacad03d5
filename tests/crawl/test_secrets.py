"""Secrets in URLs: where they may be, and where not.

A user name and a password are in no request, log, ledger, state, JOBDIR or report. With
``WALSH_LEDGER = "redact"`` a query is only where a URL must be whole: state, JOBDIR and feeds.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from scrapy_walsh.policy.urls import without_queries
from scrapy_walsh.proof.sandbox import Route, Sandbox, Site
from tests.crawl.harness import (
    FAR_OFF,
    LIST,
    OPERATOR,
    SETTINGS,
    Crawl,
    crawl,
    listing,
    make_project,
    run_scrapy,
    site,
    state_dir,
    walsh,
)

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


# -- queries, with WALSH_LEDGER = "redact" ----------------------------------------------------

TOKEN = f"?key={SECRET}&more='{SECRET}'&end=1"

#: Each way on which a URL comes into a log: it is parsed, fails, repeats, leaves the scope.
ASKS = f"""
import scrapy

TOKEN = {TOKEN!r}

class Probe(scrapy.Spider):
    name = "probe"

    async def start(self):
        for host in ("plain", "moved", "closed", "blocked", "gone", "busy", "lost", "strict"):
            meta = {{"walsh_also": [f"http://plain.test/also{{TOKEN}}"]}}
            yield scrapy.Request(f"http://{{host}}.test/{{TOKEN}}", meta=meta, errback=self.failed)
        yield scrapy.Request(f"http://plain.test/{{TOKEN}}", meta={{"walsh_revisit": "PT0S"}})
        yield scrapy.Request(f"http://plain.test/raises{{TOKEN}}#{SECRET}", self.raises)
        yield scrapy.Request(f"ftp://plain.test/{{TOKEN}}", errback=self.failed)

    def parse(self, response):
        self.logger.warning("%s has come, and %r", response.url, [response.url])
        yield {{"url": response.url}}
        yield scrapy.Request(f"http://plain.test/also{{TOKEN}}", errback=self.failed)
        yield scrapy.Request(f"http://plain.test/also{{TOKEN}}", errback=self.failed)
        yield scrapy.Request(f"http://undeclared.test/{{TOKEN}}", errback=self.failed)

    def raises(self, response):
        raise ValueError(f"cannot be parsed: {{response.url}}")

    def failed(self, failure):
        self.logger.error("failed", exc_info=(failure.type, failure.value, failure.tb))
"""
FEED = (
    f"<rss version='2.0'><channel><item><link>http://a.test/{TOKEN}</link></item></channel></rss>"
)
HIDDEN: dict[str, Any] = {
    "WALSH_LEDGER": "redact",
    "WALSH_BLOCKLIST_URL": f"{OPERATOR}/blocklist.json{TOKEN}",
    "JOBDIR": "job",
    "DUPEFILTER_DEBUG": True,
    "WALSH_MAX_RETRIES": 1,
    "WALSH_METRICS": "walsh.prom",
    "SPIDER_MODULES": ["spiders", "scrapy_walsh.spiders"],
    **FAR_OFF,
}


def every_site() -> list[Site]:
    to = {"Retry-After": "9999999"}
    listed = listing("blocked.test")
    return [
        Site("operator.test", {LIST: listed, f"{LIST}{TOKEN}": listed}),
        site("plain.test", {"/feed": Route(body=FEED, content_type="application/rss+xml")}),
        site("moved.test", {"/": Route(302, location=f"http://plain.test/hop{TOKEN}")}),
        site("closed.test", robots="User-agent: *\nDisallow: /\n"),
        site("gone.test", {"/": Route(410)}),
        site("busy.test", {"/": Route(429, headers=to)}),
        site("lost.test", {"/": Route(behaviour="close")}),
        site("strict.test", robots=Route(302, location=f"http://plain.test/robots{TOKEN}")),
        site("page.test", {"/": Route(body="<p>page</p>", headers={"Link": (
            f'<http://page.test/f{TOKEN}>; rel="alternate"; type="application/rss+xml"'
        )})}),
    ]  # fmt: skip


@pytest.fixture(scope="module")
def hidden(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[Crawl], Path, dict[str, str]]:
    """Two crawls, and the output of each command on them."""
    project = make_project(tmp_path_factory.mktemp("hidden"), ASKS, HIDDEN)
    hosts = ("plain", "moved", "closed", "blocked", "lost", "page")
    entries = [f'[[source]]\nname = "{h}"\nurl = "http://{h}.test/x{TOKEN}"\n' for h in hosts]
    entries.append(
        f'[[source]]\nname = "f"\nurl = "http://f.test/"\nfeed = "http://plain.test/feed{TOKEN}"\n'
    )
    (project / "sources.toml").write_text("".join(entries))
    given = ("-a", "sources=sources.toml", "-a", "report=report.json")
    outputs: dict[str, str] = {}
    with Sandbox() as box:
        for each in every_site():
            box.put(each)
        crawls = [
            crawl(project, box),
            crawl(project, box, spider_name="walsh_metadata", arguments=given),
        ]
        for words in (
            *(("report",), ("report", "-o", "-"), ("report", "--days", "2", "-o", "days.html")),
            *(("report", "--host", "plain.test"), ("report", "--run", "all", "-o", "all.html")),
            *(("verify",), ("verify", "--json"), ("doctor",), ("state", "verify")),
            *(("state", "show"), ("state", "show", "--all", "--json"), ("state", "show", "--json")),
            *(("plan", *given[:2]), ("plan", *given[:2], "--json"), ("plan", "probe")),
            ("state", "forget", "lost.test"),
        ):
            done = run_scrapy(project, box, *words, module="scrapy_walsh")
            outputs[" ".join(words)] = done.stdout
    return crawls, project, outputs


def test_a_query_is_in_no_log_and_no_output(
    hidden: tuple[list[Crawl], Path, dict[str, str]],
) -> None:
    crawls, _, outputs = hidden
    for done in crawls:
        assert "?redacted" in done.output
        assert SECRET not in done.output, done.lines(SECRET)[:5]
    assert {name: text for name, text in outputs.items() if SECRET in text} == {}
    for name in ("state show", "plan -a sources=sources.toml", "report -o -"):
        assert "?redacted" in outputs[name], outputs[name]


def test_a_query_is_in_no_file_but_those_that_need_it(
    hidden: tuple[list[Crawl], Path, dict[str, str]],
) -> None:
    _, project, _ = hidden
    files = files_of(project)
    whole = {name for name, data in files.items() if SECRET.encode() in data}
    state = state_dir(project).relative_to(project)
    needed = [name for name in whole if name.startswith(("job/", f"{state}/state.sqlite3"))]
    lists = [name for name in whole if name.startswith(f"{state}/blocklist")]
    assert whole - {*needed, *lists, "items.jsonl"} == set()
    assert needed
    names = ("report.json", "walsh-report.html", "walsh-plain.test.html", f"{state}/ledger.jsonl")
    assert all(name in files for name in (*names, "days.html", "all.html", "walsh.prom"))
    assert json.loads(files["report.json"])["sources"][0]["url"] == "http://plain.test/x?redacted"


def test_the_requests_and_items_are_whole(
    hidden: tuple[list[Crawl], Path, dict[str, str]],
) -> None:
    crawls, project, _ = hidden
    assert all(any(SECRET in str(each) for each in done.log) for done in crawls)
    assert any(SECRET in str(item) for item in crawls[1].items), crawls[1].output
    done = walsh(project, "verify")
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("fetched http://h.test/a?k=1 (R2): no", "fetched http://h.test/a?redacted (R2): no"),
        ("http://h.test/a?k=1", "http://h.test/a?redacted"),
        ("(http://h.test/?k=1), http://g.test/?k=2.", "(http://h.test/?redacted), http://g.test/?redacted."),
        ("{'url': 'http://h.test/?k=1', 'n': 1}", "{'url': 'http://h.test/?redacted', 'n': 1}"),
        ('{"url": "http://h.test/?k=\\"1", "n": 1}', '{"url": "http://h.test/?redacted", "n": 1}'),
        ("<a href='x'>http://h.test/?a&amp;b</a>", "<a href='x'>http://h.test/?redacted</a>"),
        ("<GET http://h.test/?k=1>", "<GET http://h.test/?redacted>"),
        ("HTTPS:\\\\h.test\\?k=1 x", "HTTPS:\\\\h.test\\?redacted x"),
        ("http://h.test?k=http://g.test/?k=2 x", "http://h.test?redacted x"),
        ("http://h.test/a#token=1 and", "http://h.test/a and"),
        ("redis://h.test/0?password=1", "redis://h.test/0?redacted"),
        ("why? http://h.test/a, or not?", "why? http://h.test/a, or not?"),
        ("http://h.test/a?redacted", "http://h.test/a?redacted"),
    ],
)  # fmt: skip
def test_what_may_be_shown_of_a_url(text: str, shown: str) -> None:
    assert without_queries(text) == shown
    assert without_queries(shown) == shown


def test_what_may_be_shown_takes_linear_time() -> None:
    for hostile in ("a:/", "a:/?", "http://", "a.", "?", "\\", "a:/\\", "a:/?\\"):
        without_queries(hostile * 300_000)
