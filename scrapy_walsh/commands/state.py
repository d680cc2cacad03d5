"""``walsh state``: shows, drops and verifies what the bot has stored."""

from __future__ import annotations

import argparse
import json
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from scrapy_walsh import fleet
from scrapy_walsh.commands.check_answer import Misuse, absolute, blocklist_of, printable
from scrapy_walsh.commands.project import add_json, add_settings, read_config
from scrapy_walsh.commands.state_show import Now, as_lines, everything, summary
from scrapy_walsh.policy import hosts
from scrapy_walsh.policy.words import plural
from scrapy_walsh.state import verify
from scrapy_walsh.state.clock import steady_clock
from scrapy_walsh.state.database import has_records
from scrapy_walsh.state.forget import forget
from scrapy_walsh.state.store import MemoryStore, SqliteStore
from scrapy_walsh.terminal import show

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from scrapy_walsh.config import WalshConfig
    from scrapy_walsh.state.store import Store


def add_options(parser: argparse.ArgumentParser) -> None:
    """What ``walsh state`` takes."""
    common = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    common.add_argument(
        "--dir", type=Path, metavar="DIR", help="the state directory (default: of the settings)"
    )
    add_settings(common)
    actions = parser.add_subparsers(metavar="ACTION", required=True)

    def add(name: str, action: object, summary: str) -> argparse.ArgumentParser:
        made = actions.add_parser(
            name, parents=[common], help=summary, description=summary, allow_abbrev=False
        )
        add_json(made)
        made.set_defaults(action=action)
        return made

    show = add("show", _show, "hosts due and deferred, documents and ages, sources and next run")
    show.add_argument("--limit", type=int, default=50, metavar="N", help="rows of a table")
    show.add_argument("--all", action="store_true", help="every record, a JSON object a line")
    forgets = add("forget", _forget, "drop what is stored of a host, but for promises to it")
    forgets.add_argument("host", metavar="HOST", help="host or host:port")
    add("verify", _verify, "check the files, every row, and the copy of the blocklist")


def run(args: argparse.Namespace) -> int:
    """Run the action."""
    action: Callable[[argparse.Namespace, WalshConfig, Path], int] = args.action
    config = read_config(args, args.dir)
    return action(args, config, _directory(args, config))


# -- where --------------------------------------------------------------------------------


def _directory(args: argparse.Namespace, config: WalshConfig) -> Path:
    directory: Path | None = args.dir or config.state_dir
    if directory is None:
        raise Misuse("WALSH_STATE_DIR is memory, which does not outlive a run; see --dir")
    shown = args.action is _show and _shared(args, config) is not None
    if not (has_records(directory) or shown):
        raise Misuse(
            f"no state in {directory}: no crawl kept any; run in the project, or give --dir"
        )
    return directory


def _shared(args: argparse.Namespace, config: WalshConfig) -> str | None:
    """The URL of the fleet's Redis; None with ``--dir``, which shows that directory alone."""
    return config.shared_state if args.dir is None else None


@contextmanager
def _opened(directory: Path) -> Iterator[SqliteStore]:
    """The store; what it found damaged, and did about it, goes to stderr."""
    store = SqliteStore(directory)
    with _told(store):
        yield store


@contextmanager
def _told(store: Store) -> Iterator[None]:
    try:
        yield
    finally:
        for notice in store.notices:
            print(f"walsh state: {printable(notice)}", file=sys.stderr)
        store.close()


# -- the actions --------------------------------------------------------------------------


def _show(args: argparse.Namespace, config: WalshConfig, directory: Path) -> int:
    shared = _shared(args, config)
    held = has_records(directory) or shared is None
    local: Store = SqliteStore(directory) if held else MemoryStore()
    steady = steady_clock(directory, keeps=False)
    store, now = (
        fleet.view(local, shared, config.identity.token, steady),
        Now(time.time(), steady()),
    )
    with _told(store):
        if args.all:
            for record in everything(store, config, now):
                print(json.dumps(record))
            return 0
        found = summary(store, config, directory, now, max(0, args.limit))
    if args.json:
        print(json.dumps(found))
    else:
        show(as_lines(found))
    return 0


def _forget(args: argparse.Namespace, config: WalshConfig, directory: Path) -> int:
    host = hosts.host_key(absolute(args.host))
    with _opened(directory) as store:
        done = forget(store, host, time.time(), config.revisit)
    if args.json:
        print(json.dumps({"host": host, "dropped": done.dropped, "kept": done.kept}))
        return 0 if any(done.dropped.values()) or any(done.kept.values()) else 1
    dropped = ", ".join(f"{name} {count}" for name, count in done.dropped.items() if count)
    kept = ", ".join(f"{name} {count}" for name, count in done.kept.items() if count)
    print(f"forgotten of {printable(host)}: {dropped or 'nothing'}")
    if kept:
        print(
            f"kept: {kept}: last requests, holds and R8's last runs are promises to the host "
            "(WALSH_REVISIT_REASON lifts R8 for a run)"
        )
    return 0 if dropped or kept else 1


def _verify(args: argparse.Namespace, config: WalshConfig, directory: Path) -> int:  # noqa: ARG001
    aside, problems = verify.set_aside(directory), []
    for problem in verify.problems(directory, blocklist_of):
        problems.append(problem)
        if not args.json:
            print(printable(problem), flush=True)
    if args.json:
        found = {"directory": str(directory), "problems": problems, "set_aside": aside}
        print(json.dumps(found))
        return 1 if problems else 0
    for name in aside:
        print(f"set aside by an earlier run: {printable(name)}")
    said = plural(len(problems), "problem") if problems else "in order"
    print(f"{printable(str(directory))}: {said}")
    return 1 if problems else 0
