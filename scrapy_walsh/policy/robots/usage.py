"""The statements of a site about the use of its pages, with document and line (beside R2).

They are recorded, and decide nothing unless the operator sets WALSH_USAGE. Statements are read from
these fields, each in its own words:

- ``Content-Usage``, in robots.txt by path and in a response (draft-ietf-aipref-attach; categories
  and how statements combine: draft-ietf-aipref-vocab, sections 5 and 6);
- ``Content-Signal`` in robots.txt and in a response (contentsignals.org), with its ``use``;
- ``License`` in robots.txt, and the elements of RSL 1.0 in a feed (rslstandard.org/rsl);
- ``X-Robots-Tag``, for every bot or for ours;
- ``TDM-Reservation`` and ``TDM-Policy`` (W3C TDM Reservation Protocol), as header fields;
- ``Link`` with ``rel="license"`` (RFC 8288, RFC 4946).

The first two and RSL in a feed name categories. A category that is not known counts as it stands.
If a statement cannot be parsed, it is recorded with the reason. It allows nothing, and forbids a
category only if that stands beside a plain *no* (D1). In robots.txt the lines of the first two
belong to groups as Allow and Disallow do, and the same matching finds the longest path with a rule
that can be parsed. A License belongs to no group. If the text can be read in several ways, all
their statements count, and the most restrictive prevails (D1).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, cast

from scrapy_walsh.exceptions import one_line
from scrapy_walsh.policy.formats.text import links_in
from scrapy_walsh.policy.robots.groups import (
    CONTENT_SIGNAL,
    CONTENT_USAGE,
    LICENSE,
    Line,
    Selection,
)
from scrapy_walsh.policy.robots.rules import LENGTHS, Match, Patterns, TooCostly, forms
from scrapy_walsh.policy.urls import is_http_url
from scrapy_walsh.policy.verdict import BY_USAGE, DISALLOWED_USAGE, Verdict

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

#: The categories of use, by their labels: the vocabulary's three, and one of Content-Signal alone.
CATEGORIES: Final = ("train-ai", "ai-use", "search", "ai-input")
#: The levels of Content-Signal's ``use``: each is a category, and disallowed by those before it.
LEVELS: Final = ("use=immediate", "use=reference", "use=full")
#: A name for WALSH_USAGE alone: a licence is stated, whatever its terms are.
LICENSED: Final = "license"
#: The names for WALSH_USAGE that mean something to us, with three of RSL alone.
KNOWN: Final = (*CATEGORIES, *LEVELS[1:], "ai-index", "ai-all", "all", LICENSED)
#: The name of a category (draft-ietf-aipref-vocab, 6.1).
LABEL: Final = r"[a-z][a-z0-9_.*-]*"
#: Values of WALSH_USAGE.
RECORD, REFUSE = "record", "refuse"

#: Characters of a field that are parsed, and that are recorded; statements of a response.
_LONGEST: Final = 4096
_SHOWN: Final = 300
_MOST: Final = 20
#: The labels of the categories. Content-Signal and RSL have another one for the first.
_SAME: Final = {**{name: name for name in CATEGORIES}, "ai-train": "train-ai"}
#: RSL's categories that cover others.
_AI: Final = ("train-ai", "ai-use", "ai-input", "ai-index")
_COVERED: Final = {"ai-all": _AI, "all": ("ai-all", *_AI, "search")}
#: A category beside a *no*, however badly the value is written. A parameter is none.
_NO: Final = re.compile(
    rf"(?<![\w.*-])(?<!;)(?<!; )(?:({LABEL})\s*[=:]\s*|({'|'.join(_SAME)})\s+)"
    r"[\"']?(?:no?|false|\??0)(?![\w.-])",
    re.IGNORECASE | re.ASCII,
)
_LEVEL: Final = re.compile(
    r"(?<![\w.*-])use\s*[=:]\s*[\"']?(immediate|reference|full)(?![\w.-])", re.IGNORECASE
)
#: The uses that a licence of RSL prohibits, and the text of such an element.
_PROHIBITED: Final = re.compile(r"<(?:[\w.-]+:)?prohibits(\s[^<>]*)?>([^<]*)", re.IGNORECASE)
_OTHER_TYPE: Final = re.compile(r"\stype\s*=\s*[\"'](?!usage[\"'])", re.IGNORECASE)
#: The tokens that allow a category.
_YES: Final = {CONTENT_USAGE: "y", CONTENT_SIGNAL: "yes"}
#: Header fields that are recorded as they stand.
_AS_SAID: Final = ("X-Robots-Tag", "TDM-Reservation", "TDM-Policy")
#: The elements of RSL in a feed, as one field.
_RSL: Final = "rsl:content"
#: Fields that state a licence.
_LICENSES: Final = (LICENSE, _RSL, "Link")
#: Names in an X-Robots-Tag: of bots, and of directives that have a value.
_NAMED: Final = re.compile(r"(?:^|,)\s*([A-Za-z_][\w.-]*)\s*:")
_VALUED: Final = ("unavailable_after", "max-snippet", "max-image-preview", "max-video-preview")


@dataclass(frozen=True, slots=True)
class Statement:
    """A statement of a site.

    ``field``: the name of the rule or header field. ``value``: as written, at most 300 characters.
    ``document``: URL of the robots.txt, or of the response. ``line``: in robots.txt, from 1.
    ``preferences``: categories, and whether their use is allowed. ``malformed``: the reason why the
    value cannot be read, or empty.
    """

    field: str
    value: str
    document: str
    line: int | None = None
    preferences: tuple[tuple[str, bool], ...] = ()
    malformed: str = ""

    def __str__(self) -> str:
        """One line: its place and its text."""
        place = "header" if self.line is None else f"robots.txt:{self.line}"
        note = f" (malformed: {self.malformed})" if self.malformed else ""
        return f"{place} {self.field}: {self.value}{note}"

    def against(self) -> Iterator[str]:
        """The names for WALSH_USAGE that this statement is against."""
        yield from (category for category, allowed in self.preferences if not allowed)
        if self.field in _LICENSES:
            yield LICENSED

    def members(self) -> dict[str, Any]:
        """The statement as JSON data; ``line`` and ``malformed`` only if there is one."""
        members: dict[str, Any] = {
            "field": self.field,
            "value": self.value,
            "document": self.document,
        }
        if self.line is not None:
            members["line"] = self.line
        return {**members, "malformed": self.malformed} if self.malformed else members


def combine(statements: Iterable[Statement]) -> dict[str, bool]:
    """Whether each named category is allowed: it is not if one statement disallows it.

    (draft-ietf-aipref-vocab, "Combining Preferences".) If no statement names a category, it is
    unknown, and not among the keys.
    """
    return _strictest(pair for statement in statements for pair in statement.preferences)


def _strictest(preferences: Iterable[tuple[str, bool]]) -> dict[str, bool]:
    uses: dict[str, bool] = {}
    for use, allowed in preferences:
        uses[use] = uses.get(use, True) and allowed
    return uses


def as_member(statements: Sequence[Statement]) -> dict[str, Any] | None:
    """An item's ``usage``: the statements, and the preference for each category; None for none.

    ``keep`` is False if a statement forbids to keep the content.
    """
    if not statements:
        return None
    uses = combine(statements)
    preferences = {use: "allowed" if uses[use] else "disallowed" for use in sorted(uses)}
    said = [statement.members() for statement in statements]
    usage: dict[str, Any] = {"said": said, "preferences": preferences}
    if uses.get(LEVELS[1]) is False:
        usage["keep"] = False
    return usage


def refused_use(
    statements: Iterable[Statement], refused_uses: Sequence[str]
) -> tuple[Statement, str] | None:
    """The first of *statements* that is against one of *refused_uses*, with that use, or None."""
    for statement in statements:
        for use in statement.against():
            if use in refused_uses:
                return statement, use
    return None


def refuses(
    statements: Iterable[Statement], refused_uses: Sequence[str], verdict: Verdict
) -> Verdict | None:
    """The verdict against a target if robots.txt disallows a use in *refused_uses*, or None.

    *refused_uses*: the categories that WALSH_USAGE refuses targets for. *verdict*: of robots.txt,
    which allows the target.
    """
    refused = refused_use(statements, refused_uses)
    if refused is None:
        return None
    statement, use = refused
    rule = f"{statement.field}: {statement.value}"
    return Verdict(
        False,
        DISALLOWED_USAGE,
        BY_USAGE,
        f"{rule} (line {statement.line}), and {BY_USAGE} refuses {use}",
        statement.document,
        statement.line,
        verdict.group,
        rule=rule,
        digest=verdict.digest,
    )


# -- one field ----------------------------------------------------------------------------


def category(label: str) -> str:
    """The category that a *label* names; one that is not known as it stands, in lower case."""
    label = label.lower()
    return _SAME.get(label, label)


def _statement(field: str, value: str, document: str, line: int | None = None) -> Statement:
    """The statement of a Content-Usage, a Content-Signal (dictionaries), or a License (a URL)."""
    if field == LICENSE:
        malformed = "" if is_http_url(value) else "not an absolute URL"
        return Statement(field, _show(value), document, line, malformed=malformed)
    preferences, malformed = _read(field, value)
    return Statement(field, _show(value), document, line, preferences, malformed)


@lru_cache(maxsize=256)
def _read(field: str, value: str) -> tuple[tuple[tuple[str, bool], ...], str]:
    """The preferences of a value, and the reason why it cannot be parsed, or empty.

    A *no* beside a category always counts (D1), even if the value cannot be parsed, because it
    seldom means anything else.
    """
    malformed = f"longer than {_LONGEST} characters" if len(value) > _LONGEST else ""
    tokens: dict[str, str] = {}
    try:
        tokens = {} if malformed else _tokens(value)
    except ValueError as error:
        malformed = "not ASCII" if isinstance(error, UnicodeError) else one_line(error)
    # A label of Content-Signal alone allows nothing in another field.
    uses = [
        (category(label), True)
        for label, token in tokens.items()
        if token == _YES[field] and (field == CONTENT_SIGNAL or category(label) == label)
    ]
    text = value[:_LONGEST]
    uses += [(category(label or known), False) for label, known in _NO.findall(text)]
    for level in _LEVEL.findall(text) if field == CONTENT_SIGNAL else ():
        limit = LEVELS.index(f"use={level.lower()}")
        uses += [(name, number <= limit) for number, name in enumerate(LEVELS)]
    preferences = _strictest(uses).items()
    return tuple(pair for pair in preferences if not (malformed and pair[1])), malformed


def _tokens(value: str) -> dict[str, str]:
    """The members of a dictionary that are tokens (RFC 9651). Raises ValueError for other text."""
    from http_sf import Token, parse  # noqa: PLC0415  slow to load, and few sites need it

    members = cast("dict[str, Any]", parse(value.encode(), tltype="dictionary"))
    return {key: str(item) for key, (item, _) in members.items() if isinstance(item, Token)}


# -- robots.txt ---------------------------------------------------------------------------


class UsageRules:
    """The statements in a robots.txt: those of a token's groups, and its *licenses*."""

    __slots__ = ("_document", "_groups", "_licenses")

    def __init__(
        self, selections: Sequence[Selection], document: str | None, licenses: Sequence[Line] = ()
    ) -> None:
        self._document = document or ""
        self._licenses = frozenset(licenses)
        self._groups = [_Group(selection.usage) for selection in selections if selection.usage]

    def said(self, url: str) -> tuple[Statement, ...]:
        """The statements about *url*, a URL or a path with its query, by line. Never raises."""
        lines = set(self._licenses)
        unread: tuple[Statement, ...] = ()
        try:
            lines.update(*(group.lines(url) for group in self._groups))
        except TooCostly:
            first_line = min(group.first for group in self._groups)
            reason = "the rules would take too long to match"
            unread = (Statement(CONTENT_USAGE, "", self._document, first_line, malformed=reason),)
        statements = [
            _statement(kind, value, self._document, number)
            for kind, value, number in sorted(lines, key=lambda line: line[2])
        ]
        return (*statements, *unread)


class _Group:
    """The lines that a reading of the names selects. ``first``: the number of the first line."""

    def __init__(self, lines: Sequence[Line]) -> None:
        self.first = min(number for _, _, number in lines)
        self._signals: set[Line] = set()
        #: The other lines, by path; and the paths of the lines that can be read.
        self._by_path: dict[str, set[Line]] = {}
        self._readable: set[str] = set()
        for kind, value, number in lines:
            if kind == CONTENT_SIGNAL:
                self._signals.add((kind, value, number))
                continue
            path, preference = _split(value)
            self._by_path.setdefault(path, set()).add((kind, preference, number))
            if not _read(kind, preference)[1]:
                self._readable.add(path)
        self._patterns = Patterns([(True, path) for path in self._by_path if path])

    def lines(self, url: str) -> set[Line]:
        """The lines that apply to *url*. Raises TooCostly."""
        lines = set(self._signals)
        for form in forms(url) if self._by_path else ():
            lines |= self._lines(self._patterns.as_text(form))
            lines |= self._lines(self._patterns.as_octets(form))
        return lines

    def _lines(self, matches: Sequence[Match]) -> set[Line]:
        """The lines of the longest path, by each measure, and the lines that cannot be read."""
        readable = [match for match in matches if match.text in self._readable]
        paths = {match.text for match in matches} - self._readable
        for measure in range(len(LENGTHS)):
            longest = max((match.lengths[measure] for match in readable), default=None)
            paths |= {match.text for match in readable if match.lengths[measure] == longest}
        if not readable:
            paths.add("")
        return {line for path in paths for line in self._by_path.get(path, ())}


def _split(value: str) -> tuple[str, str]:
    """The path of a Content-Usage rule, empty without one, and its preference."""
    if not value.startswith("/"):
        return "", value
    path, *remainder = value.split(maxsplit=1)
    return path, remainder[0] if remainder else ""


# -- a response ---------------------------------------------------------------------------


def of_response(fields: Mapping[str, Sequence[str]], url: str, token: str) -> tuple[Statement, ...]:
    """The statements in the header of the response from *url*, at most 20.

    *fields*: the values of each field, by its name in lower case. *token*: our product token.
    """
    statements = [
        _statement(name, ", ".join(fields[name.lower()]), url)
        for name in _YES
        if fields.get(name.lower())
    ]
    for name in _AS_SAID:
        statements += [
            Statement(name, _show(value), url, malformed=_wrong(name, value))
            for value in fields.get(name.lower(), ())
            if name != "X-Robots-Tag" or _is_for(value, token)
        ]
    if links := fields.get("link"):
        statements += [
            Statement("Link", f'<{_show(target)}>; rel="license"', url)
            for target, parameters in links_in(links)
            if "license" in parameters.get("rel", "").lower().split()
        ]
    return tuple(statements[:_MOST])


def of_feed(terms: str, url: str) -> tuple[Statement, ...]:
    """The statement of RSL about an entry of the feed from *url*; empty without *terms*.

    *terms*: the elements of RSL, as they stand. Their *permits* allow nothing here, since that
    depends on the terms of payment.
    """
    if not terms:
        return ()
    labels = [
        label.lower()
        for attributes, text in _PROHIBITED.findall(terms)
        if not _OTHER_TYPE.search(attributes)
        for label in re.split(r"[\s,]+", text.strip())
    ]
    uses = [use for label in labels for use in (category(label), *_COVERED.get(label, ()))]
    preferences = tuple((use, False) for use in dict.fromkeys(uses) if use)
    return (Statement(_RSL, _show(terms), url, preferences=preferences),)


def _wrong(name: str, value: str) -> str:
    """The reason why the value of a field in _AS_SAID is malformed, or empty."""
    is_flag = name == "TDM-Reservation"
    return "neither 0 nor 1" if is_flag and value.strip() not in ("0", "1") else ""


def _is_for(value: str, token: str) -> bool:
    """Whether an X-Robots-Tag is for every bot, or for the bot with our *token*."""
    match = _NAMED.match(value)
    if match is None or match[1].lower() in _VALUED:
        return True
    return token.lower() in (name.lower() for name in _NAMED.findall(value))


def _show(value: str) -> str:
    return one_line(value, _SHOWN)
