"""The check of a ledger's files: the only part that reads a disk."""

from __future__ import annotations

from functools import lru_cache
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, Protocol

from scrapy_walsh.ledger.chain import Chain, Head
from scrapy_walsh.ledger.documents import Documents
from scrapy_walsh.ledger.files import read_head
from scrapy_walsh.ledger.lines import HEAD
from scrapy_walsh.ledger.reading import lines_in
from scrapy_walsh.policy.list.schema import read_schema, reread_blocklist
from scrapy_walsh.policy.robots.file import Robots, parse_robots
from scrapy_walsh.proof.verify.judge import Judge
from scrapy_walsh.proof.verify.report import Report

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scrapy_walsh.ledger.reading import Files
    from scrapy_walsh.policy.list.blocklist import Blocklist

#: Parsed robots.txt files and lists that are kept in memory.
_ROBOTS_KEPT: Final = 1024
_LISTS_KEPT: Final = 4


class Parse(Protocol):
    """Reads a blocklist, also one that may be costly to validate."""

    def __call__(self, body: bytes, standalone: dict[str, Any] | None, url: str) -> Blocklist:
        """The list in *body*. Raises DocumentInvalid."""


def verify(files: Files, heads: Sequence[Head], parse: Parse) -> Report:
    """Check a ledger. *heads*: known from elsewhere. *parse*: reads a list. Raises OSError."""
    report = Report()
    known = read_head(files.head) if files.head is not None else None  # before lines are added
    said = [Head(*known, said_by=HEAD)] if known is not None else []
    chain = Chain(lambda line, text: report.find(line, "chain", text), report.note, [*said, *heads])
    documents = Documents(files.documents)
    judge = Judge(report, _LookUp(documents, parse))
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


class _LookUp:
    """``run.LookUp``: each document is parsed once, and the latest are kept."""

    def __init__(self, documents: Documents, parse: Parse) -> None:
        self._documents = documents
        self._parse = parse
        self.robots = lru_cache(_ROBOTS_KEPT)(self._robots)
        self.adopted_list = lru_cache(_LISTS_KEPT)(self._adopted_list)
        self.held_list = lru_cache(_LISTS_KEPT)(self._held_list)

    def altered(self, digest: str) -> bool:
        return digest in self._documents.altered

    def _held_list(self, digest: str, url: str) -> Blocklist | None:
        body = self._documents.get(digest)
        return None if body is None else reread_blocklist(body, url)

    def _adopted_list(self, digest: str, schema: str | None, url: str) -> Blocklist | None:
        body = self._documents.get(digest)
        beside = None if schema is None else self._documents.get(schema)
        if body is None or (schema is not None and beside is None):
            return None
        return self._parse(body, None if beside is None else read_schema(beside), url)

    def _robots(self, digest: str, token: str, document: str) -> Robots | None:
        body = self._documents.get(digest)
        return None if body is None else parse_robots(body, token, document)
