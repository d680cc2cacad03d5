"""``walsh check URL``: may the bot fetch it, by which rule, and how would it be paced?

With ``--robots``, ``--blocklist`` or ``--token`` nothing is requested: the URL is judged by these
files, with ``--token`` also by what crawls have left in the state, in the order of
``policy/chain.py``, and the answer says which of the two was missing. Without them
the documents are fetched through the gates (``own_crawl``); the URL itself never is.
"""

from __future__ import annotations

import json
import sys
from contextlib import closing
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final

from scrapy_walsh.commands import common
from scrapy_walsh.commands.common import Misuse
from scrapy_walsh.config import gates_of
from scrapy_walsh.exceptions import WalshError
from scrapy_walsh.policy import hosts
from scrapy_walsh.policy.formats.representation import is_html
from scrapy_walsh.policy.given import Given, octets
from scrapy_walsh.policy.list.blocklist import MAX_OCTETS
from scrapy_walsh.policy.packing import is_text
from scrapy_walsh.policy.robots.fetch import NO_RULES, PARSE
from scrapy_walsh.policy.robots.file import Robots, no_rules, parse_robots
from scrapy_walsh.policy.times import iso
from scrapy_walsh.policy.words import visible
from scrapy_walsh.state.database import has_records
from scrapy_walsh.state.records import BLOCKLIST, ROBOTS, StoredDocument
from scrapy_walsh.state.store import SqliteStore

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from scrapy_walsh.policy.gates import Gates
    from scrapy_walsh.policy.list.blocklist import Blocklist
    from scrapy_walsh.policy.verdict import Verdict

#: What an answer has of a verdict, beside its name.
_OF_A_VERDICT: Final = ("requirement", "reason", "document", "line", "group")
_NO_ROBOTS: Final = (
    "no robots.txt is given or cached for it: give --robots FILE (in a batch also 'robots'); to "
    "fetch one, name who asks (R1.4): WALSH_IDENTITY or --identity, without --token"
)
_INSTEAD: Final = (
    "since nobody fetches a robots.txt without saying who asks (R1.4); or give what needs no "
    "request: --robots FILE, --blocklist FILE, or --token NAME for what is cached"
)


@dataclass(frozen=True, slots=True)
class Defaults:
    """What applies to a batch line that does not say otherwise.

    ``state``: where crawls keep what they have fetched; None where that is not to be used.
    ``kept_list``: the blocklist from there.
    """

    token: str
    gates: Gates
    robots: bytes | None
    document: str | None
    operator_list: Blocklist | None
    state: Path | None = None
    kept_list: Blocklist | None = None

    def rules(self, entry: dict[str, Any], token: str, url: str) -> tuple[Robots | None, str]:
        """The robots.txt for *url* as *token* reads it, None where there is none; a note on it."""
        body, document, note = self.robots, self.document, ""
        if "robots" in entry:
            body, document = octets(_text(entry, "robots")), None
        elif body is None:
            kept = _kept(self.state, ROBOTS, hosts.origin(url))
            if kept is None or kept.outcome not in (NO_RULES, PARSE):
                return None, ""
            note = f"as it was fetched at {iso(kept.fetched_at)}"
            if kept.outcome == NO_RULES:
                return no_rules(kept.url), note
            body, document = kept.body, kept.url
        return _robots_of(body, token, document), _note(body) or note


def add_options(parser: argparse.ArgumentParser) -> None:
    """What ``walsh check`` takes."""
    add = parser.add_argument
    add("url", metavar="URL", nargs="?", help="without a scheme, https is taken")
    add("--robots", metavar="FILE", help="judge by this robots.txt, send nothing; - for stdin")
    add("--blocklist", metavar="FILE", help="judge by this blocklist, send nothing; - for stdin")
    add("--token", metavar="NAME", help="judge by this name and what is here, send nothing")
    common.add_settings(parser)
    common.add_json(parser)
    add("--batch", action="store_true", help='stdin: URL or {"robots": TEXT, "url": URL}, a line')


def run(args: argparse.Namespace) -> int:
    """Answer about one URL, or about each line of a batch."""
    return _batch(_defaults(args)) if args.batch else _single(args)


def _single(args: argparse.Namespace) -> int:
    if args.url is None:
        raise Misuse("no URL given; see --help")
    if args.robots is None and args.blocklist is None and args.token is None:
        members = _online(common.absolute(args.url), args)
    else:
        members = _judged(args.url, {}, _defaults(args))
    common.answer(args, members, _lines(members))
    return 0 if members["allowed"] else 1


def _online(url: str, args: argparse.Namespace) -> dict[str, Any]:
    settings = common.settings_to_send(args, _INSTEAD)
    from scrapy_walsh.commands.own_crawl import ask  # noqa: PLC0415  files need no crawl

    verdict, delay, body = ask(url, settings)
    return _noted(_members(url, verdict, delay), _note(body))


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
        "note": members.get("note"),
    }
    for name, value in rows.items():
        if value not in (None, ""):
            yield f"  {name:<12} {visible(str(value))}"


def _defaults(args: argparse.Namespace) -> Defaults:
    if args.batch and (args.url is not None or "-" in (args.robots, args.blocklist)):
        raise Misuse("--batch reads its URLs, and nothing else, from standard input")
    if args.robots == args.blocklist == "-":
        raise Misuse("only one of --robots and --blocklist can be standard input")
    config = common.read_config(args, Path() if args.token is None else None)
    state = config.state_dir
    state = None if args.token is None or state is None else state.absolute()
    token = common.token_of(config.identity.token if args.token is None else args.token)
    robots, listed = args.robots, args.blocklist
    return Defaults(
        token,
        gates_of(config),
        None if robots is None else _read(robots, common.ROBOTS_LIMIT),
        robots,
        None if listed is None else common.blocklist_of(_read(listed, MAX_OCTETS), listed),
        state,
        _kept_list(state, config.blocklist_url),
    )


@lru_cache(maxsize=1024)
def _kept(state: Path | None, kind: str, key: str) -> StoredDocument | None:
    """The document that crawls have left in *state*; None where there is none."""
    if state is None or not has_records(state):
        return None
    with closing(SqliteStore(state)) as store:
        return store.get(StoredDocument, kind, key)


def _kept_list(state: Path | None, url: str) -> Blocklist | None:
    from scrapy_walsh.adapters.documents.validate import text_of  # noqa: PLC0415  slow, as below
    from scrapy_walsh.policy.list.schema import reread_blocklist  # noqa: PLC0415

    kept = _kept(state, BLOCKLIST, url)
    return None if kept is None else reread_blocklist(text_of(kept), url)


def _noted(members: dict[str, Any], note: str) -> dict[str, Any]:
    return {**members, "note": note} if note else members


def _note(body: bytes) -> str:
    """What is to be said of a robots.txt that cannot be one."""
    if body[:2] in {b"\xff\xfe", b"\xfe\xff"}:  # UTF-16, which is read
        return ""
    kind = "an HTML page" if is_html(None, body) else "" if is_text(body) else "no text"
    return f"this robots.txt is {kind}: see what its host serves" if kind else ""


def _read(path: str, limit: int) -> bytes:
    return _standard_input().read(limit) if path == "-" else common.read_file(path, limit)


def _standard_input() -> BinaryIO:
    if sys.stdin is None:
        raise Misuse("standard input is closed")
    return sys.stdin.buffer


# -- batch --------------------------------------------------------------------------------


def _batch(defaults: Defaults) -> int:
    code = 0
    for number, line in enumerate(_read_lines(_standard_input()), 1):
        if line.strip():
            members = _answered(number, line, defaults)
            code = 2 if "error" in members else code
            print(json.dumps(members), flush=True)
    return code


def _read_lines(stream: BinaryIO) -> Iterator[bytes]:
    """Each line of *stream*; one that is too long is cut one octet beyond the limit."""
    while line := stream.readline(MAX_OCTETS + 1):
        rest = line
        while len(rest) > MAX_OCTETS and not rest.endswith(b"\n"):
            rest = stream.readline(MAX_OCTETS + 1)
        yield line


def _answered(number: int, line: bytes, defaults: Defaults) -> dict[str, Any]:
    url = None
    try:
        entry = _entry(line)
        url = _text(entry, "url")
        return _judged(url, entry, defaults)
    except WalshError as error:
        return {"url": url, "error": f"line {number}: {error}"}


def _entry(line: bytes) -> dict[str, Any]:
    if len(line) > MAX_OCTETS:
        raise Misuse(f"longer than {MAX_OCTETS} octets")
    try:
        text = line.decode("utf-8-sig").strip()
        entry = json.loads(text) if text.startswith(("{", "[", '"')) else {"url": text}
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


def _judged(written: str, entry: dict[str, Any], defaults: Defaults) -> dict[str, Any]:
    """The answer about *written*, by what a line of a batch gives, and by *defaults*."""
    token = common.token_of(entry["token"]) if "token" in entry else defaults.token
    url, listed = common.absolute(written), defaults.operator_list
    listed = defaults.kept_list if listed is None else listed
    rules, note = defaults.rules(entry, token, url)
    if "blocklist" in entry:
        text = entry["blocklist"]  # the JSON document, or its text
        listed = _blocklist_of(text if isinstance(text, str) else json.dumps(text))
    verdict = Given(rules, listed).judge(url, defaults.gates)
    if rules is None and verdict.allowed and listed is defaults.kept_list:
        raise Misuse(_NO_ROBOTS)
    return _noted(_members(url, verdict, None if rules is None else rules.crawl_delay), note)


@lru_cache(maxsize=16)
def _robots_of(body: bytes, token: str, document: str | None) -> Robots:
    return parse_robots(body, token, document)


@lru_cache(maxsize=4)
def _blocklist_of(text: str) -> Blocklist:
    return common.blocklist_of(octets(text), None)
