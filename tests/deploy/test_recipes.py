"""The recipes of docs/recipes.md, run as they stand."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any

import pytest
import tomlkit

from scrapy_walsh.proof.sandbox import Sandbox
from tests.crawl.harness import OWN_IDENTITY, SETTINGS, crawl, environment, make_project

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.crawl

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "recipes.md").read_text()


def block(name: str) -> str:
    (text,) = re.findall(rf"<!-- {name} -->\n```\w+\n(.*?)```", PAGE, re.DOTALL)
    return str(text)


@pytest.fixture(scope="module")
def box() -> Iterator[Sandbox]:
    with Sandbox() as box:
        yield box


def test_an_email_comes_only_if_something_is_new(
    tmp_path: Path, box: Sandbox, typed_path: str
) -> None:
    mail, line = block("email").splitlines()
    assert mail.startswith("MAILTO=")
    *when, command = line.split(maxsplit=5)
    assert [each for each in when if not each.isdigit()] == ["*"] * 3
    assert "%" not in command  # a newline, to cron
    command = command.replace("/home/you/.venv/bin/walsh", "walsh")
    command = command.replace("/home/you", str(tmp_path))
    config = tmp_path / ".config/walsh/walsh.toml"
    config.parent.mkdir(parents=True)
    config.write_text(tomlkit.dumps({"identity": OWN_IDENTITY}))
    outline = '<outline text="a" xmlUrl="http://rss.test/feed.xml"/>'
    (tmp_path / "feeds.opml").write_text(f'<opml version="2.0"><body>{outline}</body></opml>')
    homes = {"HOME": str(tmp_path), "XDG_CONFIG_HOME": "", "XDG_STATE_HOME": ""}
    env = {**environment(tmp_path, box), **homes, "PATH": typed_path}
    mails = []
    for _ in range(2):
        done = subprocess.run(
            ["/bin/sh", "-c", command], cwd=tmp_path, env=env, capture_output=True, text=True,
            check=True,
        )  # fmt: skip
        assert done.stderr == ""
        mails.append(done.stdout)
    assert len(re.findall(r"^ +https?://", mails[0], re.MULTILINE)) == 6
    assert mails[1] == "", "nothing was due, so cron sends nothing"
    first, second = (tmp_path / "walsh.log").read_text().splitlines()
    assert first == "walsh: 1 of 1 source read; 6 new links"
    assert second.startswith("walsh: 0 of 1 source read, 1 not due")


def test_a_webhook_gets_one_message_with_all_new_links(tmp_path: Path, box: Sandbox) -> None:
    messages: list[Any] = []

    class Service(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            messages.append((self.headers["Content-Type"], json.loads(body)))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    names: dict[str, Any] = {}
    exec(block("webhook setting"), names)  # noqa: S102  our own documentation
    pipelines = {
        path.removeprefix("myproject."): place for path, place in names["ITEM_PIPELINES"].items()
    }
    settings = {
        **SETTINGS,
        "SPIDER_MODULES": ["scrapy_walsh.spiders"],
        "ITEM_PIPELINES": pipelines,
        "WALSH_REVISIT_REASON": "a test reads twice",
    }
    project = make_project(tmp_path / "project", settings=settings)
    (project / "pipelines.py").write_text(block("webhook"))
    with HTTPServer(("127.0.0.1", 0), Service) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        hook = {"WEBHOOK_URL": f"http://127.0.0.1:{server.server_port}/", "no_proxy": "127.0.0.1"}
        words = ["-m", "scrapy", "crawl", "walsh_metadata", "-a", "urls=http://rss.test/feed.xml"]
        for _ in range(2):
            done = subprocess.run(
                [sys.executable, *words, "-o", "items.jsonl"], cwd=project,
                env={**environment(project, box), **hook}, capture_output=True, text=True,
                check=True,
            )  # fmt: skip
            assert "ERROR" not in done.stderr, done.stderr
        server.shutdown()
    (message,) = messages  # the second run has nothing new
    assert message[0] == "application/json"
    lines = message[1]["text"].splitlines()
    items = [json.loads(line) for line in (project / "items.jsonl").read_text().splitlines()]
    assert len(lines) == len(items) == 6
    assert all(item["url"] in line for item, line in zip(items, lines, strict=True))


def test_the_dashboard_asks_for_metrics_that_a_run_writes(tmp_path: Path, box: Sandbox) -> None:
    pytest.importorskip("prometheus_client")
    settings = {
        **SETTINGS, "SPIDER_MODULES": ["scrapy_walsh.spiders"], "WALSH_METRICS": "walsh.prom",
    }  # fmt: skip
    project = make_project(tmp_path / "project", settings=settings)
    urls = ("http://rss.test/feed.xml", "http://path.test/private/x")
    assert crawl(project, box, *urls, spider_name="walsh_metadata").returncode == 0
    written = (project / "walsh.prom").read_text()
    queries = re.findall(r"^\| [^|]+ \| `(.*)` \|$", PAGE, re.MULTILINE)
    assert len(queries) == 6
    for query in queries:
        for name in re.findall(r"walsh_\w+", query):
            assert re.search(rf"^{name}\{{", written, re.MULTILINE), name
        for label in re.findall(r"by \((\w+)\)", query):
            (name,) = re.findall(r"walsh_\w+", query)
            assert re.search(rf'^{name}\{{.*\b{label}="', written, re.MULTILINE), label
