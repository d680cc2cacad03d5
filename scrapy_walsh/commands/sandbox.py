"""``walsh sandbox``: serve the sandbox until SIGINT or SIGTERM."""

from __future__ import annotations

import contextlib
import json
import signal
import threading
from typing import TYPE_CHECKING

from scrapy_walsh.commands.common import Misuse
from scrapy_walsh.proof.sandbox import Sandbox, default_sites, load_sites

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator


def add_options(parser: argparse.ArgumentParser) -> None:
    """What ``walsh sandbox`` takes."""
    add = parser.add_argument
    add("--port", type=int, default=0, metavar="N", help="port to listen on (default: any)")
    add("--log", metavar="FILE", help="append a JSON line for every request")
    add(
        "--sites", metavar="FILE",
        help="sites (JSON or TOML) to add, or to put in place of default ones",
    )  # fmt: skip
    add(
        "--direct-host", metavar="HOST", default="reference.test",
        help="the site that answers when the port is asked directly (default: %(default)s)",
    )  # fmt: skip
    add(
        "--json", "--print-port", action="store_true",
        help="print one JSON object when ready: port, proxy",
    )  # fmt: skip
    add("--max-seconds", type=float, metavar="N", help="stop after that long (default: never)")


def run(args: argparse.Namespace) -> int:
    """Serve until a signal or ``--max-seconds``."""
    if not 0 <= args.port < 65536:
        raise Misuse(f"--port {args.port} is no port: 0 to 65535")
    sites = [*default_sites(), *(load_sites(args.sites) if args.sites else ())]
    with (
        _signals() as stop,
        Sandbox(sites, port=args.port, log_path=args.log, direct_host=args.direct_host) as box,
    ):
        ready = {"port": box.port, "proxy": box.proxy_url}
        said = f"sandbox ready: http_proxy={box.proxy_url}"
        print(json.dumps(ready) if args.json else said, flush=True)
        stop.wait(args.max_seconds)
    return 0


@contextlib.contextmanager
def _signals() -> Iterator[threading.Event]:
    """An event that SIGINT and SIGTERM set; their handlers are put back at the end."""
    stop = threading.Event()
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = [signal.signal(number, lambda *_: stop.set()) for number in numbers]
    try:
        yield stop
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)
