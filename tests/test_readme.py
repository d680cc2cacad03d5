"""The README and docs say what the code does: their tables and snippets are held to it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from scrapy.settings import default_settings

from scrapy_walsh.adapters import compat, seats
from scrapy_walsh.adapters.context import default_state_dir
from scrapy_walsh.commands.main import SUBCOMMANDS
from scrapy_walsh.config import DEFAULTS, WalshConfig
from scrapy_walsh.proof.sandbox import Sandbox, default_sites, demo_sources
from scrapy_walsh.sources.sources import read_sources
from tests.crawl.harness import SETTINGS, crawl, make_project, walsh
from tests.test_records import pages

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()


def snippets(text: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


def settings_of(snippet: str) -> dict[str, Any]:
    namespace: dict[str, Any] = {}
    exec(snippet, namespace)  # noqa: S102  our own documentation
    return {name: value for name, value in namespace.items() if name.isupper()}


@pytest.mark.parametrize("document", ["README.md", "docs/blocklist.md"])
def test_identities_that_are_shown_are_accepted(document: str):
    shown = [settings_of(snippet) for snippet in snippets((ROOT / document).read_text(), "python")]
    assert shown
    for settings in shown:
        WalshConfig.from_settings(settings, default_state_dir)


def test_readme_names_every_command_that_is_no_test_site():
    named = set(re.findall(r"^\| .*?\| \[`(\w+)`\]\(", README, re.MULTILINE))
    assert named == SUBCOMMANDS.keys() - {"demo", "sandbox"}


def test_no_page_names_the_repository():
    """Links are relative (test_records.py follows them); the build makes the README's absolute."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    repository = project["urls"]["Repository"]
    assert [page for page in pages() if repository in page.read_text()] == []


def test_readme_shows_what_the_demo_prints(tmp_path: Path):
    shown = re.search(r"<!-- demo -->\n```text\n(.*?)```", README, re.DOTALL)
    assert shown is not None
    done = walsh(tmp_path, "demo", "--dir", str(tmp_path / "demo"), timeout=120)
    assert done.returncode == 0, done.stderr
    assert steady(shown[1]) in steady(done.stdout), done.stdout


def steady(text: str) -> str:
    """*text*, with what is measured replaced."""
    return re.sub(r"\d+\.\d+ s\b", "N s", text)


def test_readme_tells_the_truth_of_stock_scrapy():
    rows = re.findall(r"^\| ([^|]+) \| ([^|]*) \| ([^|]+) \|$", README, re.MULTILINE)
    compared = {name: (stock.strip(), ours) for name, stock, ours in rows}
    assert len(compared) >= 10
    assert compared["requests at a time"][0].startswith(str(default_settings.CONCURRENT_REQUESTS))
    assert compared["429 and 503"][0].startswith(f"{default_settings.RETRY_TIMES} retries")
    assert f"; {DEFAULTS['WALSH_MAX_RETRIES']} retries" in compared["429 and 503"][1]
    hangs = compared["a host that hangs"]
    assert hangs[0].startswith(f"{default_settings.DOWNLOAD_TIMEOUT} s")
    assert hangs[1].startswith(f"{seats.PREFERRED['DOWNLOAD_TIMEOUT']} s")
    assert default_settings.DOWNLOAD_DELAY == 0


@pytest.mark.parametrize(
    "picture", sorted((ROOT / "docs/pictures").iterdir()), ids=lambda p: p.name
)
def test_pictures_are_quick_to_load(picture: Path):
    assert picture.stat().st_size < 300_000


def test_installation_by_hand_is_shown_completely():
    """docs/install.md lists every pin and seat that the check at the start looks for."""
    shown = settings_of(snippets((ROOT / "docs/install.md").read_text(), "python")[1])
    jitter, off = compat.JITTER_SETTING
    shown.setdefault(jitter, off)
    for name, value in {**seats.PINS, **seats.SEATS, **seats.PREFERRED}.items():
        assert shown[name] == value, name
    assert shown.keys() - seats.PINS.keys() - seats.SEATS.keys() - seats.PREFERRED.keys() <= {
        "USER_AGENT",
        "DOWNLOAD_DELAY_JITTER",
    }


def test_example_project_asks_what_the_demo_expects():
    sources, problems = read_sources(ROOT / "example_project/sources.toml")
    assert problems == []
    assert [(s.name, s.url, s.feed) for s in sources] == [
        (s.name, s.url, s.feed) for s in demo_sources()
    ]


def test_spider_commands_of_the_docs_run(tmp_path: Path):
    """The two commands of docs/spider.md, with the sandbox's hosts in place of the examples."""
    commands = snippets((ROOT / "docs/spider.md").read_text(), "bash")[0].splitlines()
    assert [command.split()[:3] for command in commands] == [
        ["scrapy", "crawl", "walsh_metadata"]
    ] * 2
    project = make_project(
        tmp_path / "project", settings={**SETTINGS, "SPIDER_MODULES": ["scrapy_walsh.spiders"]}
    )
    sources = ROOT / "example_project/sources.toml"
    with Sandbox(default_sites()) as box:
        by_file = crawl(
            project, box, spider_name="walsh_metadata", arguments=("-a", f"sources={sources}")
        )
        by_urls = crawl(
            project, box, "http://path.test/", "http://rss.test/", spider_name="walsh_metadata"
        )
    assert by_file.returncode == by_urls.returncode == 0
    assert by_file.items
    assert set(by_file.items[0]) == {
        "source", "title", "url", "published", "via", "canonical_url", "fetched_at", "usage",
    }  # fmt: skip
    assert by_urls.asked("path.test")


def test_t2_example_of_the_docs_is_refused(tmp_path: Path):
    commands = snippets((ROOT / "docs/robots.md").read_text(), "bash")[0]
    python = f'python() {{ "{sys.executable}" "$@"; }}\n'
    done = subprocess.run(
        ["/bin/bash", "-c", python + commands],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1, done.stderr
    assert "Disallow: /*.ph" in done.stdout


def test_the_container_runs_the_command_that_readme_names():
    """Docker is not at hand where the tests run: the words are compared, nothing is built."""
    lines = (ROOT / "Dockerfile").read_text().splitlines()
    (command,) = re.findall(r"`(docker build .*)`", README)
    assert lines[0] == f"# {command}"
    steps = dict(line.split(maxsplit=1) for line in lines if line[:1].isalpha())
    assert json.loads(steps["ENTRYPOINT"]) == ["walsh"]
    assert command.split()[-1] in SUBCOMMANDS
    assert f":{steps['VOLUME']} " in command
    version = re.match(r"python:(\d\.\d+)", steps["FROM"])
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert f"Programming Language :: Python :: {version[1]}" in project["classifiers"]
