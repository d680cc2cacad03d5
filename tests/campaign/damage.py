"""Bits flipped and files cut between two runs: what is left must still block, wait and go on."""

from __future__ import annotations

import random
import shutil
import sqlite3
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path

from scrapy_walsh.proof.sandbox import Route
from scrapy_walsh.state.database import DATABASE
from scrapy_walsh.state.files import COPY
from scrapy_walsh.state.records import TABLES
from tests.campaign import judge
from tests.campaign.judge import REFUSED, Report, urls
from tests.crawl.harness import LIST, Runs

Damage = Callable[[Path, random.Random], object]
#: The files of the state, by what they are called here.
FILES = {"database": DATABASE, "copy": COPY}


def flip_bits(path: Path, rng: random.Random, count: int) -> None:
    """Flip *count* bits of the file at *path*."""
    octets = bytearray(path.read_bytes())
    for _ in range(count):
        octets[rng.randrange(len(octets))] ^= 1 << rng.randrange(8)
    path.write_bytes(octets)


def truncate(path: Path, rng: random.Random) -> None:
    """Cut the file at *path* somewhere."""
    octets = path.read_bytes()
    path.write_bytes(octets[: rng.randrange(len(octets))])


KINDS: dict[str, Damage] = {
    "truncate": truncate,
    "flip a bit": lambda path, rng: flip_bits(path, rng, 1),
    "flip many bits": lambda path, rng: flip_bits(path, rng, 50),
    "empty": lambda path, _: path.write_bytes(b""),
}


#: A file and the damage to it, for a short campaign.
SHORT = [
    ("database", "flip many bits"),
    ("copy", "truncate"),
]
#: All of them.
CASES = [(file, kind) for kind in KINDS for file in FILES]


def campaign(
    runs: int, seconds: float, seed: int, cases: Sequence[tuple[str, str]] = CASES
) -> Report:
    """Damage a file *runs* times, but begin nothing after *seconds*."""
    rng = random.Random(seed)
    report = Report(f"damage, seed {seed}")
    order = rng.sample(cases, len(cases))
    for number, directory in judge.rounds(runs, seconds):
        with judge.place(directory) as place:
            _round(place, rng, report, order[number % len(order)])
    return report


def _round(place: Runs, rng: random.Random, report: Report, case: tuple[str, str]) -> None:
    """One run, some damage, and two more runs: the list's host answers only the first."""
    file, kind = case
    where = f"{kind}, {file}"
    cuts: list[float] = []
    report.broken(where, judge.unclean(place.start([*urls("a"), *REFUSED]).finish()))
    cuts.append(time.monotonic())
    held = _held(place.state)
    KINDS[kind](place.state / FILES[file], rng)
    lost = _held(place.state) != held
    report.figures["damaged"] += 1
    place.serve("operator.test", LIST, Route(404))
    output = ""
    for page in ("b", "c"):
        ended = place.start([*urls(page), *REFUSED]).finish()
        cuts.append(time.monotonic())
        # Where something was found damaged, the run that found it is not green.
        found = "was damaged" in ended.output
        report.broken(where, judge.unclean(ended, int(found)))
        report.broken(where, judge.lost(urls(page), place))
        output += ended.output
    said = [line for line in output.splitlines() if "was damaged" in line and " ERROR: " in line]
    told = bool(said)
    report.figures["said so"] += told
    report.figures["nothing was lost"] += not lost
    report.broken(where, ["something was lost without a word"] if lost and not told else [])
    report.broken(where, _aside(place.state, said))
    report.broken(where, judge.refused(place.box.log))
    report.broken(where, judge.too_soon(place.box.log, cuts))


def _held(state: Path) -> list[object] | None:
    """What SQLite itself reads, and the copy; None where it cannot. Damage may hit what is unused:
    the end of an empty page, or a frame that was written over."""
    with tempfile.TemporaryDirectory() as directory:
        for path in state.glob(f"{DATABASE}*"):
            if not path.name.endswith("-shm"):
                shutil.copy(path, directory)
        try:
            with closing(sqlite3.connect(Path(directory) / DATABASE)) as connection:
                rows = [connection.execute(table.select_all).fetchall() for table in TABLES]
        except (sqlite3.Error, UnicodeDecodeError):  # the latter for a message about damage
            return None
    return [*rows, (state / COPY).read_bytes()]


def _aside(state: Path, said: list[str]) -> list[str]:
    """A file that was set aside without a word, or a word without the file."""
    names = {path.name for path in state.glob("*.damaged-*") if path.suffix != ".damaged"}
    first = {name for name in names if name.rpartition("-")[2].isdigit()}
    told = {name for name in first if any(name in line for line in said)}
    found = [f"{name} was set aside silently" for name in sorted(first - told)]
    if len(said) > len(first):
        found.append(f"{len(said)} lines on damage for {len(first)} files: {said}")
    return found


__all__ = ["CASES", "SHORT", "campaign"]
