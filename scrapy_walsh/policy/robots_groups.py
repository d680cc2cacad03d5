"""R2: robots.txt lines into records, and the records that speak to a token (9.1.2, 9.1.3).

Two readings of a ``User-agent`` value are kept apart: the text as it stands, and RFC 9309's
product token, its leading letters, ``_`` and ``-``, or ``*``. A caller denies if either denies.
"""

from __future__ import annotations

import re
import string
from dataclasses import dataclass, field
from typing import Final

from scrapy_walsh.policy.backoff import LONGEST

MAX_OCTETS: Final = 500 * 1024
"""A body is read to here and no further (9.1.1)."""

LITERAL_NAME: Final = "literal name"
PRODUCT_TOKEN: Final = "product token"  # noqa: S105

USER_AGENT: Final = "User-agent"
ALLOW: Final = "Allow"
DISALLOW: Final = "Disallow"
CRAWL_DELAY: Final = "Crawl-delay"
SITEMAP: Final = "Sitemap"
MISSPELT: Final = "misspelt Disallow"

_FIELDS: Final = {
    "user-agent": USER_AGENT,
    "allow": ALLOW,
    "disallow": DISALLOW,
    "crawl-delay": CRAWL_DELAY,
    "sitemap": SITEMAP,
} | dict.fromkeys(
    ("disalow", "dissalow", "dissallow", "diasllow", "disallaw", "dissalllow"), MISSPELT
)
_FIELDS.update({kind: kind for kind in (USER_AGENT, ALLOW, DISALLOW)})  # the usual spelling
_BLANK: Final = string.whitespace + "\0\x85\xa0\u2028\u2029\ufeff"
_PRODUCT: Final = re.compile(r"\*(?!\S)|[a-z_-]*", re.ASCII)
_HALF_ESCAPE: Final = re.compile(r"%[0-9A-Fa-f]?\Z")
_SECONDS: Final = re.compile(r"\d+(?:\.\d*)?|\.\d+", re.ASCII)

Line = tuple[str, str, int]
"""A rule line: Allow or Disallow, value, line number from 1."""


@dataclass(slots=True)
class Record:
    """User-agent values, lower case, and the rule lines and Crawl-delays that apply to them."""

    names: list[str] = field(default_factory=list)
    lines: list[Line] = field(default_factory=list)
    delays: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Selection:
    """What one reading of the names selects: the names, and their lines in file order."""

    reading: str = field(compare=False)
    names: tuple[str, ...]
    lines: list[Line]
    delays: list[str]


def decode(body: bytes) -> str:
    """Text of a robots.txt, cut at 500 KiB; octets that are not UTF-8 survive as surrogates."""
    kept = body[:MAX_OCTETS]
    if kept[:2] in {b"\xff\xfe", b"\xfe\xff"}:
        text = kept.decode("utf-16", "replace")
    else:
        text = kept.decode("utf-8", "surrogateescape").removeprefix("\ufeff")
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    return _lifting_nothing(text) if len(body) > MAX_OCTETS else text


def _lifting_nothing(text: str) -> str:
    """What the limit leaves of a file, without what only the cut makes lift a rule.

    That is an Allow cut in two, and a name, cut or whole, all of whose rules lie beyond: without
    any, its group would take the place of another. A Disallow cut in two is kept; half an escape
    at its end would match no path.
    """
    lines = _HALF_ESCAPE.sub("", text).split("\n")
    if _kind(lines[-1]) == ALLOW:
        lines[-1] = ""
    kinds: dict[str, str | None] = {"": None}  # most lines of a file without rules are alike
    for number in reversed(range(len(lines))):
        line = lines[number]
        if line not in kinds:
            kinds[line] = _kind(line)
        kind = kinds[line]
        if kind is None:
            continue
        if kind == USER_AGENT:
            lines[number] = ""
        elif kind in {ALLOW, DISALLOW, CRAWL_DELAY}:
            break
    return "\n".join(lines)


def _kind(line: str) -> str | None:
    return _FIELDS.get(line.partition(":")[0].strip(_BLANK).lower())


class Records:
    """The records of one file, its sitemaps, and the rule lines before any User-agent line."""

    __slots__ = ("_allow_counts", "_record", "_ruled", "orphans", "records", "sitemaps")

    def __init__(self, text: str) -> None:
        self.orphans = Record()
        self.records: list[Record] = []
        self._record = self.orphans
        self.sitemaps: list[str] = []
        self._ruled = True
        self._allow_counts = True
        for number, line in enumerate(text.split("\n"), 1):
            name, colon, value = line.partition(":")
            if not colon:
                continue
            kind = _FIELDS.get(name) or _FIELDS.get(name.strip(_BLANK).lower())
            if kind is None:
                continue
            if "#" in value:
                value = value.partition("#")[0]
            if kind is DISALLOW:  # nearly all lines
                self._ruled = True
                self._add_rule(kind, value, number)
            else:
                self._add(kind, value, number)

    def _add(self, kind: str, value: str, number: int) -> None:
        if kind is USER_AGENT:
            self._add_name(value.strip(_BLANK).lower())
        elif kind is SITEMAP:
            self.sitemaps.append(value.strip(_BLANK))
        elif kind is MISSPELT:
            # Heeded, but no rule line by the text: it splits nothing (T28).
            self._add_rule(DISALLOW, value, number)
        else:
            self._ruled = True
            if kind is CRAWL_DELAY:
                self._record.delays.append(value.strip(_BLANK))
            elif self._allow_counts:
                self._add_rule(kind, value, number)

    def _add_rule(self, kind: str, value: str, number: int) -> None:
        value = value.strip(" \t")
        lines = self._record.lines
        lines.append((kind, value, number))
        # RFC 9309 trims space and tab; all but an Allow is also heeded without other blanks.
        bare = value.strip(_BLANK)
        if bare != value and kind is not ALLOW:
            lines.append((kind, bare, number))

    def _add_name(self, name: str) -> None:
        # T29: an empty value names nobody. Opening a group or not are both defensible: what
        # follows still binds the group before it, but an Allow there lifts nothing.
        if not name:
            self._allow_counts = not self._ruled
            return
        self._allow_counts = True
        if self._ruled:
            self._record = Record()
            self.records.append(self._record)
            self._ruled = False
        self._record.names.append(name)


def product_token(name: str) -> str:
    """RFC 9309's product token at the head of a lower-case name: ``bot/1.2`` is ``bot``.

    ``* and more`` is ``*``, as Google's parser has it.
    """
    return _PRODUCT.match(name).group()  # type: ignore[union-attr]  # matches empty too


def select(records: Records, token: str) -> list[Selection]:
    """The selections for a token, one if both readings of the names agree, else two (9.1.3)."""
    token = token.lower()
    near = [
        (name, record)
        for record in records.records
        for name in record.names
        if name[0] in {token[:1], "*"}
    ]
    literal = _select(LITERAL_NAME, near, records.orphans, token)
    cut = [(product_token(name), record) for name, record in near]
    if cut == near:
        return [literal]
    product = _select(PRODUCT_TOKEN, cut, records.orphans, token)
    return [literal] if literal == product else [literal, product]


def _select(
    reading: str, named: list[tuple[str, Record]], orphans: Record, token: str
) -> Selection:
    names = {name for name, _ in named if name != "*" and name and token.startswith(name)}
    best = max(names, key=len, default="*")
    chosen = {id(record): record for name, record in named if name == best}
    lines = [line for record in chosen.values() for line in record.lines]
    delays = [value for record in chosen.values() for value in record.delays]
    if best == "*":
        # Rules before any User-agent line: nobody's (RFC 9309) or everybody's (webcanon).
        lines = [line for line in orphans.lines if line[0] != ALLOW] + lines
        delays += orphans.delays
    return Selection(reading, (best,) if chosen else (), lines, delays)


def crawl_delay(selections: list[Selection]) -> float | None:
    """The largest Crawl-delay of the selected groups in seconds, or None (9.1.5)."""
    delays = [
        min(float(value), LONGEST)
        for selection in selections
        for value in selection.delays
        if _SECONDS.fullmatch(value)
    ]
    return max(delays, default=None)
