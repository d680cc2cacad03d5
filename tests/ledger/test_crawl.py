"""Each decision of a real crawl, in the ledger, the log line and the stats alike; no body in it."""

from __future__ import annotations

import hashlib
import os
import re
from collections import Counter
from operator import methodcaller
from pathlib import Path
from typing import Any

import pytest

from scrapy_walsh.ledger import FILE
from scrapy_walsh.ledger.files import DOCUMENTS, Bodies, parse_line
from scrapy_walsh.proof.sandbox import Route, Sandbox, blocklist, page
from tests.crawl.harness import (
    LIST_SPIDER,
    SCHEMA,
    Crawl,
    crawl,
    make_project,
    operator,
    served,
    site,
    solo,
    state_dir,
)

DECISIONS = {
    "refused", "held", "fetched", "retried", "deferred", "given_up", "not_modified", "adopted",
    "rejected", "too_many_redirects",
}  # fmt: skip
SECRET = "no body may be written down"
URLS = (
    "http://path.test/private/x",
    "http://www.blocked.test/x",
    "http://flaky.test/feed.xml",
    "http://redirect.test/own",
    "http://redirect.test/hops/9",
    "http://long-delay.test/a",
    "http://long-delay.test/b",
    "http://page.test/x?key=hidden",
    "http://page.test/gone",
    "http://moved.test/x",
    "http://unchanged.test/feed.xml",
)
PAGES = (
    site("page.test", {"/x": Route(body=SECRET), "/gone": Route(behaviour="close")}),
    site("unreachable.test", robots=Route(503)),
    site(
        "moved.test",
        {"/r.txt": Route(body="User-agent: *\nAllow: /\n", content_type="text/plain")},
        Route(302, location="http://moved.test/r.txt"),
    ),
)


def ledger_of(project: Path) -> list[dict[str, Any]]:
    return [parse_line(line) for line in (state_dir(project) / FILE).read_bytes().splitlines()]


class Written:
    """Two runs of one project, and what they wrote."""

    def __init__(self, directory: Path) -> None:
        settings = {"WALSH_BACKOFF_BASE": 0.01, "WALSH_REVISIT_REASON": "a test"}
        self.project = make_project(directory, settings=settings)
        with Sandbox() as box:
            for each in PAGES:
                box.put(each)
            self.first = crawl(self.project, box, *URLS)
            self.second = crawl(self.project, box, *URLS[-1:], "http://unreachable.test/x")
        self.lines = ledger_of(self.project)
        self.runs = list(dict.fromkeys(line["run"] for line in self.lines if "run" in line))

    def of(self, number: int, *kinds: str) -> list[dict[str, Any]]:
        run = self.runs[number]
        return [line for line in self.lines if line.get("run") == run and line["kind"] in kinds]


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Written:
    return Written(tmp_path_factory.mktemp("ledger"))


def test_every_request_that_the_server_saw_is_a_line_in_its_order(written: Written) -> None:
    for number, run in enumerate((written.first, written.second)):
        asked = written.of(number, "asked")
        assert [(line["url"], line.get("status")) for line in asked] == [
            (each.target, each.status) for each in run.log
        ]


def test_every_decision_is_counted_in_the_stats_as_often(written: Written) -> None:
    for number, run in enumerate((written.first, written.second)):
        found = Counter(line["kind"] for line in written.of(number, *DECISIONS))
        told = {kind: run.stats.get(f"walsh/{kind}", 0) for kind in DECISIONS}
        assert {kind: found[kind] for kind in DECISIONS} == told
    seen = {line["kind"] for line in written.lines}
    assert seen >= DECISIONS, "the crawls have to meet every kind"


def test_the_docs_name_every_stat(written: Written) -> None:
    text = (Path(__file__).parents[2] / "docs/reference.md").read_text()
    page = text.partition("## Stats")[2]
    rows = [line.split("|")[1] for line in page.splitlines() if line.startswith("| `")]
    names = [name for row in rows for name in re.findall(r"`(walsh/[^`]+)`", row)]
    told = {name: re.compile(re.sub(r"[A-Z]+", r"[^/]+", name)) for name in names}
    dumps = written.first.output + written.second.output
    ours = set(re.findall(r"'(walsh/[^']+)': ", dumps.partition("Dumping Scrapy stats")[2]))
    unknown = [n for n in ours if not any(map(methodcaller("fullmatch", n), told.values()))]
    assert unknown == []
    unmet = {name for name, form in told.items() if not any(map(form.fullmatch, ours))}
    # After a thousand hosts, a fault of ours, a request sent twice, in a fleet, in a later run, and
    # where a middleware answers.
    assert unmet == {
        *("walsh/denied/other_hosts", "walsh/asked_again", "walsh/fleet/set_aside"),
        *("walsh/silent_hosts", "walsh/silent_hosts/answered", "walsh/own_faults"),
        "walsh/answered",
    }


def test_every_decision_is_a_line_of_the_log(written: Written) -> None:
    for number, run in enumerate((written.first, written.second)):
        for line in written.of(number, *DECISIONS):
            assert run.lines(line["kind"], line["url"], line["reason"]), line


def test_a_refusal_names_its_rule_and_its_document(written: Written) -> None:
    by_url = {line["url"]: line for line in written.of(0, "refused")}
    robots = by_url["http://path.test/private/x"]
    assert (robots["requirement"], robots["verdict"]) == ("R2", "disallowed_explicit")
    assert (robots["rule"], robots["line"]) == ("Disallow: /private/", 2)
    assert robots["group"] == ["*"]
    listed = by_url["http://www.blocked.test/x"]
    assert (listed["requirement"], listed["rule"]) == ("R3", "blocked.test")
    kept = Bodies(state_dir(written.project) / DOCUMENTS)
    for line in by_url.values():
        body = kept.get(line["digest"])
        assert body is not None
        assert hashlib.sha256(body).hexdigest() == line["digest"]
    assert b"Disallow: /private/" in (kept.get(robots["digest"]) or b"")


def test_a_run_says_what_it_goes_by_and_how_it_ended(written: Written) -> None:
    (started,) = written.of(0, "started")
    assert started["user_agent"] == (
        "Mozilla/5.0 (compatible; Walsh-Research/1.2; +https://wal.sh/bot/)"
    )
    assert started["settings"]["revisit_reason"] == "a test"
    (ended,) = written.of(0, "ended")
    assert ended["reason"] == "finished"
    assert written.first.lines("'walsh/ledger/line'", str(ended["n"]))
    assert written.first.lines("'walsh/ledger/head'", ended["hash"])


def test_r6_the_targets_are_the_declared_ones_and_their_hops(written: Written) -> None:
    declared = {line["url"]: line.get("via") for line in written.of(0, "declared")}
    assert declared == {
        **dict.fromkeys(URLS),
        "http://redirect.test/target": "http://redirect.test/own",
        **{
            f"http://redirect.test/hops/{n - 1}": f"http://redirect.test/hops/{n}"
            for n in range(5, 10)
        },
    }


def test_a_redirected_robots_txt_says_so(written: Written) -> None:
    asked = [line for line in written.of(0, "asked") if line["host"] == "moved.test"]
    found = [(line["purpose"], line["hops"], line["exempt"]) for line in asked]
    assert found == [("robots", 0, False), ("robots", 1, False), ("target", 0, False)]
    (adopted,) = (line for line in written.of(0, "adopted") if line["url"].startswith("http://m"))
    assert adopted["document"] == "http://moved.test/r.txt"


def test_r5_a_back_off_says_until_when(written: Written) -> None:
    retried = [line for line in written.of(0, "retried") if line.get("status") == 429]
    assert [line["wait"] for line in retried] == [1.0, 1.0]
    asked = [line for line in written.of(0, "asked") if line.get("retry_after")]
    assert [line["retry_after"] for line in asked] == [["1"], ["1"]]
    (deferred,) = written.of(0, "deferred")
    assert 3590 < deferred["due"] - deferred["at"] <= 3600


def test_r11_the_second_run_takes_up_what_the_first_adopted(written: Written) -> None:
    first = {line["url"]: line["digest"] for line in written.of(0, "adopted")}
    second = {line["url"]: line["digest"] for line in written.of(1, "taken_up")}
    assert second
    assert second.items() <= first.items()


def test_d10_no_body_is_written_down(written: Written) -> None:
    for path in state_dir(written.project).glob("ledger*"):
        assert SECRET.encode() not in path.read_bytes()


def one(directory: Path, value: object, url: str = "http://page.test/x?key=hidden") -> Crawl:
    return solo(directory, url, sites=PAGES, settings={"WALSH_LEDGER": value})


def test_it_can_be_turned_off(tmp_path: Path) -> None:
    run = one(tmp_path / "off", value=False)
    assert run.fetched("http://page.test/x?key=hidden")
    assert not list(tmp_path.rglob("ledger*"))


def test_queries_can_be_left_out(tmp_path: Path) -> None:
    run = one(tmp_path / "redacted", "redact")
    assert run.fetched("http://page.test/x?key=hidden")
    text = (state_dir(tmp_path / "redacted") / FILE).read_text()
    assert "http://page.test/x?redacted" in text
    assert "hidden" not in text


def test_another_value_is_refused_in_one_line(tmp_path: Path) -> None:
    run = one(tmp_path / "bad", "sometimes")
    assert run.returncode != 0
    assert run.lines("WALSH_LEDGER is 'sometimes'", "redact")
    assert run.log == []


#: The ledger finds no room; the store does.
FULL_DISK = f"""
from scrapy_walsh.ledger import Ledger

def full(self):
    raise OSError(28, "No space left on device")

Ledger._take_up = full
{LIST_SPIDER}
"""


def test_a_ledger_that_cannot_be_kept_is_said_and_the_crawl_goes_on(tmp_path: Path) -> None:
    run = solo(tmp_path / "crawl", "http://path.test/public", spider=FULL_DISK)
    assert run.fetched("http://path.test/public")
    assert len(run.lines("ERROR", "decisions are not recorded", "No space left")) == 1


def test_what_is_not_a_file_in_the_place_of_the_ledger_refuses_the_start(
    tmp_path: Path,
) -> None:
    project = make_project(tmp_path / "crawl")
    state_dir(project).mkdir(parents=True)
    os.mkfifo(state_dir(project) / FILE)
    with Sandbox() as box:
        run = crawl(project, box, "http://path.test/public")
    assert run.returncode == 1
    assert run.log == []
    assert len(run.lines(f"{FILE} is not a file", "WALSH_STATE_DIR")) == 1
    assert "Traceback" not in run.output


def test_a_blocklist_with_a_standalone_schema_names_both(tmp_path: Path) -> None:
    bare = blocklist("http://operator.test", "blocked.test", inline=False)
    schema = Route(body=page("blocklist.schema.json"))
    sites = (operator(served(bare), **{SCHEMA: schema}),)
    run = solo(tmp_path / "bare", "http://www.blocked.test/x", sites=sites)
    assert "R3 blocked_operator" in run.why("http://www.blocked.test/x")
    adopted = next(line for line in ledger_of(tmp_path / "bare") if line["kind"] == "adopted")
    kept = Bodies(state_dir(tmp_path / "bare") / DOCUMENTS)
    assert b"$schema" in (kept.get(adopted["schema"]) or b"")
    assert b"blocked.test" in (kept.get(adopted["digest"]) or b"")
