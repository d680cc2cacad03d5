"""The subcommands, by name, and how each of them is run and ends.

Exit codes: 0 yes, 1 no, 2 misuse or unknown.
"""

from __future__ import annotations

import argparse
import os
import sys
from importlib import import_module
from typing import Any, Final, NamedTuple

from scrapy_walsh.exceptions import WalshError
from scrapy_walsh.spec import SPEC_VERSION, __version__


class Subcommand(NamedTuple):
    """What a subcommand does, in one line, and the module that does it.

    The module has ``add_options(parser)`` and ``run(args)``, which returns the exit code.
    """

    module: str
    summary: str


SUBCOMMANDS: Final = {
    "attest": Subcommand(
        "scrapy_walsh.commands.attest", "state what a conformance run showed of this build; sign it"
    ),
    "audit": Subcommand(
        "scrapy_walsh.commands.audit", "tell from a site's access log which promises were kept"
    ),
    "blocklist": Subcommand(
        "scrapy_walsh.commands.blocklist", "put a host that opts out on your list; check a list"
    ),
    "check": Subcommand(
        "scrapy_walsh.commands.check", "tell whether a URL may be fetched, and why"
    ),
    "conformance": Subcommand(
        "scrapy_walsh.commands.conformance", "show, by crawls of the sandbox, that R1 to R13 hold"
    ),
    "demo": Subcommand(
        "scrapy_walsh.commands.demo", "crawl test sites on this machine, and show what was sent"
    ),
    "discover": Subcommand(
        "scrapy_walsh.commands.discover", "tell what a host offers in place of HTML: its link map"
    ),
    "doctor": Subcommand(
        "scrapy_walsh.commands.doctor", "tell whether this project can keep its promises"
    ),
    "init": Subcommand(
        "scrapy_walsh.commands.init", "make what a bot of your own must publish, and its settings"
    ),
    "plan": Subcommand(
        "scrapy_walsh.commands.plan", "tell what the next run would request, sending nothing"
    ),
    "report": Subcommand("scrapy_walsh.commands.report", "draw a run: its ledger as one HTML file"),
    "sandbox": Subcommand(
        "scrapy_walsh.commands.sandbox", "serve the embedded test sites on loopback"
    ),
    "state": Subcommand(
        "scrapy_walsh.commands.state", "show, verify, forget, export or import what is stored"
    ),
    "verify": Subcommand(
        "scrapy_walsh.commands.verify",
        "derive every decision of a ledger again, from its documents",
    ),
}


def run() -> int:
    """The console script ``walsh``, and ``python -m scrapy_walsh``."""
    return main(sys.argv[1:])


def main(argv: list[str]) -> int:
    """Run the subcommand that *argv* starts with."""
    if not argv or argv[0] in ("-h", "--help", "help"):
        print(usage())
        return 0 if argv else 2
    if argv[0] == "--version":
        print(f"scrapy-walsh {__version__}, for {SPEC_VERSION}")
        return 0
    name, *rest = argv
    if name not in SUBCOMMANDS:
        print(f"walsh: no subcommand {name!r}; {_meant(name)}", file=sys.stderr)
        return 2
    try:
        module = import_module(SUBCOMMANDS[name].module)
        code: int = module.run(_parser(name, module).parse_args(rest))
        if sys.stdout is not None:
            sys.stdout.flush()
        return code
    except KeyboardInterrupt:
        print(f"walsh {name}: stopped", file=sys.stderr)
    except BrokenPipeError:  # the reader has gone
        pass
    except (WalshError, OSError) as error:
        from scrapy_walsh.commands.check_answer import told  # noqa: PLC0415  seldom needed

        print(f"walsh {name}: {told(error)}", file=sys.stderr)
    _write_no_more()
    return 2


def _parser(name: str, module: Any) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=f"walsh {name}", description=SUBCOMMANDS[name].summary, allow_abbrev=False
    )
    module.add_options(parser)
    return parser


def _write_no_more() -> None:
    """Write out what is left. What nobody takes goes nowhere, or Python would fail at its exit."""
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _meant(name: str) -> str:
    """What the unknown subcommand *name* may have been meant to be."""
    import difflib  # noqa: PLC0415  seldom needed

    close = difflib.get_close_matches(name.lower(), SUBCOMMANDS, n=1)
    return f"did you mean {close[0]}?" if close else f"there are: {', '.join(SUBCOMMANDS)}"


def usage() -> str:
    """The list of subcommands."""
    lines = [f"  {name:<12} {entry.summary}" for name, entry in SUBCOMMANDS.items()]
    head = ["usage: walsh SUBCOMMAND ...", "       walsh SUBCOMMAND -h | walsh --version", ""]
    return "\n".join([*head, *lines])
