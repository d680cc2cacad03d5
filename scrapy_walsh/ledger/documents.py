"""The documents that a ledger's decisions rest on, by digest: robots.txt, blocklist, schema.

One SQLite file beside the ledger. Each body is kept once, compressed, with the number of the
last ledger file that names it, and goes when that file goes. No other body comes here (D10).
"""

from __future__ import annotations

import hashlib
import sqlite3
import zlib
from contextlib import closing, suppress
from typing import TYPE_CHECKING, Final

from scrapy_walsh.exceptions import StateError
from scrapy_walsh.state.database import Connection, is_damage
from scrapy_walsh.state.files import make_private, set_aside

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

DOCUMENTS: Final = "ledger-documents.sqlite"
_TABLE: Final = """
CREATE TABLE IF NOT EXISTS documents (
    digest TEXT PRIMARY KEY,
    kind TEXT NOT NULL,
    file INTEGER NOT NULL,
    body BLOB NOT NULL
) WITHOUT ROWID
"""


class Documents:
    """The documents of one ledger; StateError where the file cannot be used."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._known: dict[str, int] = {}
        #: Digests under which ``get`` has found another body than theirs.
        self.altered: set[str] = set()
        #: Why ``get`` could not read the file, if it could not.
        self.fault: str | None = None
        #: Lines for the log on what was found damaged.
        self.notices: list[str] = []

    def put(self, kind: str, body: bytes, digest: str, file: int) -> None:
        """Keep *body*, which ledger file number *file* names. A damaged file is set aside."""
        if self._known.get(digest) == file:
            return

        def keep(connection: sqlite3.Connection) -> None:
            found = connection.execute(
                "UPDATE documents SET file = ? WHERE digest = ?", (file, digest)
            )
            if not found.rowcount:
                connection.execute(
                    "INSERT OR IGNORE INTO documents VALUES (?, ?, ?, ?)",
                    (digest, kind, file, zlib.compress(body, 1)),
                )

        self._change(keep, "a document of the ledger cannot be kept: ")
        self._known[digest] = file

    def get(self, digest: str) -> bytes | None:
        """The body with that digest; None where it is not here, or was altered."""
        if not (digest.isascii() and self._path.is_file()):  # a forged one may not be Unicode
            return None
        try:
            with closing(self._open(read_only=True)) as connection:
                row = connection.execute(
                    "SELECT body FROM documents WHERE digest = ?", (digest,)
                ).fetchone()
        except sqlite3.Error as error:
            self.fault = str(error)
            return None
        if row is None:
            return None
        with suppress(zlib.error, TypeError):
            body = zlib.decompress(row[0])
            if hashlib.sha256(body).hexdigest() == digest:
                return body
        self.altered.add(digest)
        return None

    def forget(self, file: int) -> None:
        """Drop what no ledger file after number *file* names."""

        def drop(connection: sqlite3.Connection) -> None:
            connection.execute("DELETE FROM documents WHERE file <= ?", (file,))

        self._change(drop)

    def _change(self, change: Callable[[sqlite3.Connection], None], what: str = "") -> None:
        """Call *change* in a transaction; a damaged file is set aside, and it is called again."""
        try:
            try:
                self._transact(change)
            except sqlite3.DatabaseError as error:
                if not is_damage(error):
                    raise
                aside = set_aside(self._path, ("-journal",))
                self._known.clear()
                self.notices.append(
                    f"{self._path} was damaged ({error}): set aside as {aside.name}; verify will "
                    "miss the documents in it"
                )
                self._transact(change)
        except (sqlite3.Error, OSError) as error:
            raise StateError(f"{self._path}: {what}{error}") from error

    def _transact(self, change: Callable[[sqlite3.Connection], None]) -> None:
        with closing(self._open()) as connection, connection:
            change(connection)

    def _open(self, *, read_only: bool = False) -> sqlite3.Connection:
        if read_only:
            uri = f"{self._path.absolute().as_uri()}?mode=ro"
            return sqlite3.connect(uri, uri=True, factory=Connection)
        make_private(self._path)
        connection = sqlite3.connect(self._path, timeout=5.0, factory=Connection)
        try:
            # A body that a power cut damages is known by its digest, and put again.
            connection.execute("PRAGMA synchronous = OFF")
            connection.execute(_TABLE)
        except sqlite3.Error:
            connection.close()
            raise
        return connection
