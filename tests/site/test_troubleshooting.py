"""docs/troubleshooting.md has every warning and error of the package, and no other.

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
    ("adapters/context.py", "reason"): "adapters/seats.py, adapters/lease.py",
    ("adapters/events.py", "line"): "policy/event.py, policy/verdict.py, and its own",
    ("adapters/context.py", "line"): "notices",
    ("adapters/events.py", "self.ledger.notices.pop(0)"): "notices",
    ("adapters/disk_lines.py", "line"): "state/forms.py",
    ("adapters/lease.py", "line"): "its own",
    ("adapters/wire/pacing.py", "line"): "fleet/link.py",
    ("adapters/account.py", "line"): "policy/summary.py",
    ("sources/handover.py", "error"): "StateError",
    ("spiders/walsh_metadata.py", "problem"): "SourcesInvalid",
}
#: Texts that no call logs or raises as they stand: where they are made, and their words.
OTHERS = (
    ("config.py", "is not a setting of scrapy_walsh and is not read"),
    ("config.py", "; did you mean"),
    ("adapters/seats.py", "scrapy_walsh overrides it with"),
    ("adapters/seats.py", "scrapy_walsh is not fully installed:"),
    ("adapters/lease.py", "run one at a time, or set WALSH_SHARED_STATE"),
    ("fleet/link.py", "loses its latest records in a crash (appendonly no)"),
    ("fleet/store.py", "in Redis cannot be read ("),
    ("adapters/lease.py", "the lease of this job cannot be kept in"),
    ("policy/urls.py", "it is ignored: set a target's credentials with Scrapy's"),
    ("commands/command.py", "would run without scrapy_walsh, so without its "),
    ("fleet/link.py", "the shared store"),
    ("fleet/link.py", "cannot be relied on:"),
    ("fleet/store.py", "; this machine's copy is read instead"),
    ("state/forms.py", "or a later version"),
    ("state/forms.py", "is a copy of the old file"),
    ("ledger/files.py", ": decisions are not recorded:"),
    ("ledger/files.py", "free space there, move other files away, or"),
    ("ledger/files.py", "is gone:"),
    ("policy/identity.py", "WALSH_IDENTITY is not set:"),
    ("policy/summary.py", "has not been read since"),
    ("policy/summary.py", "no longer allows your bot:"),
    ("policy/readings.py", "gone (410):"),
    ("policy/summary.py", "since then, each run ended before it got an answer"),
    ("policy/summary.py", "has moved for good to"),
    ("policy/summary.py", "more (scrapy walsh state show lists them)"),
    ("policy/summary.py", "no source was declared"),
    ("policy/summary.py", "warnings name each once a week"),
    ("policy/summary.py", "stopped ("),
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

#: Parts of the page's messages and reasons that no text of the code has as they stand, and the
#: pieces that the code makes each of.
IN_PIECES = {
    "2 need a person": ("need", "a person:"),
    "N items not stored": ("item", "not stored"),
    "N links withheld": ("link", "withheld:"),
    "a component of this project raised": ("a component of this project", "raised"),
    "the http handler of scrapy_walsh could not be made": (
        "handler of scrapy_walsh could not be made",
    ),
    "blocklist is not": ("blocklist", "is not JSON:"),
    "could not load robots.txt": ("could not load", "(our side):"),
    "blocklist is not a": ("blocklist", "is not a JSON object"),
    "blocklist is nested too deeply": ("blocklist", "is nested too deeply"),
    "blocklist has two members named": ("blocklist", "has two members named"),
    "the standalone schema is not": ("the standalone schema", "is not JSON:"),
    "the standalone schema is not a": ("the standalone schema", "is not a JSON object"),
    "internal errors": ("internal error",),
    "walsh_revisit of": ("walsh_revisit", "of"),
    "sources read or unchanged": ("source", "read or unchanged"),
    "sources of your list": ("source", "of your list,"),
    "the host did not answer": ("the host", "did not answer"),
    "targets and deferred": ("target", "and", "deferred"),
    "rejected robots.txt of": ("rejected", "robots.txt", "of"),
    "and this package": ("this package (",),
    "walsh-research never follows links": ("never", "follows links (R6)"),
    "walsh_also of": ("walsh_also", "of"),
    "package ca-certificates": ("(package", "ca-certificates, SSL_CERT_FILE)"),
    "ledger.head knows of line": ("ledger.head", "knows of line"),
}
#: A message of Scrapy's.
NOT_OURS = "Spider not found"
#: How what a person types begins, in the page's inline code.
TYPED = ("scrapy ", "walsh ", "sqlite3 ")


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
            return "".join(map(_part, parts))
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return f"{text_of(left) or chr(0)}{text_of(right) or chr(0)}"
    return None


def _part(node: ast.expr) -> str:
    """The text of one part of an f-string; of ``plural(count, "host")`` it is ``NUL hosts``."""
    match node:
        case ast.Constant(value=str() as text):
            return text
        case ast.FormattedValue(
            value=ast.Call(func=ast.Name(id="plural"), args=[_, ast.Constant(value=noun)])
        ):
            return f"\0 {noun}s"
    return "\0"


@cache
def corpus() -> str:
    """Each text of the package's code, one a line; no docstring is among them."""
    found: dict[str, None] = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        tree = ast.parse(path.read_text())
        said_by_nobody = {
            id(node.value)
            for node in ast.walk(tree)
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        }
        for node in ast.walk(tree):
            if isinstance(node, ast.expr) and id(node) not in said_by_nobody:
                found[" ".join((text_of(node) or "").replace("\0", " \0 ").split())] = None
    return "\n".join(found)


def messages_of_the_page() -> list[str]:
    """Each message, and each reason in one, on the page; words in capitals for what differs."""
    page = (ROOT / "docs/troubleshooting.md").read_text()
    page = re.sub(r"^```.*?^```", "", page, flags=re.DOTALL | re.MULTILINE)
    bold = re.findall(r"\*\*`(.+?)`\*\*", page, re.DOTALL)
    code = re.findall(r"`([^`]+)`", re.sub(r"\*\*`.+?`\*\*", "", page, flags=re.DOTALL))
    said = [" ".join(each.split()) for each in (*bold, *code)]
    return [each for each in said if " " in each and not each.startswith(TYPED)]


def parts_of(message: str) -> list[str]:
    """The parts of a message of the page between placeholders and signs, of two words or more."""
    parts = re.split(r"[A-Z][A-Z0-9]+(?![a-z_])|\.\.\.|[:;,()]", message)
    found = [part.strip(" .'[]<>") for part in parts]
    return [part for part in found if len(re.findall(r"[A-Za-z]{2,}", part)) > 1]


@cache
def calls() -> list[tuple[str, str, ast.Call]]:
    """Each call of what may be a logger, an error or the list of notices: place, name, call."""
    names = {*LEVELS, *ERRORS, "append", "own_fault"}
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
    """Every error of ours that is made with a text, notice of the store's, and fault of ours."""
    ends = "notices.append", ".own_fault"
    for place, called, node in calls():
        if node.args and (called in ERRORS or called.endswith(ends)):
            yield Message(place, text_of(node.args[0]), ast.unparse(node.args[0]))


def fragments(text: str) -> list[str]:
    """The parts of *text* that say something: at least two words."""
    parts = [" ".join(part.split()).strip(" :;,()") for part in text.split("\0")]
    return [part for part in parts if len(re.findall(r"[A-Za-z]{2,}", part)) > 1]


def test_every_message_is_on_the_page() -> None:
    """And what reads the messages finds them; not at import, which every worker does."""
    told = [(each.place, each.text) for each in (*logged(), *raised()) if each.text is not None]
    parts = [(place, part) for place, text in told for part in fragments(text)]
    assert len({text for _, text in told if fragments(text)}) > 80
    assert any("answers wait for the requests of their callbacks" in part for _, part in parts)
    absent = [(place, part) for place, part in parts if part not in PAGE]
    assert not absent, "docs/troubleshooting.md does not say what these mean"


def test_every_message_of_the_page_is_said_by_the_code() -> None:
    parts = {part: each for each in messages_of_the_page() for part in parts_of(each)}
    assert len(parts) > 250
    absent = {part for part in parts if part not in corpus()} - {NOT_OURS}
    assert absent == IN_PIECES.keys(), {part: parts.get(part) for part in absent ^ IN_PIECES.keys()}
    lost = [piece for pieces in IN_PIECES.values() for piece in pieces if piece not in corpus()]
    assert lost == []


@pytest.mark.parametrize(
    "message",
    [
        'WALSH_STATE_DIR: PATH cannot be made (WHY): set another, or "memory" for a one-off run',
        "the shared store NAME is back after NUMBER s",
        "URL cannot be fetched: WHY; take it out",
        "url VALUE is not usable; write an absolute http or https URL",
    ],
)
def test_a_message_that_is_no_more_would_be_noticed(message: str) -> None:
    """The page had these."""
    assert any(part not in corpus() for part in parts_of(message)), parts_of(message)


def test_each_message_has_the_level_that_it_is_logged_at() -> None:
    """Where the level is in the call: of each text, the first part that says something."""
    page = (ROOT / "docs/troubleshooting.md").read_text()
    rows = [plain(row) for row in re.split(r"\n(?=- \*\*|#+ |\n)", page)]
    checked, wrong = 0, []
    for place, called, node in calls():
        logger, _, level = called.rpartition(".")
        if level not in LEVELS or level == "log" or not logger.endswith("logger"):
            continue
        for part in fragments(text_of(node.args[0]) or "")[:1]:
            having = [row for row in rows if part in row]
            checked += bool(having)
            if having and not any(level.upper() in row for row in having):
                wrong.append((place, level, part))
    assert checked > 20
    assert wrong == []


@pytest.mark.parametrize(("place", "text"), OTHERS)
def test_texts_that_are_put_together_are_on_the_page(place: str, text: str) -> None:
    tree = ast.parse((PACKAGE / place).read_text())
    said = [text_of(node) or "" for node in ast.walk(tree) if isinstance(node, ast.expr)]
    assert any(text in each for each in said), f"{place} says this no more"
    assert text in PAGE


def test_every_remedy_is_on_the_page() -> None:
    page = PAGE.lower()
    assert [text for text in REMEDIES.values() if text.lower() not in page] == []


def test_what_another_function_says_is_accounted_for() -> None:
    """A call that logs a text made elsewhere: the table says where, and has no other."""
    bare = {(each.place, each.expression) for each in logged() if each.text == "\0"}
    assert bare == MADE_ELSEWHERE.keys()
