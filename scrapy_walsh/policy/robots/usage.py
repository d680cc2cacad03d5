"""The statements of a site about the use of its pages, with document and line (beside R2).

They are recorded, and decide nothing unless the operator sets WALSH_USAGE. Statements are read from
these fields, each in its own words:

- ``Content-Usage``, in robots.txt by path and in a response (draft-ietf-aipref-attach; categories
  and how statements combine: draft-ietf-aipref-vocab, sections 5 and 6);
- ``Content-Signal`` in robots.txt (contentsignals.org);
- ``X-Robots-Tag``, for every bot or for ours;
- ``TDM-Reservation`` and ``TDM-Policy`` (W3C TDM Reservation Protocol), as header fields;
- ``Link`` with ``rel="license"`` (RFC 8288, RFC 4946).

Only the first two name a category. If a statement cannot be parsed, it is recorded with the reason.
It allows nothing, and forbids a category only if that stands beside a plain *no* (D1). In
robots.txt these lines belong to groups as Allow and Disallow do, and the same matching finds the
longest path with a rule that can be parsed. If the text can be read in several ways, all their
statements count, and the most restrictive prevails (D1).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, cast

from scrapy_walsh.exceptions import one_line
from scrapy_walsh.policy.formats.text import links_in
from scrapy_walsh.policy.robots.groups import CONTENT_SIGNAL, CONTENT_USAGE, Line, Selection
from scrapy_walsh.policy.robots.rules import LENGTHS, Match, Patterns, TooCostly, forms
from scrapy_walsh.policy.verdict import BY_USAGE, DISALLOWED_USAGE, Verdict

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

#: The categories of use, by their labels: the vocabulary's two, and one of Content-Signal alone.
CATEGORIES: Final = ("train-ai", "search", "ai-input")
#: Values of WALSH_USAGE.
RECORD, REFUSE = "record", "refuse"

#: Characters of a field that are parsed, and that are recorded; statements of a response.
_LONGEST: Final = 4096
_SHOWN: Final = 300
_MOST: Final = 20
#: The labels of the categories. Content-Signal has another one for the first.
_SAME: Final = {**{name: name for name in CATEGORIES}, "ai-train": "train-ai"}
#: A category beside a *no*, however badly the value is written.
_NO: Final = re.compile(
    rf"(?<![\w-])({'|'.join(_SAME)})(?:\s*[=:]\s*|\s+)[\"']?(?:no?|false|\??0)(?![\w.-])",
    re.IGNORECASE | re.ASCII,
)
#: The tokens that allow a category.
_YES: Final = {CONTENT_USAGE: "y", CONTENT_SIGNAL: "yes"}
#: Header fields that are recorded as they stand.
_AS_SAID: Final = ("X-Robots-Tag", "TDM-Reservation", "TDM-Policy")
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


def combined(statements: Iterable[Statement]) -> dict[str, bool]:
    """Whether each named category is allowed: it is not if one statement disallows it.

    (draft-ietf-aipref-vocab, "Combining Preferences".) If no statement names a category, it is
    unknown, and not among the keys.
    """
    preferences: dict[str, bool] = {}
    for statement in statements:
        for category, allowed in statement.preferences:
            preferences[category] = preferences.get(category, True) and allowed
    return preferences


def as_member(statements: Sequence[Statement]) -> dict[str, Any] | None:
    """An item's ``usage``: the statements, and the preference for each category; None for none."""
    if not statements:
        return None
    preferences = {
        category: "allowed" if allowed else "disallowed"
        for category, allowed in sorted(combined(statements).items())
    }
    return {"said": [statement.members() for statement in statements], "preferences": preferences}


def refuses(
    statements: Iterable[Statement], refused_uses: Sequence[str], verdict: Verdict
) -> Verdict | None:
    """The verdict against a target if robots.txt disallows a use in *refused_uses*, or None.

    *refused_uses*: the categories that WALSH_USAGE refuses targets for. *verdict*: of robots.txt,
    which allows the target.
    """
    for statement in statements:
        for category, allowed in statement.preferences:
            if category in refused_uses and not allowed:
                rule = f"{statement.field}: {statement.value}"
                return Verdict(
                    False,
                    DISALLOWED_USAGE,
                    BY_USAGE,
                    f"{rule} (line {statement.line}), and {BY_USAGE} refuses {category}",
                    statement.document,
                    statement.line,
                    verdict.group,
                    rule=rule,
                    digest=verdict.digest,
                )
    return None


# -- one field ----------------------------------------------------------------------------


def _statement(field: str, value: str, document: str, line: int | None = None) -> Statement:
    """The statement of a Content-Usage or a Content-Signal, which has a dictionary as value."""
    preferences, malformed = _read(field, value)
    return Statement(field, _shown(value), document, line, preferences, malformed)


@lru_cache(maxsize=256)
def _read(field: str, value: str) -> tuple[tuple[tuple[str, bool], ...], str]:
    """The preferences of a value, and the reason why it cannot be parsed, or empty.

    A *no* beside a category always counts (D1), even if the value cannot be parsed, because it
    seldom means anything else.
    """
    malformed = f"longer than {_LONGEST} characters" if len(value) > _LONGEST else ""
    try:
        tokens = {} if malformed else _tokens(value)
    except ValueError as error:
        malformed = "not ASCII" if isinstance(error, UnicodeError) else one_line(error)
    disallowed = [(_SAME[key.lower()], False) for key in _NO.findall(value[:_LONGEST])]
    if malformed:
        return tuple(disallowed), malformed
    names = CATEGORIES if field == CONTENT_USAGE else _SAME
    allowed = [(_SAME[key], True) for key in names if tokens.get(key) == _YES[field]]
    return (*allowed, *disallowed), ""


def _tokens(value: str) -> dict[str, str]:
    """The members of a dictionary that are tokens (RFC 9651). Raises ValueError for other text."""
    from http_sf import Token, parse  # noqa: PLC0415  slow to load, and few sites need it

    members = cast("dict[str, Any]", parse(value.encode(), tltype="dictionary"))
    return {key: str(item) for key, (item, _) in members.items() if isinstance(item, Token)}


# -- robots.txt ---------------------------------------------------------------------------


class UsageRules:
    """The Content-Usage and Content-Signal lines of a token's groups in a robots.txt."""

    __slots__ = ("_document", "_groups")

    def __init__(self, selections: Sequence[Selection], document: str | None) -> None:
        self._document = document or ""
        self._groups = [_Group(selection.usage) for selection in selections if selection.usage]

    def said(self, url: str) -> tuple[Statement, ...]:
        """The statements about *url*, a URL or a path with its query, by line. Never raises."""
        try:
            lines = {line for group in self._groups for line in group.lines(url)}
        except TooCostly:
            first_line = min(group.first for group in self._groups)
            reason = "the rules would take too long to match"
            return (Statement(CONTENT_USAGE, "", self._document, first_line, malformed=reason),)
        return tuple(
            _statement(kind, value, self._document, number)
            for kind, value, number in sorted(lines, key=lambda line: line[2])
        )


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
    statements: list[Statement] = []
    if usage := fields.get("content-usage"):
        statements.append(_statement(CONTENT_USAGE, ", ".join(usage), url))
    for name in _AS_SAID:
        values = fields.get(name.lower(), ())
        statements += [
            Statement(name, _shown(value), url, malformed=_wrong(name, value))
            for value in values
            if name != "X-Robots-Tag" or _is_for(value, token)
        ]
    if links := fields.get("link"):
        statements += [
            Statement("Link", f'<{_shown(target)}>; rel="license"', url)
            for target, parameters in links_in(links)
            if "license" in parameters.get("rel", "").lower().split()
        ]
    return tuple(statements[:_MOST])


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


def _shown(value: str) -> str:
    return one_line(value, _SHOWN)
