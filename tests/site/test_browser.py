"""The site as a browser shows it: nothing is cut off at a phone's width, and nothing is fetched."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.report.browser import browser, found

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.report.browser import Page

SITE = Path(__file__).parents[2] / "docs/_build/html"
pytestmark = pytest.mark.skipif(
    found() is None or not (SITE / "index.html").exists(),
    reason="needs a Chromium, and the site: make docs",
)
WINDOWS = [(390, 844), (1440, 900)]
#: What scrolls sideways: its end cannot be seen. The sidebar's own boxes are not on the page.
CUT_OFF = """[...document.querySelectorAll("article *")].filter(each =>
    each.scrollWidth > each.clientWidth + 1 && each.clientWidth > 0
    && getComputedStyle(each).overflowX !== "visible").map(each => each.textContent.slice(0, 60))"""

#: The pages that a search has found, in their order.
FOUND = """[...document.querySelectorAll("#search-results li a")].map(
    each => each.href.split("/html/")[1])"""


@pytest.fixture(scope="module")
def tab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    program = found()
    assert program is not None
    with browser(program, tmp_path_factory.mktemp("profile")) as page:
        yield page


def pages() -> list[Path]:
    return [each for each in sorted(SITE.rglob("*.html")) if "_static" not in each.parts]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize(("width", "height"), WINDOWS)
def test_no_page_of_the_site_is_wider_than_its_window(
    tab: Page, width: int, height: int, scheme: str
) -> None:
    assert len(pages()) > 40
    tab.look(width, height, scheme)
    for page in pages():
        tab.open(page)
        assert tab.run("document.documentElement.scrollWidth") <= width, page.name
        assert width > 600 or tab.run(CUT_OFF) == [], page.name
        light = tab.run("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
        assert light is (scheme == "light"), page.name
        asked = [each["request"]["url"] for each in tab.events("Network.requestWillBeSent")]
        assert [each for each in asked if not each.startswith(("file:", "data:"))] == []
        failed = tab.events("Network.loadingFailed")
        assert failed == [], f"{page.name}: {failed}"


def test_a_code_leads_to_what_it_says() -> None:
    assert 'href="decisions/requirements.html#r8"' in (SITE / "daily.html").read_text()
    assert 'id="r8"' in (SITE / "decisions/requirements.html").read_text()


def test_what_is_typed_has_a_button_to_copy_it_and_output_has_none(tab: Page) -> None:
    tab.open(SITE / "tutorial.html")
    for kind, buttons in (("bash", True), ("python", True), ("text", False)):
        blocks = f"document.querySelectorAll('.highlight-{kind}').length"
        found = tab.run(f"document.querySelectorAll('.highlight-{kind} button.copybtn').length")
        assert tab.run(blocks) > 0
        assert found == (tab.run(blocks) if buttons else 0), kind


def test_the_search_knows_what_scrapy_says_of_a_missing_spider(tab: Page) -> None:
    query = "KeyError%3A%20%27Spider%20not%20found%27"
    page = (SITE / "search.html").absolute().as_uri()
    tab.call("Page.navigate", url=f"{page}?q={query}")
    found = "[...document.querySelectorAll('#search-results li a')].map(each => each.textContent)"
    deadline = time.monotonic() + 20
    while not (titles := tab.run(found)) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert any(title.startswith("What a message means") for title in titles)


@pytest.mark.parametrize(
    ("word", "page"),
    [
        ("304", "faq.html"),
        ("uninstall", "install.html"),
        ("jupyter", "faq.html"),
        ("scrapyrt", "compatibility.html"),
        ("email", "recipes.html"),
        ("slack", "recipes.html"),
        ("webhook", "recipes.html"),
        ("redirect", ""),
        ("retry-after", ""),
    ],
)
def test_a_search_finds_a_page_for_users_first(tab: Page, word: str, page: str) -> None:
    """Of any word: no decision or trap stands above a page for users."""
    tab.open(SITE / "search.html")
    tab.run(f"Search.performSearch({word!r})")
    deadline = time.monotonic() + 30
    links: list[str] = []
    count = "document.querySelectorAll('#search-results li a').length"
    before = -1
    while time.monotonic() < deadline and (not links or tab.run(count) != before):
        before = tab.run(count)
        time.sleep(0.2)
        links = tab.run(FOUND)
    assert links, word
    assert links[0].partition("#")[0] == (page or links[0].partition("#")[0])
    ranked = tab.run(FOUND.replace("li a", "li:not(.kind-index) a"))  # Sphinx has those last
    inside = [link.startswith("decisions/") for link in ranked]
    assert inside == sorted(inside), links
