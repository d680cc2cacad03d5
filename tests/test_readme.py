"""The README and docs say what the code does: their tables and snippets are held to it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from scrapy_walsh.adapters import compat, seats
from scrapy_walsh.adapters.context import default_state_dir
from scrapy_walsh.commands.main import SUBCOMMANDS
from scrapy_walsh.config import DEFAULTS, WalshConfig
from scrapy_walsh.proof.sandbox import Sandbox, default_sites, demo_sources
from scrapy_walsh.sources.sources import read_sources
from tests.crawl.harness import SETTINGS, crawl, make_project

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()


def snippets(text: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


def settings_of(snippet: str) -> dict[str, Any]:
    namespace: dict[str, Any] = {}
    exec(snippet, namespace)  # noqa: S102  our own documentation
    return {name: value for name, value in namespace.items() if name.isupper()}


def test_own_readme_names_every_setting_and_its_default():
    rows = dict(re.findall(r"^\| `(WALSH_\w+)` \| (.*?) \|", README, re.MULTILINE))
    assert rows.keys() == DEFAULTS.keys()
    for name, default in DEFAULTS.items():
        if default is not None and default != ():
            assert rows[name].strip("`") == str(default), name


@pytest.mark.parametrize("document", ["README.md", "docs/identity.md"])
def test_own_identities_that_are_shown_are_accepted(document: str):
    shown = [settings_of(snippet) for snippet in snippets((ROOT / document).read_text(), "python")]
    assert shown
    for settings in shown:
        WalshConfig.from_settings(settings, default_state_dir)


def test_own_readme_commands_are_targets_of_the_makefile():
    makefile = (ROOT / "Makefile").read_text()
    commands = re.findall(r"^make (\w+)", snippets(README, "bash")[0], re.MULTILINE)
    assert commands == ["demo", "test"]
    for command in commands:
        assert f"\n{command}:" in makefile


def test_own_readme_names_every_command_that_is_no_test_site():
    named = set(re.findall(r"^\| .*?\| \[`(\w+)`\]\(docs/", README, re.MULTILINE))
    assert named == SUBCOMMANDS.keys() - {"demo", "sandbox"}


def test_own_documents_that_are_linked_exist():
    for page in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]:
        for target in re.findall(r"\]\(([\w./-]+\.md)\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_own_installation_by_hand_is_shown_completely():
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


def test_own_example_project_asks_what_the_demo_expects():
    sources, problems = read_sources(ROOT / "example_project/sources.toml")
    assert problems == []
    assert [(s.name, s.url, s.feed) for s in sources] == [
        (s.name, s.url, s.feed) for s in demo_sources()
    ]


def test_own_spider_commands_of_the_docs_run(tmp_path: Path):
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
            project, box, "http://canary.test/", "http://rss.test/", spider_name="walsh_metadata"
        )
    assert by_file.returncode == by_urls.returncode == 0
    assert by_file.items
    assert set(by_file.items[0]) == {
        "source", "title", "url", "published", "via", "canonical_url", "fetched_at",
    }  # fmt: skip
    assert by_urls.asked("canary.test")


def test_own_t2_example_of_the_docs_is_refused(tmp_path: Path):
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
