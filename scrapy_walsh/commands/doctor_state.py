"""What ``walsh doctor`` says of the state directory, the cached blocklist, and the clocks.

``place_of``, ``held_in`` and ``clocks_of`` look, and leave nothing behind; the other functions
are pure.
"""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
import time
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from scrapy_walsh.commands.check_answer import blocklist_of
from scrapy_walsh.files import written_to
from scrapy_walsh.findings import Finding, Outcome
from scrapy_walsh.policy import hosts
from scrapy_walsh.policy.freshness import DEFAULT_REFRESH
from scrapy_walsh.policy.times import duration, iso
from scrapy_walsh.policy.words import one_line
from scrapy_walsh.state import clock, connect, files, verify
from scrapy_walsh.state.database import DATABASE, has_records
from scrapy_walsh.state.records import BLOCKLIST, StoredDocument
from scrapy_walsh.state.tables import DOCUMENTS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from scrapy_walsh.config import WalshConfig

#: Octets that should be free: a blocklist may take 64 MiB, twice.
_ROOM: Final = 128 << 20
#: Seconds by which two looks at a clock may differ.
_TOLERANCE: Final = 5.0
#: Seconds by which the wall clock may be off the steady one before it is worth a word.
_DRIFT: Final = 60.0
#: Unix seconds of 2026-05-24, the date of the specification's v1.3: no right clock is before it.
_SPEC_DATE: Final = 1779580800.0
#: SQL for the latest time of each kind of record.
_LATEST: Final = {
    "document": "SELECT max(fetched_at) FROM documents",
    "source": "SELECT max(last_run_at) FROM sources",
    "host": "SELECT max(last_end) FROM hosts",
}


@dataclass(frozen=True, slots=True)
class Place:
    """A state directory. ``error``: why nothing can be written in it, or, where it does not exist,
    in the directory above it; ``free``: octets; ``owner`` and ``user``: user numbers, or None.
    """

    path: Path
    exists: bool
    error: str | None = None
    free: int | None = None
    owner: int | None = None
    user: int | None = None
    open_to_all: bool = False
    problems: tuple[str, ...] = ()
    set_aside: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Held:
    """What the store has. Times are Unix seconds.

    ``blocklist``: of the configured URL; ``others``: URLs of other lists; ``asked``: when the
    list's host last had a request; ``latest``: the latest time of each kind of record.
    """

    blocklist: StoredDocument | None = None
    others: tuple[str, ...] = ()
    asked: float | None = None
    latest: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Clocks:
    """Unix seconds: ``wall`` by the wall clock, ``steady`` by the steady clock (D9)."""

    wall: float
    steady: float


# -- looking ------------------------------------------------------------------------------


def place_of(directory: Path) -> Place:
    """The state directory as it is; one that is not there yet is not made."""
    try:
        exists = directory.is_dir()
        there = written_to(directory)
        status = there.stat()
    except OSError as error:
        return Place(directory, directory.exists(), one_line(error.strerror or error))
    return Place(
        directory,
        exists,
        free=shutil.disk_usage(there).free,
        owner=status.st_uid if exists and hasattr(os, "geteuid") else None,
        user=os.geteuid() if exists and hasattr(os, "geteuid") else None,
        open_to_all=exists and bool(status.st_mode & stat.S_IWOTH),
        problems=tuple(verify.problems(directory, blocklist_of)) if has_records(directory) else (),
        set_aside=tuple(verify.set_aside(directory)) if exists else (),
    )


def held_in(directory: Path, config: WalshConfig) -> Held:
    """What is stored in the files of *directory*, which are undamaged. Raises sqlite3.Error."""
    url = config.blocklist_url
    with closing(connect.read_only(directory / DATABASE)) as connection:

        def ask(question: str, *given: str) -> list[Any]:
            return [row[0] for row in connection.execute(question, given)]

        row = connection.execute(DOCUMENTS.select, (BLOCKLIST, url)).fetchone()
        asked = ask("SELECT last_end FROM hosts WHERE host = ?", hosts.host_key(url))
        others = ask("SELECT key FROM documents WHERE kind = ? AND key <> ?", BLOCKLIST, url)
        latest = {kind: ask(question)[0] or 0.0 for kind, question in _LATEST.items()}
    copies = [files.read_copy(directory, name) for name in files.COPIES]
    return Held(
        files.newer(
            None if row is None else StoredDocument(*row),
            *(copy for copy in copies if copy is not None and copy.key == url),
        ),
        tuple(others),
        asked[0] if asked else None,
        latest,
    )


def clocks_of(directory: Path | None) -> Clocks:
    """The clocks now. The clock file is copied first, since reading it may write it."""
    with tempfile.TemporaryDirectory() as copy:
        if directory is not None and (directory / clock.FILE).is_file():
            with suppress(OSError):
                shutil.copy(directory / clock.FILE, copy)
        return Clocks(time.time(), clock.steady_clock(Path(copy))())


# -- judging ------------------------------------------------------------------------------


def of_memory() -> Finding:
    """The finding for WALSH_STATE_DIR ``memory``."""
    return Finding(
        Outcome.WARNING,
        "R11",
        "state",
        "WALSH_STATE_DIR is memory: each run forgets opt-outs, robots.txt and holds; "
        "name a directory, or remove it",
    )


def of_place(place: Place) -> Iterator[Finding]:
    """Whether the state directory can be used, and what is wrong with its files."""

    def finding(outcome: Outcome, text: str) -> Finding:
        return Finding(outcome, "R11", "state", f"{place.path} {text}")

    if place.error is not None or (place.path.exists() and not place.exists):
        why = place.error or "not a directory"
        yield finding(Outcome.BROKEN, f"cannot be written ({why}): set another WALSH_STATE_DIR")
        return
    if place.owner != place.user:
        yield finding(
            Outcome.WARNING,
            f"belongs to user {place.owner}, and doctor runs as user {place.user}: "
            "run it as the user who runs the crawls, or give the directory to that user",
        )
    if place.open_to_all:
        yield finding(
            Outcome.WARNING, "can be written by everyone, who could lift opt-outs: chmod o-w"
        )
    if place.free is not None and place.free < _ROOM:
        yield finding(Outcome.WARNING, f"has {place.free >> 20} MiB left on its disk: free some")
    for problem in place.problems:
        yield finding(
            Outcome.BROKEN,
            f"is damaged: {problem}: the next crawl sets the file aside and goes on with what can "
            "be read, or bring back a copy",
        )
    if place.set_aside:
        yield finding(
            Outcome.WARNING,
            f"has damaged files of earlier runs: {', '.join(place.set_aside)}: delete them",
        )
    if not place.problems:
        yield finding(
            Outcome.HELD, "is in order" if place.exists else "can be made by the first crawl"
        )


def of_blocklist(held: Held, url: str, now: float, position: str = "allow") -> Finding:
    """How old the cached blocklist is. ``position``: the value of WALSH_BLOCKLIST_UNREACHABLE."""

    def finding(outcome: Outcome, text: str) -> Finding:
        return Finding(outcome, "R3", "blocklist", text)

    document = held.blocklist
    if document is None:
        return finding(Outcome.WARNING, _never_held(held, url, position))
    if not document.body:
        return finding(
            Outcome.BROKEN,
            f"one of {url} was adopted and cannot be read any more: every target is deferred until "
            f"it is fetched again; restore {files.COPY} from a backup, or see --online",
        )
    age, refresh = now - document.fetched_at, document.refresh or DEFAULT_REFRESH
    since = f"was fetched {duration(round(age))} ago" if age >= 0 else "is from the future"
    said = f"{url} {since}"
    if 0 <= age < refresh:
        return finding(Outcome.HELD, f"{said}; it is refreshed in {duration(round(refresh - age))}")
    if held.asked is not None and held.asked > document.fetched_at + refresh + _TOLERANCE:
        return finding(
            Outcome.WARNING,
            f"{said}, was due after {duration(refresh)}, and a request at {iso(held.asked)} "
            "brought no newer one: the old one stays in force; see --online",
        )
    return finding(
        Outcome.NOTE,
        f"{said}, due after {duration(refresh)}: the next run requests it before any target",
    )


def _never_held(held: Held, url: str, position: str) -> str:
    others = f" (cached, but not used: {', '.join(held.others)})" if held.others else ""
    goes_on = "no opt-out is known, R3 blocks nothing"
    if position != "allow":
        goes_on = f"WALSH_BLOCKLIST_UNREACHABLE is {position}: nothing is requested without one"
    if held.asked is not None:
        return (
            f"no list of {url} was ever adopted, though its host had a request at "
            f"{iso(held.asked)}: "
            f"{goes_on}; see --online and the log{others}"
        )
    return f"none of {url} was ever adopted: the first crawl requests it first{others}"


def of_clocks(clocks: Clocks, latest: Mapping[str, float]) -> Iterator[Finding]:
    """Whether the clocks can be right, and no record is from the future (D9)."""
    found = []
    if clocks.wall < _SPEC_DATE:
        found.append(f"it is {iso(clocks.wall)} here, before this package was written: set it")
    if abs(clocks.wall - clocks.steady) > _DRIFT:
        found.append(
            f"it was set by {duration(round(abs(clocks.wall - clocks.steady)))} since the machine "
            "started: pacing goes by the machine's own count; ages of documents may be wrong until "
            "refreshed"
        )
    for kind, at in latest.items():
        now = clocks.steady if kind == "host" else clocks.wall
        if at > now + _TOLERANCE:
            found.append(
                f"a {kind} on record is of {iso(at)}, in the future: set the clock if it is slow; "
                "else such records count as stale"
            )
    for text in found:
        yield Finding(Outcome.WARNING, "R12", "clock", text)
    if not found:
        yield Finding(
            Outcome.HELD, "R12", "clock", f"{iso(clocks.wall)}, and no record is in the future"
        )
