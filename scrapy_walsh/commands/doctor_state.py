"""What ``walsh doctor`` says of the state directory, the stored blocklist, and the clocks.

It looks at the directory as it is, and at a copy of its files as the start of a crawl would; it
leaves nothing behind.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import stat
import tempfile
import time
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Final

from scrapy_walsh.adapters.documents.validate import text_of
from scrapy_walsh.commands import state_verify as stored
from scrapy_walsh.commands.common import blocklist_of
from scrapy_walsh.config import LEDGER_OFF
from scrapy_walsh.exceptions import StateError, WalshError
from scrapy_walsh.files import open_to_others, written_to
from scrapy_walsh.policy.freshness import is_fresh
from scrapy_walsh.policy.list import schema
from scrapy_walsh.policy.times import duration
from scrapy_walsh.policy.words import one_line
from scrapy_walsh.proof.findings import Finding, Outcome
from scrapy_walsh.state import files, machine, open_store
from scrapy_walsh.state.database import copy_to, has_records
from scrapy_walsh.state.records import BLOCKLIST, StoredDocument

if TYPE_CHECKING:
    from collections.abc import Iterator

    from scrapy_walsh.config import WalshConfig

#: Octets that should be free: a list of a million entries takes 91 MB, and is kept twice.
_ROOM: Final = 192 << 20
#: Octets of a ledger that a target takes, with its robots.txt.
_TARGET: Final = 2200


def of_state(config: WalshConfig) -> Iterator[Finding]:
    """Whether the state can be used, and what the start of a crawl would say of it."""
    if (directory := config.state_dir) is None:
        yield _state(
            Outcome.WARNING,
            "WALSH_STATE_DIR is memory: each run forgets opt-outs, robots.txt and holds; "
            "name a directory, or remove it",
        )
        return
    found = list(of_place(directory))
    yield from found
    if any(each.outcome is Outcome.BROKEN for each in found):
        yield _list(Outcome.UNSEEN, f"not looked at: correct what is said of {directory} first")
        return
    if config.ledger != LEDGER_OFF:
        text = (
            f"the ledger keeps {config.ledger_kept >> 20} MiB (WALSH_LEDGER_KEPT), about "
            f"{config.ledger_kept // _TARGET:,} targets: of a longer run the first lines go"
        )
        yield _state(Outcome.HELD, text)
    try:
        yield from _of_start(config, directory)
    except (StateError, OSError, sqlite3.Error) as error:
        yield _state(Outcome.BROKEN, f"{directory} cannot be used: {one_line(error)}")


def _state(outcome: Outcome, text: str) -> Finding:
    return Finding(outcome, "R11", "state", text)


def _list(outcome: Outcome, text: str) -> Finding:
    return Finding(outcome, "R3", "blocklist", text)


def of_place(directory: Path) -> Iterator[Finding]:
    """Whether *directory* can be used, and what is wrong with its files; it is not made."""
    try:
        there = written_to(directory)
        status, exists = there.stat(), directory.is_dir()
    except OSError as error:
        why = one_line(error.strerror or error)
        text = f"{directory} cannot be written ({why}): set another WALSH_STATE_DIR"
        yield _state(Outcome.BROKEN, text)
        return
    user = os.geteuid() if hasattr(os, "geteuid") else status.st_uid
    free, aside = shutil.disk_usage(there).free, stored.set_aside(directory)
    whose = f"belongs to user {status.st_uid}, and doctor runs as user {user}: run it as the user "
    whose += "who runs the crawls, or give the directory to that user"
    open_to_all = "can be written by everyone, who could lift opt-outs: chmod o-w"
    warnings = {
        whose: exists and status.st_uid != user,
        open_to_all: exists and open_to_others(status, stat.S_IWOTH),
        f"has {free >> 20} MiB left on its disk: free some": free < _ROOM,
        f"has damaged files of earlier runs: {', '.join(aside)}: delete them": aside,
    }
    for text in (text for text, is_so in warnings.items() if is_so):
        yield _state(Outcome.WARNING, f"{directory} {text}")
    problems = list(stored.problems(directory, blocklist_of)) if has_records(directory) else []
    for problem in problems:
        text = (
            f"{directory} is damaged: {problem}: the next crawl sets the file aside and goes on "
            "with what can be read, or bring back a copy"
        )
        yield _state(Outcome.BROKEN, text)
    if not problems:
        text = "is in order" if exists else "can be made by the first crawl"
        yield _state(Outcome.HELD, f"{directory} {text}")


def _of_start(config: WalshConfig, directory: Path) -> Iterator[Finding]:
    """What the start of a crawl finds in its state, by its own code, in a copy of *directory*.

    Raises StateError, OSError and sqlite3.Error.
    """
    machine.claim(directory, keeps=False)
    url = config.blocklist_url
    with tempfile.TemporaryDirectory() as name:
        copy_to(directory, copy := Path(name))
        with closing(open_store(copy)) as store:
            held = store.get(StoredDocument, BLOCKLIST, url)
            lost = [each.replace(str(copy), str(directory)) for each in store.notices]
    yield from (_state(Outcome.WARNING, each) for each in lost)
    yield of_blocklist(held, time.time(), url)


def of_blocklist(held: StoredDocument | None, now: float, url: str) -> Finding:
    """Whether the list of *url* that is *held* can be read, and how old it is."""
    if held is None:
        text = f"no list of {url} was ever adopted: the first crawl requests it first"
        return _list(Outcome.WARNING, text)
    try:
        refresh = schema.reread_blocklist(text_of(held), url).refresh
    except WalshError as error:
        text = (
            f"one of {url} was adopted and cannot be read any more ({error}): every target is "
            f"deferred until it is fetched again; restore {files.COPY} from a backup, or see "
            "--online"
        )
        return _list(Outcome.BROKEN, text)
    age = now - held.fetched_at
    fetched = "is from the future" if age < 0 else f"was fetched {duration(round(age))} ago"
    if is_fresh(held.fetched_at, now, refresh):
        left = duration(round(refresh - age))
        return _list(Outcome.HELD, f"{url} {fetched}; it is refreshed in {left}")
    every = f"due after {duration(refresh)}"
    return _list(
        Outcome.NOTE, f"{url} {fetched}, {every}: the next run requests it before any target"
    )
