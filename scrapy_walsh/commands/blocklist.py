"""``walsh blocklist``: the operator's own list of hosts that have opted out: add, remove, check.

A list is read as a crawl reads it, before a change and after it, so that none is written that a
crawl would not adopt.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from scrapy_walsh.commands import common
from scrapy_walsh.commands.common import Misuse
from scrapy_walsh.commands.terminal import show
from scrapy_walsh.exceptions import DocumentInvalid
from scrapy_walsh.policy.list.blocklist import MAX_OCTETS, normalise
from scrapy_walsh.policy.times import duration, iso
from scrapy_walsh.policy.words import plural
from scrapy_walsh.proof.files import replace_file

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable, Iterator

    from scrapy_walsh.policy.list.blocklist import Blocklist

#: The list, as ``walsh init`` names it.
LIST: Final = "blocklist.json"
#: Why ``check URL`` sends.
_REASON: Final = "walsh blocklist check looks at the list"


def add_options(parser: argparse.ArgumentParser) -> None:
    """What ``walsh blocklist`` takes."""
    add = common.actions_of(parser)
    adds = add("add", _add, "put a host, and all below it, on the list")
    removes = add("remove", _remove, "take a host off the list")
    checks = add("check", _check, "tell whether a crawl would adopt a list")
    the_list = "the list (default: %(default)s)"
    for command in (adds, removes):
        command.add_argument("host", metavar="HOST", help="a host, or a URL of it")
        command.add_argument(
            "--file",
            type=Path,
            default=Path(LIST),
            metavar="FILE",
            help=the_list,
        )
    adds.add_argument("--reason", metavar="TEXT", help="written into the entry")
    checks.add_argument("list", metavar="FILE|URL", nargs="?", default=LIST, help=the_list)
    common.add_settings(checks)


def run(args: argparse.Namespace) -> int:
    """Run the action."""
    code: int = args.action(args)
    return code


# -- add, remove --------------------------------------------------------------------------


def _add(args: argparse.Namespace) -> int:
    document, blocklist = _read(args.file)
    hosts = _hosts(args.host)
    domains = set(blocklist)
    new = [host for host in hosts if host not in domains]
    today = iso(time.time())[:10]
    for host in new:
        entry = {"domain": host, "added": today}
        document["blocked"].append(entry | ({"reason": args.reason} if args.reason else {}))
    new_list = _write(args.file, document) if new else blocklist
    there = [host for host in hosts if host not in new]
    members = {"added": new, "on_the_list_already": there, **_members(new_list)}
    lines = [f"{'added' if host in new else 'on the list already'}: {host}" for host in hosts]
    lines += _when(args.file, new_list)
    common.answer(args, members, map(common.printable, lines))
    return 0


def _remove(args: argparse.Namespace) -> int:
    document, blocklist = _read(args.file)
    hosts = sorted(set(_hosts(args.host)))
    remaining = [entry for entry in document["blocked"] if not _is_of(entry, set(hosts))]
    if len(remaining) == len(document["blocked"]):
        common.tell("blocklist", f"no entry for {args.host}")
        show(map(common.printable, _parents(hosts, blocklist)))
        return 1
    document["blocked"] = remaining
    new_list = _write(args.file, document)
    lines = [
        *(f"removed: {host}" for host in hosts),
        *_parents(hosts, new_list),
    ]
    lines += _when(args.file, new_list)
    common.answer(
        args,
        {"removed": hosts, **_members(new_list)},
        map(common.printable, lines),
    )
    return 0


def _is_of(entry: dict[str, Any], hosts: set[str]) -> bool:
    """Whether *entry* names *hosts* alone. Misuse if it names others as well."""
    domains = set(normalise([entry["domain"]])[0])
    if domains & hosts and not domains <= hosts:
        names = ", ".join(sorted(domains - hosts))
        raise Misuse(f"the entry {entry['domain']!r} names {names} as well: change it by hand")
    return bool(domains & hosts)


def _hosts(text: str) -> list[str]:
    """The hosts that a list with the entry *text* would block; warnings go to stderr."""
    hosts, warnings = normalise([text])
    if not hosts:
        raise Misuse(f"{text!r} names no host that can be read")
    common.tell("blocklist", *warnings)
    return list(dict.fromkeys(hosts))


def _read(path: Path) -> tuple[dict[str, Any], Blocklist]:
    """The document in *path* and what it blocks. DocumentInvalid, Misuse if there is none."""
    body = _octets(path)
    blocklist = common.blocklist_of(body, str(path))
    document: dict[str, Any] = json.loads(body)
    return document, blocklist


def _octets(path: Path) -> bytes:
    if not path.exists():
        raise Misuse(f"no {path} here: `walsh init` makes one, or name another")
    return common.read_file(path, MAX_OCTETS)


def _write(path: Path, document: dict[str, Any]) -> Blocklist:
    """Replace *path* at once, with a list that a crawl would adopt. DocumentInvalid, OSError."""
    document["updated"] = iso(time.time())
    body = f"{json.dumps(document, indent=2, ensure_ascii=False)}\n".encode()
    blocklist = common.blocklist_of(body, str(path))
    replace_file(path, body)
    return blocklist


def _when(path: Path, blocklist: Blocklist) -> Iterator[str]:
    """How soon a change counts: a list is fetched again after its ``refresh`` (R12)."""
    yield f"{path} lists {plural(len(blocklist), 'domain')}; upload it"
    yield f"crawls fetch it again when their copy is older than {duration(blocklist.refresh)}"


def _parents(hosts: Iterable[str], blocklist: Blocklist) -> Iterator[str]:
    for host in hosts:
        if (verdict := blocklist.blocks(host)) is not None:
            yield f"still blocked: {verdict.reason}"


# -- check --------------------------------------------------------------------------------


def _check(args: argparse.Namespace) -> int:
    body = _fetch(args) if "://" in args.list else _octets(Path(args.list))
    try:
        blocklist = common.blocklist_of(body, args.list)
    except DocumentInvalid as error:
        text = common.printable(f"no crawl would adopt {args.list}: {error}")
        common.answer(args, {"adopted": False, "reason": str(error)}, [text])
        return 1
    members = {
        "adopted": True,
        **_members(blocklist),
        "warnings": list(blocklist.warnings),
    }
    summary = (
        f"{plural(len(blocklist), 'domain')}, fetched again after {duration(blocklist.refresh)}"
    )
    facts = [f"a crawl would adopt {args.list}: {summary}"]
    if "schema" not in json.loads(body):
        facts.append("it has no schema: a crawl validates with that of the identity's schema_url")
    common.answer(args, members, map(common.printable, facts))
    if not args.json:
        common.tell("blocklist", *blocklist.warnings)
    return 0


def _fetch(args: argparse.Namespace) -> bytes:
    from scrapy_walsh.commands.own_crawl import request_pages  # noqa: PLC0415  files need no crawl

    settings = common.settings_to_send(args, "or a file")
    url = args.list
    page = request_pages(settings, _REASON, url)[url]
    if not page.is_up or page.answer == 304:
        answer = f"HTTP {page.answer}" if isinstance(page.answer, int) else page.answer
        raise Misuse(f"{url} gave no list: {answer}")
    return page.body


def _members(blocklist: Blocklist) -> dict[str, Any]:
    """The members of a JSON answer about a list; ``refresh``: seconds."""
    return {
        "domains": len(blocklist),
        "refresh": blocklist.refresh,
        "updated": blocklist.updated,
    }
