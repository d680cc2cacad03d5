"""R11: whether a declared source is still read.

Each run has a :class:`Result` for each of its sources, and updates the source's :class:`Reading`, a
record that lasts. For example, a source that answers 403 has FAILED, and its reading remembers when
it was last read. A run that comes before a source is due changes nothing. ``policy.summary`` tells
the operator which sources need a person.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from scrapy_walsh.policy import verdict as verdicts
from scrapy_walsh.policy.hosts import host_key
from scrapy_walsh.policy.throttle import Wall  # noqa: TC001  a store reads the declared types
from scrapy_walsh.policy.verdict import DEFERRED, NOT_DUE, Verdict
from scrapy_walsh.policy.visits import CLOSED, SLACK, VisitOf, interval_of, period
from scrapy_walsh.policy.words import plural

if TYPE_CHECKING:
    from collections.abc import Iterable

    from scrapy_walsh.policy.event import Event

#: The outcomes of a source in one run. READ: its data came, or it has not changed (304).
READ: Final = "read"
REFUSED: Final = "refused"
LEFT_OUT: Final = "left_out"
FAILED: Final = "failed"
#: The run ended before it could send the first or the next request of the source.
NOT_REQUESTED: Final = "not_requested"

#: In the order of the last line of a run, which counts them.
OUTCOMES: Final = (READ, NOT_DUE, REFUSED, DEFERRED, LEFT_OUT, FAILED, NOT_REQUESTED)

#: The documents that a source may declare; R9 reads a feed first.
FEED: Final = "feed"
SITEMAP: Final = "sitemap"

#: A source that was not read for so many of its periods needs a person.
PERIODS: Final = 3
#: Seconds after which a warning is repeated while its condition lasts; less SLACK, as for R8.
NAMED_AGAIN: Final = 7 * 86400.0


@dataclass(frozen=True, slots=True)
class Cause:
    """The cause why a source was not read, in fields that do not change from run to run.

    ``requirement``: its id, for example ``R2``, or a setting's name; "" without a rule.
    ``verdict``: the name of the verdict, if a verdict is the cause. ``status``: of the answer, if
    no rule is about it.
    """

    requirement: str = ""
    verdict: str = ""
    status: int | None = None


#: The source was read, or only the sentence is known.
NO_CAUSE: Final = Cause()
#: Opt-outs: the site owner refuses the source, in robots.txt or by the operator's blocklist.
_OPT_OUTS: Final = frozenset(Cause(*names) for names in verdicts.OWNERS_NO)


def cause_of(requirement: str, verdict: str = "") -> Cause:
    """The cause for a rule: its *requirement*, and the name of its *verdict*.

    R5 is one cause, because a host without an answer may answer 503 tomorrow. D5 is one cause, too.
    """
    return Cause(requirement, "" if requirement in {"R5", "D5"} else verdict)


@dataclass(frozen=True, slots=True)
class Reading:
    """Whether a declared source is still read. Times are Unix seconds.

    ``url``: the source's key. ``since``: when it was last read; when it was first declared if it
    was never read. ``declared_at``: when a run last declared it. ``read``: 1 if it was ever read,
    else 0. ``reason``: why the last visit did not read it, one line; None if it did. ``cause``: the
    same in fields. ``moved_to``: the target of permanent redirects at the last visit that read it.
    ``gone_at``: when it answered 410, or its door was closed (``visits.CLOSED``); else None.
    ``revisit``: its own cadence, seconds, as in a ``Visit``. ``told_at``: when a warning last named
    its present condition; None if none did.
    ``read_as``: the declared document that was read, FEED or SITEMAP; None if a page is declared,
    or something else was read in its place. ``entries``: how many the feed or sitemap had at the
    last reading, 0 if it was never read. ``ends_early``: 1 if its end was missing then. ``robots``:
    why the robots.txt of its host was rejected, a word; empty if it was not. ``robots_told_at``:
    when a warning last said so.
    """

    url: str
    since: Wall
    declared_at: Wall
    read: int = 0
    reason: str | None = None
    moved_to: str | None = None
    gone_at: Wall | None = None
    revisit: float | None = None
    told_at: Wall | None = None
    read_as: str | None = None
    entries: int = 0
    ends_early: int = 0
    cause: Cause = field(default_factory=Cause)
    robots: str = ""
    robots_told_at: Wall | None = None


@dataclass(frozen=True, slots=True)
class Result:
    """The result of one run for a source.

    ``outcome``: one of the constants above. ``reason``: why it was not read, one line. ``cause``:
    the same in fields. ``at``: the time of the outcome, Unix seconds. ``moved_to``: the target of
    permanent redirects, if no others led there. ``gone``: as for ``gone_at``. ``revisit``,
    ``read_as``, ``entries``, ``ends_early``: as in a :class:`Reading`; ``entries`` is None if no
    entries were read.
    """

    outcome: str = NOT_REQUESTED
    reason: str = ""
    at: float = 0.0
    moved_to: str | None = None
    gone: bool = False
    revisit: float | None = None
    read_as: str | None = None
    entries: int | None = None
    ends_early: bool = False
    cause: Cause = NO_CAUSE


def loss(reading: Reading | None, entries: int, *, ends_early: bool) -> str:
    """Why a feed or sitemap with *entries* counts as unread; empty if it counts as read.

    *reading*: the record before this run. If a document that had entries is empty or cut off, a
    fault of its server is likelier than its owner's will. But if its end was missing in the last
    reading, too, the publisher writes it so.
    """
    if reading is None or not reading.entries or (entries and not ends_early):
        return ""
    had = f"it had {plural(reading.entries, 'entry', 'entries')} when it was last read"
    if not entries:
        return f"no entries, and {had}"
    return "" if reading.ends_early else f"cut off, and {had}"


def has_stand_in(reading: Reading | None, kind: str) -> bool:
    """Whether another format may be read if the declared document *kind* could not be read.

    *kind*: FEED or SITEMAP. *reading*: the record before this run. It may as long as the document
    was never read, nor a feed in place of a sitemap. After that, a broken server for a day would
    replace the source's links by others.
    """
    if reading is None or reading.read_as is None:
        return True
    return kind == FEED and reading.read_as == SITEMAP


def moved_together(moves: Iterable[tuple[str, str]]) -> set[str]:
    """The URLs that sources of several hosts have moved to for good in one run.

    *moves*: URLs or keys of sources, each with its new URL. A shared URL is rather a parked domain
    or a portal than a source.
    """
    host_by_url: dict[str, str] = {}
    shared = set()
    for key, new_url in moves:
        host = host_of(key)
        if host_by_url.setdefault(new_url, host) != host:
            shared.add(new_url)
    return shared


def outcome_of(verdict: Verdict, due: float | None) -> str:
    """The outcome of a source that *verdict* refuses. *due*: when a deferred source is due."""
    if verdict.is_dead:
        return FAILED
    if verdict.name == NOT_DUE:
        return NOT_DUE
    return REFUSED if due is None and verdict.name != DEFERRED else DEFERRED


def result_of(verdict: Verdict, due: float | None) -> Result:
    """The result for a source that *verdict* refuses. *due*: as in :func:`outcome_of`."""
    cause = cause_of(verdict.requirement, verdict.name)
    return Result(outcome_of(verdict, due), refusal_line(verdict), cause=cause)


def replaces(earlier: str, outcome: str) -> bool:
    """Whether *outcome* replaces the *earlier* outcome of a source in the same run.

    A source that was read stays read. NOT_DUE replaces no outcome that is more precise.
    """
    return earlier == NOT_REQUESTED or (earlier != READ and outcome != NOT_DUE)


def updated(old: Reading | None, url: str, result: Result, now: float) -> Reading:
    """The record of *url* after a run that ends at *now*. *old*: the record before it.

    A time in the future comes from a clock that was put back, and counts as *now*. A deferral of a
    source that is gone, or was refused by its owner, is no news.
    """
    base = Reading(url, now, now) if old is None else old
    base = replace(base, since=min(base.since, now), declared_at=now, revisit=result.revisit)
    is_no_news = result.outcome == DEFERRED and is_named_once(base)
    if is_no_news or result.outcome in (NOT_DUE, NOT_REQUESTED):
        return base
    new = _read(base, result) if result.outcome == READ else _not_read(base, result)
    is_same = (
        (new.reason is None) == (base.reason is None)
        and new.cause == base.cause
        and new.moved_to == base.moved_to
    )
    return new if is_same else replace(new, told_at=None)


def _read(base: Reading, result: Result) -> Reading:
    """*base* after a run that has read the source."""
    read_as = base.read_as
    if read_as != FEED and result.read_as is not None:
        read_as = result.read_as
    new = replace(
        base,
        since=result.at,
        read=1,
        reason=None,
        cause=NO_CAUSE,
        gone_at=None,
        moved_to=result.moved_to,
        read_as=read_as,
    )
    if result.entries is not None:
        new = replace(new, entries=result.entries, ends_early=int(result.ends_early))
    return new


def _not_read(base: Reading, result: Result) -> Reading:
    """*base* after a run that could not read the source."""
    return replace(
        base,
        reason=result.reason,
        cause=result.cause,
        gone_at=result.at if result.gone else None,
        moved_to=result.moved_to or base.moved_to,
    )


def is_due_again(told_at: float | None, now: float) -> bool:
    """Whether a warning is due that was last given at *told_at*: at first, then once a week."""
    return told_at is None or not 0 <= now - told_at < (1 - SLACK) * NAMED_AGAIN


def with_robots(reading: Reading, cause: str | None, now: float) -> Reading:
    """*reading* after a run in which the robots.txt of its host was rejected for *cause*.

    *cause*: empty if it was adopted, None if it was not fetched. A warning is due if
    ``robots_told_at`` is *now*.
    """
    if cause is None:
        return reading
    if not cause:
        return replace(reading, robots="", robots_told_at=None)
    if reading.robots == cause and not is_due_again(reading.robots_told_at, now):
        return reading
    return replace(reading, robots=cause, robots_told_at=now)


def is_over(old: Reading | None, new: Reading) -> bool:
    """Whether *new* is read again after a failure of which a warning was given.

    The pace of a host (R4) is no failure, because each run reads some of its sources.
    """
    if old is None or old.reason is None or new.reason is not None:
        return False
    rule = old.cause.requirement
    is_deferred = old.cause.verdict == DEFERRED and rule != "R4"
    return old.told_at is not None or rule in {"R5", "D5"} or is_deferred


def no_visit(_: str) -> None:
    """A ``VisitOf`` without records."""


def is_known(
    old: Reading, event: Event, now: float, revisit: float, visit_of: VisitOf = no_visit
) -> bool:
    """Whether a warning of *event*, which ends the visit of a source, would be no news.

    *old*: the record before this run. An unread source is named at the end anyway.
    """
    is_same = old.cause == cause_of(event.requirement, event.verdict)
    return is_same or is_unread(old, now, revisit, visit_of)


def is_unread(reading: Reading, now: float, revisit: float, visit_of: VisitOf = no_visit) -> bool:
    """Whether the source was not read for so long that the operator must be warned.

    These are three of its periods, but a run may be a little early (:data:`SLACK`). *revisit*:
    WALSH_REVISIT, seconds. A source that is gone is not unread.
    """
    if reading.gone_at is not None:
        return False
    age = now - reading.since
    periods = PERIODS - SLACK
    if age < periods * interval_of(reading.revisit, revisit):
        return False  # no period is shorter than the interval, so we need no record
    return age >= periods * period(visit_of(reading.url), reading.revisit, revisit)


def is_named_once(reading: Reading) -> bool:
    """Whether the source is gone, or refused by its owner: no person could mend that."""
    return reading.gone_at is not None or is_opt_out(reading)


def why_gone(reading: Reading) -> str:
    """Why a source with ``gone_at`` is left alone, and the remedy."""
    if reading.cause.status in CLOSED:
        closed = CLOSED[reading.cause.status]
        return f"{closed} ({reading.reason}): ask its owner, or remove it from your list"
    return "gone (410): remove it from your list"


def is_opt_out(reading: Reading) -> bool:
    """Whether the owner refuses the source."""
    return reading.cause in _OPT_OUTS


def has_opted_out(reading: Reading) -> bool:
    """Whether the owner refuses a source that was read before."""
    return bool(reading.read) and is_opt_out(reading)


def host_of(key: str) -> str:
    """The host of the source *key*, which may have a form after the URL."""
    return host_key(key.partition(" ")[0])


def refusal_line(verdict: Verdict) -> str:
    """A refusal in one line: requirement, rule, and the document with its line."""
    by = f"by {verdict.rule}" if verdict.rule else f"({verdict.reason})"
    text = f"{verdict.requirement} {verdict.name} {by}"
    if verdict.document:
        text += f" in {verdict.document}"
        if verdict.line is not None:
            text += f":{verdict.line}"
    return text
