"""A full disk and a directory that cannot be written: the crawl goes on, or says why not."""

from __future__ import annotations

import os
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

from tests.campaign import judge
from tests.campaign.judge import REFUSED, Report, urls
from tests.crawl.harness import can_mount, fill_disk, mount, unmount

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from scrapy_walsh.proof.sandbox import LoggedRequest
    from tests.crawl.harness import Crawl, Runs

#: Octets of the small disk, and of the largest file where there is no small disk to be had.
_SMALL = 1 << 20
_LIMIT = 8 << 10
#: How the last line of a run begins that could not keep its records.
FOLLOWS = "the next run may request hosts and sources again too early"


def campaign(runs: int, seconds: float, seed: int, cases: Sequence[str] | None = None) -> Report:
    """Each case in turn, *runs* of them; nothing is begun after *seconds*."""
    report = Report(f"disk, seed {seed}")
    names = list(CASES) if cases is None else cases
    for number, directory in judge.rounds(runs, seconds):
        name = names[number % len(names)]
        done = CASES[name](directory, report)
        report.figures[name if done else f"{name}: no rights here"] += 1
    return report


def _judge(place: Runs, report: Report, where: str, cuts: list[float]) -> None:
    report.broken(where, judge.refused(place.box.log))
    report.broken(where, judge.too_soon(place.box.log, cuts))


def _refused(place: Runs, report: Report, where: str, trouble: Callable[[], object]) -> None:
    """A good run, then one with the disk in *trouble*: it sends nothing, and one line says why."""
    report.broken(where, judge.unclean(_crawl(place, "a")))
    trouble()
    report.broken(where, refusal(_crawl(place, "b"), "WALSH_STATE_DIR"))
    _judge(place, report, where, [])


def _crawl(place: Runs, page: str) -> Crawl:
    return place.start([*urls(page), *REFUSED]).finish()


def _full(directory: Path, report: Report) -> bool:
    """The disk fills up between two runs, and is freed again before a last one."""
    if not can_mount():
        return False
    with _small(directory) as (disk, place):
        _refused(place, report, "full disk", partial(fill_disk, disk / "filler"))
        (disk / "filler").unlink()
        after = place.start(urls("d")).finish()
        report.broken("disk freed again", judge.unclean(after))
        report.broken("disk freed again", judge.lost(urls("d"), place))
        report.broken("disk freed again", judge.refused(place.box.log))
    return True


def _full_meanwhile(directory: Path, report: Report) -> bool:
    """The disk fills up during a run, which is killed, and has room again for the next one."""
    where = "full meanwhile"
    if not can_mount():
        return False
    with _small(directory) as (disk, place):
        run = place.start([*urls("a", "b", "c"), *REFUSED])

        def full(log: list[LoggedRequest]) -> bool:
            asked = any(each.path == "/a" for each in log)
            if asked and not (disk / "filler").exists():
                fill_disk(disk / "filler")
            return sum(each.path == "/b" and each.completed is not None for each in log) > 2

        killed = run.kill_when(full, 0.1)
        report.broken(where, ["the run was over too soon"] if killed is None else [])
        (disk / "filler").unlink(missing_ok=True)
        after = place.start(urls("b", "d")).finish()
        report.broken(where, judge.unclean(after, 1))
        if len(after.lines("could not be written by an earlier run", " ERROR: ")) != 1:
            report.broken(where, [f"not one line: {after.output[-1500:]}"])
        _judge(place, report, where, [] if killed is None else [killed.over])
    return True


def _full_at_first(directory: Path, report: Report) -> bool:
    """A disk that was full before the first run: it is refused, or goes on with what it fetched."""
    if not can_mount():
        return False
    with _small(directory) as (disk, place):
        fill_disk(disk / "filler")
        ended = _crawl(place, "a")
        report.broken("full at first", [each for each in judge.unclean(ended) if "trace" in each])
        if not (ended.lines("WALSH_STATE_DIR", " ERROR: ") or "scrapy_walsh: " in ended.output):
            report.broken("full at first", [f"not one line: {ended.output[-1500:]}"])
        _judge(place, report, "full at first", [])
    return True


def _limited(directory: Path, report: Report) -> bool:
    """No file may grow: what a full disk is to who may not mount one."""
    with judge.place(directory / "project") as place:

        def limit() -> None:
            # Of the crawls from now on, by the first file of the project that they read.
            with (place.project / "probe_settings.py").open("a") as settings:
                settings.write("import resource\n")
                settings.write(f"resource.setrlimit(resource.RLIMIT_FSIZE, ({_LIMIT}, {_LIMIT}))\n")

        _refused(place, report, "file size limit", limit)
    return True


def _read_only(directory: Path, report: Report) -> bool:
    """A directory that is mounted for reading only, or whose permissions say so."""
    where = "read-only directory"
    with judge.place(directory / "project") as place:
        path = place.state
        path.mkdir(parents=True)
        if can_mount():
            with _mounted("--bind", path, at=path):
                remount = partial(mount, "-o", "remount,bind,ro", path)
                _refused(place, report, where, remount)
            return True
        if os.geteuid() == 0:
            return False
        try:
            _refused(place, report, where, partial(_forbid_writing, path))
        finally:
            path.chmod(0o700)
    return True


def _forbid_writing(directory: Path) -> None:
    for each in directory.iterdir():
        each.chmod(0o400)
    directory.chmod(0o500)


def _no_directory(directory: Path, report: Report) -> bool:
    """A state directory that cannot be made: the crawl is refused in one line, and asks nothing."""
    (directory / "file").write_text("")
    state = str(directory / "file" / "state")
    with judge.place(directory / "project", WALSH_STATE_DIR=state) as place:
        report.broken("no directory", refusal(_crawl(place, "a"), "WALSH_STATE_DIR"))
    return True


def refusal(ended: Crawl, *words: str) -> list[str]:
    """What is wrong with a run that had to be refused in one line with *words*."""
    found = [f"asked {each.host}{each.path}" for each in ended.log]
    if ended.returncode in (0, None) or ended.returncode < 0:
        found.append(f"return code {ended.returncode}")
    if "Traceback" in ended.output:
        found.append(f"a traceback: {ended.output[-1500:]}")
    if len(ended.lines(*words)) != 1:
        found.append(f"{len(ended.lines(*words))} lines say {words}: {ended.output[-1500:]}")
    return found


@contextmanager
def _mounted(*options: str | Path, at: Path) -> Iterator[None]:
    """A file system of its own at *at*."""
    mount(*options, at)
    try:
        yield
    finally:
        unmount(at)


@contextmanager
def _small(directory: Path) -> Iterator[tuple[Path, Runs]]:
    """A small disk, and a project that keeps its state there."""
    disk = directory / "disk"
    disk.mkdir()
    with (
        _mounted("-t", "tmpfs", "-o", f"size={_SMALL}", "tmpfs", at=disk),
        judge.place(directory / "project", WALSH_STATE_DIR=str(disk)) as place,
    ):
        yield disk, place


CASES: dict[str, Callable[[Path, Report], bool]] = {
    "full disk": _full,
    "full meanwhile": _full_meanwhile,
    "full at first": _full_at_first,
    "file size limit": _limited,
    "read-only directory": _read_only,
    "no directory": _no_directory,
}

__all__ = ["CASES", "campaign", "refusal"]
