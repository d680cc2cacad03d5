"""What is attested, and what is not: records of this build, of others, and the settings."""

from __future__ import annotations

import json
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from scrapy_walsh import SPEC_VERSION, __version__
from scrapy_walsh.commands import attest as command
from scrapy_walsh.commands.main import main
from scrapy_walsh.config import WalshConfig
from scrapy_walsh.proof.attest import document
from scrapy_walsh.proof.attest.document import IDS, PolicyPage
from tests.crawl.harness import OWN_IDENTITY, USER_AGENT
from tests.kit import DATE, check, put_record, record

if TYPE_CHECKING:
    from collections.abc import Callable

PAGE = PolicyPage("https://wal.sh/bot/", "now", 200)
#: Exit code, document, lines on stderr.
Answer = tuple[int, dict[str, Any], list[str]]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory outside any project."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def attest(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Answer]:
    """Run ``attest ARGUMENTS`` as walsh-research, whose policy page is seen with ``--online``."""
    monkeypatch.setattr(command, "look", lambda url, *_: PolicyPage(url, "now", 200))

    def _attest(*arguments: str, online: bool = True) -> Answer:
        given = ["--online"] if online else []
        code = main(["attest", "--identity", "walsh-research", *given, *arguments])
        told = capsys.readouterr()
        return code, json.loads(told.out or "{}"), told.err.splitlines()

    return _attest


def config(**settings: Any) -> WalshConfig:
    return WalshConfig.from_settings({"WALSH_IDENTITY": OWN_IDENTITY, **settings}, Path)


def values(checks: list[dict[str, str]], page: PolicyPage = PAGE, **settings: Any) -> Any:
    """What is attested by these checks under these settings."""
    found = document.judge(record(checks=checks), config(**settings), page)
    return {id_: document.value_of(against) for id_, against in found.items()}


# -- the document -------------------------------------------------------------------------


def test_r14_1_document_has_the_shape_of_the_contract(attest: Any, folder: Path) -> None:
    path = put_record(folder / ".scrapy/walsh/conformance.json")
    code, found, told = attest()
    assert code == 0
    assert list(found)[:6] == [
        "contract", "tool", "tool_version", "spec", "user_agent", "requirements",
    ]  # fmt: skip
    assert found["contract"] == "walsh-research-attestation/v1"
    assert (found["tool"], found["tool_version"]) == ("scrapy-walsh", __version__)
    assert found["spec"] == SPEC_VERSION == "walsh-research-compliance/v1.3"
    assert found["user_agent"] == USER_AGENT
    assert found["requirements"] == dict.fromkeys(
        [
            "R1", "R2", "R2a", "R2b", "R2c", "R2d", "R3", "R3a", "R3b", "R3c", "R4", "R5", "R6",
            "R7", "R8", "R9", "R10", "R11", "R12", "R13",
        ],
        True,
    )  # fmt: skip
    whole = json.loads(path.read_text())
    assert found["conformance"]["date"] == DATE
    assert found["conformance"]["digest"] == whole["digest"]
    assert found["conformance"]["code"] == whole["code"]
    assert (found["mirrors"], found["overrides"]) == ({}, {})
    assert found["WALSH_PACE_ROBOTS"] is found["WALSH_FOLLOW_LINKS"] is False
    assert told == []


def test_r6_that_an_index_may_declare_targets_is_said() -> None:
    """A file of sources is no setting that can be seen, so it is said whatever is in one."""
    found = stated()["exemptions"]
    assert "R8 sources" in found
    assert "refused to walsh-research" in found["R6 sitemaps"]


def test_r1_4_policy_page_that_was_not_looked_at_is_not_attested(attest: Any, folder: Path) -> None:
    put_record(folder / "r.json")
    code, found, told = attest("--record", "r.json", online=False)
    assert code == 1
    assert found["requirements"] == {**dict.fromkeys(IDS, True), "R1": False}
    assert found["policy_url"] == {
        "url": "https://wal.sh/bot/",
        "outcome": "NOT SEEN",
        "checked": None,
        "status": None,
    }
    (line,) = told
    assert line.startswith("walsh attest: R1 is not attested: the policy page https://wal.sh/bot/")
    assert line.endswith(" was not requested (R1.4): run attest --online")


@pytest.mark.parametrize(
    ("page", "held", "outcome"),
    [
        (PolicyPage("http://p.test/", "now", 200), True, "PASS"),
        (PolicyPage("http://p.test/", "now", 404, "HTTP 404"), False, "FAIL"),
        (PolicyPage("http://p.test/"), False, "NOT SEEN"),
        (PolicyPage("http://p.test/", "now", None, "R2 disallowed"), False, "FAIL"),
    ],
)
def test_r1_4_policy_page_that_is_not_there_makes_r1_false(
    page: PolicyPage, held: bool, outcome: str
) -> None:
    assert page.members()["outcome"] == outcome
    found = values([check(id_) for id_ in IDS], page)
    assert found == {**dict.fromkeys(IDS, True), "R1": held}


# -- no record of this build --------------------------------------------------------------


def nothing_is_attested(answer: Answer, *named: str) -> bool:
    code, found, told = answer
    (first,) = told
    return (
        code == 1
        and found["requirements"] == dict.fromkeys(IDS, False)
        and found["conformance"] is None
        and all(word in first for word in ("no requirement is attested", *named))
    )


def test_without_a_record_nothing_is_attested(attest: Any) -> None:
    assert nothing_is_attested(attest(), "there is no conformance record", "conformance.json")


def test_state_in_memory_has_no_record(attest: Any) -> None:
    code, found, (told,) = attest("-s", "WALSH_STATE_DIR=memory")
    assert (code, found) == (2, {})
    assert "WALSH_STATE_DIR is memory" in told


@pytest.mark.parametrize(
    "other",
    [
        {"code": "0" * 64},
        {"tool_version": "0.0.9"},
        {"tool": "another"},
        {"spec": "walsh-research-compliance/v1.2"},
        {"user_agent": "Mozilla/5.0 (compatible; ExampleBot/1.0; +http://operator.test/bot/)"},
    ],
    ids=str,
)
def test_record_of_another_build_attests_nothing(
    attest: Any, folder: Path, other: dict[str, str]
) -> None:
    put_record(folder / "r.json", **other)
    (value,) = other.values()
    assert nothing_is_attested(attest("--record", "r.json"), "r.json", value)


@pytest.mark.parametrize("name", ["scrapy", "protego"])
def test_record_with_another_scrapy_attests_nothing(attest: Any, folder: Path, name: str) -> None:
    installed = {each: version(each) for each in ("scrapy", "protego")}
    put_record(folder / "r.json", versions={**installed, "python": "2.7"})
    assert attest("--record", "r.json")[0] == 0
    put_record(folder / "r.json", versions={**installed, name: "0.1"})
    assert nothing_is_attested(attest("--record", "r.json"), name, "0.1")
    put_record(folder / "r.json", versions={"python": "3.11"})
    assert nothing_is_attested(attest("--record", "r.json"), "scrapy", "None")


def test_record_of_a_live_run_attests_nothing(attest: Any, folder: Path) -> None:
    put_record(folder / "r.json", live=True)
    assert nothing_is_attested(attest("--record", "r.json"), "--live")


def test_record_of_another_source_file_attests_nothing(
    attest: Any, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The digest is looked up anew: a file that changed after the run is another build."""
    put_record(folder / "r.json")
    assert attest("--record", "r.json")[0] == 0
    monkeypatch.setattr(document, "code_digest", lambda: "f" * 64)
    assert nothing_is_attested(attest("--record", "r.json"), "code")


@pytest.mark.parametrize(
    ("run", "here", "named"),
    [
        ({"WALSH_MIN_INTERVAL": "5"}, (), "WALSH_MIN_INTERVAL 5.0, here 1.0"),
        ({"DOWNLOAD_DELAY": "5"}, (), "WALSH_MIN_INTERVAL 5.0, here 1.0"),
        ({"WALSH_MIN_INTERVAL": 5}, ("WALSH_MIN_INTERVAL=2",), "WALSH_MIN_INTERVAL 5.0, here 2.0"),
        ({"WALSH_MAX_RETRIES": 1}, (), "WALSH_MAX_RETRIES 1, here 5"),
        ({"WALSH_BACKOFF_BASE": 10}, ("WALSH_BACKOFF_BASE=0.5",), "WALSH_BACKOFF_BASE 10.0, here"),
        ({"WALSH_BACKOFF_CAP": 90.0}, (), "WALSH_BACKOFF_CAP"),
        ({"WALSH_ROBOTS_TTL": 60}, (), "WALSH_ROBOTS_TTL 60.0, here 86400.0"),
        ({"WALSH_ROBOTS_UNREACHABLE": "deny"}, (), "WALSH_ROBOTS_UNREACHABLE deny, here allow"),
        ({"WALSH_PACE_ROBOTS": "True"}, (), "WALSH_PACE_ROBOTS True, here False"),
        ({"WALSH_REVISIT": 604_800}, (), "WALSH_REVISIT 604800.0, here 86400.0"),
        ({"WALSH_MIN_INTERVAL": 0.1}, (), "nothing can run"),
        ({"WALSH_MIN_INTERVAL": []}, (), "nothing can run"),
        (None, (), "does not say"),
    ],
)
def test_record_of_stricter_settings_attests_nothing(
    attest: Any, folder: Path, run: Any, here: tuple[str, ...], named: str
) -> None:
    put_record(folder / "r.json", settings={"mirrored": True, "overrides": run})
    given = [word for setting in here for word in ("-s", setting)]
    assert nothing_is_attested(attest("--record", "r.json", *given), "r.json", named)


@pytest.mark.parametrize(
    ("run", "here"),
    [
        ({}, "WALSH_MIN_INTERVAL=2"),
        ({"WALSH_MIN_INTERVAL": "2"}, "WALSH_MIN_INTERVAL=2"),
        ({"WALSH_MIN_INTERVAL": "2"}, "DOWNLOAD_DELAY=2"),
        ({}, "WALSH_ROBOTS_UNREACHABLE=defer"),
        ({"WALSH_LEDGER": False, "LOG_LEVEL": "DEBUG"}, "WALSH_EXCLUDED_TLDS=gov"),
    ],
)
def test_stricter_project_keeps_what_the_run_showed(
    attest: Any, folder: Path, run: dict[str, Any], here: str
) -> None:
    put_record(folder / "r.json", settings={"mirrored": True, "overrides": run})
    code, found, told = attest("--record", "r.json", "-s", here)
    assert (code, found["requirements"]) == (0, dict.fromkeys(IDS, True))
    assert told == []


def test_edited_record_attests_nothing(attest: Any, folder: Path) -> None:
    path = put_record(folder / "r.json", checks=[check("R1", "FAIL"), check("R2")])
    path.write_text(path.read_text().replace("FAIL", "PASS"))
    assert nothing_is_attested(attest("--record", "r.json"), "digest")


@pytest.mark.parametrize("body", [b"", b"[]", b"\xff", b'{"contract": "walsh-conformance/v2"}'])
def test_file_that_is_no_record_attests_nothing(attest: Any, folder: Path, body: bytes) -> None:
    (folder / "r.json").write_bytes(body)
    assert nothing_is_attested(attest("--record", "r.json"), "r.json")


# -- requirement by requirement -----------------------------------------------------------


@pytest.mark.parametrize("outcome", ["FAIL", "NOT SEEN"])
def test_one_check_that_did_not_pass(attest: Any, folder: Path, outcome: str) -> None:
    checks = [check(id_) for id_ in IDS]
    checks.append(check("R4b", outcome, title="spacing", detail="gap=1.2s"))
    put_record(folder / "r.json", checks=checks)
    code, found, told = attest("--record", "r.json")
    assert code == 1
    assert found["requirements"] == {**dict.fromkeys(IDS, True), "R4": False}
    assert told[0] == f"walsh attest: R4 is not attested: {outcome}: R4b spacing (gap=1.2s)"


def test_requirement_without_a_check_is_false(attest: Any, folder: Path) -> None:
    put_record(folder / "r.json", checks=[check(id_) for id_ in IDS if id_ != "R7"])
    code, found, told = attest("--record", "r.json")
    assert code == 1
    assert found["requirements"] == {**dict.fromkeys(IDS, True), "R7": False}
    assert "R7 is not attested: NOT SEEN" in told[0]


def test_no_checks_at_all() -> None:
    assert values([]) == dict.fromkeys(IDS, False)


@pytest.mark.parametrize("part", [id_ for id_ in IDS if id_[-1].isalpha()])
def test_part_that_failed_or_was_not_seen_makes_the_whole_false(part: str) -> None:
    others = [check(id_) for id_ in IDS if id_ != part]
    expected = {**dict.fromkeys(IDS, True), part: False, part[:2]: False}
    assert values([*others, check(part, "FAIL")]) == expected
    assert values([*others, check(part), check(part, "NOT SEEN")]) == expected
    assert values(others) == expected


def test_each_check_that_failed_is_told_of_once(attest: Any, folder: Path) -> None:
    checks = [check(id_, "FAIL" if id_ in ("R2", "R2b") else "PASS") for id_ in IDS]
    put_record(folder / "r.json", checks=checks)
    assert [line.partition("attest: ")[2] for line in attest("--record", "r.json")[2]] == [
        "R2 is not attested: FAIL: R2 title",
        "R2 is not attested: these parts of it are not: R2b",
        "R2b is not attested: FAIL: R2b title",
    ]


def test_ids_are_told_apart() -> None:
    """R1 is not R10, and R2 is no part of R2a."""
    checks = [check(id_) for id_ in IDS if id_ not in ("R10", "R2", "R2a")]
    found = values([*checks, check("R10", "FAIL"), check("R2", "FAIL"), check("R2a")])
    assert {id_ for id_, value in found.items() if value is not True} == {"R10", "R2"}


def test_check_of_something_else_is_not_swallowed() -> None:
    found = values([*(check(id_) for id_ in IDS), check("R14", "FAIL")])
    assert found == {**dict.fromkeys(IDS, True), "R14": False}


# -- settings -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "id_", "value"),
    [
        ({"WALSH_FOLLOW_LINKS": True}, "R6", False),
        ({"WALSH_SCRAPING": True}, "R9", False),
        ({"WALSH_BACKOFF_BASE": 0.5}, "R5", False),
        ({"WALSH_BACKOFF_CAP": 30.0}, "R5", False),
        ({"WALSH_STATE_DIR": "memory"}, "R11", False),
        ({"WALSH_REVISIT": 3600.0}, "R8", "operator-responsibility"),
        ({"WALSH_REVISIT_REASON": "asked to"}, "R8", "operator-responsibility"),
    ],
)
def test_setting_that_undoes_a_requirement(settings: dict[str, Any], id_: str, value: Any) -> None:
    passed = [check(each) for each in IDS]
    assert values(passed, **settings) == {**dict.fromkeys(IDS, True), id_: value}
    failed = [check(each, "FAIL" if each == id_ else "PASS") for each in IDS]
    assert values(failed, **settings)[id_] is False, "what failed is not left to the operator"


def test_stricter_settings_undo_nothing() -> None:
    stricter = {
        "WALSH_MIN_INTERVAL": 5.0,
        "WALSH_MAX_RETRIES": 1,
        "WALSH_BACKOFF_BASE": 2.0,
        "WALSH_BACKOFF_CAP": 90.0,
        "WALSH_REVISIT": 90_000.0,
        "WALSH_PACE_ROBOTS": True,
    }
    assert values([check(id_) for id_ in IDS], **stricter) == dict.fromkeys(IDS, True)


def test_operators_responsibility_is_no_yes(attest: Any, folder: Path) -> None:
    put_record(folder / "r.json")
    code, found, told = attest("--record", "r.json", "-s", "WALSH_REVISIT=3600")
    assert (code, found["requirements"]["R8"]) == (1, "operator-responsibility")
    assert "WALSH_REVISIT" in told[0]


def stated(**settings: Any) -> dict[str, Any]:
    made = document.document(None, config(**settings), PAGE, {}, "now")
    return dict(json.loads(json.dumps(made)))


def test_mirrors_and_overrides_are_stated() -> None:
    own = stated()
    assert (own["mirrors"], own["overrides"]) == ({}, {})
    found = stated(
        WALSH_BLOCKLIST_URL="http://mirror.test:81/list.json",
        WALSH_BLOCKLIST_SCHEMA_URL=OWN_IDENTITY["schema_url"],
        WALSH_PACE_ROBOTS=True,
        WALSH_FOLLOW_LINKS=True,
        WALSH_MIN_INTERVAL="2",
        WALSH_EXCLUDED_TLDS=["gov", ".mil"],
        DOWNLOAD_DELAY=3,
    )
    assert found["mirrors"] == {"WALSH_BLOCKLIST_URL": "http://mirror.test:81/list.json"}
    assert found["overrides"] == {"WALSH_MIN_INTERVAL": 3.0, "WALSH_EXCLUDED_TLDS": ["gov", ".mil"]}
    assert found["WALSH_PACE_ROBOTS"] is found["WALSH_FOLLOW_LINKS"] is True


def test_paths_and_passwords_are_not_published() -> None:
    pytest.importorskip("redis")
    found = stated(WALSH_STATE_DIR="/srv/secret", WALSH_SHARED_STATE="redis://:secret@h.test/0")
    assert found["overrides"] == {"WALSH_SHARED_STATE": "set"}
    assert "secret" not in json.dumps(found)
