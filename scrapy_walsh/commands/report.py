"""``walsh report``: a run as one HTML file, or a page for the owner of a site; from the ledger."""

from __future__ import annotations

import sys
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from scrapy_walsh.commands import common
from scrapy_walsh.commands.blocklist import LIST
from scrapy_walsh.commands.common import Misuse
from scrapy_walsh.commands.verify import judged
from scrapy_walsh.exceptions import DocumentInvalid
from scrapy_walsh.ledger.files import Bodies
from scrapy_walsh.policy import hosts
from scrapy_walsh.policy.gates import REVISIT
from scrapy_walsh.policy.list.blocklist import MAX_OCTETS, Blocklist
from scrapy_walsh.proof.files import replace_file
from scrapy_walsh.proof.ledger import OfHosts, files_of
from scrapy_walsh.proof.report.history import History
from scrapy_walsh.proof.report.html import owners_page, page
from scrapy_walsh.proof.report.owner import Extract
from scrapy_walsh.proof.report.runs import ALL, LAST, chosen, excerpt, runs_of, since
from scrapy_walsh.proof.report.sources import SourceTable, sources_of
from scrapy_walsh.proof.report.tally import Tally
from scrapy_walsh.state.database import has_records
from scrapy_walsh.state.records import Reading
from scrapy_walsh.state.store import SqliteStore
from scrapy_walsh.terminal import shown

if TYPE_CHECKING:
    import argparse

    from scrapy_walsh.config import WalshConfig
    from scrapy_walsh.proof.verify import Report as Verified
    from scrapy_walsh.state.store import Store

_MOST_DAYS: Final = 3660


def add_options(parser: argparse.ArgumentParser) -> None:
    """What ``walsh report`` takes."""
    add = parser.add_argument
    common.add_ledger(parser)
    add(
        "--host",
        metavar="HOST",
        help="instead, a page for the owner of that site, on it alone",
    )
    add(
        "--days",
        type=int,
        metavar="N",
        help="of the last N days, today (UTC) included",
    )
    add(
        "--blocklist", type=Path, metavar="FILE", default=Path(LIST),
        help="with --host: the list that may have it (default: %(default)s, if it is there)",
    )  # fmt: skip
    add(
        "--run",
        default=LAST,
        metavar="ID",
        help=f"a run's name, {LAST} (default) or {ALL}",
    )
    help_text = "where to write (default: walsh-report.html, walsh-HOST.html); - for stdout"
    add("-o", "--output", metavar="FILE", help=help_text)
    common.add_settings(parser)


def run(args: argparse.Namespace) -> int:
    """Show the run, or what one host's owner may see, and say whether the ledger holds."""
    if args.run != LAST and (args.days or args.host):
        raise Misuse("--run does not go together with --days or --host")
    if args.days is not None and not 0 < args.days <= _MOST_DAYS:
        raise Misuse(f"--days {args.days}: give 1 to {_MOST_DAYS}")
    host = None if args.host is None else common.host_named(args.host)
    output = args.output or f"walsh-{'report' if host is None else host.replace(':', '-')}.html"
    days = None if args.days is None else History.until(time.time(), args.days)
    if host is not None:
        code = _write_extract(args, host, output, days)
    else:
        config = common.read_config(args)
        if args.ledger is not None:
            config = replace(config, shared_state=None)
        code = write_report(common.ledger_of(args), output, args.run, days, config)
    if output != "-":
        print(f"written: {common.printable(output)}")
    return code


def _write_extract(args: argparse.Namespace, host: str, output: str, days: History | None) -> int:
    """Write the page for the owner of *host*; 1 if the ledger does not hold, as ``verify``."""
    files = files_of(common.ledger_of(args))
    runs = runs_of(files.parts)
    extract = Extract(host, days.began if days else 0.0, runs)
    operator = {url for run in runs.values() for url in run.terms.operator_urls}
    names = {host, extract.twin, *map(hosts.host_or_url, operator)}
    verified = judged(files, watch=extract.take, wanted=OfHosts(files.parts, names))
    documents = Bodies(files.documents)
    extract.read(documents.get)
    adopted = Blocklist()
    body = documents.get(extract.list_digest or "")
    documents.close()
    with suppress(DocumentInvalid, Misuse):  # of a list that no crawl adopts, ``verify`` has told
        adopted = adopted if body is None else common.blocklist_of(body, None)
    own = Blocklist()
    if args.blocklist.exists():
        own_body = common.read_file(args.blocklist, MAX_OCTETS)
        own = common.blocklist_of(own_body, str(args.blocklist)) if own_body else own
    in_force = adopted.blocks(host) is not None
    is_listed = in_force or own.blocks(host) is not None
    page = owners_page(
        extract,
        verified,
        listed=is_listed,
        in_force=in_force,
        now=time.time(),
        refresh=adopted.refresh,
        contact=own.contact or adopted.contact,
    )
    return _put(output, page, verified)


def _put(output: str, page: str, verified: Verified) -> int:
    """Write *page*; 1 if the ledger does not hold, as ``verify``."""
    page = shown(page)
    if output == "-":
        sys.stdout.buffer.write(page.encode())
        sys.stdout.buffer.flush()
    else:
        replace_file(Path(output), page.encode())
    if not verified.holds:
        common.tell(
            "report",
            "the ledger does not hold, and the page says so: see walsh verify",
        )
    if verified.holds:
        return 0
    return 1


def write_report(
    ledger: Path, output: str, run: str = LAST, days: History | None = None,
    config: WalshConfig | None = None,
) -> int:  # fmt: skip
    """Write the page about *run*, or *days*, to *output*; 1 if the ledger does not hold, else 0.

    The sources are those of the state beside the *ledger*, and of the fleet that *config* names.
    *output*: ``-`` for standard output. OSError, WalshError.
    """
    files = files_of(ledger)
    runs = runs_of(files.parts)
    runs_shown = chosen(runs, run) if days is None else since(runs, days.began)
    report = Tally(runs_shown, len(runs) - len(runs_shown), days)
    verified = judged(excerpt(files, runs, runs_shown), watch=report.take)
    sources = _sources(files.documents.parent, config)
    return _put(output, page(report, verified, sources), verified)


def _sources(directory: Path, config: WalshConfig | None) -> SourceTable | None:
    if not has_records(directory):
        return None
    store: Store = SqliteStore(directory)
    if config is not None:
        store = common.view(store, config.shared_state, config.identity.token)
    revisit = REVISIT if config is None else config.revisit
    try:
        return sources_of(list(store.rows(Reading)), time.time(), revisit, store.visit_of)
    finally:
        common.tell("report", *store.news, *store.notices)
        store.close()
