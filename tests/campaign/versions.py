"""Two versions of the package on one directory: the older one leaves the newer one's file alone."""

from __future__ import annotations

import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from scrapy_walsh.proof.sandbox import Sandbox
from scrapy_walsh.state.tables import MIGRATIONS
from tests.campaign import judge
from tests.campaign.disk import refusal
from tests.campaign.world import REFUSED, Deadline, Place, Report, urls

if TYPE_CHECKING:
    from tests.campaign.world import Ended


def campaign(runs: int, seconds: float, seed: int) -> Report:
    """*runs* times; nothing is begun after *seconds*."""
    report = Report(f"versions, seed {seed}")
    deadline = Deadline(seconds)
    with Sandbox() as box:
        for number in range(1, runs + 1):
            if deadline.passed():
                break
            with tempfile.TemporaryDirectory() as directory:
                _round(Path(directory), box, report, len(MIGRATIONS) + number)
    return report


def _round(directory: Path, box: Sandbox, report: Report, version: int) -> None:
    where = f"schema version {version}"
    place = Place(directory, box)
    report.broken(where, judge.unclean(place.crawl([*urls("a"), *REFUSED])))
    database = place.files["database"]
    _set_version(database, version)
    before = database.read_bytes()
    refused: Ended = place.crawl([*urls("b"), *REFUSED])
    report.figures["newer versions"] += 1
    report.broken(where, refusal(refused, str(database), f"schema version {version}"))
    if database.read_bytes() != before or list(place.state.glob("*.damaged-*")):
        report.broken(where, [f"{database.name} was touched"])
    _set_version(database, len(MIGRATIONS))
    ended = place.crawl([*urls("b"), *REFUSED])
    report.broken(where, judge.unclean(ended))
    report.broken(where, judge.lost(urls("b"), place.parsed()))
    report.broken(where, judge.refused(box.log))
    repeated = [each.path for each in ended.log if each.path == "/robots.txt"]
    report.broken(where, [f"{path} was asked again" for path in repeated])


def _set_version(database: Path, version: int) -> None:
    with closing(sqlite3.connect(database)) as connection:
        connection.execute(f"PRAGMA user_version={version}")


__all__ = ["campaign"]
