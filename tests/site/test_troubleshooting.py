"""docs/troubleshooting.md has every warning and error that the package logs or raises.

The messages are collected from the source. Where a call logs what another function made ("%s"), the
table ``MADE_ELSEWHERE`` says where that text is; a new call of that kind must be added to it.
"""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

import scrapy_walsh
from scrapy_walsh import exceptions
from scrapy_walsh.policy.verdict import REMEDIES

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
PACKAGE = Path(scrapy_walsh.__file__).parent
#: The commands and the proof speak to a person who has just typed something, on stderr. So do the
#: readers of keys, for which a crawl says which setting it is about.
LEFT_OUT = ("commands", "keys", "proof")
LEVELS = ("warning", "error", "critical", "log")
ERRORS = {name for name, value in vars(exceptions).items() if isinstance(value, type)}
#: By module and logged expression, the place of the text.
MADE_ELSEWHERE = {
    ("adapters/seats.py", "line"): "config.py",  # unknown_settings
    ("adapters/context.py", "why"): "adapters/seats.py, adapters/lease.py",
    ("adapters/events.py", "line"): "policy/event.py, policy/verdict.py, and its own",
    ("adapters/context.py", "line"): "notices",
    ("adapters/events.py", "self.ledger.notices.pop(0)"): "notices",
    ("adapters/disk_lines.py", "line"): "state/forms.py",
    ("adapters/lease.py", "line"): "its own",
    ("adapters/wire/pacing.py", "line"): "fleet/link.py",
    ("adapters/sources.py", "line"): "policy/readings.py",
    ("adapters/sources.py", "last_line(reason)"): "policy/readings.py",
    ("sources/handover.py", "error"): "StateError",
    ("spiders/walsh_metadata.py", "problem"): "SourcesInvalid",
}
#: Texts that no call logs or raises as they stand: where they are made, and their words.
OTHERS = (
    ("config.py", "is not a setting of scrapy_walsh and is not read"),
    ("config.py", "; did you mean"),
    ("adapters/seats.py", "scrapy_walsh overrides it with"),
    ("adapters/seats.py", "scrapy_walsh is not completely installed:"),
    ("adapters/lease.py", "run one at a time, or set WALSH_SHARED_STATE"),
    ("fleet/link.py", "forgets its latest records in a crash (appendonly no)"),
    ("fleet/store.py", "in Redis cannot be read ("),
    ("adapters/lease.py", "the lease of this job cannot be kept in"),
    ("policy/urls.py", "it is not used: give a target's credentials by Scrapy's"),
    ("commands/command.py", "would run without scrapy_walsh, and nothing be gated or "),
    ("fleet/link.py", "the shared store"),
    ("fleet/link.py", "cannot be relied on:"),
    ("fleet/store.py", "; this machine's copy is read instead"),
    ("state/forms.py", "or a later version"),
    ("state/forms.py", "is a copy of before"),
    ("ledger/files.py", ": decisions go unrecorded:"),
    ("ledger/files.py", "make room there, move away what is no ledger, or"),
    ("ledger/files.py", "is gone:"),
    ("policy/identity.py", "WALSH_IDENTITY is not set:"),
    ("policy/readings.py", "has not been read since"),
    ("policy/readings.py", "refuses from now on what it let be read:"),
    ("policy/readings.py", "is gone (410):"),
    ("policy/readings.py", "no run since then was answered before it ended"),
    ("policy/readings.py", "has moved for good to"),
    ("policy/readings.py", "more (scrapy walsh state show lists them)"),
    ("policy/readings.py", "no source was declared"),
    ("policy/readings.py", "warnings name each once a week"),
    ("policy/readings.py", "stopped ("),
    ("sources/report.py", ": cannot be written:"),
    ("sources/sources.py", "cannot be used; write an absolute http or https URL"),
    ("spiders/walsh_metadata.py", "scrapy_walsh is not installed here: set ADDONS"),
    ("state/files.py", "free or repair the disk"),
    ("state/files.py", "let the user of this crawl read and write it"),
    ("state/files.py", "or set another WALSH_STATE_DIR"),
    ("state/database.py", "cannot be used"),
    ("state/database.py", "stays damaged"),
    ("state/store.py", "cannot be written"),
)  # fmt: skip


class Message(NamedTuple):
    """What is said, and where. ``text``: the parts that do not differ; NUL stands between them."""

    place: str
    text: str | None
    expression: str


def plain(text: str) -> str:
    """*text* as one line, without Markdown's signs for code and emphasis."""
    return " ".join(re.sub(r"\*\*|`", "", text).split())


PAGE = plain((ROOT / "docs/troubleshooting.md").read_text())


def text_of(node: ast.expr) -> str | None:
    """The text that *node* stands for, NUL in place of each value; None where it is none."""
    match node:
        case ast.Constant(value=str() as text):
            return re.sub(r"%(?:\.\d)?[sdrfg]", "\0", text)
        case ast.JoinedStr(values=parts):
            return "".join(p.value if isinstance(p, ast.Constant) else "\0" for p in parts)
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return f"{text_of(left) or chr(0)}{text_of(right) or chr(0)}"
    return None


@cache
def calls() -> list[tuple[str, str, ast.Call]]:
    """Each call of what may be a logger, an error or the list of notices: place, name, call."""
    names = {*LEVELS, *ERRORS, "append"}
    found: list[tuple[str, str, ast.Call]] = []
    for path in sorted(PACKAGE.rglob("*.py")):
        place = path.relative_to(PACKAGE)
        if place.parts[0] in LEFT_OUT:
            continue
        found.extend(
            (place.as_posix(), ast.unparse(node.func), node)
            for node in ast.walk(ast.parse(path.read_text()))
            if isinstance(node, ast.Call) and _last_name(node.func) in names
        )
    return found


def _last_name(called: ast.expr) -> str:
    match called:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
    return ""


def logged() -> Iterator[Message]:
    """Every call of a logger at WARNING or above, or at a level that is computed."""
    for place, called, node in calls():
        logger, _, level = called.rpartition(".")
        if level in LEVELS and logger.endswith("logger"):
            said = node.args[1:] if level == "log" else node.args
            what = ast.unparse(said[1]) if len(said) > 1 else ""
            yield Message(place, text_of(said[0]), what)


def raised() -> Iterator[Message]:
    """Every error of ours that is made with a text, and every notice of the store's."""
    for place, called, node in calls():
        if node.args and (called in ERRORS or called.endswith("notices.append")):
            yield Message(place, text_of(node.args[0]), ast.unparse(node.args[0]))


def fragments(text: str) -> list[str]:
    """The parts of *text* that say something: at least two words."""
    parts = [" ".join(part.split()).strip(" :;,()") for part in text.split("\0")]
    return [part for part in parts if len(re.findall(r"[A-Za-z]{2,}", part)) > 1]


def test_own_every_message_is_on_the_page() -> None:
    """And what reads the messages finds them; not at import, which every worker does."""
    told = [(each.place, each.text) for each in (*logged(), *raised()) if each.text is not None]
    parts = [(place, part) for place, text in told for part in fragments(text)]
    assert len({text for _, text in told if fragments(text)}) > 80
    assert any("answers wait for the requests of their callbacks" in part for _, part in parts)
    absent = [(place, part) for place, part in parts if part not in PAGE]
    assert not absent, "docs/troubleshooting.md does not say what these mean"


@pytest.mark.parametrize(("place", "text"), OTHERS)
def test_own_texts_that_are_put_together_are_on_the_page(place: str, text: str) -> None:
    tree = ast.parse((PACKAGE / place).read_text())
    said = [text_of(node) or "" for node in ast.walk(tree) if isinstance(node, ast.expr)]
    assert any(text in each for each in said), f"{place} says this no more"
    assert text in PAGE


def test_own_every_remedy_is_on_the_page() -> None:
    page = PAGE.lower()
    assert [text for text in REMEDIES.values() if text.lower() not in page] == []


def test_own_what_another_function_says_is_accounted_for() -> None:
    """A call that logs a text made elsewhere: the table says where, and has no other."""
    bare = {(each.place, each.expression) for each in logged() if each.text == "\0"}
    assert bare == MADE_ELSEWHERE.keys()
