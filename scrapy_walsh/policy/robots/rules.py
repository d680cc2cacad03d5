"""Match the rules of a robots.txt with a path, and find the rule that decides (R2; 9.1.4, D1).

The specification leaves four questions open: what is a group's name (``groups``), should a value
without a leading ``/`` have one, is an escape text or an octet, and how long is a match (T2)? A
*reading* answers each of them, for Allow and Disallow alike. In each reading the longest match
wins, on a tie an Allow. The path is refused if one reading refuses it. There are three steps, each
a part of this file.

**One spelling**, so that paths and values can be compared: unreserved characters stand for
themselves, reserved ones stay as they are found, escaped or not, and everything else is escaped
with upper-case digits. An escape is three characters (:func:`normalize`), or the octet that it
stands for (:func:`as_octets`). That matters for the length of a rule and for the text that a ``*``
may match. And a URL with dot segments, backslashes or an empty query has several paths:
:func:`forms` gives each.

**Matching.** A rule with stars is cut at them. To match a path, its pieces must follow each other
in it. Each piece is searched from the left, after the end of the piece before. That finds the first
possible end of the match. A search from the right finds the last possible end. These two give the
shortest and the longest match (T2). Nothing backtracks, so a match costs at most path x rule. A
hostile file could make billions of ways to spread the stars over the path (T40). A file may have
20,000 rules. So :class:`Index` looks up by a path's beginnings which of them can match at all, and
adds up their cost. If that exceeds a limit, it raises :class:`TooCostly`.

**Weighing.** Each pair of answers to the first two questions has a :class:`Table` of rules. All
tables share two indexes of patterns, one with escapes as text and one with them as octets. So a
path is matched twice at most, and each match is then weighed in every table that has its rule.
"""

from __future__ import annotations

import re
from itertools import chain
from typing import TYPE_CHECKING, Final, NamedTuple

from scrapy_walsh.policy.robots.groups import ALLOW, Selection

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

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
# The character for each escape in :func:`as_octets`. For a bracket it is the bracket itself: RFC
# 3986 allows no bare bracket in a path or query, so both are the same octet.
_CHARACTERS: Final = {f"{octet:02X}": chr(0x100 + octet) for octet in range(256)} | {
    "5B": "[",
    "5D": "]",
}
_TO_ENCODE: Final = re.compile(f"[^{re.escape(_UNRESERVED + _RESERVED)}%]+")
_TO_ENCODE_IN_VALUES: Final = re.compile(f"[^{re.escape(_UNRESERVED + _RESERVED)}%*\n]+")
_PLAIN_VALUES: Final = re.compile(f"[{re.escape(_UNRESERVED + _RESERVED)}*\n]*").fullmatch
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


def normalize(text: str, to_encode: re.Pattern[str] = _TO_ENCODE) -> str:
    """*text* with escapes as the module's docstring says. *to_encode*: what is escaped."""
    return to_encode.sub(_encode, _unescaped(text, _SPELLINGS, "%"))


def _unescaped(text: str, table: Mapping[str, str], percent: str) -> str:
    """*text* with what *table* has for each escape; *percent* for a ``%`` that begins none."""
    head, *parts = text.split("%")
    return head + "".join(
        [
            table.get(part)
            or (spelling + part[2:] if (spelling := table.get(part[:2])) else percent + part)
            for part in parts
        ]
    )


def normalize_values(bodies: list[str]) -> list[str]:
    """Rule values, without their final ``$``, in the spelling of paths; a ``*`` stays one.

    They are joined by line ends and spelt all at once, because that is faster. No value contains a
    line end, and no escape can reach across a line end.
    """
    text = "\n".join(bodies)
    return bodies if _PLAIN_VALUES(text) else normalize(text, _TO_ENCODE_IN_VALUES).split("\n")


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

    So no rule can match a part of an escape, and each octet counts as one. A ``%`` that begins no
    escape is read as ``%25``. A bracket is the same octet, escaped or not.
    """
    return _unescaped(text, _CHARACTERS, _CHARACTERS["25"])


def forms(url: str) -> list[str]:
    """The forms of a URL's path and query that rules must be matched with.

    Dot segments are left or resolved (T41); a ``?`` at the end is left or dropped; a backslash in
    the path is left, or becomes a slash as in WHATWG URL and Scrapy. Each combination is a form. In
    the first form only the spelling is changed. The fragment is dropped, and an empty path is
    ``/``.
    """
    plain = _PLAIN_URL(url)
    if plain and "/." not in url and url[-1:] != "?":  # nearly all URLs
        return [plain[1]]
    text = url.translate(_URL_NOISE).strip().partition("#")[0]
    authority = _AUTHORITY.match(text)
    target = text[authority.end() :] if authority else text
    path, mark, query = target.partition("?")
    paths = [
        _rooted(normalize(variant + mark + query)) for variant in (path, path.replace("\\", "/"))
    ]
    paths += map(_resolved, paths[:])
    paths += [form[:-1] for form in paths if form.find("?") == len(form) - 1]
    return list(dict.fromkeys(paths))


def _rooted(target: str) -> str:
    return target if target.startswith("/") else "/" + target


def _resolved(target: str) -> str:
    """Path and query with the path's dot segments resolved (RFC 3986 5.2.4)."""
    path, mark, query = target.partition("?")
    if "/." not in path:
        return target
    output: list[str] = []
    segments = path.split("/")[1:]
    for segment in segments:
        if segment == "..":
            del output[-1:]
        elif segment != ".":
            output.append(segment)
    if segments[-1] in {".", ".."}:
        output.append("")
    return "/" + "/".join(output) + mark + query


# -- matching -----------------------------------------------------------------------------

#: The lengths that a match may have (T2). A final ``$`` adds one to each.
LENGTHS: Final = ("each * at its most", "each * at its least", "the pattern's octets")

#: The limit of a decision's cost, in characters compared. If it is exceeded, the answer is no
#: (T40).
_MAX_COST: Final = 30_000_000
#: The cost to try a rule at all, and for each of its parts, in the same unit.
_RULE_COST: Final = 2_000
_PART_COST: Final = 100


class TooCostly(Exception):
    """Matching would cost more than the limit of a decision, so the caller refuses (T40)."""


class Match(NamedTuple):
    """A rule that matches a path: its kind, its text as written, and its lengths by LENGTHS."""

    allow: bool
    text: str
    lengths: tuple[int, int, int]


class Pattern(NamedTuple):
    """A rule, prepared to be matched with paths.

    ``text``: as written. ``prefix``: the text before the first star. ``parts``: the texts after
    each run of stars; the last is empty if a star ends the rule. ``anchored``: it ends in ``$``.
    ``size``: its number of characters.
    """

    allow: bool
    text: str
    prefix: str
    parts: tuple[str, ...]
    anchored: bool
    size: int

    @classmethod
    def of(cls, allow: bool, text: str, body: str) -> Pattern:
        """Prepare a rule. ``text``: its value as written. ``body``: spelt like paths, without $."""
        anchored = text[-1] == "$"  # only a final $ is an anchor; elsewhere it is a character
        prefix, *pieces = body.split("*")
        parts = (*filter(None, pieces[:-1]), *pieces[-1:])
        return cls(allow, text, prefix, parts, anchored, len(body) + anchored)

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
        shortest, longest = ends[0] + self.anchored, ends[1] + self.anchored
        return Match(self.allow, self.text, (longest, shortest, self.size))

    def _ends(self, path: str, begin: int) -> tuple[int, int] | None:
        """The first and the last possible end of the last part, from *begin* on."""
        part, size = self.parts[-1], len(path)
        if self.anchored:
            return (size, size) if path.endswith(part, begin) else None
        if not part:
            return begin, size
        start = path.find(part, begin)
        if start < 0:
            return None
        # Not str.rfind, which may compare len(path) x len(last) characters.
        return start + len(part), size - path[::-1].find(part[::-1])


class Patterns:
    """Rules in both ways to read their escapes.

    *rules*: of each, whether it is an Allow, and its value as written.
    """

    __slots__ = ("_by_octets", "_by_text")

    def __init__(self, rules: Sequence[tuple[bool, str]]) -> None:
        bodies = normalize_values([value.removesuffix("$") for _, value in rules])
        joined = "\n".join(bodies)
        self._by_text = self._by_octets = Index(rules, bodies)
        if "%" in joined:
            self._by_octets = Index(rules, as_octets(joined).split("\n"))

    def as_text(self, path: str) -> list[Match]:
        """The matches with one form of a path, with escapes as text. Raises TooCostly."""
        return self._by_text.matches(path)

    def as_octets(self, path: str) -> list[Match]:
        """The same with escapes as octets."""
        return self._by_octets.matches(as_octets(path))


class Index:
    """Rules by their text before the first star.

    A look-up for each length of such texts finds the rules that can match a path. Rules are
    prepared when a path first begins with their text, so most rules never are.
    """

    __slots__ = ("_prepared", "_rules", "_sizes")

    def __init__(self, rules: Sequence[tuple[bool, str]], bodies: Sequence[str]) -> None:
        self._rules: dict[str, list[tuple[bool, str, str]]] = {}
        for (allow, value), body in zip(rules, bodies, strict=True):
            self._rules.setdefault(body.partition("*")[0], []).append((allow, value, body))
        self._prepared: dict[str, tuple[list[Pattern], int, int]] = {}
        self._sizes = sorted(set(map(len, self._rules)))

    def matches(self, path: str) -> list[Match]:
        """The matches with *path*. Raises TooCostly."""
        candidates, cost = [], 0
        for size in self._sizes:
            if size > len(path):
                break
            if (prefix := path[:size]) in self._rules:
                group, fixed, longest = self._prepared.get(prefix) or self._prepare(prefix)
                candidates.append(group)
                cost += fixed + longest * len(path)
        if cost > _MAX_COST:
            raise TooCostly
        patterns = chain.from_iterable(candidates)
        return [match for pattern in patterns if (match := pattern.match(path)) is not None]

    def _prepare(self, prefix: str) -> tuple[list[Pattern], int, int]:
        """The rules, their fixed cost, and their cost for each character of a path."""
        rules = self._rules[prefix]
        base_cost = _RULE_COST * sum(body != prefix for _, _, body in rules)
        # If their stars alone cost too much, none is ever matched.
        patterns = [] if base_cost > _MAX_COST else [Pattern.of(*rule) for rule in rules]
        parted = [pattern.parts for pattern in patterns if pattern.parts]
        cost = sum(_RULE_COST + _PART_COST * len(parts) for parts in parted)
        longest = sum(max(map(len, parts)) for parts in parted)
        return self._prepared.setdefault(prefix, (patterns, max(base_cost, cost), longest))


# -- weighing -----------------------------------------------------------------------------

#: The names of readings, as verdicts show them.
AS_WRITTEN: Final = "value as written"
WITH_SLASH: Final = "value with a leading /"
AS_TEXT: Final = "escapes as text"
AS_OCTETS: Final = "escapes as octets"
#: Of a path (:func:`forms`) but the first.
ANOTHER_FORM: Final = "another form of the path"


class Rule(NamedTuple):
    """An Allow or a Disallow: its value, its line's number from 1, the names of its group."""

    allow: bool
    text: str
    line: int
    names: tuple[str, ...]


class Ruling(NamedTuple):
    """The decision of the strict layer about a path.

    ``rule``: the rule that decided, None if none matches. ``readings``: the name of each, and
    whether it allows the path; empty if all readings agree.
    """

    denied: bool
    rule: Rule | None
    readings: tuple[tuple[str, bool], ...] = ()


#: The answer of a reading: its name, and the rule that wins in it; None if no rule matches.
Answer = tuple[str, Rule | None]
_NO_MATCH: Final[list[Answer]] = [("", None)]


class Table(NamedTuple):
    """The rules of a token by one reading of names and values.

    ``reading``: its name. ``names``: of the group. ``lines``: by whether a rule is an Allow and by
    its text, the number of the first line that has it.
    """

    reading: str
    names: tuple[str, ...]
    lines: Mapping[tuple[bool, str], int]

    def answers(self, matches: list[Match]) -> list[Answer]:
        """The answers for each of LENGTHS (T2); only one answer if all of them agree."""
        candidates = [
            (match.lengths, Rule(match.allow, match.text, line, self.names))
            for match in matches
            if (line := self.lines.get((match.allow, match.text))) is not None
        ]
        if not candidates:
            return [(self.reading, None)]
        winners = [_longest(candidates, measure) for measure in range(len(LENGTHS))]
        if len({rule.allow for rule in winners}) == 1:
            return [(self.reading, winners[0])]
        return [
            (_label(self.reading, name), rule) for name, rule in zip(LENGTHS, winners, strict=True)
        ]


def _longest(candidates: list[tuple[tuple[int, int, int], Rule]], measure: int) -> Rule:
    """The rule with the longest match by one of LENGTHS; on a tie an Allow, then the first line."""
    return max(candidates, key=lambda pair: (pair[0][measure], pair[1].allow, -pair[1].line))[1]


class RuleSet:
    """The rules of a token in a file; :meth:`ruling` applies them to a path.

    ``_tables``: one for each reading of names and values. ``_patterns``: the rules of any of them.
    """

    __slots__ = ("_patterns", "_tables")

    def __init__(self, selections: Sequence[Selection]) -> None:
        bare = any(
            value[:1] not in {"/", ""}
            for selection in selections
            for _, value, _ in selection.lines
        )
        self._tables = list(_tables(selections, bare))
        rules = dict.fromkeys(rule for table in self._tables for rule in table.lines)
        self._patterns = Patterns(list(rules))

    def ruling(self, paths: Sequence[str]) -> Ruling:
        """The decision about a path. *paths*: all its :func:`forms`. Raises TooCostly."""
        answers = self._answers(paths[0])
        if len(paths) > 1:  # seldom
            other_answers = (_named(ANOTHER_FORM, self._answers(path)) for path in paths[1:])
            answers = [*answers, *chain.from_iterable(other_answers)]
        return _ruling(answers)

    def _answers(self, path: str) -> list[Answer]:
        """The answers of all readings for one form of a path."""
        text = self._weigh(self._patterns.as_text(path))
        if "%" not in path and "[" not in path and "]" not in path:
            return text  # only rules without an escape match here: both ways are the same
        octets = self._weigh(self._patterns.as_octets(path))
        return text if text == octets else [*_named(AS_TEXT, text), *_named(AS_OCTETS, octets)]

    def _weigh(self, matches: list[Match]) -> list[Answer]:
        if not matches:
            return _NO_MATCH
        return [answer for table in self._tables for answer in table.answers(matches)]


def _named(name: str, answers: Iterable[Answer]) -> Iterator[Answer]:
    """*answers*, each with *name* before its own."""
    return ((_label(name, reading), rule) for reading, rule in answers)


def _ruling(answers: Sequence[Answer]) -> Ruling:
    """Combine the answers: denied if one reading denies, by the rule of the first that does."""
    if len(answers) == 1:
        rule = answers[0][1]
        return Ruling(rule is not None and not rule.allow, rule)
    rules = [rule for _, rule in answers if rule is not None]
    rule = next(
        (candidate for candidate in rules if not candidate.allow), rules[0] if rules else None
    )
    readings = tuple((name, winner is None or winner.allow) for name, winner in answers)
    differ = len({allowed for _, allowed in readings}) > 1
    return Ruling(rule is not None and not rule.allow, rule, readings if differ else ())


def _tables(selections: Sequence[Selection], bare: bool) -> Iterator[Table]:
    """A table for each selection; two, if a value lacks its leading slash (``bare``).

    An empty text matches nothing (9.1.4) and is left out.
    """
    readings: dict[str, Callable[[str], str]] = (
        {AS_WRITTEN: _as_written, WITH_SLASH: _with_slash} if bare else {"": str}
    )
    for selection in selections:
        name = selection.reading if len(selections) > 1 else ""
        for reading, spell in readings.items():
            lines: dict[tuple[bool, str], int] = {}
            for kind, value, line in selection.lines:
                if text := spell(value):
                    lines.setdefault((kind is ALLOW, text), line)
            yield Table(_label(name, reading), selection.names, lines)


def _as_written(value: str) -> str:
    """*value*; empty if it can match no path, since it begins with neither a slash nor a star."""
    return value if value[:1] in {"/", "*"} else ""


def _with_slash(value: str) -> str:
    return value if value[:1] in {"/", ""} else f"/{value}"


def _label(*parts: str) -> str:
    return ", ".join(filter(None, parts))
