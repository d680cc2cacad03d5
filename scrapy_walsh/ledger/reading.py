"""A ledger read back: its files, their lines, and the members of a line by type.

A ledger may come from anybody: nothing in it is believed. ``line_of`` refuses a line with a member
of another type than the format gives it, or without a member that its kind has.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from msgspec import ValidationError, convert
from msgspec.structs import fields

from scrapy_walsh.exceptions import StateError
from scrapy_walsh.ledger.files import DOCUMENTS, FILE, HEAD, rotated
from scrapy_walsh.policy import event as events
from scrapy_walsh.policy.event import ASKED, Count, Exchange, Time

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

LEDGER: Final = "ledger"
STARTED: Final = "started"
ENDED: Final = "ended"
DECLARED: Final = "declared"
GAP: Final = "gap"

#: Octets of a line beyond which it is no line.
_LONGEST_LINE: Final = 4 * 1024**2


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


class Line(Exchange, frozen=True, kw_only=True):
    """One line: an event, an exchange, or what else a ledger has.

    A member that it does not have is None, empty or 0; ``n`` and ``at`` are there.
    """

    n: Count
    at: Time
    kind: str  # type: ignore[assignment]
    url: str = ""
    verdict: str = ""  # type: ignore[assignment]
    run: str = ""
    via: str = ""
    by: str = ""
    children: bool = False
    process: str = ""
    lost: Count | None = None

    @property
    def moment(self) -> Moment:
        """When it was decided: an exchange, when it began, by the wall clock."""
        return Moment(self.at - max(0.0, self.ended - self.started), self.at)


#: What a member has to be.
_TYPES: Final = {field.name: field.type for field in fields(Line)}
#: How msgspec says that it is not; the latter, of text with a lone surrogate in some places.
_UNFIT: Final = (ValidationError, UnicodeEncodeError)


def fits(value: object, kind: Any) -> bool:
    """Whether *value* is there, and of the type *kind*."""
    try:
        convert(value, kind)
    except _UNFIT:
        return False
    return True


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
    known = {name: value for name, value in members.items() if name in _TYPES}
    with suppress(*_UNFIT):
        if None not in known.values():  # what a Line has for a member that is not there
            return convert(known, Line)
    wrong = next(
        name for name in known if known[name] is None or not fits(known[name], _TYPES[name])
    )
    raise Malformed(f"its {wrong} is {str(members[wrong])[:40]!r}, which is of another type")
