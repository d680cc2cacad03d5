"""Property tests: no deadline, since the machine may be busy; the same examples each time in CI.

And what judges say, beside the golden files of ``tests/golden``.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, is_hypothesis_test, settings

from tests import golden

if TYPE_CHECKING:
    from collections.abc import Iterator

settings.register_profile(
    "walsh",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    derandomize="CI" in os.environ,
)
settings.load_profile("walsh")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--write-golden", action="store_true", help="see tests/golden")


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Iterator[None]:
    """Compare what a test's judges found with the golden file of its module."""
    name = golden.MODULES.get(pyfuncitem.module.__name__)
    golden.begin()
    done = yield
    if name is None or is_hypothesis_test(pyfuncitem.obj):
        return done
    found = golden.noted(pyfuncitem.funcargs.get("tmp_path"))
    if found is not None and pyfuncitem.config.getoption("--write-golden"):
        golden.put(name, pyfuncitem.name, found)
    elif found is not None:
        assert found == golden.read(name).get(pyfuncitem.name), "see tests/golden"
    return done


def pytest_sessionfinish(session: pytest.Session) -> None:
    if session.config.getoption("--write-golden"):
        golden.save()
