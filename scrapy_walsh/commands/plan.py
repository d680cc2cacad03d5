"""``walsh plan``: what the next run would request and skip, and how long it takes; sends nothing.

The spider names its targets, ``policy/chain.py`` judges them by what is stored, and
``policy/throttle.py`` and ``agenda.py`` say in which order the hosts would have their requests.
"""

from __future__ import annotations

import json
import sys
import time
from typing import TYPE_CHECKING

from scrapy_walsh import fleet
from scrapy_walsh.commands.check_answer import Misuse, printable
from scrapy_walsh.commands.plan_account import as_document, as_lines
from scrapy_walsh.commands.plan_judge import plan
from scrapy_walsh.commands.project import (
    add_json,
    add_settings,
    default_state_dir,
    pairs,
    settings_to_send,
)
from scrapy_walsh.config import WalshConfig
from scrapy_walsh.state.base import MemoryStore
from scrapy_walsh.state.database import has_records
from scrapy_walsh.state.sqlite import SqliteStore

if TYPE_CHECKING:
    import argparse
    from pathlib import Path

    from scrapy_walsh.spiders.walsh_metadata import WalshMetadataSpider
    from scrapy_walsh.state.base import Store

#: Seconds that an answer is assumed to take.
_LATENCY = 0.2


def add_options(parser: argparse.ArgumentParser) -> None:
    """What ``walsh plan`` takes."""
    add = parser.add_argument
    add("-a", metavar="NAME=VALUE", action="append", default=[], help="the spider's arguments")
    add("--latency", type=float, default=_LATENCY, metavar="S", help="assumed seconds an answer")
    add_settings(parser)
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Have the spider name its targets, judge them, and print what a run would do."""
    if not 0 <= args.latency < 3600:
        raise Misuse(f"--latency {args.latency:g} is not a number of seconds")
    config = WalshConfig.from_settings(settings_to_send(args), default_state_dir)
    spider = _spider(pairs("-a", args.a))
    problems, spider.problems = spider.problems, []  # which its start would log
    for problem in problems:
        print(f"walsh plan: {printable(problem)}", file=sys.stderr)
    store = fleet.view(_store(config.state_dir), config.shared_state, config.identity.token)
    try:
        found = plan(spider, config, store, time.time(), args.latency)
    finally:
        store.close()
    for notice in [*store.notices, *found.notices]:
        print(f"walsh plan: {printable(notice)}", file=sys.stderr)
    if args.json:
        print(json.dumps(as_document(found)))
    else:
        print("\n".join(printable(line) for line in as_lines(found)))
    return 0 if any(host.urls for host in found.hosts) else 1


def _spider(arguments: dict[str, str]) -> WalshMetadataSpider:
    from scrapy_walsh.spiders.walsh_metadata import WalshMetadataSpider  # noqa: PLC0415  slow

    spider = WalshMetadataSpider(**arguments)
    if spider.refusal is not None:
        raise Misuse(spider.refusal)
    return spider


def _store(directory: Path | None) -> Store:
    """The store in *directory*, or an empty one: a plan makes no state directory."""
    return SqliteStore(directory) if directory and has_records(directory) else MemoryStore()
