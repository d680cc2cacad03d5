"""``walsh plan``: what the next run would request and skip, and how long it takes; sends nothing.

The spider names its targets, ``policy/chain.py`` judges them by what is stored, and
``policy/throttle.py`` and ``agenda.py`` say in which order the hosts would have their requests.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from typing import TYPE_CHECKING

from scrapy_walsh import fleet
from scrapy_walsh.commands.check_answer import Misuse, printable
from scrapy_walsh.commands.plan_account import as_document, as_lines
from scrapy_walsh.commands.plan_judge import plan
from scrapy_walsh.config import WalshConfig, has_identity
from scrapy_walsh.exceptions import WalshError
from scrapy_walsh.state import files
from scrapy_walsh.state.database import DATABASE
from scrapy_walsh.state.memory import MemoryStore
from scrapy_walsh.state.sqlite import SqliteStore

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from scrapy_walsh.spiders.walsh_metadata import WalshMetadataSpider
    from scrapy_walsh.state.base import RecordStore

#: Seconds that an answer is assumed to take.
_LATENCY = 0.2


def main(argv: Sequence[str]) -> int:
    """Plan. Exit codes: 0 the next run would request a target, 1 it would not, 2 misuse."""
    args = _parser().parse_args(argv)
    try:
        return _plan(args)
    except WalshError as error:
        print(f"walsh plan: {printable(str(error))}", file=sys.stderr)
    return 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="walsh plan",
        description="What would the next run of walsh_metadata request? Nothing is sent.",
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("-a", metavar="NAME=VALUE", action="append", default=[], help="the spider's arguments")
    add("-s", "--set", metavar="NAME=VALUE", action="append", default=[], help="a Scrapy setting")
    add("--latency", type=float, default=_LATENCY, metavar="S", help="assumed seconds an answer")
    add("--json", action="store_true", help="answer with one JSON object")
    return parser


def _plan(args: argparse.Namespace) -> int:
    if not 0 <= args.latency < 3600:
        raise Misuse(f"--latency {args.latency:g} is not a number of seconds")
    config = _config(_pairs("-s", args.set))
    spider = _spider(_pairs("-a", args.a))
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


def _pairs(option: str, given: list[str]) -> dict[str, str]:
    pairs = {}
    for assignment in given:
        name, equals, value = assignment.partition("=")
        if not (name and equals):
            raise Misuse(f"{option} {assignment!r} is not NAME=VALUE")
        pairs[name] = value
    return pairs


def _config(assigned: dict[str, str]) -> WalshConfig:
    from scrapy.utils.project import get_project_settings  # noqa: PLC0415  slow

    from scrapy_walsh.adapters.context import default_state_dir  # noqa: PLC0415  slow

    settings = get_project_settings()
    for name, value in assigned.items():
        settings.set(name, value, priority="cmdline")
    if not has_identity(settings):
        raise Misuse("no identity: WALSH_IDENTITY is not set: set it in the project, or by -s")
    return WalshConfig.from_settings(settings, default_state_dir)


def _spider(arguments: dict[str, str]) -> WalshMetadataSpider:
    from scrapy_walsh.spiders.walsh_metadata import WalshMetadataSpider  # noqa: PLC0415  slow

    spider = WalshMetadataSpider(**arguments)
    if spider.refusal is not None:
        raise Misuse(spider.refusal)
    return spider


def _store(directory: Path | None) -> RecordStore:
    """The store in *directory*, or an empty one: a plan makes no state directory."""
    names = (DATABASE, files.COPY)
    if directory is None or not any((directory / name).exists() for name in names):
        return MemoryStore()
    return SqliteStore(directory)
