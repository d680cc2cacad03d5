"""Matches the log's and the ledgers' requests one to one, which shows what one of them omits."""

from __future__ import annotations

from bisect import insort
from collections import defaultdict
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import urlsplit

from scrapy_walsh.ledger.files import FILE, REDACTED, parsed, rotated
from scrapy_walsh.policy import hosts
from scrapy_walsh.policy.event import ASKED
from scrapy_walsh.proof.audit.reading import Unreadable
from scrapy_walsh.proof.audit.rows import Row
from scrapy_walsh.proof.ledger import GAP, line_of, lines_in

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from scrapy_walsh.proof.audit.reading import Entry, Log
    from scrapy_walsh.proof.ledger import Line

# The bot operator's ledgers, read as a stream: what they say was sent to some hosts.


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
    for path in map(Path, paths):
        files = [*rotated(path), path / FILE] if path.is_dir() else [path]
        times = [at for file in files for at in _read(file, asked, found)]
        if not times:
            raise Unreadable(f"{path} is not a ledger: give a ledger.jsonl, or its directory")
        found.spans.append((min(times), max(times)))
    return found


def _read(path: Path, asked: Collection[str], found: Ledgers) -> list[float]:
    """Take in one file; the time of its first and of its last line."""
    times: list[float] = []
    for number, (_, raw) in enumerate(lines_in([path]), 1):
        try:
            line = line_of(parsed(raw.removesuffix(b"\n")))
            times[1:] = [line.at]
            _take(line, asked, found, f"{path}:{number}")
        except (ValueError, RecursionError):
            found.faults += 1
    return times


def _take(line: Line, asked: Collection[str], found: Ledgers, place: str) -> None:
    """Take a line in. Raises ValueError where it does not say what was sent, or when."""
    if line.kind == GAP:
        found.faults += line.lost or 1
    if line.kind != ASKED:
        return
    url = line.sent or line.url
    host = hosts.host_key(url)
    if host in asked:
        redacted = url.endswith(REDACTED)
        target = _target(url.removesuffix(REDACTED) if redacted else url)
        told = line.method, target, line.status or 0, redacted, place
        found.sent.append(Sent(line.started, line.ended or line.started, host, *told))


def _target(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.path or '/'}{f'?{parts.query}' if parts.query else ''}"


#: The level of these rows: no requirement of the spec, but a contradiction all the same.
MATCH: Final = "MATCH"
#: Seconds after the bot has gone that a server may notice, or answer all the same.
UNNOTICED: Final = 60.0


def match_rows(log: Log, ledgers: Ledgers, skew: float) -> list[Row]:
    """A row for what the ledgers omit, and one for what the log does.

    *skew*: seconds by which the two machines' clocks may differ. Only a time that both sides
    cover decides anything.
    """
    entries, sent = pair(log.entries, ledgers.sent, skew)
    matched = len(log.entries) - len(entries)
    told = Row("--", MATCH, "in the log, also in the ledger", seen=matched)
    for entry in entries:
        if any(first + skew < entry.time < last - skew for first, last in ledgers.spans):
            told.breach(entry, "not in the ledger")
        else:
            told.undecided += 1
    told.tell(
        f"matched: {matched}; outside the ledger's time: {told.undecided}",
        ledgers.faults and f"ledger lines missing or damaged: {ledgers.faults} (walsh verify)",
    )
    logged = Row("--", MATCH, "in the ledger, also in the log", seen=matched)
    first, last = (log.first or 0) + skew, (log.last or 0) - skew
    for each in sent:
        if each.status and first < each.start and each.end < last:
            logged.breach(each, "not in the log")
        else:
            logged.undecided += 1
    logged.detail = f"matched: {matched}; unanswered, or outside the log's time: {logged.undecided}"
    return [told, logged]


def pair(
    entries: Sequence[Entry], sent: Sequence[Sent], skew: float
) -> tuple[list[Entry], list[Sent]]:
    """The requests of both sides that are left after each was matched with at most one.

    By host, method, target, status and time; then without the status where no answer came, and
    without the query where the ledger was redacted.
    """
    left, rest = list(entries), list(sent)
    for answered, redacted in product((True, False), (False, True)):
        left, rest = _pass(left, rest, skew, answered=answered, redacted=redacted)
    return left, rest


def _pass(
    entries: Iterable[Entry], sent: Iterable[Sent], skew: float, *, answered: bool, redacted: bool
) -> tuple[list[Entry], list[Sent]]:
    def key(each: Entry | Sent) -> tuple[str, str, str, int]:
        target = each.target.partition("?")[0] if redacted else each.target
        return each.host, each.method, target, each.status if answered else 0

    alike: dict[Any, tuple[list[Entry], list[Sent]]] = defaultdict(lambda: ([], []))
    left: list[Entry] = []
    rest: list[Sent] = []
    for entry in entries:
        alike[key(entry)][0].append(entry)
    for each in sent:
        applies = each.redacted == redacted and (answered or not each.status)
        (alike[key(each)][1] if applies else rest).append(each)
    for logged, told in alike.values():
        alone, untold = _by_time(logged, told, skew)
        left += alone
        rest += untold
    return sorted(left, key=lambda entry: entry.time), sorted(rest)


def _by_time(
    entries: Iterable[Entry], sent: Iterable[Sent], skew: float
) -> tuple[list[Entry], list[Sent]]:
    """What is left of both when as many as possible are paired.

    Each entry takes, of the exchanges that it may stand for, the one that ends first. Its time is
    the second in which the request came or its answer was complete.
    """
    waiting = sorted(sent, key=lambda each: each.start, reverse=True)
    current: list[tuple[float, Sent]] = []
    alone, untold = [], []
    for entry in sorted(entries, key=lambda each: each.time):
        while waiting and waiting[-1].start - skew < entry.time + 1:
            each = waiting.pop()
            insort(current, (each.end + skew + (0.0 if each.status else UNNOTICED), each))
        while current and current[0][0] < entry.time:
            untold.append(current.pop(0)[1])
        if current:
            current.pop(0)
        else:
            alone.append(entry)
    return alone, [*untold, *(each for _, each in current), *waiting]
