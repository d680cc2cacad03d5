"""R2: Protego's reading of a robots.txt, asked beside the strict layer (design D1).

It can only add refusals. Where parsing all of a file could hang it, it is shown the file without
the names of other robots, which says the same for us: it reads lines that the strict layer does
not, such as one without a colon. Where that is too long, too, it is shown less, or not asked: the
strict layer holds every rule of the spec's all the same.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from protego import Protego

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from scrapy_walsh.policy.robots_groups import Selection

_MAX_PRODUCT: Final = 60_000
"""Names x weights of the rules under them: microseconds, about."""
_MAX_WORK: Final = 10_000
"""Rules, escapes and anchors: Protego takes the last two apart one by one."""
_MAX_LINES: Final = 50_000
"""Protego takes a microsecond and more for a line that says nothing to it."""
_MAX_NAMES: Final = 5_000
"""User-agent lines: each opens one or two sets of rules, which are sorted in the end."""
_TIMED: Final = 4
"""The weight of a Request-rate or Visit-time, which is read for each name; of a plain rule: 1."""
_ANCHORED: Final = 6
"""Of a rule with a ``$``, to which it adds another."""
_INDEX: Final = 30
"""And of an Allow that ends in /index.html: another is made of it for each name."""
_LONG: Final = 15
"""So many characters of those weigh one more."""
_MAX_COMPARED: Final = 20_000_000

_LINE_ENDS: Final = "\n\x0b\x0c\r\x1c\x1d\x1e\x85\u2028\u2029"
_ENDS: Final = re.escape(_LINE_ENDS)
_GAP: Final = rf"[^\S{_ENDS}]"
_LINE: Final = rf"(?:\A|[{_ENDS}]){_GAP}*"
"""Where a line begins for Protego, and the blanks there."""
_NAME_OR_RULE: Final = re.compile(
    r"\s*(?:user(?:\s|-)*agent([^#]*)|((?:allow|di[sa]|crawl|request|visit)[^#]*))", re.IGNORECASE
).match
"""Of a line: the name, or the rule, as which Protego may take it."""
_NAME: Final = re.compile(
    rf"({_LINE})user[- ]?agent(?:{_GAP}*:|{_GAP}+(?![^#{_ENDS}]*:))([^#{_ENDS}]*)",
    re.IGNORECASE | re.ASCII,
)
"""Surely a User-agent line to Protego; one that only may be stays as it is."""
_IDLE: Final = re.compile(
    rf"(?:[{_ENDS}]{_GAP}*+(?!user|allow|di|crawl|request|visit|site|host)"
    rf"[^:#{_ENDS}]*+(?:#[^{_ENDS}]*+)?(?=[{_ENDS}]|\Z))+",
    re.IGNORECASE,
)
"""Lines that say nothing to Protego."""
_EMPTY: Final = re.compile("\n{2,}")
_NOBODY: Final = "User-agent: /"
"""No token has a slash."""
_NOBODIES: Final = re.compile(rf"(?:\n{_NOBODY}(?=\n)){{2,}}")


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
    """What to show to Protego: the whole file, else it as it concerns us, else our groups."""
    yield text
    yield _concerning(text, token)
    lines = [line for selection in selections for line in selection.lines]
    if len(lines) <= _MAX_WORK:
        rules = [f"{kind}: {value}" for kind, value, _ in lines]
        yield "\n".join([f"User-agent: {token}", *rules])


def _concerning(text: str, token: str) -> str:
    """The file, every name that Protego cannot take for ours made one, too many lines thinned."""
    us = token.lower()

    def named(line: re.Match[str]) -> str:
        return line[0] if us.startswith(_stripped(line[2])) else line[1] + _NOBODY

    if text.count("\n") > _MAX_LINES:
        text = _IDLE.sub("", _EMPTY.sub("\n", text))
    return _NOBODIES.sub("\n" + _NOBODY, _NAME.sub(named, text))


def _stripped(name: str) -> str:
    """A name without its stars, which Protego takes out."""
    return name.lower().replace("*", "").strip().strip(": \t")


def _is_parsable(text: str) -> bool:
    """Whether Protego's parse ends soon."""
    lower = text.lower()
    escapes, anchors = text.count("%"), text.count("$")
    slow, lines = escapes + anchors, 1 + sum(map(text.count, _LINE_ENDS))
    if slow > _MAX_WORK or lines > _MAX_LINES:
        return False
    indexes = escapes + lower.count("index.html")
    weight = _TIMED * lines + (_ANCHORED + 1) * anchors + _INDEX * indexes
    if indexes or anchors:
        weight += len(text) // _LONG
    # A name with a star is two to Protego.
    if lines + slow <= _MAX_WORK and 2 * lower.count("agent") * weight <= _MAX_PRODUCT:
        return True  # whatever the lines are
    return _is_light(text, slow)


def _is_light(text: str, slow: int) -> bool:
    """Whether all limits hold line by line: names, rules, and giving the rules to the names."""
    names = rules = product = 0
    known: set[str] = set()
    group: set[str] = set()
    ruled = False
    for line in filter(None, map(_NAME_OR_RULE, text.splitlines())):
        if line[1] is None:
            ruled = True
            rules += 1
            product += len(group) * _weight(line[2])
        else:
            if ruled:
                group, ruled = set(), False
            name = line[1].lower().strip(": \t")
            bare = _stripped(name)
            if bare in known:
                product += len(group)  # it is looked for among them
            group |= {name, bare}
            known.add(bare)
            names += 1
        if names > _MAX_NAMES or rules + slow > _MAX_WORK or product > _MAX_PRODUCT:
            return False
    return True


def _weight(rule: str) -> int:
    """What Protego takes to add a rule to those of one name: microseconds, about."""
    weight = _TIMED if rule[0] in "RrVv" else 1
    if "$" in rule:
        weight = _ANCHORED + len(rule) // 1_000
    end = rule.rstrip()[-12:].lower()
    if end.endswith("/index.html") or ("%" in rule and end.endswith(("l", "%6c"))):
        weight += _INDEX + len(rule) // _LONG
    return weight
