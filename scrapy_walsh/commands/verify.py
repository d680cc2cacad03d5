"""``walsh verify [LEDGER]``: derive every decision of a ledger again, say what does not hold."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from scrapy_walsh.commands import common
from scrapy_walsh.exceptions import visible
from scrapy_walsh.policy.words import plural
from scrapy_walsh.proof.verify import Head, files_of, verify

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterator, Sequence

    from scrapy_walsh.proof.verify import Files, Report
    from scrapy_walsh.proof.verify.judge import Watch

#: Findings that the text shows.
_SHOWN: Final = 50
_HEAD: Final = re.compile(r"([0-9]{1,15}):([0-9a-fA-F]{64})")


def add_options(parser: argparse.ArgumentParser) -> None:
    """What ``walsh verify`` takes."""
    add = parser.add_argument
    common.add_ledger(parser)
    add(
        "--documents",
        metavar="FILE",
        type=Path,
        help="default: beside the ledger",
    )
    add(
        "--head", metavar="N:HASH", action="append", default=[],
        help="number and hash of a line, known from elsewhere (walsh/ledger/line and head)",
    )  # fmt: skip
    common.add_settings(parser)
    common.add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Verify the ledger, and print what was found."""
    ledger = common.ledger_of(args)
    files = files_of(ledger)
    if args.documents is not None:
        if not args.documents.is_file():
            raise common.Misuse(f"--documents {args.documents}: no such file")
        files = replace(files, documents=args.documents)
    report = judged(files, [_head(text) for text in args.head])
    common.answer(args, _members(report), map(visible, _lines(report)))
    if report.holds:
        return 0
    return 1


def judged(
    files: Files,
    heads: Sequence[Head] = (),
    watch: Watch | None = None,
    wanted: Callable[[bytes], bool] | None = None,
) -> Report:
    """What :func:`verify` finds. Raises OSError; Misuse if there is nothing to look at."""
    report = verify(files, heads, common.read_blocklist, watch, wanted)
    if not report.lines and report.holds:
        raise common.Misuse(f"{files.parts[-1]}: no line in it, so nothing was verified")
    return report


def _head(text: str) -> Head:
    match = _HEAD.fullmatch(text)
    if match is None:
        raise common.Misuse(f"--head {text!r} is not N:HASH, a number and 64 hexadecimal digits")
    return Head(int(match[1]), match[2].lower(), "--head")


def _members(report: Report) -> dict[str, Any]:
    number, digest = report.head or (None, None)
    return {
        "holds": report.holds,
        "findings": [
            {"line": finding.line, "rule": finding.rule, "text": finding.text}
            for finding in report.findings
        ],
        "more_findings": report.more,
        "lines": report.lines,
        "runs": report.runs,
        "requests": report.requests,
        "derived": report.derived,
        "not_derived": dict(report.underived),
        "notes": report.notes,
        "head": {"line": number, "hash": digest},
    }


def _lines(report: Report) -> Iterator[str]:
    yield from map(str, report.findings[:_SHOWN])
    remaining = len(report.findings) - _SHOWN + report.more
    if remaining > 0:
        yield f"... and {remaining} more"
    yield (
        f"{plural(report.lines, 'line')}, {plural(report.runs, 'run')}, "
        f"{plural(report.requests, 'request')}; decisions derived again: {report.derived}"
    )
    for reason, count in report.underived.items():
        yield f"not derived: {count} x {reason}"
    for note in report.notes:
        yield f"note: {note}"
    if report.head is not None:
        yield f"head {report.head[0]}:{report.head[1]}"
    yield "nothing wrong was found" if report.holds else "this does not hold"
