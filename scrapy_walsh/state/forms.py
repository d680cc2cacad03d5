"""The form of stored records: which versions can read it, and how it is upgraded (R11, D16).

The *form* is a number for everything that a version of this package stores: the SQLite files of a
state directory and of a JOBDIR (``PRAGMA user_version``), the records of a fleet in Redis
(``fleet.scripts``), and the lines of a run in the ledger (its line ``started``).

If a new column, field or member has a default, it needs no new form: the column is added to a file
that lacks it. Any other change raises ``FORM``, and adds a step to the list of its file. A later
version never removes a column without a new form. So if a file of this form has a column more, a
later version wrote it. If it lacks a column without a default, it is damaged.
"""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING, Final, Protocol

from scrapy_walsh.exceptions import StateError, one_line
from scrapy_walsh.spec import __version__
from scrapy_walsh.state import files
from scrapy_walsh.state.records import DamageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

#: The form that this package writes. It reads each form from 1 on.
FORM: Final = 2
#: By form, the first version of this package that wrote it.
WRITERS: Final[Mapping[int, str]] = {1: "0.2.0", 2: "0.3.0"}

#: The statements that upgrade a file by one form, by the form that they begin with.
Steps = dict[int, tuple[str, ...]]

#: The table with one row: the version of this package that last changed the file's columns. A file
#: of form 1 does not have it.
_WRITER: Final = "writer"
_WORD: Final = re.compile(r"\w+", re.ASCII)


class Stored(Protocol):
    """A table of a file: its SQL, and each column's definition in SQL."""

    @property
    def name(self) -> str: ...
    @property
    def create(self) -> str: ...
    @property
    def definitions(self) -> Mapping[str, str]: ...


def refusal(subject: object, form: int, writer: str | None, price: str, details: str = "") -> str:
    """A line about records of another version that this version cannot read.

    *subject*: the words before the form's number. *writer*: the version that wrote it, or None.
    *price*: of another place. *details*: the unknown part.
    """
    if writer is None or writer == __version__:  # to name that would be no advice
        writer = WRITERS.get(form) if form < FORM and not details else None
    writer_name, advice = "another version of scrapy-walsh", "install that version"
    if writer is not None:
        writer_name = f"scrapy-walsh {one_line(writer, 40)}"
        advice = f"install scrapy-walsh {one_line(writer, 40)}, or a later version"
    own_form = f"this package ({__version__}) writes {FORM}"
    return f"{subject} {form}{details} of {writer_name}, and {own_form}: {advice}; {price}"


def form_of(connection: sqlite3.Connection) -> int:
    """The form of the file that *connection* has open; 0 for a file without one."""
    (form,) = connection.execute("PRAGMA user_version").fetchone()
    return int(form)


def is_current(
    connection: sqlite3.Connection,
    path: Path,
    tables: Sequence[Stored],
    steps: Steps,
    price: str,
) -> bool:
    """Whether the file has this package's form and all columns of *tables*.

    False for an older file, so that the caller calls :func:`upgrade`. *price*: of another place.
    Raises StateError if this version cannot read the file, DamageError if no version can have
    written it, and sqlite3.DatabaseError.
    """
    form = form_of(connection)
    if not 1 <= form <= FORM:
        raise StateError(refusal(_named(path), form, _writer(connection), price))
    unknown = list(_unknown(connection, tables))
    if form < FORM:
        # A statement that removes a column names it and its table.
        texts = [text for number in range(form, FORM) for text in steps.get(number, ())]
        known_words = [set(_WORD.findall(text)) for text in texts]
        removed_columns = [
            column
            for column in unknown
            if not any(words.issuperset(column.split(".")) for words in known_words)
        ]
        if removed_columns:
            raise StateError(_with_columns(connection, path, removed_columns, price))
        return False
    absent = list(_missing(connection, tables))
    for table, column in absent:
        if not columns_of(connection, table.name):
            raise DamageError(f"no such table: {table.name}")
        if unknown or not _may_be_added(table.definitions[column]):
            raise DamageError(f"no such column: {table.name}.{column}")
    if unknown:
        raise StateError(_with_columns(connection, path, unknown, price))
    return not absent


def _may_be_added(definition: str) -> bool:
    """Whether rows that were written without the column have a value for it."""
    return "NOT NULL" not in definition or "DEFAULT" in definition


def upgrade(
    connection: sqlite3.Connection, path: Path, tables: Sequence[Stored], steps: Steps, price: str
) -> str:
    """Copy an older file, and give it this package's form. Returns a line for the log.

    Raises StateError, without a change, if another process has the file open; sqlite3.Error if the
    copy or the change cannot be written.
    """
    form = form_of(connection)
    # From here to the end no other process can open it and read the old form.
    connection.execute("PRAGMA locking_mode=EXCLUSIVE")
    try:
        # SQLite leaves this mode only if no other connection has the file open (fcntl(2)).
        (mode,) = connection.execute("PRAGMA journal_mode=DELETE").fetchone()
    except sqlite3.OperationalError as error:
        if not getattr(error, "sqlite_errorname", "").startswith("SQLITE_BUSY"):
            raise
        mode = "busy"
    if mode != "delete":
        raise StateError(
            f"{path} must be upgraded from form {form} to {FORM}, but another process uses it: "
            "wait until all runs and commands have ended, and start again"
        )
    copy = path.with_name(f"{path.name}.before-{__version__}")
    copy_to(connection, copy)
    connection.execute("BEGIN EXCLUSIVE")
    with connection:
        convert(connection, tables, steps)
        if unknown := list(_unknown(connection, tables)):
            details = f" with {one_line(', '.join(unknown), 80)}"
            raise StateError(refusal(_named(path), form, None, price, details))
    connection.execute("PRAGMA locking_mode=NORMAL")
    form_of(connection)  # the next access gives up the lock
    return f"{path} was upgraded from form {form} to {FORM}; {copy.name} is a copy of the old file"


def convert(connection: sqlite3.Connection, tables: Sequence[Stored], steps: Steps) -> None:
    """Run the steps from the file's form on, and add columns of *tables* that the file lacks."""
    for form in range(form_of(connection), FORM):
        for statement in steps.get(form, ()):
            connection.execute(statement)
    for table in tables:
        if not columns_of(connection, table.name):
            connection.execute(table.create)
    for table, column in list(_missing(connection, tables)):
        definition = table.definitions[column]
        connection.execute(f"ALTER TABLE {table.name} ADD COLUMN {column} {definition}")
    sign(connection)


def sign(connection: sqlite3.Connection) -> None:
    """Record in the file this package's form and version."""
    connection.execute(f"CREATE TABLE IF NOT EXISTS {_WRITER} (version TEXT NOT NULL)")
    connection.execute(f"DELETE FROM {_WRITER}")  # noqa: S608  our own name
    connection.execute(f"INSERT INTO {_WRITER} VALUES (?)", (__version__,))  # noqa: S608
    connection.execute(f"PRAGMA user_version={FORM}")


def copy_to(connection: sqlite3.Connection, copy: Path) -> None:
    """Copy the file to *copy* by SQLite's own backup, all of it or nothing."""
    draft = copy.with_name(f"{copy.name}.new")
    draft.unlink(missing_ok=True)
    files.make_private(draft)
    with closing(sqlite3.connect(draft)) as target:
        connection.backup(target)
    draft.replace(copy)


def _writer(connection: sqlite3.Connection) -> str | None:
    """The version that last changed the file's columns; None if the file does not have it."""
    if not columns_of(connection, _WRITER):
        return None
    row = connection.execute(f"SELECT version FROM {_WRITER}").fetchone()  # noqa: S608
    return None if row is None else str(row[0])


def columns_of(connection: sqlite3.Connection, table: str) -> list[str]:
    """The names of the columns of *table* in the file; none if there is no such table."""
    return [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]


def _unknown(connection: sqlite3.Connection, tables: Sequence[Stored]) -> Iterator[str]:
    """The columns of *tables* in the file that this package does not know."""
    for table in tables:
        for column in columns_of(connection, table.name):
            if column not in table.definitions:
                yield f"{table.name}.{column}"


def _missing(
    connection: sqlite3.Connection, tables: Sequence[Stored]
) -> Iterator[tuple[Stored, str]]:
    """The columns of *tables* that the file lacks."""
    for table in tables:
        columns = columns_of(connection, table.name)
        for column in table.definitions:
            if column not in columns:
                yield table, column


def _named(path: Path) -> str:
    return f"{path} has schema version"


def _with_columns(
    connection: sqlite3.Connection, path: Path, unknown: Sequence[str], price: str
) -> str:
    details = f" with {one_line(', '.join(unknown), 80)}"
    return refusal(_named(path), form_of(connection), _writer(connection), price, details)
