"""``walsh init``: everything that a new bot needs to say who it is, and to be told to stay away.

It writes a blocklist, a policy page and a file of sources, with ``--sign`` also a key and its
directory. Existing files stay as they are. It prints the settings, or appends those that are
missing; a line for cron; the files to upload, and their places; and the changes for a project's
spiders.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import sys
import time
import zlib
from configparser import ConfigParser
from contextlib import chdir
from functools import partial
from html import escape
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar
from urllib.parse import urlsplit

import tomlkit

from scrapy_walsh.commands import own_process
from scrapy_walsh.commands.common import Misuse, blocklist_of
from scrapy_walsh.commands.terminal import NAMED, named, show
from scrapy_walsh.exceptions import WalshError, visible
from scrapy_walsh.policy.identity import identity_from
from scrapy_walsh.policy.signing import (
    DIRECTORY_PATH,
    DIRECTORY_TYPE,
    directory_url,
)
from scrapy_walsh.policy.times import iso
from scrapy_walsh.proof.files import replace_file
from scrapy_walsh.proof.findings import Outcome

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterator, Mapping, Sequence

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
<p>It requests the pages and feeds that its operator has listed{links}. It sends one request at a
time, at least a second apart on one host, and further apart where a robots.txt has a
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


_PRODUCT: Final = "name of the bot, such as ExampleBot: "
_SITE: Final = "URL below which its pages will be, such as https://bot.example: "
#: The files of ours that a site serves.
_PAGES: Final = ("blocklist.json", "policy.html")
#: Stands for a site while the product is checked.
_ANY_SITE: Final = "https://bot.example"
_T = TypeVar("_T")
#: The spider of this package.
_SPIDER: Final = "walsh_metadata"
#: The question to a person at the terminal if the spider needs the setting.
_SWITCHES: Final = {
    "WALSH_FOLLOW_LINKS": "follow links?",
    "WALSH_SCRAPING": "scrape HTML?",
}
#: The entries that init adds to settings that may have entries of the project's own.
_ENTRIES: Final = {
    "SPIDER_MODULES": "scrapy_walsh.spiders",
    "ADDONS": "scrapy_walsh.Addon",
}


def add_options(parser: argparse.ArgumentParser) -> None:
    """What ``walsh init`` takes."""
    add = parser.add_argument
    add(
        "--product",
        metavar="NAME/VERSION",
        help="the bot's name, such as ExampleBot/1.0",
    )
    add(
        "--site",
        metavar="URL",
        help="where its pages will be, such as https://bot.example",
    )
    add(
        "--contact",
        metavar="MAIL",
        help="mail address for opt-outs (default: opt-out@ the site's host, if that is your own)",
    )
    add(
        "--dir",
        type=Path,
        default=Path(),
        metavar="DIR",
        help="where to write (default: here)",
    )
    add("-v", "--verbose", action="store_true", help="name every spider")
    add(
        "--sign",
        action="store_true",
        help="make a key too, and sign each request with it",
    )
    write = "append the settings to FILE (default: the settings of the project that DIR is in)"
    add(
        "--write",
        type=Path,
        metavar="FILE",
        nargs="?",
        const=Path(),
        help=write,
    )


def run(args: argparse.Namespace) -> int:
    """Write the files that are missing, and print what is left to do.

    If it is called again, it goes on at the place where an earlier call was stopped.
    """
    identity, contact = choose_identity(args.product, args.site, args.contact)
    directory = directory_url(identity.policy_url) if args.sign else ""
    project = _settings_file(args.dir)
    target = project if args.write == Path() else args.write
    if target is None and args.write is not None:
        raise Misuse(f"no Scrapy project's settings at {args.dir}: give --write FILE")
    settings = target or project
    old_settings = b"" if settings is None else settings.read_bytes()
    report = _NO_PROJECT if project is None else _look(project)
    extra = dict.fromkeys(_wanted(report["spiders"]), "True")
    is_following = "WALSH_FOLLOW_LINKS" in extra or report.get("follows", False)
    writes: dict[Path, Callable[[], object]] = {
        args.dir / name: partial(replace_file, args.dir / name, text.encode())
        for name, text in _files(identity, contact, follows=is_following).items()
    }
    if args.sign:
        from scrapy_walsh.proof.keys import make_keys  # noqa: PLC0415  slow

        key = args.dir / "keys" / "key.pem"
        writes[key] = partial(make_keys, key.parent)
        extra |= {
            "WALSH_SIGN_REQUESTS": "True",
            "WALSH_SIGNING_KEY": repr(str(key.absolute())),
        }
    text = old_settings.decode("utf-8", "replace")
    loaded = report["settings"] if settings == project else {}
    block = _settings(identity, text, extra, loaded)
    lines = []
    args.dir.mkdir(parents=True, exist_ok=True)
    for path, write in writes.items():
        exists = os.path.lexists(path)
        if not exists:
            write()
        lines.append(f"{'kept, as it was' if exists else 'written'}: {path}")
    if target is not None:
        if block:
            replace_file(target, old_settings + f"\n{block}".encode())
            if project is not None and target.samefile(project):
                report = _look_again(project, old_settings, report)
        lines.append(f"{'appended to' if block else 'kept, as it was'}: {target}")
    most = None if args.verbose else NAMED
    lines += (
        [] if project is None else _different(report, extra, most, has_written=target is not None)
    )
    names = sorted(report["spiders"].keys() - {own_process.NO_SPIDER, _SPIDER})
    steps = _next_steps(
        identity, contact, args.dir, "" if target else block, directory, spiders=names
    )
    show([*map(visible, lines), *steps])
    return 0


def choose_identity(product: str = "", site: str = "", contact: str = "") -> tuple[Identity, str]:
    """The identity, and the mail address for opt-outs; a person at a terminal is asked for both.

    Raises Misuse and ConfigError without a terminal.
    """
    identity = _accepted(product, _PRODUCT, lambda text: _identity(text, _ANY_SITE))
    name = identity.product
    identity = _accepted(site, _SITE, lambda text: _identity(name, text))
    suggestion = _address(urlsplit(identity.policy_url).hostname or "")
    question = f"mail address for opt-outs{f' [{suggestion}]' if suggestion else ''}: "
    return identity, _accepted(contact, question, _contact, suggestion)


def write_identity(file: Path) -> Iterator[str]:
    """Ask for an identity, and append it to the user's configuration, *file*.

    The pages to publish are written beside it. Returns lines that say so.
    """
    identity, contact = choose_identity()
    table = tomlkit.table()
    for name in ("product", "policy_url", "blocklist_url"):
        table[name] = getattr(identity, name)
    file.parent.mkdir(parents=True, exist_ok=True)
    old = file.read_text(encoding="utf-8").rstrip() + "\n\n" if file.exists() else ""
    for name, text in _files(identity, contact, follows=False).items():
        if name in _PAGES and not os.path.lexists(file.parent / name):
            replace_file(file.parent / name, text.encode())
    replace_file(file, (old + tomlkit.dumps({"identity": table})).lstrip().encode())
    yield f"written: {file}"
    yield f"to upload from {file.parent}, before the first run:"
    yield from _to_upload(identity)


def _accepted(value: str, question: str, read: Callable[[str], _T], default: str = "") -> _T:
    """*value*, else the answer to *question*, as *read* returns it; after an error it asks again.

    *default*: taken without an answer. Without a terminal errors are raised; Misuse without a
    value.
    """
    is_terminal = sys.stdin is not None and sys.stdin.isatty()
    while True:
        text = value or _answer(question) or default
        try:
            if text or not is_terminal:
                return read(text)
        except WalshError as error:
            if value or not is_terminal:
                raise
            show([visible(str(error))])


def _identity(product: str, site: str) -> Identity:
    """The identity for the answers *product* and *site*. Raises Misuse, ConfigError."""
    if not (product and site):
        raise Misuse("give --product and --site; see --help")
    if "/" not in product:
        product += "/1.0"
    site = (site if "://" in site else f"https://{site}").rstrip("/")
    urls = {"policy_url": f"{site}/policy.html", "blocklist_url": f"{site}/blocklist.json"}
    return identity_from({"product": product, **urls})


def _contact(text: str) -> str:
    if not text:
        raise Misuse("give --contact: mail to the site's domain would reach its owner, not you")
    name, _, host = text.partition("@")
    if not (name and host and text.isprintable()) or "@" in host or " " in text:
        raise Misuse(f"--contact {text!r} is no mail address")
    return text


def _address(host: str) -> str:
    """A mail address below *host*; "" if the domain is not the operator's own.

    For example, ``jane.github.io`` belongs to a service that lends names to its users.
    """
    from tldextract import TLDExtract  # noqa: PLC0415  slow; Scrapy needs it, too

    extract = TLDExtract(cache_dir=None, suffix_list_urls=())
    if extract(host).suffix != extract(host, include_psl_private_domains=True).suffix:
        return ""
    return f"opt-out@{host.removeprefix('www.')}"


def _answer(question: str) -> str:
    """The answer of the person at the terminal; empty without one. EOFError: no more answers."""
    if sys.stdin is None or not sys.stdin.isatty():
        return ""
    return input(visible(question)).strip()


# -- the spiders that are there ---------------------------------------------------------------


#: As ``doctor_probe.look`` reports it.
_NO_PROJECT: Final[dict[str, Any]] = {
    "spiders": {},
    "broken": [],
    "settings": {},
}


def _look(project: Path) -> dict[str, Any]:
    """The report of a look at the spiders of the project with the settings file *project*."""
    from scrapy_walsh.commands.doctor import PROBE, PROBE_TIMEOUT  # noqa: PLC0415  slow

    try:
        with chdir(project.parent):
            return own_process.ask(PROBE, {}, PROBE_TIMEOUT)
    except own_process.NoAnswerError as error:
        line = f"the spiders could not be checked: the check {error}"
        return {**_NO_PROJECT, "broken": [line]}


def _look_again(project: Path, old_settings: bytes, report: Mapping[str, Any]) -> dict[str, Any]:
    """The report of a look after the file was written.

    Raises Misuse, and puts *old_settings* back, if the project has lost anything that the earlier
    *report* has: a spider, a module of spiders, an add-on.
    """
    new_report = _look(project)
    missing_spiders = sorted(
        report["spiders"].keys() - new_report["spiders"].keys() - {own_process.NO_SPIDER}
    )
    for name in _ENTRIES:
        entries = new_report["settings"].get(name, [])
        missing_spiders += [
            entry for entry in report["settings"].get(name, []) if entry not in entries
        ]
    if missing_spiders:
        replace_file(project, old_settings)
        raise Misuse(
            f"{project} stays as it was: with the lines of init the project would lose "
            f"{', '.join(missing_spiders[:5])}; "
            "add the lines by hand (walsh init prints them without --write)"
        )
    return new_report


def _wanted(spiders: Mapping[str, Sequence[Sequence[str]]]) -> Iterator[str]:
    """The settings that *spiders* need, if the person at the terminal agrees."""
    for setting, question in _SWITCHES.items():
        names = [
            name for name, notes in spiders.items() if any(setting in text for _, text in notes)
        ]
        prompt = f"{question} [y/N] ({named(names, len(spiders))}): "
        if names and _answer(prompt).lower() in ("y", "yes"):
            yield setting


def _different(
    report: Mapping[str, Any],
    extra: Mapping[str, str],
    most: int | None,
    *,
    has_written: bool,
) -> Iterator[str]:
    """The lines about the spiders, with the settings *extra*: what fails, what will be different.

    Before the settings are written, no spider has the add-on, so that is no failure yet. *most*: as
    in :func:`named`.
    """
    from scrapy_walsh.commands.doctor import of_spiders  # noqa: PLC0415  slow

    failures = list(report["broken"])
    for finding in of_spiders({**report, "broken": []}, most):
        is_expected = any(name in finding.text for name in ("WALSH_IDENTITY", "scrapy_walsh.Addon"))
        if finding.outcome is Outcome.BROKEN and (has_written or not is_expected):
            failures.append(f"walsh doctor fails: {finding.text}")
        elif finding.outcome is Outcome.WARNING and not any(name in finding.text for name in extra):
            yield f"will be different ({finding.rule}): {finding.text}"
    yield from failures
    if failures:
        version = metadata.version("scrapy")
        yield f"this is with Scrapy {version}: pip takes the newest, unless the project pins one"


def _settings_file(directory: Path) -> Path | None:
    """The settings of the project that *directory* is in; None if it is in none."""
    from scrapy.utils.conf import closest_scrapy_cfg  # noqa: PLC0415  slow

    cfg = Path(closest_scrapy_cfg(directory.absolute()))
    config = ConfigParser()
    config.read(cfg)
    module = config.get("settings", os.environ.get("SCRAPY_PROJECT", "default"), fallback="")
    path = cfg.parent / f"{module.replace('.', '/')}.py"
    if path.is_file():
        return path
    return None


# -- what is written --------------------------------------------------------------------------


def _files(identity: Identity, contact: str, *, follows: bool) -> dict[str, str]:
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
            links=", and pages that these link to" if follows else "",
            **{
                name: escape(getattr(identity, name))
                for name in ("token", "user_agent", "blocklist_url")
            },
        ),
        "sources.toml": _SOURCES,
    }


def _settings(
    identity: Identity,
    text: str,
    extra: Mapping[str, str],
    loaded: Mapping[str, Sequence[str]],
) -> str:
    """The lines for settings.py that are missing there.

    *text*: what it has. *extra*: further settings, as they are written. *loaded*: what Scrapy loads
    from it, as ``doctor_probe`` reports it; empty if it could not be loaded.
    """
    spiders = _what_is_there("SPIDER_MODULES", "*", "()", text, loaded)
    addons = _what_is_there("ADDONS", "**", "{}", text, loaded)
    lines = {
        "SPIDER_MODULES": f'[{spiders}"scrapy_walsh.spiders"]',
        "ADDONS": f'{{{addons}"scrapy_walsh.Addon": 500}}',
        "WALSH_IDENTITY": f"""{{
    "product": "{identity.product}",
    "policy_url": {json.dumps(identity.policy_url)},
    "blocklist_url": {json.dumps(identity.blocklist_url)},
}}""",
        **extra,
    }
    missing_names = (name for name in lines if not _has(name, text, loaded))
    return "".join(f"{name} = {lines[name]}\n" for name in missing_names)


def _what_is_there(
    name: str,
    stars: str,
    nothing: str,
    text: str,
    loaded: Mapping[str, Sequence[str]],
) -> str:
    """How a new value of the setting *name* begins, so that it keeps the entries it has.

    A name that another module brings, or an ``if`` sets, may be missing in another environment.
    """
    if _is_set(name, text):
        return f"{stars}{name}, "
    if loaded.get(name) or re.search(rf"import \*|\b{name}\b", text):
        return f'{stars}globals().get("{name}", {nothing}), '
    return ""


def _has(name: str, text: str, loaded: Mapping[str, Sequence[str]]) -> bool:
    """Whether the settings have what init would write for *name*."""
    entry = _ENTRIES.get(name)
    if entry is None:
        return _is_set(name, text) or name in loaded.get("names", ())
    pattern = rf"^[^#\n]*{re.escape(entry)}\b"
    return entry in loaded.get(name, ()) or re.search(pattern, text, re.MULTILINE) is not None


def _is_set(name: str, text: str) -> bool:
    """Whether a line of the Python *text* begins with *name*."""
    return re.search(rf"^{name}\b", text, re.MULTILINE) is not None


def _next_steps(
    identity: Identity,
    contact: str,
    folder: Path,
    block: str,
    directory: str,
    *,
    spiders: Sequence[str],
) -> Iterator[str]:
    """The remaining steps. *directory*: the URL of the key directory, empty without one.

    *spiders*: the project's own.
    """
    where = shlex.quote(str(folder.absolute()))
    if block:
        yield "\nto add to the project's settings.py (--write appends them):\n"
        yield block.rstrip()
    yield "\nto upload, before the first run:"
    yield from _to_upload(identity)
    if directory:
        yield f"  keys{DIRECTORY_PATH.removeprefix('/.well-known')} to {directory},"
        yield f"    served as {DIRECTORY_TYPE}; key.pem stays here"
    yield f"  and see that {contact} reaches you"
    yield "\nwhen a site opts out (and then upload blocklist.json again):"
    yield f"  walsh blocklist add HOST --file {shlex.quote(str(folder / 'blocklist.json'))}"
    yield "\nfor cron, once a day at a random minute; no output if all went well:"
    names = [shlex.quote(name) for name in spiders] or [
        f"{_SPIDER} -a sources=sources.toml -o items.jsonl"
    ]
    if len(names) > NAMED:
        names = ["SPIDER"]
    python = shlex.quote(sys.executable)
    crawls = "; ".join(f"{python} -m scrapy crawl {name} -L WARNING" for name in names)
    line = f"cd {where} && {{ {crawls}; }}" if len(names) > 1 else f"cd {where} && {crawls}"
    yield f"  {_cron(identity)} {line.replace('%', chr(92) + '%')}"
    if names == ["SPIDER"]:
        yield "  with the name of a spider in place of SPIDER, and a line for each"
    yield "\nthen, in the project: walsh doctor --online"


def _to_upload(identity: Identity) -> Iterator[str]:
    yield f"  policy.html     to {identity.policy_url}; add to it what you read, and why"
    yield f"  blocklist.json  to {identity.blocklist_url}"


def _cron(identity: Identity) -> str:
    """A time of day by the bot's name: the same each time it is asked, and seldom two bots'."""
    minute = zlib.crc32(f"{identity.product} {identity.policy_url}".encode()) % 1440
    return f"{minute % 60} {minute // 60} * * *"
