"""Bad documents and bad settings: one clear line each, and nothing that is held is lost."""

from __future__ import annotations

import gzip
import os
import time
from typing import TYPE_CHECKING, Any

import pytest

from scrapy_walsh.proof.sandbox import Route, Sandbox
from tests.crawl.harness import (
    Crawl,
    crawl,
    make_project,
    side_by_side,
    site,
    solo,
    state_dir,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

RULES = b"User-agent: *\nDisallow: /private/\n"
GARBAGE = bytes(range(128, 256)) * 300 + b"\x00\xff\xfe\r\n"
ROBOTS = {
    "garbage.test": Route(body=GARBAGE + RULES + GARBAGE),
    "endless.test": Route(body=RULES, behaviour="endless", pause=0.001),
    "packed.test": Route(body=gzip.compress(RULES), headers={"Content-Encoding": "gzip"}),
    "long.test": Route(body=RULES + b"# filler\n" * 300_000),
    "utf16.test": Route(body=RULES.decode().encode("utf-16")),
    "html.test": Route(body="<!doctype html><title>not here</title>"),
    "cut.test": Route(body=RULES, behaviour="truncate"),
    "bomb.test": Route(
        body=gzip.compress(bytes(64 << 20), 1), headers={"Content-Encoding": "gzip"}
    ),
    "strange.test": Route(body=b"\x8b\x02\x80", headers={"Content-Encoding": "br"}),
    "named.test": Route(body=RULES, headers={"Content-Encoding": "br"}),
}
KEEP_RULES = ("garbage.test", "endless.test", "packed.test", "long.test", "named.test")


@pytest.fixture(scope="module")
def robots(tmp_path_factory: pytest.TempPathFactory) -> Crawl:
    return solo(
        tmp_path_factory.mktemp("robots"),
        *(f"http://{host}{path}" for host in ROBOTS for path in ("/private/x", "/public")),
        "http://path.test/public",
        sites=tuple(site(host, robots=route) for host, route in ROBOTS.items()),
        settings={"WALSH_BACKOFF_BASE": 0.01, "WALSH_MAX_RETRIES": 1},
    )


def test_the_crawl_goes_on(robots: Crawl) -> None:
    assert robots.returncode == 0
    assert robots.asked("path.test") == ["/robots.txt", "/public"]
    assert robots.stats["finish_reason"] == "finished"
    assert "Traceback" not in robots.output


@pytest.mark.parametrize("host", ROBOTS)
def test_one_line_says_what_became_of_each(robots: Crawl, host: str) -> None:
    about = f"http://{host}/robots.txt ("
    said = [line for kind in ("adopted ", "rejected ") for line in robots.lines(kind + about)]
    assert len(said) == 1, robots.lines(host)


@pytest.mark.parametrize("host", KEEP_RULES)
def test_r2_27_rules_within_what_is_readable_are_obeyed(robots: Crawl, host: str) -> None:
    assert robots.asked(host) == ["/robots.txt", "/public"]
    assert "disallowed_explicit" in robots.why(f"http://{host}/private/x")


def test_r2_27_an_encoding_that_cannot_be_read_is_no_permission(robots: Crawl) -> None:
    assert set(robots.asked("strange.test")) == {"/robots.txt"}


def test_a_bomb_does_not_fill_the_memory(robots: Crawl) -> None:
    grown = robots.stats["memusage/max"] - robots.stats["memusage/startup"]
    assert grown < 64 << 20  # octets: what the bomb unpacks to


HELD, FREE = "http://blocked.test/x", "http://path.test/public"


@pytest.mark.parametrize(
    ("name", "other"),
    [
        ("state.sqlite3", os.mkfifo),
        ("state.lock", os.mkfifo),
        ("sources.lock", os.mkfifo),
        ("blocklist.json", os.mkfifo),
        ("clock.json", os.mkdir),
        ("ledger.head", os.mkfifo),
        ("state.sqlite3-wal", lambda path: path.symlink_to("/dev/zero")),
    ],
)
def test_what_is_not_a_file_in_the_place_of_a_state_file_refuses_the_start(
    tmp_path: Path, name: str, other: Callable[[Path], object]
) -> None:
    project = make_project(tmp_path / "project")
    state_dir(project).mkdir(parents=True)
    other(state_dir(project) / name)
    with Sandbox() as box:
        run = crawl(project, box, FREE, timeout=30)
    assert run.returncode == 1
    assert run.log == []
    assert len(run.lines(f"{name} is not a file", "WALSH_STATE_DIR")) == 1
    assert "Traceback" not in run.output


def test_a_state_directory_whose_database_is_gone_says_that_holds_may_be_lost(
    tmp_path: Path,
) -> None:
    settings = {"WALSH_REVISIT_REASON": "again", "WALSH_MIN_INTERVAL": 5}
    project = make_project(tmp_path / "project", settings=settings)
    with Sandbox() as box:
        crawl(project, box, FREE)
        for path in state_dir(project).glob("state.sqlite3*"):
            path.unlink()
        begun = time.monotonic()
        run = crawl(project, box, FREE)
    assert len(run.lines("ERROR", "state.sqlite3 is missing", "may be lost")) == 1
    assert run.requests("path.test")[0].arrived > begun + 5, "the host was not spaced"


BAD_SETTINGS: dict[str, Any] = {
    "WALSH_IDENTITY": "someone-else",
    "WALSH_BLOCKLIST_URL": "not a URL",
    "WALSH_BLOCKLIST_SCHEMA_URL": "ftp://operator.test/schema.json",
    "WALSH_STATE_DIR": 7,
    "WALSH_MIN_INTERVAL": 0.5,
    "WALSH_MAX_RETRIES": 9,
    "WALSH_BACKOFF_BASE": "fast",
    "WALSH_BACKOFF_CAP": -1,
    "WALSH_PATIENCE": "nan",
    "WALSH_ROBOTS_TTL": 1_000_000,
    "WALSH_ROBOTS_UNREACHABLE": "ignore",
    "WALSH_BLOCKLIST_UNREACHABLE": "ignore",
    "WALSH_PACE_ROBOTS": "perhaps",
    "WALSH_ROBOTS_CACHE_SIZE": 0,
    "WALSH_EXCLUDED_TLDS": 5,
    "WALSH_REVISIT": 60,
    "WALSH_REVISIT_REASON": "",
    "WALSH_FOLLOW_LINKS": True,
}


@pytest.fixture(scope="module")
def refused(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Crawl]:
    jobs = {name: {"settings": {name: value}} for name, value in BAD_SETTINGS.items()}
    return side_by_side(tmp_path_factory.mktemp("refused"), jobs, FREE)


@pytest.mark.parametrize("name", BAD_SETTINGS)
def test_an_unusable_setting_stops_the_start_by_name(refused: dict[str, Crawl], name: str) -> None:
    result = refused[name]
    assert result.returncode != 0
    assert result.log == []
    assert len(result.lines(name, "accepted")) == 1 or name == "WALSH_IDENTITY", result.output
    assert len(result.lines(name)) == 1, result.output
    assert repr(BAD_SETTINGS[name]) in result.lines(name)[0]
    assert "Traceback" not in result.output


def test_an_unknown_setting_is_named_and_ignored(run: Callable[..., Crawl]) -> None:
    result = run(FREE, settings={"WALSH_MAX_TRIES": 3})
    assert result.returncode == 0
    assert len(result.lines("WARNING", "WALSH_MAX_TRIES", "WALSH_MAX_RETRIES")) == 1
    assert result.asked("path.test") == ["/robots.txt", "/public"]


def test_r1_5_without_an_identity_nothing_starts_and_both_choices_are_named(
    run: Callable[..., Crawl],
) -> None:
    result = run(FREE, settings={"WALSH_IDENTITY": None})
    assert result.returncode != 0
    assert result.log == []
    (line,) = result.lines("WALSH_IDENTITY")
    assert '"walsh-research"' in line
    assert "product" in line
    assert "policy_url" in line
    assert "Traceback" not in result.output
