"""The page in a real browser: it fits, can be read, asks nobody, and says nothing wrong.

Skipped where there is no Chromium: a machine gets one by its package manager, not by pip.
"""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING

import pytest

from scrapy_walsh.proof.report.html import page
from tests.kit import asked, began, decided, ended, lines_of, tally_of
from tests.report.browser import browser, found
from tests.report.test_history import days_of, three_days
from tests.report.test_owner import found_of, html_of
from tests.report.test_page import evil_lines, evil_sources, known, source

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.report.browser import Page
    from tests.report.conftest import World

pytestmark = pytest.mark.skipif(
    found() is None,
    reason="no Chromium here: install the package chromium, or name one in WALSH_TEST_BROWSER",
)
WINDOWS = [(360, 800), (1440, 900)]
SCHEMES = ["light", "dark"]
PAGES = ["crawl", "sources", "busy", "hostile", "owner", "days"]
#: Every text that is seen, with its contrast (WCAG 2.1) where that is below 4.5.
CONTRAST = """(() => {
  const canvas = document.createElement('canvas').getContext('2d', {willReadFrequently: true});
  const rgb = colour => {
    canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = colour; canvas.fillRect(0, 0, 1, 1);
    return canvas.getImageData(0, 0, 1, 1).data;
  };
  const light = colour => {
    const [r, g, b] = [...rgb(colour)].slice(0, 3).map(v => v / 255)
      .map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const behind = node => {
    for (let at = node; at; at = at.parentElement) {
      const colour = getComputedStyle(at).backgroundColor;
      if (rgb(colour)[3] === 255) return colour;
    }
    return 'white';
  };
  const poor = [], seen = [];
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) {
    const node = walk.currentNode.parentElement, words = walk.currentNode.data.trim();
    if (!words || !node.getClientRects().length) continue;
    const style = getComputedStyle(node);
    const [a, b] = [light(style.color), light(behind(node))].sort((x, y) => y - x);
    seen.push(words);
    const contrast = (a + 0.05) / (b + 0.05);
    if (contrast < 4.5) poor.push([words.slice(0, 40), contrast]);
  }
  return {seen: seen.length, poor};
})()"""
#: Of a PNG: width, height, how many colours, and how light it is.
PIXELS = """(async () => {
  const image = new Image();
  image.src = 'data:image/png;base64,%s';
  await image.decode();
  const canvas = new OffscreenCanvas(image.width, image.height).getContext('2d');
  canvas.drawImage(image, 0, 0);
  const data = new Uint32Array(canvas.getImageData(0, 0, image.width, image.height).data.buffer);
  const light = data.reduce((sum, each) => sum + (each & 255) + (each >> 8 & 255), 0);
  return [image.width, image.height, new Set(data).size, light / data.length];
})()"""
WIDTHS = "[document.documentElement.scrollWidth, innerWidth]"
#: What sticks out of its part of the page, but for what scrolls in a frame of its own.
OUTSIDE = """[...document.querySelectorAll('body *')].filter(each =>
  !each.closest('.scroll') && each.getClientRects().length
  && each.getBoundingClientRect().right > 0.5 + (each.parentElement.closest('section')
    ?? document.documentElement).getBoundingClientRect().right
).map(each => each.outerHTML.slice(0, 80))"""


@pytest.fixture(scope="module")
def tab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    program = found()
    assert program is not None
    with browser(program, tmp_path_factory.mktemp("profile")) as opened:
        yield opened


@pytest.fixture(scope="module")
def pages(
    world: World, sourced: World, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Path]:
    directory = tmp_path_factory.mktemp("pages")
    busy = [asked(n * 0.6, host=f"host{n % 40}.{'long-name-' * (n % 7)}.test") for n in range(3000)]
    rules = [decided("refused", n, rule=f"Disallow: /{'x' * n}", line=n) for n in range(1, 200)]
    made = {
        "crawl": page(*tally_of(world.lines)),
        "sources": page(*tally_of(sourced.lines), known(source("a"), source("b", 9e5))),
        "busy": page(*tally_of(lines_of(began(), *busy, *rules, ended()))),
        "hostile": page(*tally_of(evil_lines(), "all"), evil_sources()),
        "days": page(*days_of(*three_days()), known(source("b"))),
        "owner": html_of(found_of(world.lines, "flaky.test")),
    }
    assert sorted(made) == sorted(PAGES)
    for name, text in made.items():
        (directory / f"{name}.html").write_text(text)
    return {name: directory / f"{name}.html" for name in made}


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("window", WINDOWS, ids=str)
@pytest.mark.parametrize("name", PAGES)
def test_the_page_fits_is_readable_and_asks_nobody(
    tab: Page, pages: dict[str, Path], name: str, window: tuple[int, int], scheme: str
):
    tab.look(*window, scheme)
    tab.open(pages[name])
    assert tab.run(WIDTHS) == [window[0]] * 2
    assert tab.run(OUTSIDE) == []
    contrast = tab.run(CONTRAST)
    assert contrast["seen"] > 50
    assert contrast["poor"] == []
    asked_for = [event["request"]["url"] for event in tab.events("Network.requestWillBeSent")]
    assert asked_for == [pages[name].as_uri()]
    for wrong in ("Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded"):
        assert tab.events(wrong) == []


@pytest.mark.parametrize("window", WINDOWS, ids=str)
def test_the_page_is_drawn_in_its_scheme(
    tab: Page, pages: dict[str, Path], window: tuple[int, int]
):
    shades = {}
    for scheme in SCHEMES:
        tab.look(*window, scheme)
        tab.open(pages["crawl"])
        tab.run("document.querySelector('#hosts').scrollIntoView()")
        shot = base64.b64encode(tab.screenshot()).decode()
        tab.call("Page.navigate", url="about:blank")
        width, height, colours, shades[scheme] = tab.run(PIXELS % shot)
        assert (width, height) == window
        assert colours > 20
    assert shades["light"] > 2 * shades["dark"]


def test_nothing_of_a_strangers_runs(tab: Page, pages: dict[str, Path]):
    tab.open(pages["hostile"])
    acting = "script, img, iframe, object, embed, form, [onerror], [style]"
    assert tab.run(f"document.querySelectorAll('{acting}').length") == 0
    assert tab.run("document.title").startswith("Walsh report")
    assert tab.run("[...document.querySelectorAll('bdi')].every(each => !each.children.length)")


@pytest.mark.parametrize("name", ["sources", "owner"])
def test_a_printed_page_is_as_wide_as_its_paper(tab: Page, pages: dict[str, Path], name: str):
    tab.look(794, 1123)
    tab.call("Emulation.setEmulatedMedia", media="print", features=[])
    tab.open(pages[name])
    tables = "[...document.querySelectorAll('table')].map(each => each.scrollWidth)"
    assert all(width <= 794 for width in tab.run(tables))
    assert tab.run(WIDTHS) == [794, 794]
    tab.call("Emulation.setEmulatedMedia", media="", features=[])
