"""Each module with an example at its beginning: the example holds."""

from __future__ import annotations

import doctest
import importlib
from pathlib import Path

import pytest

import scrapy_walsh

PACKAGE = Path(scrapy_walsh.__file__).parent
#: Modules with public names (docs/api.md, docs/reference.md) that must begin with an example.
PUBLIC = (
    "scrapy_walsh",
    "scrapy_walsh.adapters.outcomes",
    "scrapy_walsh.adapters.robot_parser",
    "scrapy_walsh.exceptions",
    "scrapy_walsh.signals",
)


def _module_of(file: Path) -> str:
    parts = ("scrapy_walsh", *file.relative_to(PACKAGE).with_suffix("").parts)
    return ".".join(parts).removesuffix(".__init__")


EXAMPLES = [
    _module_of(file)
    for file in sorted(PACKAGE.rglob("*.py"))
    if ">>> " in file.read_text(encoding="utf-8")
]


def test_each_public_module_has_an_example() -> None:
    assert set(PUBLIC) <= set(EXAMPLES)


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_examples_of_a_module_hold(name: str) -> None:
    results = doctest.testmod(importlib.import_module(name))
    assert results.attempted > 0
    assert results.failed == 0
