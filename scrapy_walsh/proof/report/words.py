"""How a page says things: names of kinds, texts cut to a width, times, sizes, hosts. Pure."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from scrapy_walsh.policy import event as events
from scrapy_walsh.policy.times import duration
from scrapy_walsh.policy.words import plural, visible
from scrapy_walsh.spec import REQUIREMENTS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scrapy_walsh.proof.report.lanes import Lane, Mark
    from scrapy_walsh.proof.report.tally import Rule

#: The name of each kind of line, and of each purpose of an exchange.
WORDS: Final = {
    "target": "target", "robots": "robots.txt", "operator": "operator's document",
    events.FETCHED: "fetched", events.NOT_MODIFIED: "not modified", events.REFUSED: "refused",
    events.HELD: "held", events.RETRIED: "backed off", events.GIVEN_UP: "given up",
    events.TOO_MANY_REDIRECTS: "redirected too often",
    events.DEFERRED: "deferred",
}  # fmt: skip
_IDS: Final = tuple(requirement.id for requirement in REQUIREMENTS)
_CODE: Final = re.compile(r"\b(R[0-9]+)\b")


def word(kind: str) -> str:
    """The name of *kind*; *kind* itself if it is not known."""
    return WORDS.get(kind, kind)


def cut(text: str, width: int) -> str:
    """*text* with an ellipsis for its middle, where it has more than *width* characters."""
    text = visible(text)
    if len(text) <= width:
        return text
    tail = width // 3
    return f"{text[: width - tail - 1]}…{text[-tail:]}"


def instant(at: float, layout: str = "%Y-%m-%d %H:%M:%S") -> str:
    """Unix seconds as a UTC time, in the *layout* of ``strftime``; as a number if out of range."""
    try:
        return datetime.fromtimestamp(at, UTC).strftime(layout) + " UTC"
    except (OverflowError, ValueError, OSError):
        return f"{at:.0f} (Unix seconds)"


def codes(text: str) -> list[tuple[str, str]]:
    """*text* in parts, each with the requirement that it is the code of, or with none."""
    return [(part, part if part in _IDS else "") for part in _CODE.split(text) if part]


def octets(count: int) -> str:
    """A number of octets as people read it: ``512 B``, ``1.2 MB``."""
    size, units = float(count), ["B", "kB", "MB", "GB"]
    while size >= 1000 and len(units) > 1:
        size /= 1000
        units.pop(0)
    return f"{size:.3g} {units[0]}" if units[0] != "B" else f"{count} B"


def about(lane: Lane) -> str:
    """The text beside a host's lane."""
    host = lane.host
    parts = [plural(host.requests, "request") if host.requests else "never requested"]
    if host.interval > 0:
        parts.append(f"every {duration(host.interval)}")
    if most := max((mark.more for mark in lane.marks), default=0):
        parts.append(f"a mark is up to {most + 1:,}")
    if host.until is not None and host.counts[events.DEFERRED]:
        parts.append(f"hold to {instant(host.until, '%d %b %H:%M')}")
    return " · ".join(parts)


def alone(mark: Mark) -> str:
    """How long the host had to be left alone after an exchange, and by which requirement."""
    found = [f"{duration(mark.spaced - mark.until)} (R4)"] if mark.spaced > mark.until else []
    found += [] if mark.held is None else [f"{duration(mark.held - mark.until)} (R5)"]
    return ", ".join(found)


def note(mark: Mark) -> str:
    """What is to be said of a mark besides."""
    early = "requested too early" if mark.short else ""
    alike = f"and {mark.more:,} more like it" if mark.more else ""
    return "; ".join(filter(None, [early, mark.note, alike]))


def rows(lanes: Sequence[Lane]) -> list[Lane | Mark]:
    """The rows of the timeline's table: each lane, then its marks."""
    found: list[Lane | Mark] = []
    for lane in lanes:
        found += [lane, *lane.marks]
    return found


def in_order(rules: Sequence[Rule]) -> list[Rule]:
    """*rules* in the order of the specification, then of :data:`WORDS`, the most frequent first."""
    return sorted(
        rules,
        key=lambda rule: (
            _place(rule.of.requirement, _IDS),
            _place(rule.of.kind, tuple(WORDS)),
            -rule.count,
        ),
    )


def _place(name: str, known: Sequence[str]) -> int:
    return known.index(name) if name in known else len(known)
