"""``walsh plan``: what the next run of a spider would request and skip, and when; sends nothing.

The run is a real one, by a virtual clock, with a copy of the state and without a wire
(:mod:`scrapy_walsh.commands.plan_crawl`), in a process that can open no connection.
"""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Final

from scrapy_walsh.commands import own_process
from scrapy_walsh.commands.check_answer import Misuse, printable
from scrapy_walsh.commands.plan_account import as_lines
from scrapy_walsh.commands.project import add_json, add_settings, given_settings, pairs

if TYPE_CHECKING:
    import argparse

_CRAWL: Final = "scrapy_walsh.commands.plan_clock"
#: The spider whose run is told where none is named.
_SPIDER: Final = "walsh_metadata"
#: Seconds that an answer is assumed to take.
_LATENCY: Final = 0.2
#: Seconds that making the plan may take.
_TIMEOUT: Final = 3600.0


def add_options(parser: argparse.ArgumentParser) -> None:
    """What ``walsh plan`` takes."""
    add = parser.add_argument
    add("spider", metavar="SPIDER", nargs="?", default=_SPIDER, help=f"by default {_SPIDER}")
    add("-a", metavar="NAME=VALUE", action="append", default=[], help="the spider's arguments")
    add("--latency", type=float, default=_LATENCY, metavar="S", help="assumed seconds an answer")
    add_settings(parser)
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Have the run planned in a process of its own, and print what it would do."""
    if not 0 <= args.latency < 3600:
        raise Misuse(f"--latency {args.latency:g} is not a number of seconds")
    given = {
        "spider": args.spider,
        "arguments": pairs("-a", args.a),
        "settings": given_settings(args),
        "latency": args.latency,
    }
    try:
        found = own_process.ask(_CRAWL, given, _TIMEOUT)
    except own_process.NoAnswerError as error:
        raise Misuse(f"planning the run {error}") from error
    if "misuse" in found:
        raise Misuse(found["misuse"])
    for notice in found["notices"]:
        print(f"walsh plan: {printable(notice)}", file=sys.stderr)
    if args.json:
        print(json.dumps(found))
    else:
        print("\n".join(printable(line) for line in as_lines(found)))
    return 0 if any(host["urls"] for host in found["hosts"]) else 1
