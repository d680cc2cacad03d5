"""The subcommands, by name, and how each of them is run and ends."""

from __future__ import annotations

import argparse
import sys
from difflib import get_close_matches
from importlib import import_module
from typing import Final, NamedTuple

from scrapy_walsh.exceptions import WalshError
from scrapy_walsh.spec import SPEC_VERSION, __version__


class Subcommand(NamedTuple):
    """The purpose of a subcommand, in one line, and its exit codes.

    The module of its name has ``add_options(parser)`` and ``run(args)``, which returns the exit
    code. ``zero``, ``one``: what the codes 0 and 1 say; ``one`` is empty if it does not occur.
    ``two``: what 2 says besides :data:`MISUSE`. ``examples``: what may stand after the name.
    """

    summary: str
    zero: str
    one: str
    examples: tuple[str, ...]
    two: str = ""


#: The meaning of exit code 2, whatever the subcommand.
MISUSE: Final = "misuse, or what it needs cannot be read, written or requested"

SUBCOMMANDS: Final = {
    "attest": Subcommand(
        "state what a conformance run showed of this build; sign it",
        "every requirement is true; the signature holds; keys were made",
        "a requirement is not true; the signature does not hold",
        ("--online --sign keys/key.pem -o attestation.json", "--keygen keys",
         "--verify attestation.json --jwks jwks.json"),
    ),
    "audit": Subcommand(
        "tell from a site's access log which promises were kept",
        "nothing is broken, and something was seen to hold",
        "a MUST is broken, or ledger and log differ",
        ("access.log --host www.site.example",
         "access.log* --robots robots.txt --host www.site.example --json"),
        "the bot is not in the log, or the log does not tell",
    ),
    "blocklist": Subcommand(
        "put a host that opts out on your list; check a list",
        "done; a crawl would adopt the list",
        "no such host is on the list; no crawl would adopt it",
        ("add www.site.example --reason 'asked by mail'", "remove www.site.example",
         "check https://bot.example/blocklist.json"),
    ),
    "check": Subcommand(
        "tell whether a URL may be fetched, and why",
        "allowed; of a batch: every line was judged",
        "denied",
        ("https://site.example/page", "https://site.example/page --robots robots.txt --json",
         "https://site.example/page --fetch", "--batch < urls.jsonl"),
        "with --fetch: a URL got no answer",
    ),
    "completion": Subcommand(
        "print a script that completes these commands in a shell",
        "printed",
        "",
        ("bash > ~/.local/share/bash-completion/completions/walsh", "zsh > ~/.zfunc/_walsh"),
    ),
    "conformance": Subcommand(
        "show, by crawls of the sandbox, that R1 to R13 hold",
        "every MUST was seen to hold",
        "a MUST is broken, or was not seen",
        ("", "--only R4,blocklist", "--command 'python bot.py' --user-agent 'Bot/1.0' --token Bot"),
        "nothing could be judged",
    ),
    "demo": Subcommand(
        "crawl test sites on this machine, and show what was sent",
        "both crawls ended well",
        "one did not",
        ("", "--dir walsh-demo"),
    ),
    "discover": Subcommand(
        "tell what a host offers in place of HTML: its link map",
        "links were found; with --add, a source was added or is there",
        "none were, it was refused, or something failed on this side",
        ("site.example", "site.example --json", "site.example/blog --add"),
    ),
    "doctor": Subcommand(
        "tell whether this project can keep its promises",
        "no FAIL",
        "a FAIL",
        ("", "--online"),
        "there is no project",
    ),
    "init": Subcommand(
        "make what a bot of your own must publish, and its settings",
        "written",
        "",
        ("--product ExampleBot/1.0 --site https://bot.example --write",),
    ),
    "plan": Subcommand(
        "tell what a spider's next run would request, sending nothing",
        "the next run would request a target",
        "it would request none",
        ("-a sources=sources.toml", "my_spider --json"),
    ),
    "read": Subcommand(
        "read a list of feeds, without a project; write what is new",
        "the run ended well",
        "it did not, as with `scrapy crawl walsh_metadata`",
        ("feeds.opml", "https://site.example/ --format md", "sources.toml --all > items.jsonl"),
        "there is no identity, or its pages are not published yet",
    ),
    "report": Subcommand(
        "draw a run: its ledger as one HTML file",
        "written, and nothing in it is broken",
        "written, and the ledger itself shows that something does not hold",
        ("", "--run all -o all.html", "--host www.site.example --days 30"),
    ),
    "sandbox": Subcommand(
        "serve the embedded test sites on loopback",
        "stopped",
        "",
        ("--port 8080", "--sites sites.toml --log requests.jsonl"),
    ),
    "state": Subcommand(
        "show, verify, back up or forget what is stored",
        "done, and in order",
        "not in order, or older than its ledger; nothing was stored of the host",
        ("show", "show --all", "verify", "forget www.site.example"),
    ),
    "verify": Subcommand(
        "derive every decision of a ledger again, from its documents",
        "nothing wrong was found",
        "a finding",
        ("", "ledger.jsonl --head 120:HASH", "--json"),
    ),
}  # fmt: skip


def run() -> int:
    """The console script ``walsh``, and ``python -m scrapy_walsh``."""
    return main(sys.argv[1:])


def main(argv: list[str]) -> int:
    """Run the subcommand that *argv* starts with; its exit code. SystemExit by argparse."""
    name = argv[0] if argv else "-h"
    if name not in SUBCOMMANDS and (close := get_close_matches(name.lower(), SUBCOMMANDS, n=1)):
        print(
            f"walsh: no subcommand {name!r}; did you mean {close[0]}?",
            file=sys.stderr,
        )
        return 2
    try:
        args = parser_of(name).parse_args(argv or [name])
        code: int = args.runs(args)
        if sys.stdout is not None:
            sys.stdout.flush()
    except (KeyboardInterrupt, EOFError):  # Ctrl-C, or Ctrl-D for an answer
        print(f"walsh {name}: stopped", file=sys.stderr)
    except BrokenPipeError:  # the reader has gone
        pass
    except (WalshError, OSError) as error:
        from scrapy_walsh.commands.common import told  # noqa: PLC0415  seldom needed

        print(f"walsh {name}: {told(error)}", file=sys.stderr)
    else:
        return code
    _write_no_more()
    return 2


def parser_of(*names: str) -> argparse.ArgumentParser:
    """The parser of the command line, with the options of the subcommands *names*.

    To know the options of a subcommand its module is loaded, which may be slow.
    """
    root = argparse.ArgumentParser(
        prog="walsh",
        epilog="exit codes: 0 yes, 1 no, 2 misuse or unknown; each -h has its own, and examples",
        allow_abbrev=False,
    )
    version = f"scrapy-walsh {__version__}, for {SPEC_VERSION}"
    root.add_argument("--version", action="version", version=version, help="print the version")
    subcommands = root.add_subparsers(metavar="SUBCOMMAND", required=True)
    for name, entry in SUBCOMMANDS.items():
        parser = subcommands.add_parser(
            name,
            help=entry.summary,
            description=f"{entry.summary[0].upper()}{entry.summary[1:]}.",
            epilog=_epilog(name),
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        if name in names:
            module = import_module(f"scrapy_walsh.commands.{name}")
            module.add_options(parser)
            parser.set_defaults(runs=module.run)
    return root


def _epilog(name: str) -> str:
    """Examples and exit codes of a subcommand."""
    entry = SUBCOMMANDS[name]
    codes = [
        entry.zero,
        entry.one,
        f"{MISUSE}; {entry.two}" if entry.two else MISUSE,
    ]
    examples = [f"  walsh {name} {example}".rstrip() for example in entry.examples]
    ends = [f"  {code}  {says}" for code, says in enumerate(codes) if says]
    return "\n".join(["examples:", *examples, "", "exit codes:", *ends])


def _write_no_more() -> None:
    """Write the rest for stdout, or drop it if that fails."""
    from scrapy_walsh.commands.terminal import show_no_more  # noqa: PLC0415  seldom needed

    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError:
        show_no_more()
