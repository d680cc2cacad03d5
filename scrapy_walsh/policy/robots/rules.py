"""R2: the rules of a robots.txt that match a path, and which of them decides (9.1.4, D1).

The text leaves four questions open: what a group's name is (``groups``), whether a value
without a leading ``/`` should have one, whether an escape is text or an octet, and how long a match
is (T2). A *reading* is one answer to each of them, applied to Allow and Disallow alike. In each
reading the longest match wins, on a tie an Allow. The path is refused if one reading refuses it.
That is done in three steps, each a part of this file.

**One spelling**, so that paths and values can be compared: unreserved characters stand for
themselves, reserved ones stay as they are found, escaped or not, and everything else is escaped
with upper-case digits. An escape is three characters (:func:`normalize`), or the one octet that it
stands for (:func:`as_octets`): it matters for the length of a rule and for what a ``*`` may stand
for. And a URL with dot segments, backslashes or an empty query has several paths: :func:`forms`
gives each.

**Matching.** A rule with stars is cut at them. To match a path, its pieces must follow each other
in it. Each is searched from the left, beginning where the one before it ended: that finds the first
place where the rule can end. One search from the right finds the last place. These two give the
shortest and the longest match (T2). Nothing backtracks: a match costs at most path x rule, however
many ways there are to spread the stars over the path, of which a hostile file could make billions
(T40). A file may have 20,000 rules. So :class:`Index` looks up by a path's beginnings which of them
can match at all, adds up what matching these would cost, and raises :class:`TooCostly` beyond a
limit.

**Weighing.** Each pair of answers to the first two questions has a :class:`Table` of rules. All
tables share two indexes of patterns, one with escapes as text and one with them as octets. So a
path is matched twice at most, and each match is then weighed in every table that has its rule.
Rules of plain text, which most rules in most files are, need no index: a path looks up its own
beginnings in a set.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

from scrapy_walsh.policy.robots.groups import ALLOW

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from scrapy_walsh.policy.robots.groups import Selection

# -- one spelling -------------------------------------------------------------------------

_UNRESERVED: Final = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~"
_DELIMITERS: Final = ":/?#@!&'()+,;="
#: RFC 3986's reserved characters without ``$`` and ``*``, which have a meaning in rules: a literal
#: one is always escaped, since RFC 9309 2.2.3 writes it as ``%24`` or ``%2A``.
_RESERVED: Final = _DELIMITERS + "[]"

_HEX: Final = "0123456789abcdefABCDEF"


def _spelling(pair: str) -> str:
    character = chr(int(pair, 16))
    return character if character in _UNRESERVED else f"%{pair.upper()}"


_SPELLINGS: Final = {high + low: _spelling(high + low) for high in _HEX for low in _HEX}
# The character that stands for each escape in :func:`as_octets`. A bracket's is the bracket itself:
# RFC 3986 allows no bare bracket in a path or query, so both are the same octet.
_CHARACTERS: Final = {f"{octet:02X}": chr(0x100 + octet) for octet in range(256)} | {
    "5B": "[",
    "5D": "]",
}
_BARE_PERCENT: Final = _CHARACTERS["25"]
_TO_ENCODE: Final = re.compile(f"[^{re.escape(_UNRESERVED + _RESERVED)}%]+")
_TO_ENCODE_IN_VALUES: Final = re.compile(f"[^{re.escape(_UNRESERVED + _RESERVED)}%*\n]+")
_PLAIN_VALUES: Final = re.compile(f"[{re.escape(_UNRESERVED + _RESERVED)}*\n]*").fullmatch
#: Whether a rule's value is plain: it begins with a slash, has no star, anchor, bracket or escape,
#: and needs no other spelling. Such a rule matches the paths that begin with it, as text.
is_plain = re.compile(f"/[{re.escape(_UNRESERVED + _DELIMITERS)}]*").fullmatch
_PLAIN_URL: Final = re.compile(
    r"(?:[A-Za-z][A-Za-z0-9+.-]*://[^/?#\\\s]+)?(/[A-Za-z0-9_.~/=&?,;:@!'()+-]*)"
).fullmatch
#: Scheme and authority. By WHATWG URL the authority begins, after http: and https:, behind any run
#: of slashes and backslashes.
_AUTHORITY: Final = re.compile(
    r"(?:https?:[/\\]*|[a-z][a-z0-9+.-]*:[/\\]{2})[^/?#\\]*", re.IGNORECASE | re.ASCII
)
#: Characters that WHATWG URL drops wherever they are.
_URL_NOISE: Final = str.maketrans("", "", "\t\r\n")

#: The names of a URL's forms.
AS_SENT: Final = "path as sent"
RESOLVED: Final = "dot segments resolved"
SLASHED: Final = "backslashes as slashes"
NO_MARK: Final = "without the empty query"


def normalize(text: str) -> str:
    """*text* with escapes as the module's docstring says."""
    return _spelt(text, _TO_ENCODE)


def _spelt(text: str, to_encode: re.Pattern[str]) -> str:
    if "%" in text:
        head, *rest = text.split("%")
        text = head + "".join(
            [
                _SPELLINGS.get(part)
                or (known + part[2:] if (known := _SPELLINGS.get(part[:2])) else "%" + part)
                for part in rest
            ]
        )
    return to_encode.sub(_encode, text)


def normalize_values(bodies: list[str]) -> list[str]:
    """Rule values, without their final ``$``, in the spelling of paths; a ``*`` stays one.

    They are joined by line ends and spelt all at once, which is faster. No value contains a line
    end, and no escape can reach across one.
    """
    text = "\n".join(bodies)
    return bodies if _PLAIN_VALUES(text) else _spelt(text, _TO_ENCODE_IN_VALUES).split("\n")


def _encode(match: re.Match[str]) -> str:
    return "%" + utf8(match.group()).hex("%").upper()


def utf8(text: str) -> bytes:
    """The UTF-8 octets of *text*; surrogates in it are allowed (PEP 383, else their own octets)."""
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogatepass")


def as_octets(text: str) -> str:
    """Text of :func:`normalize` with one character for each escape.

    So nothing can match a part of an escape, and each octet counts as one. A ``%`` that begins no
    escape is read as ``%25``. A bracket is the same octet, escaped or not.
    """
    head, *rest = text.split("%")
    return head + "".join(
        [
            _CHARACTERS.get(part)
            or (known + part[2:] if (known := _CHARACTERS.get(part[:2])) else _BARE_PERCENT + part)
            for part in rest
        ]
    )


def forms(url: str) -> dict[str, str]:
    """The forms of a URL's path and query that rules must be matched with: each form's name.

    There is one with dot segments as they are and one without them (T41), one with a ``?`` that
    ends the URL and one without it, one with a backslash in the path as it is and one with the
    slash that WHATWG URL and Scrapy make of it, and each combination. The first is the one with
    nothing changed but the spelling. The fragment is dropped, and an empty path is ``/``.
    """
    plain = _PLAIN_URL(url)
    if plain and "/." not in url and url[-1:] != "?":  # nearly all URLs
        return {plain[1]: AS_SENT}
    text = url.translate(_URL_NOISE).strip().partition("#")[0]
    authority = _AUTHORITY.match(text)
    target = text[authority.end() :] if authority else text
    path, mark, query = target.partition("?")
    found = {_rooted(normalize(target)): AS_SENT}
    if "\\" in path:
        found[_rooted(normalize(path.replace("\\", "/") + mark + query))] = SLASHED
    for form, name in list(found.items()):
        found.setdefault(_resolved(form), _and(name, RESOLVED))
    for form, name in list(found.items()):
        if form.find("?") == len(form) - 1:
            found.setdefault(form[:-1], _and(name, NO_MARK))
    return found


def _and(name: str, more: str) -> str:
    """The name of a form that is made from the one called *name*. No two forms share a name."""
    return more if name == AS_SENT else f"{name}, {more}"


def _rooted(target: str) -> str:
    return target if target.startswith("/") else "/" + target


def _resolved(target: str) -> str:
    """Path and query with the path's dot segments resolved (RFC 3986 5.2.4)."""
    path, mark, query = target.partition("?")
    if "/." not in path:
        return target
    kept: list[str] = []
    segments = path.split("/")[1:]
    for segment in segments:
        if segment == "..":
            del kept[-1:]
        elif segment != ".":
            kept.append(segment)
    if segments[-1] in {".", ".."}:
        kept.append("")
    return "/" + "/".join(kept) + mark + query


# -- matching -----------------------------------------------------------------------------

#: What may count as the length of a match (T2). A final ``$`` adds one to each.
LENGTHS: Final = ("each * at its most", "each * at its least", "the pattern's octets")

#: Characters of ``Pattern.piece``.
_PIECE: Final = 3
#: So many rules, and so many characters of starred rules x characters of a path, are tried without
#: adding up what they cost.
_FEW: Final = 100
_LIGHT: Final = 2_000_000
#: What one decision may cost, in characters compared. Beyond it the answer is no (T40).
_MAX_COST: Final = 30_000_000
#: What trying a rule costs in itself, and each of its parts, in the same unit.
_RULE_COST: Final = 2_000
_PART_COST: Final = 100
#: Characters that ``str.rfind`` may compare; beyond that a reversed copy is searched.
_RFIND_COST: Final = 100_000


class TooCostly(Exception):
    """Matching would cost more than one decision may, so the caller refuses (T40)."""


class Match(NamedTuple):
    """A rule that matches a path: its kind, its text as written, and its lengths by LENGTHS."""

    allow: bool
    text: str
    lengths: tuple[int, int, int]


class Pattern(NamedTuple):
    """A rule, prepared to be matched with paths.

    ``text``: as written. ``prefix``: what comes before the first star. ``parts``: what comes after
    each run of stars; the last is empty where a star ends the rule. ``anchored``: it ends in ``$``.
    ``piece``: the first characters of its last text, for a quick check, since every path that
    matches contains them. ``size``: characters of the whole.
    """

    allow: bool
    text: str
    prefix: str
    parts: tuple[str, ...]
    anchored: bool
    piece: str
    size: int

    @classmethod
    def of(cls, allow: bool, text: str, body: str) -> Pattern:
        """Prepare a rule. ``text``: its value as written. ``body``: spelt like paths, without $."""
        anchored = text[-1] == "$"  # only a final $ is an anchor; elsewhere it is a character
        size = len(body) + anchored
        prefix, star, rest = body.partition("*")
        if not star:
            return cls(allow, text, body, (), anchored, "", size)
        parts = rest.split("*")
        last = parts.pop()
        texts = filter(None, parts) if "" in parts else parts
        piece = rest.rstrip("*").rpartition("*")[2][:_PIECE]
        return cls(allow, text, prefix, (*texts, last), anchored, piece, size)

    def match(self, path: str) -> Match | None:
        """The match with *path*, None if there is none. *path* must start with ``prefix``."""
        begin = len(self.prefix)
        if not self.parts:
            if self.anchored and begin != len(path):
                return None
            return Match(self.allow, self.text, (self.size, self.size, self.size))
        for part in self.parts[:-1]:
            start = path.find(part, begin)
            if start < 0:
                return None
            begin = start + len(part)
        ends = self._ends(path, begin)
        if ends is None:
            return None
        least, most = ends[0] + self.anchored, ends[1] + self.anchored
        return Match(self.allow, self.text, (most, least, self.size))

    def _ends(self, path: str, begin: int) -> tuple[int, int] | None:
        """The first and the last place where the last part, at or after *begin*, can end."""
        last, whole = self.parts[-1], len(path)
        if self.anchored:
            return (whole, whole) if path.endswith(last, begin) else None
        if not last:
            return begin, whole
        start = path.find(last, begin)
        return None if start < 0 else (start + len(last), _rightmost(path, last, start) + len(last))

    def cost(self, path: str) -> int:
        """An upper bound of what :meth:`match` costs, in characters compared."""
        longest = max(map(len, self.parts), default=0)
        return longest * len(path) + _PART_COST * len(self.parts) + _RULE_COST


def _rightmost(path: str, part: str, start: int) -> int:
    """Where *part* last begins in *path*, at or after *start*. It does occur there."""
    # str.rfind may compare len(path) x len(part) characters, str.find never does.
    if len(path) * len(part) < _RFIND_COST:
        return path.rfind(part, start)
    return len(path) - len(part) - path[::-1].find(part[::-1])


class Index:
    """Patterns by their text before the first star, so that a path finds those that can match.

    A look-up takes a dictionary access for each length that such texts have.
    """

    __slots__ = ("_buckets", "_sizes", "_starred")

    def __init__(self, patterns: Iterable[Pattern]) -> None:
        self._buckets: dict[str, list[Pattern]] = {}
        self._starred = 0
        for pattern in patterns:
            self._buckets.setdefault(pattern.prefix, []).append(pattern)
            if pattern.parts:
                self._starred += pattern.size
        self._sizes = sorted(set(map(len, self._buckets)))

    def matches(self, path: str) -> list[Match]:
        """The matches of the patterns with *path*, in no order. Raises TooCostly."""
        buckets = self._buckets
        near: list[Pattern] = []
        for size in self._sizes:
            near += buckets.get(path[:size], ())
        light = len(near) <= _FEW and self._starred * len(path) < _LIGHT
        pieces = path if light else _pieces(path)
        near = [pattern for pattern in near if pattern.piece in pieces]
        if not light and sum([pattern.cost(path) for pattern in near]) > _MAX_COST:
            raise TooCostly
        return [match for pattern in near if (match := pattern.match(path)) is not None]


class Patterns:
    """Rules that are no plain text, in both ways to read their escapes.

    *rules*: of each, whether it is an Allow, and its value as written.
    """

    __slots__ = ("_by_octets", "_by_text")

    def __init__(self, rules: Sequence[tuple[bool, str]]) -> None:
        bodies = normalize_values([value.removesuffix("$") for _, value in rules])
        joined = "\n".join(bodies)
        self._by_text = self._by_octets = _index(rules, bodies)
        if "%" in joined:
            self._by_octets = _index(rules, as_octets(joined).split("\n"))

    def as_text(self, path: str) -> list[Match]:
        """The matches with one form of a path, with escapes as text. Raises TooCostly."""
        return self._by_text.matches(path)

    def as_octets(self, path: str) -> list[Match]:
        """The same with escapes as octets."""
        return self._by_octets.matches(as_octets(path))


def _index(rules: Sequence[tuple[bool, str]], bodies: Sequence[str]) -> Index:
    return Index(
        Pattern.of(allow, value, body) for (allow, value), body in zip(rules, bodies, strict=True)
    )


def _pieces(path: str) -> set[str]:
    """All texts of at most _PIECE characters that *path* contains."""
    return {path[i : i + n] for n in range(_PIECE + 1) for i in range(len(path))}


# -- weighing -----------------------------------------------------------------------------

#: The names of readings, as verdicts show them.
AS_WRITTEN: Final = "value as written"
WITH_SLASH: Final = "value with a leading /"
AS_TEXT: Final = "escapes as text"
AS_OCTETS: Final = "escapes as octets"

#: Rules that are not plain text. Of more no index is made, and the answer is no (T40).
_MAX_PATTERNS: Final = 20_000

#: The answer of each reading: its name, and whether it allows the path.
Readings = tuple[tuple[str, bool], ...]


class Rule(NamedTuple):
    """An Allow or a Disallow: its value, its line's number from 1, the names of its group."""

    allow: bool
    text: str
    line: int
    names: tuple[str, ...]


class Ruling(NamedTuple):
    """What the strict layer says about a path.

    ``rule``: the one that decided, None if none matches. ``readings``: the answers, empty if all
    readings agree.
    """

    denied: bool
    rule: Rule | None
    readings: Readings = ()


_NOTHING: Final = Ruling(denied=False, rule=None)


class Table(NamedTuple):
    """The rules of a token by one reading of names and values.

    ``reading``: its name. ``names``: of the group. ``lines``: by whether a rule is an Allow and by
    its text, the number of the first line that has it.
    """

    reading: str
    names: tuple[str, ...]
    lines: Mapping[tuple[bool, str], int]

    def answers(self, matches: list[Match]) -> list[tuple[str, Rule | None]]:
        """The name of each reading, with the rule that wins in it; None if no rule matches.

        There is a reading for each of LENGTHS (T2), but only one where all of them agree.
        """
        having = [
            (match.lengths, Rule(match.allow, match.text, line, self.names))
            for match in matches
            if (line := self.lines.get((match.allow, match.text))) is not None
        ]
        if not having:
            return [(self.reading, None)]
        winners = [_longest(having, which) for which in range(len(LENGTHS))]
        if len({rule.allow for rule in winners}) == 1:
            return [(self.reading, winners[0])]
        return [
            (_label(self.reading, name), rule) for name, rule in zip(LENGTHS, winners, strict=True)
        ]


def _longest(having: list[tuple[tuple[int, int, int], Rule]], which: int) -> Rule:
    """The rule with the longest match by one of LENGTHS; on a tie an Allow, then the first line."""
    return max(having, key=lambda pair: (pair[0][which], pair[1].allow, -pair[1].line))[1]


class RuleSet:
    """The rules of a token in one file; :meth:`judge` says what they mean for a path.

    ``_tables``: one for each reading of names and values. ``_rules``: those of any of them.
    ``_plain``: the texts of those that are plain, and ``_sizes`` their lengths. ``_patterns``: all
    others. ``_too_many``: these are too many, so all is refused.
    """

    __slots__ = ("_patterns", "_plain", "_rules", "_sizes", "_tables", "_too_many")

    def __init__(self, selections: Sequence[Selection]) -> None:
        bare = any(
            value[:1] not in {"/", ""}
            for selection in selections
            for _, value, _ in selection.lines
        )
        self._tables = list(_tables(selections, bare))
        self._rules = frozenset(rule for table in self._tables for rule in table.lines)
        self._plain = {text for _, text in self._rules if is_plain(text)}
        self._sizes = sorted(set(map(len, self._plain)))
        others = [rule for rule in self._rules if rule[1] not in self._plain]
        self._too_many = len(others) > _MAX_PATTERNS
        self._patterns = Patterns([] if self._too_many else others)

    def judge(self, path: str) -> Ruling:
        """The finding for one form of a path (:func:`forms`); raises TooCostly."""
        if self._too_many:
            raise TooCostly
        plain = self._plain_matches(path)
        text = self._weigh([*plain, *self._patterns.as_text(path)])
        if "%" not in path and "[" not in path and "]" not in path:
            return text  # only rules without an escape match here: both ways are the same
        octets = self._weigh([*plain, *self._patterns.as_octets(path)])
        return text if text == octets else combine({AS_TEXT: text, AS_OCTETS: octets})

    def _plain_matches(self, path: str) -> list[Match]:
        """The matches of the rules that are plain text: those that *path* begins with."""
        found = []
        for size in self._sizes:
            text = path[:size]
            if text in self._plain and size <= len(path):
                kinds = [allow for allow in (True, False) if (allow, text) in self._rules]
                found += [Match(allow, text, (size, size, size)) for allow in kinds]
        return found

    def _weigh(self, matches: list[Match]) -> Ruling:
        """The finding of all tables together: denied if one denies."""
        if not matches:
            return _NOTHING
        answers = [answer for table in self._tables for answer in table.answers(matches)]
        rules = [rule for _, rule in answers if rule]
        if not rules:
            return _NOTHING
        rule = next((rule for rule in rules if not rule.allow), rules[0])
        if len(answers) == 1:
            return Ruling(not rule.allow, rule)
        readings = tuple((name, by is None or by.allow) for name, by in answers)
        return Ruling(not rule.allow, rule, _differing(readings))


def combine(findings: dict[str, Ruling]) -> Ruling:
    """One finding from several, by name: denied if one is, with the rule of the first such one."""
    if len(findings) == 1:
        return next(iter(findings.values()))
    chosen = max(findings.values(), key=lambda finding: (finding.denied, finding.rule is not None))
    readings = tuple(
        (_label(name, reading), answer)
        for name, finding in findings.items()
        for reading, answer in finding.readings or (("", not finding.denied),)
    )
    return Ruling(chosen.denied, chosen.rule, _differing(readings))


def _tables(selections: Sequence[Selection], bare: bool) -> Iterator[Table]:
    """A table for each selection; two, if a value lacks its leading slash (``bare``).

    An empty text matches nothing (9.1.4) and is left out.
    """
    readings: dict[str, Callable[[str], str]] = (
        {AS_WRITTEN: _as_written, WITH_SLASH: _with_slash} if bare else {"": str}
    )
    for selection in selections:
        name = selection.reading if len(selections) > 1 else ""
        for reading, read in readings.items():
            lines: dict[tuple[bool, str], int] = {}
            for kind, value, line in selection.lines:
                if text := read(value):
                    lines.setdefault((kind is ALLOW, text), line)
            yield Table(_label(name, reading), selection.names, lines)


def _as_written(value: str) -> str:
    """*value*; empty if it can match no path, since it begins with neither a slash nor a star."""
    return value if value[:1] in {"/", "*"} else ""


def _with_slash(value: str) -> str:
    return value if value[:1] in {"/", ""} else f"/{value}"


def _label(*parts: str) -> str:
    return ", ".join(filter(None, parts))


def _differing(readings: Readings) -> Readings:
    """*readings*; empty if all have the same answer."""
    return readings if len({answer for _, answer in readings}) > 1 else ()
