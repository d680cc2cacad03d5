"""policy/ decides and does nothing: it cannot reach Scrapy, a clock, a file, a socket or chance."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import scrapy_walsh.policy

MODULES = sorted(Path(scrapy_walsh.policy.__file__).parent.glob("*.py"))

FORBIDDEN_IMPORTS = {
    "asyncio", "http", "io.open", "multiprocessing", "os", "pathlib", "random", "scrapy", "secrets",
    "select", "shutil", "socket", "sqlite3", "ssl", "subprocess", "tempfile", "threading", "time",
    "twisted", "urllib.request", "uuid",
}  # fmt: skip
FORBIDDEN_CALLS = {"now", "utcnow", "today", "open", "print", "input", "getenv", "urlopen"}


def imported(tree: ast.AST) -> set[str]:
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        if isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return names


@pytest.mark.parametrize("module", MODULES, ids=lambda path: path.stem)
def test_own_policy_imports_nothing_that_acts(module: Path):
    names = imported(ast.parse(module.read_text()))
    for name in names:
        parts = name.split(".")
        prefixes = {".".join(parts[:length]) for length in range(1, len(parts) + 1)}
        assert not prefixes & FORBIDDEN_IMPORTS, name
        if parts[0] == "scrapy_walsh":
            assert parts[1] in {"policy", "exceptions"}, name


@pytest.mark.parametrize("module", MODULES, ids=lambda path: path.stem)
def test_own_policy_calls_no_clock_and_opens_nothing(module: Path):
    for node in ast.walk(ast.parse(module.read_text())):
        if isinstance(node, ast.Call):
            called = node.func
            name = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
            assert name not in FORBIDDEN_CALLS, f"{module.name}:{node.lineno}"


def test_own_policy_loads_without_scrapy():
    modules = " ".join(
        f"scrapy_walsh.policy.{path.stem}," for path in MODULES if path.stem[0] != "_"
    )
    code = f"import sys, {modules.rstrip(',')}\nprint(*{{'scrapy', 'twisted'}} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


@pytest.mark.parametrize(
    "module",
    [path for path in MODULES if path.stem not in {"__init__", "verdict", "event", "text"}],
    ids=lambda path: path.stem,
)
def test_own_policy_docstrings_start_with_their_requirement(module: Path):
    doc = ast.get_docstring(ast.parse(module.read_text())) or ""
    assert doc.startswith(("R", "THE ORDER")), doc[:40]
