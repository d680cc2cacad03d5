"""``walsh report``: a run as one HTML file, from its ledger and its source report."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from scrapy_walsh.commands.common import add_ledger, add_settings, ledger_of, printable, tell
from scrapy_walsh.ledger.files import read_head
from scrapy_walsh.proof.files import replace_file
from scrapy_walsh.proof.findings import Outcome
from scrapy_walsh.proof.ledger import files_of, lines_in
from scrapy_walsh.proof.report.entries import NoReport, Sources, read_sources
from scrapy_walsh.proof.report.findings import findings
from scrapy_walsh.proof.report.html import page
from scrapy_walsh.proof.report.lanes import ALL, LAST, build

if TYPE_CHECKING:
    import argparse


def add_options(parser: argparse.ArgumentParser) -> None:
    """What ``walsh report`` takes."""
    add = parser.add_argument
    add_ledger(parser)
    add("--sources", type=Path, metavar="FILE", help="the JSON of -a report=FILE of the same run")
    add("--run", default=LAST, metavar="ID", help=f"a run's name, {LAST} (default) or {ALL}")
    add(
        "-o", "--output", metavar="FILE", default="walsh-report.html",
        help="where to write (default: %(default)s); - for stdout",
    )  # fmt: skip
    add_settings(parser)


def run(args: argparse.Namespace) -> int:
    """Draw the run, and say what in it is broken."""
    code = write_report(ledger_of(args), args.sources, args.output, args.run)
    if args.output != "-":
        print(f"written: {printable(args.output)}")
    return code


def write_report(ledger: Path, sources: Path | None, output: str, run: str = LAST) -> int:
    """Write the page about *run* into the file *output*; 1 where something in it is broken, else 0.

    *ledger*, *sources*: of the run. *output*: ``-`` for standard output. OSError, WalshError.
    """
    files, told = files_of(ledger), None if sources is None else _sources(sources)
    head = None if files.head is None else read_head(files.head)
    report = build(lambda: lines_in(files.parts), run, head)
    text = page(report, told).encode()
    if output == "-":
        sys.stdout.buffer.write(text)
        sys.stdout.buffer.flush()
    else:
        replace_file(Path(output), text)
    wrong = [each for each in findings(report, told) if each.outcome is Outcome.BROKEN]
    tell("report", *(f"not so: {each.about}: {each.text}" for each in wrong))
    return 1 if wrong else 0


def _sources(path: Path) -> Sources:
    try:
        return read_sources(path.read_bytes())
    except NoReport as error:
        raise NoReport(f"{path} {error}") from None
