"""``walsh attest`` as it is run: in a project, online, signed, verified, misused; its docs."""

from __future__ import annotations

import ast
import json
import os
import re
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from cryptography.exceptions import InvalidSignature

import scrapy_walsh
from scrapy_walsh.commands import attest
from scrapy_walsh.commands.main import main
from scrapy_walsh.proof.attest.document import IDS, PolicyPage
from scrapy_walsh.proof.sandbox import Sandbox, default_sites
from tests.crawl.harness import (
    OWN_IDENTITY,
    make_project,
    run_scrapy,
    site,
    state_dir,
    walsh,
)
from tests.kit import put_record

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.usefixtures("forked")

ROOT = Path(__file__).parents[2]
WALSH = ["--identity", "walsh-research"]
#: As walsh-research, its policy page seen.
SEEN = [*WALSH, "--online"]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory outside any project, with a record; a policy page where it is due."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(attest, "look", lambda url, *_: PolicyPage(url, "now", 200))
    put_record(tmp_path / "r.json")
    return tmp_path


@pytest.fixture
def signed(folder: Path) -> Path:
    assert main(["attest", "--keygen", "keys"]) == 0
    arguments = ["--record", "r.json", "--sign", "keys/key.pem", "--output", "a.json"]
    assert main(["attest", *SEEN, *arguments]) == 0
    return folder / "a.json"


# -- no gate reads one --------------------------------------------------------------------


def imported(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module or ''}.{name.name}" for name in node.names)


def test_r14_2_no_gate_consults_an_attestation() -> None:
    package = Path(scrapy_walsh.__file__).parent
    readers = {
        path.relative_to(package).as_posix()
        for path in package.rglob("*.py")
        if any(".attest" in f".{name}" for name in imported(path))
    }
    assert readers, "the search finds nothing at all"
    assert {
        path for path in readers if not path.startswith(("proof/attest/", "commands/attest"))
    } == set()


# -- signing ------------------------------------------------------------------------------


def test_signed_document_verifies(signed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert main(["attest", "--verify", "a.json", "--jwks", "keys/jwks.json"]) == 0
    document = json.loads(signed.read_text())
    first, _, rest = capsys.readouterr().out.partition("\n")
    assert first == f"the signature holds: key {document['signature']['kid']}"
    assert json.loads(rest) == document


def test_keys_that_came_after_do_not_undo_a_signature(signed: Path) -> None:
    old = json.loads(Path("keys/jwks.json").read_text())
    main(["attest", "--keygen", "keys"])
    assert main(["attest", "--verify", "a.json", "--jwks", "keys/jwks.json"]) == 0
    arguments = ["--record", "r.json", "--sign", "keys/key.pem", "--output", "b.json"]
    assert main(["attest", *SEEN, *arguments]) == 0
    assert main(["attest", "--verify", "b.json", "--jwks", "keys/jwks.json"]) == 0
    Path("old.json").write_text(json.dumps(old))
    assert main(["attest", "--verify", "b.json", "--jwks", "old.json"]) == 1


def test_what_is_false_is_signed_as_false(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["attest", "--keygen", "keys"])
    arguments = ["--record", "none.json", "--sign", "keys/key.pem", "--output", "a.json"]
    assert main(["attest", *WALSH, *arguments]) == 1
    assert json.loads(Path("a.json").read_text())["requirements"] == dict.fromkeys(IDS, False)
    capsys.readouterr()
    assert main(["attest", "--verify", "a.json", "--jwks", "keys/jwks.json"]) == 0
    assert '"R1": false' in capsys.readouterr().out


def test_output_is_replaced_whole_or_not_at_all(
    signed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = signed.read_bytes()

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        assert main(["attest", *WALSH, "--record", "r.json", "--output", "a.json"]) == 2
    assert signed.read_bytes() == before
    assert not list(signed.parent.glob("*.part"))
    assert main(["attest", *SEEN, "--record", "r.json", "--output", "a.json"]) == 0
    assert "signature" not in json.loads(signed.read_text())


# -- misuse -------------------------------------------------------------------------------

MISUSE = {
    "no identity": ([], "--identity"),
    "bad identity": (["--identity", "nobody"], "WALSH_IDENTITY"),
    "bad setting": ([*WALSH, "-s", "WALSH_MIN_INTERVAL=0"], "WALSH_MIN_INTERVAL"),
    "no such key": ([*WALSH, "--sign", "none.pem"], "none.pem"),
    "key is a directory": ([*WALSH, "--sign", "."], "directory"),
    "output is a directory": ([*WALSH, "--output", "."], "a directory"),
    "output below a file": ([*WALSH, "--output", "r.json/x"], "r.json"),
    "output over the record": ([*WALSH, "--record", "r.json", "--output", "r.json"], "replace"),
    "keygen in a file": (["--keygen", "r.json"], "r.json"),
    "verify without keys": (["--verify", "a.json"], "--jwks"),
    "keys without verify": ([*WALSH, "--jwks", "a.json"], "--verify"),
    "no such document": (["--verify", "none.json", "--jwks", "r.json"], "none.json"),
    "no such keys": (["--verify", "r.json", "--jwks", "none.json"], "none.json"),
    "not keys": (["--verify", "r.json", "--jwks", "r.json"], "JWKS"),
    "keys by a URL": (["--verify", "r.json", "--jwks", "https://h.test/k"], "cannot read https://"),
}


@pytest.mark.parametrize(("arguments", "named"), MISUSE.values(), ids=MISUSE)
def test_misuse_is_one_line(
    arguments: list[str], named: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record = (folder / "r.json").read_bytes()
    assert main(["attest", *arguments]) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert len(told.err.splitlines()) == 1
    assert named in told.err
    assert [path.name for path in folder.iterdir()] == ["r.json"]
    assert (folder / "r.json").read_bytes() == record


@pytest.mark.parametrize(
    "arguments",
    [
        ["--keygen", "k", "--sign", "k.pem"],
        ["--keygen", "k", "--verify", "a", "--jwks", "b"],
        ["--verify", "a", "--jwks", "b", "--sign", "c"],
    ],
)
def test_one_thing_at_a_time(folder: Path, arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["attest", *arguments])
    assert stopped.value.code == 2


def test_output_never_replaces_the_key(signed: Path) -> None:
    key = Path("keys/key.pem").read_bytes()
    arguments = ["--sign", "keys/key.pem", "--output", "keys/../keys/key.pem"]
    assert main(["attest", *WALSH, *arguments]) == 2
    assert Path("keys/key.pem").read_bytes() == key


def test_without_the_extra(
    signed: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The unsigned document and keys need nothing more; a signature says what it needs."""
    monkeypatch.setitem(sys.modules, "rfc8785", None)
    for name in [name for name in sys.modules if name.startswith("scrapy_walsh.proof.attest")]:
        monkeypatch.delitem(sys.modules, name)
    assert main(["attest", *SEEN, "--record", "r.json"]) == 0
    assert main(["attest", "--keygen", "keys"]) == 0
    for arguments in (
        [*WALSH, "--sign", "keys/key.pem"],
        ["--verify", "a.json", "--jwks", "keys/jwks.json"],
    ):
        capsys.readouterr()
        assert main(["attest", *arguments]) == 2
        told = capsys.readouterr()
        assert (told.out, len(told.err.splitlines())) == ("", 1)
        assert "pip install 'scrapy-walsh[attest]'" in told.err


# -- in a project, and online -------------------------------------------------------------


@pytest.fixture(scope="module")
def box() -> Iterator[Sandbox]:
    with Sandbox([*default_sites(), site("https://wal.sh")]) as running:
        yield running


def test_in_a_project_its_record_and_settings_count(box: Sandbox, folder: Path) -> None:
    settings = {"WALSH_MIN_INTERVAL": 2}
    project = make_project(folder / "project", settings=settings)
    put_record(state_dir(project) / "conformance.json")
    box.clear()
    done = run_scrapy(project, box, "walsh", "attest", "--output", "a.json")
    assert (done.returncode, box.log) == (1, []), done.stdout
    found = json.loads((project / "a.json").read_text())
    assert found["requirements"] == {**dict.fromkeys(IDS, True), "R1": False}
    assert list(found["mirrors"]) == ["WALSH_BLOCKLIST_URL", "WALSH_BLOCKLIST_SCHEMA_URL"]
    assert found["overrides"] == {"WALSH_MIN_INTERVAL": 2.0}


@pytest.mark.parametrize(
    ("policy_url", "status", "asked"),
    [
        ("http://operator.test/bot/", 200, True),
        ("http://operator.test/none", 404, True),
        ("http://www.blocked.test/", None, False),
    ],
)
def test_r1_4_policy_page_is_asked_for_through_the_gates(
    box: Sandbox, folder: Path, policy_url: str, status: int | None, asked: bool
) -> None:
    identity = {**OWN_IDENTITY, "policy_url": policy_url}
    user_agent = f"Mozilla/5.0 (compatible; ExampleBot/1.0; +{policy_url})"
    put_record(folder / "r.json", user_agent=user_agent)
    box.clear()
    arguments = ["--online", "--record", "r.json", "--identity", json.dumps(identity)]
    done = walsh(Path.cwd(), "attest", *arguments, box=box, timeout=60)
    found = json.loads(done.stdout)
    held = status == 200
    assert found["policy_url"]["status"] == status
    assert found["policy_url"]["outcome"] == ("PASS" if held else "FAIL")
    assert found["policy_url"]["checked"]
    assert found["requirements"] == {**dict.fromkeys(IDS, True), "R1": held}
    assert done.returncode == (0 if held else 1)
    urls = [f"http://{each.host}{each.path}" for each in box.log]
    assert (policy_url in urls) is asked
    assert {dict(each.headers).get("User-Agent") for each in box.log} == {user_agent}


# -- docs ---------------------------------------------------------------------------------

DOCUMENT = (ROOT / "docs/attest.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", DOCUMENT, re.DOTALL)


def test_docs_commands_and_snippet_run(
    folder: Path, box: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = make_project(folder / "project")
    put_record(state_dir(project) / "conformance.json")
    first, second = (block.splitlines() for block in blocks("bash"))
    assert [line.split()[2] for line in first] == ["conformance", "attest"]
    assert second[0] == "pip install 'scrapy-walsh[attest]'"
    monkeypatch.chdir(project)
    for line in [first[1], *second[1:]]:
        scrapy, walsh, *arguments = shlex.split(line)
        assert (scrapy, walsh) == ("scrapy", "walsh")
        if arguments[0] == "attest" and "--keygen" in arguments:
            assert main(arguments) == 0
        else:
            done = run_scrapy(project, box, "walsh", *arguments)
            assert done.returncode == 0, done.stdout
    (snippet,) = blocks("python")
    exec(snippet, {})  # noqa: S102  our own documentation
    altered = Path("attestation.json").read_text().replace('"R8":true', '"R8":false')
    Path("attestation.json").write_text(altered)
    with pytest.raises(InvalidSignature):
        exec(snippet, {})  # noqa: S102


def test_docs_name_every_member(signed: Path) -> None:
    document = json.loads(signed.read_text())
    names = [*document, *document["conformance"], *document["policy_url"], *document["signature"]]
    for name in names:
        assert f"`{name}`" in DOCUMENT or f'"{name}"' in DOCUMENT, name
