"""``walsh conformance``: the whole list R1 to R13, by real crawls; or another crawler, by a log."""

from __future__ import annotations

import platform
import sys
import time
from collections import Counter
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

from msgspec import to_builtins

from scrapy_walsh.commands import common
from scrapy_walsh.commands.common import Misuse
from scrapy_walsh.commands.terminal import table
from scrapy_walsh.config import DEFAULTS, WalshConfig, identity_given
from scrapy_walsh.policy.identity import WALSH_RESEARCH
from scrapy_walsh.policy.times import iso
from scrapy_walsh.proof.conformance import check, live, parts
from scrapy_walsh.proof.conformance import run as runs
from scrapy_walsh.proof.conformance.check import (
    SHOULD,
    WORDS,
    holds,
    in_order,
    judged,
)
from scrapy_walsh.proof.conformance.crawl import Bot
from scrapy_walsh.proof.conformance.evidence import Evidence
from scrapy_walsh.proof.conformance.scene_signing import SIGNING
from scrapy_walsh.proof.findings import Outcome
from scrapy_walsh.spec import REQUIREMENTS, SPEC_VERSION, __version__

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Sequence

    from scrapy_walsh.config import SettingsLike
    from scrapy_walsh.proof.conformance.check import Check

#: The settings that every run makes itself: identity, addresses of the documents and of the state,
#: R8's reason, tags, and the key that a scene signs with.
_TAKEN: Final = {
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


def _overrides(settings: SettingsLike) -> dict[str, Any]:
    """The ``WALSH_`` settings of the project that differ from their defaults, as JSON data."""
    values = {name: settings.get(name) for name in DEFAULTS if name not in _TAKEN}
    changed = {n: v for n, v in values.items() if v is not None and v != DEFAULTS[n]}
    return cast("dict[str, Any]", to_builtins(changed))


#: Options that go with ``--command`` alone, and those that do not go with it.
_OF_LAB: Final = ("user_agent", "token", "directory", "time_limit")
_OF_OWN: Final = ("live", "record", "set", "identity")
#: Seconds that each run of a command may take without ``--time-limit``.
_TIME_LIMIT: Final = 180.0
#: The record of a live run, which has the fixtures' rows alone, does not replace the other.
_LIVE_FILE: Final = "conformance-live.json"


def add_options(parser: argparse.ArgumentParser) -> None:
    """What ``walsh conformance`` takes."""
    add = parser.add_argument
    add(
        "--only",
        metavar="NAMES",
        default="",
        help="requirements or parts: R4,blocklist",
    )
    common.add_settings(parser)
    common.add_json(parser)
    add("--record", metavar="FILE", type=Path, help="where the record goes")
    add(
        "--live",
        action="store_true",
        help="crawl the operator's real fixtures, and nothing else",
    )
    add(
        "--command",
        metavar="COMMAND",
        help="judge this crawler by the sandbox's log alone",
    )
    add(
        "--user-agent",
        metavar="UA",
        help="with --command: the User-Agent it must send",
    )
    add("--token", metavar="TOKEN", help="with --command: its product token")
    add(
        "--directory",
        metavar="FILE",
        help="with --command: its key directory, if it signs",
    )
    add(
        "--time-limit",
        metavar="S",
        type=float,
        help="with --command: for each run (180)",
    )


def run(args: argparse.Namespace) -> int:
    """Run, judge and print."""
    _check_usage(args)
    if args.command is not None:
        return _lab(args)
    return _own(args)


def _check_usage(args: argparse.Namespace) -> None:
    args.only = [name for name in args.only.split(",") if name]
    names = [row.id for row in REQUIREMENTS] + runs.names()
    unknown = [name for name in args.only if name not in names]
    if unknown:
        raise Misuse(f"--only {unknown[0]!r}: there are {', '.join(names)}")
    foreign, fits = (_OF_LAB, "goes") if args.command is None else (_OF_OWN, "does not go")
    if misplaced := [name.replace("_", "-") for name in foreign if getattr(args, name)]:
        raise Misuse(f"--{misplaced[0]} {fits} with --command")
    if args.live and args.only:
        raise Misuse("--only does not go with --live")


def _progress(line: str) -> None:
    """A line on stderr if that is a terminal."""
    if sys.stderr.isatty():
        print(common.printable(line), file=sys.stderr, flush=True)


# -- this package ---------------------------------------------------------------------------


def _own(args: argparse.Namespace) -> int:
    settings_of = common.settings_to_read
    settings = common.settings_to_send(args, to_others=False) if args.live else settings_of(args)
    overrides = _overrides(settings)
    foreign = {n: v for n, v in common.pairs("-s", args.set).items() if n not in DEFAULTS}
    config = WalshConfig.from_settings(settings, common.default_state_dir)
    pace = config.min_interval if config.pace_robots else 0.0
    bot = Bot(
        config.identity,
        identity_given(settings),
        {**overrides, **foreign},
        pace,
    )
    # The code as the run found it: a record of code that changed meanwhile fits no build.
    code = check.code_digest()
    date = iso(time.time())
    started = time.monotonic()
    if args.live:
        checks = live.run(bot, config.state_dir, config.impl, _progress)
    else:
        checks, problems = runs.run(bot, args.only, _progress)
        common.tell("conformance", *problems)
    seconds = time.monotonic() - started
    # No value of a foreign setting is recorded, because it may be a secret, unless it concerns
    # pace.
    values_shown = {n: v if n == "DOWNLOAD_DELAY" else "set" for n, v in foreign.items()}
    record_members = {
        "code": code,
        "date": date,
        "seconds": round(seconds, 3),
        "live": args.live,
        "contract": check.CONTRACT,
        "tool": "scrapy-walsh",
        "tool_version": __version__,
        "spec": SPEC_VERSION,
        "user_agent": bot.identity.user_agent,
        "versions": {
            "python": platform.python_version(),
            **{name: version(name) for name in ("scrapy", "protego")},
        },
        "settings": {
            "mirrored": not args.live,
            "pace_robots": config.pace_robots,
            "follow_links": config.follow_links,
            "overrides": {**overrides, **values_shown},
        },
        "checks": [check.members() for check in checks],
    }
    title = f"scrapy-walsh v{__version__}  conformance report  {bot.identity.user_agent}"
    members = {**record_members, "digest": check.record_digest(record_members)}
    common.answer(args, members, lines(title, checks, seconds))
    path: Path | None = args.record
    if path is None and config.state_dir is not None and not args.only:
        path = config.state_dir / (_LIVE_FILE if args.live else check.FILE)
    if path is not None:
        check.write_record(path, members)
        common.tell("conformance", f"record written to {path}")
    if holds(checks):
        return 0
    return 1


# -- another crawler ------------------------------------------------------------------------


def _lab(args: argparse.Namespace) -> int:
    user_agent = args.user_agent or WALSH_RESEARCH.user_agent
    token = args.token or WALSH_RESEARCH.token
    chosen = runs.chosen(parts.PARTS, args.only)
    if not chosen:
        raise Misuse(f"--only {','.join(args.only)}: a server's log shows none of this")
    keys = common.read_directory("--directory", args.directory) if args.directory else []
    started = time.monotonic()
    limit = args.time_limit or _TIME_LIMIT
    played = runs.play(args.command, chosen, token, limit, _progress)
    evidence = Evidence(user_agent, played, keys=keys)
    rows = [row for part in [*chosen, *([SIGNING] if keys else [])] for row in part.rows]
    checks = in_order(judged(rows, evidence))
    common.tell("conformance", *runs.problems(evidence.runs))
    seconds = time.monotonic() - started
    members = {
        "command": args.command,
        "user_agent": user_agent,
        "token": token,
        "seconds": round(seconds, 3),
        "requests": [len(run.log) for run in evidence.runs],
        "checks": [check.members() for check in checks],
    }
    common.answer(args, members, lines(f"conformance of: {args.command}", checks, seconds))
    if holds(checks):
        return 0
    return 1


# -- the report for a person, in the style of the reference bot's -----------------------------

_RULE: Final = "-" * 80
_LEAST: Final = (10, 4, 58)


def lines(title: str, checks: Sequence[Check], seconds: float) -> Iterator[str]:
    """The table, a row for each of *checks*, and the totals as its last line."""
    yield common.printable(title)
    yield _RULE
    yield from table(map(_cells, checks), least=_LEAST, indent=2, gap=1)
    yield _RULE
    counts = Counter(check.outcome for check in checks)
    failed = counts[Outcome.BROKEN]
    unseen = counts[Outcome.UNSEEN]
    summary = f"{counts[Outcome.HELD]}/{len(checks)} checks passed"
    must = "every MUST holds" if holds(checks) else "a MUST was not shown"
    yield f"  {summary}, {failed} failed, {unseen} not seen; {must} ({seconds:.1f} s)"


def _cells(check: Check) -> tuple[str, str, str, str]:
    level = f" [{SHOULD}]" if check.level == SHOULD else ""
    detail = f"({check.detail})" if check.detail else ""
    return f"[{WORDS[check.outcome]}]", check.id, check.title + level, detail
