"""The README's lines for ``settings.py`` and the crawl below them, in a new project."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from scrapy.crawler import CrawlerRunner

from scrapy_walsh.proof.sandbox import Route, Sandbox, Site, blocklist
from tests import zygote
from tests.crawl.harness import site

pytestmark = pytest.mark.crawl

README = (Path(__file__).parents[2] / "README.md").read_text()
ADDONS = {"scrapy_walsh.Addon": 500}
FEED = """<rss version="2.0"><channel><title>News</title>
<item><title>First</title><link>https://site.example/first</link></item></channel></rss>"""


def test_the_settings_of_the_readme_and_its_crawl_work_as_typed(
    tmp_path: Path, typed_path: str
) -> None:
    shown = re.search(r"```python\n(.*?)```\n(?:(?!```).)*```bash\n(.*?)```", README, re.DOTALL)
    assert shown is not None
    settings, crawl = shown.groups()
    own = Site("bot.example", {"/blocklist.json": Route(body=json.dumps(blocklist()))})
    start = [sys.executable, "-m", "scrapy", "startproject", "new"]
    zygote.run(start, cwd=tmp_path, check=True, capture_output=True)
    with (tmp_path / "new/new/settings.py").open("a") as file:
        file.write(f"\n{settings}")
    with Sandbox() as box:
        box.put(own)
        box.put(site("site.example", {"/": Route(body=FEED, content_type="application/rss+xml")}))
        done = subprocess.run(
            ["/bin/sh", "-c", f"{crawl.strip()} -o items.jsonl"],
            cwd=tmp_path / "new",
            env={
                **{name: value for name, value in os.environ.items() if name != "no_proxy"},
                "PATH": typed_path,
                "http_proxy": box.proxy_url,
                "https_proxy": box.proxy_url,
            },
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    assert "https://site.example/first" in (tmp_path / "new/items.jsonl").read_text()


@pytest.mark.parametrize(
    ("listed", "found"),
    [
        ([], ["scrapy_walsh.spiders"]),
        ("one,two", ["scrapy_walsh.spiders", "one", "two"]),
        (["one", "scrapy_walsh.spiders"], ["one", "scrapy_walsh.spiders"]),
        (["scrapy_walsh.spiders.walsh_metadata"], ["scrapy_walsh.spiders.walsh_metadata"]),
    ],
)
def test_the_addon_adds_its_spider_once(
    listed: list[str] | str,
    found: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("one", "two"):
        (tmp_path / f"{name}.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    first = CrawlerRunner({"ADDONS": ADDONS, "SPIDER_MODULES": listed})
    again = CrawlerRunner(first.settings)
    assert again.settings.getlist("SPIDER_MODULES") == found
    assert again.spider_loader.list() == ["walsh_metadata"]


@pytest.mark.filterwarnings("ignore:There are several spiders with the same name")
def test_a_spider_of_the_project_is_before_that_of_the_addon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "theirs.py").write_text(
        "import scrapy\nclass Theirs(scrapy.Spider):\n    name = 'walsh_metadata'\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    runner = CrawlerRunner({"ADDONS": ADDONS, "SPIDER_MODULES": ["theirs"]})
    assert runner.spider_loader.load("walsh_metadata").__module__ == "theirs"
