"""The lab: other crawlers judged by the log alone, and this package by the same judge."""

from __future__ import annotations

import json
import shlex
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

import bench.lab as bench
from scrapy_walsh.proof.conformance import parts
from scrapy_walsh.proof.conformance import run as lab
from scrapy_walsh.proof.conformance.run import CommandFailed
from tests.kit import Done, conformance

if TYPE_CHECKING:
    from pathlib import Path

BOTS = ("requests", "stock", "own")


def python(*words: str) -> str:
    return shlex.join([sys.executable, *words])


@pytest.fixture(scope="module")
def found() -> dict[str, dict[str, Any]]:
    """What the benchmark's small size says of each bot, two at a time."""
    with ThreadPoolExecutor(2) as pool:
        return dict(
            zip(BOTS, pool.map(lambda bot: bench.judge(bot, bench.QUICK), BOTS), strict=True)
        )


@pytest.fixture(scope="module")
def judged(found: dict[str, dict[str, Any]]) -> dict[str, Done]:
    return {bot: Done(0, json.dumps(each), "") for bot, each in found.items()}


@pytest.mark.crawl
def test_stock_scrapy_paces_nothing_and_knows_no_blocklist(judged: dict[str, Done]) -> None:
    done = judged["stock"]
    assert {"R2d", "R3", "R3a", "R4", "R4b", "R8"} <= done.failed()
    assert done.outcomes("R4b") == {"per-host spacing honors Crawl-delay (>=2s)": "FAIL"}
    assert done.outcomes("R4")["requests are serial"] == "FAIL"
    assert done.outcomes("R4c") == {"first request to unseen host not delayed": "PASS"}
    assert done.outcomes("R10") == {"inline schema: no schema request": "NOT SEEN"}


@pytest.mark.crawl
def test_the_requests_bot_honours_the_list_and_misreads_robots_txt(
    judged: dict[str, Done],
) -> None:
    done = judged["requests"]
    assert "FAIL" not in {*done.outcomes("R3").values(), *done.outcomes("R3a").values()}
    assert done.outcomes("R4b") == {"per-host spacing honors Crawl-delay (>=2s)": "PASS"}
    assert done.outcomes("R2a")["longest matching name selected"] == "FAIL"
    assert done.outcomes("R2")["no request for a disallowed path"] == "PASS"


@pytest.mark.crawl
def test_this_package_passes_what_they_fail(judged: dict[str, Done]) -> None:
    done = judged["own"]
    assert done.failed() == set()
    unseen = {check["title"] for check in done.found["checks"] if check["outcome"] != "PASS"}
    assert unseen == {"second run replays ETag and Last-Modified"}, "it requests nothing again"
    assert done.outcomes("R8") == {
        "no source asked again within the hour": "PASS",
        "any answer is a visit: a 3xx that leads nowhere, an unasked 304": "PASS",
    }
    assert done.outcomes("R11") == {"second run asks neither robots.txt nor blocklist": "PASS"}


@pytest.mark.crawl
def test_the_matrix_has_a_row_for_each_check(found: dict[str, dict[str, Any]]) -> None:
    head, rule, *rows = bench.matrix(found)
    assert head.count("|") == rule.count("|") == 7
    assert len(rows) == len(found["own"]["checks"])
    (row,) = (row for row in rows if "requests are serial" in row)
    assert row == "| R4 | MUST | requests are serial | PASS | FAIL | PASS |"


# -- commands that cannot be judged ---------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("/no/such/crawler --fast", "/no/such/crawler"),
        ("", "its output: no output"),
        (python("-c", "print('no network here')"), "its output: no network here"),
        (python("-c", ""), "its output: no output"),
    ],
)
def test_a_command_that_asks_nothing_is_not_judged(tmp_path: Path, command: str, said: str) -> None:
    done = conformance(tmp_path, "--only", "identity", "--command", command)
    assert done.code == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith("walsh conformance: ")
    assert said in line
    assert done.stdout == ""


def play(command: str, seconds: float) -> tuple[list[str], list[int | None], list[str]]:
    told: list[str] = []
    runs = lab.play(command, [parts.IDENTITY], "Walsh-Research", seconds, told.append)
    return told, [run.code for run in runs], [run.output for run in runs]


ASK = (
    "import os, sys, time, urllib.request as r;"
    "urls = os.environ['WALSH_LAB_URLS'].split();"
    "assert os.listdir(os.environ['WALSH_LAB_DIR']) == [];"
    "assert os.environ['WALSH_LAB_BLOCKLIST'].startswith('http://operator.test/');"
    "[r.urlopen(url).read() for url in urls];"
)


def test_a_command_finds_targets_and_proxy_in_its_environment() -> None:
    told, codes, _ = play(python("-c", ASK), 20)
    assert codes == [0]
    assert told == ["run 1 ended with 0; requests: 2"]


def test_a_command_that_does_not_end_is_ended_and_passes_nothing() -> None:
    told, codes, _ = play(python("-c", ASK + "time.sleep(60)"), 1.5)
    assert codes == [None]
    assert told == ["run 1 was cut off after 1.5 s; requests: 2"]


def test_of_much_output_the_end_is_kept() -> None:
    _, codes, outputs = play(python("-c", ASK + "print('x' * 10_000_000 + 'the end')"), 20)
    assert codes == [0]
    assert len(outputs[0]) <= 16 * 4096
    assert outputs[0].endswith("the end\n")


def test_a_command_that_cannot_start_raises() -> None:
    with pytest.raises(CommandFailed, match="sent no request"):
        play("/no/such/crawler", 1)


def test_what_a_command_has_started_ends_with_it(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    later = f"import time; time.sleep(1.5); open({str(mark)!r}, 'w').write('late')"
    play(f"{python('-c', later)} >/dev/null 2>&1 & {python('-c', ASK)}", 20)
    time.sleep(2)
    assert not mark.exists()
