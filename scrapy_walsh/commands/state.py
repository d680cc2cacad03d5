"""``walsh state``: shows, drops, exports, imports and verifies what the bot has stored.

Exit codes: 0 done and in order, 1 not in order, 2 misuse, or a directory that cannot be used.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from scrapy_walsh import fleet
from scrapy_walsh.commands.check_answer import Misuse, absolute, blocklist_of, printable, told
from scrapy_walsh.commands.project import read_config
from scrapy_walsh.commands.state_show import as_lines, summary
from scrapy_walsh.exceptions import WalshError
from scrapy_walsh.policy import hosts
from scrapy_walsh.state import files, transfer, verify
from scrapy_walsh.state.database import DATABASE
from scrapy_walsh.state.forget import forget
from scrapy_walsh.state.memory import MemoryStore
from scrapy_walsh.state.sqlite import SqliteStore

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from scrapy_walsh.config import WalshConfig
    from scrapy_walsh.state.base import RecordStore


def main(argv: Sequence[str]) -> int:
    """Run ``walsh state ACTION``; see the module for the exit codes."""
    args = _parser().parse_args(argv)
    action: Callable[[argparse.Namespace, WalshConfig, Path], int] = args.action
    try:
        config = read_config(args.dir)
        return action(args, config, _directory(args, config))
    except BrokenPipeError:  # the reader has gone; the interpreter would flush again at its exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (WalshError, OSError) as error:
        print(f"walsh state: {told(error)}", file=sys.stderr)
    return 2


def _parser() -> argparse.ArgumentParser:
    common = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    common.add_argument(
        "--dir", type=Path, metavar="DIR", help="the state directory (default: of the settings)"
    )
    parser = argparse.ArgumentParser(
        prog="walsh state", description="What the bot has stored.", allow_abbrev=False
    )
    actions = parser.add_subparsers(metavar="ACTION", required=True)

    def add(name: str, action: object, summary: str) -> argparse.ArgumentParser:
        made = actions.add_parser(name, parents=[common], help=summary, description=summary)
        made.set_defaults(action=action)
        return made

    show = add("show", _show, "hosts due and deferred, documents and ages, sources and next run")
    show.add_argument("--json", action="store_true", help="everything, as one JSON object")
    show.add_argument("--limit", type=int, default=50, metavar="N", help="lines of a table")
    forgets = add("forget", _forget, "drop what is stored of a host, but for promises to it")
    forgets.add_argument("host", metavar="HOST", help="host or host:port")
    exports = add("export", _export, "write every record as a JSON line")
    exports.add_argument("file", nargs="?", default="-", metavar="FILE", help="default: stdout")
    exports.add_argument(
        "--schema", type=int, choices=range(1, transfer.LATEST + 1), default=transfer.LATEST,
        help="for an earlier version of this package: its schema version",
    )  # fmt: skip
    imports = add("import", _import, "take in records that were exported; holds only grow")
    imports.add_argument("file", nargs="?", default="-", metavar="FILE", help="default: stdin")
    add("verify", _verify, "check the files, every row, and the copy of the blocklist")
    return parser


# -- where --------------------------------------------------------------------------------


def _directory(args: argparse.Namespace, config: WalshConfig) -> Path:
    directory: Path | None = args.dir or config.state_dir
    if directory is None:
        raise Misuse("WALSH_STATE_DIR is memory, which does not outlive a run; see --dir")
    shown = args.action is _show and _shared(args, config) is not None
    if not (_holds(directory) or shown or args.action is _import):
        raise Misuse(
            f"no state in {directory}: no crawl kept any; run in the project, or give --dir"
        )
    return directory


def _holds(directory: Path) -> bool:
    return any((directory / name).exists() for name in (DATABASE, files.COPY))


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
def _told(store: RecordStore) -> Iterator[None]:
    try:
        yield
    finally:
        for notice in store.notices:
            print(f"walsh state: {printable(notice)}", file=sys.stderr)
        store.close()


# -- the actions --------------------------------------------------------------------------


def _show(args: argparse.Namespace, config: WalshConfig, directory: Path) -> int:
    shared = _shared(args, config)
    held = _holds(directory) or shared is None
    local: RecordStore = SqliteStore(directory) if held else MemoryStore()
    store = fleet.view(local, shared, config.identity.token)
    with _told(store):
        found = summary(store, config, directory, time.time())
    if args.json:
        print(json.dumps(found))
    else:
        for line in as_lines(found, max(0, args.limit)):
            print(printable(line))
    return 0


def _forget(args: argparse.Namespace, config: WalshConfig, directory: Path) -> int:
    host = hosts.host_key(absolute(args.host))
    with _opened(directory) as store:
        done = forget(store, host, time.time(), config.revisit)
    dropped = ", ".join(f"{name} {count}" for name, count in done.dropped.items() if count)
    kept = ", ".join(f"{name} {count}" for name, count in done.kept.items() if count)
    print(f"forgotten of {printable(host)}: {dropped or 'nothing'}")
    if kept:
        print(
            f"kept: {kept}: last requests, holds and R8's last runs are promises to the host "
            "(WALSH_REVISIT_REASON lifts R8 for a run)"
        )
    return 0 if dropped or kept else 1


def _export(args: argparse.Namespace, config: WalshConfig, directory: Path) -> int:  # noqa: ARG001
    with _opened(directory) as store, _out(args.file) as out:
        for line in transfer.export_lines(store, directory, args.schema):
            out.write(line.encode("ascii") + b"\n")
    return 0


def _import(args: argparse.Namespace, config: WalshConfig, directory: Path) -> int:  # noqa: ARG001
    with _in(args.file) as lines, _opened(directory) as store:
        taken, problems = transfer.import_lines(store, directory, lines, blocklist_of, time.time())
    for problem in problems:
        print(f"walsh state: {printable(problem)}", file=sys.stderr)
    print(f"records read: {taken}; lines that could not be: {len(problems)}")
    return 1 if problems else 0


def _verify(args: argparse.Namespace, config: WalshConfig, directory: Path) -> int:  # noqa: ARG001
    found = 0
    for found, problem in enumerate(verify.problems(directory, blocklist_of), 1):  # noqa: B007
        print(printable(problem))
    for name in verify.set_aside(directory):
        print(f"set aside by an earlier run: {printable(name)}")
    print(f"{printable(str(directory))}: {f'{found} problems' if found else 'in order'}")
    return 1 if found else 0


@contextmanager
def _out(path: str) -> Iterator[BinaryIO]:
    if path == "-":
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
    else:
        with Path(path).open("wb") as file:
            yield file


@contextmanager
def _in(path: str) -> Iterator[BinaryIO]:
    if path == "-":
        yield sys.stdin.buffer
    else:
        with Path(path).open("rb") as file:
            yield file
