"""The report on lines that a test wrote, and a page read back as tags, attributes and text."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from typing import TYPE_CHECKING

from scrapy_walsh.proof.findings import Outcome
from scrapy_walsh.proof.report.findings import findings
from scrapy_walsh.proof.report.lanes import LAST, Report, build
from tests import golden

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from scrapy_walsh.proof.findings import Finding

SAID = {Outcome.HELD: "holds", Outcome.BROKEN: "broken", Outcome.UNSEEN: "not seen"}
VOID = {"meta", "br"}


def report_of(
    lines: Sequence[bytes], wanted: str = LAST, said: tuple[int, str] | None = None
) -> Report:
    """The report on lines that come from no file; *said*: what ``ledger.head`` says."""

    def read() -> Iterator[tuple[str, bytes]]:
        for line in lines:
            yield "", line + b"\n"

    report = build(read, wanted, said)
    golden.note(pinned(findings(report)))
    return report


def pinned(found: Sequence[Finding]) -> list[list[str]]:
    """What a report says first, as its golden file has it."""
    return [[SAID[each.outcome], each.about, each.text] for each in found]


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
