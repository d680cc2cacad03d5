"""Property tests: no deadline, since the machine may be busy; the same examples each time in CI.

They try a quarter of the examples that ``--hypothesis-profile thorough`` tries.

And what judges say, beside the golden files of ``tests/golden``. With ``--quick`` (``make quick``)
a test that starts a process or a server is skipped at that moment.
"""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sysconfig
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, is_hypothesis_test, settings

import scrapy_walsh
from tests import cost, golden, zygote

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[1]

for _name, _examples in (("walsh", 25), ("thorough", 100)):
    settings.register_profile(
        _name,
        max_examples=_examples,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow],
        derandomize="CI" in os.environ,
    )
settings.load_profile("walsh")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A background job of a script: what tests start would not hear Ctrl-C, which some of them send.
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--write-golden", action="store_true", help="see tests/golden")
    parser.addoption("--cost", action="store_true", help="see tests/cost.py")
    parser.addoption("--quick", action="store_true", help="skip what starts a process or a server")


#: The files that take longest, or wait longest: begun last, one of them would be waited for.
LONGEST = (
    *("test_clone", "year/test_year", "conformance/test_broken", "crawl/test_silent_host"),
    "bench/test_bench",
    *("deploy/test_cloud", "documents/test_list_in_force", "runs/test_revisit"),
    *("documents/test_blocklist_document", "campaign/test_campaign", "fleet/test_scrapy_redis"),
    *("fleet/test_outage", "conformance/test_run", "runs/test_clock_jumps", "state/test_database"),
    *("report/test_browser", "runs/test_slow_hosts", "sources/test_bare_host", "crawl/test_r9"),
)

SHARES_ITS_CRAWLS = "tests/sources"
_OF_SOURCES = ("again", "feeds", "order", "report", "sitemap")
#: The files of it that use the crawls of its conftest.py.
SHARING = tuple(f"sources/test_{name}.py" for name in _OF_SOURCES)


def pytest_configure(config: pytest.Config) -> None:
    """Keep the order of the files: pytest-xdist would begin with those that have most tests.

    And see that ``make test`` tests a wheel: its tests are beside no package.
    """
    config.option.loadscopereorder = False
    if config.getoption("--cost"):
        config.pluginmanager.register(cost.Cost())
    tested = Path(scrapy_walsh.__file__).parent
    if tested != ROOT / "scrapy_walsh" and tested.parent != Path(sysconfig.get_path("purelib")):
        raise pytest.UsageError(
            f"{tested} is tested: neither of {ROOT}, nor installed from a wheel"
        )


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """The files of a folder that shares its crawls go to one process, as the tests of a file do."""
    if config.getoption("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling  # noqa: PLC0415  not where policy/ is alone

    class ByFileOrFolder(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = super()._split_scope(nodeid)
            return SHARES_ITS_CRAWLS if file.removeprefix("tests/") in SHARING else str(file)

    return ByFileOrFolder(config, log)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Begin with the longest files; with ``--quick``, leave out what is no part of it."""
    places = {f"tests/{name}.py": place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda each: places.get(each.nodeid.partition("::")[0], len(places)))
    if not config.getoption("--quick"):
        return
    left = [each for each in items if {"crawl", "slow"} & {m.name for m in each.iter_markers()}]
    config.hook.pytest_deselected(items=left)
    items[:] = [each for each in items if each not in left]


@pytest.fixture(autouse=True, scope="session")
def _nothing_is_started(pytestconfig: pytest.Config) -> Iterator[None]:
    """With ``--quick``, whoever starts a process or a server is skipped."""
    with pytest.MonkeyPatch.context() as patch:
        if pytestconfig.getoption("--quick"):
            patch.setattr(subprocess.Popen, "__init__", _skip)
            patch.setattr("scrapy_walsh.proof.sandbox.Sandbox.__enter__", _skip)
        yield


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """What a thread or a callback was kept from starting fails a test in many ways: skip it too."""
    _KEPT.clear()
    try:
        return (yield)
    except Exception:
        if _KEPT:
            _skip()
        raise


def _skip(*_: object, **__: object) -> None:
    _KEPT.append(True)
    pytest.skip("it starts a process or a server")


#: Not empty: the test that runs would have started something.
_KEPT: list[bool] = []


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


def pytest_collection_finish() -> None:
    """What was imported and collected stays to the end: no look for garbage need pass over it."""
    gc.collect()
    gc.freeze()


@pytest.fixture
def forked(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the package starts in this process is forked as well: see tests/zygote.py."""
    monkeypatch.setattr(subprocess, "Popen", zygote.Popen)


@pytest.fixture(scope="session")
def typed_path() -> Iterator[str]:
    """A PATH with which what a shell starts as ``scrapy`` or ``walsh`` is forked as well."""
    with zygote.typed() as folder:
        yield f"{folder}{os.pathsep}{os.environ['PATH']}"


def pytest_sessionfinish(session: pytest.Session) -> None:
    if session.config.getoption("--write-golden"):
        golden.save()
