"""A ledger's files: all processes that share a state directory append lines to them, in turn.

The current file is ``ledger.jsonl``; full ones are ``ledger-000001.jsonl`` and so on. A line is one
``write``, or lines that belong together are, so a process that is killed leaves whole lines, and
half a line at most, which is cut off. Lines that cannot be written are counted,
and a line ``gap`` before the next one says how many are missing: a ledger never looks more complete
than it is.
"""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, Any, Final

from scrapy_walsh.exceptions import StateError
from scrapy_walsh.ledger.documents import DOCUMENTS, Documents
from scrapy_walsh.ledger.lines import CONTRACT, FILE, GENESIS, HEAD, chained, parsed, redacted
from scrapy_walsh.state.files import claim, open_private, private, set_aside

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

LOCK: Final = "ledger.lock"
#: Octets of a file before the next one is begun, and full files that are kept.
ROTATE_AT: Final = 16 * 1024**2
KEPT: Final = 16
#: Octets read from the end of a file to find its last line: more than any line has.
_TAIL: Final = 256 * 1024


class Ledger:
    """The ledger of a state directory, open in one process. StateError where none can be kept."""

    def __init__(self, directory: Path, wall: Callable[[], float], *, redact: bool = False) -> None:
        self.directory = directory
        self._name = str(directory / FILE)
        self.documents = Documents(directory / DOCUMENTS)
        self.file = 1
        self.head = GENESIS
        self.number = 0
        #: Lines for the log on what was found damaged, or gone.
        self.notices = self.documents.notices
        self._wall = wall
        self._redact = redact
        self._missing = 0
        self._end = -1
        self._descriptor = self._head_file = -1
        self._lock: IO[Any] | None = None
        try:
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            claim(directory)
            self._lock = private(directory / LOCK, "ab")
            self._head_file = _open(directory / HEAD)
            with self._locked():
                self._take_up()
        except OSError as error:
            raise StateError(_cannot(directory, error)) from error

    def write(self, run: str, *entries: Mapping[str, Any]) -> None:
        """Append *entries*; StateError where they cannot be written: the next line will say so."""
        try:
            with self._locked():
                if self._changed():
                    self._take_up()
                if self._end >= ROTATE_AT:
                    self._rotate()
                self._note_missing(run)
                self._append(run, *(map(redacted, entries) if self._redact else entries))
        except (OSError, ValueError) as error:
            self._missing += len(entries)
            raise StateError(_cannot(self.directory, error)) from error

    def keep(self, kind: str, body: bytes, digest: str) -> None:
        """Keep the document with that digest beside the ledger. Raises StateError."""
        self.documents.put(kind, body, digest, self.file)

    def close(self) -> None:
        """Close the files."""
        for descriptor in (self._descriptor, self._head_file):
            if descriptor >= 0:
                os.close(descriptor)
        self._descriptor = self._head_file = -1
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    # -- under the lock -------------------------------------------------------------------

    @contextmanager
    def _locked(self) -> Iterator[None]:
        if self._lock is None:
            raise OSError("it is closed")
        import portalocker  # noqa: PLC0415  it imports redis, where that is installed

        try:
            portalocker.lock(self._lock, portalocker.LockFlags.EXCLUSIVE)
        except portalocker.LockException as error:
            raise OSError(str(error)) from error
        try:
            yield
        finally:
            portalocker.unlock(self._lock)

    def _changed(self) -> bool:
        """Whether another process has written, or begun a new file, since we looked."""
        try:
            there = os.stat(self._name)  # noqa: PTH116 - asked before every line
        except FileNotFoundError:
            return True
        ours = os.fstat(self._descriptor)
        return (there.st_ino, there.st_dev, there.st_size) != (ours.st_ino, ours.st_dev, self._end)

    def _take_up(self, *, replaced: bool = False) -> None:
        """Go on where the file ends. Half a line there is cut off, and a line ``gap`` says so."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
        self._descriptor = _open(self.directory / FILE)
        self._end = os.fstat(self._descriptor).st_size
        if self._end == 0:
            gone = self._begin_file()
            if gone and not replaced:
                self.notices.append(f"{self.directory / FILE} {gone}")
                self._append("", {"kind": "gap", "reason": f"{FILE} {gone}"})
            return
        try:
            line, torn = self._last_line()
            last = parsed(line)
            self.file = self._file_number()
        except ValueError as error:
            self._replace(str(error))
            return
        self.number, self.head = last["n"], line[-66:-2].decode("ascii")
        if torn:
            self._end -= torn
            os.ftruncate(self._descriptor, self._end)
            self._append("", {"kind": "gap", "reason": f"a line of {torn} octets was cut off"})

    def _replace(self, why: str) -> None:
        """Set a file aside that cannot be continued, and begin another that says so."""
        aside = set_aside(self.directory / FILE)
        self.notices.append(f"{self.directory / FILE} {why}: set aside as {aside.name}")
        self.number, self.head = 0, GENESIS
        self._take_up(replaced=True)
        self._append("", {"kind": "gap", "reason": f"{FILE} {why}; it is now {aside.name}"})

    def _last_line(self) -> tuple[bytes, int]:
        """The last whole line, and the octets after it. ValueError where there is none."""
        start = max(0, self._end - _TAIL)
        tail = os.pread(self._descriptor, self._end - start, start)
        whole, newline, rest = tail.rpartition(b"\n")
        if not newline:
            raise ValueError("holds no whole line")
        return whole.rpartition(b"\n")[2], len(rest)

    def _file_number(self) -> int:
        first = os.pread(self._descriptor, 4096, 0).partition(b"\n")[0]
        return int(parsed(first).get("file", 1))

    def _begin_file(self) -> str | None:
        """Write the first line of a file, chained to the last line of the one before.

        Returns in a few words which lines are gone by the head; None where none are.
        """
        known = read_head(self.directory / HEAD)
        full = rotated(self.directory)
        if full and self.number == 0:
            last = full[-1].read_bytes().rstrip(b"\n").rpartition(b"\n")[2]
            self.number, self.head = parsed(last)["n"], last[-66:-2].decode("ascii")
        self.file = int(full[-1].stem.partition("-")[2]) + 1 if full else 1
        gone = known is not None and known[0] > self.number
        self._append("", {"kind": "ledger", "contract": CONTRACT, "file": self.file})
        return f"is gone: {HEAD} knows of line {known[0]}" if known is not None and gone else None

    def _rotate(self) -> None:
        (self.directory / FILE).rename(self.directory / f"ledger-{self.file:06}.jsonl")
        full = rotated(self.directory)
        for old in full[:-KEPT]:
            old.unlink()
            self.documents.forget(int(old.stem.partition("-")[2]))
        self._take_up()

    def _note_missing(self, run: str) -> None:
        if self._missing:
            reason = f"{self._missing} lines could not be written"
            self._append(run, {"kind": "gap", "reason": reason, "lost": self._missing})
            self._missing = 0

    def _append(self, run: str, *entries: Mapping[str, Any]) -> None:
        """Write the lines whole, or leave the file as it was and raise OSError."""
        number, head, lines = self.number, self.head, []
        at = round(self._wall(), 6)
        for number, entry in enumerate(entries, number + 1):  # noqa: B020  from the one after it
            line, head = chained({"at": at, "run": run, **entry}, number, head)
            lines.append(line)
        octets = b"".join(lines)
        written = os.pwrite(self._descriptor, octets, self._end)
        if written < len(octets):
            os.ftruncate(self._descriptor, self._end)
            raise OSError("no space is left for the line")
        self._end += written
        self.number, self.head = number, head
        os.pwrite(self._head_file, b"%012d %s\n" % (number, head.encode("ascii")), 0)


def rotated(directory: Path) -> list[Path]:
    """The full files of a ledger, oldest first."""
    return sorted(directory.glob("ledger-[0-9][0-9][0-9][0-9][0-9][0-9].jsonl"))


def read_head(path: Path) -> tuple[int, str] | None:
    """The number and the hash of the last line that was written; None without a readable head."""
    try:
        if not path.is_file():  # reading a FIFO would wait for ever
            return None
        number, digest = path.read_text(encoding="ascii").split()
        return int(number), digest
    except (OSError, ValueError):
        return None


def _open(path: Path) -> int:
    return open_private(path, os.O_RDWR | os.O_CREAT)


def _cannot(directory: Path, error: Exception) -> str:
    why = getattr(error, "strerror", None) or error
    return (
        f"{directory / FILE}: decisions go unrecorded: {why};"
        " make room there, or set WALSH_LEDGER = False"
    )
