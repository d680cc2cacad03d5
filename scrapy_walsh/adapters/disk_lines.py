"""Stores the requests of a paused job in one SQLite file in the JOBDIR.

Scrapy's layout needs two open files for each host, but a process may open only about a thousand.
Requests are pickled, as in Scrapy's default disk queue, because the JOBDIR belongs to the project.
SQLite's lock shows whether another process uses the file. The system releases it at the end of that
process, even if it is killed.

If a row is unreadable (for example because its callback was renamed, or it is damaged), it moves
to the table ``aside``. The next run tries it again.
"""

from __future__ import annotations

import pickle
import sqlite3
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from scrapy.utils.request import request_from_dict

from scrapy_walsh import files
from scrapy_walsh.adapters import compat
from scrapy_walsh.adapters.events import logger
from scrapy_walsh.adapters.ticket import form_of
from scrapy_walsh.exceptions import StateError, one_line
from scrapy_walsh.state import forms
from scrapy_walsh.state.database import Connection
from scrapy_walsh.state.files import make_private
from scrapy_walsh.state.records import DamageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from scrapy import Request
    from scrapy.settings import BaseSettings

    from scrapy_walsh.adapters.context import Context, Earlier
    from scrapy_walsh.adapters.intake import Intake

#: ``form``: of ``urls.form_of``. ``source``: the declared target of the URL. ``revisit``: the
#: target's cadence in seconds; null if WALSH_REVISIT applies (R8).
_COLUMNS: Final = {
    "id": "INTEGER PRIMARY KEY AUTOINCREMENT",
    "host": "TEXT NOT NULL",
    "rank": "INTEGER NOT NULL",
    "priority": "INTEGER NOT NULL",
    "arrival": "INTEGER NOT NULL",
    "url": "TEXT NOT NULL",
    "form": "TEXT NOT NULL",
    "source": "TEXT",
    "revisit": "REAL",
    "request": "BLOB NOT NULL",
}


class _Table(NamedTuple):
    """A table of the file, for ``state.forms``."""

    name: str
    create: str
    definitions: Mapping[str, str] = _COLUMNS


_DEFINED = ", ".join(f"{name} {definition}" for name, definition in _COLUMNS.items())
_TABLES: Final = (
    _Table("line", f"CREATE TABLE IF NOT EXISTS line ({_DEFINED})"),
    _Table("taken", "CREATE TABLE IF NOT EXISTS taken AS SELECT * FROM line WHERE false"),
    _Table("aside", "CREATE TABLE IF NOT EXISTS aside AS SELECT * FROM line WHERE false"),
)
#: The steps that upgrade an older file to this form (D16).
_STEPS: Final[forms.Steps] = {}
_PRICE: Final = "with another JOBDIR, the requests waiting in this one are lost"
#: Run at the start of a crawl. Requests that a killed run had taken are put back, unless it had
#: pushed the same request again.
_BEGIN = """
CREATE INDEX IF NOT EXISTS line_order ON line (host, rank, priority, arrival, id);
INSERT INTO line SELECT * FROM aside;
DELETE FROM aside;
INSERT INTO line SELECT * FROM taken WHERE NOT EXISTS (
    SELECT 1 FROM line
    WHERE line.host = taken.host AND line.url = taken.url AND line.form = taken.form
) GROUP BY host, url, form;
DELETE FROM taken;
"""
_OURS = "SELECT id, host, url, request FROM line LIMIT 0"
_NAMES = "host, rank, priority, arrival, url, form, source, revisit, request"
_INSERT = f"INSERT INTO line ({_NAMES}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"  # noqa: S608
#: The requests of earlier runs, in a temporary table. A row is deleted when `Spider.start` has
#: yielded its request again.
_EARLIER = """
CREATE TEMP TABLE earlier AS SELECT id, url, form FROM line;
CREATE INDEX temp.earlier_url ON earlier (url, form);
"""
_DAMAGED = """
SELECT id, url FROM line
WHERE typeof(host) <> 'text' OR typeof(url) <> 'text' OR typeof(source) NOT IN ('text', 'null')
    OR typeof(revisit) NOT IN ('real', 'null')
"""
#: The order of a host's requests.
_ORDER = "FROM line WHERE host = ? ORDER BY rank, priority, arrival, id"
#: Seconds to wait at the start for another process that is closing the file.
_PATIENCE = 1.0


def why_unusable(settings: BaseSettings) -> str | None:
    """Return the reason if the JOBDIR is unusable; None if it is usable or not set."""
    directory = settings.get("JOBDIR")
    if not directory:
        return None
    reason = files.why_unusable(Path(directory))
    if reason is None:
        return None
    return f"JOBDIR {directory} cannot be written ({reason})"


def open_job(settings: BaseSettings) -> Connection | None:
    """Open and lock the file in the crawl's JOBDIR; return None if no JOBDIR is set.

    It must be called before anything else is written there. Raises StateError, for example if
    another process uses the JOBDIR.
    """
    directory = settings.get("JOBDIR")
    if directory:
        return _open(Path(directory, "requests.queue"))
    return None


def _open(directory: Path) -> Connection:
    path = directory / "requests.sqlite3"
    db: Connection | None = None
    try:
        directory.mkdir(parents=True, exist_ok=True)
        make_private(path)
        db = sqlite3.connect(path, _PATIENCE, isolation_level=None, factory=Connection)
        db.execute("PRAGMA locking_mode=EXCLUSIVE")
        _prepare(db, path)
    except (OSError, sqlite3.Error, DamageError) as error:
        if db is not None:
            db.close()  # it holds the lock
        if isinstance(error, StateError):
            raise
        raise _unusable(path, error) from error
    return db


def _prepare(db: Connection, path: Path) -> None:
    if db.execute("SELECT 1 FROM sqlite_master").fetchone():
        _upgrade(db, path)
    db.execute("PRAGMA journal_mode=WAL")
    db.execute("PRAGMA synchronous=NORMAL")
    # 16 MB, four times the default. The requests of a host are in different pages, and so each page
    # is written half as often. A request waits at most 25 ms for that.
    db.execute("PRAGMA wal_autocheckpoint=4000")
    db.execute("BEGIN IMMEDIATE")
    with db:
        for table in _TABLES:
            db.execute(table.create)
        forms.sign(db)
    db.executescript(f"BEGIN IMMEDIATE; {_BEGIN} COMMIT;")
    db.executescript(_EARLIER)


def _upgrade(db: Connection, path: Path) -> None:
    """Upgrade an older file. Raises StateError if a later version has written it."""
    db.execute(_OURS)  # another program's file does not have this table
    if not forms.form_of(db):  # version 0.2.0 wrote no number
        db.execute("PRAGMA user_version=1")
    if not forms.is_current(db, path, _TABLES, _STEPS, _PRICE):
        line = forms.upgrade(db, path, _TABLES, _STEPS, _PRICE)
        logger.warning("%s", line)


def _unusable(path: Path, error: Exception) -> StateError:
    """Return the StateError for *error* with the file *path*."""
    name = getattr(error, "sqlite_errorname", "")
    if name.startswith("SQLITE_BUSY"):
        return StateError(
            f"the JOBDIR of {path} is in use by another process: wait until it ends, or set another"
        )
    if name == "SQLITE_NOTADB" or "no such" in str(error):
        return StateError(f"{path} is not a queue of scrapy_walsh: set another JOBDIR")
    detail = one_line(error, 200)
    return StateError(
        f"{path} cannot be used ({detail}): free or repair the disk, or set another JOBDIR"
    )


class DiskLines:
    """The requests of each host in a file, in sending order.

    Each method raises StateError if the file cannot be read or written.
    """

    is_lasting = True

    def __init__(
        self, directory: str, context: Context, intake: Intake, job: Connection | None
    ) -> None:
        self._context = context
        self._intake = intake
        self._path = Path(directory) / "requests.sqlite3"
        self._db = job or _open(Path(directory))
        #: The last row of an earlier run. If a declared request up to there is taken, it declares
        #: the URLs in its meta again. Later rows come from callbacks and declare nothing.
        (self._earlier,) = self._execute("SELECT ifnull(max(id), 0) FROM line").fetchone()
        #: The rows of taken requests. The next run puts them back after a crash.
        self._taken_rows: dict[Request, int] = {}
        for row, url in self._execute(_DAMAGED).fetchall():
            self._set_aside(row, str(url), "its host, URL, target or cadence is none")

    def _execute(self, statement: str, values: tuple[object, ...] = ()) -> sqlite3.Cursor:
        try:
            return self._db.execute(statement, values)
        except sqlite3.Error as error:
            raise _unusable(self._path, error) from error

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        """Run the statements in the block in one transaction."""
        self._execute("BEGIN")
        try:
            with self._db:
                yield
        except sqlite3.Error as error:
            raise _unusable(self._path, error) from error

    def check(self, request: Request) -> bytes:
        """Serialise *request*. Raises ValueError if that is impossible."""
        try:
            return pickle.dumps(self._intake.kept(request), protocol=4)
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            raise ValueError(str(error)) from error

    def push(self, host: str, key: tuple[int, int, int], request: Request) -> None:
        """Add *request* to *host*'s queue. Raises ValueError if it cannot be serialised."""
        url = request.url
        data = self.check(request)
        source = self._context.scope.source_of(url)
        revisit = self._context.scope.cadence(source or "")
        self._execute(_INSERT, (host, *key, url, form_of(request), source, revisit, data))
        # Write requests.seen after the row. If a kill comes before both, `start` yields the request
        # again. If it comes between them, the request may be sent twice.
        try:
            compat.write_seen(self._context.crawler)
        except OSError as error:
            raise _unusable(self._path.with_name("requests.seen"), error) from error

    def pop(self, host: str) -> Request | None:
        """Take *host*'s first request. If it is unreadable, set it aside and return None."""
        cursor = self._execute(f"SELECT id, url, source, request {_ORDER} LIMIT 1", (host,))
        row, url, source, data = cursor.fetchone()
        try:
            request = self._read(url, data)
        except ValueError as error:
            self._set_aside(row, url, str(error))
            return None
        with self._transaction():
            self._delete_ended()
            self._execute("INSERT INTO taken SELECT * FROM line WHERE id = ?", (row,))
            self._execute("DELETE FROM line WHERE id = ?", (row,))
        self._taken_rows[request] = row
        if row <= self._earlier and source is not None:
            self._intake.resume(request, source)
        return request

    def _set_aside(self, row: int, url: str, reason: str) -> None:
        with self._transaction():
            self._execute("DELETE FROM temp.earlier WHERE id = ?", (row,))
            self._execute("INSERT INTO aside SELECT * FROM line WHERE id = ?", (row,))
            self._execute("DELETE FROM line WHERE id = ?", (row,))
        self._context.recorder.set_aside(
            "jobdir/set_aside",
            f"the request of {url} that waited in the JOBDIR cannot be read: {reason}; it is kept "
            f"in the table aside of {self._path}, and the next run tries it again",
        )

    def stands_for(self, request: Request) -> bool:
        """Whether an earlier run has left the same request. Each one counts only once."""
        if not self._earlier:
            return False
        same = self._execute(
            "SELECT earlier.id, request FROM temp.earlier LEFT JOIN line USING (id)"
            " WHERE earlier.url = ? AND earlier.form = ? LIMIT 1",
            (request.url, form_of(request)),
        ).fetchone()
        if same is None:
            return False
        row, data = same
        self._execute("DELETE FROM temp.earlier WHERE id = ?", (row,))
        try:
            return data is None or bool(self._read(request.url, data))
        except ValueError:
            return False

    def first(self, host: str) -> str | None:
        """Return the first URL in *host*'s queue, or None."""
        cursor = self._execute(f"SELECT url {_ORDER} LIMIT 1", (host,))
        row: tuple[str] | None = cursor.fetchone()
        if row is None:
            return None
        return row[0]

    def _delete_ended(self) -> None:
        under_way = compat.under_way(self._context.crawler)
        for request in [request for request in self._taken_rows if request not in under_way]:
            self._execute("DELETE FROM taken WHERE id = ?", (self._taken_rows.pop(request),))

    def take(self, host: str, is_refused: Callable[[str], bool]) -> list[Request]:
        """Take out all requests of *host* if *is_refused* of their URL is true.

        An unreadable request stays until its turn comes.
        """
        out = []
        with self._transaction():
            for row, url in self._execute(f"SELECT id, url {_ORDER}", (host,)).fetchall():
                if not is_refused(url):
                    continue
                (data,) = self._execute("SELECT request FROM line WHERE id = ?", (row,)).fetchone()
                with suppress(ValueError):
                    out.append(self._read(url, data))
                    self._execute("DELETE FROM line WHERE id = ?", (row,))
        return out

    def _read(self, url: str, data: Any) -> Request:
        """Return the request for *url* in *data*. Raises ValueError with the reason."""
        try:
            request = request_from_dict(pickle.loads(data), spider=self._context.crawler.spider)  # noqa: S301
            if request.url != url:
                raise ValueError("it is damaged")
        except Exception as error:  # whatever a project's classes raise
            raise ValueError(one_line(error, 200) or type(error).__name__) from error
        return request

    def counts(self) -> Iterable[tuple[str, int]]:
        """Return each host and the number of its requests."""
        return self._execute("SELECT host, count(*) FROM line GROUP BY host").fetchall()

    def sources(self) -> Iterator[Earlier]:
        """Yield the URLs of earlier runs, in pages, because requests are taken meanwhile."""
        page = "SELECT id, url, source, revisit FROM line WHERE id > ? AND id <= ? LIMIT 100"
        last_id = 0
        while rows := self._execute(page, (last_id, self._earlier)).fetchall():
            last_id = rows[-1][0]
            yield from (row[1:] for row in rows if row[2] is not None)

    def close(self) -> None:
        """Close the file. Taken requests have ended or were pushed again, so they are deleted.

        If the crawl was aborted by a failure, they stay, and the next run puts them back.
        """
        try:
            if self._context.halted is None:
                self._execute("DELETE FROM taken")
        finally:
            self._db.close()
