"""R11: files of the state directory: its lock, what is set aside, and the blocklist's copies.

A copy is three JSON values in a row: the SHA-256 of what follows, the record without its
body, and the body as served. It outlives the database (D3). A large list has two copies and no
row: SQLite reads the whole of a row when it compares keys, so that each look-up of a robots.txt
would read the list, and while it is written no host could be booked.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from contextlib import contextmanager, suppress
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Final

from scrapy_walsh.state.records import StoredDocument
from scrapy_walsh.state.tables import DamageError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

if sys.platform != "win32":
    import fcntl

LOCK: Final = "state.lock"
COPY: Final = "blocklist.json"
#: The other copy of a large list.
SECOND: Final = "blocklist-2.json"
#: Octets from which a list is large.
LARGE: Final = 256 * 1024


@contextmanager
def exclusive(directory: Path) -> Iterator[None]:
    """Keep other processes from replacing files of *directory*, where a lock can be made."""
    try:
        lock = os.open(directory / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError:
        yield
        return
    try:
        if sys.platform != "win32":
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


def set_aside(path: Path, companions: tuple[str, ...] = ()) -> Path:
    """Rename *path* and its companions to the first free ``NAME.damaged-N``. OSError."""
    suffixes = ("", *companions)
    number = 1
    while any(_aside(path, number, suffix).exists() for suffix in suffixes):
        number += 1
    for suffix in reversed(suffixes):  # the file itself last: it names the set
        with suppress(FileNotFoundError):
            path.with_name(path.name + suffix).rename(_aside(path, number, suffix))
    return _aside(path, number, "")


def _aside(path: Path, number: int, suffix: str) -> Path:
    return path.with_name(f"{path.name}.damaged-{number}{suffix}")


def read_copy(directory: Path, name: str = COPY) -> StoredDocument | None:
    """The copy of the blocklist of that *name*; DamageError when it is not whole, None if none."""
    try:
        with (directory / name).open("rb") as file:
            digest, head, body = file.readline(), file.readline(), file.read()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise DamageError(str(error.strerror)) from error
    if digest != _digest(head, body) + b"\n":
        raise DamageError("its checksum does not match")
    try:
        return StoredDocument(body=body, **json.loads(head))
    except (TypeError, ValueError) as error:
        raise DamageError("it is of another version") from error


def write_copy(directory: Path, document: StoredDocument, name: str = COPY) -> None:
    """Replace the copy of that *name* by *document*, or leave it as it is. OSError."""
    head = asdict(replace(document, body=b""))
    del head["body"]
    record = json.dumps(head).encode("ascii") + b"\n"
    draft = directory / f"{name}.new"
    with exclusive(directory):
        with draft.open("wb") as file:
            # In pieces: joining a large body would copy it with the interpreter lock held.
            file.writelines((_digest(record, document.body), b"\n", record, document.body))
            file.flush()
            os.fsync(file.fileno())
        draft.replace(directory / name)


def newer(*found: StoredDocument | None) -> StoredDocument | None:
    """The blocklist that counts: one with a body before one without, then the later fetch."""
    documents = [document for document in found if document is not None]
    return max(documents, key=lambda each: (bool(each.body), each.fetched_at), default=None)


def _digest(*pieces: bytes) -> bytes:
    digest = hashlib.sha256()
    for piece in pieces:
        digest.update(piece)
    return b'{"sha256": "%s"}' % digest.hexdigest().encode("ascii")
