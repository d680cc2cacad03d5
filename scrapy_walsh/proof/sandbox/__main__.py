"""``python -m scrapy_walsh.proof.sandbox``: serve the sandbox until SIGINT or SIGTERM."""

from __future__ import annotations

import argparse
import contextlib
import json
import signal
import sys
import threading
from typing import TYPE_CHECKING

from .scenario import default_sites
from .server import Sandbox
from .sitefile import load_sites

if TYPE_CHECKING:
    from collections.abc import Iterator


def main(argv: list[str]) -> int:
    """Serve until a signal or ``--max-seconds``. Exit codes: 0 stopped, 2 misuse."""
    options = _parser().parse_args(argv)
    try:
        sites = [*default_sites(), *(load_sites(options.sites) if options.sites else ())]
        with (
            _signals() as stop,
            Sandbox(
                sites, port=options.port, log_path=options.log, direct_host=options.direct_host
            ) as box,
        ):
            _announce(box, as_json=options.print_port)
            stop.wait(options.max_seconds)
    except (OSError, ValueError) as error:
        print(f"sandbox: {error}", file=sys.stderr)
        return 2
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


def _announce(box: Sandbox, *, as_json: bool) -> None:
    ready = {"port": box.port, "proxy": box.proxy_url}
    print(
        json.dumps(ready) if as_json else f"sandbox ready: http_proxy={box.proxy_url}", flush=True
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="walsh sandbox",
        description="Hosts under .test, reached through a forward proxy on the loopback interface.",
    )
    parser.add_argument("--port", type=int, default=0, help="port to listen on (default: any)")
    parser.add_argument("--log", metavar="FILE", help="append a JSON line for every request")
    parser.add_argument(
        "--sites",
        metavar="FILE",
        help="sites (JSON or TOML) to add, or to put in place of default ones",
    )
    parser.add_argument(
        "--direct-host",
        metavar="HOST",
        default="reference.test",
        help="the site that answers when the port is asked directly (default: %(default)s)",
    )
    parser.add_argument(
        "--print-port", action="store_true", help="print one JSON line when ready: port, proxy"
    )
    parser.add_argument(
        "--max-seconds", type=float, metavar="N", help="stop after that long (default: never)"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
