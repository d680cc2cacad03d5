"""The requests of a paused job: one SQLite file in the JOBDIR, whatever the number of hosts.

Scrapy's own layout opens two files for each host, and a process may have a thousand files open. A
request is serialised by pickle, as in Scrapy's default disk queue: the JOBDIR is the project's own.
SQLite's own lock shows that another process uses the file. The system drops the lock when that
process ends, however it ends.

A row that cannot be read any more (its callback was renamed, its class is gone, it is damaged) goes
to the table ``aside``, from which the next run tries it again.
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

#: ``form``: of ``urls.form_of``. ``source``: the declared target that the URL belongs to.
#: ``revisit``: the cadence of that, seconds; null where WALSH_REVISIT holds (R8). What a killed run
#: had taken is put back, unless it had pushed the same request again.
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
    """A table of the file, as ``state.forms`` knows it."""

    name: str
    create: str
    definitions: Mapping[str, str] = _COLUMNS


_DEFINED = ", ".join(f"{name} {definition}" for name, definition in _COLUMNS.items())
_TABLES: Final = (
    _Table("line", f"CREATE TABLE IF NOT EXISTS line ({_DEFINED})"),
    _Table("taken", "CREATE TABLE IF NOT EXISTS taken AS SELECT * FROM line WHERE false"),
    _Table("aside", "CREATE TABLE IF NOT EXISTS aside AS SELECT * FROM line WHERE false"),
)
#: The steps by which the file of an older form becomes one of this form (D16).
_STEPS: Final[forms.Steps] = {}
_PRICE: Final = "in another JOBDIR the requests that wait in this one are lost"
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
#: What earlier runs left, in a file that SQLite deletes by itself. A row goes when `Spider.start`
#: has named its request again.
_EARLIER = """
CREATE TEMP TABLE earlier AS SELECT id, url, form FROM line;
CREATE INDEX temp.earlier_url ON earlier (url, form);
"""
_DAMAGED = """
SELECT id, url FROM line
WHERE typeof(host) <> 'text' OR typeof(url) <> 'text' OR typeof(source) NOT IN ('text', 'null')
    OR typeof(revisit) NOT IN ('real', 'null')
"""
#: The order of the requests of one host.
_ORDER = "FROM line WHERE host = ? ORDER BY rank, priority, arrival, id"
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
    return _open(Path(directory, "requests.queue")) if directory else None


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
            db.close()  # it has the file for itself
        if isinstance(error, StateError):
            raise
        raise _unusable(path, error) from error
    return db


def _prepare(db: Connection, path: Path) -> None:
    if db.execute("SELECT 1 FROM sqlite_master").fetchone():
        _bring_up_to_date(db, path)
    db.execute("PRAGMA journal_mode=WAL")
    db.execute("PRAGMA synchronous=NORMAL")
    # 16 MB, four times the default: each of a host's requests is in a page of its own, and is
    # written to the file half as often. A request waits 25 ms for that at most.
    db.execute("PRAGMA wal_autocheckpoint=4000")
    db.execute("BEGIN IMMEDIATE")
    with db:
        for table in _TABLES:
            db.execute(table.create)
        forms.sign(db)
    db.executescript(f"BEGIN IMMEDIATE; {_BEGIN} COMMIT;")
    db.executescript(_EARLIER)


def _bring_up_to_date(db: Connection, path: Path) -> None:
    """Give a file of an older form this one; StateError where a later version wrote it."""
    db.execute(_OURS)  # another program's has none
    if not forms.form_of(db):  # 0.2.0 gave it no number
        db.execute("PRAGMA user_version=1")
    if not forms.is_current(db, path, _TABLES, _STEPS, _PRICE):
        line = forms.upgrade(db, path, _TABLES, _STEPS, _PRICE)
        logger.warning("%s", line)


def _unusable(path: Path, error: Exception) -> StateError:
    """What to raise where *error* was met with the file *path*: one line that says what to do."""
    name = getattr(error, "sqlite_errorname", "")
    if name.startswith("SQLITE_BUSY"):
        return StateError(
            f"the JOBDIR of {path} is in use by another process: let that one end, or set another"
        )
    if name == "SQLITE_NOTADB" or "no such" in str(error):
        return StateError(f"{path} is not a queue of scrapy_walsh: set another JOBDIR")
    why = one_line(error, 200)
    return StateError(
        f"{path} cannot be used ({why}): free or repair the disk, or set another JOBDIR"
    )


class DiskLines:
    """The requests of each host, in a file, in the order in which they go.

    Where the file cannot be read or written, each method raises StateError.
    """

    is_lasting = True

    def __init__(
        self, directory: str, context: Context, intake: Intake, job: Connection | None
    ) -> None:
        self._context, self._intake = context, intake
        self._path = Path(directory) / "requests.sqlite3"
        self._db = job or _open(Path(directory))
        #: The last row that an earlier run wrote. A declared request up to there declares again the
        #: URLs in its meta when it is taken; what a callback has pushed since declares nothing.
        (self._earlier,) = self._execute("SELECT ifnull(max(id), 0) FROM line").fetchone()
        #: Requests that were taken, and their rows, which the next run puts back after a crash.
        self._taken: dict[Request, int] = {}
        for row, url in self._execute(_DAMAGED).fetchall():
            self._set_aside(row, str(url), "its host, URL, target or cadence is none")

    def _execute(self, statement: str, values: tuple[object, ...] = ()) -> sqlite3.Cursor:
        try:
            return self._db.execute(statement, values)
        except sqlite3.Error as error:
            raise _unusable(self._path, error) from error

    @contextmanager
    def _at_once(self) -> Iterator[None]:
        """All of what is done within, or nothing of it."""
        self._execute("BEGIN")
        try:
            with self._db:
                yield
        except sqlite3.Error as error:
            raise _unusable(self._path, error) from error

    def check(self, request: Request) -> bytes:
        """*request*, serialised; ValueError where it cannot be."""
        try:
            return pickle.dumps(self._intake.kept(request), protocol=4)
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            raise ValueError(str(error)) from error

    def push(self, host: str, key: tuple[int, int, int], request: Request) -> None:
        """Add *request* to *host*'s queue; ValueError where it cannot be serialised."""
        url, data = request.url, self.check(request)
        source = self._context.scope.source_of(url)
        own = self._context.scope.cadence(source or "")
        self._execute(_INSERT, (host, *key, url, form_of(request), source, own, data))
        # After the row: what a kill leaves out of both is named again, and what is in the row alone
        # is sent a second time at worst.
        try:
            compat.write_seen(self._context.crawler)
        except OSError as error:
            raise _unusable(self._path.with_name("requests.seen"), error) from error

    def pop(self, host: str) -> Request | None:
        """Take the first request of *host*'s queue; None where it is unreadable, and set aside."""
        found = self._execute(f"SELECT id, url, source, request {_ORDER} LIMIT 1", (host,))
        row, url, source, data = found.fetchone()
        try:
            request = self._read(url, data)
        except ValueError as error:
            self._set_aside(row, url, str(error))
            return None
        with self._at_once():
            self._forget_done()
            self._execute("INSERT INTO taken SELECT * FROM line WHERE id = ?", (row,))
            self._execute("DELETE FROM line WHERE id = ?", (row,))
        self._taken[request] = row
        if row <= self._earlier and source is not None:
            self._intake.resume(request, source)
        return request

    def _set_aside(self, row: int, url: str, why: str) -> None:
        with self._at_once():
            self._execute("DELETE FROM temp.earlier WHERE id = ?", (row,))
            self._execute("INSERT INTO aside SELECT * FROM line WHERE id = ?", (row,))
            self._execute("DELETE FROM line WHERE id = ?", (row,))
        self._context.recorder.set_aside(
            "jobdir/set_aside",
            f"the request of {url} that waited in the JOBDIR cannot be read: {why}; it is kept in "
            f"the table aside of {self._path}, and the next run tries it again",
        )

    def stands_for(self, request: Request) -> bool:
        """Whether an earlier run has left the same request here; each stands for one that comes."""
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
        """The URL that is first in *host*'s queue; None where nothing waits."""
        row = self._execute(f"SELECT url {_ORDER} LIMIT 1", (host,)).fetchone()
        return None if row is None else row[0]

    def _forget_done(self) -> None:
        under_way = compat.under_way(self._context.crawler)
        for request in [each for each in self._taken if each not in under_way]:
            self._execute("DELETE FROM taken WHERE id = ?", (self._taken.pop(request),))

    def take(self, host: str, refused: Callable[[str], bool]) -> list[Request]:
        """Take out every request of *host* for whose URL *refused* is true.

        What is unreadable stays, until its turn comes.
        """
        out = []
        with self._at_once():
            for row, url in self._execute(f"SELECT id, url {_ORDER}", (host,)).fetchall():
                if not refused(url):
                    continue
                (data,) = self._execute("SELECT request FROM line WHERE id = ?", (row,)).fetchone()
                with suppress(ValueError):
                    out.append(self._read(url, data))
                    self._execute("DELETE FROM line WHERE id = ?", (row,))
        return out

    def _read(self, url: str, data: Any) -> Request:
        """The request for *url* in *data*; ValueError, which says why, where there is none."""
        try:
            request = request_from_dict(pickle.loads(data), spider=self._context.crawler.spider)  # noqa: S301
            if request.url != url:
                raise ValueError("it is damaged")
        except Exception as error:  # whatever a project's classes raise
            raise ValueError(one_line(error, 200) or type(error).__name__) from error
        return request

    def counts(self) -> Iterable[tuple[str, int]]:
        """Hosts, and how many requests wait for each."""
        return self._execute("SELECT host, count(*) FROM line GROUP BY host").fetchall()

    def sources(self) -> Iterator[Earlier]:
        """What earlier runs have left. Some at a time, since requests are taken out meanwhile."""
        page = "SELECT id, url, source, revisit FROM line WHERE id > ? AND id <= ? LIMIT 100"
        last = 0
        while rows := self._execute(page, (last, self._earlier)).fetchall():
            last = rows[-1][0]
            yield from (row[1:] for row in rows if row[2] is not None)

    def close(self) -> None:
        """Close the file; each request that was taken has ended, or was pushed again.

        Not where the crawl has ended on account of a failure: then the next run puts them back.
        """
        try:
            if self._context.halted is None:
                self._execute("DELETE FROM taken")
        finally:
            self._db.close()
