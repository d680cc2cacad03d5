"""``walsh discover``: the link map of a host, and what it cost the host."""

from __future__ import annotations

import json
import re
import shlex
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

import pytest
from scrapy.settings import Settings

from scrapy_walsh.commands import discover as command
from scrapy_walsh.commands.main import main
from scrapy_walsh.exceptions import WalshError
from scrapy_walsh.policy.formats.links import markdown_links
from scrapy_walsh.policy.formats.representation import ACCEPT_SOURCE
from scrapy_walsh.proof.sandbox import LoggedRequest, Route, Sandbox, Site, gaps, requests
from scrapy_walsh.sources.sources import read_sources
from tests.crawl.harness import OPEN, OWN_IDENTITY, crawl, make_project, run_scrapy, site, walsh
from tests.sources.world import QUICK

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.crawl

ROOT = Path(__file__).parents[2]
LLMS = """[before](http://x.test/0)

# The *harbour*

[name](http://x.test/1)

## Tables `of` tides

- [one](http://x.test/2) and [again](http://x.test/1)

### Older

- [old](http://x.test/3)

Setext
------

- [last](http://x.test/4)
"""
SECTIONS = [
    (0, "", [("before", "http://x.test/0")]),
    (1, "The harbour", [("name", "http://x.test/1")]),
    (2, "Tables of tides", [("one", "http://x.test/2"), ("old", "http://x.test/3")]),
    (2, "Setext", [("last", "http://x.test/4")]),
]
RICH = site(
    "rich.test",
    {
        "/llms.txt": Route(body=LLMS, content_type="text/plain"),
        "/": Route(
            body="# Page\n[one](http://x.test/2) [page](http://x.test/p)",
            content_type="text/markdown",
            etag='"1"',
            headers={"Link": '</f>; rel="alternate"; type="application/rss+xml"'},
        ),
    },
    robots=f"{OPEN}Sitemap: http://rich.test/s.xml\n",
)


class Discovered(NamedTuple):
    code: int
    out: str
    err: str
    log: list[LoggedRequest]

    @property
    def map(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.out)
        return found

    def asked(self, host: str) -> list[str]:
        return [request.path for request in requests(self.log, host)]


@pytest.fixture
def discover(box: Sandbox, tmp_path: Path) -> Callable[..., Discovered]:
    """``python -m scrapy_walsh discover ...`` outside a project."""

    def _discover(*arguments: str, identity: bool = True) -> Discovered:
        box.clear()
        who = ("--identity", json.dumps(OWN_IDENTITY)) if identity else ()
        quick = [part for name, value in QUICK.items() for part in ("-s", f"{name}={value}")]
        done = walsh(tmp_path, "discover", *arguments, *who, *quick, box=box, timeout=60)
        return Discovered(done.returncode, done.stdout, done.stderr, box.log)

    return _discover


def under(section: dict[str, Any]) -> tuple[int, str, list[tuple[str, str]]]:
    links = [(link["title"], link["url"]) for link in section["links"]]
    return section["level"], section["title"], links


def test_sections_of_a_markdown_text() -> None:
    found = markdown_links(LLMS)
    assert [under(section) for section in command.sections_of(found)] == SECTIONS
    links = [link for _, _, links in SECTIONS for link in links]
    assert links == [(each.title, each.url) for each in found.entries]
    assert command.sections_of(markdown_links("")) == []
    assert command.sections_of(markdown_links("no links")) == []


def test_the_map_of_both_probes(box: Sandbox, discover: Callable[..., Discovered]) -> None:
    box.put(RICH)
    found = discover("http://rich.test", "--json")
    assert found.code == 0
    llms, page = found.map["probes"]
    assert (llms["url"], llms["via"], llms["outcome"]) == (
        "http://rich.test/llms.txt", "llms.txt", "llms.txt",
    )  # fmt: skip
    assert [under(section) for section in llms["sections"]] == SECTIONS
    assert (page["url"], page["via"], page["outcome"]) == (
        "http://rich.test/", "markdown", "negotiated",
    )  # fmt: skip
    assert [(link["via"], link["url"][-1]) for link in found.map["links"]] == [
        *[("llms.txt", str(number)) for number in range(5)],
        ("markdown", "p"),
    ]
    assert found.map["suggested_feeds"] == ["http://rich.test/f"]
    assert found.map["suggested_sitemaps"] == ["http://rich.test/s.xml"]
    assert found.map["host"] == "rich.test"
    assert found.asked("rich.test") == ["/robots.txt", "/llms.txt", "/"]
    assert requests(found.log, "rich.test")[2].values("Accept") == [ACCEPT_SOURCE]
    assert min(gaps(found.log, "rich.test")[1:]) >= 0.98
    assert not requests(found.log, "x.test")
    asked_agents = {request.values("User-Agent")[0] for request in requests(found.log)}
    assert asked_agents == {"Mozilla/5.0 (compatible; ExampleBot/1.0; +http://operator.test/bot/)"}


def test_the_map_for_a_person(box: Sandbox, discover: Callable[..., Discovered]) -> None:
    box.put(RICH)
    lines = discover("http://rich.test").out.splitlines()
    assert "  # The harbour" in lines
    assert "      old: http://x.test/3" in lines
    assert "offers a feed: http://rich.test/f" in lines
    assert lines[-1].startswith("6 links found")


def test_https_and_then_http(box: Sandbox, discover: Callable[..., Discovered]) -> None:
    box.put(Site("clear.test", {**RICH.routes}, tls=False))
    found = discover("clear.test", "--json", "-s", "WALSH_MAX_RETRIES=0")
    assert found.code == 0
    assert [probe["url"] for probe in found.map["probes"]] == [
        "http://clear.test/llms.txt",
        "http://clear.test/",
    ]
    assert found.log[1].method == "CONNECT"
    assert found.asked("clear.test") == ["/robots.txt", "/llms.txt", "/"]


@pytest.mark.parametrize(
    ("host", "requirement", "asked"),
    [
        ("http://www.blocked.test", "R3", []),
        ("http://shut.test", "R2", ["/robots.txt"]),
        ("http://bare.test", "R9", ["/robots.txt", "/llms.txt", "/"]),
    ],
)
def test_nothing_found_or_refused(
    box: Sandbox,
    discover: Callable[..., Discovered],
    host: str,
    requirement: str,
    asked: list[str],
) -> None:
    box.put(site("shut.test", robots="User-agent: *\nDisallow: /\n"))
    box.put(site("bare.test"))
    found = discover(host, "--json")
    assert found.code == 1
    last = found.map["probes"][-1]
    assert (last["outcome"] in ("refused", "left_out"), bool(last["reason"])) == (True, True)
    assert found.map["links"] == []
    assert found.asked(host.removeprefix("http://")) == asked
    if requirement != "R9":
        assert last["requirement"] == requirement


def test_a_stopped_look_is_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C after the first of two answers: what the host offers was not seen."""

    def stopped(_settings: Any, spider: Any, problems: list[str], **given: Any) -> None:
        given["found"]["probes"].append({"url": "http://a.test/llms.txt", "outcome": "failed"})
        spider(problems=problems, **given).closed("shutdown")

    monkeypatch.setattr(command, "crawl_apart", stopped)
    with pytest.raises(WalshError, match="stopped before"):
        command.discover(["http://a.test/"], Settings())


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["http://a.test/page"], "is not a host"),
        (["http://user@a.test/page", "--add"], "is not a host"),
        (["a.test", "--add", "sources.txt"], "give a .toml file"),
        (["a.test", "--identity", json.dumps(OWN_IDENTITY), "--add", "broken.toml"], "not TOML"),
        (
            ["a.test", "--identity", json.dumps(OWN_IDENTITY), "--add", "no.toml"],
            "no [[source]] table",
        ),
        (["a.test", "--identity", json.dumps(OWN_IDENTITY), "--add", "dir.toml"], "cannot be read"),
        (["ftp://a.test"], "is not a host"),
        (["a.test?q"], "is not a host"),
        (["http://user@a.test"], "is not a host"),
        (["http://["], "not a URL"),
        (["a.test"], "no identity:"),
        (["a.test", "-s", "NONSENSE"], "is not NAME=VALUE"),
        (["a.test", "--identity", "somebody"], "WALSH_IDENTITY"),
    ],
)
def test_misuse_is_one_line(
    arguments: list[str],
    said: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "broken.toml").write_text("[[source]\n")
    (tmp_path / "no.toml").write_text("source = 3\n")
    (tmp_path / "dir.toml").mkdir()
    assert main(["discover", *arguments]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("walsh discover: ")
    assert said in line


# -- --add ---------------------------------------------------------------------------------------

HTML = (
    "<!doctype html><html><head><link rel='alternate' type='application/rss+xml' href='/f'></head>"
)
WITH_FEED = Route(body=f"{HTML}<body>x</body></html>", content_type="text/html")
PLAIN = Route(body="<!doctype html><html><body>x</body></html>", content_type="text/html")
XMLNS = 'xmlns="http://www.sitemaps.org/schemas/sitemap/0.9"'
URLS = f"<urlset {XMLNS}><url><loc>http://x.test/a</loc></url></urlset>"
INDEX = f"<sitemapindex {XMLNS}><sitemap><loc>http://o.test/a.xml</loc></sitemap></sitemapindex>"
MINE = """# what I read
[options]  # of another program
x = 1

[[source]]
url = "http://mine.test/"   # the first
name = "mine"

# the end
"""
OFFERS = (
    site("page.test", {"/blog": WITH_FEED}),
    site("opted.test", {"/blog": WITH_FEED}, robots="User-agent: *\nDisallow: /f\n"),
    site(
        "o.test",
        {
            "/s.xml": Route(body=URLS, content_type="application/xml"),
            "/i.xml": Route(body=INDEX, content_type="application/xml"),
            "/named": PLAIN,
            "/llms.txt": Route(404),
        },
        robots=f"{OPEN}Sitemap: http://o.test/s2.xml\n",
    ),
    site("guide.test", {"/a": PLAIN, "/gone": Route(404),
                        "/llms.txt": Route(body=LLMS, content_type="text/plain")}),
    site("shut.test", robots="User-agent: *\nDisallow: /\n"),
)  # fmt: skip


@pytest.mark.parametrize(
    "case",
    [
        ("http://page.test/blog", {"url": "http://page.test/blog", "feed": "http://page.test/f"},
         ["/robots.txt", "/blog"]),
        ("http://o.test/s.xml#top", {"sitemap": "http://o.test/s.xml"}, ["/robots.txt", "/s.xml"]),
        ("http://o.test/named", {"url": "http://o.test/named", "sitemap": "http://o.test/s2.xml"},
         ["/robots.txt", "/named"]),
        ("http://guide.test/a", {"url": "http://guide.test/a"},
         ["/robots.txt", "/a", "/llms.txt"]),
        ("rich.test", {"url": "https://rich.test/", "feed": "https://rich.test/f"},
         ["/robots.txt", "/"]),
    ],
)  # fmt: skip
def test_what_is_found_is_added_and_the_file_stays_as_it_is(
    box: Sandbox,
    discover: Callable[..., Discovered],
    tmp_path: Path,
    case: tuple[str, dict[str, str], list[str]],
) -> None:
    url, source, asked = case
    for each in (*OFFERS, RICH):
        box.put(each)
    file = tmp_path / "sources.toml"
    file.write_bytes(MINE.replace("\n", "\r\n").encode())
    found = discover(url, "--add", "--json")
    host = urlsplit(source.get("url") or source["sitemap"]).netloc
    assert found.code == 0, found.err
    assert found.asked(host) == asked, "what nobody has declared is not requested (R6)"
    assert found.map["source"] == source
    text = file.read_bytes().decode()
    assert text.startswith(MINE.replace("\n", "\r\n"))
    assert tomllib.loads(text)["source"][1:] == [found.map["added"]] == [{"name": host, **source}]
    sources, problems = read_sources(file)
    assert (len(sources), problems) == (2, [])
    again = discover(url, "--add")
    assert (again.code, again.log, file.read_bytes().decode()) == (0, [], text)
    (line,) = again.out.splitlines()
    assert "already" in line


@pytest.mark.parametrize(
    "case",
    [
        ("http://www.blocked.test/x", "blocklist", []),
        ("http://shut.test/x", "Disallow: /", ["/robots.txt"]),
        ("http://opted.test/blog", "http://opted.test/f: Disallow: /f",
         ["/robots.txt", "/blog", "/llms.txt"]),
        ("http://o.test/i.xml", "an index of 1 sitemap", ["/robots.txt", "/i.xml", "/llms.txt"]),
        ("http://guide.test/gone", "HTTP 404", ["/robots.txt", "/gone"]),
    ],
)  # fmt: skip
def test_r3_r2_what_is_refused_or_not_there_is_not_added(
    box: Sandbox,
    discover: Callable[..., Discovered],
    tmp_path: Path,
    case: tuple[str, str, list[str]],
) -> None:
    url, why, asked = case
    for each in OFFERS:
        box.put(each)
    found = discover(url, "--add", "new.toml")
    assert found.code == 1
    assert not (tmp_path / "new.toml").exists()
    assert found.asked(urlsplit(url).netloc) == asked
    last = found.out.splitlines()[-1]
    assert last.startswith("not added: ")
    assert why in last


@pytest.mark.parametrize(
    ("before", "kept"),
    [
        ("", True),
        ("# nothing yet", True),
        ('[[source]]\nurl = "http://b.test/"', True),
        ('[[source]]\nurl = "http://b.test/"\n[other]\nx = 1\n', True),
        ('source = [\n  {url = "http://b.test/"},  # one\n]\n', True),
        ('source = [{url = "http://b.test/"}]\n', False),
        ('[[x]]\na = 1\n[[source]]\nurl = "http://b.test/"\n[[x]]\na = 2\n', False),
    ],
)
def test_each_line_of_the_file_stays_or_nothing_is_written(
    tmp_path: Path, before: str, kept: bool
) -> None:
    file, source = tmp_path / "s.toml", {"url": "http://a.test/"}
    file.write_text(before)
    found = {"host": "a.test", "source": source, "links": []}
    if not kept:
        with pytest.raises(WalshError, match="cannot be changed safely"):
            command._add(file, found)
        assert file.read_text() == before
        return
    wanted = tomllib.loads(before)
    wanted.setdefault("source", []).append({"name": "a.test", **source})
    added, _ = command._add(file, found)
    assert added == wanted["source"][-1]
    assert tomllib.loads(file.read_text()) == wanted
    lines = iter(file.read_text().splitlines())
    assert all(line in lines for line in before.splitlines())


def test_a_crawl_after_it_misses_nothing(box: Sandbox, tmp_path: Path) -> None:
    """R8 holds between both; and discovering leaves no validators that would hide the links."""
    box.put(RICH)
    settings = {**QUICK, "SPIDER_MODULES": ["scrapy_walsh.spiders"]}
    project = make_project(tmp_path / "project", settings=settings)
    given = ("walsh", "discover", "http://rich.test", "--json")
    assert run_scrapy(project, box, *given).returncode == 0
    url = "http://rich.test/"
    too_soon = crawl(project, box, url, spider_name="walsh_metadata")
    assert too_soon.requests("rich.test") == []
    again = run_scrapy(project, box, *given)
    assert again.returncode == 1
    assert "R8" in again.stdout
    reason = ("-s", "WALSH_REVISIT_REASON=a test asks twice")
    after = crawl(project, box, url, spider_name="walsh_metadata", arguments=reason)
    assert [item["url"][-1] for item in after.items] == ["2", "p"]
    assert run_scrapy(project, box, *given, *reason).returncode == 0


def test_docs_command_runs_and_names_every_member(box: Sandbox, tmp_path: Path) -> None:
    document = (ROOT / "docs/discover.md").read_text()
    project = make_project(tmp_path / "project", settings=QUICK)
    for block in re.findall(r"```bash\n(.*?)```", document, re.DOTALL):
        scrapy, *command = shlex.split(
            block.replace("site.example/blog", "http://rss.test/feed.xml")
        )
        command = ["llms.test" if word == "site.example" else word for word in command]
        assert (scrapy, command[:2]) == ("scrapy", ["walsh", "discover"])
        done = run_scrapy(project, box, *command, "--json")
        assert done.returncode == 0, done.stdout
        found = json.loads(done.stdout)
        for name in (*found, *found["probes"][0], *found["probes"][0]["sections"][0]):
            assert f"`{name}`" in document
    assert read_sources(project / "sources.toml")[0][0].url == "http://rss.test/feed.xml"
    assert ACCEPT_SOURCE in " ".join(document.split())
