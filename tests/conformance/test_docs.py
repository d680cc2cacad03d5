"""docs/conformance.md: commands are accepted, the bot is judged as it says, its numbers hold."""

from __future__ import annotations

import argparse
import re
import shlex
import sys
from typing import TYPE_CHECKING

import pytest

from scrapy_walsh.commands import conformance as command
from scrapy_walsh.proof.conformance import parts
from scrapy_walsh.proof.conformance.check import SHOULD
from scrapy_walsh.proof.conformance.run import names
from tests.kit import conformance
from tests.zygote import ROOT

if TYPE_CHECKING:
    from pathlib import Path

TEXT = (ROOT / "docs" / "conformance.md").read_text()


def snippets(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", TEXT, re.DOTALL)


COMMANDS = [line for snippet in snippets("bash") for line in snippet.splitlines()]


def arguments(line: str) -> list[str]:
    words = shlex.split(line)
    return words[words.index("conformance") + 1 :]


@pytest.mark.parametrize("line", COMMANDS)
def test_every_command_of_the_docs_is_accepted(line: str) -> None:
    parser = argparse.ArgumentParser()
    command.add_options(parser)
    command._check_usage(parser.parse_args(arguments(line)))


def test_the_docs_name_every_part() -> None:
    shown = set(re.findall(r"`(\w+)`", TEXT))
    assert shown >= set(names())


def test_the_vectors_of_the_docs_run(tmp_path: Path) -> None:
    (line,) = (line for line in COMMANDS if "vectors" in line)
    done = conformance(tmp_path, *arguments(line))
    assert done.code == 0, done.stderr
    assert {check["outcome"] for check in done.found["checks"]} == {"PASS"}


def test_the_bot_of_the_docs_is_judged_as_they_say(tmp_path: Path) -> None:
    (line, signed) = (line for line in COMMANDS if "bot.py" in line)
    assert "--directory" in signed  # tests/sign/test_lab.py judges one that signs
    (bot,) = snippets("python")
    (tmp_path / "bot.py").write_text(bot)
    words = [word.replace("python ", f"{sys.executable} ") for word in arguments(line)]
    done = conformance(tmp_path, *words, "--json")
    assert done.code == 1
    assert done.outcomes("R1") == {
        "exact UA on targets": "PASS",
        "exact UA on robots.txt": "NOT SEEN",
        "exact UA on the operator's documents": "NOT SEEN",
    }


def test_the_matrix_of_the_benchmarks_has_every_row_of_the_lab() -> None:
    """It is with the benchmarks, because few readers need all rows: the page has their numbers."""
    text = (ROOT / "bench" / "README.md").read_text()
    cells = re.compile(
        r"^\| (R\w+) \| ([A-Z ]+) \| (.*?) \| ([A-Z ]+) \| ([A-Z ]+) \| ([A-Z ]+) \|$", re.MULTILINE
    )
    found = cells.findall(text)
    shown = [(*row[:3], row[5]) for row in found]
    rows = [(row.id, row.level, row.title) for part in parts.PARTS for row in part.rows]
    assert sorted((identity, level, title) for identity, level, title, _ in shown) == sorted(rows)
    ours = {outcome for _, level, _, outcome in shown if level != SHOULD}
    assert ours == {"PASS"}
    for column in (3, 4, 5):
        counts = [
            ", ".join(
                str(sum(row[column] == outcome for row in found if (row[1] == SHOULD) is is_should))
                for outcome in ("PASS", "FAIL", "NOT SEEN")
            )
            for is_should in (False, True)
        ]
        assert f" | {counts[0]} | {counts[1]} |" in TEXT
    assert f"[All {len(found)} rows]" in TEXT
