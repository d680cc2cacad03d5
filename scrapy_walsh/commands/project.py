"""The settings that a command runs with: of the project that it is called in, if there is one.

Scrapy finds and reads a project's settings. It takes more than half a second of CPU to load, so it
is not loaded where there is nothing for it to read.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from scrapy_walsh.commands.check_answer import Misuse
from scrapy_walsh.config import WalshConfig, has_identity, unknown_settings
from scrapy_walsh.ledger.lines import FILE

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable

    from scrapy.settings import Settings

    from scrapy_walsh.config import SettingsLike

_CONFIG: Final = "scrapy.cfg"
NO_IDENTITY: Final = (
    "no identity: WALSH_IDENTITY is not set: set it in the project, or give --identity"
)


def in_project() -> bool:
    """Whether Scrapy would find settings or a data directory here."""
    if "SCRAPY_SETTINGS_MODULE" in os.environ:
        return True
    here = Path.cwd()
    return any(place.exists() for place in (*config_files(), here / _CONFIG)) or any(
        (folder / _CONFIG).exists() for folder in here.parents
    )


def config_files() -> list[Path]:
    """The files that Scrapy reads wherever it is called (``scrapy.utils.conf.get_sources``)."""
    home = os.environ.get("XDG_CONFIG_HOME") or Path("~/.config").expanduser()
    return [
        Path("/etc", _CONFIG),
        Path(r"c:\scrapy\scrapy.cfg"),
        Path(home, _CONFIG),
        Path("~", f".{_CONFIG}").expanduser(),
    ]


def add_settings(parser: argparse.ArgumentParser) -> None:
    """The options that change the project's settings for one command."""
    add = parser.add_argument
    add("--identity", metavar="NAME|JSON", help="the bot's identity, in place of WALSH_IDENTITY")
    add("-s", "--set", metavar="NAME=VALUE", action="append", default=[], help="a Scrapy setting")


def add_json(parser: argparse.ArgumentParser) -> None:
    """The option that has a command answer to a program."""
    parser.add_argument("--json", action="store_true", help="answer with one JSON object")


def add_ledger(parser: argparse.ArgumentParser) -> None:
    """What names the ledger that a command reads."""
    what = "ledger.jsonl, or its directory (default: of the project's state directory)"
    parser.add_argument("ledger", metavar="LEDGER", type=Path, nargs="?", help=what)
    parser.add_argument("--ledger", dest="of", metavar="LEDGER", type=Path, help="the same")


def pairs(option: str, given: Iterable[str]) -> dict[str, str]:
    """The values of an *option* NAME=VALUE, by name; Misuse for what is not of that form."""
    found = {}
    for assignment in given:
        name, equals, value = assignment.partition("=")
        if not (name and equals):
            raise Misuse(f"{option} {assignment!r} is not NAME=VALUE")
        found[name] = value
    return found


def settings_of(args: argparse.Namespace) -> Settings:
    """The project's settings, or Scrapy's outside one, and those of the command line; Misuse."""
    from scrapy.utils.project import get_project_settings  # noqa: PLC0415  slow

    settings = get_project_settings()
    for name, value in given_settings(args).items():
        settings.set(name, value, priority="cmdline")
    return settings


def settings_to_send(args: argparse.Namespace, instead: str = "") -> Settings:
    """As :func:`settings_of`, for a command that sends requests; Misuse where nobody is named.

    *instead*: what can be given so that nothing need be sent.
    """
    settings = settings_of(args)
    if not has_identity(settings):
        raise Misuse(NO_IDENTITY + (f", or {instead}" if instead else ""))
    return settings


def settings_to_read(args: argparse.Namespace) -> SettingsLike:
    """As :func:`settings_of`, for a command that sends nothing, so needs no identity; Misuse."""
    if not in_project():
        given = given_settings(args)
        return given if has_identity(given) else {**given, "WALSH_IDENTITY": "walsh-research"}
    settings = settings_of(args)
    if not has_identity(settings):  # nothing is sent, so nobody is impersonated
        settings.set("WALSH_IDENTITY", "walsh-research", priority="cmdline")
    return settings


def default_state_dir() -> str:
    """Where a crawl called here keeps its state, unless WALSH_STATE_DIR says otherwise."""
    if not in_project():
        return str(Path(".scrapy", "walsh"))
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

    Raises Misuse where there is none.
    """
    if args.ledger and args.of:
        raise Misuse(f"LEDGER is given twice: {args.ledger} and {args.of}")
    if given := args.ledger or args.of:
        return Path(given)
    directory = read_config(args).state_dir
    if directory is None:
        raise Misuse("WALSH_STATE_DIR is memory, where no ledger is kept: give LEDGER")
    if not (directory / FILE).is_file():
        raise Misuse(f"no ledger {directory / FILE}: run it in the project, or give LEDGER")
    return directory


def given_settings(args: argparse.Namespace) -> dict[str, Any]:
    """What ``-s`` and ``--identity`` set; Misuse for a ``WALSH_*`` name that is no setting."""
    given: dict[str, Any] = {**pairs("-s", args.set)}
    for problem in unknown_settings(given):
        raise Misuse(f"-s {problem}")
    if args.identity is not None:
        given["WALSH_IDENTITY"] = args.identity
    return given
