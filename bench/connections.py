"""What a crawl would gain if it kept a host's connection for its next request (D29).

Run: ``python bench/connections.py [--json FILE] [--quick] [--loads NAME ...] [--rounds N]``.

This package opens a connection for each request. Beside it, in turns, the same hosts are crawled by
a prototype that keeps one: at most one in the process, closed before another host is requested,
kept for two seconds at most, and nothing is sent again by itself. Only this benchmark has it, and
only for Scrapy's handler on Twisted.

All is over TLS 1.3, through a proxy on loopback that passes each octet on after 25 ms. It cannot
delay the handshake of TCP, so the first octets of a connection wait for that handshake's 50 ms.
A request on a connection of its own takes three round trips of 50 ms, the next one on the same
connection takes one. The server answers at once.

``took s`` comes from the sandbox's log, the least of the rounds: from the first request to a host
of the load to the last answer. ``less``: the share of it that keeping a connection saves. ``a later
day``: the target does not follow its robots.txt at once (T1), as in every run but a host's first.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
import tempfile
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

sys.path[0] = str(Path(__file__).resolve().parents[1])  # bench/queue.py is not Python's queue

from bench import makespan  # noqa: E402
from bench.report import Row, show, write  # noqa: E402
from scrapy_walsh.adapters import compat, handler  # noqa: E402
from scrapy_walsh.proof.sandbox import (  # noqa: E402
    LoggedRequest,
    Route,
    Sandbox,
    Site,
    default_sites,
    read_log,
    requests,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from scrapy import Request

ITSELF: Final = (sys.executable, str(Path(__file__).resolve()))
TRIP: Final = 0.05
#: The hosts are 127.0.1.1 and on: no names to look up, and one port for all of them.
NETWORK: Final = "127.0.1."
INTERVAL: Final = 1.0
#: Seconds for which the prototype keeps a connection that nothing is sent on.
KEPT: Final = 2.0
SIDES: Final = ("one each", "kept")


@dataclass(frozen=True)
class Load:
    """``hosts`` with so many ``targets`` each; ``robots``: what robots.txt says beside one rule."""

    hosts: int
    targets: int
    settings: dict[str, Any] = field(default_factory=dict)
    robots: str = ""


LATER: Final = {"WALSH_PACE_ROBOTS": True}
LOADS: Final = {
    "50 x 5": Load(50, 5),
    "50 x 5, a later day": Load(50, 5, LATER),
    "50 x 5, Crawl-delay 0": Load(50, 5, robots="Crawl-delay: 0\n"),
    "5 x 50": Load(5, 50),
    "1 x 30": Load(1, 30),
    "100 x 1": Load(100, 1),
    "100 x 1, a later day": Load(100, 1, LATER),
}
QUICK: Final = {"1 x 2": Load(1, 2)}
COLUMNS = {
    "load": "<21", "side": "<8", "requests": ">8", "connections": ">11",
    "took s": ">7.2f", "less": ">6.1%", "violations": ">10", "in flight": ">9",
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", type=Path, help="write the rows to this file as well")
    parser.add_argument("--quick", action="store_true", help="one tiny load, to see that it works")
    parser.add_argument("--loads", nargs="+", choices=LOADS, default=list(LOADS))
    parser.add_argument("--rounds", type=int, default=1)
    options = parser.parse_args()
    loads = QUICK if options.quick else {name: LOADS[name] for name in options.loads}
    rows = show(
        (row for name in loads for row in compared(name, loads[name], options.rounds)), COLUMNS
    )
    write(options.json, benchmark="connections", trip=TRIP, rows=rows)


def compared(name: str, load: Load, rounds: int) -> Iterator[Row]:
    """A row for each side; the sides take turns."""
    runs = [{side: log_of(load, side) for side in SIDES} for _ in range(rounds)]
    base = 0.0
    for side in SIDES:
        seen = min((run[side] for run in runs), key=makespan.duration)
        took = makespan.duration(seen)
        base = base or took
        yield {
            "load": name,
            "side": side,
            "requests": len(seen),
            "connections": len({record.connection for record in seen}),
            "took s": round(took, 3),
            "less": round(1 - took / base, 4),
            "violations": makespan.violations(seen, INTERVAL),
            "in flight": max(record.in_flight for record in seen),
        }


def log_of(load: Load, side: str) -> list[LoggedRequest]:
    """What the server saw, in order; every target must have been requested once."""
    addresses = [f"{NETWORK}{number}" for number in range(1, load.hosts + 1)]
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder, "log.jsonl")
        with server(addresses, load.robots, log) as (port, proxy):
            urls = [f"https://{host}:{port}/{n}" for n in range(load.targets) for host in addresses]
            subprocess.run(
                [*ITSELF, CRAWL, side, json.dumps(load.settings)],
                input=json.dumps(urls),
                text=True,
                cwd=folder,
                env=makespan.environment(http_proxy=proxy, https_proxy="", no_proxy=""),
                check=True,
            )
        seen = [each for each in requests(read_log(log)) if each.host.startswith(NETWORK)]
    found = Counter(record.path for record in seen if record.path != "/robots.txt")
    assert found == Counter({f"/{n}": load.hosts for n in range(load.targets)}), f"{side}: {found}"
    return seen


# -- the server, behind the delay: a process of its own -------------------------------------------

SERVE = "serve"
CRAWL = "crawl"


@contextmanager
def server(addresses: list[str], more: str, log: Path) -> Iterator[tuple[int, str]]:
    """The port on which each of *addresses* is a host over TLS, and the sandbox's own address."""
    with subprocess.Popen(
        [*ITSELF, SERVE, str(log), more, json.dumps(addresses)],
        stdout=subprocess.PIPE,
        env=makespan.environment(),
    ) as process:
        assert process.stdout is not None
        try:
            ready = json.loads(process.stdout.readline())
            yield ready["port"], ready["proxy"]
        finally:
            process.terminate()


def serve(log: str, more: str, addresses: list[str]) -> None:
    routes = {
        "/robots.txt": Route(body=f"User-agent: *\nAllow: /\n{more}", content_type="text/plain"),
        "*": Route(body="<p>page</p>"),
    }
    sites = [*default_sites(), *(Site(address, routes) for address in addresses)]
    with Sandbox(sites, log_path=log) as box:
        asyncio.run(delayed(box, addresses))


async def delayed(box: Sandbox, addresses: list[str]) -> None:
    """Accept on *addresses*, and open the way to the same name in the sandbox."""

    async def accepted(client: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        begun = asyncio.get_running_loop().time()
        host, port = writer.get_extra_info("sockname")[:2]
        server, sandbox = await asyncio.open_connection("127.0.0.1", box.port)
        sandbox.write(f"CONNECT {host}:{port} HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n".encode())
        await server.readuntil(b"\r\n\r\n")
        # The handshake's SYN and its answer come before the first octet that a client sends.
        await asyncio.gather(
            relay(client, sandbox, begun + TRIP),
            relay(server, writer, begun),
            return_exceptions=True,
        )

    port = 0
    for address in addresses:
        listening = await asyncio.start_server(accepted, address, port)
        port = listening.sockets[0].getsockname()[1]
    print(json.dumps({"port": port, "proxy": box.proxy_url}), flush=True)
    await listening.serve_forever()


async def relay(source: asyncio.StreamReader, to: asyncio.StreamWriter, opened: float) -> None:
    """Hand on what *source* says half a round trip later, its end too, and not before *opened*."""
    clock = asyncio.get_running_loop().time
    under_way: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()

    async def arrive() -> None:
        data = b"-"
        while data:
            due, data = await under_way.get()
            await asyncio.sleep(due - clock())
            to.write(data)
        to.close()

    arriving = asyncio.ensure_future(arrive())
    data = b"-"
    while data:
        try:
            data = await source.read(65536)
        except OSError:
            data = b""
        under_way.put_nowait((max(clock(), opened) + TRIP / 2, data))
    await arriving


# -- the crawling process ------------------------------------------------------------------------


def crawl(side: str, more: dict[str, Any]) -> None:
    if side == "kept":
        keep_one_connection()
    makespan.crawl_with({**makespan.settings("ours", INTERVAL), **more})


def keep_one_connection() -> None:
    """Let this process keep the connection of the host that was requested last, and no other."""
    send = handler.Handler._send
    last = ""

    def persistent(inner: Any) -> None:
        inner._pool.persistent = True
        inner._pool.retryAutomatically = False
        inner._pool.maxPersistentPerHost = 1
        inner._pool.cachedConnectionTimeout = KEPT

    async def send_on(self: Any, inner: Any, request: Request, ticket: Any) -> Any:
        nonlocal last
        host = self.crawl.pacing.host_of(request.url).key
        if host != last:
            for each in self._inner.values():
                close_at_once(each._pool)
        last = host
        return await send(self, inner, request, ticket)

    compat.no_persistent_connections = persistent
    handler.Handler._send = send_on


def close_at_once(pool: Any) -> None:
    """Close what *pool* keeps, without waiting for the other side's end of the TLS."""
    kept = [each for connections in pool._connections.values() for each in connections]
    pool.closeCachedConnections()
    for connection in kept:
        connection.transport.abortConnection()


if __name__ == "__main__":
    if sys.argv[1:2] == [SERVE]:
        serve(sys.argv[2], sys.argv[3], json.loads(sys.argv[4]))
    elif sys.argv[1:2] == [CRAWL]:
        crawl(sys.argv[2], json.loads(sys.argv[3]))
    else:
        main()
