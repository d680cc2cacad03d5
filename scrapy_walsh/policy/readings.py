"""R8, R11: whether each declared source is still read, and what the operator must be told.

One source among a hundred may be dead, answer 403, opt out, or be deferred for weeks, and the log
line about it would be overlooked. So each run compares what it found with the records. A source
that was not read for three of its periods is named at the end, and so is one that has moved for
good. A run that comes before a source is due changes nothing about it.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, TypeVar

from scrapy_walsh.policy.recrawl import REVISIT_FLOOR, SLACK
from scrapy_walsh.policy.times import Wall, duration, iso
from scrapy_walsh.policy.words import plural

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from scrapy_walsh.policy.verdict import Verdict

_T = TypeVar("_T")
#: What became of a source in one run. READ: its data came, or it has not changed (304).
READ: Final = "read"
NOT_DUE: Final = "not_due"
REFUSED: Final = "refused"
DEFERRED: Final = "deferred"
LEFT_OUT: Final = "left_out"
FAILED: Final = "failed"
#: The run ended before the source was answered, or refused.
UNANSWERED: Final = "unanswered"

OUTCOMES: Final = (READ, NOT_DUE, REFUSED, DEFERRED, LEFT_OUT, FAILED, UNANSWERED)

#: For how many of its periods (WALSH_REVISIT) a source may not be read before it is named.
PERIODS: Final = 3
#: Sources that are named one by one at the end of a run.
LISTED: Final = 20
#: Scrapy's word for a run that came to its end by itself.
_FINISHED: Final = "finished"

#: How the last line of a run calls an outcome, in the order in which it counts them.
_WORDS: Final[Mapping[str, str]] = {
    NOT_DUE: "not due",
    REFUSED: "refused",
    DEFERRED: "deferred",
    LEFT_OUT: "left out",
    FAILED: "failed",
    UNANSWERED: "not answered",
}
_LONGEST: Final = 500


@dataclass(frozen=True, slots=True)
class Reading:
    """Whether a declared source is still read. Times are Unix seconds.

    ``url``: of the source. ``since``: when it was last read, or first declared where it never was.
    ``declared_at``: when a run last declared it. ``read``: 1 where it was ever read, else 0.
    ``reason``: why the last visit did not read it, None where it did. ``moved_to``: where a
    permanent redirect led at the last visit that was answered. ``gone_at``: when it answered 410,
    so that it is left alone (``recrawl.RETIRED``) and named no more; None where it has not.
    """

    url: str
    since: Wall
    declared_at: Wall
    read: int = 0
    reason: str | None = None
    moved_to: str | None = None
    gone_at: Wall | None = None


@dataclass(frozen=True, slots=True)
class Heard:
    """What one run learned of a source.

    ``outcome``: one of the constants above. ``reason``: why it was not read, one line. ``at``:
    when that was known, Unix seconds. ``moved_to``: where permanent redirects, and no others, led.
    ``gone``: it answered 410.
    """

    outcome: str = UNANSWERED
    reason: str = ""
    at: float = 0.0
    moved_to: str | None = None
    gone: bool = False


def outcome_of(verdict: Verdict, due: float | None) -> str:
    """What becomes of a source that *verdict* is against; *due*: where it was deferred."""
    if verdict.name == NOT_DUE:
        return NOT_DUE
    return REFUSED if due is None and verdict.name != DEFERRED else DEFERRED


def replaces(known: str | None, outcome: str) -> bool:
    """Whether *outcome* is what becomes of a source in this run, of which *known* was before.

    A source that was read stays read. NOT_DUE does not replace an outcome that says more.
    """
    return known in (None, UNANSWERED) or (known != READ and outcome != NOT_DUE)


def updated(old: Reading | None, url: str, heard: Heard, now: float) -> Reading:
    """The record of *url* after a run that ends at *now*; *old*: the one before it.

    A time on record that lies in the future is a clock that was put back: it counts as *now*.
    """
    base = Reading(url, now, now) if old is None else old
    base = replace(base, since=min(base.since, now), declared_at=now)
    if heard.outcome == READ:
        read = replace(base, since=heard.at, read=1, gone_at=None)
        return replace(read, reason=None, moved_to=heard.moved_to)
    if heard.outcome in (NOT_DUE, UNANSWERED):
        return base
    moved_to, gone_at = heard.moved_to or base.moved_to, heard.at if heard.gone else None
    return replace(base, reason=heard.reason, moved_to=moved_to, gone_at=gone_at)


def is_unread(reading: Reading, now: float, revisit: float) -> bool:
    """Whether the source was not read for so long that the operator must be told.

    *revisit*: WALSH_REVISIT, seconds. A run may be a tenth of it early (``recrawl.SLACK``), so the
    third period is over for a run that comes as early as that. A source that is gone was told once.
    """
    if reading.gone_at is not None:
        return False
    return now - reading.since >= (PERIODS - SLACK) * max(revisit, REVISIT_FLOOR)


def unread_lines(readings: Sequence[Reading], now: float, revisit: float) -> list[str]:
    """A line for each of *readings*, the source that was not read longest first."""
    longest = sorted(readings, key=lambda reading: (reading.since, reading.url))
    return _first(longest, lambda reading: _unread_line(reading, now, revisit))


def moved_lines(readings: Sequence[Reading]) -> list[str]:
    """A line for each of *readings*, sources that have moved for good."""
    return _first(
        readings,
        lambda each: f"{each.url} has moved for good to {each.moved_to}: change it in your list",
    )


def gone_lines(urls: Sequence[str]) -> list[str]:
    """A line for each of *urls*, sources that have answered 410 in this run."""
    return _first(
        urls,
        lambda url: (
            f"{url} is gone (410): take it out of your list; it is requested again in 30 "
            "days at the earliest"
        ),
    )


def last_line(outcomes: Mapping[str, int], needy: int, close_reason: str) -> str:
    """The last line of a run, for somebody who reads no other.

    *outcomes*: sources by outcome. *needy*: those that need a person. *close_reason*: why the
    spider was closed, Scrapy's word.
    """
    counts = Counter(outcomes)
    total = counts.total()
    if total:
        parts = [f"{counts[READ]} of {plural(total, 'source')} read or unchanged"]
        parts += [f"{counts[name]} {word}" for name, word in _WORDS.items() if counts[name]]
    else:
        parts = ["no source was declared"]
    stopped = "" if close_reason == _FINISHED else f"stopped ({close_reason}): "
    needs = {0: "", 1: "; 1 needs a person: see the warnings above"}.get(
        needy, f"; {needy} need a person: see the warnings above"
    )
    return f"walsh: {stopped}{', '.join(parts)}{needs}"


def refusal_line(verdict: Verdict) -> str:
    """A refusal in one line: by which requirement and rule, and in which document."""
    by = f"by {verdict.rule}" if verdict.rule else f"({verdict.reason})"
    line = "" if verdict.line is None else f":{verdict.line}"
    where = f" in {verdict.document}{line}" if verdict.document else ""
    return f"{verdict.requirement} {verdict.name} {by}{where}"


def one_line(text: str) -> str:
    """*text*, parts of which a server may have chosen, as one short printable line."""
    text = " ".join(text.split())[:_LONGEST]
    return text if text.isprintable() else ascii(text)[1:-1]


def _first(found: Sequence[_T], line: Callable[[_T], str]) -> list[str]:
    """The lines of the first LISTED of *found*, and one that says how many more there are."""
    lines = [line(each) for each in found[:LISTED]]
    if len(found) > LISTED:
        lines.append(f"... and {len(found) - LISTED} more (scrapy walsh state show lists them)")
    return lines


def _unread_line(reading: Reading, now: float, revisit: float) -> str:
    date = iso(reading.since)[:10]
    since = (
        f"has not been read since {date}"
        if reading.read
        else f"was never read since it was declared on {date}"
    )
    age, period = duration(now - reading.since), duration(max(revisit, REVISIT_FLOOR))
    reason = reading.reason or "no run since then was answered before it ended"
    return f"{reading.url} {since} ({age}, WALSH_REVISIT is {period}): {reason}"
