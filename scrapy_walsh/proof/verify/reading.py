"""The files of a ledger, found by name, and the check of them: the only part that reads a disk."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import lru_cache
from operator import attrgetter
from typing import TYPE_CHECKING, Any, BinaryIO, Final, Protocol

from scrapy_walsh.exceptions import DocumentInvalid, StateError
from scrapy_walsh.ledger.documents import DOCUMENTS, Documents
from scrapy_walsh.ledger.files import read_head, rotated
from scrapy_walsh.ledger.lines import FILE, HEAD
from scrapy_walsh.policy.robots import Robots, parse_robots
from scrapy_walsh.policy.schema import reread_blocklist
from scrapy_walsh.proof.verify.chain import Chain, Head
from scrapy_walsh.proof.verify.judge import Judge
from scrapy_walsh.proof.verify.report import Report

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from scrapy_walsh.policy.blocklist import Blocklist

_FULL: Final = re.compile(r"ledger-([0-9]{6})\.jsonl")
#: Octets of a line beyond which it is no line.
_LONGEST: Final = 4 * 1024**2
#: Parsed robots.txt files and lists that are kept in memory.
_ROBOTS_KEPT: Final = 1024
_LISTS_KEPT: Final = 4


class Parse(Protocol):
    """Reads a blocklist, also one that ``policy.schema.is_tame`` is not sure of."""

    def __call__(self, body: bytes, standalone: dict[str, Any] | None, url: str) -> Blocklist:
        """The list in *body*; DocumentInvalid."""


@dataclass(frozen=True, slots=True)
class Files:
    """``parts``: oldest first. ``later``: full files after them were not given."""

    parts: tuple[Path, ...]
    documents: Path
    head: Path | None
    later: bool = False


def files_of(path: Path) -> Files:
    """The files that belong to the ledger *path*, or that lie in the directory; StateError."""
    path = path / FILE if path.is_dir() else path
    if not path.is_file():
        raise StateError(f"{path}: no ledger there; give ledger.jsonl or its directory")
    beside = path.parent
    if path.name == FILE:
        return Files((*rotated(beside), path), beside / DOCUMENTS, beside / HEAD)
    return Files((path,), beside / DOCUMENTS, None, later=bool(_FULL.fullmatch(path.name)))


def verify(files: Files, heads: Sequence[Head], parse: Parse) -> Report:
    """Check a ledger. *heads*: known from elsewhere. *parse*: reads a blocklist. OSError."""
    report = Report()
    known = read_head(files.head) if files.head is not None else None  # before what it is of
    said = [Head(*known, said_by=HEAD)] if known is not None else []
    chain = Chain(report, [*said, *heads])
    documents = Documents(files.documents)
    judge = Judge(report, _LookUp(documents, parse))
    for part in files.parts:
        full = _FULL.fullmatch(part.name)
        chain.begin(part.name, int(full[1]) if full else None)
        with part.open("rb") as file:
            for raw in _lines(file):
                _take(chain, judge, raw)
    judge.end()
    if chain.partial:
        report.note("earlier lines are not here: what rests on them is not derived")
    if not files.documents.exists():
        report.note(f"{files.documents.name} is not here: no document can be read again")
    if documents.fault is not None:
        report.note(f"{files.documents.name} cannot be read: {documents.fault}")
    chain.end(headed=bool(said or heads), running=judge.running, later=files.later)
    report.findings.sort(key=attrgetter("line", "rule", "text"))
    return report


def _take(chain: Chain, judge: Judge, raw: bytes) -> None:
    members = chain.take(raw)
    if chain.hole:
        chain.hole = False
        judge.hole()
    judge.partial = chain.partial
    if members is not None:
        judge.take(members)


def _lines(file: BinaryIO) -> Iterator[bytes]:
    while raw := file.readline(_LONGEST):
        yield raw


class _LookUp:
    """``documents.LookUp``: each document is parsed once, and the latest are kept."""

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
        return self._parse(body, _schema_of(beside), url)

    def _robots(self, digest: str, token: str, document: str) -> Robots | None:
        body = self._documents.get(digest)
        return None if body is None else parse_robots(body, token, document)


def _schema_of(body: bytes | None) -> dict[str, Any] | None:
    if body is None:
        return None
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise DocumentInvalid("its standalone schema is no JSON object")
    return found
