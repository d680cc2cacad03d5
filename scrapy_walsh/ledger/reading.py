"""A ledger read back: its files, their lines, and the members of a line by type.

A ledger may come from anybody: nothing in it is believed. ``line_of`` refuses a line with a member
of another type than the format gives it; ``readable`` takes such a member as not there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from scrapy_walsh.exceptions import StateError
from scrapy_walsh.ledger.documents import DOCUMENTS
from scrapy_walsh.ledger.files import rotated
from scrapy_walsh.ledger.lines import ASKED, FILE, HEAD
from scrapy_walsh.policy import event as events

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from pathlib import Path

LEDGER: Final = "ledger"
STARTED: Final = "started"
ENDED: Final = "ended"
DECLARED: Final = "declared"
GAP: Final = "gap"

#: Octets of a line beyond which it is no line.
_LONGEST_LINE: Final = 4 * 1024**2
#: Unix seconds, about the year 5138; a Crawl-delay may be far longer, and is finite.
_LATEST: Final = 1e11
_LONGEST: Final = 1.7e308
#: Of a count or a status; a line's own number may be larger.
_LARGEST: Final = 10**9
#: A number beyond this is one that no reader can draw, or needs to: ``readable`` leaves it out.
_READABLE: Final = 10**15


# -- files and lines ----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Files:
    """``parts``: oldest first. ``later``: full files after them were not given."""

    parts: tuple[Path, ...]
    documents: Path
    head: Path | None
    later: bool = False


def files_of(path: Path) -> Files:
    """The files that belong to the ledger *path*, or that lie in the directory; StateError."""
    path = path / FILE if path.is_dir() else path
    if not path.is_file():
        raise StateError(f"{path}: no ledger there; give ledger.jsonl or its directory")
    beside = path.parent
    if path.name == FILE:
        return Files((*rotated(beside), path), beside / DOCUMENTS, beside / HEAD)
    return Files((path,), beside / DOCUMENTS, None, later=path in rotated(beside))


def lines_in(parts: Iterable[Path]) -> Iterator[tuple[str, bytes]]:
    """Each line of *parts*, with its line end, and the name of its file. OSError."""
    for path in parts:
        with path.open("rb") as file:
            while raw := file.readline(_LONGEST_LINE):
                yield path.name, raw


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
    """A line whose members are not what its kind has: one line that says which."""


@dataclass(frozen=True, slots=True)
class Line:
    """One line. A member that it does not have is None, empty or 0; ``n`` and ``at`` are there."""

    n: int
    at: float
    kind: str
    run: str = ""
    url: str = ""
    via: str = ""
    host: str = ""
    requirement: str = ""
    verdict: str = ""
    reason: str = ""
    document: str | None = None
    digest: str | None = None
    schema: str | None = None
    rule: str | None = None
    group: tuple[str, ...] = ()
    line: int | None = None
    status: int | None = None
    wait: float | None = None
    due: float | None = None
    purpose: str = ""
    started: float = 0.0
    ended: float = 0.0
    answered: bool = False
    interval: float = 0.0
    exempt: bool = False
    attempt: int = 0
    hops: int = 0
    body: str | None = None
    retry_after: tuple[str, ...] = ()
    gives_up: bool = False
    sent: str | None = None
    form: str = ""
    again: bool = False
    visit: bool = False
    once: bool = False
    method: str = "GET"
    proxy: str | None = None
    process: str = ""
    lost: int | None = None

    @property
    def moment(self) -> Moment:
        """When it was decided: an exchange, when it began, by the wall clock."""
        return Moment(self.at - max(0.0, self.ended - self.started), self.at)


def _texts(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(each, str) for each in value)


def seconds(value: object) -> bool:
    """Whether *value* is a duration, or a due time, that can be reckoned with."""
    return type(value) in (int, float) and 0 <= cast(float, value) <= _LONGEST


def _time(value: object) -> bool:
    return seconds(value) and cast(float, value) <= _LATEST


def _whole(value: object) -> bool:
    return type(value) is int and abs(value) <= _LARGEST


def _text(value: object) -> bool:
    return isinstance(value, str)


def _flag(value: object) -> bool:
    return isinstance(value, bool)


_CHECKS: Final[Mapping[Callable[[object], bool], tuple[str, ...]]] = {
    _text: (
        "kind", "run", "url", "via", "host", "requirement", "verdict", "reason", "document",
        "digest", "schema", "rule", "purpose", "process", "sent", "form", "body", "method", "proxy",
    ),
    _time: ("at", "started", "ended"),
    seconds: ("wait", "due", "interval"),
    _whole: ("n", "line", "status", "attempt", "hops", "lost"),
    _flag: ("answered", "exempt", "gives_up", "again", "visit", "once"),
    _texts: ("group", "retry_after"),
}  # fmt: skip
_LISTS: Final = _CHECKS[_texts]
_CHECK_OF: Final = {name: check for check, names in _CHECKS.items() for name in names}

_ABOUT: Final = ("run", "url", "requirement")
_ANSWER: Final = ("run", "url", "host", "status")
_REQUIRED: Final[Mapping[str, tuple[str, ...]]] = {
    LEDGER: (),
    GAP: ("reason",),
    STARTED: ("run", "process"),
    ENDED: ("run",),
    DECLARED: ("run", "url"),
    events.ADOPTED: _ABOUT,
    events.TAKEN_UP: _ABOUT,
    events.REJECTED: _ABOUT,
    ASKED: (
        "run", "url", "host", "purpose", "started", "ended", "answered", "interval", "exempt",
        "attempt", "gives_up",
    ),
    events.FETCHED: _ANSWER,
    events.NOT_MODIFIED: _ANSWER,
    events.TOO_MANY_REDIRECTS: (*_ANSWER, "requirement"),
    events.REFUSED: (*_ABOUT, "host", "verdict"),
    events.DEFERRED: (*_ABOUT, "host", "verdict", "due"),
    events.HELD: ("run", "url", "host", "wait"),
    events.RETRIED: ("run", "url", "host", "wait"),
    events.GIVEN_UP: ("run", "url", "host", "wait"),
}  # fmt: skip


def line_of(members: Mapping[str, Any]) -> Line:
    """The typed line; Malformed where a member is missing, or of another type."""
    kind = members["kind"]
    if kind not in _REQUIRED:
        raise Malformed(f"is of no kind that is known: {kind[:40]!r}")
    missing = [name for name in ("at", *_REQUIRED[kind]) if name not in members]
    if missing:
        raise Malformed(f"has no {missing[0]}, which a line {kind!r} has")
    known = {name: value for name, value in members.items() if name in _CHECK_OF}
    for name, value in known.items():
        if not _CHECK_OF[name](value):
            raise Malformed(f"its {name} is {str(value)[:40]!r}, which is of another type")
    return _typed(known)


def _drawable(value: object) -> bool:
    return seconds(value) and cast(float, value) < _READABLE


#: Of durations ``readable`` takes those alone that can be drawn.
_READABLE_OF: Final = {
    name: _drawable if check is seconds else check for name, check in _CHECK_OF.items()
}


def readable(members: Mapping[str, Any]) -> Line:
    """The line as far as it can be read, of whatever kind: ``at`` is 0 where it has no time."""
    known: dict[str, Any] = {"at": 0.0}
    for name, value in members.items():
        check = _READABLE_OF.get(name)
        if check is not None and check(value):
            known[name] = value
    known["n"] = members["n"]
    return _typed(known)


def _typed(known: Mapping[str, Any]) -> Line:
    lists = {name: tuple(known[name]) for name in _LISTS if name in known}
    return Line(**{**known, **lists})
