"""What ``walsh doctor`` says of the state directory, the ledger, and the stored blocklist.

It looks at a copy of the directory's files as the start of a crawl would; it leaves nothing behind.
"""

from __future__ import annotations

import shutil
import sqlite3
import stat
import tempfile
import time
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from scrapy_walsh.adapters.documents.validate import reread
from scrapy_walsh.config import LEDGER_OFF
from scrapy_walsh.exceptions import StateError, WalshError, one_line
from scrapy_walsh.files import open_to_others, why_unusable
from scrapy_walsh.ledger.recovery import rollback
from scrapy_walsh.policy.freshness import is_fresh
from scrapy_walsh.policy.times import duration
from scrapy_walsh.proof.findings import Finding, Outcome
from scrapy_walsh.state import files, machine, open_store
from scrapy_walsh.state.database import DATABASE, read_only
from scrapy_walsh.state.records import BLOCKLIST, StoredDocument

if TYPE_CHECKING:
    from collections.abc import Iterator

    from scrapy_walsh.config import WalshConfig


def of_state(config: WalshConfig) -> Iterator[Finding]:
    """Whether the state can be used, and what the start of a crawl would say of it."""
    if (directory := config.state_dir) is None:
        yield _state(
            Outcome.WARNING,
            "WALSH_STATE_DIR is memory: each run forgets opt-outs, robots.txt and holds; "
            "name a directory, or remove it",
        )
        return
    try:
        yield from _of_start(config, directory)
    except (StateError, OSError, sqlite3.Error) as error:
        yield _state(Outcome.BROKEN, one_line(error))


def _state(outcome: Outcome, text: str) -> Finding:
    return Finding(outcome, "R11", "state", text)


def _list(outcome: Outcome, text: str) -> Finding:
    return Finding(outcome, "R3", "blocklist", text)


def _of_start(config: WalshConfig, directory: Path) -> Iterator[Finding]:
    """The findings of a crawl's start about its state, by its own code, in a copy of *directory*.

    Raises StateError, OSError and sqlite3.Error.
    """
    if (reason := why_unusable(directory)) is not None:
        raise StateError(f"{directory} cannot be written ({reason}): set another WALSH_STATE_DIR")
    exists = directory.is_dir()
    if exists and open_to_others(directory.stat(), stat.S_IWOTH):
        text = f"{directory} can be written by everyone, who could lift opt-outs: chmod o-w"
        yield _state(Outcome.WARNING, text)
    if strangers := files.not_files(directory) if exists else []:
        raise StateError(f"{directory}: {strangers[0]} is not a file: move it out of the way")
    machine.claim(directory, may_write=False)
    url = config.blocklist_url
    notices = list[str]()
    with tempfile.TemporaryDirectory() as name:
        copy_to(directory, copy := Path(name))
        machine.steady_clock(copy, notices, may_write=False)
        with closing(open_store(copy)) as store:
            stored = store.get(StoredDocument, BLOCKLIST, url)
            news = [notice.replace(str(copy), str(directory)) for notice in store.news]
            bound = store.binding_lists(url, config.identity.token.lower(), time.time())
            losses = [notice.replace(str(copy), str(directory)) for notice in store.notices]
    if config.ledger != LEDGER_OFF and (line := rollback(directory)) is not None:
        losses.append(line)
    if losses:
        text = "unless you restore a copy, the next crawl will log: "
        yield from (_state(Outcome.BROKEN, f"{text}{notice}") for notice in losses)
    else:
        text = "is in order" if exists else "can be made by the first crawl"
        yield _state(Outcome.HELD, f"{directory} {text}")
    yield from (_state(Outcome.NOTE, f"the next crawl will log: {notice}") for notice in news)
    if config.ledger != LEDGER_OFF:
        text = f"the ledger keeps {config.ledger_kept >> 20} MiB (WALSH_LEDGER_KEPT)"
        yield _state(Outcome.HELD, f"{text}; the oldest lines are deleted")
    yield from (_state(Outcome.WARNING, notice) for notice in notices)
    yield of_blocklist(stored, time.time(), url)
    for document in bound:
        if document.key == url:
            continue
        if document.body:
            text = f"{document.key} was adopted, too, and stays in force until {url} is adopted"
            yield _list(Outcome.NOTE, text)
        else:
            yield of_blocklist(document, time.time(), document.key)


def copy_to(directory: Path, copy: Path) -> None:
    """Copy what is stored in *directory*, damaged or not, into *copy*; nothing is written there.

    For a look at what a crawl would find and do. Raises OSError.
    """
    names = files.list_files(directory) if directory.is_dir() else []
    for name in (*names, machine.CLOCK, machine.LOST):
        with suppress(FileNotFoundError):
            shutil.copy2(directory / name, copy)
    if not (directory / DATABASE).exists():
        return
    try:
        with (
            closing(read_only(directory / DATABASE)) as source,
            closing(sqlite3.connect(copy / DATABASE)) as target,
        ):
            source.backup(target)
    except sqlite3.DatabaseError:  # as it is: the next step opens the copy, and names the fault
        shutil.copy2(directory / DATABASE, copy)


def of_blocklist(document: StoredDocument | None, now: float, url: str) -> Finding:
    """Whether the list of *url* that is *document* can be read, and how old it is."""
    if document is None:
        text = f"no list of {url} was ever adopted: upload blocklist.json there before the first "
        text += "crawl, which requests it first"
        return _list(Outcome.WARNING, text)
    try:
        refresh = reread(document).refresh
    except WalshError as error:
        text = (
            f"one of {url} was adopted and cannot be read any more ({error}): every target is "
            f"deferred until it is fetched again; restore {files.COPY} from a backup, or see "
            "--online"
        )
        return _list(Outcome.BROKEN, text)
    age = now - document.fetched_at
    fetched = "is from the future" if age < 0 else f"was fetched {duration(round(age))} ago"
    if is_fresh(document.fetched_at, now, refresh):
        remaining = duration(round(refresh - age))
        return _list(Outcome.HELD, f"{url} {fetched}; it is refreshed in {remaining}")
    every = f"due after {duration(refresh)}"
    return _list(
        Outcome.NOTE,
        f"{url} {fetched}, {every}: the next run requests it before any target",
    )
