"""policy/ decides and does nothing: by this list it reaches no clock, file, socket or chance."""

from __future__ import annotations

import ast
import builtins
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import scrapy_walsh.policy

if TYPE_CHECKING:
    from collections.abc import Iterator

MODULES = sorted(Path(scrapy_walsh.policy.__file__).parent.rglob("*.py"))

#: What policy may import. Of a module that can also act, only these names.
EVERYTHING = frozenset({"*"})
STANDARD = dict.fromkeys(
    [
        "__future__",
        "base64",
        "codecs",
        "collections",
        "collections.abc",
        "contextlib",
        "dataclasses",
        "datetime",
        "functools",
        "hashlib",
        "heapq",
        "html",
        "html.entities",
        "html.parser",
        "ipaddress",
        "itertools",
        "json",
        "math",
        "re",
        "typing",
        "urllib.parse",
    ],
    EVERYTHING,
) | {
    "fnmatch": frozenset({"fnmatchcase"}),
    "io": frozenset({"BytesIO"}),
    "xml.parsers.expat": frozenset({"ExpatError", "ParserCreate"}),
    "zlib": frozenset({"decompressobj", "error"}),
}
THIRD_PARTY = dict.fromkeys(["feedparser", "idna"], EVERYTHING) | {
    "http_sf": frozenset({"Token", "parse"}),
    "jsonschema": frozenset({"Draft202012Validator"}),
    "markdown_it": frozenset({"MarkdownIt"}),
    "markdown_it.token": frozenset({"Token"}),
    "msgspec": frozenset({"Meta", "Struct"}),
    "protego": frozenset({"Protego"}),
    "referencing": frozenset({"Registry"}),
}
OURS = {"scrapy_walsh.exceptions": EVERYTHING}
ALLOWED = STANDARD | THIRD_PARTY | OURS

#: What builtin names may be read. Not there: what reads or writes files, runs text as code, reaches
#: names by their text, or changes a value from outside.
ALLOWED_BUILTINS = {
    "abs", "all", "any", "ascii", "bool", "bytearray", "bytes", "chr", "classmethod", "dict",
    "enumerate", "filter", "float", "frozenset", "getattr", "hash", "hex", "id", "int",
    "isinstance", "issubclass", "iter", "len", "list", "map", "max", "memoryview", "min", "next",
    "object", "ord", "property", "range", "repr", "reversed", "round", "set", "sorted",
    "staticmethod", "str", "sum", "super", "tuple", "type", "zip",
}  # fmt: skip
ALLOWED_BUILTINS |= {
    name
    for name, value in vars(builtins).items()
    if isinstance(value, type) and issubclass(value, BaseException)
}
#: Attributes that reach a clock, or the inside of a value from outside of its own ``__init__``.
FORBIDDEN_ATTRIBUTES = {
    "now", "utcnow", "today", "__class__", "__dict__", "__setattr__", "__setstate__",
    "__delattr__", "__set__", "__globals__", "__builtins__", "__code__", "__subclasses__",
    "__bases__", "__mro__",
}  # fmt: skip
BUILDERS = frozenset({"__init__", "__post_init__"})


def imported(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """Each module that is imported, and the name that is taken from it; ``*`` for all of it."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, "*") for alias in node.names)
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            assert node.module
            yield from ((node.module, alias.name) for alias in node.names)


def may_import(module: str, name: str) -> bool:
    if f"{module}.{name}".startswith("scrapy_walsh.policy."):
        return True
    allowed = ALLOWED.get(module, frozenset())
    return allowed is EVERYTHING or name in allowed


def beyond(tree: ast.AST) -> Iterator[str]:
    """What a module does that policy may not: the place and the name of each."""
    for module, name in imported(tree):
        if not may_import(module, name):
            yield f"imports {module}.{name}"
    own = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef) and node.name in BUILDERS
        for inner in ast.walk(node)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr in FORBIDDEN_ATTRIBUTES:
            if id(node) not in own or not is_own_value(node):
                yield f"line {node.lineno}: .{node.attr}"
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            if hasattr(builtins, node.id) and node.id not in ALLOWED_BUILTINS:
                yield f"line {node.lineno}: {node.id}"
        elif isinstance(node, ast.Constant) and node.value in FORBIDDEN_ATTRIBUTES - {"now"}:
            yield f"line {node.lineno}: {node.value!r}"
        elif isinstance(node, ast.Global | ast.Nonlocal):
            yield f"line {node.lineno}: {' '.join(node.names)} of an outer scope"


def is_own_value(node: ast.Attribute) -> bool:
    """``self.__dict__``, and ``object.__setattr__``: how a frozen value is made."""
    owner = node.value.id if isinstance(node.value, ast.Name) else ""
    return (owner, node.attr) in {("self", "__dict__"), ("object", "__setattr__")}


@pytest.mark.parametrize("module", MODULES, ids=lambda path: path.stem)
def test_policy_imports_and_does_what_is_on_the_list(module: Path):
    assert list(beyond(ast.parse(module.read_text("utf-8")))) == []


def test_the_list_of_imports_has_what_policy_imports_and_no_more():
    taken: dict[str, set[str]] = {}
    for module in MODULES:
        for name, part in imported(ast.parse(module.read_text("utf-8"))):
            taken.setdefault(name, set()).add(part)
    assert set(ALLOWED) <= set(taken)
    for name, allowed in ALLOWED.items():
        assert allowed is EVERYTHING or allowed == taken[name], name


@pytest.mark.parametrize(
    "text",
    [
        "import gc",
        "import mmap",
        "import os.path",
        "import sys",
        "from sys import modules",
        "from io import open",
        "import scrapy_walsh.adapters",
        "from scrapy_walsh import config",
        "from scrapy_walsh.state.records import Store",
        "x.__class__ = y",
        "become = object.__dict__['__class__']",
        "getattr(x, '__class__')",
        "object.__setattr__(x, 'name', 1)",
        "def __init__(self, other):\n    other.__dict__.update(a=1)",
        "open('file')",
        "setattr(x, 'name', 1)",
        "eval('1')",
        "__import__('gc')",
        "print(1)",
        "datetime.now()",
        "date.today()",
        "def f():\n    global x\n    x = 1",
    ],
)
def test_what_is_not_on_the_list_is_found(text: str):
    assert list(beyond(ast.parse(text)))


@pytest.mark.parametrize(
    "text",
    [
        "import re",
        "from io import BytesIO",
        "from scrapy_walsh.exceptions import DocumentInvalid",
        "from scrapy_walsh.policy import hosts",
        "from scrapy_walsh.policy.hosts import host_key",
        "def __init__(self):\n    self.__dict__.update(a=1)",
        "def __post_init__(self):\n    object.__setattr__(self, 'a', 1)",
        "def wait(self, now):\n    self.last = now",
    ],
)
def test_what_is_on_the_list_is_not_found(text: str):
    assert list(beyond(ast.parse(text))) == []


def test_policy_loads_without_scrapy():
    package = Path(scrapy_walsh.policy.__file__).parent
    names = (path.relative_to(package).with_suffix("").parts for path in MODULES)
    modules = " ".join(
        f"scrapy_walsh.policy.{'.'.join(name)}," for name in names if name[-1] != "__init__"
    )
    code = f"import sys, {modules.rstrip(',')}\nprint(*{{'scrapy', 'twisted'}} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


@pytest.mark.parametrize(
    "module",
    [
        path
        for path in MODULES
        if path.stem not in {"__init__", "verdict", "event", "words", "times"}
    ],
    ids=lambda path: path.stem,
)
def test_policy_docstrings_name_their_requirement(module: Path):
    doc = ast.get_docstring(ast.parse(module.read_text("utf-8"))) or ""
    # The code follows the sentence, in brackets: a reader needs the sentence first.
    assert re.search(r"\b[RD]\d+\b|spec section \d", doc.partition("\n")[0]), doc[:100]
