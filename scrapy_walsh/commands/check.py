"""``walsh check URL``: may the bot fetch it, which rule decides, and how would it be paced?

With ``--robots``, ``--blocklist``, ``--token`` or ``--batch`` nothing is requested: URLs are judged
by these files, with the last two also by what crawls have left in the state, in the order of
``policy/chain.py``, and an answer says which of the two was missing. Without them the documents are
fetched through the gates (``own_crawl``); the URL itself only with ``--fetch``.
"""

from __future__ import annotations

import json
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final

from scrapy_walsh.commands import common
from scrapy_walsh.commands.common import Misuse
from scrapy_walsh.config import gates_of
from scrapy_walsh.exceptions import WalshError
from scrapy_walsh.policy import hosts
from scrapy_walsh.policy.given import Given, octets
from scrapy_walsh.policy.list.blocklist import MAX_OCTETS, join_lists
from scrapy_walsh.policy.packing import is_text, unpacked_once_more
from scrapy_walsh.policy.robots.fetch import NO_RULES, PARSE
from scrapy_walsh.policy.robots.file import parse_robots
from scrapy_walsh.policy.times import iso
from scrapy_walsh.policy.verdict import UNKNOWN_PARSE_ERROR
from scrapy_walsh.state.database import has_records
from scrapy_walsh.state.records import ROBOTS, StoredDocument
from scrapy_walsh.state.store import SqliteStore

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterator

    from scrapy_walsh.commands.own_crawl import Page
    from scrapy_walsh.policy.list.blocklist import Blocklist
    from scrapy_walsh.policy.verdict import Verdict

#: The note if a robots.txt is not text.
_NO_TEXT: Final = "this robots.txt is not text: check the answer of its host"
#: The members that an answer has from a verdict, beside its name.
_OF_A_VERDICT: Final = ("requirement", "reason", "document", "line", "group")
_INSTEAD: Final = (
    "because a request must name its bot (R1.4); without a request: --robots FILE, "
    "--blocklist FILE, or --token NAME for what is cached"
)


def add_options(parser: argparse.ArgumentParser) -> None:
    """What ``walsh check`` takes."""
    add = parser.add_argument
    add("urls", metavar="URL", nargs="*", help="without a scheme, https is taken")
    add(
        "--robots",
        metavar="FILE",
        help="judge by this robots.txt, send nothing; - for stdin",
    )
    add(
        "--blocklist",
        metavar="FILE",
        help="judge by this blocklist, send nothing; - for stdin",
    )
    add(
        "--token",
        metavar="NAME",
        help="judge by this name and the cached documents, send nothing",
    )
    common.add_settings(parser)
    common.add_json(parser)
    add("--fetch", action="store_true", help="request each allowed URL, as a crawl would")
    add(
        "--batch",
        action="store_true",
        help='stdin: URL or {"robots": TEXT, "url": URL}, a line',
    )


def run(args: argparse.Namespace) -> int:
    """Answer about one URL, or about each line of a batch."""
    if args.batch == bool(args.urls):
        raise Misuse("give a URL, or --batch and the URLs on standard input")
    offline = args.batch or (args.robots, args.blocklist, args.token) != (None, None, None)
    if args.fetch:
        if offline:
            raise Misuse("--fetch sends: leave out --robots, --blocklist, --token and --batch")
        return _fetch(args)
    if args.batch:
        return _batch(_judge_of(args))
    url, *others = args.urls
    if others:
        raise Misuse("give one URL; several with --fetch, or with --batch on standard input")
    members = _judge_of(args)(url) if offline else _online(args, url)
    common.answer(args, members, _lines(members))
    if members["allowed"]:
        return 0
    return 1


def _fetch(args: argparse.Namespace) -> int:
    """Request the URLs; 2 if there is no answer to one, else 1 if one is denied, else 0."""
    urls = list(dict.fromkeys(map(common.absolute, args.urls)))
    settings = common.settings_to_send(args, _INSTEAD)
    from scrapy_walsh.commands.own_crawl import request_pages  # noqa: PLC0415  files need no crawl

    pages = [_page_members(url, page) for url, page in request_pages(settings, "", *urls).items()]
    lines = [_page_line(page) for page in pages]
    if len(urls) > 1:
        lines = [f"{line}  {url}" for line, url in zip(lines, urls, strict=True)]
    common.answer(args, {"pages": pages}, map(common.printable, lines))
    permissions = {page["allowed"] for page in pages}
    if None in permissions:
        return 2
    return int(False in permissions)


def _page_members(url: str, page: Page) -> dict[str, Any]:
    """What came of a request. ``allowed``: None without an answer, for the ``reason``."""
    members: dict[str, Any] = {"url": url, "allowed": None, "status": None, "bytes": None}
    if isinstance(page.answer, int):
        return {**members, "allowed": True, "status": page.answer, "bytes": len(page.body)}
    if page.refusal is None:
        return {**members, "reason": page.answer}
    verdict = page.refusal
    names = ("requirement", "reason", "document")
    by = {name: getattr(verdict, name) for name in names}
    return {**members, "allowed": False, "verdict": verdict.name, **by}


def _page_line(page: dict[str, Any]) -> str:
    if page["allowed"]:
        return f"ALLOW {page['status']} ({page['bytes']} bytes)"
    if page["allowed"] is None:
        return f"FAILED {page['reason']}"
    return f"DENY {page['requirement']} {page['reason']}"


def _online(args: argparse.Namespace, written: str) -> dict[str, Any]:
    url = common.absolute(written)
    settings = common.settings_to_send(args, _INSTEAD)
    from scrapy_walsh.commands.own_crawl import ask  # noqa: PLC0415  files need no crawl

    verdict, delay, robots = ask(url, settings)
    note = _NO_TEXT if verdict.name == UNKNOWN_PARSE_ERROR else _note(robots)
    return _members(url, verdict, delay, note)


def _members(url: str, verdict: Verdict, delay: float | None, note: str) -> dict[str, Any]:
    """The answer as a JSON object; with ``readings`` if they differ, and *note* if there is one."""
    members: dict[str, Any] = {
        "url": url,
        "allowed": verdict.allowed,
        "verdict": verdict.name,
        **{name: getattr(verdict, name) for name in _OF_A_VERDICT},
        "crawl_delay": delay,
    }
    if verdict.readings:
        members["readings"] = dict(verdict.readings)
    if note:
        return {**members, "note": note}
    return members


def _note(robots: bytes) -> str:
    """The note about a robots.txt that cannot be one; else empty."""
    if is_text(robots) or robots[:2] in {
        b"\xff\xfe",
        b"\xfe\xff",
    }:  # UTF-16, which is read
        return ""
    return _NO_TEXT


def _lines(members: dict[str, Any]) -> Iterator[str]:
    """The answer for a person."""
    permission = {True: "allowed", False: "denied"}
    yield common.printable(f"{permission[members['allowed']]}: {members['url']}")
    delay = members["crawl_delay"]
    readings = members.get("readings", {})
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
            yield f"  {name:<12} {common.printable(str(value))}"


# -- judged without a request -----------------------------------------------------------------


def _judge_of(args: argparse.Namespace) -> Callable[..., dict[str, Any]]:
    """The function that answers about a URL. It reads the robots.txt that it is called with, else
    the files of the options; with ``--token`` and ``--batch`` also the state that crawls have left.
    It may raise Misuse.
    """
    if "-" in (args.robots, args.blocklist) and (args.batch or args.robots == args.blocklist):
        raise Misuse("only one of --robots, --blocklist and --batch can read standard input")
    cached = args.batch or args.token is not None
    config = common.read_config(args, None if cached else Path())
    token = common.token_of(config.identity.token if args.token is None else args.token)
    state = config.state_dir if cached else None
    robots_given = None
    if args.robots is not None:
        packed = _read(args.robots, common.ROBOTS_LIMIT)
        robots_given = unpacked_once_more(packed, common.ROBOTS_LIMIT) or packed
    if args.blocklist is None:
        blocklist = _stored_list(state, config.blocklist_url, token)
    else:
        blocklist = common.blocklist_of(_read(args.blocklist, MAX_OCTETS), args.blocklist)

    def judge(text: str, robots: str | None = None) -> dict[str, Any]:
        url = common.absolute(text)
        note = ""
        body = robots_given
        document = args.robots
        if robots is not None:
            body = octets(robots)
            document = None
        elif body is None:
            stored = _stored_document(state, ROBOTS, hosts.origin(url))
            if stored is not None and stored.outcome in (NO_RULES, PARSE):
                body = stored.body
                document = stored.url
                note = f"as it was fetched at {iso(stored.fetched_at)}"
        rules = None if body is None else parse_robots(body, token, document)
        verdict = Given(rules, blocklist).judge(url, gates_of(config))
        if rules is None and verdict.allowed and args.blocklist is None:
            others = ' or {"robots": TEXT, "url": URL}' if args.batch else ""
            raise Misuse(
                f"no robots.txt of {hosts.origin(url)} is cached: give --robots FILE{others}, or "
                "fetch it by `walsh check URL`"
            )
        delay = None if rules is None else rules.crawl_delay
        return _members(url, verdict, delay, _note(body or b"") or note)

    return judge


def _stored_document(state: Path | None, kind: str, key: str) -> StoredDocument | None:
    """The document that crawls have left in *state*; None if there is none."""
    if state is None or not has_records(state):
        return None
    with closing(SqliteStore(state)) as store:
        return store.get(StoredDocument, kind, key)


def _stored_list(state: Path | None, url: str, token: str) -> Blocklist | None:
    """The lists that bind the bot *token* (D39); None if there is none."""
    from scrapy_walsh.adapters.documents.validate import reread  # noqa: PLC0415  slow, as below

    if state is None or not has_records(state):
        return None
    with closing(SqliteStore(state)) as store:
        documents = store.binding_lists(url, token.lower(), time.time())
    if documents:
        return join_lists([reread(document) for document in documents])
    return None


def _read(path: str, limit: int) -> bytes:
    if path == "-":
        return _standard_input().read(limit)
    return common.read_file(path, limit)


def _standard_input() -> BinaryIO:
    if sys.stdin is None:
        raise Misuse("standard input is closed")
    return sys.stdin.buffer


# -- batch ------------------------------------------------------------------------------------


def _batch(judge: Callable[..., dict[str, Any]]) -> int:
    """Answer about each line of standard input; 2 if a line cannot be judged, else 0."""
    code = 0
    for number, line in enumerate(_standard_input(), 1):
        if line.strip():
            entry: dict[str, Any] = {}
            try:
                entry = _entry(line)
                for name, value in entry.items():
                    if not isinstance(value, str):
                        raise Misuse(f"{name!r} is not a string")
                members = judge(entry["url"], entry.get("robots"))
            except WalshError as error:
                members = {
                    "url": entry.get("url"),
                    "error": f"line {number}: {error}",
                }
                code = 2
            print(json.dumps(members), flush=True)
    return code


def _entry(line: bytes) -> dict[str, Any]:
    """A line as an object: JSON, or a plain URL. Misuse."""
    try:
        text = line.decode("utf-8-sig").strip()
        entry = json.loads(text) if text.startswith(("{", "[", '"')) else {"url": text}
    except (ValueError, RecursionError) as error:
        raise Misuse(f"not JSON: {str(error)[:200]}") from None
    if not isinstance(entry, dict) or entry.keys() - {"url", "robots"} or "url" not in entry:
        raise Misuse("not an object of 'url' and perhaps 'robots'")
    return entry
