"""What ``walsh doctor`` says of the state directory, the cached blocklist, and the clocks.

``place_of`` and ``of_start`` look, and leave nothing behind; the other functions are pure.
"""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
import time
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from scrapy_walsh.adapters.documents.validate import text_of
from scrapy_walsh.commands.check_answer import blocklist_of
from scrapy_walsh.exceptions import WalshError
from scrapy_walsh.files import written_to
from scrapy_walsh.findings import Finding, Outcome
from scrapy_walsh.policy import hosts
from scrapy_walsh.policy.freshness import is_fresh
from scrapy_walsh.policy.list import schema
from scrapy_walsh.policy.times import duration, iso
from scrapy_walsh.policy.words import one_line
from scrapy_walsh.state import clock, files, open_store, verify
from scrapy_walsh.state.database import copy_to, has_records
from scrapy_walsh.state.records import BLOCKLIST, HostRecord, StoredDocument

if TYPE_CHECKING:
    from collections.abc import Iterator

    from scrapy_walsh.config import WalshConfig

#: Octets that should be free: a blocklist may take 64 MiB, twice.
_ROOM: Final = 128 << 20


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


def of_start(config: WalshConfig, directory: Path) -> Iterator[Finding]:
    """What the start of a crawl finds in its state, by its own code, in a copy of *directory*.

    Raises StateError, OSError and sqlite3.Error.
    """
    url, told = config.blocklist_url, list[str]()
    with tempfile.TemporaryDirectory() as name:
        copy_to(directory, copy := Path(name))
        with closing(open_store(copy)) as store:
            held = store.get(StoredDocument, BLOCKLIST, url)
            host = store.get(HostRecord, hosts.host_key(url))
            lost = [each.replace(str(copy), str(directory)) for each in store.notices]
        clock.steady_clock(copy, told)
    for each in lost:
        yield Finding(Outcome.WARNING, "R11", "state", each)
    yield of_blocklist(held, host, time.time(), config)
    for each in told:
        yield Finding(Outcome.WARNING, "R12", "clock", each)


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


def of_blocklist(
    held: StoredDocument | None, host: HostRecord | None, now: float, config: WalshConfig
) -> Finding:
    """Whether the list that is *held* can be read, and how old it is; *host*: of its server."""
    url, asked = config.blocklist_url, 0.0 if host is None else host.last_end
    if held is None:
        goes_on = "no opt-out is known, R3 blocks nothing"
        if config.blocklist_unreachable != "allow":
            goes_on = f"WALSH_BLOCKLIST_UNREACHABLE is {config.blocklist_unreachable}: nothing is"
            goes_on += " requested without one"
        before = f", though its host had a request at {iso(asked)}: {goes_on}; see --online"
        text = f"no list of {url} was ever adopted"
        text += before if asked else ": the first crawl requests it first"
        return Finding(Outcome.WARNING, "R3", "blocklist", text)
    try:
        refresh = schema.reread_blocklist(text_of(held), url).refresh
    except WalshError as error:
        text = (
            f"one of {url} was adopted and cannot be read any more ({error}): every target is "
            f"deferred until it is fetched again; restore {files.COPY} from a backup, or see "
            "--online"
        )
        return Finding(Outcome.BROKEN, "R3", "blocklist", text)
    age = now - held.fetched_at
    since = f"was fetched {duration(round(age))} ago" if age >= 0 else "is from the future"
    said = f"{url} {since}"
    if is_fresh(held.fetched_at, now, refresh):
        left = duration(round(refresh - age))
        return Finding(Outcome.HELD, "R3", "blocklist", f"{said}; it is refreshed in {left}")
    if asked > held.fetched_at + refresh:
        text = (
            f"{said}, was due after {duration(refresh)}, and a request at {iso(asked)} brought no "
            "newer one: the old one stays in force; see --online"
        )
        return Finding(Outcome.WARNING, "R3", "blocklist", text)
    text = f"{said}, due after {duration(refresh)}: the next run requests it before any target"
    return Finding(Outcome.NOTE, "R3", "blocklist", text)
