"""``walsh discover``: the link map of a host, and what it cost the host."""

from __future__ import annotations

import json
import os
import re
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from scrapy.settings import Settings

from scrapy_walsh.commands import discover as command
from scrapy_walsh.commands.main import main
from scrapy_walsh.exceptions import WalshError
from scrapy_walsh.policy.formats.representation import (
    ACCEPT_PAGE,
    markdown_links,
    markdown_sections,
)
from scrapy_walsh.proof.sandbox import LoggedRequest, Route, Sandbox, Site, gaps, requests
from tests import zygote
from tests.crawl.harness import OPEN, OWN_IDENTITY, crawl, make_project, run_scrapy, site
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
        path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
        proxies = {"http_proxy": box.proxy_url, "https_proxy": box.proxy_url, "no_proxy": ""}
        done = zygote.run(
            [sys.executable, "-m", "scrapy_walsh", "discover", *arguments, *who, *quick],
            cwd=tmp_path,
            env={**os.environ, **proxies, "PYTHONPATH": path},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        return Discovered(done.returncode, done.stdout, done.stderr, box.log)

    return _discover


def test_own_sections_of_a_markdown_text() -> None:
    assert [tuple(section) for section in markdown_sections(LLMS)] == SECTIONS
    links = [link for _, _, under in SECTIONS for link in under]
    assert links == markdown_links(LLMS)
    assert markdown_sections("") == markdown_sections("no links") == []


def test_own_the_map_of_both_probes(box: Sandbox, discover: Callable[..., Discovered]) -> None:
    box.put(RICH)
    found = discover("http://rich.test", "--json")
    assert found.code == 0
    llms, page = found.map["probes"]
    assert (llms["url"], llms["via"], llms["outcome"]) == (
        "http://rich.test/llms.txt", "llms.txt", "llms.txt",
    )  # fmt: skip
    assert [
        (s["level"], s["title"], [(link["title"], link["url"]) for link in s["links"]])
        for s in llms["sections"]
    ] == SECTIONS
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
    assert requests(found.log, "rich.test")[2].values("Accept") == [ACCEPT_PAGE]
    assert min(gaps(found.log, "rich.test")[1:]) >= 0.98
    assert not requests(found.log, "x.test")
    asked_agents = {request.values("User-Agent")[0] for request in requests(found.log)}
    assert asked_agents == {"Mozilla/5.0 (compatible; ExampleBot/1.0; +http://operator.test/bot/)"}


def test_own_the_map_for_a_person(box: Sandbox, discover: Callable[..., Discovered]) -> None:
    box.put(RICH)
    lines = discover("http://rich.test").out.splitlines()
    assert "  # The harbour" in lines
    assert "      old: http://x.test/3" in lines
    assert "offers a feed: http://rich.test/f" in lines
    assert lines[-1].startswith("6 links found")


def test_own_https_and_then_http(box: Sandbox, discover: Callable[..., Discovered]) -> None:
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
def test_own_nothing_found_or_refused(
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


def test_own_a_stopped_look_is_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C after the first of two answers: what the host offers was not seen."""

    def stopped(_settings: Any, spider: Any, problems: list[str], **given: Any) -> None:
        given["found"]["probes"].append({"url": "http://a.test/llms.txt", "outcome": "failed"})
        spider(problems=problems, **given).closed("shutdown")

    monkeypatch.setattr(command, "crawl_apart", stopped)
    with pytest.raises(WalshError, match="stopped before"):
        command.discover(["http://a.test"], Settings())


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["http://a.test/page"], "is not a host"),
        (["ftp://a.test"], "is not a host"),
        (["a.test?q"], "is not a host"),
        (["http://user@a.test"], "is not a host"),
        (["http://["], "not a URL"),
        (["a.test"], "no identity:"),
        (["a.test", "-s", "NONSENSE"], "is not NAME=VALUE"),
        (["a.test", "--identity", "somebody"], "WALSH_IDENTITY"),
    ],
)
def test_own_misuse_is_one_line(
    arguments: list[str],
    said: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["discover", *arguments]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("walsh discover: ")
    assert said in line


def test_own_a_crawl_after_it_misses_nothing(box: Sandbox, tmp_path: Path) -> None:
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


def test_own_docs_command_runs_and_names_every_member(box: Sandbox, tmp_path: Path) -> None:
    document = (ROOT / "docs/discover.md").read_text()
    (block,) = re.findall(r"```bash\n(.*?)```", document, re.DOTALL)
    scrapy, *command = shlex.split(block.replace("site.example", "llms.test"))
    assert (scrapy, command[:2]) == ("scrapy", ["walsh", "discover"])
    done = run_scrapy(make_project(tmp_path / "project", settings=QUICK), box, *command, "--json")
    assert done.returncode == 0, done.stdout
    found = json.loads(done.stdout)
    for name in (*found, *found["probes"][0], *found["probes"][0]["sections"][0]):
        assert f"`{name}`" in document
    assert ACCEPT_PAGE in document
