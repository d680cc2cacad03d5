"""T43: hosts of one server that limits its clients wait together, and are then spaced as one.

The crawls use no proxy, because only then an address is known. The server's log is the judge.
"""

from __future__ import annotations

import itertools
import json
import os
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest

from scrapy_walsh.commands.main import main
from scrapy_walsh.ledger.files import DOCUMENTS
from scrapy_walsh.proof.sandbox import Request, Route
from tests.crawl.harness import TOLERANCE, Crawl, site, state_dir, without_proxy
from tests.kit import report_of, write
from tests.ledger.test_crawl import ledger_of

if TYPE_CHECKING:
    from pathlib import Path

#: How many names the server has. The full number of the issue takes minutes.
NAMES = int(os.environ.get("WALSH_NEIGHBOURS", "9"))


SERVER = "@127.0.0.1"


@dataclass
class Window:
    """A route of many hosts: ``most`` requests in ``seconds``, then 429 until that is over."""

    most: int
    seconds: float
    began: float = -1e9
    count: int = 0
    refused: list[str] = field(default_factory=list)

    def __call__(self, request: Request) -> Route:
        now = time.monotonic()
        if now - self.began >= self.seconds:
            self.began, self.count = now, 0
        self.count += 1
        if self.count > self.most:
            self.refused.append(request.host)
            left = self.began + self.seconds - now
            return Route(429, headers={"Retry-After": f"{int(left) + 1}"})
        if request.path == "/robots.txt":
            return Route(body="User-agent: *\nAllow: /\n", content_type="text/plain")
        return Route(body="<p>page</p>")


@dataclass
class Seen:
    crawl: Crawl
    window: Window
    project: Path


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Seen:
    project = tmp_path_factory.mktemp("neighbours")
    window = Window(NAMES // 2, NAMES)
    sites = [site(f"n{n}.test", {"*": window, "/robots.txt": window}) for n in range(NAMES)]
    urls = [f"http://n{n}.test:PORT/p" for n in range(NAMES)]
    return Seen(without_proxy(project, *urls, sites=sites, timeout=900), window, project)


def test_r5_hosts_of_an_address_wait_together(seen: Seen) -> None:
    assert len([item for item in seen.crawl.items if item.get("status") == 200]) == NAMES
    assert 1 < len(seen.window.refused) <= 4
    assert len(set(seen.window.refused)) > 1


def test_then_they_are_spaced_as_one_host(seen: Seen) -> None:
    lines = [line for line in ledger_of(seen.project) if line["kind"] == "asked"]
    (first, *_) = [n for n, line in enumerate(lines) if line.get("server_wait")]
    later = [line for line in lines[first + 1 :] if line["purpose"] != "operator"]
    assert {line["server"] for line in lines[first:]} == {SERVER}
    # 2 s at first; after fifty accepted answers it becomes a fifth shorter (D28).
    assert later[0]["server_interval"] == 2.0
    assert min(line["server_interval"] for line in later) > 1.0
    assert not any(line["exempt"] for line in later)
    assert seen.crawl.lines("127.0.0.1: hosts there answer 429", "all of them wait")


def test_verify_derives_the_wait_and_state_show_has_the_server(
    seen: Seen, capsys: pytest.CaptureFixture[str]
) -> None:
    state = str(state_dir(seen.project))
    assert main(["verify", state, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["findings"] == []
    shown = ["state", "show", "--json", "--dir", state, "--identity", "walsh-research"]
    assert main(shown) == 0
    rows = {row["host"]: row for row in json.loads(capsys.readouterr().out)["hosts"]}
    port = next(iter(rows.keys() - {SERVER})).partition(":")[2]
    assert rows[SERVER]["learned"] > 1.0
    assert rows[f"n0.test:{port}"]["server"] == SERVER
    assert rows[f"n0.test:{port}"]["address"] == "127.0.0.1"


CHAIN = frozenset({"n", "prev", "hash"})


def forged(project: Path, folder: Path, **members: object) -> list[str]:
    """What verify finds if lines of requests with a server have other *members*."""
    entries = ledger_of(project)
    for entry in entries:
        if entry["kind"] == "asked" and entry.get("server"):
            entry.update({name: members[name] for name in members if entry.get(name) is not None})
    write(folder, [{key: entry[key] for key in entry if key not in CHAIN} for entry in entries])
    (folder / DOCUMENTS).write_bytes((state_dir(project) / DOCUMENTS).read_bytes())
    return [finding.text for finding in report_of(folder).findings]


def test_verify_finds_a_wait_that_was_left_out(seen: Seen, tmp_path: Path) -> None:
    assert forged(seen.project, tmp_path / "whole") == []
    found = forged(seen.project, tmp_path / "short", server_wait=0.0)
    assert [text for text in found if f"the hosts of {SERVER} wait for 0.000 s" in text], found
    found = forged(seen.project, tmp_path / "other", server="@127.0.0.9")
    assert [text for text in found if "@127.0.0.9, which is not of its host" in text], found
    none = {"server": "", "server_wait": None, "server_interval": None}
    found = forged(seen.project, tmp_path / "none", **none)
    assert [text for text in found if f"the hosts of {SERVER} wait for 0.000 s" in text], found


def test_the_report_names_the_server_of_a_host(seen: Seen, tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    assert main(["report", str(state_dir(seen.project)), "-o", str(page)]) == 0
    text = page.read_text("utf-8")
    named = {line["host"] for line in ledger_of(seen.project) if line.get("server")}
    assert text.count("paced with the hosts of") == len(named) > 1
    assert text.count(">127.0.0.1</bdi></small>") == len(named)


def test_by_address_all_hosts_are_spaced_as_one(tmp_path: Path) -> None:
    urls = [f"http://{name}.test:PORT/p" for name in ("one", "two", "three")]
    crawl = without_proxy(tmp_path, *urls, settings={"WALSH_PACE_BY": "address"})
    hosts = [url.split("/")[2].partition(":")[0] for url in urls]
    log = [each for each in crawl.log if each.host.partition(":")[0] in hosts]
    log.sort(key=lambda each: each.arrived)
    assert len(log) == 6
    for earlier, later in itertools.pairwise(log):
        assert later.arrived - earlier.arrived >= 1.0 - TOLERANCE
    assert forged(tmp_path, tmp_path / "whole") == []
    found = forged(tmp_path, tmp_path / "fast", server_interval=0.2)
    assert [text for text in found if f"{SERVER} is paced by 0.2 s, 1 s are due" in text], found


def test_names_that_the_operator_puts_together_are_spaced_on_top_of_r4(tmp_path: Path) -> None:
    urls = [f"http://{name}.test:PORT/p" for name in ("a.blog", "b.blog", "c.blog", "alone")]
    settings = {"WALSH_PACE_BY": {"*.blog.test": "blogs"}}
    crawl = without_proxy(tmp_path, *urls, settings=settings)
    blogs = sorted(
        (each for each in crawl.log if ".blog." in each.host), key=lambda each: each.arrived
    )
    assert len(blogs) == 6
    for earlier, later in itertools.pairwise(blogs):
        assert later.arrived - earlier.arrived >= 1.0 - TOLERANCE
    assert main(["verify", str(state_dir(tmp_path))]) == 0
