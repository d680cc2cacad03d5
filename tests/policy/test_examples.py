"""The examples in docstrings of policy/ are true."""

from __future__ import annotations

import doctest
import importlib
from pathlib import Path

import pytest

import scrapy_walsh

PACKAGE = Path(scrapy_walsh.__file__).parent
MODULES = [
    ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts)
    for path in sorted((PACKAGE / "policy").rglob("*.py"))
    if ">>> " in path.read_text("utf-8")
]


@pytest.mark.parametrize("name", MODULES)
def test_an_example_prints_what_it_shows(name: str):
    failed, attempted = doctest.testmod(importlib.import_module(name))
    assert attempted > 0
    assert failed == 0
