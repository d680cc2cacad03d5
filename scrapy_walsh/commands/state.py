"""``walsh state``: shows, drops and verifies what the bot has stored."""

from __future__ import annotations

import argparse
import json
import time
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from scrapy_walsh import fleet
from scrapy_walsh.commands import common, state_verify
from scrapy_walsh.commands.common import Misuse
from scrapy_walsh.commands.state_forget import forget
from scrapy_walsh.commands.state_show import Now, as_lines, everything, summary
from scrapy_walsh.commands.terminal import show
from scrapy_walsh.policy.words import plural, visible
from scrapy_walsh.state.database import has_records
from scrapy_walsh.state.machine import steady_clock
from scrapy_walsh.state.store import MemoryStore, SqliteStore

if TYPE_CHECKING:
    from collections.abc import Iterator

    from scrapy_walsh.config import WalshConfig
    from scrapy_walsh.state.store import Store


def add_options(parser: argparse.ArgumentParser) -> None:
    """What ``walsh state`` takes."""
    shared = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    shared.add_argument(
        "--dir", type=Path, metavar="DIR", help="the state directory (default: of the settings)"
    )
    common.add_settings(shared)
    add = common.actions_of(parser, shared)
    show = add("show", _show, "hosts due and deferred, documents and ages, sources and next run")
    show.add_argument("--limit", type=int, default=50, metavar="N", help="rows of a table")
    show.add_argument("--all", action="store_true", help="every record, a JSON object a line")
    forgets = add("forget", _forget, "drop what is stored of a host, but for promises to it")
    forgets.add_argument("host", metavar="HOST", help="host or host:port")
    add("verify", _verify, "check the files, every row, and the copy of the blocklist")


def run(args: argparse.Namespace) -> int:
    """Run the action."""
    config = common.read_config(args, args.dir)
    if args.dir is not None:  # that directory alone is shown
        config = replace(config, shared_state=None)
    directory: Path | None = args.dir or config.state_dir
    if directory is None:
        raise Misuse("WALSH_STATE_DIR is memory, which does not outlive a run; see --dir")
    shown = args.action is _show and config.shared_state is not None
    if not (has_records(directory) or shown):
        raise Misuse(
            f"no state in {directory}: no crawl kept any; run in the project, or give --dir"
        )
    code: int = args.action(args, config, directory)
    return code


@contextmanager
def _told(store: Store) -> Iterator[None]:
    """Close the *store* at the end; what it found damaged, and did about it, goes to stderr."""
    try:
        yield
    finally:
        common.tell("state", *store.notices)
        store.close()


# -- the actions --------------------------------------------------------------------------


def _show(args: argparse.Namespace, config: WalshConfig, directory: Path) -> int:
    shared = config.shared_state
    local: Store = SqliteStore(directory) if has_records(directory) else MemoryStore()
    steady = steady_clock(directory, keeps=False)
    store = fleet.view(local, shared, config.identity.token, steady)
    now = Now(time.time(), steady())
    with _told(store):
        if args.all:
            show(map(json.dumps, everything(store, config, now)))
            return 0
        found = summary(store, config, directory, now, max(0, args.limit))
    common.answer(args, found, as_lines(found))
    return 0


def _forget(args: argparse.Namespace, config: WalshConfig, directory: Path) -> int:
    host = common.host_named(args.host)
    store = SqliteStore(directory)
    with _told(store):
        done = forget(store, host, time.time(), config.revisit)
    dropped, kept = (
        ", ".join(f"{name} {count}" for name, count in counts.items() if count)
        for counts in (done.dropped, done.kept)
    )
    lines = [visible(f"forgotten of {host}: {dropped or 'nothing'}")]
    if kept:
        why = "last requests, holds and R8's last runs are promises to the host"
        lines.append(f"kept: {kept}: {why} (WALSH_REVISIT_REASON lifts R8 for a run)")
    common.answer(args, {"host": host, "dropped": done.dropped, "kept": done.kept}, lines)
    return 0 if dropped or kept else 1


def _verify(args: argparse.Namespace, config: WalshConfig, directory: Path) -> int:  # noqa: ARG001
    aside, problems = (
        state_verify.set_aside(directory),
        list(state_verify.problems(directory, common.blocklist_of)),
    )
    said = plural(len(problems), "problem") if problems else "in order"
    left = [f"set aside by an earlier run: {name}" for name in aside]
    members = {"directory": str(directory), "problems": problems, "set_aside": aside}
    common.answer(args, members, map(visible, [*problems, *left, f"{directory}: {said}"]))
    return 1 if problems else 0
