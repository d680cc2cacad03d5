"""Real ledgers of real crawls hold; one octet, one line, one place changed, and they do not."""

from __future__ import annotations

import json
import random
import re
import shutil
import sqlite3
import zlib
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from scrapy_walsh.commands.main import main
from scrapy_walsh.ledger import FILE, files
from scrapy_walsh.ledger.files import DOCUMENTS, HEAD, Ledger, parse_line
from scrapy_walsh.proof.sandbox import Route, Sandbox
from tests.crawl.harness import Crawl, crawl, make_project, run_scrapy, site, state_dir, walsh
from tests.kit import honest, report_of, told

if TYPE_CHECKING:
    from collections.abc import Iterator

FIRST = (
    "http://path.test/public",
    "http://path.test/private/x",
    "http://www.blocked.test/x",
    "http://flaky.test/feed.xml",
    "http://redirect.test/own",
    "http://redirect.test/other",
    "http://redirect.test/blocked",
    "http://long-delay.test/a",
    "http://long-delay.test/b",
    "http://robots-503.test/x",
    "http://robots-404.test/x",
    "http://robots-blocked.test/x",
    "http://secure.test/",
    "http://delay.test/a",
    "http://delay.test/b?q=hidden",
    "http://page.test/gone",
    "http://page.test/busy",
    "http://named-deny.test/x",
    "ftp://page.test/file",
)
SECOND = ("http://path.test/public", "http://delay.test/c", "http://unchanged.test/feed.xml")
PAGES = (
    site("page.test", {"/gone": Route(behaviour="close"), "/busy": Route(503)}),
    site("shared.test", {"*": Route(body="p", delay=0.2)}),
)
QUICK = {"WALSH_MAX_RETRIES": 1}


class Crawled:
    """A project with three runs, one whose two runs overlapped, and one without queries."""

    def __init__(self, directory: Path) -> None:
        with ThreadPoolExecutor(2) as pool:
            others = pool.submit(self._others, directory)
            self._one_after_another(directory / "one")
            others.result()

    def _one_after_another(self, directory: Path) -> None:
        with Sandbox() as box:
            box.put(PAGES[0])
            project = make_project(directory, settings=QUICK)
            self.first = crawl(project, box, *FIRST)
            self.second = crawl(project, box, *SECOND)
            make_project(project, settings={**QUICK, "WALSH_REVISIT_REASON": "a test"})
            self.third = crawl(project, box, "http://unchanged.test/feed.xml")
        self.one = state_dir(project)

    def _others(self, directory: Path) -> None:
        settings = {**QUICK, "WALSH_LEDGER": "redact"}
        hidden = make_project(directory / "three", settings=settings)
        shared = make_project(directory / "two", settings=QUICK)
        urls = [
            " ".join(f"http://shared.test/{run}/{page}" for page in range(4)) for run in range(2)
        ]

        def run(pages: str) -> None:
            run_scrapy(shared, box, "crawl", "probe", "-a", f"urls={pages}")

        with Sandbox() as box:
            box.put(PAGES[1])
            crawl(hidden, box, "http://path.test/public?key=hidden", *FIRST[1:3])
            with ThreadPoolExecutor(2) as pool:
                list(pool.map(run, urls))
        self.redacted, self.shared = state_dir(hidden), state_dir(shared)


@pytest.fixture(scope="module")
def crawled(tmp_path_factory: pytest.TempPathFactory) -> Crawled:
    return Crawled(tmp_path_factory.mktemp("verify"))


def kinds(directory: Path) -> set[str]:
    return {parse_line(line)["kind"] for line in (directory / FILE).read_bytes().splitlines()}


# -- what is honest -----------------------------------------------------------------------


def test_real_ledgers_hold(crawled: Crawled):
    runs = (crawled.first, crawled.second, crawled.third)
    assert [run.returncode for run in runs] == [0, 0, 0]
    report = report_of(crawled.one)
    assert told(report) == []
    assert report.underived == {}
    assert report.runs == 3
    asked = [each for run in runs for each in run.log if each.method != "CONNECT"]
    assert report.requests == len(asked)
    assert kinds(crawled.one) == {
        "ledger", "started", "ended", "declared", "adopted", "taken_up", "rejected", "asked",
        "fetched", "not_modified", "refused", "deferred", "held", "retried", "given_up",
    }  # fmt: skip


def head_of(run: Crawl) -> tuple[int, str]:
    """What the crawl's stats, as its log shows them, say of the ledger's last line."""
    number = re.search(r"'walsh/ledger/line': (\d+)", run.output)
    digest = re.search(r"'walsh/ledger/head': '(\w+)'", run.output)
    assert number is not None
    assert digest is not None
    return int(number[1]), digest[1]


def test_the_head_is_the_one_that_the_stats_tell(crawled: Crawled):
    assert report_of(crawled.one).head == head_of(crawled.third)


def test_two_processes_on_one_directory_hold(crawled: Crawled):
    report = report_of(crawled.shared)
    assert told(report) == []
    assert report.runs == 2
    lines = [parse_line(line) for line in (crawled.shared / FILE).read_bytes().splitlines()]
    ends = [line["kind"] for line in lines if line["kind"] in ("started", "ended")]
    assert ends == ["started", "started", "ended", "ended"], "they did not overlap"


def test_a_redacted_ledger_holds_and_says_what_was_not_derived(crawled: Crawled):
    report = report_of(crawled.redacted)
    assert told(report) == []
    assert report.underived["decisions about URLs whose query is redacted"] == 1


# -- what is not --------------------------------------------------------------------------


@pytest.fixture
def short(tmp_path: Path) -> Path:
    """A short ledger, for which every line is changed in turn."""
    honest().check(tmp_path)
    return tmp_path


@pytest.fixture(scope="module")
def real(crawled: Crawled, tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("tampered")
    for name in (FILE, HEAD, DOCUMENTS):
        shutil.copy(crawled.one / name, directory / name)
    return directory


def lines_of(directory: Path) -> list[bytes]:
    return (directory / FILE).read_bytes().splitlines(keepends=True)


def flip(line: bytes, place: int, bit: int) -> bytes:
    return line[:place] + bytes([line[place] ^ 1 << bit]) + line[place + 1 :]


def names(directory: Path, lines: list[bytes], expected: set[int]) -> None:
    """Assert that *lines* do not hold, and that the findings are few and of *expected* lines."""
    kept = (directory / FILE).read_bytes()
    (directory / FILE).write_bytes(b"".join(lines))
    report = report_of(directory)
    (directory / FILE).write_bytes(kept)
    assert report.findings
    assert {finding.line for finding in report.findings} <= expected, told(report)
    assert {finding.rule for finding in report.findings} == {"chain"}
    assert len(report.findings) <= 3


def flipped(directory: Path) -> Iterator[tuple[list[bytes], set[int]]]:
    chance = random.Random(7)
    whole = lines_of(directory)
    for number, line in enumerate(whole, 1):
        place = chance.randrange(len(line))
        changed = flip(line, place, chance.randrange(8))
        yield [*whole[: number - 1], changed, *whole[number:]], {number, number + 1, number + 2}


def dropped(directory: Path) -> Iterator[tuple[list[bytes], set[int]]]:
    whole = lines_of(directory)
    for number in range(1, len(whole) + 1):
        last = number == len(whole)
        yield whole[: number - 1] + whole[number:], {number if last else number + 1}


def swapped(directory: Path) -> Iterator[tuple[list[bytes], set[int]]]:
    whole = lines_of(directory)
    for number in range(1, len(whole)):
        pair = [whole[number], whole[number - 1]]
        yield [*whole[: number - 1], *pair, *whole[number + 1 :]], {number, number + 1}


def doubled(directory: Path) -> Iterator[tuple[list[bytes], set[int]]]:
    whole = lines_of(directory)
    for number in range(1, len(whole) + 1):
        yield [*whole[:number], *whole[number - 1 :]], {number}


def cut_short(directory: Path) -> Iterator[tuple[list[bytes], set[int]]]:
    whole = lines_of(directory)
    for number in range(1, len(whole)):
        yield whole[:number], {len(whole)}
        yield [*whole[:number], whole[number][:40]], {len(whole)}


TAMPERINGS = (flipped, dropped, swapped, doubled, cut_short)
Tampering = "Callable[[Path], Iterator[tuple[list[bytes], set[int]]]]"


@pytest.mark.slow
@pytest.mark.parametrize("tampering", TAMPERINGS)
def test_lines_of_a_short_ledger_are_missed_and_each_that_was_changed(
    tampering: Tampering, short: Path
):
    made = list(tampering(short))
    for lines, expected in made if tampering is flipped else made[::5]:
        names(short, lines, expected)


@pytest.mark.parametrize("tampering", TAMPERINGS[:3])
def test_some_lines_of_a_real_ledger_are_missed(tampering: Tampering, real: Path):
    for lines, expected in list(tampering(real))[::25]:
        names(real, lines, expected)


@pytest.mark.slow
def test_octets_all_along_a_line_count(short: Path):
    whole = lines_of(short)
    number = next(n for n, line in enumerate(whole, 1) if b'"kind":"refused"' in line)
    for place in range(0, len(whole[number - 1]), 11):
        changed = flip(whole[number - 1], place, place % 7)
        names(
            short,
            [*whole[: number - 1], changed, *whole[number:]],
            {number, number + 1, number + 2},
        )


def test_a_damaged_document_is_not_taken_for_the_one_it_was(crawled: Crawled, real: Path):
    (real / DOCUMENTS).write_bytes(b"")
    report = report_of(real)
    shutil.copy(crawled.one / DOCUMENTS, real / DOCUMENTS)
    assert told(report) == []
    assert report.derived < report_of(real).derived
    assert report.underived


def test_an_altered_document_is_named_by_its_digest(real: Path):
    with closing(sqlite3.connect(real / DOCUMENTS)) as connection, connection:
        (digest,) = connection.execute("SELECT digest FROM documents LIMIT 1").fetchone()
        body = zlib.compress(b"User-agent: *\nAllow: /\n# altered\n")
        connection.execute("UPDATE documents SET body = ? WHERE digest = ?", (body, digest))
    found = report_of(real).findings
    assert found
    for each in found:
        assert each.rule == "chain"
        assert each.text == f"the document {digest} was altered, or is damaged"
        assert digest in lines_of(real)[each.line - 1].decode()


# -- the end, the files -------------------------------------------------------------------


def test_without_a_head_a_run_without_an_end_is_a_finding(short: Path):
    whole = lines_of(short)
    (short / FILE).write_bytes(b"".join(whole[:-1]))
    (short / HEAD).unlink()
    assert [finding.line for finding in report_of(short).findings] == [len(whole) - 1]


def test_without_a_head_a_ledger_whose_runs_ended_holds_with_a_note(short: Path):
    (short / HEAD).unlink()
    report = report_of(short)
    assert told(report) == []
    assert report.notes == ["no head: lines cut off at the end would not show"]


def test_a_run_that_goes_on_is_a_note(short: Path):
    """The head is of the last line; what a writer has begun is no line yet."""
    whole = lines_of(short)
    last = parse_line(whole[-2].rstrip())
    (short / HEAD).write_text(f"{last['n']:012} {last['hash']}\n")
    (short / FILE).write_bytes(b"".join([*whole[:-1], whole[-1][:20]]))
    report = report_of(short)
    assert told(report) == []
    assert len(report.notes) == 2


def rotated(directory: Path) -> int:
    """A ledger of several files, written by the writer; the number of its full ones."""
    clock = iter(honest().entries)
    at = [0.0]
    ledger = Ledger(directory, lambda: at[0], keep_octets=16 * 4000)
    for entry in clock:
        if entry["kind"] != "ledger":
            at[0] = entry["at"]
            members = {k: v for k, v in entry.items() if k not in ("run", "at")}
            ledger.write(entry["run"], members)
    ledger.close()
    return len(files.rotated_files(directory))


def test_files_that_were_rotated_are_one_ledger(short: Path) -> None:
    (short / FILE).unlink()
    (short / HEAD).unlink()
    assert rotated(short) >= 3
    report = report_of(short)
    assert told(report) == []
    assert report.underived == {}
    assert report.notes == []
    (short / "ledger-000002.jsonl").rename(short / "elsewhere")
    assert {finding.rule for finding in report_of(short).findings} == {"chain"}
    (short / "elsewhere").rename(short / "ledger-000002.jsonl")
    (short / "ledger-000001.jsonl").unlink()
    report = report_of(short)
    assert told(report) == []
    assert any("earlier lines are missing" in note for note in report.notes)
    assert report.underived


# -- the command --------------------------------------------------------------------------


def test_the_command_says_where(crawled: Crawled, real: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["verify", str(crawled.one)]) == 0
    assert main(["verify", str(crawled.one / FILE), "--json"]) == 0
    out = capsys.readouterr().out
    assert json.loads(out.splitlines()[-1])["holds"] is True
    number, digest = head_of(crawled.third)
    assert main(["verify", str(crawled.one), "--head", f"{number}:{digest}"]) == 0
    assert main(["verify", str(crawled.one), "--head", f"9:{'0' * 64}"]) == 1
    assert "line 9: chain: its hash is not the one that --head has" in capsys.readouterr().out
    assert main(["verify", str(crawled.one), "--head", f"99999:{'0' * 64}"]) == 1


@pytest.mark.parametrize(
    "arguments",
    [["nowhere"], [".", "--head", "9"], [".", "--documents", "nowhere"]],
    ids=lambda arguments: arguments[-1],
)
def test_misuse_is_said_in_one_line(
    arguments: list[str],
    short: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
):
    monkeypatch.chdir(short)
    assert main(["verify", *arguments]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.count("\n") == 1
    assert said.err.startswith("walsh verify: ")


def test_only_fifty_findings_are_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    forge = honest()
    for number in range(60):
        forge.add(200 + number, "held", url="http://h.test/d", host="h.test", wait=1.0)
    forge.check(tmp_path)
    assert main(["verify", str(tmp_path)]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert [line.startswith("line ") for line in lines[:52]] == [True] * 50 + [False] * 2
    assert lines[50] == "... and 10 more"


def test_the_commands_of_the_docs_run(crawled: Crawled, tmp_path: Path):
    """docs/ledger.md: its command, in a project and outside one, and the lines that it shows."""
    text = (Path(__file__).parent.parent.parent / "docs/ledger.md").read_text()
    blocks = re.findall(r"```(\w*)\n(.*?)```", text, re.DOTALL)
    command, shown, finding = (block.splitlines() for _, block in blocks)
    assert command == ["scrapy walsh verify .scrapy/walsh"]
    project = crawled.one.parent.parent
    shutil.copytree(crawled.one, tmp_path / ".scrapy" / "walsh")
    for module, directory, ledger in (
        ("scrapy walsh", project, str(crawled.one.relative_to(project))),
        ("scrapy_walsh", project.parent, str(crawled.one.relative_to(project.parent))),
        ("scrapy_walsh", tmp_path, None),  # that of the directory
    ):
        name, *words = module.split()
        done = walsh(directory, *words, "verify", *filter(None, [ledger]), module=name)
        assert done.returncode == 0, done.stderr
        assert [re.sub(r"[0-9a-f]{64}|[0-9]+", "N", line) for line in done.stdout.splitlines()] == [
            re.sub(r"[0-9a-f]{64}|[0-9]+", "N", line) for line in shown
        ]
    forge = honest()
    too_fast = forge.only("asked", "http://h.test/target")
    for name in ("at", "started", "ended"):
        too_fast[name] -= 0.2
    assert told(forge.check(tmp_path)) == finding
