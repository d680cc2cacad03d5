"""The package's weight: figures, and the bounds that ``tests/ratchets.md`` sets for some of them.

    python -m tests.ratchets            print each figure, beside its bound if it has one
    python -m tests.ratchets --write    lower each bound to its figure; none is raised

``tests/test_ratchets.py`` fails if a figure is above its bound. Lines of code, importers of a
module and methods of a class are printed and bound nothing: a bound of lines was met by squeezing
code. A bound of tokens costs clear code nothing.

Anybody may lower a bound. A commit that raises one writes the reason beside it: the table keeps
the lowest bound there was, and a bound above that needs a reason.
"""

from __future__ import annotations

import ast
import io
import json
import re
import sys
import tempfile
import tokenize
from collections import Counter
from dataclasses import dataclass, replace
from functools import cache, reduce
from itertools import pairwise
from operator import and_
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import scrapy_walsh
from tests.crawl.harness import side_by_side, site

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

ROOT: Final = Path(__file__).parents[1]
#: Figures that are printed and bind nothing begin with these words.
UNBOUND: Final = ("lines of", "methods of", "importers of")
#: The package that is tested: in CI it is the wheel's.
PACKAGE: Final = Path(scrapy_walsh.__file__).parent
TABLE: Final = Path(__file__).with_suffix(".md")
#: Text of the package that runs or is shown, and is no Python.
OTHER_TEXT: Final = frozenset({".css", ".html", ".js", ".lua", ".sql", ".svg"})
#: What no crawl imports (pyproject.toml, import-linter).
NO_CRAWL: Final = frozenset({"commands/", "proof/"})
#: The requests that are measured. The first of a crawl: the operator's documents and the host's
#: robots.txt are fetched before it. The second: they are in memory, and the interval is over.
NEW, CACHED = "the first request of a crawl", "a request with everything cached"


@dataclass(frozen=True)
class Figure:
    """What was measured; *where*: what has it, where the figure is the most of many."""

    value: int
    where: str = ""


@dataclass(frozen=True)
class Bound:
    """A row of the table. *reason*: why the bound is above *lowest*, the lowest that there was."""

    name: str
    bound: int
    lowest: int
    reason: str


# --- the package's text -------------------------------------------------------------------------

_NO_CODE: Final = frozenset(
    {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT}
    | {tokenize.ENDMARKER}
)
_DOCUMENTED: Final = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


class Size(NamedTuple):
    """The code in a text, without comments and docstrings: its tokens, and their lines."""

    tokens: int
    lines: int


def size(text: str, tree: ast.Module) -> Size:
    """Count the code in *text*: neither blank lines, nor comments, nor docstrings."""
    docstrings: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, _DOCUMENTED) and ast.get_docstring(node, clean=False) is not None:
            docstrings |= _span(node.body[0])
    lines: set[int] = set()
    tokens = inside = 0
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        # From Python 3.12 on an f-string is many tokens; it counts as one, as before.
        name = tokenize.tok_name[token.type]
        inside += name == "FSTRING_START"
        if token.type not in _NO_CODE and token.start[0] not in docstrings:
            tokens += not inside or (name == "FSTRING_END" and inside == 1)
            lines |= set(range(token.start[0], token.end[0] + 1))
        inside -= name == "FSTRING_END"
    return Size(tokens, len(lines))


def _span(node: ast.stmt) -> set[int]:
    return set(range(node.lineno, (node.end_lineno or node.lineno) + 1))


def weight() -> dict[str, Figure]:
    """Tokens in all; lines of code by room and in all, and of other text."""
    rooms: Counter[str] = Counter()
    tokens = 0
    for path, text, tree in _modules():
        room = f"{path.parts[0]}/" if path.parts[1:] else "no folder"
        module = size(text, tree)
        rooms[room] += module.lines
        tokens += module.tokens
    texts = (path for path in PACKAGE.rglob("*") if path.suffix in OTHER_TEXT)
    other = sum(sum(map(bool, map(str.strip, path.read_text().splitlines()))) for path in texts)
    imported = sum(number for room, number in rooms.items() if room not in NO_CRAWL)
    return {
        "tokens": Figure(tokens, f"{tokens / rooms.total():.2f} a line"),
        "lines of code": Figure(rooms.total()),
        "lines of code that a crawl imports": Figure(imported, "all but commands/ and proof/"),
        **{f"lines of code in {room}": Figure(rooms[room]) for room in sorted(rooms)},
        "lines of Lua, SQL, HTML, CSS and SVG files": Figure(other),
    }


@cache
def _modules() -> list[tuple[Path, str, ast.Module]]:
    """Where each module is in the package, and its text."""
    texts = {path: path.read_text(encoding="utf-8") for path in sorted(PACKAGE.rglob("*.py"))}
    return [(path.relative_to(PACKAGE), text, ast.parse(text)) for path, text in texts.items()]


def _name(path: Path) -> str:
    parts = (PACKAGE.name, *path.with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _methods(node: ast.ClassDef) -> list[str]:
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    return [each.name for each in node.body if isinstance(each, functions)]


def documentation() -> dict[str, Figure]:
    """Of the documentation, by the hundred; what changed is no part of it."""
    pages = [*(ROOT / "docs").rglob("*.md"), ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
    texts = [each.read_text(encoding="utf-8") for each in pages if "_build" not in each.parts]
    number = sum(len(each.split()) for each in texts)
    return {"hundreds of words of the documentation": Figure(-(-number // 100), f"{number:,}")}


def shape() -> dict[str, Figure]:
    """Methods of a class, importers of a module that is not a value, public methods of the gate."""
    trees = {_name(path): tree for path, _, tree in _modules()}
    classes = {
        f"{name}.{node.name}": _methods(node)
        for name, tree in trees.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
    }
    packages = {name.rpartition(".")[0] for name in trees}
    importers: Counter[str] = Counter()
    for tree in trees.values():
        importers.update(set(_imported(tree)) & trees.keys() - VALUES - packages)
    most = max(classes, key=lambda each: len(classes[each]))
    module, users = importers.most_common(1)[0]
    gate = [each for each in classes["scrapy_walsh.adapters.gate.Gate"] if each[0] != "_"]
    return {
        "methods of a class": Figure(len(classes[most]), most),
        "importers of a module that is not a value": Figure(users, module),
        "public methods of the gate": Figure(len(gate), ", ".join(gate)),
    }


#: Modules of values that are passed on: errors, what a gate decided, what happened. Whoever raises,
#: receives or makes one imports its module.
VALUES: Final = frozenset(
    f"scrapy_walsh.{each}" for each in ("exceptions", "policy.verdict", "policy.event")
)


def _imported(tree: ast.Module) -> Iterator[str]:
    """What may be a module's name; imports in functions and for type checking count."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (each.name for each in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{each.name}" for each in node.names)


# --- the tests ------------------------------------------------------------------------------------


def tests() -> dict[str, Figure]:
    """What tests know of the inside of the package, and how much they share: kits and worlds.

    A private name is one that begins with ``_`` and that the package gives to something; an access
    is ``x._name``, an import of it, and its name where ``setattr`` is given it.
    """
    private = {each for _, _, tree in _modules() for each in _names_given(tree) if each[:1] == "_"}
    private = {each for each in private if each.strip("_") and not each.startswith("__")}
    private -= {"_replace", "_asdict", "_fields"}  # of every named tuple
    accesses: Counter[str] = Counter()
    shared: Counter[str] = Counter()
    for path in sorted((ROOT / "tests").rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        name = path.relative_to(ROOT / "tests").as_posix()
        if PRIVATE.search(text):  # else it need not be parsed
            accesses[name] += sum(each in private for each in _names_taken(ast.parse(text)))
        if SHARED.fullmatch(path.stem):
            shared[name] += size(text, ast.parse(text)).lines
    most = ", ".join(f"{name} {number}" for name, number in accesses.most_common(8) if number)
    kits = " ".join(sorted(shared))
    return {
        "accesses to private names in tests": Figure(accesses.total(), f"most in {most}"),
        "kits, worlds and harnesses of tests": Figure(len(shared), kits),
        "lines of code in those": Figure(shared.total()),
    }


#: Modules that tests share to start sites, run crawls, and write ledgers and states.
SHARED: Final = re.compile(r"kit|world|harness|fleet|pacing|weblog|\w+_(?:kit|samples)")


#: What an access looks like.
PRIVATE: Final = re.compile(
    r"(?<!self)(?<!cls)\._[a-z]|^from scrapy_walsh.*[ (]_[a-z]|^ +_\w+,$|setattr\([^)]*\"_\w",
    re.MULTILINE | re.IGNORECASE,
)


def _names_given(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield node.name
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.attr


def _names_taken(tree: ast.Module) -> Iterator[str]:
    """Names of attributes but those of ``self``, names from the package, and those of patches."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            if not (isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")):
                yield node.attr
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith(PACKAGE.name):
            yield from (each.name for each in node.names)
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("setattr"):
            texts = (each.value for each in node.args if isinstance(each, ast.Constant))
            yield from (each.rpartition(".")[2] for each in texts if isinstance(each, str))


# --- the way of a request -----------------------------------------------------------------------

HOST: Final = "plain.test"
#: What the crawl asks, one after the other. The last one is traced.
URLS: Final = {NEW: ("/new",), CACHED: ("/new", "/cached")}
RUNS: Final = 2
#: A file of ours, and the function in it that was called.
Call = tuple[str, str]
#: Notes which functions of ours are called from ``start()`` to each request's callback.
_SPIDER: Final = """
import asyncio
import gc
import json
import sys
from pathlib import Path

import scrapy

import scrapy_walsh
from scrapy_walsh.adapters import context, intake

HERE = str(Path(scrapy_walsh.__file__).parent)
context._WRITE_WITHIN = intake._SLICE = 3600.0  # else timers add to some requests


class Probe(scrapy.Spider):
    name = "probe"

    def __init__(self, urls="", **kwargs):
        super().__init__(**kwargs)
        self.urls, self.called, self.done = urls.split(), [], asyncio.Event()

    async def start(self):
        *before, traced = self.urls
        for url in before:
            yield scrapy.Request(url)
            await self.done.wait()
            await asyncio.sleep(1.2)  # the host's interval passes
        gc.collect()
        gc.disable()  # what is freed later belongs to no request
        sys.setprofile(self.note)
        yield scrapy.Request(traced)

    def note(self, frame, kind, _):
        name = frame.f_code.co_filename
        if kind != "call" or frame.f_code.co_name == "needs_backout":  # asked at each look for work
            return
        if name.startswith(HERE):
            self.called.append([name[len(HERE) + 1 :], frame.f_code.co_name])

    def parse(self, response):
        sys.setprofile(None)
        self.done.set()

    def closed(self, reason):
        Path("way.json").write_text(json.dumps(self.called))
"""


def moves(calls: Sequence[Call]) -> list[str]:
    """The files that *calls* entered, one after the other: those unlike the one before."""
    names = [file for file, _ in calls]
    return [each for before, each in pairwise(["", *names]) if each != before]


def common(runs: Sequence[Sequence[Call]]) -> list[Call]:
    """The shortest of *runs*, without calls that another run has less often: a timer made them."""
    left = reduce(and_, map(Counter, runs))
    kept: list[Call] = []
    for call in min(runs, key=len):
        if left[call]:
            left[call] -= 1
            kept.append(call)
    return kept


def way(directory: Path) -> dict[str, Figure]:
    """Files and moves of one request, by crawls in *directory* that take a few seconds."""
    robots = site(HOST, robots="User-agent: *\nDisallow: /denied\n")
    one = {"sites": (robots,), "spider": _SPIDER}
    figures: dict[str, Figure] = {}
    for what, paths in URLS.items():
        folder = directory / what.replace(" ", "-")
        jobs = {str(number): one for number in range(RUNS)}
        runs = side_by_side(folder, jobs, *(f"http://{HOST}{path}" for path in paths))
        found: list[list[Call]] = []
        for name, run in runs.items():
            path = folder / name / "way.json"
            assert path.exists(), run.output
            found.append([(file, function) for file, function in json.loads(path.read_text())])
        moved = Counter(moves(common(found)))
        most = ", ".join(f"{name} {number}" for name, number in moved.most_common(8))
        figures[f"files of {what}"] = Figure(len(moved), " ".join(sorted(moved)))
        figures[f"moves of {what}"] = Figure(moved.total(), f"most into {most}")
    return figures


# --- the bounds ---------------------------------------------------------------------------------


def bounds() -> dict[str, Bound]:
    """The rows of the table."""
    row = re.compile(r"^\| (.+?) \| ([\d,]+) \| ([\d,]+) \| *(.*?) *\|$", re.MULTILINE)
    return {
        name: Bound(name, int(bound.replace(",", "")), int(lowest.replace(",", "")), reason)
        for name, bound, lowest, reason in row.findall(TABLE.read_text())
    }


def complaints(figures: Mapping[str, Figure], known: Mapping[str, Bound]) -> list[str]:
    """Say which of *figures* are above their bound, or should have one and have none."""
    said: list[str] = []
    for name, figure in figures.items():
        where = f" ({figure.where})" if figure.where else ""
        told = f"{name}: {figure.value:,}{where}"
        if name.startswith(UNBOUND):
            continue
        if name not in known:
            said.append(f"{told} has no bound: add its row to tests/ratchets.md, with a reason")
        elif figure.value > known[name].bound:
            said.append(
                f"{told} is above its bound, {known[name].bound:,}: make it less, or raise the "
                "bound in tests/ratchets.md and write the reason beside it, in this commit"
            )
    return said


def lowered(figures: Mapping[str, Figure], known: Mapping[str, Bound]) -> dict[str, Bound]:
    """*known*, each bound at its figure where that is less; a new row for what has none yet."""
    new = dict(known)
    for name, figure in figures.items():
        if name.startswith(UNBOUND):
            continue
        row = known.get(name, Bound(name, figure.value, figure.value, ""))
        bound, lowest = min(row.bound, figure.value), min(row.lowest, figure.value)
        new[name] = replace(
            row, bound=bound, lowest=lowest, reason=row.reason if bound > lowest else ""
        )
    return new


def raised(
    figures: Mapping[str, Figure], known: Mapping[str, Bound], reason: str
) -> dict[str, Bound]:
    """*known*, each bound that a figure is above at that figure, for *reason*."""
    new = dict(known)
    for name, row in known.items():
        if figures[name].value > row.bound:
            why = "; ".join(filter(None, (reason, row.reason)))
            new[name] = replace(row, bound=figures[name].value, reason=why)
    return new


def _write(rows: Mapping[str, Bound]) -> None:
    head, rule, _ = TABLE.read_text().partition("|---|---:|---:|---|\n")
    table = [f"| {e.name} | {e.bound:,} | {e.lowest:,} | {e.reason} |\n" for e in rows.values()]
    TABLE.write_text(head + rule + "".join(table))


def main(words: list[str]) -> None:
    """Show each figure beside its bound.

    ``--write`` lowers bounds to their figures. ``--raise REASON`` raises those that are exceeded.
    """
    with tempfile.TemporaryDirectory() as directory:
        figures = weight() | documentation() | shape() | tests() | way(Path(directory))
    known = bounds()
    for name, figure in figures.items():
        bound = f"{known[name].bound:8,}" if name in known else "       -"
        where = f" ({figure.where})" if name == "tokens" else ""
        print(f"{figure.value:8,} {bound}  {name}{where}")
    if words:
        known = {name: row for name, row in lowered(figures, known).items() if name in figures}
        _write(raised(figures, known, words[1]) if words[0] == "--raise" else known)


if __name__ == "__main__":
    main(sys.argv[1:])
