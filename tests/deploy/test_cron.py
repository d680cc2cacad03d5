"""The line of docs/deploy.md for a crontab, run twice."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
from typing import TYPE_CHECKING

import pytest

from scrapy_walsh.proof.sandbox import Sandbox, hosts
from tests.crawl.harness import OPERATOR
from tests.deploy.conftest import DAILY, DOCS, copy_project, snippet

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.crawl

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
    """The command in a line of a crontab, as it runs here in *project*: ``scrapy`` is on PATH."""
    minute, hour, *days, command = line.split(maxsplit=5)
    assert (minute.isdigit(), hour.isdigit(), days) == (True, True, ["*"] * 3)
    assert "%" not in command  # a newline, to cron
    command = command.replace("/srv/example_project", shlex.quote(str(project)))
    return command.replace(".venv/bin/scrapy", "scrapy")


def test_cron_runs_twice_a_day_asks_once_and_sends_no_mail_where_nobody_is_needed(
    tmp_path: Path, typed_path: str
) -> None:
    project = daily_project(tmp_path / "project")
    variable, line = snippet(DOCS, "cron-mail").splitlines()
    assert variable.startswith("MAILTO=")
    with Sandbox() as box:
        proxies = {"http_proxy": box.proxy_url, "https_proxy": box.proxy_url}

        def run(command: str) -> None:
            done = subprocess.run(
                ["/bin/sh", "-c", command],
                cwd="/",
                env={**os.environ, **proxies, "PATH": typed_path},
                capture_output=True,
                timeout=60,
                check=False,
            )
            assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")

        run(command_of(line, project))
        items = (project / "items.jsonl").read_text()
        assert {json.loads(line)["source"] for line in items.splitlines()} == {"feed", "markdown"}
        assert {"rss.test", "markdown.test", "path.test"} <= set(hosts(box.log))
        box.clear()
        run(command_of(snippet(DOCS, "cron"), project))
        assert box.log == []
        reason = snippet(DAILY, "reason")
        run(f"cd {shlex.quote(str(project))} && {reason.strip()} >> crawl.log 2>&1")
        assert {"rss.test", "markdown.test"} <= set(hosts(box.log))
    assert (project / "items.jsonl").read_text() == items
    assert "(R8 not_due)" in (project / "crawl.log").read_text()
