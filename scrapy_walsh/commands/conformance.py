"""``walsh conformance``: the whole list R1 to R13, by real crawls; or another crawler, by a log."""

from __future__ import annotations

import json
import os
import platform
import sys
import time
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from scrapy_walsh import terminal
from scrapy_walsh.commands.check_answer import Misuse, printable
from scrapy_walsh.commands.key_directory import read_directory
from scrapy_walsh.commands.project import (
    add_json,
    add_settings,
    pairs,
    settings_to_read,
    settings_to_send,
)
from scrapy_walsh.config import DEFAULTS, WalshConfig, identity_given
from scrapy_walsh.policy.identity import WALSH_RESEARCH
from scrapy_walsh.policy.times import iso
from scrapy_walsh.proof.conformance import check, lab, live, parts, record
from scrapy_walsh.proof.conformance import run as runs
from scrapy_walsh.proof.conformance.check import holds, in_order, judged
from scrapy_walsh.proof.conformance.crawl import Bot
from scrapy_walsh.proof.conformance.scene_signing import SIGNING
from scrapy_walsh.spec import REQUIREMENTS, SPEC_VERSION, __version__

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable, Mapping, Sequence

    from scrapy_walsh.config import SettingsLike
    from scrapy_walsh.proof.conformance.check import Check

# The settings of a conformance run: the project's own, but for what the run must set itself.

#: What every run sets itself: identity, where the documents and the state are, R8's reason, tags,
#: and the key that one of its scenes signs with.
_TAKEN: Final = frozenset(
    {
        "WALSH_IDENTITY",
        "WALSH_BLOCKLIST_URL",
        "WALSH_BLOCKLIST_SCHEMA_URL",
        "WALSH_STATE_DIR",
        "WALSH_SHARED_STATE",
        "WALSH_REVISIT_REASON",
        "WALSH_TAG_REQUESTS",
        "WALSH_IMPL",
        "WALSH_SIGN_REQUESTS",
        "WALSH_SIGNING_KEY",
    }
)


class Setup:
    """The bot that is to run, and what the record says of its settings.

    Raises Misuse or ConfigError.
    """

    def __init__(self, args: argparse.Namespace) -> None:
        settings = settings_to_send(args) if args.live else settings_to_read(args)
        given = _given(args)
        from scrapy_walsh.adapters.context import default_state_dir  # noqa: PLC0415  slow

        config = WalshConfig.from_settings(settings, default_state_dir)
        self.state_dir: Path | None = config.state_dir
        self._config = config
        self._overrides = _overrides(settings)
        self._given = {name: _told(name, given[name]) for name in given.keys() - DEFAULTS.keys()}
        self.bot = Bot(
            config.identity,
            identity_given(settings),
            {**self._overrides, **given},
            config.min_interval if config.pace_robots else 0.0,
        )

    @property
    def implementation(self) -> str | None:
        """``organisation/repository@commit`` for R13: of WALSH_IMPL, GitHub's variables, or git."""
        from scrapy_walsh.adapters.tags import implementation  # noqa: PLC0415  slow

        name, commit = implementation(self._config.impl, os.environ)
        return f"{name}@{commit}" if name and commit else name

    def recorded(self, *, live: bool) -> dict[str, Any]:
        """The record's member ``settings``."""
        return {
            "mirrored": not live,
            "pace_robots": self._config.pace_robots,
            "follow_links": self._config.follow_links,
            "overrides": {**self._overrides, **self._given},
        }


def _given(args: argparse.Namespace) -> Mapping[str, str]:
    given = pairs("-s", args.set)
    taken = sorted(_TAKEN & given.keys())
    if taken:
        raise Misuse(f"-s {taken[0]}: a conformance run sets that itself")
    return given


def _told(name: str, value: str) -> str:
    """What the record says of a setting that is not ours: no value, which may be a secret.

    DOWNLOAD_DELAY is recorded with its value, since it concerns spacing.
    """
    return value if name == "DOWNLOAD_DELAY" else "set"


def _overrides(settings: SettingsLike) -> dict[str, Any]:
    """The ``WALSH_`` settings that differ from their defaults, as JSON data."""
    found = {name: settings.get(name) for name in DEFAULTS if name not in _TAKEN}
    return {
        name: list(value) if isinstance(value, (tuple, set, frozenset)) else value
        for name, value in found.items()
        if value is not None and value != DEFAULTS[name]
    }


#: The record of a live run, which has the fixtures' rows alone, does not replace the other.
_LIVE_FILE: Final = "conformance-live.json"


def add_options(parser: argparse.ArgumentParser) -> None:
    """What ``walsh conformance`` takes."""
    add = parser.add_argument
    add("--only", metavar="NAMES", default="", help="requirements or parts: R4,blocklist")
    add_settings(parser)
    add_json(parser)
    add("--record", metavar="FILE", type=Path, help="where the record goes")
    add("--live", action="store_true", help="crawl the operator's real fixtures, and nothing else")
    add("--command", metavar="COMMAND", help="judge this crawler by the sandbox's log alone")
    add("--user-agent", metavar="UA", help="with --command: the User-Agent it must send")
    add("--token", metavar="TOKEN", help="with --command: its product token")
    add("--directory", metavar="FILE", help="with --command: its key directory, if it signs")
    add("--time-limit", metavar="S", type=float, help="with --command: for each run (180)")


def run(args: argparse.Namespace) -> int:
    """Run, judge and print."""
    _check_usage(args)
    return _lab(args) if args.command is not None else _own(args)


def _check_usage(args: argparse.Namespace) -> None:
    args.only = [name for name in args.only.split(",") if name]
    known = [row.id for row in REQUIREMENTS] + runs.names()
    unknown = [name for name in args.only if name not in known]
    if unknown:
        raise Misuse(f"--only {unknown[0]!r}: there are {', '.join(known)}")
    of_lab = {
        "--user-agent": args.user_agent,
        "--token": args.token,
        "--directory": args.directory,
        "--time-limit": args.time_limit,
    }
    of_own = {
        "--live": args.live,
        "--record": args.record,
        "--set": args.set,
        "--identity": args.identity,
    }
    foreign = of_lab if args.command is None else of_own
    misplaced = [name for name, value in foreign.items() if value]
    if misplaced:
        fits = "goes" if args.command is None else "does not go"
        raise Misuse(f"{misplaced[0]} {fits} with --command")
    if args.live and args.only:
        raise Misuse("--only does not go with --live")
    if args.time_limit is not None and not args.time_limit > 0:
        raise Misuse("--time-limit is not a number of seconds above 0")


def _progress(line: str) -> None:
    """A line on stderr if that is a terminal."""
    if sys.stderr.isatty():
        print(printable(line), file=sys.stderr, flush=True)


def _tell(problems: Iterable[str]) -> None:
    for problem in problems:
        print(f"walsh conformance: {printable(problem)}", file=sys.stderr)


# -- this package ---------------------------------------------------------------------------


def _own(args: argparse.Namespace) -> int:
    setup = Setup(args)
    # The code as the run found it: a record of code that changed meanwhile fits no build.
    code, date, started = record.code_digest(), iso(time.time()), time.monotonic()
    if args.live:
        checks = live.run(setup.bot, setup.state_dir, setup.implementation, _progress)
    else:
        checks, problems = runs.run(setup.bot, args.only, _progress)
        _tell(problems)
    seconds = time.monotonic() - started
    found = {
        "code": code,
        "date": date,
        "seconds": round(seconds, 3),
        "live": args.live,
        **_members(setup, checks, live=args.live),
    }
    if args.json:
        print(json.dumps({**found, "digest": record.record_digest(found)}))
    else:
        title = f"scrapy-walsh v{__version__}  conformance report  {found['user_agent']}"
        terminal.show(check.lines(title, checks, seconds))
    _keep(args, setup, found)
    return 0 if holds(checks) else 1


def _members(setup: Setup, checks: Sequence[Check], *, live: bool) -> dict[str, Any]:
    """The record's members, but for its digest and those that time gives."""
    return {
        "contract": record.CONTRACT,
        "tool": "scrapy-walsh",
        "tool_version": __version__,
        "spec": SPEC_VERSION,
        "user_agent": setup.bot.identity.user_agent,
        "versions": {
            "python": platform.python_version(),
            "scrapy": version("scrapy"),
            "protego": version("protego"),
        },
        "settings": setup.recorded(live=live),
        "checks": [check.members() for check in checks],
    }


def _keep(args: argparse.Namespace, setup: Setup, found: dict[str, Any]) -> None:
    """Write the record; one of a part of the list only where it was asked for."""
    path: Path | None = args.record
    if path is None and not args.only:
        if setup.state_dir is None:
            print("walsh conformance: no record kept: WALSH_STATE_DIR is memory", file=sys.stderr)
            return
        path = setup.state_dir / (_LIVE_FILE if args.live else record.FILE)
    if path is not None:
        record.write_record(path, found)
        print(f"walsh conformance: record written to {printable(str(path))}", file=sys.stderr)


# -- another crawler ------------------------------------------------------------------------


def _lab(args: argparse.Namespace) -> int:
    user_agent = args.user_agent or WALSH_RESEARCH.user_agent
    token = args.token or WALSH_RESEARCH.token
    chosen = runs.chosen(parts.PARTS, args.only)
    if not chosen:
        raise Misuse(f"--only {','.join(args.only)}: nothing of that shows in a server's log")
    keys = read_directory("--directory", args.directory) if args.directory else []
    started = time.monotonic()
    evidence = lab.play(
        args.command,
        chosen,
        user_agent=user_agent,
        token=token,
        time_limit=args.time_limit,
        progress=_progress,
    )
    signed = judged(SIGNING.rows, replace(evidence, keys=keys)) if keys else []
    checks = in_order([*parts.judge(chosen, evidence), *signed])
    _tell(runs.problems(evidence))
    seconds = time.monotonic() - started
    if args.json:
        found = {
            "command": args.command,
            "user_agent": user_agent,
            "token": token,
            "seconds": round(seconds, 3),
            "requests": [len(run.log) for run in evidence.runs],
            "checks": [check.members() for check in checks],
        }
        print(json.dumps(found))
    else:
        title = f"conformance of: {args.command}"
        terminal.show(check.lines(title, checks, seconds))
    return 0 if holds(checks) else 1
