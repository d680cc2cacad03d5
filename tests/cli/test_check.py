"""``walsh check``: offline from files, in batches, and online against the sandbox's log."""

from __future__ import annotations

import io
import json
import os
import re
import shlex
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from scrapy_walsh.commands.main import main
from scrapy_walsh.policy.identity import WALSH_RESEARCH
from scrapy_walsh.proof.sandbox import Route, Sandbox, blocklist, default_sites, hosts
from scrapy_walsh.state import open_store
from scrapy_walsh.state.records import StoredDocument
from tests.crawl.harness import (
    OPERATOR,
    OWN_IDENTITY,
    USER_AGENT,
    make_project,
    run_scrapy,
    site,
    walsh,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ROOT = Path(__file__).parents[2]
OWN = json.dumps(OWN_IDENTITY)
LIST = "/.well-known/walsh-research/blocklist.json"
MEMBERS = [
    "url", "allowed", "verdict", "requirement", "reason", "document", "line", "group",
    "crawl_delay",
]  # fmt: skip
ROBOTS = """\
User-agent: *
Crawl-delay: 7
Disallow: /private
Allow: /private/open
Allow: /page
Disallow: /*.ph

User-agent: OtherBot
Disallow: /
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory outside any project, with the two documents."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "robots.txt").write_text(ROBOTS)
    (tmp_path / "blocklist.json").write_text(json.dumps(blocklist()))
    return tmp_path


@pytest.fixture
def told(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, dict[str, Any]]]:
    """Run ``check ARGUMENTS --json``; exit code and answer."""

    def _told(*arguments: str) -> tuple[int, dict[str, Any]]:
        code = main(["check", *arguments, "--json"])
        return code, json.loads(capsys.readouterr().out)

    return _told


@pytest.fixture
def batch(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., tuple[int, list[dict[str, Any]]]]:
    """Run ``check --batch`` on lines: octets as they are, other values as JSON."""

    def _batch(*lines: Any, options: tuple[str, ...] = ()) -> tuple[int, list[dict[str, Any]]]:
        octets = [each if isinstance(each, bytes) else json.dumps(each).encode() for each in lines]
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"\n".join(octets))))
        code = main(["check", "--batch", *options])
        return code, [json.loads(line) for line in capsys.readouterr().out.splitlines()]

    return _batch


# -- from files ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "code", "verdict", "line"),
    [
        ("/private/x", 1, "disallowed_explicit", 3),
        ("/private/open", 0, "allowed_explicit", 4),
        ("/other", 0, "allowed_implicit", None),
        ("/robots.txt", 0, "allowed_implicit", None),
    ],
)
def test_robots_file(told: Any, path: str, code: int, verdict: str, line: int | None) -> None:
    found, answer = told(f"http://h.test{path}", "--robots", "robots.txt")
    assert (found, answer["verdict"], answer["line"]) == (code, verdict, line)
    assert answer["allowed"] is (code == 0)
    assert list(answer) == MEMBERS
    assert answer["url"] == f"http://h.test{path}"
    assert (answer["requirement"], answer["document"]) == ("R2", "robots.txt")
    assert (answer["group"], answer["crawl_delay"]) == (["*"], 7)


def test_readings_where_they_differ(told: Any) -> None:
    code, answer = told("http://h.test/page.php5", "--robots", "robots.txt")
    assert code == 1
    assert list(answer) == [*MEMBERS, "readings"]
    assert set(answer["readings"].values()) == {True, False}


def test_a_list_that_a_crawl_takes_is_read_however_long(told: Any) -> None:
    text = Path("blocklist.json").read_text()
    Path("long.json").write_text(text + " " * (65 << 20))
    assert told("http://blocked.test/", "--blocklist", "long.json")[0] == 1


def test_blocklist_comes_before_robots_txt(told: Any) -> None:
    both = ("--robots", "robots.txt", "--blocklist", "blocklist.json")
    code, answer = told("http://www.blocked.test/private/x", *both)
    assert (code, answer["verdict"], answer["requirement"]) == (1, "blocked_operator", "R3")
    assert answer["document"] == "blocklist.json"
    code, answer = told("http://h.test/private/x", *both)
    assert (code, answer["requirement"]) == (1, "R2")


def test_what_is_not_given_is_not_judged_and_said(told: Any) -> None:
    _, robots_alone = told("http://blocked.test/other", "--robots", "robots.txt")
    assert robots_alone["allowed"]
    assert "R3 is not judged" in robots_alone["reason"]
    code, list_alone = told("http://h.test/private/x", "--blocklist", "blocklist.json")
    assert (code, list_alone["verdict"], list_alone["requirement"]) == (0, "allowed_implicit", "R3")
    assert "R2 is not judged" in list_alone["reason"]
    _, both = told("http://h.test/other", "--robots", "robots.txt", "--blocklist", "blocklist.json")
    assert "not judged" not in both["reason"]
    _, denied = told("http://h.test/private/x", "--robots", "robots.txt")
    assert "not judged" not in denied["reason"]


def test_other_gates_offline(told: Any) -> None:
    code, answer = told("http://a.GOV/x", "--robots", "robots.txt", "-s", "WALSH_EXCLUDED_TLDS=gov")
    assert (code, answer["verdict"]) == (1, "excluded_tld")
    code, answer = told("ftp://h.test/x", "--robots", "robots.txt")
    assert (code, answer["verdict"]) == (1, "out_of_scope")


def test_token(told: Any) -> None:
    url = "http://h.test/other"
    assert told(url, "--robots", "robots.txt", "--token", "OtherBot")[0] == 1
    identity = json.dumps({**OWN_IDENTITY, "product": "OtherBot/1.0"})
    code, answer = told(url, "--robots", "robots.txt", "--identity", identity)
    assert (code, answer["group"]) == (1, ["otherbot"])


@pytest.mark.parametrize(
    ("written", "url"),
    [
        ("example.com/x", "https://example.com/x"),
        ("example.com:8080/x", "https://example.com:8080/x"),
        ("localhost", "https://localhost"),
        ("http://example.com/a b", "http://example.com/a b"),
    ],
)
def test_bare_host_is_https(told: Any, written: str, url: str) -> None:
    assert told(written, "--robots", "robots.txt")[1]["url"] == url


def test_robots_txt_is_read_as_octets(told: Any, folder: Path) -> None:
    (folder / "odd.txt").write_bytes(b"\xef\xbb\xbfUser-agent: *\rDisallow: /caf\xe9\rDisallow: /x")
    assert told("http://h.test/x", "--robots", "odd.txt")[0] == 1


def test_file_from_standard_input(told: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(ROBOTS.encode())))
    assert told("http://h.test/private", "--robots", "-")[0] == 1


def test_readable_answer(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "http://h.test/page.php5\u202e", "--robots", "robots.txt"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == r"denied: http://h.test/page.php5\u202e"
    said = dict(line.split(maxsplit=1) for line in lines[1:])
    assert said["verdict"] == "disallowed_explicit (R2)"
    assert said["line"] == "6"
    assert said["Crawl-delay"] == "7 s"
    assert "allowed" in said["readings"]
    assert "denied" in said["readings"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "give a URL"),
        (["http://h.test/", "--robots", "nowhere.txt"], "nowhere.txt"),
        (["http://h.test/", "--robots", "."], "cannot read"),
        (["http://h.test/", "--blocklist", "robots.txt"], "not JSON"),
        (["http://[::1/", "--robots", "robots.txt"], "not a URL"),
        (["http://h.test:99999/", "--robots", "robots.txt"], "port above 65535"),
        (["http://", "--robots", "robots.txt"], "no host"),
        (["/private", "--robots", "robots.txt"], "no host"),
        (["mailto:a@h.test", "--robots", "robots.txt"], "no host"),
        (["http://h.test/", "--robots", "-", "--blocklist", "-"], "standard input"),
        (["http://h.test/", "--robots", "robots.txt", "--token", "Bot/1.0"], "token"),
        (["http://h.test/", "--robots", "robots.txt", "--identity", "nobody"], "WALSH_IDENTITY"),
        (["http://h.test/", "--robots", "robots.txt", "-s", "WALSH_PATIENCE"], "NAME=VALUE"),
        (["http://h.test/", "--batch"], "--batch"),
        (["--batch", "--robots", "-"], "--batch"),
        (["http://h.test/", "--fetch", "--token", "Bot"], "--fetch sends: leave out"),
        (["http://h.test/", "--fetch"], "--identity"),
        (["--fetch"], "give a URL"),
        (["http://h.test/", "http://i.test/"], "give one URL; several with --fetch"),
        (["http://h.test/", "--token", "Bot"], "--robots FILE, or fetch it"),
        (["http://h.test/"], "--identity"),
        (["http://h.test/"], "`walsh init`"),
        (["http://h.test/"], "R1.4"),
        (["http://h.test/", "--identity", "walsh-research"], "operator of wal.sh/bot"),
        (["http://h.test/", "-s", "WALSH_IDENTITY=walsh-research"], "make your own"),
        (["http://h.test/", "--identity", OWN, "-s", "WALSH_PATIENCE=x"], "PATIENCE"),
    ],
)
def test_misuse_is_one_line(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str], folder: Path
) -> None:
    assert main(["check", *arguments]) == 2
    output, errors = capsys.readouterr()
    assert (output, len(errors.splitlines())) == ("", 1)
    assert errors.startswith("walsh check: ")
    assert said in errors
    assert not (folder / ".scrapy").exists()


@pytest.mark.parametrize("arguments", [["--batch"], ["http://h.test/", "--robots", "-"]])
def test_closed_standard_input_is_one_line(
    arguments: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", None)
    assert main(["check", *arguments]) == 2
    assert capsys.readouterr().err == "walsh check: standard input is closed\n"


@pytest.mark.parametrize(("path", "code"), [("/private", 1), ("/other", 0)])
def test_closed_standard_output_leaves_the_exit_code(
    path: str, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdout", None)
    assert main(["check", f"http://h.test{path}", "--robots", "robots.txt"]) == code


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")
@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["http://h.test/private", "--robots", "robots.txt"], ""),
        (["http://h.test/private", "--robots", "robots.txt", "--json"], ""),
        (["--batch"], '{"robots": "", "url": "http://h.test/"}'),
    ],
)
def test_an_answer_that_cannot_be_written_is_unknown_and_not_denied(
    arguments: list[str], line: str
) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [*COMMAND, *arguments],
            env=child_environment(),
            input=line,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
            check=False,
        )
    assert done.returncode == 2
    assert done.stderr == "walsh check: [Errno 28] No space left on device\n"


def test_unknown_option() -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["check", "http://h.test/", "--bogus"])


@pytest.mark.parametrize(
    "change",
    [
        {"contract": "walsh-research-blocklist/v2"},
        {"schema": False},
        {"updated": 17},
        {"blocked": [{"host": "h.test"}], "schema": {}},
        {"schema": {"$ref": "http://other.test/s.json"}},
    ],
)
def test_invalid_blocklist_cannot_judge(
    change: dict[str, Any], folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "bad.json").write_text(json.dumps({**blocklist(), **change}))
    assert main(["check", "http://h.test/", "--blocklist", "bad.json"]) == 2
    assert "blocklist" in capsys.readouterr().err


def test_long_blocklist_without_a_schema(told: Any, folder: Path) -> None:
    domains = [f"h{number}.test" for number in range(3000)]
    document = blocklist("http://operator.test", *domains, inline=False)
    (folder / "long.json").write_text(json.dumps(document))
    assert told("http://h2999.test/", "--blocklist", "long.json")[0] == 1
    assert told("http://h3000.test/", "--blocklist", "long.json")[0] == 0


# -- batch --------------------------------------------------------------------------------

WEBCANON = [
    (["Disallow: /private"], "/private/a", "disallowed_explicit"),
    (["Disallow: /private"], "/public", "allowed_implicit"),
    (["Disallow: /docs", "Allow: /docs/public"], "/docs/public/a", "allowed_explicit"),
    (["Disallow: /docs", "Allow: /docs/public"], "/docs/secret", "disallowed_explicit"),
    (["Disallow: /*.pdf$"], "/file.pdf", "disallowed_explicit"),
    (["Disallow: /*.pdf$"], "/file.pdf?x=1", "allowed_implicit"),
]


def entry(rules: list[str], path: str, **more: Any) -> dict[str, Any]:
    return {"robots": "\n".join(["User-agent: *", *rules]), "url": f"http://h.test{path}", **more}


def test_webcanon_examples_in_a_batch(batch: Any) -> None:
    code, answers = batch(*(entry(rules, path) for rules, path, _ in WEBCANON))
    assert code == 0
    assert [answer["verdict"] for answer in answers] == [verdict for _, _, verdict in WEBCANON]
    assert [answer["url"] for answer in answers] == [
        f"http://h.test{path}" for _, path, _ in WEBCANON
    ]
    assert all(list(answer) == MEMBERS for answer in answers)


def test_batch_lines_fall_back_on_files(batch: Any) -> None:
    files = ("--robots", "robots.txt", "--blocklist", "blocklist.json")
    code, answers = batch(
        {"url": "http://h.test/private"},
        {"url": "http://h.test/other"},
        entry(["Disallow: /other"], "/private"),
        {"url": "http://blocked.test/other"},
        options=files,
    )
    assert code == 0
    assert [answer["allowed"] for answer in answers] == [False, True, True, False]
    assert "not judged" not in answers[1]["reason"]


BAD_LINES = {
    "cut off": b'{"robots": ',
    "no object": b"[]",
    "no URL": {"robots": ""},
    "URL is a number": {"robots": "", "url": 17},
    "no host": {"robots": "", "url": "/x"},
    "surrogate in the host": {"robots": "", "url": "http://\ud800/"},
    "no robots": {"url": "http://h.test/"},
    "robots is null": {"robots": None, "url": "http://h.test/"},
    "robots is a list": {"robots": [], "url": "http://h.test/"},
    "a member that is not read": {"robots": "", "url": "http://h.test/", "token": "Bot"},
    "not UTF-8": b'{"robots": "caf\xe9", "url": "http://h.test/"}',
    "deep": b"[" * 100_000,
    "long number": b"1" * 5_000,
    "control characters": b"\x00\x01\x02",
}


@pytest.mark.parametrize("line", BAD_LINES.values(), ids=BAD_LINES)
def test_bad_line_is_an_error_and_the_others_get_their_answers(batch: Any, line: Any) -> None:
    good = entry(["Disallow: /"], "/x")
    code, answers = batch(good, b"", b"  ", line, good)
    assert code == 2
    assert len(answers) == 3
    assert answers[0] == answers[2]
    assert answers[0]["verdict"] == "disallowed_explicit"
    assert set(answers[1]) == {"url", "error"}
    assert answers[1]["error"].startswith("line 4: ")


def test_lone_surrogates_are_judged(batch: Any) -> None:
    code, answers = batch(
        {"robots": "User-agent: *\nDisallow: /\ud800\nDisallow: /x", "url": "http://h.test/x\udfff"}
    )
    assert (code, answers[0]["allowed"]) == (0, False)


def test_huge_robots_in_a_line(batch: Any) -> None:
    code, answers = batch(entry(["Disallow: /"] * 200_000, "/x"))
    assert (code, answers[0]["allowed"]) == (0, False)


def test_byte_order_mark_and_no_lines(batch: Any) -> None:
    assert batch() == (0, [])
    line = json.dumps(entry(["Disallow: /"], "/x")).encode()
    assert batch(b"\xef\xbb\xbf" + line)[0] == 0


COMMAND = [sys.executable, "-m", "scrapy_walsh", "check"]


def child_environment(**more: str) -> dict[str, str]:
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    return {**os.environ, "PYTHONPATH": path, **more}


def test_each_line_is_answered_at_once_and_a_gone_reader_ends_it() -> None:
    with subprocess.Popen(
        [*COMMAND, "--batch"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=child_environment(),
    ) as child:
        assert child.stdin
        assert child.stdout
        assert child.stderr
        line = json.dumps(entry(["Disallow: /"], "/x")).encode() + b"\n"
        child.stdin.write(line)
        child.stdin.flush()
        assert json.loads(child.stdout.readline())["allowed"] is False
        child.stdout.close()
        child.stdin.write(line)
        child.stdin.close()
        assert child.stderr.read() == b""
        assert child.wait(20) == 2


# -- by a name, and what is cached --------------------------------------------------------


@pytest.fixture
def cached(folder: Path) -> Path:
    """What crawls have left here: two robots.txt, and the list of walsh-research."""
    state = folder / ".scrapy" / "walsh"
    with closing(open_store(state)) as store:
        body = ROBOTS.encode()
        for key, outcome, held in (
            ("https://h.test", "parse", body),
            ("https://n.test", "no rules", b""),
        ):
            store.put(StoredDocument("robots", key, f"{key}/robots.txt", held, 1e9, 200, outcome))
        url, listed = WALSH_RESEARCH.blocklist_url, json.dumps(blocklist()).encode()
        store.put(StoredDocument("blocklist", url, url, listed, 1e9, 200, "adopted", refresh=60.0))
    return folder


@pytest.mark.parametrize(
    ("url", "token", "code", "requirement"),
    [
        ("https://h.test/private", "Bot", 1, "R2"),
        ("https://h.test/open", "Bot", 0, "R2"),
        ("https://h.test/open", "OtherBot", 1, "R2"),
        ("https://n.test/private", "Bot", 0, "R2"),
        ("https://blocked.test/", "Bot", 1, "R3"),
    ],
)
@pytest.mark.usefixtures("cached")
def test_a_name_is_judged_by_what_is_cached_and_nothing_is_sent(
    told: Any, url: str, token: str, code: int, requirement: str
) -> None:
    found, answer = told(url, "--token", token)
    assert (found, answer["requirement"]) == (code, requirement)
    if requirement == "R2":
        assert answer["document"].endswith(".test/robots.txt")
        assert answer["note"] == "as it was fetched at 2001-09-09T01:46:40Z"


@pytest.mark.usefixtures("cached")
def test_what_is_not_cached_needs_an_identity_and_is_not_called_allowed(
    capsys: pytest.CaptureFixture[str], told: Any
) -> None:
    assert main(["check", "https://other.test/", "--token", "Bot"]) == 2
    output, said = capsys.readouterr()
    assert output == ""
    assert "no robots.txt of https://other.test is cached: give --robots FILE, or fetch it" in said
    assert "--token" not in said, "it was given"
    code, answer = told("https://blocked.test/open", "--token", "Bot", "--robots", "robots.txt")
    assert (code, answer["requirement"]) == (1, "R3")  # the list that is cached still counts


@pytest.mark.usefixtures("cached")
def test_a_batch_takes_plain_urls(batch: Any) -> None:
    lines = (b"https://h.test/private", b"h.test/open", {"url": "https://h.test/private"})
    code, answers = batch(*lines, b"https://other.test/", options=("--token", "Bot"))
    assert [each.get("allowed") for each in answers] == [False, True, False, None]
    assert (code, set(answers[3])) == (2, {"url", "error"})
    assert 'give --robots FILE or {"robots": TEXT, "url": URL}' in answers[3]["error"]
    assert "--token" not in answers[3]["error"]


@pytest.mark.parametrize(
    ("body", "note"),
    [
        (b"\x7fELF\x01\x00", "this robots.txt is not text: check the answer of its host"),
        (ROBOTS.encode("utf-16"), None),
        (ROBOTS.encode(), None),
        (b"", None),
    ],
)
def test_a_robots_txt_that_is_no_text_gets_a_note(
    told: Any, folder: Path, body: bytes, note: str | None
) -> None:
    (folder / "odd.txt").write_bytes(body)
    _, answer = told("https://h.test/private", "--robots", "odd.txt")
    assert answer.get("note", "").startswith(note) if note else "note" not in answer


# -- online -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def box() -> Iterator[Sandbox]:
    with Sandbox(default_sites()) as running:
        packed = {"Content-Encoding": "br"}
        odd = Route(body=b"\x0b\x02\x80\x00\x03", content_type="text/plain", headers=packed)
        running.put(site("odd.test", robots=odd))
        yield running


def online(
    box: Sandbox, *arguments: str, identity: bool = True
) -> tuple[int, dict[str, Any], subprocess.CompletedProcess[str]]:
    """``python -m scrapy_walsh check ... --json`` outside a project, the sandbox as its proxy."""
    box.clear()
    who = ("--identity", json.dumps(OWN_IDENTITY)) if identity else ()
    done = walsh(Path.cwd(), "check", *arguments, *who, "--json", box=box, timeout=60)
    return done.returncode, json.loads(done.stdout or "{}"), done


def asked(box: Sandbox) -> list[tuple[str, str]]:
    return [(request.host, request.path) for request in box.log]


def test_online_asks_for_the_list_then_robots_txt_and_never_the_target(box: Sandbox) -> None:
    code, answer, _ = online(box, "http://path.test/private/x")
    assert asked(box) == [("operator.test", LIST), ("path.test", "/robots.txt")]
    assert {dict(each.headers).get("User-Agent") for each in box.log} == {
        "Mozilla/5.0 (compatible; ExampleBot/1.0; +http://operator.test/bot/)"
    }
    assert (code, answer["verdict"], answer["line"]) == (1, "disallowed_explicit", 2)
    assert answer["document"] == "http://path.test/robots.txt"
    assert list(answer) == MEMBERS
    code, answer, _ = online(box, "http://path.test/private/open")
    assert asked(box) == [], "the documents were held, the target is never asked"
    assert (code, answer["verdict"]) == (0, "allowed_explicit")


@pytest.mark.parametrize(
    ("host", "body", "kind", "note"),
    [
        ("binary.test", b"\x7fELF\x01\x00\x02", "application/octet-stream", "is not text"),
        ("rules.test", "User-agent: *\nDisallow: /private\n", "text/plain", None),
    ],
)
def test_a_fetched_robots_txt_that_is_no_text_gets_a_note(
    box: Sandbox, host: str, body: Any, kind: str, note: str | None
) -> None:
    box.put(site(host, robots=Route(body=body, content_type=kind)))
    _, answer, _ = online(box, f"http://{host}/private")
    assert note in answer["note"] if note else "note" not in answer


def test_fetch_requests_what_is_allowed_and_nothing_else(box: Sandbox) -> None:
    """Every gate holds, also R8, and what came is no visit that a later crawl would lack."""
    page = Route(body="\u00e9t\u00e9", content_type="text/plain", etag='"1"')
    move = Route(302, headers={"Location": "/page"})
    box.put(site("open.test", {"/page": page, "/move": move, "/none": Route(404)}))
    box.put(site("shut.test", {"/page": page}, robots="User-agent: *\nDisallow: /page\n"))
    url = "http://open.test/page"
    box.clear()
    one = walsh(Path.cwd(), "check", url, "--fetch", "--identity", OWN, box=box)
    assert (one.returncode, one.stdout, one.stderr) == (0, "ALLOW 200 (5 bytes)\n", "")
    assert asked(box)[1:] == [("open.test", "/robots.txt"), ("open.test", "/page")]
    targets = [each for each in box.log if each.path == "/page"]
    assert dict(targets[0].headers)["User-Agent"].startswith("Mozilla/5.0 (compatible; ExampleBot/")
    urls = {
        url: "DENY R8 last requested ",
        "http://open.test/none": "ALLOW 404 (",
        "http://open.test/move": "ALLOW 200 (5 bytes)",  # R8 is about the URL that was declared
        "http://shut.test/page": "DENY R2 Disallow: /page (line 2, group *)  ",
        "http://www.blocked.test/": "DENY R3 host www.blocked.test, below blocked.test, is on",
        "http://nobody.invalid:1/": "FAILED ",
    }
    box.put(site("nobody.invalid:1", {"*": Route(503)}, robots=Route(404)))
    retries = ("-s", "WALSH_MAX_RETRIES=0")
    box.clear()
    done = walsh(Path.cwd(), "check", *urls, "--fetch", "--identity", OWN, *retries, box=box)
    assert done.returncode == 2, done.stderr
    for (url, begin), line in zip(urls.items(), done.stdout.splitlines(), strict=True):
        assert line.startswith(begin), line
        assert line.endswith(f"  {url}")
    sent = [(host, path) for host, path in asked(box) if path != "/robots.txt"]
    assert sorted(sent) == [
        ("nobody.invalid:1", "/"), ("open.test", "/move"), ("open.test", "/none"),
        ("open.test", "/page"),
    ]  # fmt: skip
    reason = ("-s", "WALSH_REVISIT_REASON=a test")
    code, answer, _ = online(box, "http://open.test/page", "--fetch", *reason)
    assert (code, answer["pages"][0]["status"], answer["pages"][0]["bytes"]) == (0, 200, 5)
    assert "If-None-Match" not in dict(box.log[0].headers), "no crawl has taken its data"
    code, answer, _ = online(box, "http://shut.test/page", "--fetch")
    assert code == 1
    assert answer["pages"][0] == {
        "url": "http://shut.test/page", "allowed": False, "status": None, "bytes": None,
        "verdict": "disallowed_explicit", "requirement": "R2",
        "reason": "Disallow: /page (line 2, group *)", "document": "http://shut.test/robots.txt",
    }  # fmt: skip


def test_online_blocked_host_is_not_even_asked_for_robots_txt(box: Sandbox) -> None:
    code, answer, _ = online(box, "http://www.blocked.test/x")
    assert hosts(box.log) == ["operator.test"]
    assert (code, answer["verdict"]) == (1, "blocked_operator")
    assert answer["document"] == f"{OPERATOR}/blocklist.json"


def test_online_without_an_identity_asks_nobody(box: Sandbox, folder: Path) -> None:
    code, _, done = online(box, "http://path.test/", identity=False)
    assert (code, box.log) == (2, [])
    assert len(done.stderr.splitlines()) == 1
    assert not (folder / ".scrapy").exists()


def test_online_state_that_cannot_be_kept_asks_nobody(box: Sandbox, folder: Path) -> None:
    (folder / "file").write_text("")
    code, _, done = online(box, "http://path.test/", "-s", "WALSH_STATE_DIR=file/below")
    assert (code, box.log) == (2, [])
    assert len(done.stderr.splitlines()) == 1
    assert "WALSH_STATE_DIR" in done.stderr


@pytest.mark.parametrize(
    ("position", "code"), [("allow", 0), ("defer", 1), ("deny", 1)], ids=["allow", "defer", "deny"]
)
def test_online_unreachable_robots_txt(box: Sandbox, position: str, code: int) -> None:
    settings = ("-s", f"WALSH_ROBOTS_UNREACHABLE={position}", "-s", "WALSH_MAX_RETRIES=0")
    found, answer, _ = online(box, "http://robots-503.test/x", *settings)
    assert (found, answer["verdict"]) == (code, "unknown_unreachable")
    assert ("robots-503.test", "/x") not in asked(box)


def test_online_robots_txt_that_cannot_be_read(box: Sandbox) -> None:
    code, answer, _ = online(box, "http://odd.test/x")
    assert (code, answer["verdict"]) == (1, "unknown_parse_error")


def test_online_host_that_may_not_be_asked_is_deferred(box: Sandbox) -> None:
    code, answer, _ = online(box, "http://long-delay.test/x")
    assert (code, answer["verdict"], answer["crawl_delay"]) == (0, "allowed_implicit", 3600)
    code, answer, _ = online(box, "http://long-delay.test/x")
    assert (code, answer["verdict"], answer["requirement"]) == (1, "deferred", "R4")
    assert asked(box) == []
    code, answer, _ = online(box, "http://robots-429.test/x", "-s", "WALSH_MAX_RETRIES=0")
    assert (code, answer["verdict"]) == (1, "deferred"), "429 is never 'no rules' (D7)"


def test_online_in_a_project_its_settings_hold_and_its_outputs_rest(
    box: Sandbox, folder: Path
) -> None:
    settings = {"FEEDS": {"out.jsonl": {"format": "jsonlines"}}, "JOBDIR": "job"}
    project = make_project(folder / "project", settings=settings)
    box.clear()
    done = run_scrapy(project, box, "walsh", "check", "http://named-deny.test/x", "--json")
    answer = json.loads(done.stdout)
    assert (done.returncode, answer["group"]) == (1, ["walsh-research"])
    assert asked(box) == [("operator.test", LIST), ("named-deny.test", "/robots.txt")]
    assert {dict(each.headers).get("User-Agent") for each in box.log} == {USER_AGENT}
    assert (project / ".scrapy" / "walsh").is_dir()
    for name in ("out.jsonl", "job", "stats.json"):
        assert not (project / name).exists(), name


def test_offline_in_a_project_its_token_and_suffixes_hold(box: Sandbox, folder: Path) -> None:
    settings = {
        "WALSH_IDENTITY": {**OWN_IDENTITY, "product": "OtherBot/1.0"},
        "WALSH_EXCLUDED_TLDS": ["mil"],
    }
    project = make_project(folder / "project", settings=settings)
    robots = str(folder / "robots.txt")
    box.clear()
    done = run_scrapy(project, box, "walsh", "check", "h.test/other", "--robots", robots, "--json")
    assert json.loads(done.stdout)["group"] == ["otherbot"]
    done = run_scrapy(project, box, "walsh", "check", "h.mil", "--robots", robots, "--json")
    assert json.loads(done.stdout)["verdict"] == "excluded_tld"
    assert box.log == []


# -- docs ---------------------------------------------------------------------------------

DOCUMENT = (ROOT / "docs/check.md").read_text()


def test_docs_commands_run(box: Sandbox, folder: Path) -> None:
    blocks = re.findall(r"```bash\n(.*?)```", DOCUMENT, re.DOTALL)
    commands = [
        shlex.split(
            line.replace("https://site.example", "http://path.test").replace(
                "https://other.example", "http://rss.test"
            )
        )
        for block in blocks
        for line in block.splitlines()
    ]
    inside, fetching, *outside = commands
    assert inside[:3] == fetching[:3] == ["scrapy", "walsh", "check"]
    project = make_project(folder / "project")
    done = run_scrapy(project, box, *inside[1:])
    assert done.returncode == 1, done.stdout
    fetched = run_scrapy(project, box, *fetching[1:], apart=True)
    assert (fetched.returncode, fetched.stdout.count("ALLOW 200 (")) == (0, 2), fetched.stdout
    assert [command[:2] for command in outside] == [["walsh", "check"]] * 3
    codes = [main(command[1:]) for command in outside]
    assert codes == [1, 0, 0]


def test_docs_batch_answers_as_shown(batch: Any) -> None:
    given, shown = re.findall(r"```json\n(.*?)```", DOCUMENT, re.DOTALL)
    code, answers = batch(given.encode())
    assert code == 2
    shown_answers = [json.loads(line) for line in shown.splitlines()]
    assert answers == shown_answers


def test_docs_name_every_member() -> None:
    for name in [*MEMBERS, "readings"]:
        assert f"`{name}`" in DOCUMENT
