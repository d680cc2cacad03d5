"""``walsh sandbox``: serve the sandbox until SIGINT or SIGTERM."""

from __future__ import annotations

import signal
import threading
from typing import TYPE_CHECKING

from scrapy_walsh.commands import common
from scrapy_walsh.commands.common import Misuse
from scrapy_walsh.proof.sandbox import Sandbox, default_sites, load_sites

if TYPE_CHECKING:
    import argparse


def add_options(parser: argparse.ArgumentParser) -> None:
    """What ``walsh sandbox`` takes."""
    add = parser.add_argument
    add(
        "--port",
        type=int,
        default=0,
        metavar="N",
        help="port to listen on (default: any)",
    )
    add("--log", metavar="FILE", help="append a JSON line for every request")
    add(
        "--sites",
        metavar="FILE",
        help="sites (JSON or TOML) to add, or in place of default ones",
    )
    common.add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Serve until a signal."""
    if not 0 <= args.port < 65536:
        raise Misuse(f"--port {args.port} is no port: 0 to 65535")
    sites = [*default_sites(), *(load_sites(args.sites) if args.sites else ())]
    with Sandbox(sites, port=args.port, log_path=args.log) as box:
        stop = threading.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: stop.set())
        ready = {"port": box.port, "proxy": box.proxy_url}
        common.answer(args, ready, [f"sandbox ready: http_proxy={box.proxy_url}"])
        stop.wait()
    return 0
