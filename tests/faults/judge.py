"""What is wrong with a crawl in which we had an internal error, and with the one after it."""

from __future__ import annotations

import re
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from scrapy_walsh.state import open_store
from scrapy_walsh.state.records import HostRecord, VisitRecord
from tests.crawl.harness import state_dir
from tests.faults import row as rows
from tests.faults.inside import MADE

if TYPE_CHECKING:
    from tests.crawl.harness import Crawl
    from tests.faults.row import Row

#: Seconds after which a crawl that has not ended is killed: a child that hangs is given 60.
PATIENCE = 150.0
#: A host that an earlier run was told to leave alone.
HELD = "held.test"
#: Kinds of rows in which what was fetched may not be lost to the next run.
REMEMBERING = ("no fault", "our own code", "disk", "JOBDIR")
_RECORD = re.compile(r"[-\d]{10} [:\d]{8} \[scrapy[\w.]*\] [A-Z]+: ")
_LOST_LINE = "the next run may request hosts and sources again too early"
#: Or, in a later run, that it has read from the ledger what the state lacks.
_OLDER = ".sqlite3 is older than its ledger"
#: Faults that cannot say that they were made: what the crawl does not hear or use is not met.
_SILENT = frozenset(
    {
        None,
        "nothing",
        "hear",
        "environ",
        "no_fork",
        "no_thread",
        "small_disk",
        "close",
        "mend",
        "raise_again",
    }
)


# -- what a crawl said and asked ------------------------------------------------------------------


def ours(ran: Crawl) -> list[str]:
    """What our own code says, the account at the end apart, and what ends a command."""
    marks = ("[scrapy_walsh] WARNING", "[scrapy_walsh] ERROR", "scrapy_walsh: ")
    alone = ("WARNING: ", "ERROR: ")  # of a command that has no other log
    lines = ran.output.splitlines()
    return [each for each in lines if any(m in each for m in marks) or each.startswith(alone)]


def last(ran: Crawl) -> str:
    """The last record of its log; Python and Twisted may complain of more when they end."""
    lines = [line for line in ran.output.splitlines() if _RECORD.match(line)]
    return lines[-1] if lines else ""


def asked(ran: Crawl) -> list[str]:
    """Every request but those to the operator, as host and path."""
    found = [f"{each.host.partition(':')[0]}{each.path}" for each in ran.log]
    return [each for each in found if not each.startswith("operator.test")]


def trespasses(ran: Crawl) -> list[str]:
    """What of the forbidden page and of the blocked host was asked, by the server's log."""
    wrong = [
        each for each in asked(ran) if "blocked.test" in each or "forbidden.test/private" in each
    ]
    return [f"asked {each}" for each in dict.fromkeys(wrong)]


def served(ran: Crawl, page: str = "") -> bool:
    """Whether a page of the healthy host was asked for and answered with it."""
    return any(
        each.host.startswith("healthy.test")
        and each.path.startswith(f"/{page}")
        and each.path != "/robots.txt"
        and each.status == 200
        for each in ran.log
    )


def judge(row: Row, ran: Crawl) -> list[str]:
    """What is wrong with the crawl in which the fault was."""
    found = trespasses(ran)
    if ran.returncode is None:
        return [*found, f"did not end within {PATIENCE:.0f} s"]
    if row.fault.get("do") not in _SILENT and MADE not in ran.output:
        found.append("the fault was not made: the row shows nothing")
    return [*found, *_judge_end(row, ran)]


def _judge_end(row: Row, ran: Crawl) -> list[str]:
    """What is wrong with what was served, the exit code and the log."""
    found, green = [], ran.returncode == 0
    if row.then in (rows.AS_USUAL, rows.NOT_WELL) and not served(ran):
        found.append("healthy host not served")
    if row.then == rows.REFUSED and ran.log:
        found.append("asked something, though it had to be refused at its start")
    if row.then in (rows.AS_USUAL, rows.HOSTS_DOING) and not green:
        found.append(f"exit {ran.returncode}, expected 0")
    must_tell = row.then not in (rows.AS_USUAL, rows.HOSTS_DOING, rows.EITHER)
    lines = ran.output.splitlines() if row.then == rows.AS_USUAL else ours(ran)
    told = [line for line in lines if any(w.lower() in line.lower() for w in row.says)]
    if row.then == rows.EITHER and not served(ran) and green:
        found.append("healthy host not served, exit 0")
    if must_tell and ran.returncode != 1:
        found.append(f"exit {ran.returncode}, expected 1")
    if not green and "'finish_reason': '" in ran.output:  # it was not refused at its start
        found += _ends(ran)
    if row.says and not told:
        found.append(f"no line says {row.says[0]!r}")
    if must_tell and not row.says:
        found.append("the row has no words that a line must say")
    return found


def _ends(ran: Crawl) -> list[str]:
    """What is wrong with the end of a crawl that is not green: its last line, and its reason."""
    found = []
    if "[scrapy_walsh] WARNING" not in last(ran):
        found.append(f"its last line is {last(ran)[:90]!r}")
    reasons = ("walsh_not_well", "walsh_refused")
    if not any(f"'finish_reason': '{each}'" in ran.output for each in reasons):
        found.append("its finish_reason does not say it")
    return found


def judge_after(row: Row, faulty: Crawl, ran: Crawl) -> list[str]:
    """What is wrong with *ran*, the healthy run after *faulty*.

    It is not green either where what the first one has learned was lost (R11): it must say so.
    """
    found = [f"next run {each}" for each in trespasses(ran)]
    if ran.returncode is None:
        return [*found, "next run did not end"]
    tells = _LOST_LINE in last(ran) or _OLDER in ran.output
    lost = _LOST_LINE in last(faulty) and tells
    if row.again and (not served(ran, "b") or (ran.returncode != 0 and not lost)):
        what = "served" if served(ran, "b") else "healthy host not served"
        found.append(f"next run: {what}, exit {ran.returncode}")
    return found


def lost(project: Path, row: Row, ran: Crawl) -> list[str]:
    """What a green run does not remember: the page that it has fetched (R8)."""
    if row.kind not in REMEMBERING or ran.returncode != 0 or not served(ran):
        return []
    state = state_dir(project)
    with tempfile.TemporaryDirectory() as name:  # to open it may mend it
        copy = Path(name) / "walsh"
        if state.is_dir():
            shutil.copytree(state, copy)
        store = open_store(copy)
        page = any("healthy.test" in each.url for each in store.rows(VisitRecord))
        held = store.get(HostRecord, HELD) is not None
        store.close()
    found = [] if page else ["the page that was fetched is not remembered (R8), exit 0"]
    return found if held else [*found, "the hold of a host is not remembered (R5), exit 0"]
