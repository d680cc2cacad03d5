"""Each benchmark at its smallest size: it runs, and its JSON has what its README promises."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from scrapy_walsh.proof.sandbox import LoggedRequest
from tests import zygote

ROOT = Path(__file__).parents[2]


def run(name: str, folder: Path) -> dict[str, Any]:
    output = folder / "rows.json"
    done = zygote.run(
        [sys.executable, str(ROOT / "bench" / f"{name}.py"), "--quick", "--json", str(output)],
        cwd=folder,
        env={key: value for key, value in os.environ.items() if key != "PYTHONPATH"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return {**json.loads(output.read_text()), "table": done.stdout.splitlines()}


@pytest.mark.crawl
def test_makespan_keeps_every_promise_and_says_how_long_it_took(tmp_path):
    result = run("makespan", tmp_path)
    rows = {row["bot"]: row for row in result["rows"] if row["load"] == "tiny"}
    delayed = {row["bot"]: row for row in result["rows"] if row["load"] == "tiny, delays"}
    assert set(rows) == set(delayed) == {"stock", "ours"}
    for row in delayed.values():
        assert row["requests"] == 6  # three targets on two hosts, one of them sent twice
        assert row["bound s"] == pytest.approx(3.2)  # robots.txt, three targets, two Crawl-delays
    assert delayed["ours"]["violations"] == 0 < delayed["stock"]["violations"]
    for row in rows.values():
        assert row["requests"] == 8  # five targets on three hosts
        assert row["took s"] == pytest.approx(row["ratio"] * row["bound s"], rel=0.01)
        assert row["bound s"] == pytest.approx(0.8)  # robots.txt, three targets, two intervals
    assert rows["ours"]["violations"] == 0
    assert rows["ours"]["in flight"] == 1
    assert rows["ours"]["took s"] >= 0.8
    assert 0.05 <= result["handler_latency"] < 5
    day = {row["bot"]: row for row in result["rows"] if row["load"] == "tiny, day"}
    for bot in ("serial", "ours"):
        assert day[bot]["requests"] == 7  # a robots.txt of each, three targets, two of them twice
        assert day[bot]["violations"] == day[bot]["left"] == 0
        assert day[bot]["in flight"] == 1
    assert day["ours"]["took s"] == pytest.approx(
        day["ours"]["of serial"] * day["serial"]["took s"], rel=0.01
    )


def test_makespan_finds_a_request_before_the_end_of_a_retry_after(monkeypatch):
    monkeypatch.setattr(sys, "path", [str(ROOT), *sys.path])
    makespan = import_module("bench.makespan")
    storms = {0: [{"status": 503, "headers": {"Retry-After": "3"}}]}
    seen = [
        LoggedRequest(at, at + 0.1, at, "http", "a.test", "GET", path, path, (), 1, 1, status)
        for at, path, status in ((0.0, "/robots.txt", 200), (2.0, "/0", 503), (4.0, "/0", 200))
    ]
    assert makespan.violations(seen, 1.0) == 0
    assert makespan.violations(seen, 1.0, {}, storms) == 1


def test_a_load_like_a_day_has_what_a_day_has(monkeypatch):
    monkeypatch.setattr(sys, "path", [str(ROOT), *sys.path])
    makespan = import_module("bench.makespan")
    load = makespan.LOADS["day, dead"]
    assert len(load.hosts) - len(load.dead) == 508
    assert len(set(load.hosts)) == 411
    counted = (load.delays, load.storms, load.moved, load.bare, load.failed, load.dead)
    assert [len(each) for each in counted] == [34, 11, 25, 133, 16, 11]
    assert not {load.hosts[number] for number in (*load.storms, *load.moved)} & load.dead


@pytest.mark.crawl
@pytest.mark.skipif(shutil.which("redis-server") is None, reason="no redis-server here")
def test_fleet_keeps_the_spacing_and_counts_its_round_trips(tmp_path):
    result = run("fleet", tmp_path)
    assert [(row["workers"], row["requests"]) for row in result["rows"]] == [(1, 5), (2, 10)]
    for row in result["rows"]:
        assert row["violations"] == 0
        assert row["trips"] > 1  # each request is booked, whatever else
        assert row["took s"] > 2.4  # a robots.txt and two targets, the second a second later
    assert result["rows"][0]["of one"] == 1.0


def test_tools_measure_each_command_on_a_ledger_that_holds(tmp_path):
    rows = run("tools", tmp_path)["rows"]
    assert [row["command"] for row in rows] == [
        *("report --days", "report --days", "report --host", "report --host"),
        *("verify", "state verify", "state show"),
    ]
    for row in rows:
        assert row["cpu s"] > 0
        assert row["MB"] > 10
        assert ("ratio" in row) == bool(row["of"])


def test_queue_measures_both_queues_and_the_jobdir(tmp_path):
    result = run("queue", tmp_path)
    assert [(row["hosts"], row["queue"]) for row in result["memory"]] == [
        (100, "stock"),
        (100, "ours"),
        (1000, "stock"),
        (1000, "ours"),
    ]
    for row in result["memory"]:
        assert row["pops"] == row["hosts"] * 1.4  # every tenth host has five requests
        assert 0 < row["pop us"] <= row["p99 us"] <= row["most ms"] * 1e3
    disk = {row["queue"]: row for row in result["disk"]}
    assert disk["ours"]["pushed"] == disk["ours"]["popped"] == 600
    assert disk["ours"]["files"] < 50
    assert disk["ours"]["requests"] == disk["ours"]["hosts"] == 600
    assert disk["ours"]["held MB"] < 50
    assert disk["stock"]["pushed"] <= 600


def test_simulation_keeps_the_spacing_near_the_lower_bound(tmp_path):
    result = run("simulate", tmp_path)
    rows = {row["load"]: row for row in result["rows"]}
    assert set(rows) == {"even", "zipf"}
    for row in rows.values():
        assert row["violations"] == 0
        assert row["hosts"] == 1000
        assert 10_000 < row["requests"] < 12_000
        assert row["makespan s"] == pytest.approx(row["ratio"] * row["bound s"])
        assert 1 <= row["ratio"] <= 1.05
    assert rows["zipf"]["bound by"] == "hosts"
    ratios = [row["ratio"] for row in result["delayed"]]
    assert len(ratios) == 36
    assert not any(row["violations"] for row in result["delayed"])
    assert sum(ratios) / len(ratios) <= 1.03
    assert max(ratios) <= 1.08


def test_simulation_judge_counts_a_request_that_comes_too_soon(monkeypatch):
    monkeypatch.setattr(sys, "path", [str(ROOT), *sys.path])
    simulate = import_module("bench.simulate")
    run = simulate.Run(simulate.counts(1, 3, 0.0))
    run.delays[0] = 0.0
    (host,) = run.hosts
    host.traffic.least = 0.5
    run.crawl()
    assert run.violations == 2


@pytest.mark.crawl
def test_pauses_measures_each_way_to_a_list_beside_stock_scrapy(tmp_path):
    result = run("pauses", tmp_path)
    assert [row["crawl"] for row in result["rows"]] == [
        "stock download",
        "first fetch",
        "from the store",
        "refresh, another list",
        "refresh, 304",
    ]
    for row in result["rows"]:
        assert row["entries"] == 5000
        assert 0 < row["wall ms"] < row["took s"] * 1e3 + 1e3
        assert row["cpu ms"] > 0
    (read,) = result["documents"]
    assert (read["outcome"], read["items"], read["octets"] > 250_000) == ("failed", 0, True)
    assert 0 <= read["cpu ms"] <= read["took s"] * 1e3
    assert [(row["urls"], row["bot"]) for row in result["intake"]] == [
        (500, "stock"),
        (500, "ours"),
    ]
    for row in result["intake"]:
        assert row["wall ms"] > 0
        assert row["first s"] > 0
        assert row["intake s"] > 0


@pytest.mark.crawl
def test_hanging_hosts_cost_time_and_no_other_source(tmp_path):
    rows = run("hanging", tmp_path)["rows"]
    assert [(row["hang"], row["run"]) for row in rows] == [(0, 1), (0, 2), (1, 1), (1, 2)]
    for row in rows:
        assert row["violations"] == 0
        assert row["read"] == row["sources"] - row["hang"]
        assert row["makespan s"] == pytest.approx(row["ratio"] * row["bound s"], rel=0.01)
    without, _, with_one, next_day = rows
    assert without["waited s"] == 0
    assert without["makespan s"] >= without["bound s"] == pytest.approx(4.9)  # 98 answers
    assert with_one["waited s"] == pytest.approx(with_one["attempts"] * with_one["timeout s"])
    assert with_one["makespan s"] >= without["makespan s"] + with_one["waited s"]
    assert next_day["attempts"] == 1
    assert next_day["live after"] == 0
    assert next_day["timeouts more"] <= 1.05


def test_real_robots_counts_what_is_refused_beyond_protego(tmp_path):
    folder, output = tmp_path / "files", tmp_path / "rows.json"
    folder.mkdir()
    (folder / "a.test").write_text("User-agent: *\nDisallow: /*.xml\nAllow: /sitemap\n")
    (folder / "b.test").write_text("User-agent: *\nDisallow /\n")
    (folder / "c.test").write_text("User-agent: *\nDisallow: /\n")
    options = ["--list", "--bot", "ExampleBot", "--json", str(output)]
    done = subprocess.run(
        [sys.executable, "-m", "bench.real_robots", str(folder), *options],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    rows = {row["pages"]: row for row in json.loads(output.read_text())["rows"]}
    assert set(rows) == {"homepages", "feeds", "sitemaps"}
    assert rows["homepages"]["URLs"] == 3
    assert rows["homepages"]["allowed by Protego"] == 1
    assert rows["homepages"]["of those refused"] == 0
    assert (
        rows["homepages"]["refused by Protego alone"] == 0
    )  # b.test has no colon: read by us, too
    assert rows["sitemaps"]["allowed by Protego"] == rows["sitemaps"]["of those refused"] == 2
    assert rows["sitemaps"]["share"] == 1.0
    assert "ExampleBot: a.test /sitemap.xml: Disallow: /*.xml" in done.stdout


def test_sign_measures_what_a_signature_costs(tmp_path):
    (row,) = run("sign", tmp_path)["rows"]
    assert 0 < row["bare_us"] < row["sign_us"]
    assert row["ratio"] == pytest.approx(row["sign_us"] / row["bare_us"])
    assert row["verify_us"] > 0


@pytest.mark.crawl
def test_connections_compares_one_for_each_request_with_one_that_is_kept(tmp_path):
    rows = {row["side"]: row for row in run("connections", tmp_path)["rows"]}
    assert list(rows) == ["one each", "kept"]
    for row in rows.values():
        assert row["requests"] == 3  # robots.txt and two targets
        assert row["took s"] >= 1  # between the targets
        assert row["violations"] == 0
        assert row["in flight"] == 1
        assert row["less"] == pytest.approx(
            1 - row["took s"] / rows["one each"]["took s"], abs=1e-3
        )
    assert rows["one each"]["connections"] == 3
    assert rows["kept"]["connections"] < 3


NAMES = [
    *("makespan", "hanging", "connections", "queue", "simulate", "blocklist"),
    *("pauses", "gates", "robots", "real_robots", "state", "lab", "sign", "dead"),
]


@pytest.mark.parametrize("name", NAMES)
def test_readme_names_every_benchmark_and_its_command(name):
    text = (ROOT / "bench" / "README.md").read_text()
    assert f"python bench/{name}.py" in text or f"python -m bench.{name}" in text


@pytest.mark.crawl
def test_dead_compares_two_crawls_of_hosts_that_swallow_packets(tmp_path):
    serial, ours = run("dead", tmp_path)["rows"]
    assert (serial["bot"], ours["bot"]) == ("serial", "ours")
    assert serial["of serial"] == 1.0
    for row in (serial, ours):
        assert (row["dead"], row["violations"], row["left"]) == (1, 0, 0)
        assert row["took s"] > 6.0  # two time-outs


@pytest.mark.crawl
def test_cost_compares_crawls_of_the_same_hosts(tmp_path):
    rows = {row["crawler"]: row for row in run("cost", tmp_path)["rows"]}
    assert list(rows) == ["stock", "stock, not kept", "ours", "ours, no ledger", "ours, no state"]
    for row in rows.values():
        assert row["targets"] == 10
        assert row["ratio"] == pytest.approx(row["us a target"] / rows["stock"]["us a target"])


@pytest.mark.crawl
def test_start_compares_each_command_with_scrapys(tmp_path):
    rows = {row["command"]: row for row in run("start", tmp_path)["rows"]}
    crawls, commands = list(rows)[:2], list(rows)[2:]
    for plain, ours in (crawls, commands):
        assert rows[plain]["ratio"] == 1
        assert rows[ours]["ratio"] == pytest.approx(rows[ours]["cpu s"] / rows[plain]["cpu s"])


@pytest.mark.crawl
def test_memory_has_a_row_for_each_step(tmp_path):
    result = run("memory", tmp_path)
    rows = result["rows"]
    assert [row["requests"] for row in rows] == [20, 40, 60, 80, 100, 120]
    assert [row["hosts"] for row in rows] == [10, 20, 30, 40, 50, 60]
    assert all(row["MB"] > 10 for row in rows)
    for row in rows[2:]:
        assert row["of 20k"] == pytest.approx(row["MB"] / rows[1]["MB"])
