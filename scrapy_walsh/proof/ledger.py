"""A ledger read back: its files, its lines, their members by type, and whether it is whole.

A ledger may come from anyone, so nothing in it is believed. ``line_of`` refuses a line with a
member of another type than the format gives it, or without a member that its kind has. ``Chain``
checks hashes, numbers, files and head, and names each fault once. It goes on after a fault: of a
line that was altered, or that stands out of its order, the finding about it is all that is said.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from msgspec import Struct, ValidationError, convert

from scrapy_walsh.exceptions import StateError
from scrapy_walsh.ledger import files
from scrapy_walsh.ledger.files import (
    CONTRACT,
    DOCUMENTS,
    FILE,
    GENESIS,
    HEAD,
    digest_of,
    parse_line,
    rotated_files,
)
from scrapy_walsh.policy import event as events
from scrapy_walsh.policy import hosts
from scrapy_walsh.policy.backoff import is_failure
from scrapy_walsh.policy.event import ASKED
from scrapy_walsh.policy.times import iso

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

_Typed = TypeVar("_Typed", bound=Struct)

LEDGER: Final = "ledger"
STARTED: Final = "started"
ENDED: Final = "ended"
DECLARED: Final = "declared"
GAP: Final = "gap"

#: Octets of a line beyond which it is no line.
_LONGEST_LINE: Final = 4 * 1024**2
#: Octets that are searched for a word at once.
_BLOCK: Final = 1024**2


# -- files and lines ----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Files:
    """``parts``: oldest first. ``later``: full files after them were not given.

    ``begin``: octets of the first part that are left out, with all earlier parts.
    """

    parts: tuple[Path, ...]
    documents: Path
    head: Path | None
    later: bool = False
    begin: int = 0


def files_of(path: Path) -> Files:
    """The files that belong to the ledger *path*, or that lie in the directory; StateError."""
    path = path / FILE if path.is_dir() else path
    if not path.is_file():
        raise StateError(f"{path}: no ledger there; give ledger.jsonl or its directory")
    beside = path.parent
    if path.name == FILE:
        return Files((*rotated_files(beside), path), beside / DOCUMENTS, beside / HEAD)
    return Files((path,), beside / DOCUMENTS, None, later=path in rotated_files(beside))


def lines_in(parts: Iterable[Path], begin: int = 0) -> Iterator[tuple[str, bytes]]:
    """Each line of *parts*, with its line end, and the name of its file. OSError.

    *begin*: octets of the first part that are left out.
    """
    for path in parts:
        with path.open("rb") as file:
            file.seek(begin)
            begin = 0
            while raw := file.readline(_LONGEST_LINE):
                yield path.name, raw


def lines_with(parts: Iterable[Path], *needles: bytes) -> Iterator[tuple[Path, int, bytes]]:
    """The lines of *parts* with one of *needles*: file, octets before it there, and the line.

    It costs far less than :func:`lines_in`, because most lines are not looked at. OSError.
    """
    for path in parts:
        with path.open("rb") as file:
            before = 0
            while block := file.read(_BLOCK):
                block += b"" if block.endswith(b"\n") else file.readline(_LONGEST_LINE)
                for place in sorted(place for each in needles for place in _places(block, each)):
                    start = block.rfind(b"\n", 0, place) + 1
                    end = block.find(b"\n", place) + 1 or len(block)
                    yield path, before + start, block[start:end]
                before += len(block)


def _places(block: bytes, needle: bytes) -> Iterator[int]:
    place = block.find(needle)
    while place >= 0:
        yield place
        place = block.find(needle, place + 1)


def lifted_holds(path: Path) -> Iterator[dict[str, str]]:
    """Host, reason and time (ISO 8601) of each hold that a person has lifted (D40).

    *path*: the directory of a ledger; none if it has no ledger. OSError.
    """
    if not (path / FILE).is_file():
        return
    for _, _, raw in lines_with(files_of(path).parts, b'"kind":"%s"' % events.LIFTED.encode()):
        with suppress(ValueError, RecursionError):
            line = line_of(parse_line(raw.removesuffix(b"\n")))
            yield {
                "host": line.host,
                "reason": line.reason,
                "at": iso(line.at),
            }


# -- the lines of some hosts --------------------------------------------------------------

#: Members that lead from one host to another, or that name the host that a decision rests on.
_LEADS: Final = (b'"via":"', b'"robots_of":"', b'"hop":"', b'"robots_host":"')
_NAMES: Final = re.compile(rb'"(?:url|via|robots_of|hop|robots_host)":("(?:[^"\\]|\\.)*")')
#: The scheme and authority of a line's URL, if they are written without escapes.
_AUTHORITY: Final = re.compile(rb'"url":"([a-zA-Z][a-zA-Z0-9+.-]*://[^/?#"\\]+)(?=[/?#"])')


class OfHosts:
    """Which lines the judgement of some hosts rests on: theirs, and those of their redirects.

    *names*: keys of the hosts, ``hosts.host_key``. Lines without a URL, and lines that cannot be
    read, are always among them.
    """

    def __init__(self, parts: Iterable[Path], names: Iterable[str]) -> None:
        leads: dict[str, set[str]] = defaultdict(set)
        for _, _, raw in lines_with(parts, *_LEADS):
            linked = set(map(_host_in, _NAMES.findall(raw)))
            for name in linked:
                leads[name] |= linked
        self._names = set[str]()
        new = set(names)
        while new:
            self._names |= new
            new = {name for host in new for name in leads.get(host, ())} - self._names
        self._has = lru_cache(4096)(lambda url: hosts.host_or_url(url) in self._names)

    def __call__(self, raw: bytes) -> bool:
        """Whether the line *raw* is among them."""
        if b'"url":"' not in raw:
            return True
        match = _AUTHORITY.search(raw)
        if match is not None:
            return self._has(match[1].decode(errors="replace"))
        with suppress(ValueError, RecursionError):
            return self._has(str(json.loads(raw)["url"]))
        return True


def _host_in(quoted: bytes) -> str:
    """The key of the host that a JSON string names, itself or by a URL."""
    text = str(json.loads(quoted))
    return hosts.host_or_url(text if "://" in text else f"https://{text}")


# -- members ------------------------------------------------------------------------------


class Moment(NamedTuple):
    """When something was decided, and when its line was written: Unix seconds.

    An exchange is written down at its end; a document that came meanwhile did not decide it. By
    the wall clock, which may be put back: what lies after the line was there before.
    """

    began: float
    at: float

    def saw(self, since: float) -> bool:
        """Whether what is in force since *since* was in force when it was decided."""
        return not self.began < since <= self.at


class Malformed(ValueError):
    """A line that does not have the members of its kind; the text names the member."""


class Line(files.Line, frozen=True, kw_only=True):
    """One line, with what follows from its members."""

    @property
    def moment(self) -> Moment:
        """When it was decided: an exchange, when it began, by the wall clock."""
        return Moment(self.at - max(0.0, self.ended - self.started), self.at)

    @property
    def origin(self) -> str:
        """The origin of the robots.txt for its URL; the URL if it has no readable host."""
        return hosts.origin_or_url(self.url)

    @property
    def failed(self) -> bool:
        """Whether R5 decides on a retry of it; else a ``wait`` is of its Retry-After alone."""
        return self.wait is not None and is_failure(self.status)

    @property
    def is_robots(self) -> bool:
        """Whether its URL is that of the robots.txt of an origin."""
        return self.url == f"{self.origin}/robots.txt"


def typed(members: Mapping[str, Any], kind: type[_Typed]) -> _Typed:
    """The value of those *members* that *kind* has; Malformed if one is of another type."""
    try:
        return convert(members, kind)
    except (
        ValidationError,
        UnicodeEncodeError,
    ) as error:  # the latter: of a lone surrogate
        raise Malformed(f"has a member of another type: {error}") from None


_ABOUT: Final = ("run", "url", "requirement")
_ANSWER: Final = ("run", "url", "host", "status")
_REQUIRED: Final[Mapping[str, tuple[str, ...]]] = {
    LEDGER: (),
    GAP: ("reason",),
    events.LIFTED: ("host", "reason"),
    STARTED: ("run", "process"),
    ENDED: ("run",),
    DECLARED: ("run", "url"),
    **dict.fromkeys((events.ADOPTED, events.TAKEN_UP, events.REJECTED), _ABOUT),
    ASKED: (
        "run", "url", "host", "purpose", "started", "ended", "answered", "interval", "exempt",
        "attempt", "gives_up",
    ),
    **dict.fromkeys((events.FETCHED, events.NOT_MODIFIED, events.ANSWERED), _ANSWER),
    events.TOO_MANY_REDIRECTS: (*_ANSWER, "requirement"),
    events.REFUSED: (*_ABOUT, "host", "verdict"),
    events.DEFERRED: (*_ABOUT, "host", "verdict", "due"),
    **dict.fromkeys((events.HELD, events.RETRIED, events.GIVEN_UP), ("run", "url", "host", "wait")),
}  # fmt: skip


def line_of(members: Mapping[str, Any]) -> Line:
    """The typed line; Malformed if a member is missing, or of another type."""
    kind = members["kind"]
    if kind not in _REQUIRED:
        raise Malformed(f"is of no kind that is known: {kind[:40]!r}")
    absent = [name for name in ("at", *_REQUIRED[kind]) if members.get(name) is None]
    if absent:
        raise Malformed(f"has no {absent[0]}, which a line {kind!r} has")
    # an empty member is left out
    return typed(
        {name: value for name, value in members.items() if value is not None},
        Line,
    )


# -- the chain ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Head:
    """The number and hash of a line that was the last one, and the source of that knowledge."""

    number: int
    hash: str
    said_by: str


#: The end of a line as ``ledger.files.chained`` writes it, and its octets.
_CHAINED: Final = re.compile(rb',"prev":"([0-9a-f]{64})","hash":"([0-9a-f]{64})"\}\n\Z')
_TAIL: Final = len(b',"prev":"","hash":""}\n') + 2 * 64


class Chain:
    """Takes the raw lines of a ledger in the order of its files.

    ``find``: called with the number of a line and what is wrong there; ``note``: with what a reader
    should know and is not a fault. ``has_gap``: lines are missing, or could not be read, since the
    caller last set it to False. ``partial``: the ledger begins after its first line. *name*: of
    the first file, if its first lines are left out. ``count``: lines taken. ``first``, ``number``:
    of the first and the last whole line; 0 before there is one.
    """

    def __init__(
        self,
        find: Callable[[int, str], None],
        note: Callable[[str], None],
        heads: Sequence[Head] = (),
        name: str = "",
    ) -> None:
        self.has_gap = False
        self.partial = False
        self.count = self.first = self.number = 0
        self._tell = find
        self._note = note
        self._heads = {head.number: head for head in heads}
        self._hash: str | None = GENESIS
        self._bad = 0
        self._seen = self._begins = self._torn = False
        self._name = name

    @property
    def head(self) -> tuple[int, str] | None:
        """The number and the hash of the last whole line; None if there is none."""
        if self._seen and self._hash:
            return (self.number, self._hash)
        return None

    def take(self, name: str, raw: bytes) -> dict[str, Any] | None:
        """The members of the line *raw* of the file *name*; None if it must not be judged.

        *raw*: with its line end. *name*: empty if the lines come from no file.
        """
        if name != self._name:
            self._begin(name)
        if not raw.endswith(b"\n"):
            self._torn = True
            return None
        self.count += 1
        try:
            members = parse_line(raw[:-1])
        except (ValueError, RecursionError) as error:
            self._lost(f"is no line of a ledger: {error}"[:200])
            return None
        if digest_of(raw[:-1]) != members["hash"]:
            self._lost("was altered: its hash is of other octets")
            return None
        if self._follows(members):
            return members
        return None

    def skip(self, name: str, raw: bytes) -> bool:
        """Take the line *raw*, which is not judged: only its hash, number and place in the chain.

        Returns False if it is not as our ledger writes a line, or if it does not follow. Then
        :meth:`take` has to find out why.
        """
        tail = _CHAINED.search(raw, len(raw) - _TAIL)
        if tail is None or name != self._name or self._begins or self._bad or not self._seen:
            return False
        number = self.number + 1
        if not raw.startswith(b'{"n":%d,' % number) or tail[1].decode() != self._hash:
            return False
        digest = digest_of(raw[:-1])
        if digest != tail[2].decode():
            return False
        self.count += 1
        self.number = number
        self._hash = digest
        self._check_head(number, digest)
        return True

    def _begin(self, name: str) -> None:
        if self._torn:
            self._torn = False
            self._lost(f"is cut off at the end of {self._name}")
        self._begins = True
        self._name = name

    def _lost(self, fault: str) -> None:
        self._bad += 1
        self._begins = False
        self._find(self.number + self._bad, fault)

    def _find(self, line: int, text: str) -> None:
        self.has_gap = True
        self._tell(line, text)

    def _follows(self, members: dict[str, Any]) -> bool:
        number: int = members["n"]
        if self._seen and number <= self.number:
            self._find(
                number,
                f"stands after line {self.number}: moved, or there twice",
            )
            return False
        self._check_place(number, members["prev"])
        if self._name and (self._begins or members["kind"] == LEDGER):
            self._check_header(members)
        self.first = self.first or number
        self.number = number
        self._hash = members["hash"]
        self._bad = 0
        self._seen = True
        self._check_head(number, members["hash"])
        return True

    def _check_place(self, number: int, previous: str) -> None:
        expected = self.number + self._bad + 1
        if not self._seen and not self._bad and number > 1:
            self.partial = True
        elif number > expected:
            self._find(number, f"before it, {_lines(expected, number - 1)} missing")
        elif not self._bad and previous != self._hash:
            self._find(number, f"is not chained to line {self.number}")

    def _check_header(self, members: dict[str, Any]) -> None:
        begins = self._begins
        self._begins = False
        number = members["n"]
        if members["kind"] != LEDGER:
            self._find(number, f"{self._name} does not begin with its line 'ledger'")
        elif not begins:
            self._find(number, "a line 'ledger' that does not begin a file")
        elif members.get("contract") != CONTRACT:
            self._find(number, f"is not of the contract {CONTRACT}")

    def _check_head(self, number: int, digest: str) -> None:
        head = self._heads.pop(number, None)
        if head is not None and head.hash != digest:
            self._find(number, f"its hash is not the one that {head.said_by} has")

    def end(self, *, headed: bool, running: bool, later: bool) -> None:
        """Look at the end. *headed*: a head is known. *running*: a run has no end. *later*: this
        file is a full file, and its successors were not given.
        """
        cut = [head for head in self._heads.values() if head.number > self.number + self._bad]
        for head in cut:
            which = _lines(self.number + self._bad + 1, head.number)
            self._find(
                head.number,
                f"{which} missing at the end: {head.said_by} knows of them",
            )
        for head in self._heads.values():
            if not self._bad and head.number < self.number:
                self._note(f"the head of {head.said_by} is of a line that is not here")
        if self._torn and headed and not cut:
            self._note("the last line is not whole: being written, or cut off by a kill")
        elif self._torn and not cut:
            self._find(self.number + self._bad + 1, "is not whole")
        if running and (headed or later):
            self._note("a run has no end: it goes on, or was killed")
        elif running:
            text = "a run has no end, and no head says which line is the last: some may be missing"
            self._find(self.number, text)
        elif not (headed or later):
            self._note("no head: lines cut off at the end would not show")


def _lines(first: int, last: int) -> str:
    if first == last:
        return f"line {first} is"
    return f"lines {first} to {last} are"
