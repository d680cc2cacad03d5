"""The parts that commands share: their settings, how they read options, and how they answer.

Scrapy finds and reads a project's settings. It takes more than half a second of CPU to load, so it
is loaded only if there is something to read.
"""

from __future__ import annotations

import json
import os
import re
import sys
import time
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from scrapy_walsh.commands.terminal import encodable, show
from scrapy_walsh.config import WalshConfig, hides_queries, identity_given, unknown_settings
from scrapy_walsh.exceptions import DocumentInvalid, WalshError, one_line, visible
from scrapy_walsh.ledger.files import FILE
from scrapy_walsh.policy import hosts
from scrapy_walsh.policy.given import product_token
from scrapy_walsh.policy.list.blocklist import MAX_OCTETS
from scrapy_walsh.terminal import leave_out_queries

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterable, Mapping

    from scrapy.settings import Settings

    from scrapy_walsh.config import SettingsLike
    from scrapy_walsh.policy.list.blocklist import Blocklist
    from scrapy_walsh.state.store import Store

#: The most octets that are read of a robots.txt (more than a crawl reads).
ROBOTS_LIMIT: Final = 1024 * 1024
#: Seconds that the validator may take with a list that is not plainly harmless (D3).
VALIDATION_TIMEOUT: Final = 60.0
NO_IDENTITY: Final = "no identity: WALSH_IDENTITY is not set: run `walsh init`, or give --identity"

#: The state directory of a crawl without a project.
_HERE: Final = str(Path(".scrapy", "walsh"))
#: The name of the profile, or a product in an identity that is written out.
_WALSH: Final = re.compile(r"""(?:^|["'])\s*walsh-research\b""", re.IGNORECASE)
_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:(?![0-9])")  # and not "host:8080"


class Misuse(WalshError):
    """An option or argument that cannot be judged: exit code 2, one line."""


# -- what a command answers -----------------------------------------------------------------


def answer(
    args: argparse.Namespace,
    members: Mapping[str, Any],
    lines: Iterable[str] = (),
) -> None:
    """Print *members* as a JSON object if ``--json`` asks for it; else *lines*."""
    show([json.dumps(members)] if args.json else lines)


def tell(name: str, *notices: str) -> None:
    """Print what the command *name* has to say besides its answer: a line each, on stderr."""
    for notice in notices:
        print(f"walsh {name}: {printable(notice)}", file=sys.stderr)


def told(error: Exception) -> str:
    """*error* as one line for a terminal; an OSError of a file as its name and the reason."""
    if isinstance(error, OSError) and error.filename is not None and error.filename2 is None:
        return printable(f"{error.filename}: {error.strerror}")
    return printable(str(error))


def printable(text: str) -> str:
    """*text* as it can stand in one line of a terminal, whatever its encoding."""
    return encodable(visible(text))


# -- the project ------------------------------------------------------------------------------


def view(
    local: Store,
    shared: str | None,
    token: str,
    steady: Callable[[], float] = time.time,
    *,
    writes: bool = False,
) -> Store:
    """*local*, or for a fleet a store around it that reads records from Redis; *writes*: both.

    ``shared``: the URL of that Redis; None if there is no fleet. ``token``: the product token of
    the workers. *steady*: this machine's steady clock, which the times of hosts are read from (D9).
    ConfigError for a URL that Redis's client cannot use.
    """
    if shared is None:
        return local
    from scrapy_walsh.fleet.store import SharedStore  # noqa: PLC0415  an extra

    return SharedStore(local, shared, token, steady=steady, writes=writes)


def in_project() -> bool:
    """Whether Scrapy would find settings or a data directory here, those of the user left out."""
    here = Path.cwd()
    return "SCRAPY_SETTINGS_MODULE" in os.environ or any(
        (folder / "scrapy.cfg").exists() for folder in (here, *here.parents)
    )


def _user_folder(variable: str, default: str) -> Path:
    """Our folder in a base directory of the XDG specification, which must be absolute."""
    base = Path(os.environ.get(variable, ""))
    return (base if base.is_absolute() else Path(os.path.expanduser("~"), default)) / "walsh"  # noqa: PTH111


def user_file() -> Path:
    """The user's configuration: ``$XDG_CONFIG_HOME/walsh/walsh.toml``."""
    return _user_folder("XDG_CONFIG_HOME", ".config") / "walsh.toml"


def user_state() -> str:
    """The user's state directory: ``$XDG_STATE_HOME/walsh``."""
    return str(_user_folder("XDG_STATE_HOME", ".local/state"))


def user_settings() -> dict[str, Any]:
    """The settings in the user's configuration, with a state directory; {} without a file.

    Its table ``identity`` is WALSH_IDENTITY, its table ``settings`` has any settings. Misuse.
    """
    path = user_file()
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except ValueError as error:
        raise Misuse(f"{path}: not TOML: {one_line(error)}") from error
    unknown = sorted(tables.keys() - {"identity", "settings"})
    settings = tables.get("settings", {})
    if unknown or not isinstance(settings, dict):
        name = unknown[0] if unknown else "settings"
        raise Misuse(f"{path}: {name!r} is no table [identity] or [settings]: write these two")
    for problem in unknown_settings(settings):
        raise Misuse(f"{path}: {problem}")
    if "identity" in tables:
        settings["WALSH_IDENTITY"] = tables["identity"]
    return {"WALSH_STATE_DIR": user_state(), **settings}


def user_crawl_settings(options: Mapping[str, Any]) -> Settings:
    """The user's settings for a crawl without a project, and *options* of the command line."""
    from scrapy.settings import Settings  # noqa: PLC0415  slow

    settings = Settings()
    settings.setdict({"WALSH_STATE_DIR": user_state(), **user_settings()}, priority="project")
    settings.setdict(options, priority="cmdline")
    heed(settings)
    return settings


def add_settings(parser: argparse.ArgumentParser) -> None:
    """The options that change the project's settings for one command."""
    add = parser.add_argument
    add(
        "--identity",
        metavar="NAME|JSON",
        help="the bot's identity, in place of WALSH_IDENTITY",
    )
    add(
        "-s",
        "--set",
        metavar="NAME=VALUE",
        action="append",
        default=[],
        help="a Scrapy setting",
    )


def add_json(parser: argparse.ArgumentParser) -> None:
    """The option that has a command answer to a program."""
    parser.add_argument("--json", action="store_true", help="answer with one JSON object")


def actions_of(
    parser: argparse.ArgumentParser, *parents: argparse.ArgumentParser
) -> Callable[[str, object, str], argparse.ArgumentParser]:
    """The function that adds an action to *parser*: by its name, the function for it, and a
    summary.

    Each has ``--json`` and the options of *parents*; the function is ``args.action``.
    """
    actions = parser.add_subparsers(metavar="ACTION", required=True)

    def add(name: str, action: object, summary: str) -> argparse.ArgumentParser:
        subparser = actions.add_parser(
            name,
            parents=parents,
            help=summary,
            description=summary,
            epilog=parser.epilog,
            formatter_class=parser.formatter_class,
            allow_abbrev=False,
        )
        add_json(subparser)
        subparser.set_defaults(action=action)
        return subparser

    return add


def add_ledger(parser: argparse.ArgumentParser) -> None:
    """The option for the ledger that a command reads."""
    help_text = "ledger.jsonl, or its directory (default: of the project's state directory)"
    parser.add_argument("ledger", metavar="LEDGER", type=Path, nargs="?", help=help_text)


def pairs(option: str, options: Iterable[str]) -> dict[str, str]:
    """The values of an *option* NAME=VALUE, by name; Misuse for what is not of that form."""
    values = {}
    for assignment in options:
        name, equals, value = assignment.partition("=")
        if not (name and equals):
            raise Misuse(f"{option} {assignment!r} is not NAME=VALUE")
        values[name] = value
    return values


def given_settings(args: argparse.Namespace) -> dict[str, Any]:
    """What ``-s`` and ``--identity`` set; Misuse for a ``WALSH_*`` name that is no setting."""
    options: dict[str, Any] = {**pairs("-s", args.set)}
    for problem in unknown_settings(options):
        raise Misuse(f"-s {problem}")
    if args.identity is not None:
        options["WALSH_IDENTITY"] = args.identity
    return options


def project_settings(options: Mapping[str, Any]) -> Settings:
    """The project's settings, or Scrapy's outside one, and those *options* on the command line."""
    from scrapy.utils.project import get_project_settings  # noqa: PLC0415  slow

    settings = get_project_settings()
    if not in_project():
        settings.setdict(user_settings(), priority="project")
    settings.setdict(options, priority="cmdline")
    heed(settings)
    return settings


def heed(settings: SettingsLike) -> None:
    """Show from now on no more of a URL than *settings* permit."""
    if hides_queries(settings):
        leave_out_queries()


def settings_to_send(
    args: argparse.Namespace,
    instead: str = "",
    *,
    to_others: bool = True,
    load: Callable[[Mapping[str, Any]], Settings] = project_settings,
) -> Settings:
    """The settings of a command that sends requests; Misuse if they name no operator.

    *instead*: why, or what can be given so that nothing need be sent. *to_others*: to hosts that
    are not the operator's own. Then no foreign identity is taken from the command line (R1.5).
    *load*: returns the settings, with those options of the command line.
    """
    options = given_settings(args)
    settings = load(options)
    if not identity_given(settings):
        raise Misuse(NO_IDENTITY + (f", {instead}" if instead else ""))
    if to_others and _is_walsh(options) and not _is_walsh(load({})):
        raise Misuse(
            "walsh-research is the identity of the operator of wal.sh/bot, for a project whose "
            "settings name it (R1.5): make your own with `walsh init`"
        )
    return settings


def _is_walsh(settings: SettingsLike) -> bool:
    """Whether *settings* name walsh-research, by its profile or its parts."""
    return _WALSH.search(str(identity_given(settings))) is not None


def settings_to_read(args: argparse.Namespace) -> SettingsLike:
    """The settings of a command that sends nothing, so needs no identity; Misuse."""
    options = given_settings(args)
    settings: dict[str, Any] | Settings = options
    if in_project():
        settings = project_settings(options)
    elif not Path(_HERE).is_dir():  # no crawl was called here
        settings = {**user_settings(), **options}
    heed(settings)
    if not identity_given(settings):  # nothing is sent, so no operator is impersonated
        settings.update({"WALSH_IDENTITY": "walsh-research"})
    return settings


def default_state_dir() -> str:
    """The directory that keeps the state of a crawl called here, unless WALSH_STATE_DIR is set."""
    if not in_project():
        return _HERE
    from scrapy_walsh.adapters import context  # noqa: PLC0415  slow

    return context.default_state_dir()


def read_config(args: argparse.Namespace, directory: Path | None = None) -> WalshConfig:
    """The project's settings; outside one the defaults, since nothing is sent.

    *directory*: the state directory that the command names, or None for the default one.
    """
    settings = settings_to_read(args)
    return WalshConfig.from_settings(settings, lambda: directory or default_state_dir())


def ledger_of(args: argparse.Namespace) -> Path:
    """The ledger that is named; else that of the project, or of a crawl called here.

    Raises Misuse if there is none.
    """
    if args.ledger is not None:
        return Path(args.ledger)
    directory = read_config(args).state_dir
    if directory is None:
        raise Misuse("WALSH_STATE_DIR is memory, where no ledger is kept: give LEDGER")
    if not (directory / FILE).is_file():
        raise Misuse(f"no ledger {directory / FILE}: run it in the project, or give LEDGER")
    return directory


# -- what is given ----------------------------------------------------------------------------


def token_of(token: Any) -> str:
    """*token*, if it is a product token; Misuse for a name with a version, or for none."""
    try:
        return product_token(token)
    except ValueError as error:
        raise Misuse(str(error)) from None


def blocklist_of(body: bytes, document: str | None) -> Blocklist:
    """The list in *body*; without a schema of its own it need only pass the floor checks (D3).

    Raises DocumentInvalid, Misuse; OwnFault if a child process is needed and cannot be started.
    """
    if len(body) >= MAX_OCTETS:
        raise Misuse(f"blocklist is longer than {MAX_OCTETS} octets")
    return read_blocklist(body, {}, document)


def read_blocklist(
    body: bytes, fallback_schema: dict[str, Any] | None, document: str | None
) -> Blocklist:
    """As ``policy.list.schema.parse_blocklist``, in about ``VALIDATION_TIMEOUT`` at most.

    Also raises OwnFault if a child process is needed, and does not answer.
    """
    # Slow to load (jsonschema), and most commands get no list to read.
    from scrapy_walsh.adapters.documents.validate import validate  # noqa: PLC0415
    from scrapy_walsh.policy.list import schema  # noqa: PLC0415

    readable = schema.read_document(body)
    validate(readable, body, fallback_schema, VALIDATION_TIMEOUT)
    return schema.blocklist_in(readable, body, document)


def read_directory(option: str, path: str) -> list[dict[str, Any]]:
    """The keys of the key directory (D25) in the file *path*, which *option* names. Misuse."""
    from scrapy_walsh.keys import LIMIT  # noqa: PLC0415  few bots sign
    from scrapy_walsh.proof.signatures import directory_keys, have_library  # noqa: PLC0415

    if not have_library():
        raise Misuse(f"{option} needs a package: pip install 'scrapy-walsh[sign]'")
    try:
        return directory_keys(read_file(path, LIMIT + 1))
    except DocumentInvalid as error:
        raise Misuse(f"{option} {path}: {error}") from None


def read_file(path: str | Path, limit: int) -> bytes:
    """The first *limit* octets of the file at *path*. Misuse if it cannot be read."""
    try:
        with Path(path).open("rb") as file:
            return file.read(limit)
    except OSError as error:
        raise Misuse(f"cannot read {path}: {error.strerror}") from None


def absolute(written: str) -> str:
    """*written* as an absolute URL, https if it has no scheme; Misuse if it is no URL."""
    text = written.strip()
    url = text if _SCHEME.match(text) else f"https://{text}"
    try:
        if urlsplit(url).netloc and hosts.host_key(url):
            return url
    except ValueError as error:
        raise Misuse(f"not a URL: {_shown(written)}: {error}") from None
    raise Misuse(f"no host in {_shown(written)}: give an absolute http or https URL")


def host_named(text: str) -> str:
    """The throttle key of the host of *text*, a URL or a host; Misuse if it has none."""
    return hosts.host_key(absolute(text))


def _shown(text: str) -> str:
    return ascii(text if len(text) <= 200 else f"{text[:200]}...")
