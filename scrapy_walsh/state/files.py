"""The files of the state directory: permissions, the lock, and copies of the blocklist (R11).

We make each file as a regular file that only its owner may read and write, whatever the directory
and the umask allow, because URLs may be personal. The directory may be a symbolic link, for example
to another disk. A file may not be a link: we replace files by name, so the author of the link could
choose the file that we write.

A copy of the blocklist has three parts: a JSON line with the SHA-256 of the other parts, a JSON
line with the record without its body, and the body as it was served. It outlives the database (D3).
A list has two copies, and its row in the database has no text. Otherwise each look-up of a
robots.txt would read the list as well, because SQLite reads whole rows when it compares keys. And
no host could be booked while the list is written. Lists of several addresses are stored side by
side (D39): the first list in ``COPIES``, each other list in two files with a digest of its URL in
their names.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import stat
from contextlib import contextmanager, suppress
from dataclasses import asdict, fields
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final

from scrapy_walsh.exceptions import StateError, one_line
from scrapy_walsh.policy.list.blocklist import MAX_OCTETS
from scrapy_walsh.spec import __version__
from scrapy_walsh.state.records import BLOCKLIST, DamageError, StoredDocument

if TYPE_CHECKING:
    from collections.abc import Iterator

with suppress(ImportError):  # Windows lacks it, so no state directory is used there (``machine``)
    import fcntl

LOCK: Final = "state.lock"
COPY: Final = "blocklist.json"
#: The other copy.
SECOND: Final = "blocklist-2.json"
COPIES: Final = (COPY, SECOND)
#: The names of copies, for any address of a list.
_LIST: Final = r"blocklist(?:-[0-9a-f]{16})?(?:-2)?\.json"
#: Octets of a copy's first lines that are read; a URL may be long. No small file has more.
_HEAD: Final = 1 << 16

#: The names of our own files in a state directory. Damaged files have a suffix after them.
_OURS: Final = re.compile(
    r"(?:state\.(?:sqlite3(?:\.new)?(?:-wal|-shm|-journal)?|lock|ok|lost)"
    r"|state\.sqlite3\.before-[0-9A-Za-z.+-]+"
    rf"|{_LIST}(?:\.new)?|clock\.(?:json(?:\.new)?|new)|sources\.lock"
    r"|ledger\.(?:jsonl|head|lock)|ledger-[0-9]{6}\.jsonl"
    r"|ledger-documents\.sqlite(?:-wal|-shm|-journal)?)(?:\.damaged-.*)?"
)
#: Flags for ``os.open``: a link is not followed, and a FIFO does not make us wait.
_SAFELY: Final = (
    getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
)


def claim(directory: Path) -> None:
    """Raise StateError (one line) if something that is no regular file has the name of ours.

    Raises OSError as well.
    """
    for name in not_files(directory):
        raise StateError(
            f"{directory / name} is not a file (a link, a directory or a device): move it out of "
            "the way, or set another WALSH_STATE_DIR"
        )


def close_to_others(directory: Path) -> None:
    """Let only their owner use our files in *directory*. Files that cannot be changed stay."""
    with suppress(OSError):  # no directory yet
        for path in (directory / name for name in _ours(directory)):
            with suppress(OSError):  # another user's, or on a disk that is read only
                if (mode := stat.S_IMODE(path.lstat().st_mode)) & 0o077:
                    path.chmod(mode & 0o700)


def not_files(directory: Path) -> list[str]:
    """The names of our files that are no regular files in *directory*. Raises OSError."""
    names = []
    for name in _ours(directory):
        with suppress(FileNotFoundError):
            if not stat.S_ISREG((directory / name).lstat().st_mode):
                names.append(name)
    return names


def left_behind(directory: Path) -> str | None:
    """The name of a file that shows that there was a database; None if there is none."""
    return next((name for name in _ours(directory) if not name.endswith(".lock")), None)


def _ours(directory: Path) -> list[str]:
    return sorted(filter(_OURS.fullmatch, os.listdir(directory)))  # noqa: PTH208


def private(path: Path, mode: str) -> IO[Any]:
    """As ``open``; if it makes the file, only its owner may use that. Raises OSError."""
    return open(path, mode, opener=open_private)


def open_private(path: str | Path, flags: int = os.O_RDWR | os.O_CREAT) -> int:
    """As ``os.open``; if it makes the file, its mode is 0600. Raises OSError.

    A file that root makes belongs to the owner of its directory, so that the bot's next run can use
    it. A file that exists keeps its owner, because anyone may have put it there.
    """
    flags |= _SAFELY
    if flags & os.O_CREAT and os.geteuid() == 0:
        with suppress(FileExistsError):
            descriptor = os.open(path, flags | os.O_EXCL, 0o600)
            with suppress(OSError):  # a disk or a container may not let root do that
                owner = Path(path).parent.stat()
                os.fchown(descriptor, owner.st_uid, owner.st_gid)
            return descriptor
    return os.open(path, flags, 0o600)


def read_small(path: Path) -> bytes:
    """The octets of a small file of ours; OSError if it has more than we write into one."""
    with open(path, "rb", opener=_open_safely) as file:
        octets: bytes = file.read(_HEAD + 1)
    if len(octets) > _HEAD:
        raise OSError(errno.EFBIG, os.strerror(errno.EFBIG))
    return octets


def _open_safely(path: str, flags: int) -> int:
    return os.open(path, flags | _SAFELY)


def replace_private(path: Path, *pieces: bytes) -> None:
    """Put *pieces* into *path*, all or nothing, for its owner only. Raises OSError."""
    draft = path.with_name(f"{path.name}.new")
    with private(draft, "wb") as file:
        file.writelines(pieces)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)


def make_private(path: Path) -> None:
    """If there is no file, make an empty file for its owner only. Raises OSError.

    An existing file is not opened, because closing it would drop SQLite's locks (fcntl(2)).
    """
    with suppress(FileExistsError):
        os.close(open_private(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL))


@contextmanager
def locked(file: IO[Any]) -> Iterator[None]:
    """Wait until no other process has *file* locked, and lock it. Raises OSError."""
    fcntl.flock(file, fcntl.LOCK_EX)
    try:
        yield
    finally:
        fcntl.flock(file, fcntl.LOCK_UN)


@contextmanager
def exclusive(directory: Path) -> Iterator[None]:
    """Lock *directory*, so that no other process replaces its files meanwhile. Raises OSError."""
    with private(directory / LOCK, "ab") as file, locked(file):
        yield


def set_aside(path: Path, companions: tuple[str, ...] = ()) -> Path:
    """Rename *path*, and with each suffix of *companions*, to the first free ``NAME.damaged-N``.

    Returns the new path. Raises OSError.
    """
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


def list_files(directory: Path) -> list[str]:
    """The names of the copies of blocklists in *directory*, of all addresses. Raises OSError."""
    return [name for name in _ours(directory) if re.fullmatch(_LIST, name)]


def copies_of(directory: Path, key: str) -> tuple[str, str]:
    """The names of the two copies of the blocklist *key*, whether they exist or not."""
    digest = hashlib.sha256(key.encode()).hexdigest()[:16]
    own_names = f"blocklist-{digest}.json", f"blocklist-{digest}-2.json"
    owners = {key_in(directory / name) for name in COPIES} - {None}
    is_foreign = bool(owners) and key not in owners
    if is_foreign or any((directory / name).exists() for name in own_names):
        return own_names
    return COPIES


def key_in(path: Path) -> str | None:
    """The key of the blocklist in the copy at *path*; None if it cannot be read."""
    try:
        with path.open("rb") as file:
            file.readline(_HEAD)
            head = json.loads(file.readline(_HEAD))
        return str(head["key"])
    except (OSError, ValueError, TypeError, KeyError):
        return None


def read_copies(directory: Path, key: str, notices: list[str]) -> list[StoredDocument | None]:
    """The two copies of the blocklist *key*; None for a copy that does not have it.

    A damaged copy is renamed, with a line in *notices*, because its text is lost. If only another
    user may read a copy, it stays, also with a line.
    """
    copies: list[StoredDocument | None] = []
    for name in copies_of(directory, key):
        path = directory / name
        try:
            copy = read_copy(directory, name)
        except DamageError as damage:
            copy = without_text(key)
            if isinstance(damage.__cause__, PermissionError):
                notices.append(str(unusable(path, "cannot be read", damage.__cause__)))
                copies.append(copy)
                continue
            with suppress(OSError):
                aside = set_aside(path)
                notices.append(f"{path} was damaged ({damage}): set aside as {aside.name}")
        copies.append(copy if copy is not None and copy.key == key else None)
    return copies


def write_copies(directory: Path, document: StoredDocument, *names: str) -> None:
    """Replace the copies *names*, or both copies, by *document*, each whole or not at all.

    If one fails, the other is still written. Raises StateError.
    """
    head = asdict(document)
    body: bytes = head.pop("body")
    record = json.dumps(head).encode("ascii") + b"\n"
    # In pieces, because to join them would copy a large body while the interpreter is locked.
    pieces = _digest(record, body), b"\n", record, body
    failure: StateError | None = None
    for name in names or copies_of(directory, document.key):
        try:
            with exclusive(directory):
                replace_private(directory / name, *pieces)
        except OSError as error:
            failure = failure or unusable(directory / name, "cannot be written", error)
    if failure is not None:
        raise failure


def read_copy(directory: Path, name: str = COPY) -> StoredDocument | None:
    """The copy of the blocklist in the file *name*, None without one.

    Raises DamageError; StateError if a later version wrote it (D16).
    """
    try:
        with (directory / name).open("rb") as file:
            if os.fstat(file.fileno()).st_size > MAX_OCTETS + 2 * _HEAD:
                raise DamageError(f"it is larger than {MAX_OCTETS >> 20} MiB, the limit of a list")
            digest, head, body = file.readline(_HEAD), file.readline(_HEAD), file.read()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise DamageError(str(error.strerror)) from error
    if digest != _digest(head, body) + b"\n":
        raise DamageError("its checksum does not match")
    try:
        record = dict(json.loads(head))
        unknown = record.keys() - {field.name for field in fields(StoredDocument)}
        if not unknown:
            return StoredDocument(body=body, **record)
    except (TypeError, ValueError) as error:
        raise DamageError("its record cannot be read") from error
    raise StateError(
        f"{directory / name} was written by a later version of scrapy-walsh (with "
        f"{one_line(', '.join(sorted(unknown)), 80)}), and this is {__version__}: install that one"
    )


def unusable(path: Path, problem: str, error: Exception | None) -> StateError:
    """The error about a file that cannot be used; it names the owner if that is another user."""
    return StateError(
        f"{path} {problem} ({one_line(error, 200)}){_owner(path)}: let the user of this crawl read "
        "and write it, free or repair the disk, or set another WALSH_STATE_DIR"
    )


def _owner(path: Path) -> str:
    """The owner of *path*, a companion or the lock, if that is another user; else empty."""
    own_id = os.geteuid() if hasattr(os, "geteuid") else 0
    for file in (path, *path.parent.glob(f"{path.name}-*"), path.parent / LOCK, path.parent):
        with suppress(OSError):
            owner = file.lstat().st_uid
            if owner != own_id:
                return f"; {file.name} belongs to {_user(owner)}, and this runs as {_user(own_id)}"
    return ""


def _user(number: int) -> str:
    import pwd  # noqa: PLC0415  not on Windows

    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return f"user {number}"


def without_text(key: str) -> StoredDocument:
    """The record of a blocklist that was stored, or may have been, and cannot be read."""
    return StoredDocument(BLOCKLIST, key, key, b"", 0.0, None, "lost")


def newer(*copies: StoredDocument | None) -> StoredDocument | None:
    """The record of a blocklist to use: one with a body first, then the latest."""
    documents = [document for document in copies if document is not None]
    return max(
        documents, key=lambda document: (bool(document.body), document.fetched_at), default=None
    )


def _digest(head: bytes, body: bytes) -> bytes:
    digest = hashlib.sha256(head)
    digest.update(body)
    return b'{"sha256": "%s"}' % digest.hexdigest().encode("ascii")
