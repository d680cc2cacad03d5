"""How a page writes values: names of kinds, texts cut to a width, times, sizes. Pure."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Final

from scrapy_walsh.policy import event as events
from scrapy_walsh.policy.words import visible
from scrapy_walsh.spec import REQUIREMENTS

#: The name of each kind of line, and of each purpose of an exchange.
WORDS: Final = {
    "target": "target", "robots": "robots.txt", "operator": "operator's document",
    events.FETCHED: "fetched", events.NOT_MODIFIED: "not modified", events.REFUSED: "refused",
    events.HELD: "held", events.RETRIED: "backed off", events.GIVEN_UP: "given up",
    events.TOO_MANY_REDIRECTS: "redirected too often",
    events.DEFERRED: "deferred",
}  # fmt: skip
_IDS: Final = frozenset(requirement.id for requirement in REQUIREMENTS)
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
