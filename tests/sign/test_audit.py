"""A site owner who logged the three fields tells the bot's requests from forged ones, offline."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from scrapy_walsh.commands.main import main
from tests.crawl.harness import keygen, site, solo
from tests.kit import line, quoted, written
from tests.sign.test_signature import OTHER, Signer
from tests.sign.verifier import NAMES

if TYPE_CHECKING:
    from scrapy_walsh.proof.sandbox import LoggedRequest

AGENT = "Mozilla/5.0 (compatible; ExampleBot/1.0; +https://operator.test/bot/)"
HOST = "site.test"


class Given(NamedTuple):
    folder: Path
    log: list[LoggedRequest]
    directory: str

    def entries(self, host: str = HOST) -> list[LoggedRequest]:
        return [each for each in self.log if each.host == host]


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory) -> Given:
    folder = tmp_path_factory.mktemp("audited")
    settings, _ = keygen(folder / "keys")
    urls = [f"http://{host}/{page}" for host in (HOST, "other.test") for page in ("a", "b?q=1")]
    sites = (site(HOST), site("other.test"))
    run = solo(folder / "project", *urls, sites=sites, settings=settings)
    return Given(folder, run.log, str(folder / "keys/http-message-signatures-directory"))


def logged(
    request: LoggedRequest, values: tuple[str, ...] | None = None, *, path: str = "", at: float = 0
) -> str:
    """What nginx would log, the three fields at the end; *values* in place of its own."""
    sent = [", ".join(request.values(name)) or "-" for name in NAMES]
    target = path or request.target.removeprefix(f"http://{request.host}")
    begun = line(request.wall + at, target, agent=AGENT, method=request.method)
    return " ".join([begun, *(f'"{quoted(each)}"' for each in values or sent)])


def audit(given: Given, lines: list[str], capsys: pytest.CaptureFixture[str], *more: str) -> Any:
    name = written(given.folder / "access.log", lines)
    code = main(
        ["audit", name, "--host", HOST, "--token", "ExampleBot", "--user-agent", AGENT,
         "--directory", given.directory, *more]
    )  # fmt: skip
    told = capsys.readouterr()
    return code, told.out, told.err


def test_the_bots_own_requests_are_judged_and_the_key_is_named(
    given: Given, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = [logged(each) for each in given.entries()]
    code, out, _ = audit(given, lines, capsys, "--json")
    found = json.loads(out)
    (kid,) = [key["kid"] for key in json.loads(Path(given.directory).read_text())["keys"]]
    assert found["requests"] == len(lines) == 3
    assert (found["signed_by"], found["not_signed"]) == ({kid: 3}, [])
    assert code == 0


def forged(given: Given) -> dict[str, tuple[str, str]]:
    """Lines that are not the bot's own: by name, the line and the reason."""
    page = given.entries()[1]
    own = tuple(page.values(name)[0] for name in NAMES)
    theirs = given.entries("other.test")[1]
    assert theirs.path == page.path
    other = tuple(theirs.values(name)[0] for name in NAMES)
    sent = Signer(OTHER, "https://operator.test/").fields
    from scrapy_walsh.policy.urls import Target  # noqa: PLC0415

    key = tuple(sent(Target("GET", HOST, "/a"), page.wall).values())
    return {
        "unsigned": (logged(page, ("-", "-", "-")), "no signature"),
        "of another host": (logged(page, other), "a signature of another request"),
        "of another path": (logged(page, own, path="/private"), "a signature of another request"),
        "expired": (logged(page, own, at=400), "not the time"),
        "by another key": (logged(page, key), "another key"),
        "sent again": (logged(page, own, at=1), "a signature sent again"),
        "not logged": (logged(page).partition(' "sig')[0], "no signature"),
        "unreadable": (logged(page, ("x", "(((", "=")), "a signature that cannot be read"),
    }


def test_each_forged_request_is_told_apart_and_named(
    given: Given, capsys: pytest.CaptureFixture[str]
) -> None:
    bad = forged(given)
    lines = [logged(each) for each in given.entries()] + [each for each, _ in bad.values()]
    _, out, _ = audit(given, lines, capsys, "--json")
    found = json.loads(out)
    places = [each.partition(": ") for each in found["not_signed"]]
    told = {int(place.rpartition(":")[2]): why for place, _, why in places}
    assert found["requests"] == 3
    for number, (name, (_, why)) in enumerate(bad.items(), 4):
        assert why in told[number], name
    assert len(told) == len(bad)
    code, out, _ = audit(given, lines, capsys)
    assert "not judged: no signature (2), a signature of another request (2)" in out
    assert code == 0


def test_a_forger_breaks_no_promise_of_the_bot(
    given: Given, capsys: pytest.CaptureFixture[str]
) -> None:
    """A hundred requests in one second under its name: broken, unless the signatures are read."""
    own = [logged(each) for each in given.entries()]
    forged_lines = [logged(given.entries()[1], ("-", "-", "-"), path=f"/{n}") for n in range(100)]
    code, out, _ = audit(given, [*own, *forged_lines], capsys)
    assert code == 0, out
    name = written(given.folder / "access.log", [*own, *forged_lines])
    words = ["audit", name, "--host", HOST, "--token", "ExampleBot", "--user-agent", AGENT]
    assert main(words) == 1


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (lambda given: [forged(given)["unsigned"][0]], "none is by a key of the directory"),
        (lambda given: [forged(given)["not logged"][0]], "none is by a key of the directory"),
    ],
)
def test_where_nothing_is_the_bots_nothing_is_judged(
    given: Given, capsys: pytest.CaptureFixture[str], lines: Any, said: str
) -> None:
    code, out, err = audit(given, lines(given), capsys)
    assert (code, out) == (2, "")
    assert said in err
    assert len(err.splitlines()) == 1


@pytest.mark.parametrize("body", [b"", b"[]", b'{"keys": []}', b'{"keys": [{"kty": "OKP"}]}'])
def test_a_directory_that_is_none_is_misuse(
    given: Given, capsys: pytest.CaptureFixture[str], body: bytes
) -> None:
    bad = given._replace(directory=str(given.folder / "bad"))
    (given.folder / "bad").write_bytes(body)
    code, out, err = audit(bad, [logged(given.entries()[1])], capsys)
    assert (code, out) == (2, "")
    assert "--directory" in err
