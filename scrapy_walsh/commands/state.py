"""R11, ``walsh state``: shows, verifies, backs up and drops what the bot has stored.

What ``forget`` drops was not promised to the host. Promises stay: its last request and its hold
(R4, R5), deferrals (D8), and the last run of a source that is not due yet (R8). An interval that
its answers 429 have taught (D28) was not promised, nor was that it gives no answer (D31). Its
robots.txt stays too, but counts as stale: it is requested again before the next target, and if
there is no answer its rules are still in force (T6).

A hold may be a mistake of its server, for example a Retry-After of the year 2099. ``--hold`` lifts
it, with a reason that is written to the ledger, and drops the host's deferrals (D40).
"""

from __future__ import annotations

import argparse
import json
import sqlite3
import time
from collections import Counter
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scrapy_walsh.commands import common, state_verify
from scrapy_walsh.commands.common import Misuse
from scrapy_walsh.commands.state_show import Now, as_lines, everything, summary
from scrapy_walsh.commands.terminal import show
from scrapy_walsh.config import LEDGER_OFF
from scrapy_walsh.exceptions import one_line
from scrapy_walsh.ledger import Ledger
from scrapy_walsh.policy import hosts, visits
from scrapy_walsh.policy.event import LIFTED
from scrapy_walsh.policy.throttle import NOTHING
from scrapy_walsh.policy.words import plural
from scrapy_walsh.state import files, machine
from scrapy_walsh.state.database import DATABASE, back_up, has_records
from scrapy_walsh.state.machine import steady_clock
from scrapy_walsh.state.records import (
    ATTEMPTS,
    READINGS,
    ROBOTS,
    SEEN_ITEMS,
    SOURCES,
    VALIDATORS,
    Deferral,
    HostRecord,
    StoredDocument,
)
from scrapy_walsh.state.store import MemoryStore, SqliteStore

if TYPE_CHECKING:
    from collections.abc import Iterator

    from scrapy_walsh.config import WalshConfig
    from scrapy_walsh.state.records import Table
    from scrapy_walsh.state.store import Store


def add_options(parser: argparse.ArgumentParser) -> None:
    """What ``walsh state`` takes."""
    shared = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    shared.add_argument(
        "--dir",
        type=Path,
        metavar="DIR",
        help="the state directory (default: of the settings)",
    )
    common.add_settings(shared)
    add = common.actions_of(parser, shared)
    show = add(
        "show",
        _show,
        "hosts due and deferred, documents and ages, sources and next run",
    )
    show.add_argument("--limit", type=int, default=50, metavar="N", help="rows of a table")
    show.add_argument("--all", action="store_true", help="every record, a JSON object a line")
    forgets = add(
        "forget",
        _forget,
        "delete the records of a host, except promises to it",
    )
    forgets.add_argument("host", metavar="HOST", help="host or host:port")
    forgets.add_argument(
        "--hold",
        metavar="REASON",
        help="lift its hold and drop its deferrals, nothing else; the ledger records the reason",
    )
    backup = add(
        "backup",
        _backup,
        "copy the database and the blocklists to DIR, also beside a running crawl",
    )
    backup.add_argument("target", type=Path, metavar="DIR", help="the directory of the copy")
    add(
        "verify",
        _verify,
        "check the files, every row, and the copy of the blocklist",
    )


def run(args: argparse.Namespace) -> int:
    """Run the action."""
    config = common.read_config(args, args.dir)
    if args.dir is not None:  # that directory alone is shown
        config = replace(config, shared_state=None)
    directory: Path | None = args.dir or config.state_dir
    if directory is None:
        raise Misuse("WALSH_STATE_DIR is memory, which does not outlive a run; see --dir")
    of_fleet = args.action is _show or getattr(args, "hold", None) is not None
    is_shown = of_fleet and config.shared_state is not None
    if not (has_records(directory) or is_shown):
        raise Misuse(
            f"no state in {directory}: no crawl kept any; run in the project, or give --dir"
        )
    code: int = args.action(args, config, directory)
    return code


@contextmanager
def _told(store: Store) -> Iterator[None]:
    """Close the *store* at the end; what it found, and did about it, goes to stderr."""
    try:
        yield
    finally:
        common.tell("state", *store.news, *store.notices)
        store.close()


# -- the actions --------------------------------------------------------------------------


def _show(args: argparse.Namespace, config: WalshConfig, directory: Path) -> int:
    shared = config.shared_state
    local: Store = SqliteStore(directory) if has_records(directory) else MemoryStore()
    steady = steady_clock(directory, may_write=False)
    store = common.view(local, shared, config.identity.token, steady)
    now = Now(time.time(), steady())
    with _told(store):
        if args.all:
            show(map(json.dumps, everything(store, config, now)))
            return 0
        records = summary(store, config, directory, now, max(0, args.limit))
    common.answer(args, records, as_lines(records))
    return 0


def _forget(args: argparse.Namespace, config: WalshConfig, directory: Path) -> int:
    host = common.host_named(args.host)
    if args.hold is not None:
        return _lift(args, config, directory, host)
    store = SqliteStore(directory)
    with _told(store):
        dropped, retained = forget(store, host, time.time(), config.revisit)
    texts = [
        ", ".join(f"{name} {count}" for name, count in counts.items() if count) or "nothing"
        for counts in (dropped, retained)
    ]
    lines = [common.printable(f"forgotten of {host}: {texts[0]}")]
    if retained.total():
        reason = "last requests, holds and R8's last runs are promises to the host"
        lines.append(f"kept: {texts[1]}: {reason} (WALSH_REVISIT_REASON lifts R8 for a run)")
    common.answer(args, {"host": host, "dropped": dropped, "kept": retained}, lines)
    if dropped.total() or retained.total():
        return 0
    return 1


def forget(
    store: Store, host: str, now: float, revisit: float
) -> tuple[Counter[str], Counter[str]]:
    """Drop from *store* what concerns *host* (a ``hosts.host_key``) and is not a promise to it.

    *now*: Unix seconds. *revisit*: WALSH_REVISIT in seconds. Returns how many records of each kind
    were dropped, and how many were kept as promises. Raises StateError.
    """
    dropped = Counter[str]()
    retained = Counter[str]()
    tables: tuple[Table[Any], ...] = (
        VALIDATORS,
        ATTEMPTS,
        READINGS,
        SEEN_ITEMS,
        SOURCES,
    )
    for table in tables:
        for record in store.rows(table.record):
            key = table.key_of(record)
            if not _is_of(key[0], host):  # the first of a key is a URL
                continue
            if table is SOURCES and visits.not_due(record.visit, now, revisit, None):
                retained[table.name] += 1
            else:
                dropped[table.name] += 1
                store.delete(table.record, *key)
    for document in store.rows(StoredDocument, ROBOTS):
        if _is_of(document.key, host):
            store.put(replace(document, fetched_at=0.0))
            dropped["freshness of robots.txt"] += 1
    if (pacing := store.get(HostRecord, host)) is not None:
        retained["pacing"] = 1
        dropped["learned interval"] = int(pacing.taught != NOTHING)
        dropped["silence"] = int(pacing.silent_since is not None)
        store.put(replace(pacing, taught=NOTHING, silent_since=None))
    retained["deferrals"] = sum(deferral.host == host for deferral in store.rows(Deferral))
    return dropped, retained


def _lift(args: argparse.Namespace, config: WalshConfig, directory: Path, host: str) -> int:
    """Lift the hold of *host*, here and in a fleet's Redis, and say so in the ledger."""
    reason = one_line(args.hold).strip()
    if not reason:
        raise Misuse("--hold needs a reason, which the ledger records")
    wait = "wait until it has ended, because it still uses the hold"
    if machine.is_running(directory):
        raise Misuse(f"a crawl runs in {directory}: {wait}")
    local = SqliteStore(directory)
    steady = steady_clock(directory, may_write=False)
    store = common.view(local, config.shared_state, config.identity.token, steady, writes=True)
    with _told(store):
        if running := store.crawls():
            raise Misuse(f"{plural(running, 'crawl')} of the fleet at work: {wait}")
        stores = [local] if store is local else [local, store]
        records = [store.get(HostRecord, host) for store in stores]
        is_held = any(record is not None and record.not_before for record in records)
        deferrals = [deferral for store in stores for deferral in store.rows(Deferral)]
        deferred = {deferral.url for deferral in deferrals if deferral.host == host}
        if not is_held and not deferred:
            members = {"host": host, "lifted": False, "deferrals": 0}
            common.answer(args, members, [common.printable(f"{host} has no hold")])
            return 1
        if config.ledger != LEDGER_OFF:  # first: no hold is lifted that no line tells of
            ledger = Ledger(directory, time.time, keep_octets=config.ledger_kept)
            ledger.write("", {"kind": LIFTED, "host": host, "reason": reason})
            ledger.close()  # the next run knows that line by the records, or takes it over
        for host_store in stores:
            host_store.lift(host, reason)
        for url in deferred:
            store.delete(Deferral, url)
        store.flush()
    dropped = plural(len(deferred), "deferral")
    text = f"the hold of {host} is lifted, and {dropped} dropped: {reason}"
    members = {
        "host": host,
        "lifted": True,
        "deferrals": len(deferred),
        "reason": reason,
    }
    common.answer(args, members, [common.printable(text)])
    return 0


def _is_of(url: str, host: str) -> bool:
    try:
        return hosts.host_key(url) == host
    except ValueError:
        return False


def _backup(args: argparse.Namespace, config: WalshConfig, directory: Path) -> int:  # noqa: ARG001
    """Copy the database first: a list that comes meanwhile is newer than its row, never older."""
    target: Path = args.target
    if (target / machine.SOURCES).exists() or (target / files.LOCK).exists():
        raise Misuse(f"{target} is a state directory that crawls use: give another one")
    try:
        target.mkdir(mode=0o700, parents=True, exist_ok=True)
        back_up(directory / DATABASE, target / DATABASE)
        names = files.list_files(directory)
        for name in names:
            files.replace_private(target / name, (directory / name).read_bytes())
    except (OSError, sqlite3.Error) as error:
        raise Misuse(f"no backup of {directory} in {target}: {one_line(error)}") from error
    members = {"directory": str(target), "files": [DATABASE, *names]}
    line = f"{target} has the copies of {plural(len(names) + 1, 'file')}"
    common.answer(args, members, [common.printable(line)])
    return 0


def _verify(args: argparse.Namespace, config: WalshConfig, directory: Path) -> int:  # noqa: ARG001
    aside = state_verify.set_aside(directory)
    problems = list(state_verify.problems(directory, common.blocklist_of))
    summary = plural(len(problems), "problem") if problems else "in order"
    remains = [f"set aside by an earlier run: {name}" for name in aside]
    members = {
        "directory": str(directory),
        "problems": problems,
        "set_aside": aside,
    }
    common.answer(
        args,
        members,
        map(common.printable, [*problems, *remains, f"{directory}: {summary}"]),
    )
    if problems:
        return 1
    return 0
