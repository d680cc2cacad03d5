"""The file of a JOBDIR in which requests wait (``disk_lines``): opened, and for one process alone.

SQLite's own lock shows that another process uses it. The system drops the lock when that process
ends, however it ends.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import TYPE_CHECKING

from scrapy_walsh import files
from scrapy_walsh.exceptions import StateError
from scrapy_walsh.state.database import Connection
from scrapy_walsh.state.files import make_private, one_line

if TYPE_CHECKING:
    from scrapy.settings import BaseSettings

_TABLE = """
CREATE TABLE IF NOT EXISTS line (
    id INTEGER PRIMARY KEY AUTOINCREMENT, host TEXT NOT NULL, rank INTEGER NOT NULL,
    priority INTEGER NOT NULL, start INTEGER NOT NULL, arrival INTEGER NOT NULL,
    url TEXT NOT NULL, source TEXT, request BLOB NOT NULL
);
CREATE INDEX IF NOT EXISTS line_order ON line (host, rank, priority, start, arrival, id);
CREATE TABLE IF NOT EXISTS taken AS SELECT * FROM line WHERE false;
CREATE TABLE IF NOT EXISTS aside AS SELECT * FROM line WHERE false;
INSERT INTO line SELECT * FROM aside;
DELETE FROM aside;
"""
_COLUMNS = "SELECT id, host, rank, priority, start, arrival, url, source, request FROM line LIMIT 0"
#: Seconds for which the start of a crawl waits for a process that is closing the file.
_PATIENCE = 1.0


def why_unusable(settings: BaseSettings) -> str | None:
    """Why no crawl can use its JOBDIR, which Scrapy makes; None where it can, or none is set."""
    directory = settings.get("JOBDIR")
    why = files.why_unusable(Path(directory)) if directory else None
    return None if why is None else f"JOBDIR {directory} cannot be written ({why})"


def open_job(settings: BaseSettings) -> Connection | None:
    """The file of the crawl's JOBDIR, for this process alone; None where none is set.

    Called before anything else of the folder is written. Raises StateError, also where another
    process uses the folder.
    """
    directory = settings.get("JOBDIR")
    return open_in(Path(directory, "requests.queue")) if directory else None


def open_in(directory: Path) -> Connection:
    """As :func:`open_job`, for the file in *directory*."""
    path = directory / "requests.sqlite3"
    try:
        directory.mkdir(parents=True, exist_ok=True)
        make_private(path)
        db = sqlite3.connect(path, _PATIENCE, isolation_level=None, factory=Connection)
        # A row whose text is damaged is read, and then it is known to be none of ours.
        db.text_factory = lambda octets: octets.decode("utf-8", "replace")
        db.execute("PRAGMA locking_mode=EXCLUSIVE")
        if db.execute("SELECT 1 FROM sqlite_master").fetchone():
            db.execute(_COLUMNS)  # another program's has none
        db.execute("PRAGMA journal_mode=WAL")
        db.execute("PRAGMA synchronous=NORMAL")
        # 16 MB, four times the default: each of a host's requests is in a page of its own, and is
        # written to the file half as often. A request waits 25 ms for that at most.
        db.execute("PRAGMA wal_autocheckpoint=4000")
        db.executescript(f"BEGIN IMMEDIATE; {_TABLE} COMMIT;")
    except (OSError, sqlite3.Error) as error:
        raise unusable(path, error) from error
    return db


def unusable(path: Path, error: Exception) -> StateError:
    """What to raise where *error* was met with the file *path*: one line that says what to do."""
    name = getattr(error, "sqlite_errorname", "")
    if name.startswith("SQLITE_BUSY"):
        return StateError(
            f"the JOBDIR of {path} is in use by another process: let that one end, or set another"
        )
    if name == "SQLITE_NOTADB" or "no such" in str(error):
        return StateError(f"{path} is not a queue of scrapy_walsh: set another JOBDIR")
    why = one_line(error)
    return StateError(
        f"{path} cannot be used ({why}): free or repair the disk, or set another JOBDIR"
    )
