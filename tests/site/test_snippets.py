"""Every block of code in the docs is run by a test, or compared with what is printed.

``RUN_BY`` says for each page how many blocks it has and which module runs them. A block more or
less fails here, until somebody has seen to its test. Those of no better place are run below.
"""

from __future__ import annotations

import configparser
import json
import os
import random
import re
import shlex
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from scrapy.settings import default_settings
from scrapy.utils.misc import load_object

from scrapy_walsh import config
from scrapy_walsh.adapters import seats
from scrapy_walsh.commands.common import default_state_dir
from scrapy_walsh.config import WalshConfig
from scrapy_walsh.policy import readings, summary, visits
from scrapy_walsh.proof.sandbox import Sandbox, default_sites, hosts
from scrapy_walsh.sources.sources import read_sources
from tests.crawl.harness import OPERATOR, SETTINGS, make_project

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
HERE = "site/test_snippets.py"
#: By page, the number of its blocks and who runs them. Blocks of Sphinx and Mermaid do not count.
RUN_BY: dict[str, tuple[int, tuple[str, ...]]] = {
    "../README.md": (5, ("test_readme.py", "test_clone.py", "crawl/test_first_crawl.py")),
    "api.md": (4, ("test_public_face.py",)),
    "architecture.md": (1, (HERE,)),
    "attest.md": (4, ("attest/test_command.py",)),
    "audit.md": (8, ("audit/test_command.py", "sign/test_docs.py")),
    "blocklist.md": (5, ("cli/test_init.py", "test_readme.py")),
    "compatibility.md": (2, ("crawl/test_plugins.py",)),
    "check.md": (5, ("cli/test_check.py",)),
    "commands.md": (1, ("cli/test_commands.py",)),
    "conformance.md": (7, ("conformance/test_docs.py", "conformance/test_run.py")),
    "daily.md": (3, ("deploy/test_cron.py", HERE)),
    "deploy.md": (11, (*(f"deploy/test_{each}.py" for each in ("cron", "cloud", "scrapyd")), HERE)),
    "discover.md": (2, ("sources/test_discover.py",)),
    "doctor.md": (1, ("cli/test_doctor.py",)),
    "faq.md": (1, ("site/test_reference.py",)),
    "fleet.md": (4, (HERE,)),
    "index.md": (1, (HERE,)),
    "install.md": (3, ("test_readme.py", "deploy/test_other_projects.py", HERE)),
    "ledger.md": (3, ("ledger/test_verify_tampered.py",)),
    "other-projects.md": (4, ("deploy/test_other_projects.py",)),
    "read.md": (3, ("cli/test_read.py",)),
    "recipes.md": (3, ("deploy/test_recipes.py",)),
    "reference.md": (3, ("site/test_reference.py", "crawl/test_signals.py")),
    "report.md": (2, ("report/test_cli.py",)),
    "robots.md": (2, ("test_readme.py", "crawl/test_robot_parser.py")),
    "signing.md": (5, ("sign/test_docs.py",)),
    "spider.md": (
        4,
        ("test_readme.py", "sources/test_spreadsheet.py", "sources/test_sitemap.py"),
    ),
    "state.md": (2, ("cli/test_state.py",)),
    "tutorial.md": (24, ("site/test_tutorial.py",)),
    "usage.md": (2, ("crawl/test_usage.py",)),
}  # fmt: skip
BLOCK = re.compile(r"^```(\{?\w*\}?)\n(.*?)^```", re.DOTALL | re.MULTILINE)


def blocks(page: str) -> list[str]:
    found = BLOCK.findall((DOCS / page).read_text())
    return [text for kind, text in found if kind not in ("{toctree}", "{eval-rst}", "mermaid")]


def settings_of(text: str) -> dict[str, Any]:
    names: dict[str, Any] = {}
    exec(text, names)  # noqa: S102  our own documentation
    return {name: value for name, value in names.items() if name.isupper()}


def test_every_block_has_somebody_who_runs_it() -> None:
    pages = [path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md")]
    counted = {page: len(blocks(page)) for page in (*pages, "../README.md") if blocks(page)}
    assert counted == {page: count for page, (count, _) in RUN_BY.items()}
    for page, (_, modules) in RUN_BY.items():
        name = page.removeprefix("../")
        for module in modules:
            text = (ROOT / "tests" / module).read_text()
            shared = (ROOT / "tests" / module).parent / "conftest.py"
            text += shared.read_text() if shared.exists() else ""
            assert name in text, f"{module} does not know {page}"


def test_architecture_says_when_a_host_is_due() -> None:
    (rule,) = blocks("architecture.md")
    assert rule == "due = max(end of the last answer + interval, end of the hold)\n"


def test_the_front_page_shows_what_the_tutorial_runs() -> None:
    (shown,) = blocks("index.md")
    assert (
        not set(shown.splitlines())
        - set((DOCS / "tutorial.md").read_text().splitlines())
        - {"scrapy crawl walsh_metadata -a sources=sources.toml -o items.jsonl"}
    )


# -- daily.md, deploy.md -----------------------------------------------------------------


def test_r8_1_the_cadences_of_the_docs_are_read(tmp_path: Path) -> None:
    (tmp_path / "sources.toml").write_text(blocks("daily.md")[0])
    sources, problems = read_sources(tmp_path / "sources.toml")
    assert [each.revisit for each in sources] == [7 * 86400.0, 3600.0]
    assert problems == []


def test_the_year_of_the_docs_has_the_options_that_are_shown() -> None:
    *_, year = blocks("daily.md")
    python, *words = shlex.split(year)
    assert (python, words[:2]) == ("python", ["-m", "tests.year"])
    done = subprocess.run(
        [sys.executable, *words[:2], "--help"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    table = re.findall(r"^\| `(--[\w-]+)", (DOCS / "daily.md").read_text(), re.MULTILINE)
    assert len(table) == 5
    for option in (*words[2::2], *table):
        assert option in done.stdout


def test_the_end_of_a_run_reads_as_the_docs_show() -> None:
    named, last = (block.splitlines() for block in blocks("deploy.md")[1:3])
    start, now = 1772323200.0, 1773360000.0  # 2026-03-01 and 2026-03-13, 00:00 UTC
    unread = readings.Reading("https://x.test/feed", start, now, read=1, reason="HTTP 403")
    moved = readings.Reading("https://y.test/", now, now, 1, None, "https://www.y.test/")
    rule = "R2 disallowed_explicit by Disallow: / in https://z.test/robots.txt:3"
    refused = readings.Reading("https://z.test/feed", now, now, read=1, reason=rule)
    refused = replace(refused, cause=readings.cause_of("R2", "disallowed_explicit"))
    assert named == summary.attention_lines([unread, moved, refused], now, 86400.0)
    outcomes = Counter(read=96, not_due=1, refused=1, deferred=1, failed=1)
    assert last == [summary.last_line(outcomes, 3, "finished", {"R2": 1})]


def test_the_time_limit_of_the_docs_is_one_that_stays() -> None:
    (found,) = (settings_of(each) for each in blocks("deploy.md") if "DOWNLOAD_TIMEOUT" in each)
    assert found.keys() <= seats.PREFERRED.keys()
    assert found["DOWNLOAD_TIMEOUT"] > seats.PREFERRED["DOWNLOAD_TIMEOUT"]


def test_systemd_and_a_container_run_what_cron_runs() -> None:
    page = (DOCS / "deploy.md").read_text()
    named = dict(re.findall(r"<!-- ([\w ]+) -->\n```\w*\n(.*?)```", page, re.DOTALL))
    minute, hour, *_, command = named["cron"].split(maxsplit=5)
    folder, words = re.fullmatch(r"cd (\S+) && (.*?) >> .*\n", command).groups()  # type: ignore[union-attr]
    service, timer = (read_ini(named[f"systemd {each}"]) for each in ("service", "timer"))
    assert service["Service"]["WorkingDirectory"] == folder
    assert service["Service"]["ExecStart"].startswith(f"{folder}/{words}")
    assert timer["Timer"]["OnCalendar"] == f"*-*-* {int(hour):02}:{minute}"
    command = next(line for line in named["container"].splitlines() if line.startswith("CMD "))
    ours = json.loads(command.removeprefix("CMD "))
    assert ours[:5] == ["scrapy", *shlex.split(words)[1:5]]
    for setting in (ours[-1], shlex.split(service["Service"]["ExecStart"])[-1]):
        assert setting.partition("=")[0] in config.DEFAULTS
    (volume,) = re.findall(r"^VOLUME (.*)$", named["container"], re.MULTILINE)
    assert ours[-1] == f"WALSH_STATE_DIR={volume}/walsh"
    assert f":{volume} " in named["container run"]


def read_ini(text: str) -> configparser.ConfigParser:
    found = configparser.ConfigParser(interpolation=None)
    found.optionxform = str  # type: ignore[assignment,method-assign]
    found.read_string(text)
    return found


@pytest.mark.parametrize(("delay", "missed"), [(2 * 3600.0, False), (6 * 3600.0, True)])
def test_a_random_delay_of_up_to_two_hours_loses_no_day(delay: float, missed: bool) -> None:
    rand, last, lost = random.Random(1), None, 0
    for day in range(400):
        now = day * 86400.0 + rand.uniform(0.0, delay)
        if visits.not_due(last, now, 86400.0, None) is None:
            last = visits.met(now, last, 86400.0)
        else:
            lost += 1
    assert (lost > 0) is missed


# -- fleet.md -----------------------------------------------------------------------------


def test_the_settings_of_a_fleet_are_accepted() -> None:
    pytest.importorskip("scrapy_redis", reason="in a clone: pip install -e '.[test]'")
    for block in blocks("fleet.md")[:2]:
        shown = settings_of(block)
        config = WalshConfig.from_settings({**SETTINGS, **shown}, default_state_dir)
        assert config.shared_state is not None
        for name in shown.keys() & {"SCHEDULER", "SCHEDULER_QUEUE_CLASS", "DUPEFILTER_CLASS"}:
            assert isinstance(load_object(shown[name]), type)


def test_the_spider_of_a_fleet_can_be_made() -> None:
    pytest.importorskip("scrapy_redis", reason="in a clone: pip install -e '.[test]'")
    names: dict[str, Any] = {}
    exec(blocks("fleet.md")[2], names)  # noqa: S102  our own documentation
    bases = [each.__name__ for each in names["MySpider"].__mro__]
    assert bases.index("DueSpiderMixin") < bases.index("RedisSpider")


def test_a_host_has_one_fleet_whatever_its_url() -> None:
    names: dict[str, Any] = {}
    exec(blocks("fleet.md")[3], names)  # noqa: S102  our own documentation
    of = names["fleet_of"]
    assert of("https://www.a.example/feed") == of("http://a.example:8080/x") in names["FLEETS"]
    assert {of(f"https://h{number}.example/") for number in range(20)} == set(names["FLEETS"])


# -- install.md ---------------------------------------------------------------------------


@pytest.mark.crawl
def test_trying_it_on_this_machine_works_as_shown(tmp_path: Path, typed_path: str) -> None:
    serve, crawl = blocks("install.md")[1].splitlines()
    assert shlex.split(serve) == ["walsh", "sandbox", "--port", "8123"]
    text = " ".join((DOCS / "install.md").read_text().split())
    mirror = re.findall(r"`(-s WALSH_\w+=\S+)`", text)
    assert mirror == [
        f"-s WALSH_BLOCKLIST_URL={OPERATOR}/blocklist.json",
        "-s WALSH_STATE_DIR=memory",
    ]
    settings = {**SETTINGS, "SPIDER_MODULES": ["scrapy_walsh.spiders"]}
    project = make_project(tmp_path / "project", settings=settings)
    with Sandbox(default_sites()) as box:
        done = subprocess.run(
            ["/bin/sh", "-c", f"{crawl.replace('8123', str(box.port))} {' '.join(mirror)}"],
            cwd=project,
            env={**os.environ, "PATH": typed_path, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert "rss.test" in hosts(box.log)


def test_scrapys_time_limit_is_the_one_that_the_docs_name() -> None:
    for page in ("install.md", "deploy.md"):
        assert f"{default_settings.DOWNLOAD_TIMEOUT} s" in (DOCS / page).read_text()
