"""Tables: folded and coloured on a terminal, plain where they are piped."""

from __future__ import annotations

import io
import re
import time
from contextlib import redirect_stdout
from typing import TYPE_CHECKING

import pytest

from scrapy_walsh.commands import conformance
from scrapy_walsh.commands.main import main
from scrapy_walsh.commands.terminal import table
from scrapy_walsh.proof.conformance.check import Check
from scrapy_walsh.proof.findings import Outcome
from scrapy_walsh.state.records import Deferral, HostRecord, Reading, VisitRecord
from scrapy_walsh.state.store import SqliteStore
from scrapy_walsh.terminal import columns

if TYPE_CHECKING:
    from pathlib import Path

COLOUR = re.compile("\\x1b\\[[0-9;]*m")
RED = "\x1b[31m"
URL = "https://a-host-with-a-name.test/feed/with/a/long/path/and/more/of/it.xml"


class Screen(io.StringIO):
    """What a terminal shows."""

    encoding = "utf-8"  # type: ignore[assignment]

    def isatty(self) -> bool:
        return True


@pytest.fixture
def screen(monkeypatch: pytest.MonkeyPatch) -> Screen:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.delenv("NO_COLOR", raising=False)
    return Screen()


def test_state_show_fits_80_columns(tmp_path: Path, screen: Screen) -> None:
    now = time.time()
    store = SqliteStore(tmp_path)
    store.put(HostRecord("a-host-with-a-name.test", now, 1.0, now + 9000, silent_since=now - 9e5))
    store.put(Deferral(f"{URL}?\x1b[31m", "h.test", now + 9e4, "Retry-After of an answer 503"))
    store.put(VisitRecord(URL, now - 60, "200", "asked to do so"))
    store.put(Reading(URL, now - 8e5, now, 1, "HTTP 403", f"{URL}/new"))
    store.close()
    with redirect_stdout(screen):
        assert main(["state", "show", "--dir", str(tmp_path)]) == 0
    lines = COLOUR.sub("", screen.getvalue()).splitlines()
    assert "\x1b" not in "".join(lines), "what a server sent has no effect"
    assert max(len(line) for line in lines if not line.startswith("state in")) <= 80
    for whole in (r"\b\d{4}-\d\d-\d\d\b", r"\b\d\d:\d\d:\d\d\b"):
        assert len(re.findall(whole, "\n".join(lines))) >= 6, "neither date nor time is cut in two"


CHECKS = [
    Check("R4b", "R4", "MUST", "spaced", Outcome.BROKEN, "gap=0.1s " * 9),
    Check("R2", "R2", "MUST", "kept", Outcome.HELD, ""),
]


@pytest.mark.parametrize("width", ["20", "60", "80", "200"])
def test_nothing_is_cut_off(screen: Screen, monkeypatch: pytest.MonkeyPatch, width: str) -> None:
    monkeypatch.setenv("COLUMNS", width)
    row = [URL, *("2026-05-23T00:00:00Z",) * 3, "a reason of several words", "7"]
    with redirect_stdout(screen):
        shown = list(table([row], least=(6, 5), indent=2, right={5}))
    assert max(map(len, shown)) <= int(width) or width == "20"
    assert sorted("".join(shown).replace(" ", "")) == sorted("".join(row).replace(" ", ""))


def test_fail_is_red(screen: Screen) -> None:
    with redirect_stdout(screen):
        lines = list(conformance.lines("title", CHECKS, 1.0))
    (failed,) = (line for line in lines if "FAIL" in line)
    (passed,) = (line for line in lines if "PASS" in line)
    assert RED in failed
    assert RED not in passed
    assert max(len(COLOUR.sub("", line)) for line in lines) <= 80


def test_no_colours_where_nobody_wants_them(
    screen: Screen, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    with redirect_stdout(screen):
        assert "\x1b" not in "".join(conformance.lines("title", CHECKS, 1.0))


def test_what_is_piped_is_plain_and_whole(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("FORCE_COLOR", "1")
    rows = [("FAIL", URL * 3, "\x1b[31mwhy\n"), ("ok", "b", "")]
    assert list(table(rows, headings=("is", "url", "why"))) == [
        f"is    {'url':<{len(URL) * 3}}  why",
        f"FAIL  {URL * 3}  \\x1b[31mwhy\\n",
        "ok    b",
    ]


def test_nothing_is_no_table() -> None:
    assert list(columns([])) == list(table([])) == []


def test_numbers_stand_to_the_right() -> None:
    rows = [("a", "1"), ("b", "100")]
    assert list(columns(rows, right={1}, least=(3,), gap=1, indent=1)) == [" a     1", " b   100"]
