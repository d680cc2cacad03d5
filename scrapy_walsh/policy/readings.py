"""R11: is a declared source still read, and what is the operator told of it at the end of a run?

One source among a hundred may be dead, answer 403, opt out, or be deferred for weeks, and the log
line about it would be overlooked. So each run compares what it found with the records. A source
that was not read for three of its periods is named at the end, and so is one that has moved for
good. A run that comes before a source is due changes nothing about it.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from scrapy_walsh.policy import verdict as verdicts
from scrapy_walsh.policy.hosts import host_key
from scrapy_walsh.policy.throttle import Wall  # noqa: TC001  a store reads the declared types
from scrapy_walsh.policy.times import iso
from scrapy_walsh.policy.verdict import DEFERRED, NOT_DUE, Verdict
from scrapy_walsh.policy.visits import SLACK, interval_of
from scrapy_walsh.policy.words import plural

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from scrapy_walsh.policy.event import Event

#: What became of a source in one run. READ: its data came, or it has not changed (304).
READ: Final = "read"
REFUSED: Final = "refused"
LEFT_OUT: Final = "left_out"
FAILED: Final = "failed"
#: The run ended before its request, or the next one that it needed, was sent.
NOT_REQUESTED: Final = "not_requested"

#: In the order in which the last line of a run counts them.
OUTCOMES: Final = (READ, NOT_DUE, REFUSED, DEFERRED, LEFT_OUT, FAILED, NOT_REQUESTED)

#: The documents that a source may declare, in the order in which they are read (R9).
FEED: Final = "feed"
SITEMAP: Final = "sitemap"

#: For how many of its periods (its interval) a source may not be read before it is named.
PERIODS: Final = 3
#: Why the spider of a crawl was closed in which something of ours failed.
NOT_WELL: Final = "walsh_not_well"
#: Seconds after which a source is named again that still needs a person; less SLACK, as for R8.
NAMED_AGAIN: Final = 7 * 86400.0
#: Sources that are named one by one at the end of a run.
LISTED: Final = 20
#: Where those are named that need a person.
_WHO: Final = "warnings name each once a week, `scrapy walsh state show` always"


@dataclass(frozen=True, slots=True)
class Cause:
    """Why a source was not read, without what changes from run to run.

    ``requirement``: its id, or a setting's name; "" if no rule is about it. ``verdict``: the name
    of the verdict, if it is the cause. ``status``: of an answer that no rule is about.
    """

    requirement: str = ""
    verdict: str = ""
    status: int | None = None


#: The source was read, or nothing more is known than the sentence.
NO_CAUSE: Final = Cause()
#: Opt-outs: its owner refuses it, in robots.txt or by the operator's blocklist.
_OPT_OUTS: Final = frozenset(Cause(*names) for names in verdicts.OWNERS_NO)


def cause_of(requirement: str, verdict: str = "") -> Cause:
    """The cause that a rule is: *requirement*, and *verdict*, the name of its verdict.

    A host that gives no answer may answer 503 tomorrow: both is R5. D5 has one cause as well.
    """
    return Cause(requirement, "" if requirement in {"R5", "D5"} else verdict)


@dataclass(frozen=True, slots=True)
class Reading:
    """Whether a declared source is still read. Times are Unix seconds.

    ``url``: of the source. ``since``: when it was last read, or first declared where it never was.
    ``declared_at``: when a run last declared it. ``read``: 1 where it was ever read, else 0.
    ``reason``: why the last visit did not read it, None where it did; ``cause``: the same in
    fields. ``moved_to``: where a
    permanent redirect led at the last visit that was read there. ``gone_at``: when it answered 410,
    so that it is left alone (:data:`RETIRED`); None where it has not. ``revisit``: as of a
    :class:`Visit`. ``told_at``: when a warning last named it; None where none has said what is so.
    ``read_as``: which declared document was itself read, FEED or SITEMAP; None where none was,
    since something else was read in its place, or a page is what was declared. ``entries``: how
    many the feed or sitemap had that was read last, 0 if none was; ``ends_early``: 1 if its end was
    missing even then.
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


@dataclass(frozen=True, slots=True)
class Heard:
    """What one run learned of a source.

    ``outcome``: one of the constants above. ``reason``: why it was not read, one line; ``cause``:
    the same in fields. ``at``: when that was known, Unix seconds. ``moved_to``: where permanent
    redirects, and no others, led. ``gone``: it answered 410. ``revisit``: as of a :class:`Visit`.
    ``read_as``, ``entries``, ``ends_early``: as of a :class:`Reading`; ``entries`` is None if no
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

    *reading*: the record before this run. A document that had entries is emptied, or cut off, by a
    fault of its server more often than by its owner. If its end was missing in the last reading,
    too, the publisher writes it so.
    """
    if reading is None or not reading.entries or (entries and not ends_early):
        return ""
    had = f"it had {plural(reading.entries, 'entry', 'entries')} when it was last read"
    if not entries:
        return f"no entries, and {had}"
    return "" if reading.ends_early else f"cut off, and {had}"


def has_stand_in(reading: Reading | None, kind: str) -> bool:
    """Whether another format may be read where the declared document *kind* could not be.

    *kind*: FEED or SITEMAP. *reading*: the record before this run. It may as long as neither that
    document nor one that stands before it (a feed) has ever been read: from then on other links in
    its place would be a stranger's, for a day on which its server is broken.
    """
    if reading is None or reading.read_as is None:
        return True
    return kind == FEED and reading.read_as == SITEMAP


def moved_together(moves: Iterable[tuple[str, str]]) -> set[str]:
    """The places that sources of several hosts have moved to for good in one run.

    *moves*: the URLs of sources, or R8's keys of them, each with where it has moved. Such a place
    is a parked domain or a portal more often than a source.
    """
    first: dict[str, str] = {}
    shared = set()
    for source, place in moves:
        if first.setdefault(place, _host_of(source)) != _host_of(source):
            shared.add(place)
    return shared


def outcome_of(verdict: Verdict, due: float | None) -> str:
    """What becomes of a source that *verdict* is against; *due*: where it was deferred."""
    if verdict.name == NOT_DUE:
        return NOT_DUE
    return REFUSED if due is None and verdict.name != DEFERRED else DEFERRED


def heard_of(verdict: Verdict, due: float | None) -> Heard:
    """What a run learns of a source that *verdict* is against; *due*: as in :func:`outcome_of`."""
    cause = cause_of(verdict.requirement, verdict.name)
    return Heard(outcome_of(verdict, due), refusal_line(verdict), cause=cause)


def replaces(known: str, outcome: str) -> bool:
    """Whether *outcome* is what becomes of a source in this run; *known*: what it was before.

    A source that was read stays read. NOT_DUE does not replace an outcome that says more.
    """
    return known == NOT_REQUESTED or (known != READ and outcome != NOT_DUE)


def updated(old: Reading | None, url: str, heard: Heard, now: float) -> Reading:
    """The record of *url* after a run that ends at *now*; *old*: the one before it.

    A time on record that lies in the future is a clock that was put back: it counts as *now*.
    A deferral tells nothing new of a source that is said once.
    """
    base = Reading(url, now, now) if old is None else old
    base = replace(base, since=min(base.since, now), declared_at=now, revisit=heard.revisit)
    silent = heard.outcome == DEFERRED and _is_said_once(base)
    if silent or heard.outcome in (NOT_DUE, NOT_REQUESTED):
        return base
    if heard.outcome == READ:
        read_as = base.read_as if base.read_as == FEED else heard.read_as or base.read_as
        new = replace(base, since=heard.at, read=1, gone_at=None, reason=None, cause=NO_CAUSE)
        new = replace(new, moved_to=heard.moved_to, read_as=read_as)
        if heard.entries is not None:
            new = replace(new, entries=heard.entries, ends_early=int(heard.ends_early))
    else:
        gone_at = heard.at if heard.gone else None
        moved_to = heard.moved_to or base.moved_to
        new = replace(base, reason=heard.reason, moved_to=moved_to, gone_at=gone_at)
        new = replace(new, cause=heard.cause)
    was_read, is_read = base.reason is None, new.reason is None
    same = is_read == was_read and new.cause == base.cause and new.moved_to == base.moved_to
    return new if same else replace(new, told_at=None)


def is_known(old: Reading, event: Event, now: float, revisit: float) -> bool:
    """Whether a warning of *event*, which ends the visit of a source, would say nothing new.

    *old*: the record before this run. A source that is not read by now is named as such.
    """
    same = old.cause == cause_of(event.requirement, event.verdict)
    return same or is_unread(old, now, revisit)


def is_unread(reading: Reading, now: float, revisit: float) -> bool:
    """Whether the source was not read for so long that the operator must be told.

    *revisit*: WALSH_REVISIT, seconds. A run may be a tenth of it early (:data:`SLACK`), so the
    third period is over for a run that comes as early as that. A source that is gone is not meant.
    """
    if reading.gone_at is not None:
        return False
    return now - reading.since >= (PERIODS - SLACK) * interval_of(reading.revisit, revisit)


def _is_said_once(reading: Reading) -> bool:
    """Whether the source is gone, or refused by its owner: a person can mend nothing there."""
    return reading.gone_at is not None or reading.cause in _OPT_OUTS


def _has_opted_out(reading: Reading) -> bool:
    """Whether the owner refuses a source that was read before."""
    return bool(reading.read) and reading.cause in _OPT_OUTS


def attention(reading: Reading, now: float, revisit: float) -> str:
    """Why a source needs a person, and what to do, to follow its name; empty where it needs none.

    Of an opt-out it follows the name of the host. What is said once needs nobody after that.
    *revisit*: WALSH_REVISIT, seconds.
    """
    if _is_said_once(reading) and reading.told_at is not None:
        return ""
    if reading.gone_at is not None:
        return "is gone (410): take it out of your list"
    if _has_opted_out(reading):
        return f"by {reading.reason}: take them out, this is said once"
    if reading.moved_to is not None:
        return f"has moved for good to {reading.moved_to}: change it in your list"
    if is_unread(reading, now, revisit):
        reason = reading.reason or "no run since then was answered before it ended"
        if reading.cause == Cause("R4", DEFERRED):
            lift = f'scrapy walsh state forget {_host(reading)} --hold "REASON"'
            reason = f"{reason}; if its server set that by mistake: {lift}"
        return f"has not been read since {iso(reading.since)[:10]}: {reason}"
    return ""


def is_to_be_told(reading: Reading, now: float) -> bool:
    """Whether a warning is to name a source that needs a person: first, then once a week."""
    at = reading.told_at
    return at is None or not 0 <= now - at < (1 - SLACK) * NAMED_AGAIN


def attention_lines(readings: Iterable[Reading], now: float, revisit: float) -> list[str]:
    """What warnings say of *readings*, sources that need a person.

    First what is said once, one line for a host that has opted out; then the longest unread. There
    are LISTED lines at most, and one for the others. *revisit*: WALSH_REVISIT, seconds.
    """
    ordered = sorted(readings, key=lambda each: (not _is_said_once(each), each.since, each.url))
    hosts = Counter(_host(each) for each in ordered if _has_opted_out(each))
    lines: dict[str, str] = {}
    for each in ordered:
        name = each.url
        if _has_opted_out(each):
            many = plural(hosts[_host(each)], "source")
            name = f"{_host(each)} refuses from now on what it let be read: {many} of your list,"
        lines.setdefault(name, f"{name} {attention(each, now, revisit)}")
    said = list(lines.values())
    if len(said) > LISTED:
        more = f"... and {len(said) - LISTED} more (scrapy walsh state show lists them)"
        return [*said[:LISTED], more]
    return said


def _host(reading: Reading) -> str:
    """The host of a source."""
    return _host_of(reading.url)


def _host_of(key: str) -> str:
    """The host of the source *key*, which may name a form after the URL."""
    return host_key(key.partition(" ")[0])


def last_line(
    outcomes: Mapping[str, int],
    needy: int,
    close_reason: str,
    rules: Mapping[str, int] | None = None,
    links: Mapping[str, int] | None = None,
    *,
    halted: bool = False,
    unstored: int = 0,
    was_done: bool = False,
) -> str:
    """The last line of a run, for somebody who reads no other.

    *outcomes*: sources by outcome. *needy*: those that need a person. *close_reason*: why the
    spider was closed, Scrapy's word. *rules*, *links*: by requirement, how many sources, and how
    many requests of the spider's own, it refused. *halted*: the run was ended, whatever was left.
    *unstored*: items that a feed has not stored. *was_done*: earlier runs of the job have requested
    all that this run declared.
    """
    counts = Counter(outcomes)
    if total := counts.total():
        parts = [f"{counts[READ]} of {plural(total, 'source')} read or unchanged"]
        words = {name: name.replace("_", " ") for name in OUTCOMES[1:]}
        words[REFUSED] += _by_rule(rules or {}, counts[REFUSED])
        parts += [f"{counts[name]} {word}" for name, word in words.items() if counts[name]]
    else:
        parts = ["no source was declared"]
        if was_done:
            parts = ["earlier runs of this JOBDIR have requested all sources"]
    if unstored:
        parts.insert(1, f"{plural(unstored, 'item')} not stored")
    if links:
        count = sum(links.values())
        parts[-1] += f"; {plural(count, 'link')} refused{_by_rule(links, count)}"
        parts[-1] += f": {verdicts.REMEDIES['R6', verdicts.OUT_OF_SCOPE]}" if "R6" in links else ""
    stopped = f"stopped ({close_reason}): "
    if close_reason == "finished":  # Scrapy's word for a run that came to its end by itself
        stopped = ""
    elif close_reason == NOT_WELL and not halted:
        stopped = "ended, but not well: "
    needs = f"; {needy} need{'s' if needy == 1 else ''} a person: {_WHO}" if needy else ""
    return f"walsh: {stopped}{', '.join(parts)}{needs}"


def _by_rule(counts: Mapping[str, int], total: int) -> str:
    """ " (R6)", or " (2 by R2, 1 by R3)"; empty where *counts* do not make up *total*."""
    if "" in counts or sum(counts.values()) != total:
        return ""
    if len(counts) < 2:
        return "".join(f" ({rule})" for rule in counts)
    return f" ({', '.join(f'{count} by {rule}' for rule, count in sorted(counts.items()))})"


def refusal_line(verdict: Verdict) -> str:
    """A refusal in one line: by which requirement and rule, and in which document."""
    by = f"by {verdict.rule}" if verdict.rule else f"({verdict.reason})"
    line = "" if verdict.line is None else f":{verdict.line}"
    where = f" in {verdict.document}{line}" if verdict.document else ""
    return f"{verdict.requirement} {verdict.name} {by}{where}"
