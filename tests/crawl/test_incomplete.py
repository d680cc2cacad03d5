"""Any part of an installation without the rest is refused before anything is sent (R0.6).

The parts are those of docs/install.md, "By hand". Each combination is a crawl of its own, all of
them in one process, and the one server that they could reach must have heard of none.
"""

from __future__ import annotations

import itertools
import json
import random
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from scrapy.settings import default_settings

from scrapy_walsh.adapters.seats import PINS, SEATS
from scrapy_walsh.proof.sandbox import Sandbox
from tests.crawl.harness import environment, make_project, run_scrapy, site
from tests.crawl.test_install import BY_HAND, FROZEN, KNOWN_PINS

if TYPE_CHECKING:
    from pathlib import Path

    #: The names of parts.
    Parts = frozenset[str]

#: By name, each part: the path of its setting, and the value there. A seat is a class of ours.
_HANDLERS = PINS["DOWNLOAD_HANDLERS"]
SEATED = {
    **{
        path: (setting, path, place)
        for setting, components in SEATS.items()
        for path, place in components.items()
        if place is not None
    },
    **{f"{scheme} handler": ("DOWNLOAD_HANDLERS", scheme, _HANDLERS[scheme])
       for scheme in ("http", "https")},
    **{name: (name, None, PINS[name]) for name in KNOWN_PINS if str(PINS[name]) in FROZEN},
}  # fmt: skip
#: Settings that name no class of ours, if Scrapy has another value for them, and Scrapy's own
#: components in place of which ours are.
OTHERS = {
    **{name: (name, None, BY_HAND[name]) for name in ("USER_AGENT", *KNOWN_PINS)
       if name not in SEATED and name != "DOWNLOAD_HANDLERS"
       and BY_HAND[name] != getattr(default_settings, name)},
    **{
        path: (setting, path, None)
        for setting, components in SEATS.items()
        for path, place in components.items()
        if place is None
    },
}  # fmt: skip
PARTS = {**SEATED, **OTHERS}
ALL = frozenset(PARTS)
#: AutoThrottle is made in no crawl without this.
BASE = {"AUTOTHROTTLE_ENABLED": True}
RANDOM = 200
URLS = ("http://open.test/a", "http://open.test/private/x", "https://open.test/b")

#: Runs one crawl for each dict of settings on its standard input, and prints how each ended.
SCRIPT = """
import json, sys
from scrapy.crawler import CrawlerProcess
from scrapy.utils.project import get_project_settings
from twisted.internet.defer import inlineCallbacks
from spiders import Probe

process = CrawlerProcess(get_project_settings(), install_root_handler=False)
ended = []

@inlineCallbacks
def each():
    for given in json.load(sys.stdin):
        settings = get_project_settings()
        settings.setdict(given, priority="cmdline")
        crawler = process.create_crawler(Probe)
        crawler.settings.setdict(given, priority="cmdline")
        try:
            yield process.crawl(crawler, urls=sys.argv[1])
            ended.append("it ran")
        except BaseException as error:
            ended.append(f"{type(error).__name__}: {error}")

each()
process.start(install_signal_handlers=False)
print(json.dumps(ended))
"""


def settings_of(parts: Parts) -> dict[str, Any]:
    """The settings of an installation by hand that has these *parts*, and no others."""
    settings: dict[str, Any] = dict(BASE)
    for name in sorted(parts):
        setting, key, value = PARTS[name]
        if key is None:
            settings[setting] = value
        else:
            settings.setdefault(setting, {})[key] = value
    return settings


def combinations() -> dict[str, Parts]:
    """By what is tried, sets of parts. Each has a seat: else nothing of ours could refuse."""
    found: dict[str, Parts] = {}
    for seat in SEATED:
        found[f"{seat} alone"] = frozenset({seat})
    for one, other in itertools.combinations(SEATED, 2):
        found[f"{one} and {other}"] = frozenset({one, other})
    for name in PARTS:
        found[f"all but {name}"] = ALL - {name}
    found["all seats and nothing else"] = frozenset(SEATED)
    rand = random.Random("parts of an installation")
    for number in range(RANDOM):
        # Of few parts, of many, and of nearly all.
        share = rand.choice((0.1, 0.5, 0.9))
        chosen = frozenset(name for name in sorted(ALL) if rand.random() < share)
        seat = rand.choice(sorted(SEATED))
        found[f"subset {number}"] = chosen - {rand.choice(sorted(ALL - {seat}))} | {seat}
    return found


def tried(folder: Path, box: Sandbox, many: list[dict[str, Any]]) -> list[str]:
    """How the crawls of *many* settings ended, in one process."""
    project = make_project(folder, settings={"ADDONS": None, "LOG_LEVEL": "CRITICAL"})
    (project / "script.py").write_text(SCRIPT)
    done = subprocess.run(
        [sys.executable, "script.py", " ".join(URLS)],
        cwd=project,
        env=environment(project, box),
        input=json.dumps(many),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    ended: list[str] = json.loads(done.stdout.splitlines()[-1])
    return ended


@pytest.fixture
def box() -> Any:
    with Sandbox() as running:
        running.put(site("open.test"))
        yield running


def test_r0_6_no_part_of_an_installation_sends_anything(box: Sandbox, tmp_path: Path) -> None:
    cases = combinations()
    ended = tried(tmp_path, box, [settings_of(parts) for parts in cases.values()])
    said = dict(zip(cases, ended, strict=True))
    assert {name: why for name, why in said.items() if "not fully installed" not in why} == {}
    assert box.log == []


def test_the_whole_installation_runs_in_that_script(box: Sandbox, tmp_path: Path) -> None:
    assert tried(tmp_path, box, [settings_of(ALL)]) == ["it ran"]
    assert "/a" in [each.path for each in box.log]


def test_one_seat_alone_is_refused_by_a_command(box: Sandbox, tmp_path: Path) -> None:
    """One line, and exit code 1, as for a missing identity."""
    backoff = "scrapy_walsh.adapters.downloadermiddlewares.BackoffMiddleware"
    for number, name in enumerate((backoff, "http handler", "REQUEST_FINGERPRINTER_CLASS")):
        settings = {**settings_of(frozenset({name})), "ADDONS": None}
        project = make_project(tmp_path / str(number), settings=settings)
        done = run_scrapy(project, box, "crawl", "probe", "-a", f"urls={' '.join(URLS)}")
        assert done.returncode == 1, done.stdout
        (line,) = [each for each in done.stdout.splitlines() if "not fully installed" in each]
        assert line.startswith("scrapy_walsh: ")
        assert "Traceback" not in done.stdout
    assert box.log == []
