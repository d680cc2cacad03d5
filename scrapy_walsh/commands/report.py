"""``walsh report``: a run as one HTML file, from its ledger and its source report.

Exit codes: 0 written, and nothing in it is broken; 1 written, and the ledger itself shows that
something does not hold; 2 not written.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from scrapy_walsh.commands.check_answer import printable
from scrapy_walsh.commands.project import ledger_dir
from scrapy_walsh.exceptions import WalshError
from scrapy_walsh.findings import Outcome
from scrapy_walsh.ledger.files import read_head
from scrapy_walsh.ledger.reading import files_of, lines_in
from scrapy_walsh.proof.report.findings import findings
from scrapy_walsh.proof.report.html import page
from scrapy_walsh.proof.report.model import ALL, LAST, build
from scrapy_walsh.proof.report.sources import NoReport, Sources, read_sources

if TYPE_CHECKING:
    from collections.abc import Sequence


def main(argv: Sequence[str]) -> int:
    """Run ``walsh report``; see the module for the exit codes."""
    args = _parser().parse_args(argv)
    try:
        return _report(args)
    except BrokenPipeError:  # the reader has gone; the interpreter would flush again at its exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except WalshError as error:
        print(f"walsh report: {printable(str(error))}", file=sys.stderr)
    except OSError as error:
        where = printable(str(error.filename or args.output))
        print(f"walsh report: {where}: {error.strerror}", file=sys.stderr)
    return 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="walsh report", description="A run as one HTML file.", allow_abbrev=False
    )
    add = parser.add_argument
    add("--ledger", type=Path, metavar="FILE", help="default: of the project's state directory")
    add("--sources", type=Path, metavar="FILE", help="the JSON of -a report=FILE of the same run")
    add("--run", default=LAST, metavar="ID", help=f"a run's name, {LAST} (default) or {ALL}")
    add("--output", default="walsh-report.html", metavar="FILE", help="- for stdout")
    return parser


def _report(args: argparse.Namespace) -> int:
    files = files_of(args.ledger or ledger_dir("--ledger"))
    sources = None if args.sources is None else _sources(args.sources)
    head = None if files.head is None else read_head(files.head)
    report = build(lambda: lines_in(files.parts), args.run, head)
    text = page(report, sources)
    if args.output == "-":
        sys.stdout.buffer.write(text.encode())
        sys.stdout.buffer.flush()
    else:
        Path(args.output).write_text(text, encoding="utf-8")
        print(f"written: {printable(args.output)}")
    wrong = [each for each in findings(report, sources) if each.outcome is Outcome.BROKEN]
    for each in wrong:
        print(f"walsh report: not so: {each.about}: {printable(each.text)}", file=sys.stderr)
    return 1 if wrong else 0


def _sources(path: Path) -> Sources:
    try:
        return read_sources(path.read_bytes())
    except NoReport as error:
        raise NoReport(f"{path} {error}") from None
