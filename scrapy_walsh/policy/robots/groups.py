"""Split a robots.txt into records, and select the records for a token (R2; 9.1.2, 9.1.3).

A record is one or more User-agent lines and the rule lines after them; the next User-agent line
begins another record. The file is read in one pass (:class:`Records`). Then :func:`select` takes
the records with the names that fit the token best.

A name can be read in three ways: the value as it stands, the value up to its first ``/``, and RFC
9309's product token (2.2.1). Each way is followed to its end. If they select different records,
there are several :class:`Selection`, and the caller refuses if one of them does (D1).

If the text is damaged or unclear, an Allow is dropped rather than a Disallow.

Some files have a line without its colon (``Disallow /x``), with another sign in its place
(``Disallow; /x``), or with a longer or another word (``Disallowed: /x``, ``Useragent:``). RFC 9309
ignores such a line. Google's parser knows a field by the beginning of its name; if a line has no
colon, the name ends at its first blank. Other parsers are generous in other ways. So if a file has
such a line, it is read in both ways, and the selections of both count (D1): see :func:`_lenient`.
An Allow of that kind grants nothing. It only ends a run of User-agent lines, as it does for Google.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from scrapy_walsh.policy.backoff import LONGEST
from scrapy_walsh.policy.packing import is_text

if TYPE_CHECKING:
    from collections.abc import Iterator

#: Octets of a body that are read; the rest is ignored (9.1.1).
MAX_OCTETS: Final = 500 * 1024

#: The three ways to read a name.
LITERAL_NAME: Final = "literal name"
WITHOUT_VERSION: Final = "name without its version"
PRODUCT_TOKEN: Final = "product token"  # noqa: S105
#: The reading of lines that RFC 9309 ignores.
LENIENT_LINES: Final = "lines without a colon, and longer words"

#: The kinds of lines.
USER_AGENT: Final = "User-agent"
ALLOW: Final = "Allow"
DISALLOW: Final = "Disallow"
CRAWL_DELAY: Final = "Crawl-delay"
SITEMAP: Final = "Sitemap"
MISSPELT: Final = "misspelt Disallow"
#: Statements of a site about use (``policy.robots.usage``).
CONTENT_USAGE: Final = "Content-Usage"
CONTENT_SIGNAL: Final = "Content-Signal"
LICENSE: Final = "License"

_MISSPELT: Final = ("disalow", "dissalow", "dissallow", "diasllow", "disallaw", "dissalllow")
_FIELDS: Final = {
    "user-agent": USER_AGENT,
    "allow": ALLOW,
    "disallow": DISALLOW,
    "crawl-delay": CRAWL_DELAY,
    "sitemap": SITEMAP,
    "content-usage": CONTENT_USAGE,
    "content-signal": CONTENT_SIGNAL,
    "license": LICENSE,
} | dict.fromkeys(_MISSPELT, MISSPELT)
_FIELDS.update({kind: kind for kind in (USER_AGENT, ALLOW, DISALLOW)})  # found without lower()
#: The beginnings of a field's name, for lenient parsers.
_WORD: Final = re.compile(
    r"\s*(?:(?P<agent>user(?:\s+|-)?agent)|(?P<delay>crawl(?:\s+|-)delay)|(?P<allow>allow)"
    rf"|(?:disallow|{'|'.join(_MISSPELT)}))",
    re.IGNORECASE,
)
#: The text between that word and the value if no colon ends the name: the rest of a longer word or
#: signs, up to a blank; or signs alone.
_WITHOUT_COLON: Final = (
    re.compile(r"[^\s:]*\s+([^\s:].*)"),
    re.compile(r"\s*[^\w\s/*:]+\s*([^\s:].*)"),
)
_FIRST_LETTERS: Final = frozenset("acduACDU")
#: Unicode's white space, and Latin-1's no-break space, which is an octet that is not UTF-8.
_BLANK: Final = (
    "\t\n\v\f\r\x1c\x1d\x1e\x1f \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006"
    "\u2007\u2008\u2009\u200a\u2028\u2029\u202f\u205f\u3000\udca0"
)
#: Characters that Google's parser does not escape in a rule, while no URL has them unescaped. So
#: with Google an Allow with such a character matches nothing.
_UNESCAPED: Final = re.compile(r"[\x00-\x20\"<>\\^`{|}\x7f]")
#: Blanks and other invisible characters. They are trimmed too, except from an Allow, because the
#: shorter value would match more.
_UNSEEN: Final = _BLANK + "\0\u200b\u200c\u200d\u200e\u200f\u2060\ufeff"
_PRODUCT: Final = re.compile(r"\*(?!\S)|[a-z_-]*", re.ASCII)
_HALF_ESCAPE: Final = re.compile(r"%[0-9A-Fa-f]?\Z")
#: A Crawl-delay: a number, and the unit that some files name.
_DELAY: Final = re.compile(r"(\d+(?:\.\d*)?|\.\d+)[ \t\xa0]*([a-z]*)\.?", re.ASCII | re.IGNORECASE)
#: Seconds of the units that are understood, by each name; m is a minute, the longer reading.
_UNITS: Final = {
    **dict.fromkeys(("", "s", "sec", "secs", "second", "seconds"), 1.0),
    **dict.fromkeys(("ms", "msec", "msecs", "millisecond", "milliseconds"), 0.001),
    **dict.fromkeys(("m", "min", "mins", "minute", "minutes"), 60.0),
    **dict.fromkeys(("h", "hr", "hrs", "hour", "hours"), 3600.0),
    **dict.fromkeys(("d", "day", "days"), 86400.0),
}

#: An Allow, Disallow, Crawl-delay or statement about use: which of them, its value, its line's
#: number from 1.
Line = tuple[str, str, int]


@dataclass(slots=True)
class Record:
    """``names``: User-agent values, lower case. ``lines``: the rule lines that apply to them.

    ``usage``: their Content-Usage and Content-Signal lines. They do not end a run of User-agent
    lines, since the specification does not know them as rule lines.
    """

    names: list[str] = field(default_factory=list)
    lines: list[Line] = field(default_factory=list)
    usage: list[Line] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Selection:
    """The selection for a token by one reading of the names.

    ``reading``: which of the three. ``names``: the name that fits, empty if none does. ``lines``:
    its Allow and Disallow lines, ``delays``: its Crawl-delay values, and ``usage``: its
    Content-Usage and Content-Signal lines, in the order of the file.
    """

    reading: str = field(compare=False)
    names: tuple[str, ...]
    lines: list[Line]
    delays: list[str]
    usage: list[Line]


def decode(body: bytes) -> str:
    """The text of a robots.txt, cut at MAX_OCTETS, with ``\\n`` as its only line end.

    Octets that are not UTF-8 stay, as surrogates (PEP 383), since they may be part of a path.
    """
    content = body[:MAX_OCTETS]
    has_mark = content[:2] in {b"\xff\xfe", b"\xfe\xff"}
    if has_mark and b"\0" in content:
        text = content.decode("utf-16", "replace")
    else:  # the mark of UTF-16 may stand before a text that is not in it
        text = content[2 * has_mark :].decode("utf-8", "surrogateescape")
    text = text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
    if len(body) <= MAX_OCTETS:
        return text
    # A Disallow that was cut in two counts, without half an escape, because that would match no
    # path. An Allow does not count, because its shorter value would match more.
    lines, end, last_line = _HALF_ESCAPE.sub("", text).rpartition("\n")
    return lines if _kind(last_line) == ALLOW else f"{lines}{end}{last_line}"


def has_field(body: bytes) -> bool:
    """Whether a field of robots.txt can be read in *body*, as RFC 9309 has it.

    A License does not count, because pages of other kinds have such lines, too.
    """
    lines = decode(body).split("\n")
    return any(":" in line and _kind(line) not in {None, LICENSE} for line in lines)


def is_empty(body: bytes) -> bool:
    """Whether there is nothing in *body* but blanks and comments."""
    lines = decode(body).split("\n")
    return not any(line.partition("#")[0].strip(_UNSEEN) for line in lines)


def is_readable(body: bytes) -> bool:
    """Whether *body* is text or has a field, so that it cannot hide rules.

    Some files have control octets beside their fields, and some are in UTF-16.
    """
    return is_text(body) or has_field(body) or is_empty(body)


def _kind(line: str) -> str | None:
    return _FIELDS.get(line.partition(":")[0].strip(_UNSEEN).lower())


def _lenient(line: str) -> list[tuple[str, str]]:
    """Kinds and values of a line that lenient parsers read and RFC 9309 ignores; none for others.

    There are several if one parser ends the name at its colon, and another at a blank before that
    (for example in ``Disallow /x: y``). An Allow has no value, because it may grant nothing.
    """
    text = line.strip(_UNSEEN)
    word = _WORD.match(text) if text[:1] in _FIRST_LETTERS else None
    if word is None:
        return []
    kind = DISALLOW
    if word["agent"]:
        kind = USER_AGENT
    elif word["delay"]:
        kind = CRAWL_DELAY
    _, colon, value_after_colon = text[word.end() :].partition(":")
    matches = (pattern.match(text, word.end()) for pattern in _WITHOUT_COLON)
    values = [*([value_after_colon] if colon else []), *(match[1] for match in matches if match)]
    if word["allow"]:
        return [(ALLOW, "")] if values else []
    return [(kind, value) for value in dict.fromkeys(values)]


class Records:
    """The ``records`` of a file, its ``sitemaps`` and ``licenses``, which belong to no record.

    ``orphans``: rules without a User-agent.

    ``_record``: the record that a rule line now belongs to. ``_ruled``: it has a rule line, so that
    the next User-agent line begins another record. ``_allow_counts``: whether an Allow counts
    (T29). ``lenient``: lines are read as lenient parsers do. ``odd``: the text has a line that
    lenient parsers read in another way. ``cut``: the file was longer than the text. Then a last
    record without a rule is left out, because its rules lie beyond the limit, and a group without
    rules allows everything.
    """

    def __init__(self, text: str, *, cut: bool = False, lenient: bool = False) -> None:
        self.cut = cut
        self.odd = False
        self.orphans = Record()
        self.records: list[Record] = []
        self._record = self.orphans
        self.sitemaps: list[str] = []
        self.licenses: list[Line] = []
        self._ruled = True
        self._allow_counts = True
        for number, line in enumerate(text.split("\n"), 1):
            name, _, value = line.partition(":")
            kind = _FIELDS.get(name) or _FIELDS.get(name.strip(_UNSEEN).lower())
            if kind is None or name == line:
                fields = _lenient(line.partition("#")[0])
                self.odd = self.odd or bool(fields)
                for field, text_of in fields if lenient else ():
                    self._add(field, text_of, number)
                continue
            if kind is MISSPELT:
                self.odd = True
                kind = DISALLOW if lenient else kind
            if "#" in value:
                value = value.partition("#")[0]
            if kind is DISALLOW:  # nearly all lines
                self._ruled = True
                self._record.lines.append((kind, value.strip(_UNSEEN), number))
            else:
                self._add(kind, value, number)
        if cut and self.records and not self._record.lines:
            self.records.pop()

    def _add(self, kind: str, value: str, number: int) -> None:
        text = value.strip(_UNSEEN)
        if kind is USER_AGENT:
            self._add_name(text.lower())
        elif kind is SITEMAP:
            self.sitemaps.append(text)
        elif kind is LICENSE:
            self.licenses.append((kind, text, number))
        elif kind in {CONTENT_USAGE, CONTENT_SIGNAL}:
            self._record.usage.append((kind, text, number))
        elif kind is MISSPELT:
            # It binds like a Disallow. But it is no rule line by the specification, so a User-agent
            # line after it does not begin another record (T28).
            self._record.lines.append((DISALLOW, text, number))
        else:
            self._ruled = True
            if kind in {CRAWL_DELAY, DISALLOW}:
                self._record.lines.append((kind, text, number))
            elif self._allow_counts and not _UNESCAPED.search(allowed := value.strip(_BLANK)):
                self._record.lines.append((kind, allowed, number))

    def _add_name(self, name: str) -> None:
        # An empty value names no bot, and it is unclear whether its line begins a record (T29). So
        # a Disallow after it still belongs to the record before, and an Allow to none.
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
    """The leading letters, ``_`` and ``-`` of *name*, if they are the whole token; else *name*.

    Likewise ``* and more`` is ``*``, as in Google's parser. A product token is never matched as a
    prefix here: letters alone would cut ``MJ12bot`` to ``mj``, a prefix of ``Mjolnir`` (D1).
    """
    if not name.startswith((token, "*")):
        return name
    match = _PRODUCT.match(name)
    return match[0] if match and match[0] in {token, "*"} else name


_READINGS: Final = {WITHOUT_VERSION: _without_version, PRODUCT_TOKEN: _product_token}


def select(text: str, records: Records, token: str) -> list[Selection]:
    """The selections for a token, one for each reading that differs from the others (9.1.3).

    *records*: of *text*.
    """
    selections = list(_select_by_name(records, token.lower()))
    if records.odd:
        lenient = Records(text, cut=records.cut, lenient=True)
        selections += _select_by_name(lenient, token.lower(), LENIENT_LINES)
    # Equal selections are judged once.
    return [
        selection
        for number, selection in enumerate(selections)
        if selection not in selections[:number]
    ]


def _select_by_name(records: Records, token: str, lines: str = "") -> Iterator[Selection]:
    """The selection by each reading of the names. *lines*: the way to read lines, for its name."""
    literal_pairs = [
        (name, record)
        for record in records.records
        for name in record.names
        if name[0] in {token[:1], "*"}
    ]
    yield _select(lines or LITERAL_NAME, literal_pairs, records.orphans, token)
    for reading, shorten in _READINGS.items():
        pairs = [(shorten(name, token), record) for name, record in literal_pairs]
        if pairs != literal_pairs:
            yield _select(lines or reading, pairs, records.orphans, token)


def _select(
    reading: str, pairs: list[tuple[str, Record]], orphans: Record, token: str
) -> Selection:
    """The records of the longest name that is the token or a prefix of it, else those of ``*``.

    *pairs*: names, as *reading* reads them, with their records.
    """
    names = {name for name, _ in pairs if name != "*" and name and token.startswith(name)}
    best = max(names, key=len, default="*")
    chosen = {id(record): record for name, record in pairs if name == best}
    lines = [line for record in chosen.values() for line in record.lines]
    usage = [line for record in chosen.values() for line in record.usage]
    if best == "*":
        # Rules before any User-agent line bind no bot (RFC 9309), or, for some parsers, every bot.
        # So a Disallow among them binds, and an Allow does not.
        lines = [line for line in orphans.lines if line[0] != ALLOW] + lines
        usage = orphans.usage + usage
    rules = [line for line in lines if line[0] != CRAWL_DELAY]
    delays = [value for kind, value, _ in lines if kind == CRAWL_DELAY]
    return Selection(reading, (best,) if chosen else (), rules, delays, usage)


def crawl_delay(selections: list[Selection]) -> float | None:
    """The largest Crawl-delay of the selected groups, seconds; None if none is a number (9.1.5).

    The number may have a unit, as in ``10s`` or ``4000 ms``.
    """
    delays = []
    for selection in selections:
        for value in selection.delays:
            match = _DELAY.fullmatch(value)
            unit = None if match is None else _UNITS.get(match[2].lower())
            if match is not None and unit is not None:
                delays.append(min(float(match[1]) * unit, LONGEST))
    return max(delays, default=None)
