"""A process that is killed while it takes over an old file leaves one that opens, and is whole."""

from __future__ import annotations

import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from typing import TYPE_CHECKING

from scrapy_walsh.state.sqlite import SqliteStore
from scrapy_walsh.state.tables import TABLES, checksum
from tests.upgrade.kit import COLUMNS, DATABASE, copy, old_rows

if TYPE_CHECKING:
    from pathlib import Path

KILLS = 20
#: Rows added to each table that is moved to a new form, so that moving them takes a while.
ROWS = 4000

OPEN = """
import sys
from pathlib import Path
from scrapy_walsh.state.sqlite import SqliteStore
print("ready", flush=True)
SqliteStore(Path(sys.argv[1])).close()
print("done", flush=True)
"""


def grown(directory: Path) -> Path:
    """An old state directory with many rows more, as the old version wrote them."""
    copy("days", directory)
    numbers = range(ROWS)
    made = {
        "hosts": [(f"h{n}.test", 1.7e9 + n, 1.0, 1.9e9 + n, None) for n in numbers],
        "sources": [(f"http://h{n}.test/p", 1.7e9 + n, "200", None) for n in numbers],
        "deferrals": [(f"http://h{n}.test/p", f"h{n}.test", 1.9e9 + n, "why") for n in numbers],
    }
    with closing(sqlite3.connect(directory / DATABASE)) as connection, connection:
        for table, rows in made.items():
            names = ", ".join((*COLUMNS[table], "crc32"))
            marks = ", ".join("?" * (len(COLUMNS[table]) + 1))
            connection.executemany(
                f"INSERT INTO {table} ({names}) VALUES ({marks})",  # noqa: S608
                [(*row, checksum(list(row))) for row in rows],
            )
    return directory


def start(directory: Path) -> subprocess.Popen[str]:
    """A process that is about to open the file in *directory*."""
    process = subprocess.Popen(
        [sys.executable, "-c", OPEN, str(directory)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def test_r11_a_file_that_was_being_taken_over_when_killed_is_whole(tmp_path: Path) -> None:
    source = grown(tmp_path / "grown")
    before = {table: old_rows(source, table) for table in COLUMNS}
    shutil.copytree(source, tmp_path / "timed")
    process, begun = start(tmp_path / "timed"), time.monotonic()
    process.wait(60)
    lasts = time.monotonic() - begun
    rng = random.Random(11)
    midway = 0
    for number in range(KILLS):
        directory = tmp_path / str(number)
        shutil.copytree(source, directory)
        process = start(directory)
        time.sleep(rng.uniform(0, lasts))
        process.kill()
        midway += process.wait() == -signal.SIGKILL
        store = SqliteStore(directory)
        assert store.notices == []
        assert not store.rows_lost
        for table in TABLES:
            if table.name in before:
                found = [
                    {name: getattr(record, name) for name in COLUMNS[table.name]}
                    for record in store._rows(table)
                ]
                assert found == before[table.name], table.name
        store.close()
        shutil.rmtree(directory)
    assert midway > 0
