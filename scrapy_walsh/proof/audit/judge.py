"""The audit of a log: a row for each promise that a server can see. Pure: values in, rows out."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from scrapy_walsh.policy.signing import FIELDS
from scrapy_walsh.policy.times import duration, iso
from scrapy_walsh.policy.words import plural
from scrapy_walsh.proof import signatures
from scrapy_walsh.proof.audit import pace_rows, robots_rows
from scrapy_walsh.proof.audit.rows import Row, shown
from scrapy_walsh.proof.exchanges import ROBOTS
from scrapy_walsh.proof.findings import Outcome, overall
from scrapy_walsh.proof.signatures import Seen

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scrapy_walsh.proof.audit.reading import Entry, Log

# Tells the bot's own requests from forged ones, if they are signed and the log has the signatures.
#
# Pure: log entries and the keys of a directory in, entries and reasons out. If the signature of a
# request holds, the bot has sent it. Any other request may come from any client, whatever its
# User-Agent says, and shows nothing about the bot.

#: For a request with the signature of an earlier one, which other people may have seen.
_REPLAYED: Final = "a signature sent again"


@dataclass(slots=True)
class Own:
    """The result: ``entries`` of the bot, and requests that are not its.

    ``keys``: how many requests each key signed. ``forged``: the place of each request that is not
    the bot's, and why.
    """

    entries: list[Entry]
    keys: Counter[str]
    forged: list[tuple[str, str]]


def tell_apart(entries: Sequence[Entry], keys: Sequence[dict[str, Any]], slack: float) -> Own:
    """Judge each of *entries*. *slack*: seconds that the log's clock may be off."""
    own_requests = Own([], Counter(), [])
    signatures_seen = set[str]()
    for entry in entries:
        judgement = signatures.judge(_seen(entry), keys, slack=slack)
        if judgement.fault is not None:
            own_requests.forged.append((entry.place, judgement.fault.value))
        elif judgement.value in signatures_seen:
            own_requests.forged.append((entry.place, _REPLAYED))
        else:
            signatures_seen.add(judgement.value)
            own_requests.entries.append(entry)
            own_requests.keys[judgement.keyid] += 1
    return own_requests


def _seen(entry: Entry) -> Seen:
    fields = zip(FIELDS, entry.signature or (), strict=False)
    lines = {name.lower(): [value] for name, value in fields if value}
    return Seen(entry.method, entry.site, entry.target, float(entry.time), lines)


@dataclass(frozen=True, slots=True)
class Terms:
    """The facts that the site owner knows beside the log; times are Unix seconds, durations
    seconds.

    ``user_agent``: the exact one. ``timeline``: robots.txt, by time, if given. ``optout``:
    when the site was listed on the operator's blocklist. ``refresh``: that list's. ``documents``:
    host and path of the operator's own documents, which are not targets (T14).
    """

    user_agent: str
    timeline: tuple[robots_rows.Version, ...] = ()
    optout: float | None = None
    refresh: float = 21600.0
    retry_after: float | None = None
    answer_time: float = 0.0
    documents: frozenset[tuple[str, str]] = frozenset()


def judge(log: Log, terms: Terms) -> list[Row]:
    """The rows, in the order of the requirements. ``log``: one with entries, sorted by time."""
    start = log.first or 0
    end = log.last or 0
    walk = list(robots_rows.steps(log.entries, terms.timeline))
    targets = [
        step
        for step in walk
        if step.entry.path != ROBOTS and (step.entry.host, step.entry.path) not in terms.documents
    ]
    return [
        agent_row(log.entries, terms.user_agent),
        robots_rows.asked_row(targets, start),
        robots_rows.obeyed_row(targets, terms.timeline),
        optout_row(log.entries, end, terms),
        pace_rows.spacing_row(walk, terms.answer_time, rules=bool(terms.timeline)),
        pace_rows.backoff_row(walk, terms.retry_after, terms.answer_time),
        pace_rows.conditional_row(walk),
        pace_rows.revisit_row(targets, end),
    ]


def outcome(rows: Sequence[Row]) -> Outcome:
    """The outcome of all rows but those of a SHOULD."""
    return overall(row.outcome for row in rows if row.level != "SHOULD")


def agent_row(entries: Sequence[Entry], expected: str) -> Row:
    """R1: the exact User-Agent, byte for byte."""
    row = Row("R1", "MUST", "User-Agent exact")
    for entry in entries:
        if entry.agent is None:
            row.undecided += 1
        elif entry.agent == expected:
            row.seen += 1
        else:
            row.breach(
                entry,
                f"from {entry.address}, {shown(entry.agent) or 'no User-Agent'}",
            )
    row.tell(
        f"{row.seen} of {len(entries)} exact",
        row.undecided and f"{plural(row.undecided, 'line')} in a format without User-Agent",
    )
    return row


def optout_row(entries: Sequence[Entry], last: int, terms: Terms) -> Row:
    """R3: nothing, robots.txt included, once the blocklist with the site has been read again."""
    row = Row("R3", "MUST", "nothing asked after the opt-out")
    if terms.optout is None:
        row.detail = "no opt-out to judge by: give --optout TIME"
        return row
    late = [entry for entry in entries if entry.time > terms.optout]
    end = terms.optout + terms.refresh
    for entry in late:
        if entry.time - pace_rows.CLOCK > end:
            lag = duration(entry.time - terms.optout)
            row.breach(entry, f"{lag} after the opt-out")
        else:
            row.undecided += 1
    row.seen = int(last > end and not row.broken)
    row.tell(
        f"requests after {iso(terms.optout)}: {len(late)}",
        late and f"the last {duration(late[-1].time - terms.optout)} after it",
        row.undecided and f"{row.undecided} while the list may be held ({duration(terms.refresh)})",
        last <= end and f"the log ends before {iso(end)}",
    )
    return row
