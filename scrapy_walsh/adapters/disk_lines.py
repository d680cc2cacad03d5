"""The requests of a paused job: one SQLite file in the JOBDIR, whatever the number of hosts.

Scrapy's own layout opens two files for each host, and a process may have a thousand files open. A
request is serialised by pickle, as in Scrapy's default disk queue: the JOBDIR is the project's own.
"""

from __future__ import annotations

import pickle
import sqlite3
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from scrapy.utils.request import request_from_dict

from scrapy_walsh.adapters import compat

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

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
#: What waits from earlier runs, by URL, in a file that SQLite deletes by itself.
_EARLIER = """
CREATE TEMP TABLE earlier (url TEXT, id INTEGER, PRIMARY KEY (url, id)) WITHOUT ROWID;
INSERT INTO earlier SELECT url, id FROM line;
"""
#: The order of the requests of one host.
_ORDER = "FROM line WHERE host = ? ORDER BY rank, priority, start, arrival, id"


class DiskLines:
    """The requests of each host, in a file, in the order in which they go."""

    def __init__(self, directory: str, crawl: Crawl) -> None:
        self._crawl = crawl
        self._crawler = crawl.crawler
        self._scope = crawl.scope
        self._db = sqlite3.connect(Path(directory) / "requests.sqlite3", isolation_level=None)
        self._db.execute("PRAGMA journal_mode=WAL")
        self._db.execute("PRAGMA synchronous=NORMAL")
        self._db.executescript(f"BEGIN; {_TABLE} COMMIT;")
        self._put_back()
        #: The last row that an earlier run wrote. A declared request up to there declares again the
        #: URLs in its meta when it is taken; what a callback has pushed since declares nothing.
        (self._earlier,) = self._db.execute("SELECT ifnull(max(id), 0) FROM line").fetchone()
        self._db.executescript(_EARLIER)
        #: By fingerprint, how many of those were given out before `Spider.start` had ended, and how
        #: many requests of `start` they stood for.
        self._given_out: Counter[bytes] = Counter()
        self._stood_for: Counter[bytes] = Counter()
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

    def push(self, host: str, key: tuple[int, int, bool, int], request: Request) -> None:
        """Add *request* to *host*'s queue; ValueError where it cannot be serialised."""
        try:
            data = pickle.dumps(self._crawl.intake.kept(request), protocol=4)
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            raise ValueError(str(error)) from error
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
        (row,) = self._db.execute(f"SELECT id {_ORDER} LIMIT 1", (host,)).fetchone()
        self._db.execute("BEGIN")
        try:
            self._forget_done()
            self._db.execute("INSERT INTO taken SELECT * FROM line WHERE id = ?", (row,))
            request = self._take(row)
        finally:
            self._db.execute("COMMIT")
        self._taken[request] = row
        if row <= self._earlier and self._scope.is_source(request.url):
            self._crawl.intake.declare(request)
        return request

    def stands_for(self, request: Request) -> bool:
        """Whether an earlier run has left the same request here; each stands for one that comes."""
        fingerprint = self._fingerprint(request)
        waiting = self._db.execute(
            "SELECT request FROM temp.earlier JOIN line USING (id) WHERE earlier.url = ?",
            (request.url,),
        )
        left = self._among(request, waiting)
        if self._stood_for[fingerprint] >= self._given_out[fingerprint] + left:
            return False
        self._stood_for[fingerprint] += 1
        return True

    def _among(self, request: Request, rows: Iterable[tuple[bytes]]) -> int:
        """How many of *rows*, serialised requests, are the same as *request*."""
        fingerprint = self._fingerprint(request)
        return sum(self._fingerprint(self._request(data)) == fingerprint for (data,) in rows)

    def _fingerprint(self, request: Request) -> bytes:
        found: bytes = self._crawler.request_fingerprinter.fingerprint(request)
        return found

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
            return [self._take(row) for row, url in rows if refused(url)]
        finally:
            self._db.execute("COMMIT")

    def _take(self, row: int) -> Request:
        (data,) = self._db.execute("SELECT request FROM line WHERE id = ?", (row,)).fetchone()
        self._db.execute("DELETE FROM line WHERE id = ?", (row,))
        request = self._request(data)
        if row <= self._earlier and not self._crawl.started:
            self._given_out[self._fingerprint(request)] += 1
        return request

    def _request(self, data: bytes) -> Request:
        return request_from_dict(pickle.loads(data), spider=self._crawler.spider)  # noqa: S301

    def counts(self) -> Iterable[tuple[str, int]]:
        """Hosts, and how many requests wait for each."""
        rows: Iterable[tuple[str, int]] = self._db.execute(
            "SELECT host, count(*) FROM line GROUP BY host"
        ).fetchall()
        return rows

    def sources(self) -> Iterable[tuple[str, str]]:
        """URLs that wait, and the declared target that each belongs to (R6), from earlier runs."""
        rows: Iterable[tuple[str, str]] = self._db.execute(
            "SELECT DISTINCT url, source FROM line WHERE source IS NOT NULL"
        ).fetchall()
        return rows

    def close(self) -> None:
        """Close the file; each request that was taken has ended, or was pushed again."""
        self._db.execute("DELETE FROM taken")
        self._db.close()
