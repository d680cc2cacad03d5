"""The check of a ledger's files: the only part that reads a disk."""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING

from scrapy_walsh.ledger.files import HEAD, Documents, read_head
from scrapy_walsh.proof.ledger import Chain, Head, lines_in
from scrapy_walsh.proof.verify.judge import Judge
from scrapy_walsh.proof.verify.report import Report

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scrapy_walsh.proof.ledger import Files
    from scrapy_walsh.proof.verify.adoptions import Parse


def verify(files: Files, heads: Sequence[Head], parse: Parse) -> Report:
    """Check a ledger. *heads*: known from elsewhere. *parse*: reads a list. Raises OSError."""
    report = Report()
    known = read_head(files.head) if files.head is not None else None  # before lines are added
    said = [Head(*known, said_by=HEAD)] if known is not None else []
    chain = Chain(lambda line, text: report.find(line, "chain", text), report.note, [*said, *heads])
    documents = Documents(files.documents)
    judge = Judge(report, documents, parse)
    for name, raw in lines_in(files.parts):
        _take(chain, judge, name, raw)
    judge.end()
    if chain.partial:
        report.note("earlier lines are not here: what rests on them is not derived")
    if not files.documents.exists():
        report.note(f"{files.documents.name} is not here: no document can be read again")
    if documents.fault is not None:
        report.note(f"{files.documents.name} cannot be read: {documents.fault}")
    chain.end(headed=bool(said or heads), running=judge.running, later=files.later)
    report.lines, report.head = chain.count, chain.head
    report.findings.sort(key=attrgetter("line", "rule", "text"))
    return report


def _take(chain: Chain, judge: Judge, name: str, raw: bytes) -> None:
    members = chain.take(name, raw)
    if chain.hole:
        chain.hole = False
        judge.hole()
    if members is not None:
        judge.take(members, partial=chain.partial)
