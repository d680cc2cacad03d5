"""Ledgers written by hand, and a page read back as tags, attributes and text."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from typing import TYPE_CHECKING, Any

from scrapy_walsh.ledger.files import CONTRACT, GENESIS, chained
from scrapy_walsh.proof.findings import Outcome
from scrapy_walsh.proof.report.findings import findings
from scrapy_walsh.proof.report.lanes import LAST, Report, build
from tests import golden

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from scrapy_walsh.proof.findings import Finding

T0 = 1_800_000_000.0
HOST = "h.test"
SAID = {Outcome.HELD: "holds", Outcome.BROKEN: "broken", Outcome.UNSEEN: "not seen"}
VOID = {"meta", "br"}
SETTINGS = {"min_interval": 1.0, "pace_robots": False, "excluded_tlds": [], "shared": False}


def lines_of(*entries: dict[str, Any], first: int = 1, previous: str = GENESIS) -> list[bytes]:
    """The lines of *entries*, chained, without their line ends."""
    lines = []
    for number, entry in enumerate(entries, first):
        line, previous = chained(entry, number, previous)
        lines.append(line[:-1])
    return lines


def report_of(
    lines: Sequence[bytes], wanted: str = LAST, said: tuple[int, str] | None = None
) -> Report:
    """The report on lines that come from no file; *said*: what ``ledger.head`` says."""

    def read() -> Iterator[tuple[str, bytes]]:
        for line in lines:
            yield "", line + b"\n"

    report = build(read, wanted, said)
    golden.note(pinned(findings(report, None)))
    return report


def pinned(found: Sequence[Finding]) -> list[list[str]]:
    """What a report says first, as its golden file has it."""
    return [[SAID[each.outcome], each.about, each.text] for each in found]


def header(file: int = 1) -> dict[str, Any]:
    """The first line of a file."""
    return {"at": T0, "kind": "ledger", "contract": CONTRACT, "file": file}


def began(run: str = "r1", at: float = 0.0, **more: Any) -> dict[str, Any]:
    terms = {"process": f"p-{run}", "token": "Walsh-Research", "settings": SETTINGS}
    return {"at": T0 + at, "run": run, "kind": "started", **terms, **more}


def ended(run: str = "r1", at: float = 99.0) -> dict[str, Any]:
    return {"at": T0 + at, "run": run, "kind": "ended", "reason": "finished"}


def asked(
    start: float, end: float | None = None, host: str = HOST, run: str = "r1", **more: Any
) -> dict[str, Any]:
    """A target asked from *start* to *end*, seconds since the first line, and answered with 200."""
    end = start + 0.01 if end is None else end
    members = {
        "url": f"http://{host}/{start:g}", "host": host, "method": "GET", "purpose": "target",
        "started": T0 + start, "ended": T0 + end, "status": 200, "answered": True, "interval": 1.0,
        "exempt": False, "attempt": 0, "gives_up": False,
    }  # fmt: skip
    return {"at": T0 + end, "run": run, "kind": "asked", **members, **more}


def robots(start: float, **more: Any) -> dict[str, Any]:
    """A host's first robots.txt."""
    url = f"http://{more.get('host', HOST)}/robots.txt"
    return asked(start, **{"purpose": "robots", "exempt": True, "url": url, **more})


def decided(kind: str, at: float = 1.0, run: str = "r1", **more: Any) -> dict[str, Any]:
    return {
        "at": T0 + at,
        "run": run,
        "kind": kind,
        "host": HOST,
        "url": f"http://{HOST}/x",
        **more,
    }


class Read(HTMLParser):
    """A page as a browser's parser takes it: elements that do not nest are an error."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str, str]] = []
        self.text = ""
        self._open: list[str] = []
        self.feed(page)
        self.close()
        assert not self._open, f"not closed: {self._open}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = [name for name, _ in attrs]
        assert len(names) == len(set(names)), f"<{tag}> has an attribute twice"
        self.tags.append(tag)
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        if tag not in VOID:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open, f"</{tag}> closes nothing"
        assert self._open.pop() == tag, f"</{tag}> closes another"

    def handle_data(self, data: str) -> None:
        if self._open[-1:] != ["style"]:
            self.text += f"{data} "

    def number(self, name: str) -> str:
        """What the tile *name* shows."""
        found = re.search(rf" {name} ([\d,.]+(?: [kM]?B)?) ", self.text)
        assert found, f"no tile {name}"
        return found[1]
