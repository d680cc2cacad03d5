"""R2: robots.txt lines into records, and the records that speak to a token (9.1.2, 9.1.3).

A ``User-agent`` value is read in three ways, which are kept apart: as it stands, up to its first
``/``, and as RFC 9309's product token (2.2.1). A caller denies if any of them denies (design D1).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

from scrapy_walsh.policy.backoff import LONGEST

MAX_OCTETS: Final = 500 * 1024
"""A body is read to here and no further (9.1.1)."""

LITERAL_NAME: Final = "literal name"
WITHOUT_VERSION: Final = "name without its version"
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
_BLANK: Final = (
    "\t\n\v\f\r\x1c\x1d\x1e\x1f \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006"
    "\u2007\u2008\u2009\u200a\u2028\u2029\u202f\u205f\u3000\udca0"
)
"""Unicode's white space, and the no-break space of Latin-1, an octet that is not UTF-8."""
_UNSEEN: Final = _BLANK + "\0\u200b\u200c\u200d\u200e\u200f\u2060\ufeff"
"""And what no reader sees, either: trimmed where that cannot lift a rule, so not of an Allow."""
_PRODUCT: Final = re.compile(r"\*(?!\S)|[a-z_-]*", re.ASCII)
_HALF_ESCAPE: Final = re.compile(r"%[0-9A-Fa-f]?\Z")
_SECONDS: Final = re.compile(r"\d+(?:\.\d*)?|\.\d+", re.ASCII)

Line = tuple[str, str, int]
"""An Allow, Disallow or Crawl-delay: which of them, value, line number from 1."""


@dataclass(slots=True)
class Record:
    """User-agent values, lower case, and the lines that apply to them."""

    names: list[str] = field(default_factory=list)
    lines: list[Line] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Selection:
    """What one reading of the names selects: the names, their rules and delays in file order."""

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
    return _FIELDS.get(line.partition(":")[0].strip(_UNSEEN).lower())


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
            kind = _FIELDS.get(name) or _FIELDS.get(name.strip(_UNSEEN).lower())
            if kind is None:
                continue
            if "#" in value:
                value = value.partition("#")[0]
            if kind is DISALLOW:  # nearly all lines
                self._ruled = True
                self._record.lines.append((kind, value.strip(_UNSEEN), number))
            else:
                self._add(kind, value, number)

    def _add(self, kind: str, value: str, number: int) -> None:
        text = value.strip(_UNSEEN)
        if kind is USER_AGENT:
            self._add_name(text.lower())
        elif kind is SITEMAP:
            self.sitemaps.append(text)
        elif kind is MISSPELT:
            # Heeded, but no rule line by the text: it splits nothing (T28).
            self._record.lines.append((DISALLOW, text, number))
        else:
            self._ruled = True
            if kind is CRAWL_DELAY:
                self._record.lines.append((kind, text, number))
            elif self._allow_counts:
                self._record.lines.append((kind, value.strip(_BLANK), number))

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


def _without_version(name: str, _token: str) -> str:
    return name.partition("/")[0].rstrip(_UNSEEN) if "/" in name else name


def _product_token(name: str, token: str) -> str:
    """The name's leading letters, ``_`` and ``-``, where they are all of the token, or ``*``.

    ``* and more`` is ``*``, as Google's parser has it. A product token is never matched as a
    prefix: ``MJ12bot`` is not ``Mjolnir``.
    """
    if not name.startswith((token, "*")):
        return name
    found = _PRODUCT.match(name)
    return found[0] if found and found[0] in {token, "*"} else name


_READINGS: Final = {WITHOUT_VERSION: _without_version, PRODUCT_TOKEN: _product_token}


def select(records: Records, token: str) -> list[Selection]:
    """The selections for a token, one for each different answer of the three readings (9.1.3)."""
    token = token.lower()
    literal = [
        (name, record)
        for record in records.records
        for name in record.names
        if name[0] in {token[:1], "*"}
    ]
    found = [_select(LITERAL_NAME, literal, records.orphans, token)]
    for reading, read in _READINGS.items():
        named = [(read(name, token), record) for name, record in literal]
        if named != literal:
            selection = _select(reading, named, records.orphans, token)
            found += [selection] if selection not in found else []
    return found


def _select(
    reading: str, named: list[tuple[str, Record]], orphans: Record, token: str
) -> Selection:
    """The records of the longest name that is the token or a prefix of it, else those of ``*``."""
    names = {name for name, _ in named if name != "*" and name and token.startswith(name)}
    best = max(names, key=len, default="*")
    chosen = {id(record): record for name, record in named if name == best}
    lines = [line for record in chosen.values() for line in record.lines]
    if best == "*":
        # Rules before any User-agent line: nobody's (RFC 9309) or everybody's (webcanon).
        lines = [line for line in orphans.lines if line[0] != ALLOW] + lines
    rules = [line for line in lines if line[0] != CRAWL_DELAY]
    delays = [value for kind, value, _ in lines if kind == CRAWL_DELAY]
    return Selection(reading, (best,) if chosen else (), rules, delays)


def crawl_delay(selections: list[Selection]) -> float | None:
    """The largest Crawl-delay of the selected groups in seconds, or None (9.1.5)."""
    delays = [
        min(float(value), LONGEST)
        for selection in selections
        for value in selection.delays
        if _SECONDS.fullmatch(value)
    ]
    return max(delays, default=None)
