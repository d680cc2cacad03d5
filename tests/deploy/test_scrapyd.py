"""scrapyd on loopback: the documented commands deploy the example project and run it."""

from __future__ import annotations

import json
import os
import shlex
import socket
import subprocess
import sys
import time
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode
from urllib.request import ProxyHandler, build_opener

import pytest

from scrapy_walsh.proof.sandbox import Sandbox, paths, user_agents
from tests.crawl.harness import OPERATOR
from tests.deploy.conftest import DOCS, EXAMPLE_AGENT, copy_project, snippet

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytest.importorskip("scrapyd", reason="in a clone: pip install -e '.[deploy-test]'")
pytest.importorskip("scrapyd_client", reason="in a clone: pip install -e '.[deploy-test]'")

pytestmark = pytest.mark.crawl

MIRROR = f"""
WALSH_BLOCKLIST_URL = "{OPERATOR}/blocklist.json"
WALSH_BLOCKLIST_SCHEMA_URL = "{OPERATOR}/blocklist.schema.json"
"""
SCRIPTS = Path(sys.executable).parent
#: The commands speak to loopback, whatever proxy the crawls are given.
DIRECT = build_opener(ProxyHandler({}))


@dataclass
class Scrapyd:
    folder: Path
    url: str

    def get(self, service: str) -> dict[str, Any]:
        with DIRECT.open(f"{self.url}{service}", timeout=60) as answer:
            return dict(json.load(answer))

    def post(self, curl: str) -> dict[str, Any]:
        """What a ``curl URL -d NAME=VALUE ...`` line does."""
        words = shlex.split(curl)
        assert words[0] == "curl"
        given = [word for flag, word in pairwise(words) if flag in ("-d", "--data-urlencode")]
        pairs = dict(word.split("=", 1) for word in given)
        with DIRECT.open(words[1], urlencode(pairs).encode(), timeout=60) as answer:
            return dict(json.load(answer))

    def finished(self, job: str) -> bool:
        found = self.get("listjobs.json?project=example_project")["finished"]
        return job in {entry["id"] for entry in found}

    def output(self, kind: str, job: str) -> str:
        suffix = {"logs": "log", "items": "jl"}[kind]
        return (self.folder / kind / f"example_project/walsh_metadata/{job}.{suffix}").read_text()


def wait_for(what: Callable[[], bool], seconds: float) -> None:
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end
        time.sleep(0.1)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture
def box() -> Iterator[Sandbox]:
    with Sandbox() as running:
        yield running


@pytest.fixture
def scrapyd(tmp_path: Path, box: Sandbox) -> Iterator[Scrapyd]:
    folder, port = tmp_path / "scrapyd", free_port()
    folder.mkdir()
    (folder / "scrapyd.conf").write_text(
        f"[scrapyd]\nhttp_port = {port}\npoll_interval = 0.2\nitems_dir = items\n"
    )
    server = Scrapyd(folder, f"http://localhost:{port}/")
    with (folder / "server.log").open("w") as log:
        process = subprocess.Popen(
            [str(SCRIPTS / "scrapyd")],
            cwd=folder,
            env={**os.environ, "http_proxy": box.proxy_url, "https_proxy": box.proxy_url},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    try:
        wait_for(lambda: answers(port), 60)
        yield server
    finally:
        process.terminate()
        process.wait(10)


def answers(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def test_scrapyd_runs_the_project_from_its_egg(scrapyd: Scrapyd, box: Sandbox, tmp_path: Path):
    deploy, schedule = snippet(DOCS, "scrapyd").splitlines()
    project = copy_project(tmp_path / "project")
    for path, old, new in (
        (project / "scrapy.cfg", "http://localhost:6800/", scrapyd.url),
        (project / "example_project/settings.py", "WALSH_IDENTITY", f"{MIRROR}WALSH_IDENTITY"),
    ):
        path.write_text(path.read_text().replace(old, new))
    deployed = subprocess.run(
        [str(SCRIPTS / deploy)],
        cwd=project,
        env={**os.environ, "no_proxy": "localhost"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert '"status": "ok"' in deployed.stdout, deployed.stderr
    assert "walsh_metadata" in scrapyd.get("listspiders.json?project=example_project")["spiders"]

    command = schedule.replace("http://localhost:6800/", scrapyd.url)
    command = command.replace("https://site.example/", "http://path.test/private/x")
    command = command.replace("https://other.example/feed.xml", "http://rss.test/feed.xml")
    first = scrapyd.post(command)["jobid"]
    wait_for(lambda: scrapyd.finished(first), 60)
    items = [json.loads(line) for line in scrapyd.output("items", first).splitlines()]
    log = scrapyd.output("logs", first)
    assert {item["source"] for item in items} == {"rss.test"}, log
    assert "refused http://path.test/private/x (R2 disallowed_explicit)" in log
    assert user_agents(box.log) == {EXAMPLE_AGENT}
    assert paths(box.log, "path.test") == ["/robots.txt"]

    box.clear()
    second = scrapyd.post(command)["jobid"]
    wait_for(lambda: scrapyd.finished(second), 60)
    assert "(R8 not_due)" in scrapyd.output("logs", second)
    assert box.log == []
    assert (scrapyd.folder / ".scrapy/walsh").is_dir()
