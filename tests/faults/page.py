"""``python -m tests.faults.page`` writes docs/faults.md from the table."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from tests.faults import row as rows
from tests.faults.table import TABLE

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tests.faults.row import Row, Then

PAGE: Final = Path(__file__).parents[2] / "docs" / "faults.md"
_HEAD: Final = """# What happens when ...

Everything that can fail on the crawl's own side, and what the crawl does then: a middleware or a
signal of your project, a setting, the machine, the proxy, Python's environment, the disk, a paused
job, a defect in this package. (What *sites* do is in [robots.txt](robots.md),
[the blocklist](blocklist.md) and [troubleshooting](troubleshooting.md).)

One promise stands behind all rows. **Where the rules are not known because of us, nothing is sent
that they might refuse**: no page that a robots.txt may disallow, no host that the operator's list
may block. That holds in this run, and in the next one, which must not go by what a fault has left.
If anything was not crawled for such a reason, a line of the log names the cause, and the run ends
with exit code 1 and the finish reason `walsh_not_well`.

This page is made from the tests: each row is a crawl against a server on loopback, with one
disallowed page, one blocked host and one that may be crawled, and another crawl after it without
the fault. Both are judged by the server's log. `python -m tests.faults` runs all of them.

"as usual" means: every document is requested and obeyed as if nothing were wrong.
"""
_DOES: Final[dict[Then, str]] = {
    rows.AS_USUAL: "as usual",
    rows.HELD_BACK: "sends nothing whose rules are not known; defers it to the next run",
    rows.NOT_WELL: "goes on with what is not concerned",
    rows.REFUSED: "refuses to start; nothing is sent",
    rows.HOSTS_DOING: "treats the site as unreachable",
    rows.EITHER: "",
}
_CODE: Final[dict[Then, str]] = {
    rows.AS_USUAL: "0",
    rows.HELD_BACK: "1",
    rows.NOT_WELL: "1",
    rows.REFUSED: "1",
    rows.HOSTS_DOING: "0",
    rows.EITHER: "0, or 1 where something was not crawled",
}
_TITLES: Final = {
    "middleware": "A middleware of your project",
    "middleware, after the answer": "A middleware, after the answer has come",
    "signal": "A handler of a signal",
    "setting": "Settings of Scrapy",
    "machine": "The machine",
    "proxy": "The proxy",
    "environment": "Python's environment",
    "our own code": "This package itself",
    "disk": "The disk and the state directory",
    "JOBDIR": "A paused job",
    "spider": "A spider of your project",
    "command": "Other ways to run a crawl",
}


def text() -> str:
    """The page."""
    return "\n".join([_HEAD, *_sections()])


def _sections() -> Iterator[str]:
    for kind, title in _TITLES.items():
        yield f"## {title}\n"
        yield "| what happened | what the crawl does | what the log says | exit code |"
        yield "|---|---|---|---|"
        yield from _lines(row for row in TABLE if row.kind == kind)
        yield ""


def _lines(found: Iterable[Row]) -> Iterator[str]:
    for row in found:
        says = f"`{row.says[0]}`" if row.says else ""
        cells = (row.what, row.does or _DOES[row.then], says, _CODE[row.then])
        yield f"| {' | '.join(each.replace('|', chr(92) + '|') for each in cells)} |"


if __name__ == "__main__":
    PAGE.write_text(text().rstrip("\n") + "\n")
