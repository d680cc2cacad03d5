"""``walsh plan``: what the next run would do, compared with what it does; nobody is asked."""

from __future__ import annotations

import json
import sqlite3
import sys
import time
from contextlib import closing
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from scrapy_walsh.commands.main import main
from scrapy_walsh.commands.plan import LATENCY
from scrapy_walsh.proof.sandbox import Route, Sandbox, blocklist, requests
from scrapy_walsh.state.records import Deferral, HostRecord, StoredDocument, VisitRecord
from tests.crawl.harness import (
    OPERATOR,
    crawl,
    forget_pacing,
    make_project,
    put_records,
    run_scrapy,
    site,
    state_dir,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

LIST = "https://o.test/blocklist.json"
SCHEMA = "https://o.test/schema.json"
NOW = time.time()
OPEN = b"User-agent: *\nAllow: /\n"


pytestmark = pytest.mark.usefixtures("forked")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory outside any project, at a time that is known."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys.modules[__name__], "NOW", time.time())  # however long the others took
    return tmp_path


@pytest.fixture
def put(folder: Path) -> Callable[..., None]:
    """Put records into the state directory."""
    return partial(put_records, folder / "state")


@pytest.fixture
def planned(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, dict[str, Any], str]]:
    """Run ``plan -a urls=...``: exit code, the plan, stderr."""

    def _planned(urls: str, *arguments: str) -> tuple[int, dict[str, Any], str]:
        code = main(["plan", "-a", f"urls={urls}", *given(folder), "--json", *arguments])
        out, err = capsys.readouterr()
        return code, json.loads(out), err

    return _planned


def given(folder: Path) -> list[str]:
    settings = {
        "WALSH_IDENTITY": "walsh-research",
        "WALSH_BLOCKLIST_URL": LIST,
        "WALSH_BLOCKLIST_SCHEMA_URL": SCHEMA,
        "WALSH_STATE_DIR": str(folder / "state"),
    }
    return [word for name, value in settings.items() for word in ("-s", f"{name}={value}")]


def operator_list(*domains: str, age: float = 60.0) -> StoredDocument:
    body = json.dumps(blocklist(list(domains))).encode()
    return StoredDocument("blocklist", LIST, LIST, body, NOW - age, 200, "held")


def robots(host: str, body: bytes = OPEN, age: float = 60.0) -> StoredDocument:
    url = f"https://{host}"
    return StoredDocument("robots", url, f"{url}/robots.txt", body, NOW - age, 200, "parse")


def targets(plan: dict[str, Any]) -> dict[str, tuple[str, str | None]]:
    """Decision and verdict by URL."""
    return {
        target["url"]: (target["decision"], target["verdict"] and target["verdict"]["name"])
        for target in plan["targets"]
    }


def unix(moment: str) -> float:
    return datetime.fromisoformat(moment).timestamp()


def documents(plan: dict[str, Any]) -> dict[str, str]:
    """The documents that are requested: those that are not known are fetched."""
    return {
        f"{each['purpose']} {each['url'].removesuffix('/robots.txt')}": (
            "refresh" if each["known"] else "fetch"
        )
        for each in plan["requests"]
        if "known" in each
    }


# -- verdicts -----------------------------------------------------------------------------


def test_nothing_held_nothing_known(planned: Any, folder: Path) -> None:
    code, plan, err = planned("https://a.test/")
    assert (code, err) == (0, "")
    assert targets(plan) == {"https://a.test/": ("ask", None)}
    assert documents(plan) == {
        f"blocklist {LIST}": "fetch",
        f"schema {SCHEMA}": "fetch",
        "robots https://a.test": "fetch",
    }
    assert len(plan["requests"]) == 4
    assert not (folder / "state").exists()


def test_r7g_every_gate_speaks_from_what_is_held(planned: Any, put: Any) -> None:
    put(
        operator_list("blocked.test"),
        robots("shut.test", b"User-agent: *\nDisallow: /\n"),
        robots("open.test"),
        robots("late.test"),
        VisitRecord("https://done.test/", NOW - 60, "200"),
        HostRecord("late.test", NOW - 60, 1.0, NOW + 7200),
    )
    names = ("www.blocked.test", "shut.test", "open.test", "late.test", "done.test", "new.test")
    code, plan, _ = planned(" ".join(f"https://{name}/" for name in names))
    assert code == 0
    assert targets(plan) == {
        "https://www.blocked.test/": ("skip", "blocked_operator"),
        "https://shut.test/": ("skip", "disallowed_explicit"),
        "https://open.test/": ("ask", None),
        "https://late.test/": ("defer", "deferred"),
        "https://done.test/": ("skip", "not_due"),
        "https://new.test/": ("ask", None),
    }
    due = {target["host"]: target["next_due"] for target in plan["targets"]}
    assert unix(due["late.test"]) == pytest.approx(NOW + 7200, abs=2)
    assert unix(due["done.test"]) == pytest.approx(NOW - 60 + 0.9 * 86400, abs=2)
    assert [due[name] for name in ("open.test", "shut.test", "new.test")] == [None] * 3
    assert {each["host"] for each in plan["requests"]} == {"open.test", "new.test"}


def test_r8_1_a_source_with_its_own_cadence_is_planned_by_that(
    folder: Path, put: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    names = ("daily", "weekly", "hourly")
    tables = [f'[[source]]\nurl = "https://{name}.test/"\n' for name in names]
    declared = tables[0], f'{tables[1]}revisit = "P7D"\n', f"{tables[2]}revisit = 3600\n"
    (folder / "sources.toml").write_text("".join(declared))
    done = [VisitRecord(f"https://{name}.test/", NOW - 7200, "200") for name in names]
    put(operator_list("blocked.test"), *(robots(f"{name}.test") for name in names), *done)
    main(["plan", "-a", f"sources={folder / 'sources.toml'}", *given(folder), "--json"])
    plan = json.loads(capsys.readouterr().out)
    asked = {each["host"]: (each["decision"], each["revisit"]) for each in plan["targets"]}
    week, hour = 7 * 86400.0, 3600.0
    assert asked == {
        "daily.test": ("skip", None),
        "weekly.test": ("skip", week),
        "hourly.test": ("ask", hour),
    }
    due = {each["host"]: each["next_due"] for each in plan["targets"]}
    assert unix(due["weekly.test"]) == pytest.approx(NOW - 7200 + 0.9 * week, abs=2)
    main(["plan", "-a", f"sources={folder / 'sources.toml'}", *given(folder)])
    out = capsys.readouterr().out
    assert "in 0.0 s  https://hourly.test/, every 1 h\n" in out
    assert "https://weekly.test/, every 7 d: not_due (R8)" in out


def test_r8_a_written_reason_lifts_it(planned: Any, put: Any) -> None:
    put(VisitRecord("https://a.test/", NOW - 60, "200"))
    assert planned("https://a.test/")[0] == 1
    reason = ("-s", "WALSH_REVISIT_REASON=moved")
    assert targets(planned("https://a.test/", *reason)[1]) == {"https://a.test/": ("ask", None)}


def test_excluded_suffixes_hold(planned: Any) -> None:
    _, plan, _ = planned("https://a.mil/", "-s", "WALSH_EXCLUDED_TLDS=mil")
    assert targets(plan) == {"https://a.mil/": ("skip", "excluded_tld")}


def test_r12_old_documents_speak_and_are_asked_for_again(planned: Any, put: Any) -> None:
    put(
        operator_list("blocked.test", age=90_000),
        robots("shut.test", b"User-agent: *\nDisallow: /\n", age=90_000),
        robots("open.test", age=90_000),
    )
    _, plan, _ = planned("https://blocked.test/ https://shut.test/ https://open.test/")
    assert targets(plan) == {
        "https://blocked.test/": ("skip", "blocked_operator"),
        "https://shut.test/": ("skip", "disallowed_explicit"),
        "https://open.test/": ("ask", None),
    }
    assert documents(plan)["robots https://shut.test"] == "refresh"
    assert documents(plan)[f"blocklist {LIST}"] == "refresh"
    sent = sorted((each["host"], each["purpose"]) for each in plan["requests"])
    assert sent[1:] == [("open.test", "robots"), ("open.test", "target"), ("shut.test", "robots")]


def test_r2_a_robots_txt_of_a_slow_host_is_held_as_long_as_a_run_holds_it(
    planned: Any, put: Any
) -> None:
    slow = robots("slow.test", b"User-agent: *\nCrawl-delay: 250\n", age=100)
    put(operator_list(), slow, HostRecord("slow.test", NOW - 100, 250.0))
    put(robots("quick.test", age=100), HostRecord("quick.test", NOW - 100, 1.0))
    _, plan, _ = planned("https://slow.test/ https://quick.test/", "-s", "WALSH_ROBOTS_TTL=60")
    found = documents(plan)
    assert found == {"robots https://quick.test": "refresh"}


def test_r12_the_lists_own_refresh_counts(planned: Any, put: Any) -> None:
    kept = operator_list(age=3600)
    document = json.loads(kept.body)
    for refresh, action in (("PT30M", "refresh"), ("PT2H", None)):
        put(replace(kept, body=json.dumps({**document, "refresh": refresh}).encode()))
        assert documents(planned("https://a.test/")[1]).get(f"blocklist {LIST}") == action


def test_r10_a_list_with_its_own_schema_needs_no_other(planned: Any, put: Any) -> None:
    body = json.dumps({**blocklist([]), "schema": {"type": "object"}}).encode()
    put(replace(operator_list(age=90_000), body=body))
    assert f"schema {SCHEMA}" not in documents(planned("https://a.test/")[1])


def test_d8_a_deferred_host_is_not_asked_for_its_robots_txt_either(planned: Any, put: Any) -> None:
    put(operator_list(), HostRecord("a.test", NOW - 60, 1.0, time.time() + 7200))
    code, plan, _ = planned("https://a.test/")
    assert code == 1
    assert targets(plan) == {"https://a.test/": ("defer", "deferred")}
    assert (plan["requests"], plan["seconds"]) == ([], 0.0)
    patient = ("-s", "WALSH_PATIENCE=8000")
    assert planned("https://a.test/", *patient)[1]["seconds"] > 7000


def test_a_blocklist_that_cannot_be_used_is_said(planned: Any, put: Any) -> None:
    put(replace(operator_list(), body=b"{}"))
    _, plan, err = planned("https://a.test/")
    assert err.startswith("walsh plan: the stored blocklist cannot be read (")
    assert documents(plan)[f"blocklist {LIST}"] == "refresh"


@pytest.mark.parametrize("what", ["not a database", "of another version"])
def test_a_state_that_no_crawl_can_read_is_said_and_left_as_it_is(
    folder: Path, put: Any, capsys: pytest.CaptureFixture[str], what: str
) -> None:
    put(operator_list())
    file = folder / "state" / "state.sqlite3"
    if what == "not a database":
        file.write_bytes(file.read_bytes()[:100] + b"x" * 5000)
    else:
        with closing(sqlite3.connect(file)) as connection:
            connection.execute("PRAGMA user_version=99")
    before = held(folder / "state")
    code = main(["plan", "-a", "urls=https://a.test/", *given(folder)])
    assert code == (0 if what == "not a database" else 2)
    err = capsys.readouterr().err
    assert err.startswith(f"walsh plan: {file} ")
    assert ("was damaged" if what == "not a database" else "has schema version 99") in err
    assert held(folder / "state") == before


# -- order and time -----------------------------------------------------------------------


def test_r4_hosts_with_the_most_work_come_first(planned: Any, put: Any) -> None:
    put(
        operator_list(),
        robots("slow.test", b"User-agent: *\nCrawl-delay: 30\nAllow: /\n"),
        robots("late.test"),
        robots("many.test"),
        robots("one.test"),
        HostRecord("slow.test", NOW - 60, 30.0),
        HostRecord("late.test", NOW - 60, 1.0, time.time() + 200),
    )
    many = " ".join(f"https://many.test/{n}" for n in range(5))
    slow = " ".join(f"https://slow.test/{n}" for n in range(2))
    urls = f"https://one.test/ https://late.test/ {many} {slow}"
    _, plan, _ = planned(urls)
    # start() names the first one before any other host is there to be compared with it.
    order = ["one.test", "slow.test", "many.test", "late.test"]
    assert list(dict.fromkeys(each["host"] for each in plan["requests"])) == order
    assert len(plan["requests"]) == 9
    assert 199 < plan["seconds"] < 201
    assert [each["at"] for each in plan["requests"]] == sorted(
        each["at"] for each in plan["requests"]
    )


# -- misuse -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("nobody", "-a", "urls=ftp://x"), "no spider 'nobody' here; there are: walsh_metadata"),
        (("-a", "urls=ftp://x"), "walsh_metadata: no usable source (1 unusable)"),
        ((), "walsh_metadata: give either -a sources=FILE or -a urls="),
        (("-a", "sources=none.toml"), "walsh_metadata: none.toml: cannot be read"),
        (("-a", "urls"), "-a 'urls' is not NAME=VALUE"),
        (("-s", "WALSH_PATIENCE=x"), "WALSH_PATIENCE is 'x'"),
    ],
)
def test_misuse_is_one_line(
    capsys: pytest.CaptureFixture[str], folder: Path, arguments: tuple[str, ...], said: str
) -> None:
    assert main(["plan", *given(folder), *arguments]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"walsh plan: {said}")
    assert err.count("\n") == 1


CONNECTS = """
import socket
import scrapy

class Probe(scrapy.Spider):
    name = "probe"

    async def start(self):
        yield scrapy.Request("https://one.test/")
        socket.create_connection(("127.0.0.1", 9))
"""


def test_a_spider_that_connects_while_it_starts_is_not_planned(tmp_path: Path) -> None:
    """Half of a plan would say that the rest is not requested."""
    project = make_project(tmp_path / "project", CONNECTS)
    done = run_scrapy(project, None, "plan", "probe", module="scrapy_walsh", apart=True)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr == (
        "walsh plan: the start() of probe cannot be planned: ConnectionRefusedError: this command "
        "allows no connection, here to 127.0.0.1\n"
    )


def test_an_identity_is_needed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "-a", "urls=https://a.test/"]) == 2
    assert capsys.readouterr().err.startswith("walsh plan: no identity:")


def test_unusable_sources_are_said_once(planned: Any) -> None:
    code, plan, err = planned("https://a.test/ ftp://x")
    assert (code, len(plan["targets"])) == (0, 1)
    why = "cannot be used; write an absolute http or https URL"
    assert err.splitlines() == [f"walsh plan: urls: url 2: url 'ftp://x' {why}"]


# -- against a crawl ----------------------------------------------------------------------


PROBE = """
import scrapy, urllib.request

class Probe(scrapy.Spider):
    name = "probe"

    def __init__(self, urls="", **kwargs):
        super().__init__(**kwargs)
        self.urls = urls.split()

    async def start(self):
        try:
            urllib.request.urlopen("http://a.test/by-the-spider-itself", timeout=5)
        except OSError:
            pass
        for url in self.urls:
            yield scrapy.Request(url, callback=self.parse, errback=self.parse)

    def parse(self, response):
        open("heard", "w").close()

    def closed(self, reason):
        open("heard", "w").close()
"""
SLOW = "Crawl-delay: 3"
REPEAT = ("-s", "WALSH_REVISIT_REASON=a test asks twice")


def held(directory: Path) -> dict[str, bytes]:
    """What is in every file of a state directory."""
    return {path.name: path.read_bytes() for path in directory.iterdir()}


def test_r11_the_plan_asks_nobody_and_the_run_keeps_to_it(tmp_path: Path) -> None:
    """Of a spider of the project: the order and the times of a run are those of its plan."""
    project = make_project(tmp_path / "project", PROBE)
    slow = [f"http://slow.test/{page}" for page in range(3)]
    many = [f"http://many.test/{page}" for page in range(5)]
    urls = [*slow, *many, "http://shut.test/", "http://blocked.test/", "http://new.test/"]
    given = ("walsh", "plan", "probe", "-a", f"urls={' '.join(urls)}", *REPEAT)
    with Sandbox() as box:
        page = Route(body="<p>page</p>", delay=LATENCY)
        for name, rules in (("many", ""), ("new", ""), ("shut", "Disallow: /"), ("slow", SLOW)):
            text = Route(body=f"User-agent: *\n{rules}\n", delay=LATENCY)
            box.put(site(f"{name}.test", {"*": page}, robots=text))
        first = run_scrapy(project, box, *given)
        assert first.returncode == 0, first.stdout
        assert "unknown files are assumed to allow everything" in first.stdout
        assert box.log == []
        assert not state_dir(project).exists()
        crawl(project, box, "http://slow.test/", "http://many.test/", "http://shut.test/")
        (project / "heard").unlink()
        forget_pacing(project)
        box.clear()
        before = held(state_dir(project))
        done = run_scrapy(project, box, *given, "--json")
        assert box.log == []
        assert held(state_dir(project)) == before
        assert not (project / "heard").exists()
        plan = json.loads(done.stdout)
        run = crawl(project, box, *urls, arguments=REPEAT)
    assert targets(plan)["http://shut.test/"] == ("skip", "disallowed_explicit")
    assert f"blocklist {OPERATOR}/blocklist.json" not in documents(plan)
    sent = [each for each in requests(run.log) if "by-the-spider" not in each.path]
    assert [each["url"] for each in plan["requests"]] == [
        f"http://{each.host}{each.path}" for each in sent
    ]
    planned_at = [each["at"] - plan["requests"][0]["at"] for each in plan["requests"]]
    # A run takes longer where the machine is busy, and never less.
    for at, each in zip(planned_at, sent, strict=True):
        assert each.arrived - sent[0].arrived >= at - 0.1, each.path


def test_r4_a_slow_host_is_planned_one_target(planned: Any, put: Any) -> None:
    urls = [f"https://slow.test/{page}" for page in range(3)]
    put(
        operator_list(),
        robots("slow.test", b"User-agent: *\nCrawl-delay: 600\n"),
        HostRecord("slow.test", NOW - 86400, 600.0),
        Deferral(urls[0], "slow.test", NOW - 60, "put off", NOW - 86400),
        Deferral(urls[1], "slow.test", NOW - 60, "put off", NOW - 3 * 86400),
    )
    _, plan, _ = planned(" ".join(urls))
    assert [targets(plan)[url][0] for url in urls] == ["defer", "ask", "defer"]
    assert plan["seconds"] < 60
    _, plan, _ = planned(" ".join(urls), "-s", "WALSH_SLOW_HOSTS=skip")
    assert [targets(plan)[url][0] for url in urls] == ["defer"] * 3
