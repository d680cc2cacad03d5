"""``walsh state show`` and ``walsh plan`` of a fleet: what Redis holds, and nothing changed."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

import pytest

from scrapy_walsh.commands.common import view
from scrapy_walsh.commands.main import main
from scrapy_walsh.fleet.store import SharedStore
from scrapy_walsh.proof.sandbox import blocklist
from scrapy_walsh.state import open_store
from scrapy_walsh.state.records import (
    BLOCKLIST,
    ROBOTS,
    Deferral,
    HostRecord,
    StoredDocument,
    VisitRecord,
)
from scrapy_walsh.state.store import MemoryStore, SqliteStore
from tests.crawl.harness import make_project, run_scrapy

if TYPE_CHECKING:
    from pathlib import Path

    from scrapy_walsh.proof.sandbox import Sandbox
    from scrapy_walsh.state.store import Store
    from tests.fleet.fleet import Server

HOUR = 3600.0
IDENTITY = "walsh-research"
URL = "http://h.test/feed"
LIST = json.dumps(blocklist("http://o.test", "asked.test")).encode()


def fill(server: Server) -> None:
    """What another machine's worker has learnt."""
    now = time.time()
    store = SharedStore(open_store(None), server.url, IDENTITY)
    store.book_host(HostRecord("h.test", now, 2.0, now + 2 * HOUR))
    store.put(VisitRecord("http://asked.test/feed", now - 60, "200"))
    store.put(Deferral(URL, "h.test", now + 2 * HOUR, "Retry-After"))
    for kind, key, body in (
        (ROBOTS, "http://asked.test", b"User-agent: *\nAllow: /\n"),
        # The plan has another address, where this list binds as well: it must be readable (D39).
        (BLOCKLIST, "http://o.test/list.json", LIST),
    ):
        store.put(StoredDocument(kind, key, key, body, now - 10, 200, "parse"))
    store.close()


def content(server: Server) -> dict[bytes, Any]:
    """Each key with its fields; Redis may dump those of a large hash in another order later."""
    client = server.client
    return {
        key: client.hgetall(key) if client.type(key) == b"hash" else client.dump(key)
        for key in client.scan_iter()
    }


def rows(store: Store) -> list[Any]:
    return [
        *(record.host for record in store.rows(HostRecord)),
        *(deferral.url for deferral in store.rows(Deferral)),
        *(run.url for run in store.rows(VisitRecord)),
        *(
            document.key
            for kind in (ROBOTS, BLOCKLIST)
            for document in store.rows(StoredDocument, kind)
        ),
    ]


def test_a_view_reads_all_and_writes_nothing(server: Server, tmp_path: Path) -> None:
    fill(server)
    before = content(server)
    local = SqliteStore(tmp_path)
    local.put(Deferral("http://done.test/", "done.test", time.time(), "dropped by others"))
    seen = view(local, server.url, IDENTITY)
    assert rows(seen) == [
        "h.test",
        URL,
        "http://asked.test/feed",
        "http://asked.test",
        "http://o.test/list.json",
    ]
    found = seen.get(HostRecord, "h.test")
    assert found is not None
    assert found.not_before == pytest.approx(time.time() + 2 * HOUR, abs=5)
    assert seen.get(StoredDocument, BLOCKLIST, "http://o.test/list.json") is not None
    assert rows(local) == ["http://done.test/"]
    assert content(server) == before
    with pytest.raises(NotImplementedError):
        seen.delete(VisitRecord, URL)
    seen.close()


def test_a_view_of_an_empty_redis_leaves_nothing_there(server: Server, tmp_path: Path) -> None:
    before = content(server)
    seen = view(SqliteStore(tmp_path), server.url, IDENTITY)
    assert rows(seen) == []
    assert content(server) == before
    seen.close()


def test_d40_a_hold_is_lifted_in_redis_unless_a_crawl_of_the_fleet_runs(
    server: Server, tmp_path: Path
) -> None:
    fill(server)
    project = make_project(tmp_path, settings={"WALSH_SHARED_STATE": server.url})
    lift = ("walsh", "state", "forget", "h.test", "--hold", "a mistake")
    crawl = SharedStore(open_store(None), server.url, IDENTITY)
    crawl.let_wait(lambda: None)
    crawl.tend()
    refused = run_scrapy(project, None, *lift)
    assert (refused.returncode, "1 crawl of the fleet" in refused.stdout) == (2, True)
    crawl.close()
    assert run_scrapy(project, None, *lift).returncode == 0
    seen = view(MemoryStore(), server.url, IDENTITY)
    found = seen.get(HostRecord, "h.test")
    assert (found is not None and found.not_before) is None
    assert list(seen.rows(Deferral)) == []
    seen.close()


def test_without_redis_the_copy_speaks_and_one_line_says_so(server: Server) -> None:
    server.kill()
    local = MemoryStore()
    local.put(VisitRecord(URL, 1.0, "200"))
    seen = view(local, server.url, IDENTITY)
    assert rows(seen) == [URL]
    (notice,) = seen.notices
    assert server.url in notice
    assert notice.endswith("this machine's copy is read instead")


def test_state_show_tells_what_the_fleet_holds(
    box: Sandbox, server: Server, tmp_path: Path
) -> None:
    fill(server)
    project = make_project(
        tmp_path / "p", settings={"WALSH_SHARED_STATE": server.url, "WALSH_IDENTITY": IDENTITY}
    )
    shown = run_scrapy(project, box, "walsh", "state", "show")
    assert shown.returncode == 0
    assert server.url in shown.stdout.splitlines()[0]
    assert "wait longest first: 1" in shown.stdout
    assert "deferred targets: 1" in shown.stdout
    assert "documents: 2" in shown.stdout
    assert "http://asked.test/feed" in shown.stdout
    server.kill()
    away = run_scrapy(project, box, "walsh", "state", "show", "--json")
    assert away.returncode == 0
    said, found = away.stdout.splitlines()
    assert "cannot be relied on" in said
    assert json.loads(found)["hosts"] == []


def test_a_plan_goes_by_what_the_fleet_holds(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    fill(server)
    before = content(server)
    monkeypatch.chdir(tmp_path)
    settings = {"IDENTITY": IDENTITY, "STATE_DIR": "state", "SHARED_STATE": server.url}
    given = [part for name, value in settings.items() for part in ("-s", f"WALSH_{name}={value}")]
    urls = f"urls={URL} http://asked.test/feed http://new.test/feed"
    assert main(["plan", "-a", urls, *given, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert {target["url"]: target["decision"] for target in found["targets"]} == {
        URL: "defer",
        "http://asked.test/feed": "skip",
        "http://new.test/feed": "ask",
    }
    assert content(server) == before
    assert list(tmp_path.glob("state/*")) == []
