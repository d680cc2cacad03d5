"""What a run says it did: one outcome for each target, in the stats, the log and the ledger."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from scrapy_walsh.proof.sandbox import Route
from tests.crawl.harness import Crawl, side_by_side, site, solo, state_dir
from tests.kit import report_of, wrong_in

if TYPE_CHECKING:
    from pathlib import Path

FAILED = Route(500)
#: Targets with one outcome each: after two retries, after a redirect, after a wait for the host,
#: without success, after one redirect too many, and refused.
URLS = (
    "http://thrice.test/p",
    "http://moved.test/a",
    "http://busy.test/1",
    "http://busy.test/2",
    "http://failing.test/p",
    "http://redirect.test/hops/9",
    "http://denied.test/p",
)
SITES = (
    site("thrice.test", {"/p": Route(sequence=(FAILED, FAILED, Route(body="<p>at last</p>")))}),
    site("moved.test", {"/a": Route(302, location="/b")}),
    site("busy.test"),
    site("failing.test", {"/p": FAILED}),
    site("denied.test", robots="User-agent: *\nDisallow: /\n"),
)
GOT = {
    "http://thrice.test/p": 200,
    "http://moved.test/b": 200,
    "http://busy.test/1": 200,
    "http://busy.test/2": 200,
}
LAST_HOP = "http://redirect.test/hops/4"
#: In memory, and in the file of a JOBDIR: there a retry is another object than its request.
QUEUES = {"memory": (), "JOBDIR": ("-s", "JOBDIR=job")}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("told")


@pytest.fixture(scope="module")
def runs(folder: Path) -> dict[str, Crawl]:
    settings = {
        "WALSH_BACKOFF_BASE": 0.01,
        "WALSH_MAX_RETRIES": 2,
        "WALSH_ROBOTS_CACHE_SIZE": 3,
        "HTTPERROR_ALLOW_ALL": True,
    }
    jobs: dict[str, Any] = {
        name: {"sites": SITES, "settings": settings, "arguments": arguments}
        for name, arguments in QUEUES.items()
    }
    return side_by_side(folder, jobs, *URLS)


def ledger(folder: Path, name: str) -> list[dict[str, Any]]:
    path = state_dir(folder / str([*QUEUES].index(name))) / "ledger.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()]


def fetched(run: Crawl) -> dict[str, int]:
    return {item["url"]: item["status"] for item in run.items if "status" in item}


@pytest.mark.parametrize("name", QUEUES)
def test_fetched_is_what_the_spider_got(runs: dict[str, Crawl], folder: Path, name: str) -> None:
    assert fetched(runs[name]) == GOT
    assert runs[name].stats["walsh/fetched"] == len(GOT)
    assert len(runs[name].lines("[scrapy_walsh] DEBUG: fetched http")) == len(GOT)
    lines = [line for line in ledger(folder, name) if line["kind"] == "fetched"]
    assert {line["url"]: line["status"] for line in lines} == GOT
    assert len(lines) == len(GOT)
    assert all(line["verdict"] == "allowed_explicit" for line in lines)


@pytest.mark.parametrize("name", QUEUES)
def test_a_target_is_one_verdict_however_often_it_is_sent(
    runs: dict[str, Crawl], name: str
) -> None:
    stats = runs[name].final_stats()
    assert {key: stats[key] for key in stats if key.startswith("verdict/")} == {
        "verdict/allowed_explicit": 5,
        "verdict/allowed_implicit": 1,
        "verdict/disallowed_explicit": 1,
    }
    assert stats["robots/allow_rate"] == pytest.approx(6 / 7)


@pytest.mark.parametrize("name", QUEUES)
def test_what_was_on_the_wire_is_in_the_ledger_line_by_line(
    runs: dict[str, Crawl], folder: Path, name: str
) -> None:
    asked = [line for line in ledger(folder, name) if line["kind"] == "asked"]
    sent = [line["url"] for line in asked if line["purpose"] == "target"]
    assert sent.count("http://thrice.test/p") == sent.count("http://failing.test/p") == 3
    assert len(sent) == 3 + 2 + 2 + 3 + 6
    assert len(sent) == sum(not each.path.endswith("/robots.txt") for each in runs[name].log) - 1


@pytest.mark.parametrize("name", QUEUES)
def test_the_ledger_of_such_a_run_verifies(runs: dict[str, Crawl], folder: Path, name: str) -> None:
    assert runs[name].returncode == 0
    report = report_of(state_dir(folder / str([*QUEUES].index(name))))
    assert wrong_in(report) == []


@pytest.mark.parametrize("name", QUEUES)
def test_d5_the_redirect_limit_ends_a_target_by_name(
    runs: dict[str, Crawl], folder: Path, name: str
) -> None:
    run = runs[name]
    assert run.asked("redirect.test")[-1] == "/hops/4"
    assert "TooManyRedirects" in run.why(LAST_HOP)
    assert "D5" in run.why(LAST_HOP)
    (line,) = run.lines("WARNING", f"too_many_redirects {LAST_HOP} (D5)")
    assert "http://redirect.test/hops/9" in line
    assert run.stats["walsh/too_many_redirects"] == 1
    (entry,) = [each for each in ledger(folder, name) if each["kind"] == "too_many_redirects"]
    assert (entry["url"], entry["requirement"], entry["status"]) == (LAST_HOP, "D5", 302)


def test_evictions_from_the_cache_of_robots_txt_are_counted(
    runs: dict[str, Crawl], folder: Path
) -> None:
    stats = runs["memory"].final_stats()
    came = [
        line["url"]
        for line in ledger(folder, "memory")
        if line["kind"] in ("adopted", "taken_up") and line["requirement"] == "R2"
    ]
    assert len({*came}) == 6
    assert stats["robots/cached"] == 3
    assert stats["robots/evicted"] == len(came) - 3


def test_of_one_host_the_first_refusal_is_told_and_the_others_are_at_debug(
    tmp_path: Path,
) -> None:
    urls = [f"http://{host}.test/p{n}" for host in ("denied", "other") for n in range(3)]
    rules = "User-agent: *\nDisallow: /\n"
    done = solo(
        tmp_path, *urls, sites=(site("denied.test", robots=rules), site("other.test", robots=rules))
    )
    for level, each in (("INFO", 1), ("DEBUG", 2)):
        for host in ("denied.test", "other.test"):
            assert len(done.lines(f"[scrapy_walsh] {level}: refused http://{host}/")) == each
    (remedy,) = done.lines("[scrapy_walsh] INFO: refused", "remove it from the sources")
    assert "denied.test" in remedy
