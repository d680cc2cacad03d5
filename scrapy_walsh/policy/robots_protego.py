"""R2: Protego's reading of a robots.txt, asked beside the strict layer (design D1).

It can only add refusals. So where asking it could hang it is shown less, or not asked, and
nothing is un-blocked by that: the strict layer holds every rule all the same.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from protego import Protego

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from scrapy_walsh.policy.robots_groups import Selection

_MAX_PRODUCT: Final = 100_000
"""Names x rules under them, at a microsecond each."""
_MAX_WORK: Final = 15_000
"""Rules, escapes and anchors: Protego takes the last two apart one by one."""
_MAX_LINES: Final = 50_000
"""Protego takes a microsecond and more for a line that says nothing to it."""
_SHORT: Final = 6_000
"""So few characters reach no limit: a name takes twelve, a rule eight, an escape one."""
_MAX_COMPARED: Final = 20_000_000

_LINE_ENDS: Final = "\n\x0b\x0c\r\x1c\x1d\x1e\x85\u2028\u2029"
_ENDS: Final = re.escape(_LINE_ENDS)
_GAP: Final = rf"[^\S{_ENDS}]"
_LINE: Final = rf"(?:\A|[{_ENDS}]){_GAP}*"
"""Where a line begins for Protego, and the blanks there."""
_USER_AGENT: Final = re.compile(rf"{_LINE}user(?:{_GAP}|-)*agent([^#{_ENDS}]*)", re.IGNORECASE)
_RULE: Final = re.compile(rf"{_LINE}(?:allow|di[sa]|crawl|request|visit)", re.IGNORECASE)


class SecondOpinion:
    """Protego on one file, asked with the bare token (D2)."""

    __slots__ = ("_octets", "_parsed", "_token")

    def __init__(self, texts: Iterable[str], token: str) -> None:
        """``texts``: of :func:`shown`; the first whose parse ends soon is used."""
        self._token = token
        self._parsed: Protego | None = None
        self._octets = 0
        text = next(filter(_is_parsable, texts), None)
        if text is not None:
            self._octets = sum([len(line) for line in text.split("\n") if "*" in line])
            self._parsed = _parse(text)

    def allows(self, url: str) -> bool:
        """Protego's answer, or True when it has none."""
        # Its matcher compares at most every octet of a starred value with every one of the URL.
        if self._parsed is None or self._octets * len(url) > _MAX_COMPARED:
            return True
        try:
            return bool(self._parsed.can_fetch(url, self._token))
        except Exception:  # whatever it trips over, the strict layer decides
            return True


def _parse(text: str) -> Protego | None:
    try:
        return Protego.parse(text if text.isascii() else text.encode("utf-8", "replace").decode())
    except Exception:  # as above
        return None


def shown(text: str, selections: Sequence[Selection], token: str) -> Iterator[str]:
    """What to show to Protego: the whole file, else the selected groups alone."""
    yield text
    lines = [line for selection in selections for line in selection.lines]
    if len(lines) <= _MAX_WORK:
        rules = [f"{kind}: {value}" for kind, value, _ in lines]
        yield "\n".join([f"User-agent: {token}", *rules])


def _is_parsable(text: str) -> bool:
    """Whether Protego's parse ends soon.

    It costs User-agent lines x rule lines, and User-agent lines x those that repeat a name
    (in any spelling: Protego also takes the stars out).
    """
    if len(text) <= _SHORT:
        return True
    slow = text.count("%") + text.count("$")
    lines = 1 + sum(map(text.count, _LINE_ENDS))
    if slow > _MAX_WORK or lines > _MAX_LINES:
        return False
    if lines + slow <= _MAX_WORK and text.lower().count("agent") * lines <= _MAX_PRODUCT:
        return True  # whatever the lines are
    rules = len(_RULE.findall(text))
    if rules + slow > _MAX_WORK:
        return False
    names = [name.lower().replace("*", "").strip(": \t") for name in _USER_AGENT.findall(text)]
    repeated = len(names) - len(set(names))
    return len(names) * (rules + repeated) <= _MAX_PRODUCT
