"""Matches the log's and the ledgers' requests one to one, which shows what one of them omits."""

from __future__ import annotations

from bisect import insort
from collections import defaultdict
from typing import TYPE_CHECKING, Any, Final

from scrapy_walsh.proof.audit.rows import Row

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from scrapy_walsh.proof.audit.ledgers import Ledgers, Sent
    from scrapy_walsh.proof.audit.reading import Entry, Log

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
    first, last = (log.first or 0) + skew, (log.last or 0) - skew
    return [
        _omitted_by_ledger(entries, matched, ledgers, skew),
        _omitted_by_log(sent, matched, first, last),
    ]


def pair(
    entries: Sequence[Entry], sent: Sequence[Sent], skew: float
) -> tuple[list[Entry], list[Sent]]:
    """The requests of both sides that are left after each was matched with at most one.

    By host, method, target, status and time; then without the status where no answer came, and
    without the query where the ledger was redacted.
    """
    keys: list[tuple[Callable[[Any], Any], Callable[[Sent], bool]]] = [
        (lambda each: (*_who(each), each.target, each.status), lambda each: not each.redacted),
        (lambda each: (*_who(each), _path(each), each.status), lambda each: each.redacted),
        (lambda each: (*_who(each), each.target), lambda each: not (each.redacted or each.status)),
        (lambda each: (*_who(each), _path(each)), lambda each: each.redacted and not each.status),
    ]
    left, open_ = list(entries), list(sent)
    for key, applies in keys:
        left, open_ = _pass(left, open_, key, applies, skew)
    return left, open_


def _who(each: Entry | Sent) -> tuple[str, str]:
    return each.host, each.method


def _path(each: Entry | Sent) -> str:
    return each.target.partition("?")[0]


def _pass(
    entries: list[Entry],
    sent: list[Sent],
    key: Callable[[Any], Any],
    applies: Callable[[Sent], bool],
    skew: float,
) -> tuple[list[Entry], list[Sent]]:
    groups: dict[Any, tuple[list[Entry], list[Sent]]] = defaultdict(lambda: ([], []))
    rest = [each for each in sent if not applies(each)]
    for each in sent:
        if applies(each):
            groups[key(each)][1].append(each)
    left = []
    for entry in entries:
        group = groups.get(key(entry))
        if group is None:
            left.append(entry)
        else:
            group[0].append(entry)
    for logged, told in groups.values():
        alone, untold = _by_time(logged, told, skew)
        left += alone
        rest += untold
    left.sort(key=lambda entry: entry.time)
    rest.sort()
    return left, rest


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


def _omitted_by_ledger(
    entries: Sequence[Entry], matched: int, ledgers: Ledgers, skew: float
) -> Row:
    row = Row("--", MATCH, "in the log, also in the ledger", seen=matched)
    for entry in entries:
        if any(first + skew < entry.time < last - skew for first, last in ledgers.spans):
            row.breach(entry, "not in the ledger")
        else:
            row.undecided += 1
    row.detail = f"matched: {matched}; outside the ledger's time: {row.undecided}"
    if ledgers.faults:
        row.detail += f"; ledger lines missing or damaged: {ledgers.faults} (walsh verify)"
    return row


def _omitted_by_log(sent: Sequence[Sent], matched: int, first: float, last: float) -> Row:
    row = Row("--", MATCH, "in the ledger, also in the log", seen=matched)
    for each in sent:
        if each.status and first < each.start and each.end < last:
            row.breach(each, "not in the log")
        else:
            row.undecided += 1
    row.detail = f"matched: {matched}; unanswered, or outside the log's time: {row.undecided}"
    return row
