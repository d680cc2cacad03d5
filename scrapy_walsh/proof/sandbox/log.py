"""The sandbox's log: a record per request, as it arrived, and functions to judge it by."""

from __future__ import annotations

import json
import math
import time
from dataclasses import asdict, dataclass, replace
from operator import attrgetter
from pathlib import Path
from typing import IO, TYPE_CHECKING

import msgspec

from scrapy_walsh.policy.urls import DEFAULT_PORT
from scrapy_walsh.proof.exchanges import Exchange
from scrapy_walsh.proof.exchanges import gaps as neighbours

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


@dataclass(frozen=True)
class LoggedRequest:
    """One request.

    ``arrived``: monotonic seconds when the header block had been read completely. ``completed``:
    monotonic seconds when the last octet was handed to the kernel, or the client left; None while
    the request is still being answered. Pieces that the kernel takes at once have the time before
    that. The client may have them while this process waits for its turn, and a gap that begins
    later would seem too short. ``wall``: Unix seconds of the arrival. ``host``: ``host[:port]`` as
    the request names it. ``target``: the raw request target. ``path``: its path, raw, without the
    query. ``headers``: every header line, in order, names in their own case, duplicates kept.
    ``connection``: number of the TCP connection, from 1. ``in_flight``: requests being answered at
    the arrival, including this request. ``status``: the status sent, or None when no status line
    was sent. ``sent``: octets of the answer, its head included, that the kernel took.
    """

    arrived: float
    completed: float | None
    wall: float
    scheme: str
    host: str
    method: str
    target: str
    path: str
    headers: tuple[tuple[str, str], ...]
    connection: int
    in_flight: int = 0
    status: int | None = None
    sent: int = 0

    @property
    def key(self) -> str:
        """The host, as :func:`host_key` has it: a site by another spelling is the same."""
        return host_key(self.scheme, self.host)

    def values(self, name: str) -> list[str]:
        """The values of every header line of that name, in order."""
        return [value for key, value in self.headers if key.lower() == name.lower()]


class RequestLog:
    """Records in order of arrival; a JSON line is written, and flushed, when each is completed."""

    def __init__(self, path: Path | str | None = None) -> None:
        self._records: list[LoggedRequest] = []
        self._pending: set[int] = set()
        self._cleared = 0
        self._file: IO[str] | None = None
        if path:
            self._file = Path(path).open("a", encoding="utf-8")  # noqa: SIM115 (see close)

    def begin(self, request: LoggedRequest) -> int:
        """Note *request*, which has just arrived. Returns its number, for ``end``."""
        number = self._cleared + len(self._records)
        self._pending.add(number)
        self._records.append(replace(request, in_flight=len(self._pending)))
        return number

    def end(
        self,
        number: int,
        status: int | None,
        sent: int = 0,
        completed: float | None = None,
    ) -> None:
        """Record that request ``number`` was completed, *sent* octets of its answer later.

        ``completed``: when, monotonic seconds; now for None.
        """
        if completed is None:
            completed = time.monotonic()
        self._pending.discard(number)
        index = number - self._cleared
        if index < 0:
            return
        record = replace(self._records[index], completed=completed, status=status, sent=sent)
        self._records[index] = record
        if self._file is not None:
            self._file.write(json.dumps(asdict(record)) + "\n")
            self._file.flush()

    @property
    def so_far(self) -> Sequence[LoggedRequest]:
        """The records themselves, not a copy: to be read in the server's thread only."""
        return self._records

    def clear(self) -> None:
        """Drop the records. Requests still being answered keep counting as in flight."""
        self._cleared += len(self._records)
        self._records.clear()

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


def read_log(path: Path | str) -> list[LoggedRequest]:
    """The records of a JSON lines file, in order of arrival."""
    lines = Path(path).read_bytes().splitlines()
    records = [msgspec.json.decode(line, type=LoggedRequest) for line in lines]
    return sorted(records, key=_arrival)


def host_key(scheme: str, host: str) -> str:
    """``host[:port]`` in lower case, without user information, trailing dot or default port."""
    key = host.rpartition("@")[2].lower().removesuffix(f":{DEFAULT_PORT.get(scheme)}")
    name = without_port(key)
    return name.rstrip(".") + key[len(name) :]


def without_port(host: str) -> str:
    """The name in ``host[:port]``; an IPv6 address keeps its brackets."""
    name, colon, port = host.rpartition(":")
    if colon and port.isdigit():
        return name
    return host


def requests(log: Iterable[LoggedRequest], host: str | None = None) -> list[LoggedRequest]:
    """The requests of the log, or of a single host (``host[:port]``), in order of arrival.

    A CONNECT is left out: it opens the way for a request and is not one itself.
    """
    exchanged_requests = (request for request in log if request.method != "CONNECT")
    return sorted(
        (request for request in exchanged_requests if host is None or request.key == host.lower()),
        key=_arrival,
    )


_arrival = attrgetter("arrived")


def hosts(log: Iterable[LoggedRequest]) -> list[str]:
    """Every host that had a request, CONNECT included, in order of first arrival."""
    return list(dict.fromkeys(request.key for request in sorted(log, key=_arrival)))


def paths(log: Iterable[LoggedRequest], host: str | None = None) -> list[str]:
    """The paths requested, in order of arrival, repetitions kept."""
    return [record.path for record in requests(log, host)]


def exchanged(
    log: Iterable[LoggedRequest], host: str | None = None
) -> list[Exchange[LoggedRequest]]:
    """The requests of the log, or of a single host, as :mod:`scrapy_walsh.proof.exchanges` has
    them.
    """
    return [
        Exchange(
            request.key,
            request.path,
            request.arrived,
            math.inf if request.completed is None else request.completed,
            request.status,
            request,
        )
        for request in requests(log, host)
    ]


def gaps(
    log: Iterable[LoggedRequest],
    host: str | None = None,
    *,
    start_to_start: bool = False,
) -> list[float]:
    """Seconds between neighbouring requests of a host (of all hosts when None).

    From the completion of an exchange to the arrival of the next: negative if they overlap, minus
    infinity if the earlier exchange has not ended. With ``start_to_start``, from arrival to
    arrival.
    """
    pairs = neighbours(exchange._replace(host="") for exchange in exchanged(log, host))
    return [gap.apart if start_to_start else gap.rest for gap in pairs]


def max_in_flight(log: Iterable[LoggedRequest]) -> int:
    """The largest number of requests that were being answered at once; 0 for an empty log."""
    return max((record.in_flight for record in requests(log)), default=0)


def user_agents(log: Iterable[LoggedRequest]) -> set[str]:
    """Every User-Agent value seen. A request without one adds the empty string."""
    return {value for record in requests(log) for value in record.values("User-Agent") or [""]}
