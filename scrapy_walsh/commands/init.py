"""``walsh init``: what a bot of one's own needs to say who it is, and to be told to stay away.

It writes a blocklist, a policy page and a file of sources. What is there already stays as it is. It
prints the settings, or appends them to a file; a line for cron; and what to upload where.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import sys
import time
import zlib
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from scrapy_walsh.commands.common import Misuse, blocklist_of
from scrapy_walsh.commands.terminal import show
from scrapy_walsh.policy.identity import identity_from
from scrapy_walsh.policy.times import iso
from scrapy_walsh.policy.words import visible
from scrapy_walsh.proof.files import replace_file

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from scrapy_walsh.policy.identity import Identity

_POLICY: Final = """\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>{token}: about this bot</title>
</head>
<body>
<h1>About {token}</h1>
<p>{token} is an automated client. Each of its requests has this User-Agent:</p>
<pre>{user_agent}</pre>
<p>It requests the pages and feeds that its operator has listed. It sends one request at a time, at
least a second apart on one host, and further apart where a robots.txt has a
<code>Crawl-delay</code> or an answer a <code>Retry-After</code>. It requests the same page once a
day at most.</p>
<h2>How to opt out</h2>
<ul>
<li>In your <code>robots.txt</code>:
<pre>User-agent: {token}
Disallow: /</pre>
It holds within a day: a robots.txt is fetched again after 24 hours at the latest.</li>
<li>By mail to <a href="mailto:{contact}">{contact}</a>. Your host, with all hosts below it, is then
put on <a href="{blocklist_url}">the blocklist</a>, which the bot reads before any other request,
and fetches again when six hours have passed.</li>
</ul>
</body>
</html>
"""
_SOURCES: Final = """\
# What `scrapy crawl walsh_metadata -a sources=sources.toml` requests, a table for each source.
# `feed` may be left out. Take the number signs away, and put your own in place of these:

# [[source]]
# name = "An example"
# url = "https://site.example/"
# feed = "https://site.example/feed.xml"
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """What ``walsh init`` takes."""
    add = parser.add_argument
    product = "the bot's name, such as ExampleBot/1.0"
    add("--product", metavar="NAME/VERSION", required=True, help=product)
    site = "where its pages will be, such as https://bot.example"
    add("--site", metavar="URL", required=True, help=site)
    add("--contact", metavar="MAIL", help="whom to write to (default: opt-out@ the site's host)")
    add("--dir", type=Path, default=Path(), metavar="DIR", help="where to write (default: here)")
    add("--write", type=Path, metavar="FILE", help="append the settings to this settings.py")


def run(args: argparse.Namespace) -> int:
    """Write the files that are missing, and print what is left to do.

    Called again it goes on where an earlier call was stopped.
    """
    site = args.site.strip().rstrip("/")
    urls = {"policy_url": f"{site}/policy.html", "blocklist_url": f"{site}/blocklist.json"}
    identity = identity_from({"product": args.product, **urls})
    host = (urlsplit(site).hostname or "").removeprefix("www.")
    contact = args.contact or f"opt-out@{host}"
    if contact.count("@") != 1 or not contact.isprintable() or " " in contact:
        raise Misuse(f"--contact {contact!r} is no mail address")
    before = b"" if args.write is None else args.write.read_bytes()
    there = before.decode("utf-8", "replace")
    block = _settings(identity, there)
    lines = []
    files = _files(identity, contact)
    args.dir.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        path = args.dir / name
        kept = os.path.lexists(path)
        if not kept:
            replace_file(path, text.encode())
        lines.append(f"{'kept, as it was' if kept else 'written'}: {path}")
    if args.write is not None:
        kept = _is_set("WALSH_IDENTITY", there)
        if not kept:
            replace_file(args.write, before + f"\n{block}".encode())
        lines.append(f"{'kept, as it was' if kept else 'appended to'}: {args.write}")
    told = _told(identity, contact, args.dir, block if args.write is None else "")
    show([*map(visible, lines), *told])
    return 0


def _files(identity: Identity, contact: str) -> dict[str, str]:
    """Each file's name and text. DocumentInvalid when a crawl would not adopt the list."""
    from scrapy_walsh.proof.sandbox import page  # noqa: PLC0415  the contract's schema

    members = {
        "contract": "walsh-research-blocklist/v1",
        "updated": iso(time.time()),
        "operator": identity.token,
        "contact": contact,
        "policy": identity.policy_url,
        "refresh": "PT6H",
        "blocked": [],
        "schema": json.loads(page("blocklist.schema.json")),
    }
    document = json.dumps(members, indent=2) + "\n"
    blocklist_of(document.encode(), None)
    return {
        "blocklist.json": document,
        "policy.html": _POLICY.format(
            contact=escape(contact),
            **{
                name: escape(getattr(identity, name))
                for name in ("token", "user_agent", "blocklist_url")
            },
        ),
        "sources.toml": _SOURCES,
    }


def _settings(identity: Identity, there: str) -> str:
    """The lines for settings.py, whose text is *there*: its spiders and add-ons stay."""
    spiders = "*SPIDER_MODULES, " if _is_set("SPIDER_MODULES", there) else ""
    addons = "**ADDONS, " if _is_set("ADDONS", there) else ""
    return f"""\
SPIDER_MODULES = [{spiders}"scrapy_walsh.spiders"]
ADDONS = {{{addons}"scrapy_walsh.Addon": 500}}
WALSH_IDENTITY = {{
    "product": "{identity.product}",
    "policy_url": {json.dumps(identity.policy_url)},
    "blocklist_url": {json.dumps(identity.blocklist_url)},
}}
"""


def _is_set(name: str, text: str) -> bool:
    """Whether the Python *text* sets *name* at its top level."""
    return re.search(rf"^{name}\b", text, re.MULTILINE) is not None


def _told(identity: Identity, contact: str, directory: Path, block: str) -> Iterator[str]:
    where = shlex.quote(str(directory.absolute()))
    if block:
        yield "\nfor the project's settings.py, beside what it has (--write FILE appends them):\n"
        yield block.rstrip()
    yield "\nto upload, before the first run:"
    yield f"  policy.html     to {identity.policy_url}; add to it what you read, and why"
    yield f"  blocklist.json  to {identity.blocklist_url}"
    yield f"  and see that {contact} reaches you"
    yield "\nwhen a site opts out (and then upload blocklist.json again):"
    yield f"  walsh blocklist add HOST --file {shlex.quote(str(directory / 'blocklist.json'))}"
    yield "\nfor cron, once a day, at a minute that is not everybody's; no output on a good day:"
    crawl = "crawl walsh_metadata -a sources=sources.toml -o items.jsonl -L WARNING"
    line = f"cd {where} && {shlex.quote(sys.executable)} -m scrapy {crawl}"
    yield f"  {_cron(identity)} {line.replace('%', chr(92) + '%')}"
    yield "\nthen, in the project: walsh doctor --online"


def _cron(identity: Identity) -> str:
    """A time of day by the bot's name: the same each time it is asked, and seldom two bots'."""
    minute = zlib.crc32(f"{identity.product} {identity.policy_url}".encode()) % 1440
    return f"{minute % 60} {minute // 60} * * *"
