"""Facts are fields: no code of the package reads a fact back out of a sentence that it has made.

The sentences for people are the members ``reason``, ``detail``, ``brief`` and ``why``, and the text
of an exception. Code may print them, join them, shorten them and escape them. It may not look into
them: no part is cut out, no word is looked for, no text is compared with a constant.
"""

from __future__ import annotations

import ast
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

import scrapy_walsh

if TYPE_CHECKING:
    from collections.abc import Iterator

PACKAGE: Final = Path(scrapy_walsh.__file__).parent

#: Attributes, members, arguments and locals that hold a sentence.
SENTENCES: Final = frozenset(
    {"reason", "reasons", "detail", "brief", "why", "message", "sentence", "malformed"}
)
#: Locals that hold an exception.
ERRORS: Final = frozenset({"error", "exception", "cause", "each", "answer"})
#: Methods of a string that look into it, or take it apart.
METHODS: Final = frozenset(
    {
        *("startswith", "endswith", "find", "rfind", "index", "rindex", "count", "replace"),
        *("split", "rsplit", "splitlines", "partition", "rpartition"),
        *("removeprefix", "removesuffix", "lower", "upper", "casefold", "translate"),
    }
)
#: Functions of ``re`` and of its patterns.
PATTERNS: Final = frozenset(
    {"match", "search", "fullmatch", "findall", "finditer", "split", "sub", "subn"}
)
#: By file and function, the reason for each exception. All but the last look into the text of a
#: foreign error, because its class alone does not say enough.
EXCEPTIONS: Final = {
    ("adapters/disk_lines.py", "_unusable"): "SQLite has one code for a missing table and others",
    ("adapters/documents/faults.py", "of_certificate"): "OpenSSL has one class for all of TLS",
    ("adapters/documents/faults.py", "_is_tunnels_5xx"): "Scrapy has no field for that status",
    ("adapters/documents/faults.py", "_text"): "it takes the first line of the text",
    ("fleet/link.py", "_is_mistake"): "redis-py has one class for most answers of Redis",
    ("fleet/store.py", "_all_lifts"): "WRONGTYPE is a code of Redis, and has no class either",
    ("fleet/store.py", "exchange"): "the same",
    ("commands/discover.py", "closed"): "the reason for which Scrapy closes a spider is one word",
}


def is_sentence(node: ast.expr) -> bool:
    """Whether *node* is a sentence: one of those members, a text of it, or the text of an error."""
    match node:
        case (
            ast.Attribute(attr=name)
            | ast.Name(id=name)
            | ast.Subscript(slice=ast.Constant(value=str(name)))
            | ast.Call(func=ast.Attribute(attr="get"), args=[ast.Constant(value=str(name)), *_])
        ):
            return name in SENTENCES
        case ast.Call(func=ast.Attribute(attr=method, value=value)):
            return method in SENTENCES or (method in METHODS and is_sentence(value))
        case ast.Call(func=ast.Name(id="str"), args=[argument]):
            is_error = isinstance(argument, ast.Name) and argument.id in ERRORS
            return is_error or is_sentence(argument)
        case ast.Subscript(value=value, slice=ast.Slice()):
            return is_sentence(value)
        case ast.BoolOp(values=values):
            return any(map(is_sentence, values))
    return False


def is_text(node: ast.expr) -> bool:
    """Whether *node* is a text that is written there; the empty one asks whether there is any."""
    match node:
        case ast.Constant(value=str(text)):
            return text != ""
        case ast.JoinedStr():
            return True
    return False


def looks_into(node: ast.AST) -> bool:
    """Whether *node* looks into a sentence."""
    match node:
        case ast.Call(func=ast.Attribute(value=value, attr=method), args=arguments):
            if method in METHODS and is_sentence(value):
                return True
            return method in PATTERNS and any(map(is_sentence, arguments))
        case ast.Compare(left=left, ops=operators, comparators=others):
            values = [left, *others]
            for operator, one, other in zip(operators, values, others, strict=False):
                if isinstance(operator, (ast.In, ast.NotIn)) and is_sentence(other):
                    return True
                if isinstance(operator, (ast.Eq, ast.NotEq)):
                    pairs = ((one, other), (other, one))
                    if any(is_sentence(a) and is_text(b) for a, b in pairs):
                        return True
        case ast.Match(subject=subject):
            return is_sentence(subject)
    return False


def faults_in(text: str) -> Iterator[tuple[str, int]]:
    """Function and line of each place in *text* that looks into a sentence."""

    def walk(node: ast.AST, function: str) -> Iterator[tuple[str, int]]:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            function = node.name
        if looks_into(node):
            yield function, getattr(node, "lineno", 0)
        for child in ast.iter_child_nodes(node):
            yield from walk(child, function)

    return walk(ast.parse(text), "")


def test_no_fact_is_read_back_out_of_a_sentence() -> None:
    faults = []
    used = set()
    for path in sorted(PACKAGE.rglob("*.py")):
        name = path.relative_to(PACKAGE).as_posix()
        for function, line in faults_in(path.read_text(encoding="utf-8")):
            if (name, function) in EXCEPTIONS:
                used.add((name, function))
            else:
                faults.append(f"{name}:{line} in {function}: make the fact a field")
    assert faults == []
    assert used == set(EXCEPTIONS), "an exception that nothing needs"


@pytest.mark.parametrize(
    "code",
    [
        'NO_ANSWER in event.reason', 'reason.partition(": ")[2]', 'line.reason.split()[0]',
        'f": {host} " in reason', 'why.replace("no answer", error, 1)', 'row["reason"][:9].lower()',
        'any(words in line.reason for words in WORDS)', 're.search(_HOST, verdict.reason)',
        '_PATTERN.match(check.detail)', 'str(error).startswith("no")', 'reason == "gone"',
        'members.get("reason", "").endswith("Z")', '"x" != (verdict.reason or "")',
        'str(verdict.reason).lower().count("x")', 'failure.reason().partition(";")',
    ],
)  # fmt: skip
def test_each_way_back_is_seen(code: str) -> None:
    assert list(faults_in(f"def f():\n    {code}")) != []


@pytest.mark.parametrize(
    "code",
    [
        'f"{line.reason}; {remedy}"', "reason.strip()", "event.host or event.reason",
        "one_line(reason)", 'reason == ""', "reason is None", "line.reason[:200]",
        'event.error == ""', 'cause == "failures"', 'close_reason == "finished"',
    ],
)  # fmt: skip
def test_a_sentence_may_be_shown(code: str) -> None:
    assert list(faults_in(f"def f():\n    {code}")) == []
