"""The requests of a paused job: one SQLite file in the JOBDIR, whatever the number of hosts.

Scrapy's own layout opens two files for each host, and a process may have a thousand files open. A
request is serialised by pickle, as in Scrapy's default disk queue: the JOBDIR is the project's own.

A row that cannot be read any more (its callback was renamed, its
class is gone, it is damaged) goes to the table ``aside``, from which the next run tries it again.
"""

from __future__ import annotations

import pickle
import sqlite3
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scrapy.utils.request import request_from_dict

from scrapy_walsh.adapters import compat, jobdir
from scrapy_walsh.adapters.sources import form_of
from scrapy_walsh.state.files import one_line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from scrapy import Request

    from scrapy_walsh.adapters.crawl import Crawl

#: What earlier runs left, by URL, in a file that SQLite deletes by itself. ``form``: of what was
#: given out, where it was not a plain GET. A row goes when `Spider.start` has named it again.
_EARLIER = """
CREATE TEMP TABLE earlier (url TEXT, id INTEGER, form TEXT, PRIMARY KEY (url, id)) WITHOUT ROWID
"""
#: The order of the requests of one host.
_ORDER = "FROM line WHERE host = ? ORDER BY rank, priority, start, arrival, id"
_FIRST = f"SELECT id, url, source, request {_ORDER} LIMIT 1"
_PAGE = "SELECT id, url, source FROM line WHERE id > ? AND id <= ? ORDER BY id LIMIT 100"


class _UnreadableError(ValueError):
    """A row that is no request of this spider's: why."""


class DiskLines:
    """The requests of each host, in a file, in the order in which they go.

    Where the file cannot be read or written, each method raises StateError.
    """

    def __init__(self, directory: str, crawl: Crawl) -> None:
        self._crawl = crawl
        self._crawler = crawl.crawler
        self._scope = crawl.scope
        self._path = Path(directory) / "requests.sqlite3"
        self._db = crawl.job or jobdir.open_in(Path(directory))
        self._put_back()
        #: The last row that an earlier run wrote. A declared request up to there declares again the
        #: URLs in its meta when it is taken; what a callback has pushed since declares nothing.
        (self._earlier,) = self._execute("SELECT ifnull(max(id), 0) FROM line").fetchone()
        self._execute(_EARLIER)
        #: The last row that :meth:`sources` has put in there.
        self._known = 0
        #: Requests that were taken, and their rows, which the next run puts back after a crash.
        self._taken: dict[Request, int] = {}

    def _execute(self, statement: str, values: tuple[object, ...] = ()) -> sqlite3.Cursor:
        try:
            return self._db.execute(statement, values)
        except sqlite3.Error as error:
            raise jobdir.unusable(self._path, error) from error

    @contextmanager
    def _at_once(self) -> Iterator[None]:
        """All of what is done within, or nothing of it."""
        self._execute("BEGIN")
        try:
            with self._db:
                yield
        except sqlite3.Error as error:
            raise jobdir.unusable(self._path, error) from error

    def _put_back(self) -> None:
        """Put back what a killed run had taken, unless it had pushed the same request again."""
        with self._at_once():
            taken = self._execute("SELECT id, host, url, request FROM taken").fetchall()
            for row, host, url, data in taken:
                again = self._execute(
                    "SELECT request FROM line WHERE host = ? AND url = ?", (host, url)
                )
                form = self._form(url, data)
                if form is None or all(self._form(url, each) != form for (each,) in again):
                    self._execute("INSERT INTO line SELECT * FROM taken WHERE id = ?", (row,))
            self._execute("DELETE FROM taken")

    def check(self, request: Request) -> bytes:
        """*request*, serialised; ValueError where it cannot be."""
        try:
            return pickle.dumps(self._crawl.intake.kept(request), protocol=4)
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            raise ValueError(str(error)) from error

    def push(self, host: str, key: tuple[int, int, bool, int], request: Request) -> None:
        """Add *request* to *host*'s queue; ValueError where it cannot be serialised."""
        data = self.check(request)
        self._execute(
            "INSERT INTO line (host, rank, priority, start, arrival, url, source, request)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            (host, *key, request.url, self._scope.source_of(request.url), data),
        )
        # After the row: what a kill leaves out of both is named again, and what is in the row alone
        # is sent a second time at worst.
        try:
            compat.write_seen(self._crawler)
        except OSError as error:
            raise jobdir.unusable(self._path.with_name("requests.seen"), error) from error

    def pop(self, host: str) -> Request | None:
        """Take the first request of *host*'s queue; None where it is unreadable, and set aside."""
        row, url, source, data = self._execute(_FIRST, (host,)).fetchone()
        try:
            if not isinstance(source, str | None):
                raise _UnreadableError("the target that it belongs to is not text")
            request, form = self._read(url, data)
        except _UnreadableError as error:
            self._set_aside(row, str(url), str(error))
            return None
        with self._at_once():
            self._forget_done()
            self._execute("INSERT INTO taken SELECT * FROM line WHERE id = ?", (row,))
            self._take(row, request, form)
        self._taken[request] = row
        if row <= self._earlier and source is not None:
            if row > self._known:
                self._crawl.intake.restore(request.url, source)
            if self._scope.is_source(request.url):
                self._crawl.intake.declare(request)  # with what it named when it was declared
        return request

    def _set_aside(self, row: int, url: str, why: str) -> None:
        with self._at_once():
            self._execute("DELETE FROM temp.earlier WHERE url = ? AND id = ?", (url, row))
            self._execute("INSERT INTO aside SELECT * FROM line WHERE id = ?", (row,))
            self._execute("DELETE FROM line WHERE id = ?", (row,))
        self._crawl.recorder.set_aside(
            "jobdir/set_aside",
            f"the request of {url} that waited in the JOBDIR cannot be read: {why}; it is kept in "
            f"the table aside of {self._path}, and the next run tries it again",
        )

    def stands_for(self, request: Request) -> bool:
        """Whether an earlier run has left the same request here; each stands for one that comes."""
        if not self._earlier:
            return False
        url, wanted = request.url, form_of(request)
        rows = self._execute(
            "SELECT id, form, request FROM temp.earlier LEFT JOIN line USING (id)"
            " WHERE earlier.url = ?",
            (url,),
        ).fetchall()
        for row, form, data in rows:
            if wanted == (form or "" if data is None else self._form(url, data)):
                self._execute("DELETE FROM temp.earlier WHERE url = ? AND id = ?", (url, row))
                return True
        return False

    def first(self, host: str) -> str | None:
        """The URL that is first in *host*'s queue; None for none, or an unreadable file."""
        try:
            row = self._db.execute(f"SELECT url {_ORDER} LIMIT 1", (host,)).fetchone()
        except sqlite3.Error:  # the next pop raises it; here the URL is for an event only
            return None
        return None if row is None else row[0]

    def _forget_done(self) -> None:
        under_way = compat.under_way(self._crawler)
        for request in [each for each in self._taken if each not in under_way]:
            self._execute("DELETE FROM taken WHERE id = ?", (self._taken.pop(request),))

    def take(self, host: str, refused: Callable[[str], bool]) -> list[Request]:
        """Take out every request of *host* for whose URL *refused* is true.

        What is unreadable stays, until its turn comes.
        """
        out = []
        with self._at_once():
            for row, url in self._execute(f"SELECT id, url {_ORDER}", (host,)).fetchall():
                if isinstance(url, str) and refused(url):
                    (data,) = self._execute(
                        "SELECT request FROM line WHERE id = ?", (row,)
                    ).fetchone()
                    with suppress(_UnreadableError):
                        request, form = self._read(url, data)
                        self._take(row, request, form)
                        out.append(request)
        return out

    def _take(self, row: int, request: Request, form: str) -> None:
        """Take the row out. `Spider.start` may name *request* again, unless it has done so."""
        self._execute("DELETE FROM line WHERE id = ?", (row,))
        if row > self._earlier or not self._scope.growing:
            return
        if row > self._known:
            given_out = (request.url, row, form)
            self._execute("INSERT INTO temp.earlier VALUES (?, ?, ?)", given_out)
        elif form:
            self._execute(
                "UPDATE temp.earlier SET form = ? WHERE url = ? AND id = ?",
                (form, request.url, row),
            )

    def _read(self, url: object, data: Any) -> tuple[Request, str]:
        """The request for *url* in *data*, and its form; _UnreadableError where there is none."""
        try:
            request = request_from_dict(pickle.loads(data), spider=self._crawler.spider)  # noqa: S301
            if request.url != url:
                raise ValueError("it is damaged")
            return request, form_of(request)
        except Exception as error:  # whatever a project's classes raise
            raise _UnreadableError(one_line(error) or type(error).__name__) from error

    def _form(self, url: str, data: bytes) -> str | None:
        """The form of the request for *url* in *data*; None where it cannot be read."""
        try:
            return self._read(url, data)[1]
        except _UnreadableError:
            return None

    def counts(self) -> Iterable[tuple[str, int]]:
        """Hosts, and how many requests wait for each; a damaged host's are set aside."""
        for host, count, row in self._execute(
            "SELECT host, count(*), min(id) FROM line GROUP BY host"
        ).fetchall():
            if isinstance(host, str) and "\ufffd" not in host:
                yield host, count
                continue
            of_host = "SELECT id, url FROM line WHERE host = (SELECT host FROM line WHERE id = ?)"
            for damaged, url in self._execute(of_host, (row,)).fetchall():
                self._set_aside(damaged, str(url), "its host is not text")

    def sources(self) -> Iterator[tuple[str, str]]:
        """URLs that wait, and the declared target that each belongs to (R6), from earlier runs.

        Some at a time, since requests are taken out meanwhile. :meth:`stands_for` knows them then.
        """
        while rows := self._execute(_PAGE, (self._known, self._earlier)).fetchall():
            for row, url, _ in rows:
                self._execute("INSERT INTO temp.earlier (url, id) VALUES (?, ?)", (url, row))
            self._known = rows[-1][0]
            for _, url, source in rows:
                if isinstance(url, str) and isinstance(source, str):
                    yield url, source

    def close(self) -> None:
        """Close the file; each request that was taken has ended, or was pushed again.

        Not where the crawl has ended on account of a failure: then the next run puts them back.
        """
        try:
            if self._crawl.halted is None:
                self._execute("DELETE FROM taken")
        finally:
            self._db.close()
