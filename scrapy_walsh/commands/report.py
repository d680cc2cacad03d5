"""``walsh report``: a run as one HTML file, or a page for the owner of a site; from the ledger."""

from __future__ import annotations

import json
import sys
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from scrapy_walsh import fleet
from scrapy_walsh.commands import common
from scrapy_walsh.commands.blocklist import LIST
from scrapy_walsh.commands.common import Misuse
from scrapy_walsh.commands.verify import judged
from scrapy_walsh.exceptions import DocumentInvalid
from scrapy_walsh.ledger.files import Documents, read_head
from scrapy_walsh.policy.list.blocklist import MAX_OCTETS, Blocklist, normalised
from scrapy_walsh.policy.recrawl import REVISIT
from scrapy_walsh.proof.files import replace_file
from scrapy_walsh.proof.findings import Outcome
from scrapy_walsh.proof.ledger import files_of, lines_in
from scrapy_walsh.proof.report.findings import findings
from scrapy_walsh.proof.report.history import History
from scrapy_walsh.proof.report.html import owners_page, page
from scrapy_walsh.proof.report.lanes import ALL, LAST, build
from scrapy_walsh.proof.report.owner import OptOut, extract
from scrapy_walsh.proof.report.sources import Sources, sources_of
from scrapy_walsh.state.database import has_records
from scrapy_walsh.state.records import Reading
from scrapy_walsh.state.store import SqliteStore

if TYPE_CHECKING:
    import argparse

    from scrapy_walsh.config import WalshConfig
    from scrapy_walsh.state.store import Store

_MOST_DAYS: Final = 3660


def add_options(parser: argparse.ArgumentParser) -> None:
    """What ``walsh report`` takes."""
    add = parser.add_argument
    common.add_ledger(parser)
    add("--host", metavar="HOST", help="instead, a page for the owner of that site, on it alone")
    add("--days", type=int, metavar="N", help="of the last N days, today (UTC) included")
    add(
        "--blocklist", type=Path, metavar="FILE", default=Path(LIST),
        help="with --host: the list that may have it (default: %(default)s, if it is there)",
    )  # fmt: skip
    add("--run", default=LAST, metavar="ID", help=f"a run's name, {LAST} (default) or {ALL}")
    what = "where to write (default: walsh-report.html, walsh-HOST.html); - for stdout"
    add("-o", "--output", metavar="FILE", help=what)
    common.add_settings(parser)


def run(args: argparse.Namespace) -> int:
    """Draw the run, or what one host's owner may see, and say what in it is broken."""
    if args.run != LAST and (args.days or args.host):
        raise Misuse("--run does not go together with --days or --host")
    if args.days is not None and not 0 < args.days <= _MOST_DAYS:
        raise Misuse(f"--days {args.days}: give 1 to {_MOST_DAYS}")
    host = None if args.host is None else common.host_named(args.host)
    output = args.output or f"walsh-{'report' if host is None else host.replace(':', '-')}.html"
    if host is None:
        config = common.read_config(args)
        if args.ledger is not None:
            config = replace(config, shared_state=None)
        days = None if args.days is None else History.until(time.time(), args.days)
        code = write_report(common.ledger_of(args), output, args.run, days, config)
    else:
        code = _write_extract(args, host, output)
    if output != "-":
        print(f"written: {common.printable(output)}")
    return code


def _write_extract(args: argparse.Namespace, host: str, output: str) -> int:
    """Write the page for the owner of *host*; 1 where the ledger does not hold, as ``verify``."""
    ledger = common.ledger_of(args)
    files, now = files_of(ledger), time.time()
    head = None if files.head is None else read_head(files.head)
    verified = judged(files)
    if not verified.lines and verified.holds:
        raise Misuse(f"{ledger}: no line in it, so there is nothing to tell")
    wrong = {each.line: each.rule for each in verified.findings}
    since = 0.0 if args.days is None else History.until(now, args.days).began
    found = extract(lambda: lines_in(files.parts), host, since, wrong, head)
    documents = Documents(files.documents)
    found.read(documents.get)
    adopted, body = Blocklist.empty(), documents.get(found.list_digest or "")
    with suppress(DocumentInvalid, Misuse):  # of a list that no crawl adopts, ``verify`` has told
        adopted = adopted if body is None else common.blocklist_of(body, None)
    optout = _opted_out(args.blocklist, host, adopted)
    _put(output, owners_page(found, verified, optout, now, adopted.refresh))
    if not verified.holds:
        common.tell("report", "the ledger does not hold, and the page says so: see walsh verify")
    return 0 if verified.holds else 1


def _opted_out(path: Path, host: str, adopted: Blocklist) -> OptOut | None:
    """How *host* is on the list in the file *path*, if that is there, or on the one *adopted*."""
    in_force = adopted.blocks(host)
    body = common.read_file(path, MAX_OCTETS) if path.exists() else b""
    listed = common.blocklist_of(body, str(path)).blocks(host) if body else None
    if listed is None:
        return None if in_force is None else OptOut("", in_force=True)
    days = (
        each.get("added")
        for each in json.loads(body)["blocked"]
        if listed.rule in normalised([each["domain"]])[0]
    )
    return OptOut(str(next(days, None) or ""), in_force is not None)


def _put(output: str, page: str) -> None:
    if output == "-":
        sys.stdout.buffer.write(page.encode())
        sys.stdout.buffer.flush()
    else:
        replace_file(Path(output), page.encode())


def write_report(
    ledger: Path, output: str, run: str = LAST, days: History | None = None,
    config: WalshConfig | None = None,
) -> int:  # fmt: skip
    """Write the page about *run*, or *days*, to *output*; 1 where something is broken, else 0.

    The sources are those of the state beside the *ledger*, and of the fleet that *config* names.
    *output*: ``-`` for standard output. OSError, WalshError.
    """
    files = files_of(ledger)
    head = None if files.head is None else read_head(files.head)
    report = build(lambda: lines_in(files.parts), run, head, days)
    _put(output, page(report, _sources(files.documents.parent, config)))
    wrong = [each for each in findings(report) if each.outcome is Outcome.BROKEN]
    common.tell("report", *(f"not so: {each.about}: {each.text}" for each in wrong))
    return 1 if wrong else 0


def _sources(directory: Path, config: WalshConfig | None) -> Sources | None:
    if not has_records(directory):
        return None
    store: Store = SqliteStore(directory)
    if config is not None:
        store = fleet.view(store, config.shared_state, config.identity.token)
    revisit = REVISIT if config is None else config.revisit
    try:
        return sources_of(lambda: store.rows(Reading), time.time(), revisit)
    finally:
        common.tell("report", *store.notices)
        store.close()
