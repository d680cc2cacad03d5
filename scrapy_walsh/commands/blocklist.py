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
from scrapy_walsh.policy.list.blocklist import MAX_OCTETS, normalised
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
    for made in (adds, removes):
        made.add_argument("host", metavar="HOST", help="a host, or a URL of it")
        made.add_argument("--file", type=Path, default=Path(LIST), metavar="FILE", help=the_list)
    adds.add_argument("--reason", metavar="TEXT", help="written into the entry")
    checks.add_argument("list", metavar="FILE|URL", nargs="?", default=LIST, help=the_list)
    common.add_settings(checks)


def run(args: argparse.Namespace) -> int:
    """Run the action."""
    code: int = args.action(args)
    return code


# -- add, remove --------------------------------------------------------------------------


def _add(args: argparse.Namespace) -> int:
    document, held = _read(args.file)
    hosts = _hosts(args.host)
    listed = set(held)
    new = [host for host in hosts if host not in listed]
    today = iso(time.time())[:10]
    for host in new:
        entry = {"domain": host, "added": today}
        document["blocked"].append(entry | ({"reason": args.reason} if args.reason else {}))
    made = _write(args.file, document) if new else held
    there = [host for host in hosts if host not in new]
    members = {"added": new, "on_the_list_already": there, **_members(made)}
    lines = [f"{'added' if host in new else 'on the list already'}: {host}" for host in hosts]
    lines += _when(args.file, made)
    common.answer(args, members, map(common.printable, lines))
    return 0


def _remove(args: argparse.Namespace) -> int:
    document, held = _read(args.file)
    hosts = sorted(set(_hosts(args.host)))
    kept = [entry for entry in document["blocked"] if not _is_of(entry, set(hosts))]
    if len(kept) == len(document["blocked"]):
        common.tell("blocklist", f"no entry for {args.host}")
        show(map(common.printable, _parents(hosts, held)))
        return 1
    document["blocked"] = kept
    made = _write(args.file, document)
    lines = [*(f"removed: {host}" for host in hosts), *_parents(hosts, made)]
    lines += _when(args.file, made)
    common.answer(args, {"removed": hosts, **_members(made)}, map(common.printable, lines))
    return 0


def _is_of(entry: dict[str, Any], hosts: set[str]) -> bool:
    """Whether *entry* names *hosts* alone. Misuse where it names others as well."""
    found = set(normalised([entry["domain"]])[0])
    if found & hosts and not found <= hosts:
        shown = ", ".join(sorted(found - hosts))
        raise Misuse(f"the entry {entry['domain']!r} names {shown} as well: change it by hand")
    return bool(found & hosts)


def _hosts(written: str) -> list[str]:
    """The hosts that a list with the entry *written* would block; warnings go to stderr."""
    found, warnings = normalised([written])
    if not found:
        raise Misuse(f"{written!r} names no host that can be read")
    common.tell("blocklist", *warnings)
    return list(dict.fromkeys(found))


def _read(path: Path) -> tuple[dict[str, Any], Blocklist]:
    """The document in *path* and what it blocks. DocumentInvalid, Misuse where there is none."""
    body = _octets(path)
    held = common.blocklist_of(body, str(path))
    document: dict[str, Any] = json.loads(body)
    return document, held


def _octets(path: Path) -> bytes:
    if not path.exists():
        raise Misuse(f"no {path} here: `walsh init` makes one, or name another")
    return common.read_file(path, MAX_OCTETS)


def _write(path: Path, document: dict[str, Any]) -> Blocklist:
    """Replace *path* at once, with a list that a crawl would adopt. DocumentInvalid, OSError."""
    document["updated"] = iso(time.time())
    body = f"{json.dumps(document, indent=2, ensure_ascii=False)}\n".encode()
    made = common.blocklist_of(body, str(path))
    replace_file(path, body)
    return made


def _when(path: Path, made: Blocklist) -> Iterator[str]:
    """How soon a change counts: a list is fetched again after its ``refresh`` (R12)."""
    yield f"{path} lists {plural(len(made), 'domain')}; upload it"
    yield f"crawls fetch it again when their copy is older than {duration(made.refresh)}"


def _parents(hosts: Iterable[str], made: Blocklist) -> Iterator[str]:
    for host in hosts:
        if (verdict := made.blocks(host)) is not None:
            yield f"still blocked: {verdict.reason}"


# -- check --------------------------------------------------------------------------------


def _check(args: argparse.Namespace) -> int:
    body = _fetched(args) if "://" in args.list else _octets(Path(args.list))
    try:
        held = common.blocklist_of(body, args.list)
    except DocumentInvalid as error:
        told = common.printable(f"no crawl would adopt {args.list}: {error}")
        common.answer(args, {"adopted": False, "reason": str(error)}, [told])
        return 1
    members = {"adopted": True, **_members(held), "warnings": list(held.warnings)}
    what = f"{plural(len(held), 'domain')}, fetched again after {duration(held.refresh)}"
    facts = [f"a crawl would adopt {args.list}: {what}"]
    if "schema" not in json.loads(body):
        facts.append("it has no schema: a crawl validates with that of the identity's schema_url")
    common.answer(args, members, map(common.printable, facts))
    if not args.json:
        common.tell("blocklist", *held.warnings)
    return 0


def _fetched(args: argparse.Namespace) -> bytes:
    from scrapy_walsh.commands.own_crawl import request_pages  # noqa: PLC0415  files need no crawl

    settings, url = common.settings_to_send(args, "or a file"), args.list
    page = request_pages(settings, _REASON, url)[url]
    if not page.is_up or page.answer == 304:
        why = f"HTTP {page.answer}" if isinstance(page.answer, int) else page.answer
        raise Misuse(f"{url} gave no list: {why}")
    return page.body


def _members(held: Blocklist) -> dict[str, Any]:
    """What a JSON answer says of a list; ``refresh``: seconds."""
    return {"domains": len(held), "refresh": held.refresh, "updated": held.updated}
