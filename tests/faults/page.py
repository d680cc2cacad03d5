"""``python -m tests.faults.page`` writes README.md beside it from the table."""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tests.faults import row as rows
from tests.faults.table import TABLE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.faults.row import Row, Then

PAGE: Final = Path(__file__).parent / "README.md"
_HEAD: Final = """# Faults of the crawl's own side

This table lists faults of a project's middlewares, signals and settings, of the machine, the proxy,
Python's environment, the disk, a paused job, and of this package. It says how a crawl reacts to
each.

One promise holds for all rows: **if our side cannot load the rules, nothing is sent that they
might refuse**, neither in this run nor in the next one. The log then names the cause, and the run
ends with exit code 1 and the finish reason `walsh_not_well`.

Each row is a crawl against a server on loopback, with one disallowed page, one blocked host and one
host that may be crawled. A second crawl without the fault follows. Both are judged by the server's
log. `python -m tests.faults` runs all rows, and `python -m tests.faults.page` writes this page.

Each section is divided by the crawl's reaction. Three dots stand for "A downloader middleware of
the project" or "A handler of the signal". The words at the end of a row are part of the log's line.
"""
_DOES: Final[dict[Then, str]] = {
    rows.AS_USUAL: "Every document is requested and obeyed as if nothing were wrong.",
    rows.HELD_BACK: "No request is sent if its rules are unknown. It is deferred to the next run.",
    rows.NOT_WELL: "The crawl goes on with all that the fault does not affect.",
    rows.REFUSED: "The crawl does not start. Nothing is sent.",
    rows.HOSTS_DOING: "The site counts as unreachable.",
    rows.EITHER: "",
}
_CODE: Final[dict[Then, str]] = {
    rows.AS_USUAL: "0",
    rows.HELD_BACK: "1",
    rows.NOT_WELL: "1",
    rows.REFUSED: "1",
    rows.HOSTS_DOING: "0",
    rows.EITHER: "0, or 1 if something was not crawled",
}
_LEAD: Final = re.compile("^A (?:downloader middleware of the project|handler of the signal) ")
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
        answers: defaultdict[tuple[str, str], list[Row]] = defaultdict(list)
        for row in TABLE:
            if row.kind == kind:
                answers[row.does or _DOES[row.then], _CODE[row.then]].append(row)
        for (does, code), found in answers.items():
            yield f"**{does}**{' ' if does else ''}Exit code {code}:\n"
            yield from map(line, found)
            yield ""


def line(row: Row) -> str:
    """The row of a fault, as the page has it."""
    return f"- {_LEAD.sub('... ', row.what)}" + (f" (`{row.says[0]}`)" if row.says else "")


if __name__ == "__main__":
    PAGE.write_text(text().rstrip("\n") + "\n")
