"""``walsh check URL``: may the bot fetch it, by which rule, and how would it be paced?

With ``--robots`` or ``--blocklist`` nothing is requested: the URL is judged by these files, in the
order of ``policy/chain.py``, and the answer says which of the two was missing. Without them the
documents are fetched through the gates (``own_crawl``); the URL itself never is.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from scrapy_walsh.commands import common
from scrapy_walsh.commands.common import Misuse
from scrapy_walsh.config import gates_of
from scrapy_walsh.policy.given import Given
from scrapy_walsh.policy.list.blocklist import MAX_OCTETS
from scrapy_walsh.policy.robots.file import parse_robots
from scrapy_walsh.policy.words import visible

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from scrapy_walsh.policy.verdict import Verdict

#: What an answer has of a verdict, beside its name.
_OF_A_VERDICT: Final = ("requirement", "reason", "document", "line", "group")
_INSTEAD: Final = (
    "since nobody fetches a robots.txt without saying who asks (R1.4); or give what needs no "
    "request: --robots FILE or --blocklist FILE"
)


def add_options(parser: argparse.ArgumentParser) -> None:
    """What ``walsh check`` takes."""
    add = parser.add_argument
    add("url", metavar="URL", help="without a scheme, https is taken")
    add("--robots", metavar="FILE", help="judge by this robots.txt, send nothing; - for stdin")
    add("--blocklist", metavar="FILE", help="judge by this blocklist, send nothing; - for stdin")
    add("--token", metavar="NAME", help="with these: the name that robots.txt is read for")
    common.add_settings(parser)
    common.add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Answer about one URL."""
    url = common.absolute(args.url)
    offline = args.robots is not None or args.blocklist is not None
    members = _judged(url, args) if offline else _online(url, args)
    common.answer(args, members, _lines(members))
    return 0 if members["allowed"] else 1


def _online(url: str, args: argparse.Namespace) -> dict[str, Any]:
    if args.token is not None:
        raise Misuse("--token is for --robots and --blocklist: requests have the identity's name")
    settings = common.settings_to_send(args, _INSTEAD)
    from scrapy_walsh.commands.own_crawl import ask  # noqa: PLC0415  files need no crawl

    return _members(url, *ask(url, settings))


def _members(url: str, verdict: Verdict, delay: float | None) -> dict[str, Any]:
    """The answer as a JSON object; ``readings`` only where they differ."""
    members: dict[str, Any] = {
        "url": url,
        "allowed": verdict.allowed,
        "verdict": verdict.name,
        **{name: getattr(verdict, name) for name in _OF_A_VERDICT},
        "crawl_delay": delay,
    }
    return {**members, "readings": dict(verdict.readings)} if verdict.readings else members


def _lines(members: dict[str, Any]) -> Iterator[str]:
    """The answer for a person."""
    permission = {True: "allowed", False: "denied"}
    yield visible(f"{permission[members['allowed']]}: {members['url']}")
    delay, readings = members["crawl_delay"], members.get("readings", {})
    rows = {
        "verdict": f"{members['verdict']} ({members['requirement']})",
        **{name: members[name] for name in ("reason", "document", "line")},
        "group": ", ".join(members["group"]),
        "Crawl-delay": None if delay is None else f"{delay:g} s",
        "readings": "; ".join(f"{name}: {permission[says]}" for name, says in readings.items()),
    }
    for name, value in rows.items():
        if value not in (None, ""):
            yield f"  {name:<12} {visible(str(value))}"


def _judged(url: str, args: argparse.Namespace) -> dict[str, Any]:
    """The answer by the files that are given."""
    if args.robots == args.blocklist == "-":
        raise Misuse("only one of --robots and --blocklist can be standard input")
    config = common.read_config(args, Path())
    token = common.token_of(config.identity.token if args.token is None else args.token)
    rules = listed = None
    if args.robots is not None:
        rules = parse_robots(_read(args.robots, common.ROBOTS_LIMIT), token, args.robots)
    if args.blocklist is not None:
        listed = common.blocklist_of(_read(args.blocklist, MAX_OCTETS), args.blocklist)
    verdict = Given(rules, listed).judge(url, gates_of(config))
    return _members(url, verdict, None if rules is None else rules.crawl_delay)


def _read(path: str, limit: int) -> bytes:
    if path != "-":
        return common.read_file(path, limit)
    if sys.stdin is None:
        raise Misuse("standard input is closed")
    return sys.stdin.buffer.read(limit)
