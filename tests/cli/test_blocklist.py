"""``walsh blocklist``: an opt-out is one command, and what is written is what a crawl adopts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from scrapy_walsh.commands.main import main
from scrapy_walsh.proof.sandbox import Sandbox, blocklist, default_sites
from tests.crawl.harness import OPERATOR, OWN_IDENTITY, walsh

pytestmark = pytest.mark.usefixtures("forked")

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with a list that has one entry."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "blocklist.json").write_text(json.dumps(blocklist()))
    return tmp_path


def listed() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(Path("blocklist.json").read_text())["blocked"]
    return found


def is_denied(url: str) -> bool:
    return main(["check", url, "--blocklist", "blocklist.json"]) == 1


def test_r3_an_opt_out_is_one_command_and_the_gate_holds_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["blocklist", "add", "https://Shop.Site.TEST:8443/x", "--reason", "a mail"]) == 0
    said = capsys.readouterr()
    assert said.out.splitlines() == [
        "added: shop.site.test",
        "blocklist.json lists 2 domains; upload it",
        "crawls fetch it again when their copy is older than 6 h",
    ]
    assert said.err.endswith("it blocks every host below shop.site.test\n")
    entry = listed()[1]
    assert (entry["domain"], entry["reason"]) == ("shop.site.test", "a mail")
    assert is_denied("http://www.shop.site.test/x")
    assert not is_denied("http://site.test/")


def test_a_host_is_listed_once(capsys: pytest.CaptureFixture[str]) -> None:
    before = Path("blocklist.json").read_bytes()
    assert main(["blocklist", "add", "BLOCKED.test"]) == 0
    assert "on the list already: blocked.test" in capsys.readouterr().out
    assert Path("blocklist.json").read_bytes() == before


def test_a_host_below_a_listed_one_is_listed_too() -> None:
    """The opt-out of the one must not end with that of the other."""
    assert main(["blocklist", "add", "www.blocked.test"]) == 0
    assert main(["blocklist", "remove", "blocked.test"]) == 0
    assert is_denied("http://www.blocked.test/")
    assert not is_denied("http://blocked.test/")


def test_remove_takes_the_entry_and_says_what_still_blocks(
    capsys: pytest.CaptureFixture[str],
) -> None:
    main(["blocklist", "add", "www.blocked.test"])
    capsys.readouterr()
    assert main(["blocklist", "remove", "www.blocked.test"]) == 0
    said = capsys.readouterr().out
    assert "removed: www.blocked.test\nstill blocked: " in said
    assert "blocklist.json lists 1 domain; upload it" in said
    assert [entry["domain"] for entry in listed()] == ["blocked.test"]


def test_remove_of_a_host_that_has_no_entry(capsys: pytest.CaptureFixture[str]) -> None:
    before = Path("blocklist.json").read_bytes()
    assert main(["blocklist", "remove", "www.blocked.test"]) == 1
    said = capsys.readouterr()
    assert said.err == "walsh blocklist: no entry for www.blocked.test\n"
    assert "still blocked" in said.out
    assert Path("blocklist.json").read_bytes() == before


def test_an_entry_that_names_several_hosts_is_not_cut(
    capsys: pytest.CaptureFixture[str],
) -> None:
    document = blocklist("http://operator.test", "a.test, b.test")
    Path("blocklist.json").write_text(json.dumps(document))
    assert main(["blocklist", "remove", "a.test"]) == 2
    assert "names b.test as well" in capsys.readouterr().err
    assert len(listed()) == 1


def test_an_entry_that_blocks_much_is_warned_of(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["blocklist", "add", "co.uk"]) == 0
    assert "blocks every host below co.uk" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["add", "%"], "names no host"),
        (["add", ""], "names no host"),
        (["add", "a.test", "--file", "none.json"], "no none.json here"),
        (["add", "a.test", "--file", "."], "Is a directory"),
        (["add", "a.test", "--file", "bad.json"], "contract"),
        (["remove", "a.test", "--file", "bad.json"], "contract"),
        (["check", "none.json"], "no none.json here"),
        (["check", "http://operator.test/b.json"], "WALSH_IDENTITY"),
    ],
)
def test_misuse_is_one_line_and_writes_nothing(
    words: list[str], said: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "bad.json").write_text(json.dumps({**blocklist(), "contract": "another"}))
    before = {path: path.read_bytes() for path in folder.iterdir()}
    assert main(["blocklist", *words]) == 2
    output, errors = capsys.readouterr()
    assert (output, len(errors.splitlines())) == ("", 1)
    assert said in errors
    assert {path: path.read_bytes() for path in folder.iterdir()} == before


def test_r10_nothing_is_written_that_a_crawl_would_not_adopt(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    document = blocklist()
    document["schema"]["properties"]["blocked"]["maxItems"] = 1
    Path("blocklist.json").write_text(json.dumps(document))
    assert main(["blocklist", "add", "a.test"]) == 2
    assert "fails its schema" in capsys.readouterr().err
    assert json.loads(Path("blocklist.json").read_text()) == document
    assert [path.name for path in folder.iterdir()] == ["blocklist.json"]


def test_a_link_and_the_mode_of_the_file_stay(folder: Path) -> None:
    Path("real").mkdir()
    Path("blocklist.json").rename("real/list.json").chmod(0o644)
    Path("blocklist.json").symlink_to("real/list.json")
    assert main(["blocklist", "add", "a.test"]) == 0
    assert Path("blocklist.json").is_symlink()
    assert Path("real/list.json").stat().st_mode & 0o777 == 0o644
    assert len(listed()) == 2


@pytest.mark.parametrize("inline", [True, False])
def test_check_says_what_a_crawl_would_do(inline: bool, capsys: pytest.CaptureFixture[str]) -> None:
    document = blocklist("http://operator.test", "a.test", "b.test", inline=inline)
    Path("blocklist.json").write_text(json.dumps({**document, "refresh": "PT90M"}))
    assert main(["blocklist", "check"]) == 0
    lines = capsys.readouterr().out.splitlines()
    what = "2 domains, fetched again after 1 h 30 min"
    assert lines[0] == f"a crawl would adopt blocklist.json: {what}"
    assert ["it has no schema" in line for line in lines[1:]] == ([] if inline else [True])


@pytest.mark.parametrize("body", ["", "<html>", json.dumps({**blocklist(), "updated": 17})])
def test_r3_5_check_says_no_and_why(body: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path("blocklist.json").write_text(body)
    assert main(["blocklist", "check"]) == 1
    said, errors = capsys.readouterr()
    assert said.startswith("no crawl would adopt blocklist.json: ")
    assert (said.count("\n"), errors) == (1, "")


def test_a_list_at_a_url_is_asked_for_through_the_gates() -> None:
    who = ("--identity", json.dumps(OWN_IDENTITY))
    with Sandbox(default_sites()) as box:
        done = walsh(Path.cwd(), "blocklist", "check", f"{OPERATOR}/blocklist.json", *who, box=box)
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout.startswith(f"a crawl would adopt {OPERATOR}/blocklist.json: 1 domain, ")
        agents = {dict(request.headers)["User-Agent"] for request in box.log}
        assert agents == {"Mozilla/5.0 (compatible; ExampleBot/1.0; +http://operator.test/bot/)"}
        gone = walsh(Path.cwd(), "blocklist", "check", f"{OPERATOR}/none.json", *who, box=box)
        assert gone.returncode == 2
        assert gone.stderr.splitlines()[-1].endswith(f"{OPERATOR}/none.json gave no list: HTTP 404")
