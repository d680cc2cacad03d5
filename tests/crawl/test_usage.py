"""What sites say about use, in real crawls: items, ledger, verify, and what WALSH_USAGE refuses."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from scrapy_walsh.config import WalshConfig, gates_of
from scrapy_walsh.ledger.files import DOCUMENTS, FILE
from scrapy_walsh.policy.robots.file import parse_robots
from scrapy_walsh.policy.robots.usage import KNOWN, as_member
from scrapy_walsh.proof.sandbox import Route, Sandbox
from tests.crawl.harness import Crawl, crawl, make_project, run_scrapy, site, state_dir
from tests.kit import report_of, write

pytestmark = pytest.mark.crawl

ROBOTS = """\
User-agent: *
Allow: /
Content-Usage: train-ai=n
Content-Usage: /ai-ok/ train-ai=y
Content-Usage: /odd/ Train=n,
Content-Signal: search=yes, ai-input=no
Sitemap: http://said.test/s.xml
License: http://said.test/license.xml
"""
FIELDS = {
    "Content-Usage": "search=n",
    "Content-Signal": "ai-input=yes, use=immediate",
    "X-Robots-Tag": "walsh-research: noai",
    "TDM-Reservation": "1",
    "TDM-Policy": "http://said.test/policy.json",
    "Link": '<http://said.test/terms>; rel="license"',
}
MARKDOWN = "text/markdown"
PAGES = {
    "/plain": Route(body="[a](http://x.test/1)", content_type=MARKDOWN),
    "/ai-ok/page": Route(body="[b](http://x.test/2)", content_type=MARKDOWN),
    "/odd/page": Route(body="[c](http://x.test/3)", content_type=MARKDOWN),
    "/fields": Route(body="[d](http://x.test/4)", content_type=MARKDOWN, headers=FIELDS),
}
SILENT = "http://silent.test/page"
#: A feed with terms of RSL for its first entry, and an answer with a Content-Signal.
RSL = (
    '<rsl:content url="/1"><rsl:license><rsl:prohibits type="usage">ai-future</rsl:prohibits>'
    "</rsl:license></rsl:content>"
)
ENTRY = "<item><title>t</title><link>http://feed.test/{}</link>{}</item>"
FEED_BODY = (
    '<rss version="2.0" xmlns:rsl="https://rslstandard.org/rsl"><channel><title>t</title>'
    f"{ENTRY.format(1, RSL)}{ENTRY.format(2, '')}</channel></rss>"
)
SIGNALLED = {"Content-Signal": "search=yes, ai-future=no"}
AFTER = ("http://feed.test/feed", "http://feed.test/signal")
#: A project that declares the file, and a page of its host after it.
HOST = "http://said.test"
URLS = (*(f"{HOST}{path}" for path in PAGES), SILENT, *AFTER)
SIGNAL = {
    "field": "Content-Signal",
    "value": "search=yes, ai-input=no",
    "document": f"{HOST}/robots.txt",
    "line": 6,
}


LICENSE = {
    "field": "License",
    "value": f"{HOST}/license.xml",
    "document": f"{HOST}/robots.txt",
    "line": 8,
}


def rule(line: int, value: str) -> dict[str, Any]:
    found = {"field": "Content-Usage", "value": value, "document": f"{HOST}/robots.txt"}
    return {**found, "line": line}


@dataclass
class Run:
    """A crawl of URLS with some settings."""

    done: Crawl
    project: Path

    def usage(self, path: str) -> dict[str, Any] | None:
        (item,) = [each for each in self.done.items if each["source"] == path]
        usage: dict[str, Any] | None = item["usage"]
        return usage

    def lines(self) -> list[dict[str, Any]]:
        text = (state_dir(self.project) / FILE).read_text()
        return [json.loads(line) for line in text.splitlines()]


def run(directory: Path, **settings: Any) -> Run:
    merged = {"SPIDER_MODULES": ["scrapy_walsh.spiders"], "LOG_LEVEL": "INFO", **settings}
    project = make_project(directory, settings=merged)
    sources = [{"name": url.partition("test")[2], "url": url} for url in URLS]
    (project / "sources.jsonl").write_text("\n".join(map(json.dumps, sources)))
    with Sandbox() as box:
        box.put(site("said.test", PAGES, ROBOTS))
        page = Route(body="[e](http://x.test/5)", content_type=MARKDOWN)
        box.put(site("silent.test", {"/page": page}))
        signalled = Route(body="[f](http://x.test/6)", content_type=MARKDOWN, headers=SIGNALLED)
        feed = Route(body=FEED_BODY, content_type="application/rss+xml")
        box.put(site("feed.test", {"/feed": feed, "/signal": signalled}))
        given = ("-a", "sources=sources.jsonl")
        return Run(crawl(project, box, spider_name="walsh_metadata", arguments=given), project)


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return run(tmp_path_factory.mktemp("usage") / "project")


def test_nothing_is_refused_by_default(plain: Run) -> None:
    assert len(plain.done.items) == len(URLS) + 1  # the feed has two entries


def test_an_item_says_by_which_line_of_robots_txt(plain: Run) -> None:
    preferences = {"ai-input": "disallowed", "search": "allowed"}
    assert plain.usage("/plain") == {
        "said": [rule(3, "train-ai=n"), SIGNAL, LICENSE],
        "preferences": {**preferences, "train-ai": "disallowed"},
    }
    assert plain.usage("/ai-ok/page") == {
        "said": [rule(4, "train-ai=y"), SIGNAL, LICENSE],
        "preferences": {**preferences, "train-ai": "allowed"},
    }


def test_a_malformed_line_is_recorded_as_such_and_hides_none_that_can_be_read(
    plain: Run,
) -> None:
    usage = plain.usage("/odd/page")
    assert usage is not None
    readable, said, _, _ = usage["said"]
    assert readable == rule(3, "train-ai=n")
    assert {**said, "malformed": ""} == {**rule(5, "Train=n,"), "malformed": ""}
    assert said["malformed"]
    assert usage["preferences"]["train-ai"] == "disallowed"


def test_the_fields_of_the_answer_are_said_too(plain: Run) -> None:
    usage = plain.usage("/fields")
    assert usage is not None
    said = {(each["field"], each["value"]) for each in usage["said"] if "line" not in each}
    assert said == {
        ("Content-Usage", "search=n"),
        ("Content-Signal", "ai-input=yes, use=immediate"),
        ("X-Robots-Tag", "walsh-research: noai"),
        ("TDM-Reservation", "1"),
        ("TDM-Policy", "http://said.test/policy.json"),
        ("Link", '<http://said.test/terms>; rel="license"'),
    }
    assert {each["document"] for each in usage["said"]} == {
        f"{HOST}/robots.txt",
        f"{HOST}/fields",
    }
    assert usage["preferences"]["search"] == "disallowed"
    # What must not be kept is emitted with a mark, and so that a pipeline can drop it.
    assert usage["keep"] is False
    assert usage["preferences"]["use=reference"] == "disallowed"


def feed_items(found: Run) -> dict[str, Any]:
    return {item["url"]: item["usage"] for item in found.done.items if item["source"] == "/feed"}


def test_terms_of_rsl_are_those_of_their_entry(plain: Run) -> None:
    assert feed_items(plain) == {
        "http://feed.test/1": {
            "said": [{"field": "rsl:content", "value": RSL, "document": AFTER[0]}],
            "preferences": {"ai-future": "disallowed"},
        },
        "http://feed.test/2": None,
    }


def test_where_nothing_is_said_there_is_nothing(plain: Run) -> None:
    assert plain.usage("/page") is None


def test_nothing_is_requested_for_it(plain: Run) -> None:
    asked = set(plain.done.asked("said.test"))
    assert asked == {"/robots.txt", *PAGES}


CHAIN = frozenset({"n", "prev", "hash"})
SIGNAL_LINE = "robots.txt:6 Content-Signal: search=yes, ai-input=no"
LICENSE_LINE = f"robots.txt:8 License: {HOST}/license.xml"


def test_the_ledger_has_it_beside_each_answer(plain: Run) -> None:
    told = {line["url"]: line.get("usage") for line in plain.lines() if line["kind"] == "fetched"}
    assert told[f"{HOST}/plain"] == SAID
    assert told[AFTER[1]] == ["header Content-Signal: search=yes, ai-future=no"]
    assert "header TDM-Reservation: 1" in told[f"{HOST}/fields"]
    assert told[SILENT] is None


def test_verify_derives_it_again(plain: Run) -> None:
    with Sandbox() as box:
        done = run_scrapy(plain.project, box, "walsh", "verify")
    assert "nothing wrong was found" in done.stdout, done.stdout


SAID = ["robots.txt:3 Content-Usage: train-ai=n", SIGNAL_LINE, LICENSE_LINE]


@pytest.mark.parametrize(
    ("usage", "in_robots"),
    [
        (None, None), (["robots.txt:3 Content-Usage: train-ai=y"], 1), (SAID, 1), (SAID, -1),
        ([*SAID, "robots.txt:9 Content-Usage: search=y"], 4), (SAID[:1], None), (SAID[:2], 2),
    ],
)  # fmt: skip
def test_verify_finds_what_robots_txt_did_not_say(
    plain: Run, tmp_path: Path, usage: list[str] | None, in_robots: int | None
) -> None:
    entries = plain.lines()
    (line,) = [e for e in entries if e["kind"] == "fetched" and e["url"] == f"{HOST}/plain"]
    assert line["in_robots"] == len(SAID)
    line["usage"], line["in_robots"] = usage, in_robots
    write(tmp_path, [{k: v for k, v in e.items() if k not in CHAIN} for e in entries])
    documents = (state_dir(plain.project) / DOCUMENTS).read_bytes()
    (tmp_path / DOCUMENTS).write_bytes(documents)
    report = report_of(tmp_path)
    texts = [finding.text for finding in report.findings]
    assert [text for text in texts if text.startswith("robots.txt said of its use: ")], texts
    assert len(texts) == 1


def test_it_is_the_robots_txt_that_let_the_target_pass(tmp_path: Path) -> None:
    """Also where another host's has taken its place in memory while the target was on its way."""
    found = run(tmp_path / "project", WALSH_ROBOTS_CACHE_SIZE=1)
    assert found.usage("/plain") is not None
    with Sandbox() as box:
        done = run_scrapy(found.project, box, "walsh", "verify")
    assert "nothing wrong was found" in done.stdout, done.stdout


# -- docs/usage.md ------------------------------------------------------------------------

PAGE = (Path(__file__).parents[2] / "docs" / "usage.md").read_text("utf-8")


def block(kind: str) -> str:
    return PAGE.partition(f"```{kind}\n")[2].partition("```")[0]


def test_the_item_of_the_docs_is_what_is_said() -> None:
    text = "User-agent: *\nAllow: /\nContent-Usage: train-ai=n, search=y\n"
    rules = parse_robots(text.encode(), "ExampleBot", "https://site.example/robots.txt")
    assert as_member(rules.said("https://site.example/")) == json.loads(block("json"))


def test_the_setting_of_the_docs_is_accepted() -> None:
    names: dict[str, Any] = {}
    exec(block("python"), names)  # noqa: S102  our own documentation
    settings = {"WALSH_IDENTITY": "walsh-research", "WALSH_USAGE": names["WALSH_USAGE"]}
    config = WalshConfig.from_settings(settings, lambda: "memory")
    assert gates_of(config).refused_uses == ("train-ai",)


def test_the_docs_name_every_category_and_field() -> None:
    for name in (*KNOWN, "Content-Usage", "License", *FIELDS):
        assert f"`{name}`" in PAGE, name


# -- WALSH_USAGE --------------------------------------------------------------------------


@pytest.fixture(scope="module")
def refusing(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("refusing") / "project"
    uses = {"train-ai": "refuse", "search": "record", "ai-future": "refuse"}
    return run(folder, WALSH_USAGE=uses)


def test_a_target_is_refused_before_it_is_requested(refusing: Run) -> None:
    """/fields forbids a use in its own header: but it is in robots.txt that it is looked up."""
    assert refusing.done.asked("said.test") == ["/robots.txt", "/ai-ok/page"]
    (line,) = refusing.done.lines("INFO", f"refused {HOST}/plain (WALSH_USAGE disallowed_usage)")
    assert "Content-Usage: train-ai=n (line 3), and WALSH_USAGE refuses train-ai" in line
    assert "[http://said.test/robots.txt:3]" in line
    assert refusing.done.stats["walsh/refused/WALSH_USAGE"] == 3


def test_links_of_an_answer_that_disallows_a_refused_use_are_withheld(refusing: Run) -> None:
    """The request was sent before, so the answer cannot refuse it."""
    assert {"/feed", "/signal"} <= set(refusing.done.asked("feed.test"))
    assert set(feed_items(refusing)) == {"http://feed.test/2"}
    assert not [item for item in refusing.done.items if item["source"] == "/signal"]
    ends = "and WALSH_USAGE refuses ai-future"
    reasons = {
        "/feed": f"1 link withheld: rsl:content in {AFTER[0]}, {ends}",
        "/signal": f"1 link withheld: Content-Signal in {AFTER[1]}, {ends}",
    }
    for source, reason in reasons.items():
        assert refusing.done.lines("INFO", f"{source}: {reason}"), source


def test_a_use_that_no_vocabulary_has_is_warned_of(refusing: Run) -> None:
    (line,) = refusing.done.lines("WARNING", "WALSH_USAGE names ai-future")
    assert "counts only for sites that write this name" in line


ANSWERS = """
from scrapy.http import Response

class Answers:
    def process_request(self, request, spider=None):
        return Response(request.url, headers={"TDM-Reservation": "1"}, request=request)
"""


def test_what_a_middleware_answers_before_the_gate_no_site_has_said(tmp_path: Path) -> None:
    settings = {"DOWNLOADER_MIDDLEWARES": {"answers.Answers": 30}}
    project = make_project(tmp_path / "project", settings=settings)
    (project / "answers.py").write_text(ANSWERS)
    with Sandbox() as box:
        done = Run(crawl(project, box, SILENT), project)
    (line,) = [each for each in done.lines() if each["kind"] == "answered"]
    assert (line["url"], line.get("verdict"), line.get("usage")) == (SILENT, None, None)


def test_verify_derives_the_refusal(refusing: Run) -> None:
    with Sandbox() as box:
        done = run_scrapy(refusing.project, box, "walsh", "verify")
    assert "nothing wrong was found" in done.stdout, done.stdout


def test_verify_finds_a_target_that_had_to_be_refused(plain: Run, tmp_path: Path) -> None:
    """The run says that it refuses a use, and requested what robots.txt disallows for it."""
    entries = plain.lines()
    next(e for e in entries if e["kind"] == "started")["settings"]["usage"] = {"train-ai": "refuse"}
    write(tmp_path, [{k: v for k, v in e.items() if k not in CHAIN} for e in entries])
    (tmp_path / DOCUMENTS).write_bytes((state_dir(plain.project) / DOCUMENTS).read_bytes())
    report = report_of(tmp_path)
    found = {finding.rule for finding in report.findings}
    assert found == {"WALSH_USAGE"}


@pytest.mark.parametrize(("action", "verdict"), [("refuse", "disallowed_usage"), ("record", "")])
def test_plan_and_check_know_it(refusing: Run, action: str, verdict: str) -> None:
    """By the robots.txt that is cached, and without a request."""
    setting = ("-s", f'WALSH_USAGE={{"train-ai": "{action}"}}', "--json")
    reason = ("-s", "WALSH_REVISIT_REASON=a test")
    with Sandbox() as box:
        done = run_scrapy(
            refusing.project, box, "walsh", "plan", "-a", f"urls={HOST}/plain", *setting, *reason
        )
        (target,) = json.loads(done.stdout[done.stdout.index("{") :])["targets"]
        (refusing.project / "robots.txt").write_text(ROBOTS)
        command = ("walsh", "check", f"{HOST}/plain", "--robots", "robots.txt", *setting)
        checked = run_scrapy(refusing.project, box, *command).stdout
        assert box.log == []
    assert (target["verdict"] and target["verdict"]["name"]) == (verdict or None)
    assert ('"disallowed_usage"' in checked) is bool(verdict)
