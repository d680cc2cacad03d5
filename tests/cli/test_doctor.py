"""``walsh doctor``: each thing that can be wrong is provoked once, and nobody is asked."""

from __future__ import annotations

import copy
import json
import os
import re
import shutil
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest
from scrapy import Spider
from scrapy.settings import Settings

from scrapy_walsh.commands import doctor, doctor_probe, doctor_state, spiders
from scrapy_walsh.commands.doctor import MARKS
from scrapy_walsh.config import WalshConfig
from scrapy_walsh.proof.findings import Outcome
from scrapy_walsh.proof.sandbox import LoggedRequest, Route, Sandbox, blocklist, user_agents
from scrapy_walsh.state.records import HostRecord, StoredDocument, VisitRecord
from tests import zygote
from tests.crawl.harness import (
    LIST_SPIDER,
    OPERATOR,
    OWN_IDENTITY,
    USER_AGENT,
    make_project,
    put_records,
    run_scrapy,
    state_dir,
)
from tests.crawl.test_install import BY_HAND
from tests.fleet.fleet import BINARY, Server

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable, Mapping

ROOT = Path(__file__).parents[2]
LIST = f"{OPERATOR}/blocklist.json"
NOW = 1_800_000_000.0

#: Put beside a project, it notes every connection that a process begins, and every name looked up.
SITECUSTOMIZE = """
import os, sys

def note(event, arguments):
    if event in ("socket.getaddrinfo", "socket.gethostbyname") or (
        event in ("socket.connect", "socket.sendto") and isinstance(arguments[1], tuple)
    ):
        with open(os.path.join(os.path.dirname(__file__), "sockets.txt"), "a") as file:
            file.write(f"{event}\\n")

sys.addaudithook(note)
"""

SPIDERS = """
import scrapy

class Bare(scrapy.Spider):
    name = "bare"
    custom_settings = {"ADDONS": {}}

class Hasty(scrapy.Spider):
    name = "hasty"
    custom_settings = {"WALSH_MIN_INTERVAL": 0.5}

class Wilful(scrapy.Spider):
    name = "wilful"
    custom_settings = {
        "ROBOTSTXT_OBEY": False,
        "USER_AGENT": "Mozilla/5.0 (Windows NT 10.0)",
        "WALSH_MAX_RETRYS": 1,
    }

    def parse(self, response):
        return response.follow("/")

class Needy(scrapy.Spider):
    name = "needy"
    custom_settings = {"DOWNLOADER_MIDDLEWARES": {"nowhere.Middleware": 500}}

class Fine(scrapy.Spider):
    name = "fine"

    def __init__(self, must_be_given):
        raise RuntimeError("no spider is made by the doctor")
"""

JOBS = """
import scrapy

class Resumed(scrapy.Spider):
    name = "resumed"

class Blocked(scrapy.Spider):
    name = "blocked"
    custom_settings = {"JOBDIR": "spiders.py"}

class Elsewhere(scrapy.Spider):
    name = "elsewhere"
    custom_settings = {"JOBDIR": "/proc/job"}
"""

OTHER_SCHEDULER = """
class OtherScheduler:
    has_pending_requests = enqueue_request = next_request = print

    @classmethod
    def from_crawler(cls, crawler):
        raise RuntimeError("opened")
"""

ASKS = """
import socket
import scrapy

try:
    socket.create_connection(("192.0.2.1", 80), timeout=1)
except OSError:
    pass

class Probe(scrapy.Spider):
    name = "probe"
"""


def by_hand(**changes: Any) -> dict[str, Any]:
    return {**copy.deepcopy(BY_HAND), **changes}


def a_list(fetched_at: float, key: str = LIST, body: bytes | None = None) -> StoredDocument:
    served = json.dumps(blocklist()).encode() if body is None else body
    return StoredDocument("blocklist", key, key, served, fetched_at, 200, "held", refresh=21600.0)


def put(project: Path, *records: StoredDocument | HostRecord | VisitRecord) -> None:
    put_records(state_dir(project), *records)


def damage(project: Path) -> None:
    put(project, a_list(time.time()), *(HostRecord(f"h{n}.test", 1.0, 1.0) for n in range(99)))
    path = state_dir(project) / "state.sqlite3"
    content = bytearray(path.read_bytes())
    content[len(content) // 2 :] = b"\x55" * (len(content) - len(content) // 2)
    path.write_bytes(content)


def no_list_of_the_operator(project: Path) -> None:
    put(project, a_list(time.time(), body=b'{"contract": "other/v9", "blocked": []}'))


def file_for_a_directory(project: Path) -> None:
    state_dir(project).parent.mkdir()
    state_dir(project).write_text("")


def broken_module(project: Path) -> None:
    (project / "spiders.py").unlink()
    (project / "spiders").mkdir()
    (project / "spiders" / "__init__.py").write_text("")
    (project / "spiders" / "good.py").write_text(LIST_SPIDER)
    (project / "spiders" / "bad.py").write_text("import scrapy\nimport no_such_module\n")


#: A file that only a crawl writes; an extra.
METRICS = {"WALSH_METRICS": "walsh.prom"} if find_spec("prometheus_client") else {}
#: What is made of each project, before the doctor looks.
PROJECTS: Mapping[str, tuple[dict[str, Any], str, Callable[[Path], None] | None]] = {
    "healthy": (METRICS, LIST_SPIDER, lambda project: put(project, a_list(time.time() - 60))),
    "nobody": ({"WALSH_IDENTITY": None}, LIST_SPIDER, None),
    "bad values": (
        {"WALSH_MAX_RETRIES": 9, "WALSH_REVISIT": "daily", "WALSH_FOLLOW_LINKS": True},
        LIST_SPIDER, None,
    ),
    "by hand, with records of the future": (
        by_hand(), LIST_SPIDER,
        lambda project: put(
            project, a_list(time.time()), VisitRecord("u", time.time() + 9e5, "200")
        ),
    ),
    "a file for a JOBDIR": ({"JOBDIR": "spiders.py/job"}, LIST_SPIDER, None),
    "JOBDIRs of spiders": ({"JOBDIR": "jobs/one"}, JOBS, None),
    "by hand, in part": (by_hand(RETRY_ENABLED=True, SPIDER_MIDDLEWARES={}), LIST_SPIDER, None),
    "spiders": ({}, SPIDERS, None),
    "broken spider": ({}, LIST_SPIDER, broken_module),
    "asks when loaded, in memory": ({"WALSH_STATE_DIR": "memory"}, ASKS, None),
    "damaged, without spiders": ({}, "", damage),
    "a file, and another scheduler": (
        {"SCHEDULER": "spiders.OtherScheduler"}, LIST_SPIDER + OTHER_SCHEDULER,
        file_for_a_directory,
    ),
    "no redis, and a bad list": (
        {"WALSH_SHARED_STATE": "redis://:secret@127.0.0.1:1/0"}, LIST_SPIDER,
        no_list_of_the_operator,
    ),
}  # fmt: skip


@dataclass
class Visit:
    """What the doctor said of a project, and what it did meanwhile."""

    code: int
    output: str
    log: list[LoggedRequest]
    connected: bool
    written: set[str]

    def line(self, mark: str, *words: str) -> str:
        """The one line of *mark* with every one of *words*."""
        found = [line for line in self.marked(mark) if all(word in line for word in words)]
        assert len(found) == 1, f"{mark} {words} in {len(found)} lines of:\n{self.output}"
        return found[0]

    def marked(self, mark: str) -> list[str]:
        return [line for line in self.output.splitlines() if line.split()[:1] == [mark]]


def files(project: Path) -> set[str]:
    return {
        f"{path.relative_to(project)} {path.read_bytes()!r}"
        for path in project.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts and path.name != "sockets.txt"
    }


def visit(project: Path, *arguments: str, module: str = "scrapy", box: Sandbox) -> Visit:
    (project / "sitecustomize.py").write_text(SITECUSTOMIZE)
    before = files(project)
    words = ("walsh", "doctor") if module == "scrapy" else ("doctor",)
    watched = {zygote.WATCHED: "1"}
    done = run_scrapy(project, box, *words, *arguments, module=module, **watched)
    return Visit(
        done.returncode,
        done.stdout,
        box.log,
        (project / "sockets.txt").exists(),
        files(project) ^ before,
    )


@pytest.fixture(scope="module")
def visits(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Visit]:
    """What the doctor says of each of :data:`PROJECTS`."""
    folder = tmp_path_factory.mktemp("projects")

    def run(name: str) -> Visit:
        settings, spider, prepare = PROJECTS[name]
        project = make_project(folder / re.sub(r"\W+", "_", name), spider, settings)
        if prepare is not None:
            prepare(project)
        with Sandbox() as box:
            return visit(project, box=box)

    with ThreadPoolExecutor(2) as pool:
        return dict(zip(PROJECTS, pool.map(run, PROJECTS), strict=True))


# -- what it does not do ------------------------------------------------------------------


#: A connection that our guard refused, and the look at one's own Redis, are noted.
_CONNECTING = {"asks when loaded, in memory", "no redis, and a bad list"}


@pytest.mark.parametrize("name", PROJECTS)
def test_nobody_is_asked(visits: dict[str, Visit], name: str) -> None:
    assert visits[name].log == []
    assert visits[name].connected == (name in _CONNECTING)


@pytest.mark.parametrize("name", PROJECTS)
def test_nothing_is_written(visits: dict[str, Visit], name: str) -> None:
    assert visits[name].written == set()


@pytest.mark.parametrize("name", PROJECTS)
def test_one_line_a_finding(visits: dict[str, Visit], name: str) -> None:
    *lines, last = visits[name].output.splitlines()
    assert all(re.match(r"(ok|note|warn|FAIL|unseen) +R[0-9.]+ +\w+: ", line) for line in lines)
    assert re.fullmatch(r"\d+ findings: \d+ FAIL, \d+ warn", last)
    assert visits[name].code == (1 if visits[name].marked("FAIL") else 0)


# -- what is in order ---------------------------------------------------------------------


def test_a_healthy_project(visits: dict[str, Visit]) -> None:
    healthy = visits["healthy"]
    assert healthy.code == 0
    assert healthy.marked("FAIL") == healthy.marked("warn") == []
    assert healthy.line("ok", "R1 ", USER_AGENT, "read for Walsh-Research")
    assert healthy.line("ok", "seats", "every setting and component is in place for probe")
    assert healthy.line("ok", "R11", "is in order")
    assert healthy.line("ok", "R3", "blocklist", "refreshed in 5 h 59 min")
    assert healthy.line("unseen", "R1.4", "not checked; --online requests it")


def test_the_example_project_is_healthy(tmp_path: Path) -> None:
    project = tmp_path / "example"
    shutil.copytree(
        ROOT / "example_project", project, ignore=shutil.ignore_patterns(".scrapy", "__pycache__")
    )
    with Sandbox() as box:
        found = visit(project, module="scrapy_walsh", box=box)
    assert found.code == 0, found.output
    assert found.line("ok", "seats", "walsh_metadata")
    assert found.line("ok", "R11", "can be made")
    assert found.line("warn", "R3", "was ever adopted: upload blocklist.json there")
    assert not found.connected


def test_installed_by_hand(visits: dict[str, Visit]) -> None:
    found = visits["by hand, with records of the future"]
    assert found.code == 0
    assert found.line("ok", "seats", "in place for probe")


def test_a_project_without_spiders(visits: dict[str, Visit]) -> None:
    assert visits["damaged, without spiders"].line("ok", "seats", "walsh_metadata")


# -- settings -----------------------------------------------------------------------------


def test_r1_no_identity(visits: dict[str, Visit]) -> None:
    assert visits["nobody"].line("FAIL", "R1 ", "WALSH_IDENTITY is not set: run `walsh init`")
    assert len(visits["nobody"].marked("FAIL")) == 1
    assert visits["nobody"].line("unseen", "state and fleet", "WALSH_IDENTITY is not set")
    assert "unnamed" not in visits["nobody"].output


def test_a_bad_value_is_said_as_the_start_of_a_crawl_says_it(visits: dict[str, Visit]) -> None:
    bad = visits["bad values"]
    (line,) = bad.marked("FAIL")
    assert any(name in line for name in ("WALSH_MAX_RETRIES is 9", "WALSH_REVISIT is 'daily'"))


OWN: dict[str, Any] = {"WALSH_IDENTITY": OWN_IDENTITY}


def config_of(settings: dict[str, Any]) -> WalshConfig:
    return WalshConfig.from_settings(settings, lambda: "x")


OWNED = {
    "product": "OurBot/1.0",
    "policy_url": "https://bots.myexample.org/policy.html",
    "blocklist_url": "https://bots.myexample.org/blocklist.json",
}


@pytest.mark.parametrize(
    ("identity", "mark", "words"),
    [
        ("walsh-research", "note", ["operator of wal.sh/bot", "walsh init"]),
        (OWN_IDENTITY, "warn", ["ExampleBot/1.0", "http://operator.test/bot/"]),
        ({**OWNED, "policy_url": "https://example.org/bot"}, "warn", ["https://example.org/bot"]),
        ({**OWNED, "blocklist_url": "https://a.EXAMPLE/b"}, "warn", ["https://a."]),
        (OWNED, None, []),
    ],
)
def test_r1_an_identity_that_is_not_ones_own_is_said(
    identity: Any, mark: str | None, words: list[str]
) -> None:
    found = list(doctor.of_identity(config_of({"WALSH_IDENTITY": identity})))[1:]
    assert [MARKS[finding.outcome] for finding in found] == ([] if mark is None else [mark])
    assert all(word in finding.text for finding in found for word in words)


@pytest.mark.parametrize(("seconds", "lines"), [(3, 1), (5, 0), (30, 0)])
def test_r2_a_timeout_that_takes_a_slow_site_for_a_silent_one_is_said(
    seconds: float, lines: int
) -> None:
    cls = type("Any", (Spider,), {"name": "any"})
    said = list(spiders.ways_of(cls, Settings({"DOWNLOAD_TIMEOUT": seconds})))
    assert ["counts as no answer" in each for each in said] == [True] * lines


def test_following_links_scraping_and_a_standing_reason_are_said() -> None:
    settings = {
        "WALSH_IDENTITY": OWN_IDENTITY, "WALSH_FOLLOW_LINKS": True, "WALSH_SCRAPING": True,
        "WALSH_REVISIT_REASON": "tests",
    }  # fmt: skip
    config = config_of(settings)
    found = list(doctor.of_identity(config))
    assert [(MARKS[f.outcome], f.rule) for f in found] == [
        ("ok", "R1"),
        ("warn", "R1"),
        ("note", "R6"),
        ("note", "R9"),
        ("warn", "R8"),
    ]
    advised = [f.rule for f in found if "remove it" in f.text]
    assert advised == ["R8"], "what init has asked for is not called wrong afterwards"


@pytest.mark.parametrize("name", ["WALSH_BACKOFF_BASE", "WALSH_BACKOFF_CAP"])
def test_r5_5_a_shorter_back_off_than_the_specifications_fails(name: str) -> None:
    config = config_of({"WALSH_IDENTITY": OWN_IDENTITY, name: 0.5})
    (found,) = (f for f in doctor.of_identity(config) if f.outcome is Outcome.BROKEN)
    assert found.rule == "R5"
    assert name in found.text


# -- pins, seats, spiders -----------------------------------------------------------------


def test_what_is_missing_by_hand(visits: dict[str, Visit]) -> None:
    partly = visits["by hand, in part"]
    retry, scope = "RETRY_ENABLED is True, set it", "ScopeMiddleware is not in SPIDER_MIDDLEWARES"
    assert partly.line("FAIL", "R0.6", "not fully installed", retry, scope)
    assert len(partly.marked("FAIL")) == 1
    assert "in place" not in partly.output


def test_custom_settings_count(visits: dict[str, Visit]) -> None:
    found = visits["spiders"]
    assert found.line("FAIL", "crawls without scrapy_walsh", "(spider bare)")
    assert found.line("FAIL", "R4", "WALSH_MIN_INTERVAL is 0.5", "(spider hasty)")
    assert found.line("warn", "WALSH_MAX_RETRYS is not a setting", "(spider wilful)")
    assert found.line("warn", "R0.6", "USER_AGENT is 'Mozilla/5.0 (Windows NT", "(spider wilful)")
    assert found.line("FAIL", "No module named 'nowhere'", "(spider needy)")
    assert found.line("warn", "R6", "follows links", "WALSH_FOLLOW_LINKS = T", "(spider wilful)")
    assert found.line("ok", "seats").endswith("in place for fine, walsh_metadata, wilful")
    assert len(found.marked("FAIL")) == 3


def test_a_broken_spider_is_one_line_and_hides_no_other(visits: dict[str, Visit]) -> None:
    found = visits["broken spider"]
    assert found.line("FAIL", "spiders.bad cannot be imported", "no_such_module")
    assert found.line("ok", "seats", "in place for probe")
    assert "Traceback" not in found.output


def test_code_that_asks_when_loaded_gets_no_connection(visits: dict[str, Visit]) -> None:
    found = visits["asks when loaded, in memory"]
    assert found.line("ok", "seats", "in place for probe")


def test_another_scheduler_is_not_opened(visits: dict[str, Visit]) -> None:
    found = visits["a file, and another scheduler"]
    assert found.line("FAIL", "OtherScheduler", "uses no HostQueue")
    assert "opened" not in found.output


def test_the_scheduler_of_scrapy_redis_needs_our_queue() -> None:
    theirs = {"SCHEDULER": "scrapy_redis.scheduler.Scheduler", "WALSH_SHARED_STATE": "redis://r"}
    ours = "scrapy_walsh.adapters.redis_queue.DueQueue"

    def wrong(**settings: Any) -> list[str]:
        return doctor_probe._of_other_scheduler(Settings(settings))

    assert wrong() == []
    assert wrong(**theirs, SCHEDULER_QUEUE_CLASS=ours) == []
    assert len(wrong(**theirs)) == 1
    assert len(wrong(**theirs, SCHEDULER_QUEUE_CLASS="scrapy_redis.queue.FifoQueue")) == 1
    assert len(wrong(SCHEDULER=theirs["SCHEDULER"], SCHEDULER_QUEUE_CLASS=ours)) == 1


def test_a_jobdir_that_cannot_be(visits: dict[str, Visit]) -> None:
    found = visits["a file for a JOBDIR"]
    assert found.code == 1
    assert "set another, or remove it" in found.line("FAIL", "JOBDIR spiders.py/job")
    assert len(found.marked("FAIL")) == 1


def test_a_jobdir_of_one_spider_is_looked_at(visits: dict[str, Visit]) -> None:
    found = visits["JOBDIRs of spiders"]
    assert found.line("FAIL", "JOBDIR ", "spiders.py cannot be written", "(spider blocked)")
    assert found.line("FAIL", "JOBDIR ", "/proc/job cannot be written", "(spider elsewhere)")
    assert len(found.marked("FAIL")) == 2


# -- state --------------------------------------------------------------------------------


def test_r11_a_state_directory_that_cannot_be(visits: dict[str, Visit]) -> None:
    line = visits["a file, and another scheduler"].line("FAIL", "R11", "cannot be written")
    assert "set another WALSH_STATE_DIR" in line
    (found,) = doctor_state.of_state(config_of({**OWN, "WALSH_STATE_DIR": "/proc/walsh"}))
    assert (MARKS[found.outcome], "cannot be written" in found.text) == ("FAIL", True)


def test_r11_memory_is_a_warning(visits: dict[str, Visit]) -> None:
    found = visits["asks when loaded, in memory"]
    assert found.code == 0
    assert found.line("warn", "R11", "WALSH_STATE_DIR is memory")


def test_r11_damaged_files_are_named(visits: dict[str, Visit]) -> None:
    found = visits["damaged, without spiders"]
    (line,) = found.marked("FAIL")
    assert "the next crawl will log: " in line
    assert "state.sqlite3 was damaged" in line


def test_r3c_a_list_that_must_not_be_adopted(visits: dict[str, Visit]) -> None:
    assert visits["no redis, and a bad list"].line("FAIL", LIST, "cannot be read any more")


def test_the_state_directory_is_judged(tmp_path: Path) -> None:
    def said() -> list[tuple[str, str]]:
        found = doctor_state.of_state(config_of({**OWN, "WALSH_STATE_DIR": str(tmp_path)}))
        return [(MARKS[each.outcome], each.text) for each in found if each.about == "state"]

    assert [mark for mark, _ in said()] == ["ok", "ok"]
    assert said()[0] == ("ok", f"{tmp_path} is in order")
    assert said()[1][1].startswith("the ledger keeps 256 MiB (WALSH_LEDGER_KEPT)")
    tmp_path.chmod(0o777)
    assert [mark for mark, _ in said()] == ["warn", "ok", "ok"]
    assert "written by everyone" in said()[0][1]
    (tmp_path / "clock.json").mkdir()
    assert said()[-1] == ("FAIL", f"{tmp_path}: clock.json is not a file: move it out of the way")


@pytest.mark.parametrize(
    ("held", "mark", "words"),
    [
        (None, "warn", "no list of L was ever adopted"),
        (a_list(NOW - 3600), "ok", "fetched 1 h ago; it is refreshed in 5 h"),
        (a_list(NOW - 30000), "note", "the next run requests it"),
        (a_list(NOW + 60), "note", "is from the future"),
        (a_list(NOW, body=b""), "FAIL", "was adopted and cannot be read any more"),
    ],
)
def test_r3b_the_age_of_the_list(held: StoredDocument | None, mark: str, words: str) -> None:
    found = doctor_state.of_blocklist(held, NOW, "L")
    assert MARKS[found.outcome] == mark
    assert words in found.text


# -- clocks, versions, the fleet ----------------------------------------------------------


def test_versions_are_said_within_the_width_of_a_terminal(visits: dict[str, Visit]) -> None:
    line = visits["healthy"].line("ok", "versions", "scrapy-walsh ", "Scrapy ", "Python ")
    assert len(line) <= 80


def test_r4_a_shared_store_that_is_away(visits: dict[str, Visit]) -> None:
    found = visits["no redis, and a bad list"]
    line = found.line("FAIL", "R4", "redis://127.0.0.1:1/0 does not answer")
    assert "correct WALSH_SHARED_STATE" in line
    assert "secret" not in found.output


@pytest.mark.skipif(BINARY is None, reason="no redis-server here")
def test_r4_a_shared_store_that_answers(tmp_path: Path) -> None:
    server = Server(tmp_path, keep=True)
    server.start()
    try:
        settings = {"WALSH_IDENTITY": OWN_IDENTITY, "WALSH_SHARED_STATE": server.url}
        (found,) = doctor.of_fleet(config_of(settings))
    finally:
        server.kill()
    assert (MARKS[found.outcome], found.text) == ("ok", f"{server.url} answers, and keeps its data")


# -- the command --------------------------------------------------------------------------


def test_outside_a_project_and_misuse(tmp_path: Path) -> None:
    environment = {name: v for name, v in os.environ.items() if name != "SCRAPY_SETTINGS_MODULE"}

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return zygote.run(
            [sys.executable, "-m", "scrapy_walsh", "doctor", *arguments],
            cwd=tmp_path,
            env={**environment, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            check=False,
        )

    outside = run()
    assert (outside.returncode, outside.stderr.count("\n")) == (2, 1)
    assert "no project here" in outside.stderr
    assert run("--offline").returncode == 2


def test_settings_that_cannot_be_read(tmp_path: Path) -> None:
    project = make_project(tmp_path / "project")
    (project / "probe_settings.py").write_text("1 / 0\n")
    with Sandbox() as box:
        found = visit(project, module="scrapy_walsh", box=box)
    assert found.code == 1
    assert found.line("FAIL", "the project's settings cannot be read", "ZeroDivisionError")


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Visit]]:
    """The commands of the docs where the operator's URLs answer; the last where they do not."""
    snippet = re.findall(r"```bash\n(.*?)```", (ROOT / "docs/doctor.md").read_text(), re.DOTALL)[0]
    commands = [line.split()[3:] for line in snippet.splitlines()]
    assert commands == [[], ["--json"], ["--online"]]
    absent = {
        **OWN_IDENTITY,
        "policy_url": "http://operator.test/gone",
        "blocklist_url": "http://operator.test/none.json",
    }
    jobs = {
        "there": ({"WALSH_IDENTITY": OWN_IDENTITY}, commands),
        "absent": ({"WALSH_IDENTITY": absent, "WALSH_BLOCKLIST_URL": None}, commands[-1:]),
    }

    def run(name: str) -> list[Visit]:
        settings, todo = jobs[name]
        project = make_project(tmp_path_factory.mktemp("asked") / name, settings=settings)
        with Sandbox() as box:
            return [visit(project, *arguments, box=box) for arguments in todo]

    with ThreadPoolExecutor(2) as pool:
        return dict(zip(jobs, pool.map(run, jobs), strict=True))


def test_plain_and_json_say_the_same(asked: dict[str, list[Visit]]) -> None:
    plain, as_json, _ = asked["there"]
    assert (plain.code, plain.connected, plain.log) == (0, False, [])
    assert (as_json.code, as_json.connected, as_json.log) == (0, False, [])
    data = json.loads(as_json.output)
    assert data["holds"]
    lines = plain.output.splitlines()[:-1]
    assert [f["mark"] for f in data["findings"]] == [line.split()[0] for line in lines]
    for finding, line in zip(data["findings"], lines, strict=True):
        assert line.endswith(finding["text"])


def test_r1_the_operators_urls_are_asked_through_the_gates(asked: dict[str, list[Visit]]) -> None:
    found = asked["there"][-1]
    assert found.code == 0, found.output
    assert found.line("ok", "R1.4", f"{OWN_IDENTITY['policy_url']} answers 200")
    assert found.line("ok", "R3", f"{LIST} answers 200")
    assert found.connected
    served = urlsplit(LIST).path
    assert [each.path for each in found.log] == [served, "/robots.txt", "/bot/", served]
    agent = "Mozilla/5.0 (compatible; ExampleBot/1.0; +http://operator.test/bot/)"
    assert user_agents(found.log) == {agent}


def test_r1_a_policy_url_and_a_list_that_are_not_there(asked: dict[str, list[Visit]]) -> None:
    (found,) = asked["absent"]
    assert found.code == 1
    remedy = "there, or correct its URL"
    assert found.line("FAIL", "R1.4", "/gone: 404: upload policy.html", remedy)
    assert found.line("FAIL", "R3", "/none.json: ", "HTTP 404; ", "upload blocklist.json", remedy)
    assert "source" not in found.output.splitlines()[-1]  # the page is none of the project's
    assert "read or unchanged" not in found.output


def test_r3_a_list_that_answers_200_and_is_none_is_said_to_be_none(tmp_path: Path) -> None:
    project = make_project(tmp_path / "project", settings={"WALSH_IDENTITY": OWN_IDENTITY})
    with Sandbox() as box:
        box.set_route("operator.test", urlsplit(LIST).path, Route(body="<html>"))
        found = visit(project, "--online", box=box)
    assert found.code == 1
    line = found.line("FAIL", "R3", f"{LIST}: ", "not JSON")
    assert "2xx" not in line


def test_the_policy_page_leaves_no_validators_to_a_crawl(tmp_path: Path) -> None:
    """A source that is the page would else be answered 304, without a body to read."""
    project = make_project(tmp_path / "project", settings={"WALSH_IDENTITY": OWN_IDENTITY})
    with Sandbox() as box:
        box.set_route("operator.test", "/bot/", Route(body="opt out here", etag='"policy-1"'))
        visits = [visit(project, "--online", box=box) for _ in range(2)]
    pages = [each for each in visits[-1].log if each.path == "/bot/"]
    assert [found.code for found in visits] == [0, 0]
    assert len(pages) == 2
    assert [each.values("If-None-Match") for each in pages] == [[], []]
