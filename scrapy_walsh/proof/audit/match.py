"""Matches the log's and the ledgers' requests one to one, which shows what one of them omits."""

from __future__ import annotations

from bisect import insort
from collections import defaultdict
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import urlsplit

from scrapy_walsh.ledger.files import FILE, parse_line, rotated_files
from scrapy_walsh.policy import hosts
from scrapy_walsh.policy.event import ASKED
from scrapy_walsh.policy.urls import REDACTED
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
    query. ``status``: 0 if no answer came. ``place``: ``FILE:LINE``.
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


def read_ledgers(paths: Sequence[str], hosts: Collection[str]) -> Ledgers:
    """The requests to the *hosts* that the ledgers at *paths* have; a path is a file, or a
    directory of them.

    *hosts*: keys of R4. Raises OSError; Unreadable if there is no ledger at a path.
    """
    ledgers = Ledgers()
    for path in map(Path, paths):
        files = [*rotated_files(path), path / FILE] if path.is_dir() else [path]
        times = [at for file in files for at in _read(file, hosts, ledgers)]
        if not times:
            raise Unreadable(f"{path} is not a ledger: give a ledger.jsonl, or its directory")
        ledgers.spans.append((min(times), max(times)))
    return ledgers


def _read(path: Path, hosts: Collection[str], ledgers: Ledgers) -> list[float]:
    """Take in one file; the time of its first and of its last line."""
    times: list[float] = []
    for number, (_, raw) in enumerate(lines_in([path]), 1):
        try:
            line = line_of(parse_line(raw.removesuffix(b"\n")))
            times[1:] = [line.at]
            _take(line, hosts, ledgers, f"{path}:{number}")
        except (ValueError, RecursionError):
            ledgers.faults += 1
    return times


def _take(line: Line, asked: Collection[str], ledgers: Ledgers, place: str) -> None:
    """Take a line in. Raises ValueError if it does not say what was sent, or when."""
    if line.kind == GAP:
        ledgers.faults += line.lost or 1
    if line.kind != ASKED or line.unsent:
        return
    url = line.sent or line.url
    host = hosts.host_key(url)
    if host in asked:
        redacted = url.endswith(REDACTED)
        target = _target(url.removesuffix(REDACTED) if redacted else url)
        exchange = line.method, target, line.status or 0, redacted, place
        ledgers.sent.append(Sent(line.started, line.ended or line.started, host, *exchange))


def _target(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.path or '/'}{f'?{parts.query}' if parts.query else ''}"


#: The level of these rows: no requirement of the spec, but a contradiction all the same.
MATCH: Final = "MATCH"
#: Seconds after the bot has gone that a server may notice, or answer all the same.
UNNOTICED: Final = 60.0


def match_rows(log: Log, ledgers: Ledgers, skew: float) -> list[Row]:
    """A row for what the ledgers omit, and one for what the log does.

    *skew*: seconds that the two machines' clocks may differ. Only a time that both sides cover
    decides anything.
    """
    entries, unmatched = pair(log.entries, ledgers.sent, skew)
    matched = len(log.entries) - len(entries)
    row = Row("--", MATCH, "in the log, also in the ledger", seen=matched)
    for entry in entries:
        if any(begin + skew < entry.time < end - skew for begin, end in ledgers.spans):
            row.breach(entry, "not in the ledger")
        else:
            row.undecided += 1
    row.tell(
        f"matched: {matched}; outside the ledger's time: {row.undecided}",
        ledgers.faults and f"ledger lines missing or damaged: {ledgers.faults} (walsh verify)",
    )
    logged = Row("--", MATCH, "in the ledger, also in the log", seen=matched)
    begin = (log.first or 0) + skew
    end = (log.last or 0) - skew
    for exchange in unmatched:
        if exchange.status and begin < exchange.start and exchange.end < end:
            logged.breach(exchange, "not in the log")
        else:
            logged.undecided += 1
    logged.detail = f"matched: {matched}; unanswered, or outside the log's time: {logged.undecided}"
    return [row, logged]


def pair(
    entries: Sequence[Entry], exchanges: Sequence[Sent], skew: float
) -> tuple[list[Entry], list[Sent]]:
    """The requests of both sides that are left after each was matched with at most one.

    They are compared by host, method, target, status and time. A second pass leaves out the status
    if no answer came, and the query if the ledger was redacted.
    """
    unpaired = list(entries)
    unlogged = list(exchanges)
    for answered, redacted in product((True, False), (False, True)):
        unpaired, unlogged = _pass(unpaired, unlogged, skew, answered=answered, redacted=redacted)
    return unpaired, unlogged


def _pass(
    entries: Iterable[Entry],
    sent: Iterable[Sent],
    skew: float,
    *,
    answered: bool,
    redacted: bool,
) -> tuple[list[Entry], list[Sent]]:
    def key(item: Entry | Sent) -> tuple[str, str, str, int]:
        target = item.target.partition("?")[0] if redacted else item.target
        return item.host, item.method, target, item.status if answered else 0

    alike: dict[Any, tuple[list[Entry], list[Sent]]] = defaultdict(lambda: ([], []))
    unpaired: list[Entry] = []
    unlogged: list[Sent] = []
    for entry in entries:
        alike[key(entry)][0].append(entry)
    for exchange in sent:
        applies = exchange.redacted == redacted and (answered or not exchange.status)
        (alike[key(exchange)][1] if applies else unlogged).append(exchange)
    for logged, exchanges in alike.values():
        alone, untold = _by_time(logged, exchanges, skew)
        unpaired += alone
        unlogged += untold
    return sorted(unpaired, key=lambda entry: entry.time), sorted(unlogged)


def _by_time(
    entries: Iterable[Entry], exchanges: Iterable[Sent], skew: float
) -> tuple[list[Entry], list[Sent]]:
    """The remainder of both when as many as possible are paired.

    Of the exchanges that an entry may stand for, it takes the exchange that ends first. Its time is
    the second when the request came, or when its answer was complete.
    """
    waiting = sorted(exchanges, key=lambda exchange: exchange.start, reverse=True)
    current: list[tuple[float, Sent]] = []
    alone = []
    untold = []
    for entry in sorted(entries, key=lambda logged: logged.time):
        while waiting and waiting[-1].start - skew < entry.time + 1:
            exchange = waiting.pop()
            insort(
                current,
                (
                    exchange.end + skew + (0.0 if exchange.status else UNNOTICED),
                    exchange,
                ),
            )
        while current and current[0][0] < entry.time:
            untold.append(current.pop(0)[1])
        if current:
            current.pop(0)
        else:
            alone.append(entry)
    return alone, [*untold, *(exchange for _, exchange in current), *waiting]
