"""``walsh completion``: a script for a shell, which then completes these commands by itself.

shtab writes it from the parsers. No Python is started when Tab is pressed; a completer that asks
the command would load a subcommand's modules each time.
"""

from __future__ import annotations

import argparse
import importlib.util
from typing import TYPE_CHECKING, Final

from scrapy_walsh.commands.common import Misuse
from scrapy_walsh.commands.main import SUBCOMMANDS, parser_of

if TYPE_CHECKING:
    from collections.abc import Mapping

#: The placeholder of a file in the help of the commands.
_FILES: Final = (
    "ACCESS_LOG",
    "FILE",
    "FILE[@TIME]",
    "FILE|URL",
    "KEY.pem",
    "LEDGER",
    "PATH",
)
_SHELLS: Final = ("bash", "zsh")


def add_options(parser: argparse.ArgumentParser) -> None:
    """What ``walsh completion`` takes."""
    parser.add_argument("shell", choices=_SHELLS, help="the shell that reads the script")


def run(args: argparse.Namespace) -> int:
    """Print the script."""
    if importlib.util.find_spec("shtab") is None:
        raise Misuse("a script needs a package: pip install 'scrapy-walsh[completion]'")
    import shtab  # noqa: PLC0415  an extra

    kinds = {"DIR": shtab.DIRECTORY, **dict.fromkeys(_FILES, shtab.FILE)}
    root = parser_of(*SUBCOMMANDS)
    _complete_paths(root, kinds)
    print(shtab.complete(root, args.shell))
    return 0


def _complete_paths(parser: argparse.ArgumentParser, kinds: Mapping[str, object]) -> None:
    """Have every option that takes a file or a directory complete to one."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for below in action.choices.values():
                _complete_paths(below, kinds)
        if kind := kinds.get(str(action.metavar)):
            action.complete = kind  # type: ignore[attr-defined]  # as shtab has it
