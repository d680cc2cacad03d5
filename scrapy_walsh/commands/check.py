"""``walsh check URL``: may the bot fetch it, by which rule, and how would it be paced?

With ``--robots`` or ``--blocklist`` nothing is requested: the URL is judged by these files, in the
order of ``policy/chain.py``, and the answer says which of the two was missing. Without them
the documents are fetched through the gates (``check_online``); the URL itself never is.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from scrapy_walsh.commands.check_answer import (
    LIMIT,
    ROBOTS_LIMIT,
    Answer,
    Misuse,
    absolute,
    blocklist_of,
    read_file,
    token_of,
)
from scrapy_walsh.commands.project import add_json, add_settings, read_config, settings_to_send
from scrapy_walsh.config import gates_of
from scrapy_walsh.exceptions import WalshError
from scrapy_walsh.policy.gates import Gates
from scrapy_walsh.policy.given import Given
from scrapy_walsh.policy.robots.file import Robots, parse_robots

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from scrapy_walsh.policy.list.blocklist import Blocklist


@dataclass(frozen=True, slots=True)
class Defaults:
    """What applies to a batch line that does not say otherwise."""

    token: str
    gates: Gates
    robots: bytes | None
    document: str | None
    operator_list: Blocklist | None

    def given(self, token: str) -> Given:
        """The files, with robots.txt as *token* reads it."""
        rules = None if self.robots is None else _robots_of(self.robots, token, self.document)
        return Given(rules, self.operator_list)


def add_options(parser: argparse.ArgumentParser) -> None:
    """What ``walsh check`` takes."""
    add = parser.add_argument
    add("url", metavar="URL", nargs="?", help="without a scheme, https is taken")
    add("--robots", metavar="FILE", help="judge by this robots.txt, send nothing; - for stdin")
    add("--blocklist", metavar="FILE", help="judge by this blocklist, send nothing; - for stdin")
    add("--token", help="with files: the product token (default: of the identity)")
    add_settings(parser)
    add_json(parser)
    add("--batch", action="store_true", help='stdin: {"robots": TEXT, "url": URL}, one a line')


def run(args: argparse.Namespace) -> int:
    """Answer about one URL, or about each line of a batch."""
    return _batch(_defaults(args)) if args.batch else _single(args)


def _single(args: argparse.Namespace) -> int:
    if args.url is None:
        raise Misuse("no URL given; see --help")
    url = absolute(args.url)
    if args.robots is None and args.blocklist is None:
        answer = _online(url, args)
    else:
        defaults = _defaults(args)
        answer = _answer(url, defaults.given(defaults.token), defaults.gates)
    print(json.dumps(answer.members()) if args.json else "\n".join(answer.lines()), flush=True)
    return 0 if answer.verdict.allowed else 1


def _answer(url: str, given: Given, gates: Gates) -> Answer:
    """The answer about the absolute URL *url*, by what is given."""
    delay = None if given.robots_txt is None else given.robots_txt.crawl_delay
    return Answer(url, given.judge(url, gates), delay)


def _online(url: str, args: argparse.Namespace) -> Answer:
    if args.token is not None:
        raise Misuse("--token goes with --robots; online the token is that of the identity")
    settings = settings_to_send(args, "files to judge by: --robots, --blocklist")
    from scrapy_walsh.commands.check_online import ask  # noqa: PLC0415  files need no crawl

    return ask(url, settings)


def _defaults(args: argparse.Namespace) -> Defaults:
    if args.batch and (args.url is not None or "-" in (args.robots, args.blocklist)):
        raise Misuse("--batch reads its URLs, and nothing else, from standard input")
    if args.robots == args.blocklist == "-":
        raise Misuse("only one of --robots and --blocklist can be standard input")
    config = read_config(args, Path())
    token = token_of(config.identity.token if args.token is None else args.token)
    robots, listed = args.robots, args.blocklist
    return Defaults(
        token,
        Gates(config.excluded_tlds, refused_uses=gates_of(config).refused_uses),
        None if robots is None else _read(robots, ROBOTS_LIMIT),
        robots,
        None if listed is None else blocklist_of(_read(listed, LIMIT), listed),
    )


def _read(path: str, limit: int) -> bytes:
    return _standard_input().read(limit) if path == "-" else read_file(path, limit)


def _standard_input() -> BinaryIO:
    if sys.stdin is None:
        raise Misuse("standard input is closed")
    return sys.stdin.buffer


# -- batch --------------------------------------------------------------------------------


def _batch(defaults: Defaults) -> int:
    code = 0
    for number, line in enumerate(_read_lines(_standard_input()), 1):
        if line.strip():
            members = _members(number, line, defaults)
            code = 2 if "error" in members else code
            print(json.dumps(members), flush=True)
    return code


def _read_lines(stream: BinaryIO) -> Iterator[bytes]:
    """Each line of *stream*; one that is too long is cut one octet beyond the limit."""
    while line := stream.readline(LIMIT + 1):
        rest = line
        while len(rest) > LIMIT and not rest.endswith(b"\n"):
            rest = stream.readline(LIMIT + 1)
        yield line


def _members(number: int, line: bytes, defaults: Defaults) -> dict[str, Any]:
    url = None
    try:
        entry = _entry(line)
        url = _text(entry, "url")
        return _judge(url, entry, defaults).members()
    except WalshError as error:
        return {"url": url, "error": f"line {number}: {error}"}


def _entry(line: bytes) -> dict[str, Any]:
    if len(line) > LIMIT:
        raise Misuse(f"longer than {LIMIT} octets")
    try:
        entry = json.loads(line.decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise Misuse(f"not JSON: {str(error)[:200]}") from None
    if not isinstance(entry, dict):
        raise Misuse("not a JSON object")
    return entry


def _text(entry: dict[str, Any], name: str) -> str:
    value = entry.get(name)
    if not isinstance(value, str):
        raise Misuse(f"{name!r} is not a string" if name in entry else f"no {name!r}")
    return value


def _judge(written: str, entry: dict[str, Any], defaults: Defaults) -> Answer:
    token = token_of(entry["token"]) if "token" in entry else defaults.token
    given = defaults.given(token)
    if "robots" in entry:
        given = replace(given, robots_txt=_robots_of(_octets(_text(entry, "robots")), token, None))
    if "blocklist" in entry:
        given = replace(given, operator_list=_blocklist_of(_document(entry["blocklist"])))
    if given.robots_txt is None and given.operator_list is None:
        raise Misuse("no 'robots'")
    return _answer(absolute(written), given, defaults.gates)


@lru_cache(maxsize=16)
def _robots_of(body: bytes, token: str, document: str | None) -> Robots:
    return parse_robots(body, token, document)


@lru_cache(maxsize=4)
def _blocklist_of(text: str) -> Blocklist:
    return blocklist_of(_octets(text), None)


def _octets(text: str) -> bytes:
    """UTF-8; a lone surrogate becomes the octets that a server could have sent for it."""
    return text.encode("utf-8", "surrogatepass")


def _document(value: Any) -> str:
    """A blocklist as it stands in a line: the JSON document, or its text."""
    return value if isinstance(value, str) else json.dumps(value)
