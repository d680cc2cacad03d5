"""R11: the connection to ``state.sqlite3``, and its repair when the file is damaged.

A damaged file is renamed, never deleted. A new one takes its place, with every row of it that
could be read.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import time
from contextlib import closing, suppress
from typing import TYPE_CHECKING, Final, TypeVar

from scrapy_walsh.exceptions import StateError
from scrapy_walsh.policy.words import plural
from scrapy_walsh.state import clock, files, mark
from scrapy_walsh.state.connect import connect, explain, is_damage, one_line, read_only, salvage
from scrapy_walsh.state.tables import DamageError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

T = TypeVar("T")

DATABASE: Final = "state.sqlite3"
COMPANIONS: Final = ("-wal", "-shm", "-journal")

#: Seconds. A read that comes sooner after the last look does not look whether another process has
#: replaced the file.
_LOOKS: Final = 0.02

_MISUSE: Final = (sqlite3.ProgrammingError, sqlite3.IntegrityError, sqlite3.DataError)


def has_records(directory: Path) -> bool:
    """Whether there is a database, or a copy of the blocklist, in *directory*."""
    return any((directory / name).exists() for name in (DATABASE, *files.COPIES))


def copy_to(directory: Path, copy: Path) -> None:
    """Copy what is stored in *directory*, damaged or not, into *copy*; nothing is written there.

    For a look at what a crawl would find and do. Raises OSError.
    """
    for name in (*files.COPIES, clock.FILE, mark.LOST):
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
    except sqlite3.DatabaseError:  # as it is: whoever opens the copy says what is wrong with it
        shutil.copy2(directory / DATABASE, copy)


class Database:
    """The database of *directory*. Raises StateError where it cannot be used.

    What is found damaged, and what was done, is added to *notices*, a line each.
    """

    def __init__(self, directory: Path, notices: list[str]) -> None:
        self.notices = notices
        self.rows_lost = False
        self._directory = directory
        self._path = directory / DATABASE
        self._name = str(self._path)
        self._inode: int | None = None
        self._looked = -_LOOKS
        self._open()
        if mark.found(directory) and not self.rows_lost:
            self._lose("could not be written by an earlier run")

    def close(self) -> None:
        self._connection.close()

    def end(self) -> None:
        """Close it, and note where the file does not have what this run wrote any more."""
        self.close()
        try:
            if not self._path.exists():
                self._lose("is gone at the end of the run")
            elif self._inode is not None:
                connect(self._path)[0].close()
        except (OSError, sqlite3.Error, DamageError) as error:
            if is_damage(error):
                self._lose(f"is damaged at the end of the run ({one_line(error)})")

    def read(self, operation: Callable[[sqlite3.Connection], T]) -> T:
        """As :meth:`run`, for an operation that writes nothing.

        It may read a file that another process replaced some milliseconds ago.
        """
        looked = self._inode is not None and time.monotonic() - self._looked < _LOOKS
        return self.run(operation, looks=not looked)

    def run(self, operation: Callable[[sqlite3.Connection], T], *, looks: bool = True) -> T:
        """Call *operation* with the connection and return its value.

        Where it meets damage the file is repaired and it is called again. Raises StateError where
        that does not help. ``looks``: look first whether another process has replaced the file.
        """
        damage: Exception | None = None
        for _ in range(3):
            try:
                return operation(self._current() if looks else self._connection)
            except _MISUSE:
                raise
            except (sqlite3.DatabaseError, DamageError) as error:
                if not is_damage(error):
                    raise StateError(explain(self._path, "cannot be used", error)) from error
                # The check at opening may not find this damage. If it is met a second time, the
                # file is replaced all the same.
                self._reopen(damage)
                damage = error
        raise StateError(explain(self._path, "stays damaged", damage)) from damage

    def _current(self) -> sqlite3.Connection:
        """The connection, to a new file where another process has replaced the old one."""
        self._looked = time.monotonic()
        try:
            inode = os.stat(self._name).st_ino  # noqa: PTH116 - asked before every statement
        except OSError:
            inode = -1
        if inode != self._inode:
            if self._inode is not None:
                self._lose("was removed or replaced during the run: opened again")
            self._reopen()
        return self._connection

    def _reopen(self, damage: Exception | None = None) -> None:
        self.close()
        self._inode = None
        self._open(damage)

    def _open(self, damage: Exception | None = None) -> None:
        try:
            self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            files.claim(self._directory)
            with files.exclusive(self._directory):
                self._connection = self._connect(damage)
                self._inode = self._path.stat().st_ino
        except StateError:
            raise
        except (OSError, sqlite3.Error, DamageError) as error:
            raise StateError(explain(self._path, "cannot be used", error)) from error

    def _connect(self, damage: Exception | None) -> sqlite3.Connection:
        if self._draft.exists() and not self._path.exists():  # a process ended within _replace
            self._draft.rename(self._path)
        if not self._path.exists() and (left := files.left_behind(self._directory)) is not None:
            self._lose(f"is gone, and {left} beside it is not")
        if damage is None:
            try:
                return self._opened()
            except (sqlite3.DatabaseError, DamageError) as error:
                if not is_damage(error):
                    raise
                damage = error
        self._replace(damage)
        return self._opened()

    def _opened(self) -> sqlite3.Connection:
        connection, writable = connect(self._path)
        if not writable:
            # An earlier run may not have been able to write either.
            self._lose("cannot be written: it is read, and what this run learns is forgotten")
        return connection

    def _lose(self, what: str) -> None:
        """Note that records are lost, or will be: hosts without one may have been requested."""
        self.rows_lost = True
        self.notices.append(f"{self._path} {what}; holds and last requests may be lost")

    def _replace(self, damage: Exception) -> None:
        """Copy the rows that can be read to a new file, and rename the damaged one."""
        for suffix in ("", *COMPANIONS):
            self._draft.with_name(self._draft.name + suffix).unlink(missing_ok=True)
        target, writable = connect(self._draft)
        with closing(target):
            if not writable:
                raise StateError(explain(self._path, "is damaged, and no new one fits", damage))
            kept = salvage(self._path, target)
        aside = files.set_aside(self._path, COMPANIONS)
        self._draft.rename(self._path)
        self._lose(
            f"was damaged ({one_line(damage)}): set aside as {aside.name}, "
            f"a new one begun with the {plural(kept, 'row')} that could be read"
        )

    @property
    def _draft(self) -> Path:
        return self._path.with_name(f"{DATABASE}.new")
