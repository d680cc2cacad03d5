"""``walsh init``: what a bot of one's own needs to say who it is, and to be told to stay away.

It writes a blocklist, a policy page and a file of sources, with ``--sign`` also a key and its
directory. What is there already stays as it is. It prints the settings, a line for cron, what
to upload where, and what will be different for the spiders of a project that exists.
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
from contextlib import suppress
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from scrapy_walsh.commands import own_process
from scrapy_walsh.commands.common import Misuse, blocklist_of, tell
from scrapy_walsh.commands.terminal import show
from scrapy_walsh.policy.identity import identity_from
from scrapy_walsh.policy.signing import DIRECTORY_PATH, DIRECTORY_TYPE, directory_url
from scrapy_walsh.policy.times import iso
from scrapy_walsh.policy.words import visible
from scrapy_walsh.proof.files import replace_file

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Mapping, Sequence

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
<p>It requests the pages and feeds that its operator has listed, and {links}. It
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
#: What the page says of links, by whether they are followed.
_LINKS: Final = {False: "follows no links from them", True: "pages that these link to"}
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
_PAGE: Final = "policy.html"
_SPIDERS: Final = "scrapy_walsh.spiders"
#: What a person at the terminal is asked where a spider would need it, by requirement.
_QUESTIONS: Final = {
    "R6": ("WALSH_FOLLOW_LINKS", "follow links?"),
    "R9": ("WALSH_SCRAPING", "scrape HTML?"),
}
#: Seconds that the look at the spiders may take.
_LOOK: Final = 120.0
#: Where the key is, with ``--sign``.
_KEY: Final = Path("keys", "key.pem")


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
    """Write the files that are missing, and print what is left to do.

    Called again it goes on where an earlier call was stopped.
    """
    bot = _bot(args)
    key = args.dir / _KEY if bot.directory else None
    settings = _settings_file(args.dir)
    if args.write and settings is None:
        raise Misuse(f"no Scrapy project's settings at {args.dir}; leave --write out")
    report = _look(args.dir) if settings else {}
    wanted = list(_wanted(report))
    block = _settings(bot.identity, settings, key, wanted)
    follows = "WALSH_FOLLOW_LINKS" in wanted or bool(report.get("follows"))
    texts = {args.dir / name: text for name, text in _files(bot, follows=follows).items()}
    lines = []
    args.dir.mkdir(parents=True, exist_ok=True)
    for path in (*texts, *([key] if key else [])):
        there = os.path.lexists(path)
        said = "kept, as it was" if there else "written"
        if path in texts and not there:
            replace_file(path, texts[path].encode())
        elif not there:
            from scrapy_walsh.proof.keys import make_keys  # noqa: PLC0415  slow

            make_keys(path.parent)
        elif report and path.name == _PAGE and path.is_file():
            said = _corrected(path, texts[path], follows=follows)
        lines.append(f"{said}: {path}")
    if args.write and settings is not None:
        if block:
            replace_file(settings, settings.read_bytes() + f"\n{block}".encode())
        lines.append(f"{'appended to' if block else 'kept, as it was'}: {settings}")
    lines += _different(report, wanted)
    show([*map(visible, lines), *_told(bot, args.dir, None if args.write else block)])
    return 0


# -- the spiders that are there -------------------------------------------------------------


def _look(directory: Path) -> dict[str, Any]:
    """What a look at the spiders of the project in *directory* finds; empty where none can be."""
    try:
        return own_process.ask("scrapy_walsh.commands.doctor_probe", {}, _LOOK, directory)
    except own_process.NoAnswerError as error:
        tell("init", f"the project's spiders are not seen: looking at them {error}")
        return {}


def _wanted(report: Mapping[str, Any]) -> Iterator[str]:
    """The settings for which a spider has a need, and to which the person at the terminal agrees.

    None where nobody can be asked: then :func:`_different` names them.
    """
    if sys.stdin is None or not sys.stdin.isatty():
        return
    for rule, (name, question) in _QUESTIONS.items():
        of = [
            str(each["name"])
            for each in report.get("spiders", ())
            if any(said[1] == rule and name in said[3] for said in each["said"])
        ]
        shown = visible(", ".join(sorted(of)[:8]) + (", ..." if of[8:] else ""))
        with suppress(EOFError):
            if of and input(f"{question} [y/N] ({shown}): ").strip().lower() in ("y", "yes"):
                yield name


def _different(report: Mapping[str, Any], wanted: Sequence[str]) -> Iterator[str]:
    """The lines about what will be different for the spiders, with the settings *wanted*."""
    if not report:
        return
    from scrapy_walsh.commands.doctor import of_spiders  # noqa: PLC0415  slow

    said = [each for each in of_spiders(report) if each.about in ("spider", "spiders")]
    found = [each for each in said if not any(name in each.text for name in wanted)]
    if found:
        yield "what will be different in this project (walsh doctor says it again):"
    yield from (f"  {each.rule:<4} {each.about}: {each.text}" for each in found)


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


def _files(bot: _Bot, *, follows: bool) -> dict[str, str]:
    """Each file's name and text. *follows*: links. DocumentInvalid when a crawl would not adopt
    the list.
    """
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
        _PAGE: _POLICY.format(
            signed=_SIGNED.format(directory=escape(bot.directory)) if bot.directory else "",
            contact=escape(bot.contact),
            links=_LINKS[follows],
            **{
                name: escape(getattr(identity, name))
                for name in ("token", "user_agent", "blocklist_url")
            },
        ),
        "sources.toml": _SOURCES,
    }


def _corrected(path: Path, text: str, *, follows: bool) -> str:
    """What became of the page at *path*, which may say of links what is not so; *text*: what is.

    One that nobody has changed since it was written is written anew.
    """
    says, there = _LINKS[not follows], path.read_text(encoding="utf-8", errors="replace")
    if says not in " ".join(there.split()):
        return "kept, as it was"
    if there != text.replace(_LINKS[follows], says):
        return f'kept, and not true any more; write "{_LINKS[follows]}" for "{says}" in'
    replace_file(path, text.encode())
    return "written anew, since it said of links what is not so any more; upload it again"


# -- the settings -------------------------------------------------------------------------


def _settings(
    identity: Identity, path: Path | None, key: Path | None, wanted: Sequence[str] = ()
) -> str:
    """The lines for settings.py: those that the settings at *path* do not have yet.

    *key*: that requests are signed with, if they are. *wanted*: settings to switch on.
    """
    there = {} if path is None else _assigned(path)
    urls = {name: getattr(identity, name) for name in ("policy_url", "blocklist_url")}
    found = {
        "SPIDER_MODULES": _added(there, "SPIDER_MODULES", "[{}]", f'"{_SPIDERS}"'),
        "ADDONS": _added(there, "ADDONS", "{{{}}}", '"scrapy_walsh.Addon": 500'),
        "WALSH_IDENTITY": "\n".join(
            [
                "{",
                f'    "product": "{identity.product}",',
                *(f'    "{name}": {json.dumps(url)},' for name, url in urls.items()),
                "}",
            ]
        ),
    }
    if key is not None:
        found["WALSH_SIGN_REQUESTS"] = "True"
        found["WALSH_SIGNING_KEY"] = repr(str(key.absolute()))
    found.update(dict.fromkeys(wanted, "True"))
    kept = {name for name in there if name.startswith("WALSH_")}
    return "".join(
        f"{name} = {value}\n" for name, value in found.items() if value and name not in kept
    )


def _added(there: Mapping[str, str], name: str, form: str, entry: str) -> str:
    """The value of *name* with *entry* added to what is *there*; empty where it has that."""
    if entry.partition(":")[0].strip('"') in there.get(name, ""):
        return ""
    unpacked = ("**" if ":" in entry else "*") + f"{name}, " if name in there else ""
    return form.format(unpacked + entry)


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


def _assigned(path: Path) -> dict[str, str]:
    """What the Python file at *path* sets at its top level, as it is written. Misuse: no Python."""
    try:
        body = ast.parse(path.read_bytes()).body
    except (SyntaxError, ValueError) as error:
        raise Misuse(f"{path} is not Python: {error}") from None
    found: dict[str, str] = {}
    for node in body:
        if isinstance(node, (ast.Assign, ast.AnnAssign, ast.AugAssign)):
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                name = ast.unparse(target).partition("[")[0]
                found[name] = found.get(name, "") + ast.unparse(node)
    return found


# -- what is told -------------------------------------------------------------------------


def _told(bot: _Bot, directory: Path, block: str | None) -> Iterator[str]:
    identity = bot.identity
    where = shlex.quote(str(directory.absolute()))
    if block:
        yield "\nfor the project's settings.py (--write appends it):\n"
        yield block.rstrip()
    yield "\nto upload, before the first run:"
    yield f"  policy.html     to {identity.policy_url}; add to it what you read, and why"
    yield f"  blocklist.json  to {identity.blocklist_url}"
    if bot.directory is not None:
        yield f"  {_KEY.parent}/{DIRECTORY_PATH.rpartition('/')[2]} to {bot.directory},"
        yield f"    served as {DIRECTORY_TYPE}; key.pem stays here"
        yield "  and install what signs: pip install 'scrapy-walsh[sign]'"
    yield f"  and see that {bot.contact} reaches you"
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
