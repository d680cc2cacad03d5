"""``walsh init``: what a bot of one's own needs to say who it is, and to be told to stay away.

It writes a blocklist, a policy page and a file of sources, with ``--sign`` also a key and its
directory, never over one that is there. It prints the settings, a line for cron, and what to upload
where.
"""

from __future__ import annotations

import ast
import json
import os
import shlex
import sys
import time
import zlib
from configparser import ConfigParser
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from scrapy_walsh.commands.common import Misuse, blocklist_of
from scrapy_walsh.files import replace_file
from scrapy_walsh.policy.identity import identity_from
from scrapy_walsh.policy.signing import DIRECTORY_PATH, DIRECTORY_TYPE, directory_url
from scrapy_walsh.policy.times import iso
from scrapy_walsh.policy.words import visible
from scrapy_walsh.terminal import show

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
<p>It requests the pages and feeds that its operator has listed, and follows no links from them. It
sends one request at a time, at least a second apart on one host, and further apart where a
robots.txt has a <code>Crawl-delay</code> or an answer a <code>Retry-After</code>. It requests the
same page once a day at most.</p>
{signed}<h2>How to opt out</h2>
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
_SIGNED: Final = """\
<p>Each request is signed (RFC 9421, Web Bot Auth), by a key of
<a href="{directory}">{directory}</a>. A request under this name without such a signature is
somebody else's.</p>
"""
_SOURCES: Final = """\
# What `scrapy crawl walsh_metadata -a sources=sources.toml` requests, a table for each source.
# `feed` may be left out. Take the number signs away, and put your own in place of these:

# [[source]]
# name = "An example"
# url = "https://site.example/"
# feed = "https://site.example/feed.xml"
"""
_SPIDERS: Final = "scrapy_walsh.spiders"
#: The folder of the key, with ``--sign``.
_KEYS: Final = "keys"


@dataclass(frozen=True, slots=True)
class _Bot:
    """Who the bot is. ``contact``: a mail address; ``site``: the URL below which its pages are.

    ``directory``: the URL of the key directory, where its requests are signed.
    """

    identity: Identity
    site: str
    contact: str
    directory: str | None = None


def add_options(parser: argparse.ArgumentParser) -> None:
    """What ``walsh init`` takes."""
    add = parser.add_argument
    add("--product", metavar="NAME/VERSION", help="the bot's name, such as ExampleBot/1.0")
    add("--site", metavar="URL", help="where its pages will be, such as https://bot.example")
    add("--contact", metavar="MAIL", help="whom to write to (default: opt-out@ the site's host)")
    add("--dir", type=Path, default=Path(), metavar="DIR", help="where to write (default: here)")
    add("--sign", action="store_true", help="make a key too, and sign each request with it")
    add("--write", action="store_true", help="append the settings to those of the project in DIR")


def run(args: argparse.Namespace) -> int:
    """Write the files, and print what is left to do."""
    bot = _bot(args)
    files = _files(bot)
    keys = args.dir / _KEYS if bot.directory else None
    names = [*files, *([_KEYS] if keys else [])]
    there = [name for name in names if os.path.lexists(args.dir / name)]
    if there:
        raise Misuse(f"{args.dir} has {', '.join(there)} already; nothing is overwritten")
    settings = _settings_file(args.dir)
    block = _settings(bot.identity, settings if args.write else None, keys)
    if args.write:
        _check_unset(settings, args.dir)
    with _undone_on_failure() as made:
        for folder in [each for each in (args.dir, *args.dir.parents) if not each.exists()][::-1]:
            folder.mkdir()
            made.append(folder)
        for name, text in files.items():
            with (args.dir / name).open("x", encoding="utf-8") as file:
                made.append(args.dir / name)
                file.write(text)
        if keys is not None:
            made.append(keys)
            _make_keys(keys, made)
        if args.write and settings is not None:
            replace_file(settings, settings.read_bytes() + f"\n{block}".encode())
    lines = [f"written: {args.dir / name}" for name in names]
    lines += [f"appended to: {settings}"] if args.write else []
    show([*map(visible, lines), *_told(bot, args.dir, None if args.write else block)])
    return 0


def _make_keys(directory: Path, made: list[Path]) -> None:
    """Make a key in *directory*; each file there is added to *made*, also where that fails."""
    from scrapy_walsh.keys.files import make_keys  # noqa: PLC0415  slow

    try:
        make_keys(directory)
    finally:
        made.extend(directory.glob("*"))


@contextmanager
def _undone_on_failure() -> Iterator[list[Path]]:
    """A list for what is made; where an error ends it, all of that is deleted again."""
    made: list[Path] = []
    try:
        yield made
    except BaseException:
        for path in reversed(made):
            with suppress(OSError):  # a directory that somebody else has put something into
                path.rmdir() if path.is_dir() else path.unlink()
        raise


# -- who ----------------------------------------------------------------------------------


def _bot(args: argparse.Namespace) -> _Bot:
    product = _given("product", args.product, "name and version of the bot, such as ExampleBot/1.0")
    site = _given("site", args.site, "URL below which its pages will be").rstrip("/")
    urls = {"policy_url": f"{site}/policy.html", "blocklist_url": f"{site}/blocklist.json"}
    identity = identity_from({"product": product, **urls})
    host = urlsplit(site).hostname or ""
    usual = f"opt-out@{host.removeprefix('www.')}"
    contact = _given("contact", args.contact, f"whom to write to [{usual}]", usual)
    if contact.count("@") != 1 or not contact.isprintable() or " " in contact:
        raise Misuse(f"--contact {contact!r} is no mail address")
    return _Bot(identity, site, contact, directory_url(identity.policy_url) if args.sign else None)


def _given(option: str, value: str | None, question: str, usual: str | None = None) -> str:
    """What the option has, or what the person at the terminal answers; Misuse where there is none.

    Misuse or KeyboardInterrupt where the person does not answer.
    """
    if value is None and sys.stdin is not None and sys.stdin.isatty():
        try:
            value = input(f"{question}: ").strip() or None
        except EOFError:
            print()
            raise Misuse("stopped, and nothing was written") from None
    value = usual if value is None else value.strip()
    if not value:
        raise Misuse(f"no --{option} given; see --help")
    return value


# -- the files ----------------------------------------------------------------------------


def _files(bot: _Bot) -> dict[str, str]:
    """Each file's name and text. DocumentInvalid when a crawl would not adopt the list."""
    from scrapy_walsh.proof.sandbox import page  # noqa: PLC0415  the contract's schema

    identity = bot.identity
    members = {
        "contract": "walsh-research-blocklist/v1",
        "updated": iso(time.time()),
        "operator": identity.token,
        "contact": bot.contact,
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
            signed=_SIGNED.format(directory=escape(bot.directory)) if bot.directory else "",
            contact=escape(bot.contact),
            **{
                name: escape(getattr(identity, name))
                for name in ("token", "user_agent", "blocklist_url")
            },
        ),
        "sources.toml": _SOURCES,
    }


# -- the settings -------------------------------------------------------------------------


def _settings(identity: Identity, path: Path | None, keys: Path | None) -> str:
    """The lines for settings.py; they add to what the settings at *path* have.

    *keys*: the folder of the key that requests are signed with, if they are.
    """
    there = set() if path is None else _names(path)
    spiders = f'"{_SPIDERS}"]'
    spiders = f"[*SPIDER_MODULES, {spiders}" if "SPIDER_MODULES" in there else f"[{spiders}"
    addon = '"scrapy_walsh.Addon": 500}'
    addon = f"{{**ADDONS, {addon}" if "ADDONS" in there else f"{{{addon}"
    urls = {name: getattr(identity, name) for name in ("policy_url", "blocklist_url")}
    lines = [
        f"SPIDER_MODULES = {spiders}",
        f"ADDONS = {addon}",
        "WALSH_IDENTITY = {",
        f'    "product": "{identity.product}",',
        *(f'    "{name}": {json.dumps(url)},' for name, url in urls.items()),
        "}",
    ]
    if keys is not None:
        from scrapy_walsh.keys.files import KEY  # noqa: PLC0415  slow

        path = (keys / KEY).absolute()
        lines += ["WALSH_SIGN_REQUESTS = True", f"WALSH_SIGNING_KEY = {str(path)!r}"]
    return "".join(f"{line}\n" for line in lines)


def _settings_file(directory: Path) -> Path | None:
    """The settings of the project that *directory* is in; None where it is in none."""
    for folder in (directory.absolute(), *directory.absolute().parents):
        if (folder / "scrapy.cfg").is_file():
            config = ConfigParser()
            config.read(folder / "scrapy.cfg")
            name = os.environ.get("SCRAPY_PROJECT", "default")
            module = config.get("settings", name, fallback="").replace(".", "/")
            path = folder / f"{module}.py"
            return path if path.is_file() else None
    return None


def _check_unset(path: Path | None, directory: Path) -> None:
    """Misuse where the settings cannot be appended to, or name an identity already."""
    if path is None:
        raise Misuse(f"no Scrapy project's settings at {directory}; leave --write out")
    if "WALSH_IDENTITY" in _names(path):
        raise Misuse(f"{path} has WALSH_IDENTITY already; leave --write out")


def _names(path: Path) -> set[str]:
    """What the Python file at *path* sets at its top level. Misuse where it is none."""
    try:
        body = ast.parse(path.read_bytes()).body
    except (SyntaxError, ValueError) as error:
        raise Misuse(f"{path} is not Python: {error}") from None
    return {
        target.id
        for node in body
        if isinstance(node, (ast.Assign, ast.AnnAssign))
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
        if isinstance(target, ast.Name)
    }


# -- what is told -------------------------------------------------------------------------


def _told(bot: _Bot, directory: Path, block: str | None) -> Iterator[str]:
    identity = bot.identity
    where = shlex.quote(str(directory.absolute()))
    if block is not None:
        yield "\nfor the project's settings.py (--write appends it):\n"
        yield block.rstrip()
    yield "\nto upload, before the first run:"
    yield f"  policy.html     to {identity.policy_url}; add to it what you read, and why"
    yield f"  blocklist.json  to {identity.blocklist_url}"
    if bot.directory is not None:
        yield f"  {_KEYS}/{DIRECTORY_PATH.rpartition('/')[2]} to {bot.directory},"
        yield f"    served as {DIRECTORY_TYPE}; key.pem stays here"
        yield "  and install what signs: pip install 'scrapy-walsh[sign]'"
    yield f"  and see that {bot.contact} reaches you"
    yield "\nwhen a site opts out (and then upload blocklist.json again):"
    yield f"  walsh blocklist add HOST --file {shlex.quote(str(directory / 'blocklist.json'))}"
    yield "\nfor cron, once a day, at a minute that is not everybody's:"
    crawl = "scrapy crawl walsh_metadata -a sources=sources.toml -o items.jsonl"
    yield f"  {_cron(identity)} cd {where} && {crawl}"
    yield "\nthen, in the project: walsh doctor --online"


def _cron(identity: Identity) -> str:
    """A time of day by the bot's name: the same each time it is asked, and seldom two bots'."""
    minute = zlib.crc32(f"{identity.product} {identity.policy_url}".encode()) % 1440
    return f"{minute % 60} {minute // 60} * * *"
