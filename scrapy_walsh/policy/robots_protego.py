"""R2: Protego's reading of a robots.txt, asked beside the strict layer (design D1).

It can only add refusals. Its parse takes as long as names x rules, and a file may be made to take
minutes, so it is shown the whole file only where that is cheap; else our selected groups alone;
else nothing. The strict layer holds every rule of the spec's all the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from protego import Protego

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from scrapy_walsh.policy.robots_groups import Selection

_MAX_RULES: Final = 20_000
"""Lines, whatever is on them; one more for each anchor, of which Protego makes two rules, and two
more for each index.html, of which it makes another for every name."""
_MAX_PRODUCT: Final = 60_000
"""Names x rules."""
_MAX_SIGNS: Final = 4_000
"""Escapes and anchors, which Protego takes apart one by one."""
_MAX_OCTETS: Final = 3_000_000
"""Names x characters, for few rules that are very long."""
_MAX_COMPARED: Final = 20_000_000
"""Characters of starred rules x characters of a URL, in one decision."""


class SecondOpinion:
    """Protego on one file, asked with the bare token (D2)."""

    __slots__ = ("_octets", "_parsed", "_token")

    def __init__(self, texts: Iterable[str], token: str) -> None:
        """``texts``: of :func:`shown`; the first that is cheap to parse is used."""
        self._token = token
        self._parsed: Protego | None = None
        self._octets = 0
        text = next(filter(_is_cheap, texts), None)
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
    """What to show to Protego, if it is cheap to parse: the whole file, else our groups."""
    yield text
    lines = [line for selection in selections for line in selection.lines]
    if len(lines) < _MAX_RULES:
        yield "\n".join([f"User-agent: {token}", *[f"{kind}: {value}" for kind, value, _ in lines]])


def _is_cheap(text: str) -> bool:
    """Whether Protego parses a text soon; each line counts as a rule, each "agent" as a name."""
    lower = text.lower()
    names, anchors = lower.count("agent"), text.count("$") + 2 * lower.count("index.html")
    rules = len(text.splitlines()) + anchors
    return (
        rules <= _MAX_RULES
        and names * rules <= _MAX_PRODUCT
        and text.count("%") + anchors <= _MAX_SIGNS
        and names * len(text) <= _MAX_OCTETS
    )
