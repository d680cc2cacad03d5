"""The report on lines that a test wrote, and a page read back as tags, attributes and text."""

from __future__ import annotations

import re
import tempfile
from html.parser import HTMLParser
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from scrapy_walsh.commands.verify import judged
from scrapy_walsh.ledger.files import FILE
from scrapy_walsh.proof.ledger import files_of
from scrapy_walsh.proof.report.runs import LAST, chosen, runs_of, since
from scrapy_walsh.proof.report.tally import Tally

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from scrapy_walsh.proof.report.history import History
    from scrapy_walsh.proof.verify import Report as Verified
    from scrapy_walsh.proof.verify.judge import Watch

VOID = {"meta", "br"}


class Shown(NamedTuple):
    """What a page is made of."""

    report: Tally
    verified: Verified


def of_file(lines: Sequence[bytes]) -> Iterator[tuple[str, bytes]]:
    """The lines as those of a file."""
    return ((FILE, line + b"\n") for line in lines)


def verified(lines: Sequence[bytes], watch: Watch) -> Verified:
    """What ``verify`` finds in the lines, of which *watch* is told."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / FILE
        path.write_bytes(b"".join(line for _, line in of_file(lines)))
        return judged(files_of(path), watch=watch)


def report_of(lines: Sequence[bytes], wanted: str = LAST, history: History | None = None) -> Shown:
    """The report on lines that come from no file."""
    runs = runs_of(of_file(lines))
    shown = chosen(runs, wanted) if history is None else since(runs, history.began)
    report = Tally(shown, len(runs) - len(shown), history)
    return Shown(report, verified(lines, report.take))


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
