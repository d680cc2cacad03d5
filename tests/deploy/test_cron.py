"""The line of docs/deploy.md for a crontab, run twice."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from scrapy_walsh.proof.sandbox import Sandbox, hosts
from tests.crawl.harness import OPERATOR
from tests.deploy.conftest import DAILY, DOCS, copy_project, snippet

pytestmark = pytest.mark.crawl

SCRAPY = shlex.quote(str(Path(sys.executable).parent / "scrapy"))
SOURCES = """
[[source]]
name = "feed"
url = "http://rss.test/"
feed = "http://rss.test/feed.xml"

[[source]]
name = "markdown"
url = "http://markdown.test/notes"

[[source]]
name = "closed"
url = "http://path.test/private/x"
"""


def daily_project(directory: Path) -> Path:
    """The example project with SOURCES, and the sandbox's operator."""
    project = copy_project(directory)
    (project / "sources.toml").write_text(SOURCES)
    settings = project / "example_project/settings.py"
    mirror = f'WALSH_BLOCKLIST_URL = "{OPERATOR}/blocklist.json"\n'
    settings.write_text(settings.read_text() + mirror)
    return project


def command_of(line: str, project: Path) -> str:
    """The command in a line of a crontab, as it runs here in *project*."""
    minute, hour, *days, command = line.split(maxsplit=5)
    assert (minute.isdigit(), hour.isdigit(), days) == (True, True, ["*"] * 3)
    assert "%" not in command  # a newline, to cron
    command = command.replace("/srv/example_project", shlex.quote(str(project)))
    return command.replace(".venv/bin/scrapy", SCRAPY)


def test_own_cron_sends_no_mail_of_a_run_that_needs_nobody(tmp_path: Path) -> None:
    project = daily_project(tmp_path / "project")
    variable, line = snippet(DOCS, "cron-mail").splitlines()
    assert variable.startswith("MAILTO=")
    with Sandbox() as box:
        environment = {**os.environ, "http_proxy": box.proxy_url, "https_proxy": box.proxy_url}
        done = subprocess.run(
            ["/bin/sh", "-c", command_of(line, project)],
            cwd="/",
            env=environment,
            capture_output=True,
            timeout=60,
            check=False,
        )
        assert "rss.test" in hosts(box.log)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    assert (project / "items.jsonl").read_text()


def test_own_cron_runs_twice_a_day_and_asks_once(tmp_path: Path) -> None:
    project = daily_project(tmp_path / "project")
    command = command_of(snippet(DOCS, "cron"), project)
    with Sandbox() as box:
        environment = {
            **os.environ,
            "http_proxy": box.proxy_url,
            "https_proxy": box.proxy_url,
        }

        def run() -> None:
            done = subprocess.run(
                ["/bin/sh", "-c", command],
                cwd="/",
                env=environment,
                capture_output=True,
                timeout=60,
                check=False,
            )
            assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")

        run()
        items = (project / "items.jsonl").read_text()
        assert {json.loads(line)["source"] for line in items.splitlines()} == {"feed", "markdown"}
        assert {"rss.test", "markdown.test", "path.test"} <= set(hosts(box.log))
        box.clear()
        run()
        assert box.log == []
        command = snippet(DAILY, "reason").replace("scrapy", SCRAPY, 1)
        command = f"cd {shlex.quote(str(project))} && {command.strip()} >> crawl.log 2>&1"
        run()  # the written reason of docs/daily.md
        assert {"rss.test", "markdown.test"} <= set(hosts(box.log))
    assert (project / "items.jsonl").read_text() == items
    assert "(R8 not_due)" in (project / "crawl.log").read_text()
