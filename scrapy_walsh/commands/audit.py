"""``walsh audit ACCESS_LOG``: what a site's own log says about the bot's promises."""

from __future__ import annotations

import ipaddress
import math
from collections import Counter
from datetime import UTC, datetime
from itertools import chain
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from scrapy_walsh.commands import common
from scrapy_walsh.commands.common import Misuse
from scrapy_walsh.commands.terminal import table
from scrapy_walsh.policy import hosts
from scrapy_walsh.policy.freshness import parse_duration
from scrapy_walsh.policy.robots.file import parse_robots
from scrapy_walsh.policy.times import iso
from scrapy_walsh.policy.words import plural
from scrapy_walsh.proof.audit.judge import (
    Own,
    Terms,
    judge,
    outcome,
    tell_apart,
)
from scrapy_walsh.proof.audit.match import match_rows, read_ledgers
from scrapy_walsh.proof.audit.reading import Bot, Log, read_logs
from scrapy_walsh.proof.audit.robots_rows import Version
from scrapy_walsh.proof.audit.rows import KEPT
from scrapy_walsh.proof.findings import Outcome

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Mapping

    from scrapy_walsh.policy.identity import Identity
    from scrapy_walsh.proof.audit.rows import Row

#: Breaches of a row, and hosts or addresses of a line, that the text shows.
_SHOWN: Final = 2
_LISTED: Final = 4
_LEAST: Final = (8, 9, 31)


def add_options(parser: argparse.ArgumentParser) -> None:
    """What ``walsh audit`` takes."""
    add = parser.add_argument
    add(
        "logs",
        metavar="ACCESS_LOG",
        nargs="+",
        help="common, combined, JSON lines, W3C; also gzip; - for stdin",
    )
    add(
        "--token",
        help="the bot's name in its User-Agent (default: of the identity)",
    )
    add(
        "--user-agent",
        metavar="UA",
        help="the exact User-Agent (default: of the identity)",
    )
    add(
        "--ip", metavar="ADDRESS", type=network, action="append", default=[],
        help="judge what comes from this address or network, under any User-Agent, and that alone",
    )  # fmt: skip
    add(
        "--host",
        default="",
        help="the host to judge; lines that name no host are taken for its",
    )
    add(
        "--robots", metavar="FILE[@TIME]", type=robots_file, action="append", default=[],
        help="the site's robots.txt, from an ISO 8601 time on; once for each version",
    )  # fmt: skip
    add(
        "--optout",
        metavar="TIME",
        type=instant,
        help="when the site was put on the blocklist",
    )
    add(
        "--refresh",
        metavar="DURATION",
        type=parse_duration,
        default="PT6H",
        help="of that list",
    )
    add(
        "--retry-after",
        metavar="SECONDS",
        type=seconds,
        help="in the site's 429 and 503 answers",
    )
    add(
        "--answer-time", metavar="SECONDS", type=seconds, default=0.0,
        help="longest that an answer took, where the log has the end of requests (nginx)",
    )  # fmt: skip
    add(
        "--ledger", metavar="PATH", action="append", default=[],
        help="the operator's ledger, a file or a directory: both sides' records are matched",
    )  # fmt: skip
    add(
        "--skew", metavar="SECONDS", type=seconds, default=2.0,
        help="most that the clocks of log and ledger may differ by (default: 2)",
    )  # fmt: skip
    add(
        "--directory", metavar="FILE",
        help="the bot's key directory: judge only what its keys signed, where the log has that",
    )  # fmt: skip
    common.add_settings(parser)
    common.add_json(parser)


# Each raises ValueError, and argparse then says that it is an invalid value of this name.


def seconds(text: str) -> float:
    """A number of seconds."""
    value = float(text)
    if not 0.0 <= value < math.inf:
        raise ValueError(text)
    return value


def instant(text: str) -> float:
    """Unix seconds of an ISO 8601 time, in UTC if it names no zone."""
    at = datetime.fromisoformat(text)
    return at.replace(tzinfo=at.tzinfo or UTC).timestamp()


def network(text: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network:
    """An address, or a network."""
    return ipaddress.ip_network(text, strict=False)


def robots_file(text: str) -> tuple[str, float]:
    """A file, and since when it was served."""
    name, at, since = text.rpartition("@")
    if at and not Path(text).exists():
        return (name, instant(since))
    return (text, -math.inf)


def run(args: argparse.Namespace) -> int:
    """Read the log, judge the bot, and print what was found."""
    identity = common.read_config(args, Path()).identity
    agent, token = _names(args, identity)
    terms = _terms(args, agent, token, identity)
    keys = common.read_directory("--directory", args.directory) if args.directory else []
    only = common.host_named(args.host) if args.host else ""
    log = read_logs(args.logs, Bot(token.lower().encode(), tuple(args.ip), args.host, only))
    if not log.entries:
        who = f"{token} (by its User-Agent)"
        if args.ip:
            who = ", ".join(map(str, args.ip))
        summary = f"{plural(log.lines, 'line')}, {plural(log.others, 'request')} to other hosts"
        raise Misuse(f"never seen: {who}, in {summary}. Lines without a User-Agent need --ip")
    _one_host(log, args)
    own_requests = _own(log, keys, args)
    rows = judge(log, terms)
    if args.ledger:
        hosts_asked = {entry.host for entry in log.entries}
        rows += match_rows(log, read_ledgers(args.ledger, hosts_asked), args.skew)
    verdict = outcome(rows)
    members = {"verdict": verdict.value, **_members(log, own_requests)}
    lines = chain(_lines(members), *map(_row, rows))
    common.answer(
        args,
        {**members, "requirements": [row.members() for row in rows]},
        lines,
    )
    return {Outcome.HELD: 0, Outcome.UNSEEN: 2}.get(verdict, 1)


# -- what was given -------------------------------------------------------------------------


def _names(args: argparse.Namespace, identity: Identity) -> tuple[str, str]:
    """The exact User-Agent, and the token in it."""
    token = common.token_of(args.token or identity.token)
    agent: str = args.user_agent or identity.user_agent
    if token.lower() not in agent.lower():
        raise Misuse(f"{token} is not in the User-Agent {agent!r}: give --token and --user-agent")
    return agent, token


def _own(log: Log, keys: list[dict[str, Any]], args: argparse.Namespace) -> Own | None:
    """The bot's own requests, by their signatures; from now on *log* has these alone. Misuse."""
    if not keys:
        return None
    own_requests = tell_apart(log.entries, keys, args.skew + args.answer_time)
    if not own_requests.entries:
        place, reason = own_requests.forged[0]
        count = plural(len(own_requests.forged), "request")
        raise Misuse(f"never seen: of {count} none is by a key of the directory; {place}: {reason}")
    log.entries = own_requests.entries
    return own_requests


def _terms(args: argparse.Namespace, agent: str, token: str, identity: Identity) -> Terms:
    timeline = []
    for name, since in sorted(args.robots, key=itemgetter(1)):
        with Path(name).open("rb") as file:
            rules = parse_robots(file.read(common.ROBOTS_LIMIT), token, name)
        timeline.append(Version(since, rules))
    if len({version.since for version in timeline}) < len(timeline):
        raise Misuse("--robots: from when on? Give each version as FILE@TIME")
    # T14: the operator's documents, which robots.txt does not govern.
    documents = [url for url in (identity.blocklist_url, identity.schema_url) if url]
    return Terms(
        user_agent=agent.encode().decode("latin-1"),
        timeline=tuple(timeline),
        optout=args.optout,
        refresh=args.refresh,
        retry_after=args.retry_after,
        answer_time=args.answer_time,
        documents=frozenset((hosts.host_key(url), urlsplit(url).path) for url in documents),
    )


def _one_host(log: Log, args: argparse.Namespace) -> None:
    """Misuse if the log names no host, or several and an option is for one of them."""
    hosts = sorted({entry.host for entry in log.entries})
    if "" in hosts:
        raise Misuse("the log names no host, so its lines may be of several: give --host")
    if len(hosts) > 1 and (args.robots or args.optout):
        option = "--robots" if args.robots else "--optout"
        names = ", ".join(hosts[:_LISTED])
        raise Misuse(f"{option}: of which of the {len(hosts)} hosts ({names})? Give --host")


# -- what is said ---------------------------------------------------------------------------


def _members(log: Log, own_requests: Own | None) -> dict[str, Any]:
    forged = own_requests.forged if own_requests else []
    elsewhere = {
        "under its name from other addresses": log.elsewhere,
        "to other hosts": log.others,
    }
    return {
        "requests": len(log.entries),
        "lines": log.lines,
        "from": iso(log.first or 0),
        "to": iso(log.last or 0),
        "hosts": Counter(entry.host for entry in log.entries),
        "addresses": Counter(entry.address for entry in log.entries),
        "not_judged": Counter(elsewhere) + Counter(reason for _, reason in forged),
        "signed_by": own_requests.keys if own_requests else Counter(),
        "not_signed": [f"{place}: {reason}" for place, reason in forged[:KEPT]],
        "unreadable_lines": log.damaged,
        "unreadable_first": log.named,
    }


def _lines(members: Mapping[str, Any]) -> Iterator[str]:
    """The members that are not empty, a line each: the most frequent, or the first, of several."""
    for name, value in members.items():
        texts = value
        if isinstance(value, Counter):
            texts = [f"{text} ({count})" for text, count in value.most_common()]
        if isinstance(texts, list):
            note = [f"... and {len(texts) - _LISTED} more"] if len(texts) > _LISTED else []
            texts = ", ".join([*texts[:_LISTED], *note])
        if texts:
            yield common.printable(f"{name.replace('_', ' ')}: {texts}")
    yield ""


def _row(row: Row) -> Iterator[str]:
    cells = (row.outcome.value, f"{row.id} {row.level}", row.title, row.detail)
    yield from table([cells], least=_LEAST)
    yield from table(
        [[f"{finding.place}: {finding.text}"] for finding in row.findings[:_SHOWN]],
        indent=10,
    )
    if row.broken > _SHOWN:
        yield f"          ... and {row.broken - _SHOWN} more"
