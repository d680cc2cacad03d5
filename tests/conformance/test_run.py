"""The whole run, once: every requirement, the reference bot's 21 checks, the record."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import pytest

from scrapy_walsh.proof.conformance.check import code_digest, read_record
from scrapy_walsh.spec import REQUIREMENTS
from tests.crawl.harness import USER_AGENT
from tests.kit import Done, conformance
from tests.zygote import ROOT

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.crawl

#: What the reference bot's report checks, in its order, and the row that is ours.
REFERENCE = (
    ("R1", "exact UA on targets"),
    ("R1", "exact UA on robots.txt"),
    ("R1", "exact UA on the operator's documents"),
    ("R2", "robots.txt blocks /denied, named as the reason"),
    ("R2", "no request for a disallowed path"),
    ("R2a", "named group allows where `*` disallows"),
    ("R2d", "Crawl-delay taken from the named group"),
    ("R3", "nothing asked of a listed host, not even robots.txt"),
    ("R3a", "subdomain blocked by the apex entry"),
    ("R3", "unrelated hosts not blocked"),
    ("R3b", "retain last list on a 404"),
    ("R3c", "schema-invalid document rejected; prior list retained"),
    ("R4b", "per-host spacing honors Crawl-delay (>=2s)"),
    ("R4c", "first request to unseen host not delayed"),
    ("R5", "429 and 503 asked again until 200"),
    ("R5b", "vectors: Retry-After in seconds and as a date"),
    ("R5b", "Retry-After empty/None -> None"),
    ("R5a", "backoff_delay is full jitter"),
    ("R6", "no unexpected URL fetched (no recursion)"),
    ("R7", "conditional GET yields 304 when ETag unchanged"),
    ("R7b", "vectors: canonical URL drops #fragment, and five more"),
)
SUB_IDS = ("R2a", "R2b", "R2c", "R2d", "R3a", "R3b", "R3c")
#: Decisions of ours that promise more than the requirements do. Their rows come last.
DECISIONS = ("D38",)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("whole")


@pytest.fixture(scope="module")
def done(folder: Path) -> Done:
    return conformance(folder, "--json")


def test_r0_6_every_check_of_the_whole_list_passes(done: Done) -> None:
    assert done.code == 0, done.stdout
    wrong = [check for check in done.found["checks"] if check["outcome"] != "PASS"]
    assert wrong == []


def test_every_requirement_and_its_parts_have_rows(done: Done) -> None:
    checks = done.found["checks"]
    assert {check["id"] for check in checks} >= set(SUB_IDS)
    assert len({(check["id"], check["title"]) for check in checks}) == len(checks)
    assert list(dict.fromkeys(check["requirement"] for check in checks)) == [
        *(row.id for row in REQUIREMENTS),
        *DECISIONS,
    ]


def test_the_docs_say_how_many_checks_there_are(done: Done) -> None:
    text = (ROOT / "docs" / "conformance.md").read_text()
    assert f"three of the {len(done.found['checks'])}" in " ".join(text.split()).lower()


def test_the_reference_bots_21_checks_are_among_them(done: Done) -> None:
    assert len(REFERENCE) == 21
    assert {(check["id"], check["title"]) for check in done.found["checks"]} >= set(REFERENCE)


@pytest.mark.parametrize(
    ("identity", "words"),
    [
        ("R2", "dogfood-disallow refused"),
        ("R2a", "dogfood-walsh-only"),
        ("R2c", "dogfood-allow"),
        ("R2", "external_positive"),
        ("R3", "operator_blocked_host"),
        ("R5", "flaky_429_endpoint"),
    ],
)
def test_r16_canaries_and_fixtures_are_judged(done: Done, identity: str, words: str) -> None:
    found = [title for title in done.outcomes(identity) if words in title]
    assert len(found) == 1, found


def test_the_record_is_written_where_the_state_is(done: Done, folder: Path) -> None:
    record = read_record(folder / ".scrapy" / "walsh" / "conformance.json")
    assert record == done.found
    assert record["code"] == code_digest()
    assert record["user_agent"] == USER_AGENT
    assert record["live"] is False
    assert record["versions"]["python"] == sys.version.split()[0]
    assert record["settings"] == {
        "mirrored": True,
        "pace_robots": False,
        "follow_links": False,
        "overrides": {},
    }


def test_the_run_is_quiet_without_a_terminal(done: Done) -> None:
    assert done.stdout.count("\n") == 1
    assert done.stderr.splitlines() == [
        "walsh conformance: record written to .scrapy/walsh/conformance.json"
    ]


def test_a_run_takes_less_than_three_minutes(done: Done) -> None:
    """The command's promise to its user, and far above what it takes."""
    assert done.found["seconds"] < 180


OWN = '{"product": "ExampleBot/1.0", "policy_url": "http://b.test/", "blocklist_url": "http://b.test/l"}'


def test_another_identity_and_stricter_settings_are_judged_by_what_they_say(
    tmp_path: Path,
) -> None:
    record = tmp_path / "record.json"
    done = conformance(
        tmp_path, "--only", "identity,blocklist", "--identity", OWN, "--record", str(record),
        "-s", "WALSH_PACE_ROBOTS=True", "-s", "WALSH_MIN_INTERVAL=1.5",
        "-s", "DOWNLOAD_DELAY=1.2", "-s", "FTP_PASSWORD=secret",
    )  # fmt: skip
    lines = done.stdout.splitlines()
    assert done.code == 0, done.stdout
    assert lines[0].endswith("Mozilla/5.0 (compatible; ExampleBot/1.0; +http://b.test/)")
    assert "  [PASS]     R3   unrelated hosts not blocked" in lines
    assert lines[-1].startswith("  10/10 checks passed, 0 failed, 0 not seen; every MUST holds")
    found: dict[str, Any] = read_record(record)
    assert found["settings"]["pace_robots"] is True
    assert found["settings"]["overrides"] == {
        "WALSH_MIN_INTERVAL": "1.5",
        "WALSH_PACE_ROBOTS": "True",
        "DOWNLOAD_DELAY": "1.2",
        "FTP_PASSWORD": "set",
    }
    assert not (tmp_path / ".scrapy").exists()
