"""The files of a ledger, its lines, and the documents that its decisions rest on.

A line is a JSON object in ASCII. Its last member is ``hash``: the SHA-256, in hexadecimal, of the
octets before ``,"hash":`` in this line. ``prev`` is the hash of the line before, ``n`` its number
from 1. Both go on over rotated files. After a line is altered, dropped or moved, each later hash
must be written anew. ``ledger.head`` has the last hash.

All processes that share a state directory append lines, in turn. The current file is
``ledger.jsonl``; full ones are ``ledger-000001.jsonl`` and so on. Lines that belong together are
written by one call. If a process is killed, at most half a line is left, and the next process cuts
it off. If lines cannot be written, they are counted, and the line ``gap`` before the next line
reports how many are missing. So a ledger never looks more complete than it is.

The documents (robots.txt, blocklist, schema) are in one SQLite file beside the ledger, by digest.
Each body is stored once, compressed, with the number of the last ledger file that names it. It is
deleted when that file is deleted. No other body is stored (D10).
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import sqlite3
import zlib
from contextlib import closing, suppress
from typing import TYPE_CHECKING, Any, Final

import msgspec

from scrapy_walsh.exceptions import StateError, one_line
from scrapy_walsh.policy.event import Count, Exchange, Seconds, Time
from scrapy_walsh.policy.strict_json import json_object
from scrapy_walsh.policy.urls import REDACTED, without_queries
from scrapy_walsh.state import files
from scrapy_walsh.state.database import Connection, is_damage

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
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


class Bodies:
    """Reads the documents of a ledger from the file *path*; it writes nothing.

    ``altered``: digests under which another body than theirs was found. ``fault``: why the file
    could not be read, if it could not.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._connection: sqlite3.Connection | None = None
        self.altered: set[str] = set()
        self.fault: str | None = None

    def get(self, digest: str) -> bytes | None:
        """The body with that digest; None if it is not here, or was altered."""
        try:
            rows = self._rows(digest)
        except sqlite3.Error as error:
            self.fault = str(error)
            return None
        for (packed,) in rows:
            with suppress(zlib.error, TypeError):
                body = zlib.decompress(packed)
                if hashlib.sha256(body).hexdigest() == digest:
                    return body
            self.altered.add(digest)
        return None

    def close(self) -> None:
        """Close the file. Raises sqlite3.Error."""
        if self._connection is not None:
            self._connection.close()

    def _rows(self, digest: str) -> list[tuple[bytes]]:
        if not digest.isascii():  # a forged one may not be Unicode
            return []
        if self._connection is None:
            if not self._path.is_file():
                return []
            uri = f"{self._path.absolute().as_uri()}?mode=ro"
            self._connection = sqlite3.connect(uri, uri=True, factory=Connection)
        # All rows, because a cursor that has more rows locks the file for a crawl.
        return self._connection.execute(
            "SELECT body FROM documents WHERE digest = ?", (digest,)
        ).fetchall()


class Documents:
    """Keeps the documents of a ledger. Raises StateError if the file cannot be used."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._known: dict[str, int] = {}
        #: Lines for the log on what was found damaged.
        self.notices: list[str] = []

    def put(self, kind: str, body: bytes, digest: str, file: int) -> None:
        """Store *body*, which ledger file number *file* names."""
        if self._known.get(digest) == file:
            return

        def insert(connection: sqlite3.Connection) -> None:
            cursor = connection.execute(
                "UPDATE documents SET file = ? WHERE digest = ?", (file, digest)
            )
            if not cursor.rowcount:
                connection.execute(
                    "INSERT OR IGNORE INTO documents VALUES (?, ?, ?, ?)",
                    (digest, kind, file, zlib.compress(body, 1)),
                )

        self._change(insert)
        self._known[digest] = file

    def forget(self, file: int) -> None:
        """Delete the documents that no ledger file after number *file* names."""

        def drop(connection: sqlite3.Connection) -> None:
            connection.execute("DELETE FROM documents WHERE file <= ?", (file,))

        self._change(drop)

    def _change(self, change: Callable[[sqlite3.Connection], None]) -> None:
        """Call *change* in a transaction.

        If the file is damaged, set it aside and call it again.
        """
        try:
            if self._transact(change) is None:
                return
            with files.exclusive(self._path.parent):
                self._known.clear()
                damage = self._transact(change)
                if damage is not None:  # no other process has set the file aside by now
                    aside = files.set_aside(self._path, ("-journal",))
                    self.notices.append(
                        f"{self._path} was damaged ({one_line(damage, 200)}): set aside as "
                        f"{aside.name}; verify will miss the documents in it"
                    )
                    damage = self._transact(change)
                if damage is not None:
                    raise damage
        except (sqlite3.Error, OSError) as error:
            raise StateError(
                f"{self._path}: a document of the ledger cannot be kept: {error}"
            ) from error

    def _transact(self, change: Callable[[sqlite3.Connection], None]) -> Exception | None:
        """Call *change* in a transaction. Returns the error if the file is damaged, else None."""
        try:
            files.make_private(self._path)
            with closing(sqlite3.connect(self._path, factory=Connection)) as connection, connection:
                # If a power cut damages a body, its digest shows it, and the body is stored again.
                connection.execute("PRAGMA synchronous = OFF")
                connection.execute(_TABLE)
                change(connection)
        except sqlite3.DatabaseError as error:
            if not is_damage(error):
                raise
            return error
        return None


CONTRACT: Final = "walsh-ledger/v1"
FILE: Final = "ledger.jsonl"
HEAD: Final = "ledger.head"
#: The hash "before" the first line of a ledger.
GENESIS: Final = "0" * 64
#: Made once: ``json.dumps`` would make one for each line, which takes as long as the line itself.
_ENCODER: Final = json.JSONEncoder(
    separators=(",", ":"), allow_nan=False, default=msgspec.to_builtins
)
#: Numbers that msgspec writes in other digits than ``json``; ``null`` may be a NaN.
_OTHERWISE: Final = re.compile(rb":-?(?:[0-9.]+e|0\.0000|null)").search
_HASH: Final = b',"hash":"'
_TAIL: Final = len(_HASH) + 64 + len(b'"}')
#: Values that say nothing, so they are left out. An infinite time never comes.
_NOTHING: Final[tuple[object, ...]] = (None, "", (), [], math.inf)
_URL_MEMBERS: Final = (
    *("url", "document", "sent", "via", "by", "hop"),
    *("blocklist_url", "schema_url"),
)
_SENTENCES: Final = ("reason", "error", "cause")


def chain_line(entry: Mapping[str, Any], number: int, previous: str) -> tuple[bytes, str]:
    """The line of *entry*, with its line end, and its hash. Empty members are left out."""
    line_members = {name: value for name, value in entry.items() if value not in _NOTHING}
    members = {"n": number, **line_members, "prev": previous}
    text = _in_ascii(members)[:-1]
    digest = hashlib.sha256(text).hexdigest()
    return b'%s%s%s"}\n' % (text, _HASH, digest.encode("ascii")), digest


def _in_ascii(members: Mapping[str, Any]) -> bytes:
    """*members* as ``json`` writes them. If msgspec writes the same, it is ten times as fast."""
    with suppress(TypeError, UnicodeEncodeError):
        text = msgspec.json.encode(members)
        if text.isascii() and b"\x7f" not in text and not _OTHERWISE(text):
            return text
    return _ENCODER.encode(members).encode("ascii")


def digest_of(line: bytes) -> str:
    """The hash that *line*, without its line end, ought to carry."""
    return hashlib.sha256(line[:-_TAIL]).hexdigest()


def parse_line(line: bytes) -> dict[str, Any]:
    """The members of a line without its line end. Raises ValueError if it is no ledger line."""
    if line[-_TAIL:-66] != _HASH or line[-2:] != b'"}':
        raise ValueError("does not end in a hash")
    members: dict[str, Any] = json_object(line)
    number, previous, kind = members.get("n"), members.get("prev"), members.get("kind")
    if type(number) is not int or not isinstance(previous, str) or not isinstance(kind, str):
        raise ValueError("has no number, no kind, or no hash of the line before")
    return members


def redact(entry: Mapping[str, Any]) -> dict[str, Any]:
    """*entry* without the query strings of its URLs, in its sentences too."""
    queries = {
        "?" + value.partition("?")[2]
        for name in _URL_MEMBERS
        if isinstance(value := entry.get(name), str) and "?" in value
    }

    members = dict(entry)
    for name in (*_URL_MEMBERS, *_SENTENCES):
        if isinstance(value := members.get(name), str):
            for query in queries:  # first, because a sentence may have half of a URL
                value = value.replace(query, REDACTED)
            members[name] = without_queries(value)
    return members


class Line(Exchange, frozen=True, kw_only=True):
    """One line as a value: an event, an exchange, or what else a ledger has.

    A member that it does not have is None, empty or 0; ``n`` and ``at`` are there.
    """

    n: Count
    at: Time
    kind: str  # type: ignore[assignment]
    url: str = ""
    verdict: str = ""  # type: ignore[assignment]
    run: str = ""
    by: str = ""
    children: bool = False
    revisit: Seconds | None = None
    process: str = ""
    lost: Count | None = None


LOCK: Final = "ledger.lock"
#: Octets of full files that stay (WALSH_LEDGER_KEPT); the most octets of each file; and the least
#: number of files.
KEPT: Final = 256 * 1024**2
ROTATE_AT: Final = 16 * 1024**2
_FILES: Final = 16
#: Octets read of the head: more than its line has.
_HEAD_LINE: Final = 128
#: Octets read from the end of a file to find its last line: more than any line has.
_LAST: Final = 256 * 1024


class Ledger:
    """The ledger of a state directory, open in one process. Raises StateError if it has none.

    *kept*: octets of full files; when there are more, the oldest file is deleted.
    """

    def __init__(
        self,
        directory: Path,
        wall: Callable[[], float],
        *,
        redact: bool = False,
        keep_octets: int = KEPT,
    ) -> None:
        self.directory = directory
        self._kept = keep_octets
        self._rotate_at = min(ROTATE_AT, keep_octets // _FILES)
        self._name = str(directory / FILE)
        self.documents = Documents(directory / DOCUMENTS)
        self.file = 1
        self.head = GENESIS
        self.number = 0
        #: The number of the file that has our first line; 0 before there is a line. It is infinite
        #: after the notice that this file will be deleted.
        self._first = 0.0
        #: Lines for the log about files that were damaged, or are gone.
        self.notices = self.documents.notices
        self._wall = wall
        self._redact = redact
        self._missing = 0
        self._end = -1
        self._descriptor = -1
        try:
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            files.claim(directory)
            self._lock = files.private(directory / LOCK, "ab")
            self._head_file = files.open_private(directory / HEAD)
            with files.locked(self._lock):
                self._take_up()
        except (OSError, ValueError) as error:
            raise StateError(_cannot(directory, error)) from error

    def write(self, run: str, *entries: Mapping[str, Any]) -> None:
        """Append *entries*. Raises StateError if they cannot be written; the next line says so."""
        try:
            with files.locked(self._lock):
                if self._changed():
                    self._take_up()
                if self._end >= self._rotate_at:
                    self._rotate()
                self._first = self._first or self.file
                if self._missing:
                    reason = f"{self._missing} lines could not be written"
                    self._append(run, {"kind": "gap", "reason": reason, "lost": self._missing})
                    self._missing = 0
                self._append(run, *(map(redact, entries) if self._redact else entries))
        except (OSError, ValueError) as error:
            self._end = -1  # so that the file is read again
            self._missing += len(entries)
            raise StateError(_cannot(self.directory, error)) from error

    def keep(self, kind: str, body: bytes, digest: str) -> None:
        """Store the document with that digest beside the ledger. Raises StateError."""
        self.documents.put(kind, body, digest, self.file)

    def close(self) -> None:
        """Close the files."""
        os.close(self._descriptor)
        os.close(self._head_file)
        self._lock.close()

    # -- under the lock -------------------------------------------------------------------

    def _changed(self) -> bool:
        """Whether another process has written, or begun a new file, since our last look."""
        try:
            path_stat = os.stat(self._name)  # noqa: PTH116 - asked before every line
        except FileNotFoundError:
            return True
        file_stat = os.fstat(self._descriptor)
        return (path_stat.st_ino, path_stat.st_dev, path_stat.st_size) != (
            file_stat.st_ino,
            file_stat.st_dev,
            self._end,
        )

    def _take_up(self, reason: str = "") -> None:
        """Continue at the end of the file.

        Half a line there is cut off, and a line ``gap`` says so.

        A file that does not end in a line of a ledger is set aside. *reason*: why the new file
        replaces another one; empty if it does not.
        """
        descriptor = files.open_private(self.directory / FILE)
        if (
            self._descriptor >= 0
        ):  # only now that another is open: its number may soon be a socket's
            os.close(self._descriptor)
        self._descriptor = descriptor
        self._end = os.fstat(self._descriptor).st_size
        full_files = rotated_files(self.directory)
        self.file = _number_of(full_files[-1]) + 1 if full_files else 1
        if self._end == 0:
            self._begin_file(full_files, reason)
            return
        try:
            line, torn_octets = _last_line(self._descriptor, self._end)
            members = parse_line(line)
        except ValueError as error:
            aside = files.set_aside(self.directory / FILE)
            self.number, self.head = 0, GENESIS
            self._take_up(f"{error}: set aside as {aside.name}")
            return
        self.number, self.head = members["n"], line[-66:-2].decode("ascii")
        if torn_octets:
            self._end -= torn_octets
            os.ftruncate(self._descriptor, self._end)
            self._append(
                "", {"kind": "gap", "reason": f"a line of {torn_octets} octets was cut off"}
            )

    def _begin_file(self, full_files: Sequence[Path], reason: str) -> None:
        """Write the first line of a file, chained to the last line of the file before.

        A line ``gap`` follows if another file was replaced (*reason*), or if the head knows of a
        later line.
        """
        head = read_head(self.directory / HEAD)
        if full_files and self.number == 0:
            with full_files[-1].open("rb") as file:
                line, _ = _last_line(file.fileno(), os.fstat(file.fileno()).st_size)
            self.number, self.head = parse_line(line)["n"], line[-66:-2].decode("ascii")
        previous_number = self.number
        self._append("", {"kind": "ledger", "contract": CONTRACT, "file": self.file})
        if not reason and head is not None and head[0] > previous_number:
            reason = f"is gone: {HEAD} knows of line {head[0]}"
        if reason:
            self.notices.append(f"{self.directory / FILE} {reason}")
            self._append("", {"kind": "gap", "reason": f"{FILE} {reason}"})

    def _rotate(self) -> None:
        (self.directory / FILE).rename(self.directory / f"ledger-{self.file:06}.jsonl")
        full_files = rotated_files(self.directory)
        max_files = self._kept // self._rotate_at
        for oldest in full_files[:-max_files]:
            oldest.unlink()
            self.documents.forget(_number_of(oldest))
        self._take_up()
        if len(full_files) >= max_files and 0 < self._first <= _number_of(full_files[-max_files]):
            self._first = math.inf
            self.notices.append(
                f"{self.directory / FILE}: the oldest lines of this run are deleted when the next "
                "file is full, and verify cannot judge the run then: raise WALSH_LEDGER_KEPT"
            )

    def _append(self, run: str, *entries: Mapping[str, Any]) -> None:
        """Write whole lines. If that fails, leave the file as it was, and raise OSError."""
        number, head, lines = self.number, self.head, []
        now = round(self._wall(), 6)
        for number, entry in enumerate(entries, number + 1):  # noqa: B020  from the one after it
            line, head = chain_line({"at": now, "run": run, **entry}, number, head)
            lines.append(line)
        octets = b"".join(lines)
        size = os.pwrite(self._descriptor, octets, self._end)
        if size < len(octets):
            os.ftruncate(self._descriptor, self._end)
            raise OSError("no space is left for the line")
        self._end += size
        self.number, self.head = number, head
        os.pwrite(self._head_file, b"%012d %s\n" % (number, head.encode("ascii")), 0)


def rotated_files(directory: Path) -> list[Path]:
    """The full files of a ledger, oldest first."""
    return sorted(directory.glob("ledger-[0-9][0-9][0-9][0-9][0-9][0-9].jsonl"))


def _last_line(descriptor: int, end: int) -> tuple[bytes, int]:
    """The last whole line of the first *end* octets, and the number of octets after it.

    Raises ValueError if there is none.
    """
    start = max(0, end - _LAST)
    tail = os.pread(descriptor, end - start, start)
    lines, newline, half_line = tail.rpartition(b"\n")
    if not newline:
        raise ValueError("holds no whole line")
    return lines.rpartition(b"\n")[2], len(half_line)


def _number_of(path: Path) -> int:
    return int(path.stem.partition("-")[2])


def read_head(path: Path) -> tuple[int, str] | None:
    """The number and the hash of the last line that was written; None without a readable head."""
    try:
        with path.open("rb") as file:
            number, digest = file.readline(_HEAD_LINE).decode("ascii").split()
        return int(number), digest
    except (OSError, ValueError):
        return None


def _cannot(directory: Path, error: Exception) -> str:
    reason = getattr(error, "strerror", None) or error
    return (
        f"{directory / FILE}: decisions are not recorded: {reason}; "
        "free space there, move other files away, or set WALSH_LEDGER = False"
    )
