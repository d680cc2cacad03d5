"""R11: files of the state directory: its lock, what is set aside, and the blocklist's second copy.

The copy is three JSON values in a row: the SHA-256 of what follows, the record without its
body, and the body as served. It outlives the database (D3).
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from contextlib import contextmanager, suppress
from dataclasses import asdict
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


def read_copy(directory: Path) -> StoredDocument | None:
    """The second copy of the blocklist; DamageError when it is not whole, None without one."""
    try:
        digest, _, rest = (directory / COPY).read_bytes().partition(b"\n")
    except FileNotFoundError:
        return None
    except OSError as error:
        raise DamageError(str(error.strerror)) from error
    if digest != _digest(rest):
        raise DamageError("its checksum does not match")
    head, _, body = rest.partition(b"\n")
    try:
        return StoredDocument(body=body, **json.loads(head))
    except (TypeError, ValueError) as error:
        raise DamageError("it is of another version") from error


def write_copy(directory: Path, document: StoredDocument) -> None:
    """Replace the second copy by *document*, or leave it as it is. OSError."""
    head = asdict(document)
    body = head.pop("body")
    record = json.dumps(head).encode("ascii") + b"\n"
    draft = directory / f"{COPY}.new"
    with exclusive(directory):
        with draft.open("wb") as file:
            # In pieces: joining a large body would copy it with the interpreter lock held.
            file.writelines((_digest(record, body), b"\n", record, body))
            file.flush()
            os.fsync(file.fileno())
        draft.replace(directory / COPY)


def newer(row: StoredDocument | None, copy: StoredDocument | None) -> StoredDocument | None:
    """The blocklist that counts: one with a body before one without, then the later fetch."""
    found = [document for document in (row, copy) if document is not None]
    return max(found, key=lambda document: (bool(document.body), document.fetched_at), default=None)


def _digest(*pieces: bytes) -> bytes:
    digest = hashlib.sha256()
    for piece in pieces:
        digest.update(piece)
    return b'{"sha256": "%s"}' % digest.hexdigest().encode("ascii")
