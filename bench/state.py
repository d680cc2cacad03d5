"""Cost of the state store: per request, opening, and per row on disk.

Run: ``python -m bench.state [HOSTS]`` (default 100000). A request is: its host and its
validators read, then host, validators and source written. To reach: 100 us a request.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from scrapy_walsh.state import open_store
from scrapy_walsh.state.records import HostRecord, Validators, VisitRecord
from scrapy_walsh.state.store import Store

REQUESTS = 5000


def one_request(store: Store, number: int, now: float) -> None:
    host = f"h{number * 7919 % 100_003}.test"
    url = f"https://{host}/feed.xml"
    store.get(HostRecord, host)
    store.get(Validators, url, "feed", "")
    store.put(HostRecord(host, now, 1.0))
    store.put(Validators(url, "feed", '"abc"', "Mon, 01 Jan 2024 00:00:00 GMT", now))
    store.put(VisitRecord(url, now, "200"))


def fill(store: Store, hosts: int) -> None:
    """Write through the store's own bulk path, so that the rows are the real ones."""
    assert isinstance(store, Store)
    for start in range(0, hosts, 10_000):
        names = range(start, min(start + 10_000, hosts))
        store.put(*[HostRecord(f"h{n}.test", 1.7e9 + n, 1.0) for n in names])


def timed_requests(store: Store, label: str) -> None:
    costs = []
    for number in range(REQUESTS):
        began = time.perf_counter()
        one_request(store, number, 1.7e9 + number)
        costs.append(time.perf_counter() - began)
    costs.sort()
    print(
        f"{label}: mean {sum(costs) / REQUESTS * 1e6:.0f} us, median {median(costs) * 1e6:.0f} us, "
        f"99 % {costs[int(REQUESTS * 0.99)] * 1e6:.0f} us, most {costs[-1] * 1e3:.1f} ms"
    )


def main() -> None:
    hosts = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
    timed_requests(open_store(None), "memory, a request")
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder)
        store = open_store(directory)
        timed_requests(store, "SQLite, a request, new file")
        began = time.perf_counter()
        fill(store, hosts)
        print(f"{hosts} hosts written in {time.perf_counter() - began:.2f} s")
        timed_requests(store, f"SQLite, a request, {hosts} hosts")
        store.close()
        size = (directory / "state.sqlite3").stat().st_size
        print(f"file: {size / 1e6:.1f} MB, {size / hosts:.0f} B a host")
        began = time.perf_counter()
        store = open_store(directory)
        print(f"opened in {(time.perf_counter() - began) * 1e3:.1f} ms, notices {store.notices}")
        began = time.perf_counter()
        rows = sum(1 for _ in store.rows(HostRecord))
        print(f"{rows} hosts listed in {time.perf_counter() - began:.2f} s")
        store.close()


if __name__ == "__main__":
    main()
