"""The bot operator's ledgers, read as a stream: what they say was sent to some hosts."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlsplit

from scrapy_walsh.ledger.files import rotated
from scrapy_walsh.ledger.lines import ASKED, FILE, REDACTED, parsed
from scrapy_walsh.ledger.reading import GAP, lines_in, readable
from scrapy_walsh.policy import hosts
from scrapy_walsh.proof.audit.reading import Unreadable

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from scrapy_walsh.ledger.reading import Line


class Sent(NamedTuple):
    """One request that a ledger tells of.

    ``start``, ``end``: Unix seconds. ``target``: as on the wire; with ``redacted`` without its
    query. ``status``: 0 where no answer came. ``place``: ``FILE:LINE``.
    """

    start: float
    end: float
    host: str
    method: str
    target: str
    status: int
    redacted: bool
    place: str


@dataclass(slots=True)
class Ledgers:
    """``spans``: first and last time of each ledger. ``faults``: lines that are missing or bad."""

    sent: list[Sent] = field(default_factory=list)
    spans: list[tuple[float, float]] = field(default_factory=list)
    faults: int = 0


def read_ledgers(paths: Sequence[str], asked: Collection[str]) -> Ledgers:
    """What the ledgers at *paths* (a file, or a directory of them) say was sent to hosts *asked*.

    *asked*: keys of R4. Raises OSError; Unreadable where there is no ledger at a path.
    """
    found = Ledgers()
    for path in paths:
        times = [at for file in _files(Path(path)) for at in _read(file, asked, found)]
        if not times:
            raise Unreadable(f"{path} is not a ledger: give a ledger.jsonl, or its directory")
        found.spans.append((min(times), max(times)))
    return found


def _files(path: Path) -> list[Path]:
    return [*rotated(path), path / FILE] if path.is_dir() else [path]


def _read(path: Path, asked: Collection[str], found: Ledgers) -> Iterator[float]:
    """Take in one file; yield the time of its first and its last line."""
    first = last = None
    for number, (_, raw) in enumerate(lines_in([path]), 1):
        try:
            line = readable(parsed(raw.removesuffix(b"\n")))
            if not line.at:
                raise ValueError("has no time")
            last = line.at
            first = last if first is None else first
            _take(line, asked, found, f"{path}:{number}")
        except (ValueError, RecursionError):
            found.faults += 1
    if first is not None and last is not None:
        yield from (first, last)


def _take(line: Line, asked: Collection[str], found: Ledgers, place: str) -> None:
    """Take a line in. Raises ValueError where it does not say what was sent, or when."""
    if line.kind == GAP:
        found.faults += line.lost or 1
    if line.kind != ASKED:
        return
    url = line.sent or line.url
    host = hosts.host_key(url)
    if not line.started:
        raise ValueError("has no start")
    if host in asked:
        redacted = url.endswith(REDACTED)
        found.sent.append(
            Sent(
                line.started,
                line.ended or line.started,
                host,
                line.method,
                _target(url.removesuffix(REDACTED) if redacted else url),
                line.status or 0,
                redacted,
                place,
            )
        )


def _target(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.path or '/'}{f'?{parts.query}' if parts.query else ''}"
