"""R11: looks for damage in the files of a state directory, and repairs nothing."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

from scrapy_walsh.exceptions import WalshError
from scrapy_walsh.policy.words import one_line
from scrapy_walsh.state import files
from scrapy_walsh.state.database import APPLICATION, DATABASE, VERSION, foreign, read_only
from scrapy_walsh.state.records import (
    BLOCKLIST,
    DOCUMENT_KINDS,
    DOCUMENTS,
    TABLES,
    DamageError,
    StoredDocument,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


def problems(directory: Path, adopt: Callable[[bytes, str], object]) -> Iterator[str]:
    """A line for each thing that is wrong with the files of *directory*. Nothing is written.

    *adopt* is called with the octets of a blocklist and its URL, and raises WalshError where a
    crawl would not adopt it.
    """
    others = files.not_files(directory)
    if others:  # reading a FIFO would never end
        yield from (f"{name}: not a file; no crawl starts while it is there" for name in others)
        return
    path = directory / DATABASE
    lists: list[StoredDocument] = []
    if path.exists():
        try:
            with closing(read_only(path)) as connection:
                number, version = (
                    int(connection.execute(f"PRAGMA {name}").fetchone()[0])
                    for name in ("application_id", "user_version")
                )
                if number != APPLICATION:
                    yield foreign(path)
                    return  # what the other files should have is not known either
                if version != VERSION:
                    yield (
                        f"{DATABASE}: its schema version is {version}; this package reads {VERSION}"
                    )
                    return
                yield from _of_database(connection, lists)
        except sqlite3.Error as error:
            yield f"{DATABASE}: {one_line(error)}"
    else:
        yield f"{DATABASE}: missing"
    yield from _of_copies(directory, lists)
    for document in lists:
        try:
            if document.body:
                adopt(document.body, document.key)
        except WalshError as error:
            yield f"the cached blocklist of {document.key} cannot be adopted: {error}"


def set_aside(directory: Path) -> list[str]:
    """The names of the damaged files that earlier runs have renamed."""
    return sorted(path.name for path in directory.glob("*.damaged-*"))


def _of_database(connection: sqlite3.Connection, lists: list[StoredDocument]) -> Iterator[str]:
    """A line for each problem of the database; its blocklists are added to *lists*."""
    for (line,) in connection.execute("PRAGMA integrity_check(20)").fetchall():
        if line != "ok":
            yield f"{DATABASE}: {one_line(line)}"
    for table in TABLES:
        try:
            for row in connection.execute(table.select_all):
                if table is DOCUMENTS and row[0] not in DOCUMENT_KINDS:
                    yield f"{DATABASE}: a document of kind {row[0]!r}, which is never kept"
                    continue
                try:
                    record = table.decode(row)
                except DamageError as error:
                    yield f"{DATABASE}: {error}"
                else:
                    if table is DOCUMENTS and record.kind == BLOCKLIST:
                        lists.append(record)
        except sqlite3.Error as error:
            yield f"{DATABASE}: {table.name}: {one_line(error)}"


def _of_copies(directory: Path, lists: list[StoredDocument]) -> Iterator[str]:
    """A line for each problem of the blocklist's copies; the newest is added to *lists*."""
    copies: dict[str, StoredDocument | None] = {}
    for name in files.COPIES:
        try:
            copies[name] = files.read_copy(directory, name)
        except DamageError as error:
            yield f"{name}: {error}"
    newest = files.newer(*copies.values())
    for row in lists:
        if not row.body and (newest is None or row.key != newest.key):
            yield f"the blocklist of {row.key} was adopted, and no file has its text any more"
    for name, copy in copies.items():
        if copy != newest:
            how = "missing, although a blocklist is cached"
            yield f"{name}: {'not the same as the other copy' if copy else how}"
    if newest is None:
        return
    fetched = [row.fetched_at for row in lists if row.key == newest.key]
    if not fetched:
        yield f"{DATABASE}: the blocklist {newest.key} is in its copies only"
    elif fetched[0] > newest.fetched_at:
        yield f"{files.COPY}: older than the row in {DATABASE}"
    lists.append(newest)
