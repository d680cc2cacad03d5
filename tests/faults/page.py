"""``python -m tests.faults.page`` writes docs/faults.md from the table."""

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

Each section is parted by what the crawl does. Three dots stand for "A downloader middleware of the
project" or "A handler of the signal". The words at the end of a row are a part of the log's line.
"""
_DOES: Final[dict[Then, str]] = {
    rows.AS_USUAL: "Every document is requested and obeyed as if nothing were wrong.",
    rows.HELD_BACK: "Nothing is sent whose rules are not known. It is deferred to the next run.",
    rows.NOT_WELL: "The crawl goes on with what is not concerned.",
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
    rows.EITHER: "0, or 1 where something was not crawled",
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
