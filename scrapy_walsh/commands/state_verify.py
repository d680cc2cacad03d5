"""R11: looks for damage in the files of a state directory, and repairs nothing."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

from scrapy_walsh.exceptions import StateError, WalshError, one_line
from scrapy_walsh.ledger.recovery import rollback
from scrapy_walsh.state import files, forms
from scrapy_walsh.state.database import (
    DATABASE,
    is_begun,
    is_current,
    read_only,
)
from scrapy_walsh.state.records import (
    BLOCKLIST,
    TABLES,
    DamageError,
    StoredDocument,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


def problems(directory: Path, adopt: Callable[[bytes, str], object]) -> Iterator[str]:
    """A line for each thing that is wrong with the files of *directory*. Nothing is written.

    *adopt* is called with the octets of a blocklist and its URL, and raises WalshError if a crawl
    would not adopt it.
    """
    strangers = files.not_files(directory)
    if strangers:  # reading a FIFO would never end
        yield from (f"{name}: not a file; no crawl starts while it is there" for name in strangers)
        return
    lists: list[StoredDocument] = []
    yield from _of_database(directory / DATABASE, lists)
    if (line := rollback(directory)) is not None:
        yield line
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


def _of_database(path: Path, lists: list[StoredDocument]) -> Iterator[str]:
    """The fault in the database, up to the first row that cannot be read.

    Its blocklists are added to *lists*.
    """
    try:
        with closing(read_only(path)) as connection:
            if is_begun(connection, path):
                is_current(connection, path)
            for (line,) in connection.execute("PRAGMA integrity_check(20)").fetchall():
                if line != "ok":
                    yield f"{DATABASE}: {one_line(line)}"
            for table in TABLES:
                there = forms.columns_of(connection, table.name)  # an older file has fewer
                records = map(table.decode, connection.execute(table.select_from(there)))
                documents = (record for record in records if isinstance(record, StoredDocument))
                lists.extend(document for document in documents if document.kind == BLOCKLIST)
    except (sqlite3.Error, StateError, DamageError) as error:
        yield f"{DATABASE}: {one_line(error)}"


def _of_copies(directory: Path, lists: list[StoredDocument]) -> Iterator[str]:
    """A line for each problem of the blocklists' copies; the newest are added to *lists*."""
    copies: list[StoredDocument] = []
    expected = {name for row in lists for name in files.copies_of(directory, row.key)}
    for name in sorted({*expected, *files.list_files(directory)}):
        try:
            copy = files.read_copy(directory, name)
        except (DamageError, StateError) as error:
            yield f"{name}: {error}"
            continue
        if copy is not None:
            copies.append(copy)
        elif name in expected:
            yield f"{name}: missing, although a blocklist is cached"
    for row in lists:
        if not row.body and row.key not in {copy.key for copy in copies}:
            yield f"the blocklist of {row.key} was adopted, and no file has its text any more"
    for key in {copy.key for copy in copies}:
        lists.extend(
            filter(
                None,
                [files.newer(*(copy for copy in copies if copy.key == key))],
            )
        )
