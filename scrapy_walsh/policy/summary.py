"""R11: the summary of a run: which sources need a person, and the last line of the log.

If one source among a hundred is dead, answers 403 or opts out, its line in the log is overlooked.
So a warning at the end names each source that needs a person, for example
``https://x.test/feed has not been read since 2026-03-01: HTTP 403``.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from scrapy_walsh.policy.readings import (
    OUTCOMES,
    READ,
    REFUSED,
    Cause,
    has_opted_out,
    host_of,
    is_named_once,
    is_opt_out,
    is_unread,
    no_visit,
    why_gone,
)
from scrapy_walsh.policy.times import iso
from scrapy_walsh.policy.verdict import DEFERRED, OUT_OF_SCOPE, REMEDIES
from scrapy_walsh.policy.words import plural

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from scrapy_walsh.policy.readings import Reading
    from scrapy_walsh.policy.visits import VisitOf

#: The close reason of a crawl with an own fault.
NOT_WELL: Final = "walsh_not_well"
#: Scrapy's close reason of a run that was not stopped.
_FINISHED: Final = "finished"
#: So many sources are named at the end of a run at most.
LISTED: Final = 20
#: And so many in a line about several.
_NAMED: Final = 10
#: The places that name the sources that need a person.
_PLACES: Final = "warnings name each once a week, `scrapy walsh state show` always"


def attention(reading: Reading, now: float, revisit: float, visit_of: VisitOf = no_visit) -> str:
    """Why a source needs a person, and the remedy, to follow its URL; "" if it needs none.

    For an opt-out the text follows the name of the host. Some conditions are named once; after that
    the source needs nothing. *revisit*: WALSH_REVISIT, seconds.
    """
    if is_named_once(reading) and reading.told_at is not None:
        return ""
    if reading.gone_at is not None:
        return f"is {why_gone(reading)}"
    if has_opted_out(reading):
        return f"by {reading.reason}: remove them; shown once"
    if reading.moved_to is not None:
        return f"has moved for good to {reading.moved_to}: change it in your list"
    if is_unread(reading, now, revisit, visit_of):
        reason = reading.reason or "since then, each run ended before it got an answer"
        if reading.cause == Cause("R4", DEFERRED):
            lift = f'scrapy walsh state forget {host_of(reading.url)} --hold "REASON"'
            reason = f"{reason}; if its server set that by mistake: {lift}"
        return f"has not been read since {iso(reading.since)[:10]}: {reason}"
    return ""


def attention_lines(
    readings: Iterable[Reading], now: float, revisit: float, visit_of: VisitOf = no_visit
) -> list[str]:
    """The lines that name *readings*, sources that need a person.

    First come those that are named once, with one line for each host that has opted out. Then come
    the others, the longest unread first. There are LISTED lines at most, and one that counts the
    rest. *revisit*: WALSH_REVISIT, seconds.
    """
    ordered = sorted(readings, key=lambda row: (not is_named_once(row), row.since, row.url))
    sources_by_host = Counter(host_of(row.url) for row in ordered if has_opted_out(row))
    line_by_name: dict[str, str] = {}
    for reading in ordered:
        name = reading.url
        if has_opted_out(reading):
            host = host_of(name)
            count = plural(sources_by_host[host], "source")
            name = f"{host} no longer allows your bot: {count} of your list,"
        line = f"{name} {attention(reading, now, revisit, visit_of)}"
        line_by_name.setdefault(name, line)
    lines = list(line_by_name.values())
    if len(lines) > LISTED:
        hidden = len(lines) - LISTED
        return [*lines[:LISTED], f"... and {hidden} more (scrapy walsh state show lists them)"]
    return lines


def over_lines(readings: Collection[Reading], robots_hosts: Collection[str] = ()) -> list[str]:
    """The lines about what is over, if a warning had named it.

    *readings*: of sources that are read again, as they were before. *robots_hosts*: hosts with a
    robots.txt that is available again.
    """
    allowed = {host_of(row.url) for row in readings if is_opt_out(row)}
    others = {
        f"{row.url} (not since {iso(row.since)[:10]})" for row in readings if not is_opt_out(row)
    }
    groups = {
        "the owner allows your bot again": allowed,
        "read again": others,
        "robots.txt is available again": robots_hosts,
    }
    return [f"{text}: {_named(sorted(names))}" for text, names in groups.items() if names]


def _named(names: list[str]) -> str:
    """The first of *names*, and the number of the others."""
    more = len(names) - _NAMED
    if more > 0:
        return f"{', '.join(names[:_NAMED])} and {more} more"
    return ", ".join(names)


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
    unchanged: int | None = None,
) -> str:
    """The last line of a run, for readers who see no other.

    *outcomes*: number of sources by outcome. *needy*: number of sources that need a person.
    *close_reason*: Scrapy's. *rules*: by requirement, the sources that it refused. *links*: the
    same of the spider's other requests. *halted*: the run was ended early. *unstored*: items that a
    feed has not stored. *was_done*: earlier runs of the job have requested all sources.
    *unchanged*: how many of the sources that were read have not changed; None counts them together.
    """
    counts = Counter(outcomes)
    parts = _count_text(counts, rules or {}, unchanged)
    if was_done and not counts.total():
        parts = ["earlier runs of this JOBDIR have requested all sources"]
    if unstored:
        parts.insert(1, f"{plural(unstored, 'item')} not stored")
    if links:
        count = sum(links.values())
        parts[-1] += f"; {plural(count, 'link')} refused{_by_rule(links, count)}"
        if "R6" in links:
            parts[-1] += f": {REMEDIES['R6', OUT_OF_SCOPE]}"
    stopped = f"stopped ({close_reason}): "
    if close_reason == _FINISHED:
        stopped = ""
    elif close_reason == NOT_WELL and not halted:
        stopped = "ended with errors: "
    line = f"walsh: {stopped}{', '.join(parts)}"
    if not needy:
        return line
    verb = "needs" if needy == 1 else "need"
    return f"{line}; {needy} {verb} a person: {_PLACES}"


def _count_text(counts: Counter[str], rules: Mapping[str, int], unchanged: int | None) -> list[str]:
    """The parts of the last line that count sources, for example ``3 refused (R2)``."""
    total = counts.total()
    if not total:
        return ["no source was declared"]
    sources = plural(total, "source")
    if unchanged is None:
        parts = [f"{counts[READ]} of {sources} read or unchanged"]
    else:
        parts = [f"{counts[READ] - unchanged} of {sources} read"]
        if unchanged:
            parts.append(f"{unchanged} unchanged")
    for outcome in OUTCOMES[1:]:
        if counts[outcome]:
            part = f"{counts[outcome]} {outcome.replace('_', ' ')}"
            if outcome == REFUSED:
                part += _by_rule(rules, counts[outcome])
            parts.append(part)
    return parts


def _by_rule(counts: Mapping[str, int], total: int) -> str:
    """For example " (R6)", or " (2 by R2, 1 by R3)"; "" if the sum of *counts* is not *total*."""
    if "" in counts or sum(counts.values()) != total:
        return ""
    if len(counts) < 2:
        return "".join(f" ({rule})" for rule in counts)
    return f" ({', '.join(f'{count} by {rule}' for rule, count in sorted(counts.items()))})"
