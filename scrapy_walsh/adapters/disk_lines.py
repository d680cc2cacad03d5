"""The requests of a paused job: one SQLite file in the JOBDIR, whatever the number of hosts.

Scrapy's own layout opens two files for each host, and a process may have a thousand files open. A
request is serialised by pickle, as in Scrapy's default disk queue: the JOBDIR is the project's own.
"""

from __future__ import annotations

import pickle
import sqlite3
from pathlib import Path
from typing import TYPE_CHECKING

from scrapy.utils.request import request_from_dict

from scrapy_walsh.adapters import compat
from scrapy_walsh.adapters.asked import form_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from scrapy import Request

    from scrapy_walsh.adapters.crawl import Crawl

_TABLE = """
CREATE TABLE IF NOT EXISTS line (
    id INTEGER PRIMARY KEY AUTOINCREMENT, host TEXT NOT NULL, rank INTEGER NOT NULL,
    priority INTEGER NOT NULL, start INTEGER NOT NULL, arrival INTEGER NOT NULL,
    url TEXT NOT NULL, source TEXT, request BLOB NOT NULL
);
CREATE INDEX IF NOT EXISTS line_order ON line (host, rank, priority, start, arrival, id);
CREATE TABLE IF NOT EXISTS taken AS SELECT * FROM line WHERE false;
"""
#: What earlier runs left, by URL, in a file that SQLite deletes by itself. ``form``: of what was
#: given out, where it was not a plain GET. A row goes when `Spider.start` has named it again.
_EARLIER = """
CREATE TEMP TABLE earlier (url TEXT, id INTEGER, form TEXT, PRIMARY KEY (url, id)) WITHOUT ROWID
"""
#: The order of the requests of one host.
_ORDER = "FROM line WHERE host = ? ORDER BY rank, priority, start, arrival, id"
_FIRST = f"SELECT id, source, request {_ORDER} LIMIT 1"
_PAGE = "SELECT id, url, source FROM line WHERE id > ? AND id <= ? ORDER BY id LIMIT 100"


class DiskLines:
    """The requests of each host, in a file, in the order in which they go."""

    def __init__(self, directory: str, crawl: Crawl) -> None:
        self._crawl = crawl
        self._crawler = crawl.crawler
        self._scope = crawl.scope
        self._db = sqlite3.connect(Path(directory) / "requests.sqlite3", isolation_level=None)
        self._db.execute("PRAGMA journal_mode=WAL")
        self._db.execute("PRAGMA synchronous=NORMAL")
        # 16 MB, four times the default: each of a host's requests is in a page of its own, and is
        # written to the file half as often. A request waits 25 ms for that at most.
        self._db.execute("PRAGMA wal_autocheckpoint=4000")
        self._db.executescript(f"BEGIN; {_TABLE} COMMIT;")
        self._put_back()
        #: The last row that an earlier run wrote. A declared request up to there declares again the
        #: URLs in its meta when it is taken; what a callback has pushed since declares nothing.
        (self._earlier,) = self._db.execute("SELECT ifnull(max(id), 0) FROM line").fetchone()
        self._db.execute(_EARLIER)
        #: The last row that :meth:`sources` has put in there.
        self._known = 0
        #: Requests that were taken, and their rows, which the next run puts back after a crash.
        self._taken: dict[Request, int] = {}

    def _put_back(self) -> None:
        """Put back what a killed run had taken, unless it had pushed the same request again."""
        self._db.execute("BEGIN")
        try:
            for row, host, url, data in self._db.execute(
                "SELECT id, host, url, request FROM taken"
            ):
                again = self._db.execute(
                    "SELECT request FROM line WHERE host = ? AND url = ?", (host, url)
                )
                if not self._among(self._request(data), again):
                    self._db.execute("INSERT INTO line SELECT * FROM taken WHERE id = ?", (row,))
            self._db.execute("DELETE FROM taken")
        finally:
            self._db.execute("COMMIT")

    def check(self, request: Request) -> bytes:
        """*request*, serialised; ValueError where it cannot be."""
        try:
            return pickle.dumps(self._crawl.intake.kept(request), protocol=4)
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            raise ValueError(str(error)) from error

    def push(self, host: str, key: tuple[int, int, bool, int], request: Request) -> None:
        """Add *request* to *host*'s queue; ValueError where it cannot be serialised."""
        data = self.check(request)
        self._db.execute(
            "INSERT INTO line (host, rank, priority, start, arrival, url, source, request)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            (host, *key, request.url, self._scope.source_of(request.url), data),
        )
        # After the row: what a kill leaves out of both is named again, and what is in the row alone
        # is sent a second time at worst.
        compat.write_seen(self._crawler)

    def pop(self, host: str) -> Request:
        """Take the first request of *host*'s queue."""
        row, source, data = self._db.execute(_FIRST, (host,)).fetchone()
        self._db.execute("BEGIN")
        try:
            self._forget_done()
            self._db.execute("INSERT INTO taken SELECT * FROM line WHERE id = ?", (row,))
            request = self._take(row, data)
        finally:
            self._db.execute("COMMIT")
        self._taken[request] = row
        if row <= self._earlier and source is not None:
            if row > self._known:
                self._crawl.intake.restore(request.url, source)
            if self._scope.is_source(request.url):
                self._crawl.intake.declare(request)  # with what it named when it was declared
        return request

    def stands_for(self, request: Request) -> bool:
        """Whether an earlier run has left the same request here; each stands for one that comes."""
        if not self._earlier:
            return False
        wanted = form_of(request)
        rows = self._db.execute(
            "SELECT id, form, request FROM temp.earlier LEFT JOIN line USING (id)"
            " WHERE earlier.url = ?",
            (request.url,),
        ).fetchall()
        for row, form, data in rows:
            if wanted == (form or "" if data is None else form_of(self._request(data))):
                where = (request.url, row)
                self._db.execute("DELETE FROM temp.earlier WHERE url = ? AND id = ?", where)
                return True
        return False

    def _among(self, request: Request, rows: Iterable[tuple[bytes]]) -> bool:
        """Whether *rows*, serialised requests for the URL of *request*, have the same request."""
        return any(form_of(self._request(data)) == form_of(request) for (data,) in rows)

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
            self._db.execute("DELETE FROM taken WHERE id = ?", (self._taken.pop(request),))

    def take(self, host: str, refused: Callable[[str], bool]) -> list[Request]:
        """Take out every request of *host* for whose URL *refused* is true."""
        rows = self._db.execute(f"SELECT id, url {_ORDER}", (host,)).fetchall()
        self._db.execute("BEGIN")
        try:
            return [self._take(row, self._data(row)) for row, url in rows if refused(url)]
        finally:
            self._db.execute("COMMIT")

    def _data(self, row: int) -> bytes:
        (data,) = self._db.execute("SELECT request FROM line WHERE id = ?", (row,)).fetchone()
        return bytes(data)

    def _take(self, row: int, data: bytes) -> Request:
        self._db.execute("DELETE FROM line WHERE id = ?", (row,))
        request = self._request(data)
        if row <= self._earlier and self._scope.growing:
            self._note_given_out(row, request)
        return request

    def _note_given_out(self, row: int, request: Request) -> None:
        """`Spider.start` may name *request* again, unless it has done so: then its row is gone."""
        form = form_of(request)
        if row > self._known:
            given_out = (request.url, row, form)
            self._db.execute("INSERT INTO temp.earlier VALUES (?, ?, ?)", given_out)
        elif form:
            self._db.execute(
                "UPDATE temp.earlier SET form = ? WHERE url = ? AND id = ?",
                (form, request.url, row),
            )

    def _request(self, data: bytes) -> Request:
        return request_from_dict(pickle.loads(data), spider=self._crawler.spider)  # noqa: S301

    def counts(self) -> Iterable[tuple[str, int]]:
        """Hosts, and how many requests wait for each."""
        rows: Iterable[tuple[str, int]] = self._db.execute(
            "SELECT host, count(*) FROM line GROUP BY host"
        ).fetchall()
        return rows

    def sources(self) -> Iterator[tuple[str, str]]:
        """URLs that wait, and the declared target that each belongs to (R6), from earlier runs.

        Some at a time, since requests are taken out meanwhile. :meth:`stands_for` knows them then.
        """
        while rows := self._db.execute(_PAGE, (self._known, self._earlier)).fetchall():
            self._db.executemany(
                "INSERT INTO temp.earlier (url, id) VALUES (?, ?)",
                ((url, row) for row, url, _ in rows),
            )
            self._known = rows[-1][0]
            yield from ((url, source) for _, url, source in rows if source is not None)

    def close(self) -> None:
        """Close the file; each request that was taken has ended, or was pushed again."""
        self._db.execute("DELETE FROM taken")
        self._db.close()
