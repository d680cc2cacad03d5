"""ROBOTSTXT_PARSER: a stock project gets our reading of robots.txt, and nothing else of ours."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Any

import pytest

from scrapy_walsh import RobotParser
from scrapy_walsh.policy.robots.file import Robots
from scrapy_walsh.proof.sandbox import Route
from tests.crawl.harness import rules, site, solo
from tests.deploy.conftest import snippet

ROBOTS = """User-agent: ExampleBot
Disallow: /closed
Crawl-delay: 2.5

User-agent: *
Disallow: /
"""
FULL = "Mozilla/5.0 (compatible; ExampleBot/1.0; +https://bot.example/2/policy)"
STOCK: dict[str, Any] = {
    **dict.fromkeys(
        ("ADDONS", "WALSH_IDENTITY", "WALSH_BLOCKLIST_URL", "WALSH_BLOCKLIST_SCHEMA_URL")
    ),
    "USER_AGENT": FULL,
}
ROOT = Path(__file__).parents[2]


def parser(text: str) -> RobotParser:
    return RobotParser.from_crawler(None, text.encode())  # type: ignore[arg-type]


def test_a_stock_project_reads_robots_txt_as_we_do(tmp_path: Path) -> None:
    """The site asks for what only our readings refuse: the longest match of an expanded star."""
    settings: dict[str, Any] = {}
    exec(snippet((ROOT / "docs/robots.md").read_text(), "parser"), {}, settings)  # noqa: S102
    text = "User-agent: *\nAllow: /page\nDisallow: /*.ph\n"
    served = {path: Route(body="page") for path in ("/page", "/page.php5")}
    done = solo(
        tmp_path,
        *(f"http://stock.test{path}" for path in served),
        sites=(site("stock.test", {**served, "/robots.txt": rules(text)}),),
        settings={**STOCK, **settings},
    )
    assert done.returncode == 0, done.output
    assert done.targets("stock.test") == ["/page"]
    assert done.lines("Forbidden by robots.txt: <GET http://stock.test/page.php5>")
    assert not (tmp_path / ".scrapy").exists()  # no state
    assert "walsh:" not in done.output


@pytest.mark.parametrize(
    ("user_agent", "path", "allowed"),
    [
        (FULL, "/open", True),
        (FULL.encode(), "/closed", False),
        ("ExampleBot", "/open", True),
        ("exampleBOT/2 (+http://x.example/)", "/closed", False),
        ("Mozilla/5.0 (X11)", "/open", False),
        ("", "/open", False),
        (FULL, "/robots.txt", True),
    ],
)
def test_r2_17_the_group_of_the_bots_name_is_read_else_that_of_the_star(
    user_agent: str | bytes, path: str, *, allowed: bool
) -> None:
    assert parser(ROBOTS).allowed(f"https://h.test{path}", user_agent) is allowed
    assert parser(ROBOTS).allowed(f"https://h.test{path}".encode(), user_agent) is allowed


def test_r2_27_each_name_that_the_file_knows_must_allow_it() -> None:
    both = parser("User-agent: One\nDisallow: /a\n\nUser-agent: Two\nDisallow: /b\n")
    answers = [both.allowed(f"https://h.test/{x}", "One/1 Two/2") for x in "abc"]
    assert answers == [False, False, True]


def test_r2_29_scrapy_is_told_the_crawl_delay() -> None:
    assert parser(ROBOTS).crawl_delay(FULL) == 2.5
    assert parser(ROBOTS).crawl_delay("Other/1.0") is None


def rules_in_memory() -> int:
    gc.collect()
    return sum(isinstance(each, Robots) for each in gc.get_objects())


def test_user_agents_that_are_made_up_fill_no_memory() -> None:
    one, before = parser(ROBOTS), rules_in_memory()
    assert not any(one.allowed("https://h.test/", f"Bot{n}/1.0") for n in range(40))
    assert 0 < rules_in_memory() - before <= 16
