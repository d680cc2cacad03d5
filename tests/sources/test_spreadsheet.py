"""docs/spider.md: titles that a spreadsheet would run stay text in a CSV feed."""

from __future__ import annotations

import csv
from typing import TYPE_CHECKING

import pytest

from scrapy_walsh.proof.sandbox import Route, Sandbox
from tests.crawl.harness import make_project, run_scrapy, site
from tests.deploy.conftest import ROOT, snippet

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.crawl

DOC = (ROOT / "docs/spider.md").read_text()
TITLES = ('=cmd|"/C calc"!A0', "+1", "-1", "@SUM(A1)", "plain = text", "")
MARKDOWN = "\n\n".join(f"[{title}](http://news.test/{n})" for n, title in enumerate(TITLES))


@pytest.mark.parametrize("recipe", [True, False])
def test_titles_that_a_spreadsheet_would_run_stay_text(
    box: Sandbox, tmp_path: Path, recipe: bool
) -> None:
    """Without the recipe the file has the titles as they are: so it is the recipe that does it."""
    box.put(site("md.test", {"/": Route(body=MARKDOWN, content_type="text/markdown")}))
    project = make_project(
        tmp_path / "project", settings={"SPIDER_MODULES": ["scrapy_walsh.spiders"]}
    )
    if recipe:
        package = project / "myproject"
        package.mkdir()
        (package / "exporters.py").write_text(snippet(DOC, "exporter"))
        with (project / "probe_settings.py").open("a") as settings:
            settings.write(snippet(DOC, "exporter setting"))
    done = run_scrapy(
        project, box, "crawl", "walsh_metadata", "-a", "urls=http://md.test/", "-o", "items.csv"
    )
    assert done.returncode == 0, done.stdout
    with (project / "items.csv").open(newline="") as file:
        rows = {row["url"]: row["title"] for row in csv.DictReader(file)}
    expected = [f"'{title}" if recipe and title[:1] in tuple("=+-@") else title for title in TITLES]
    assert [rows[f"http://news.test/{n}"] for n in range(len(TITLES))] == expected
