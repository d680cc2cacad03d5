"""``from scrapy_walsh import ...``: which names there are, what they are, and what they load."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scrapy.exceptions import IgnoreRequest

import scrapy_walsh
from scrapy_walsh import Verdict, check, signals
from scrapy_walsh.commands.main import main
from scrapy_walsh.exceptions import DocumentInvalid
from scrapy_walsh.proof.sandbox import blocklist

ROOT = Path(__file__).parent.parent
ROBOTS = b"User-agent: *\nDisallow: /private\nAllow: /page\nDisallow: /*.ph\n"
LIST = json.dumps(blocklist()).encode()
TOKEN = "ExampleBot"


def test_the_public_face_is_frozen() -> None:
    """What a project may import; a name is added here when it is meant to stay."""
    assert scrapy_walsh.__all__ == [
        "SPEC_VERSION", "Addon", "GaveUp", "NotModified", "Refused", "RobotParser", "Verdict",
        "WalshError", "__version__", "check", "robots",
    ]  # fmt: skip
    for name in scrapy_walsh.__all__:
        assert getattr(scrapy_walsh, name) is not None
        assert name in dir(scrapy_walsh)


#: The pure functions that may be imported by their paths, too (D23).
PURE = {
    "policy.robots": "parse_robots", "policy.verdict": "Verdict",
    "policy.schema": "parse_blocklist", "policy.blocklist": "Blocklist",
    "policy.urls": "canonical_url",
    "policy.backoff": "parse_retry_after backoff_delay", "policy.freshness": "parse_duration",
    "policy.formats": "markdown_links", "policy.tagging": "tag_url",
}  # fmt: skip


@pytest.mark.parametrize(("module", "names"), PURE.items())
def test_the_paths_of_the_pure_functions_are_frozen(module: str, names: str) -> None:
    found = importlib.import_module(f"scrapy_walsh.{module}")
    assert all(callable(getattr(found, name)) for name in names.split())
    assert f"`scrapy_walsh.{module}`" in DOCUMENT


def test_the_links_of_a_markdown_text_are_pairs_in_order() -> None:
    from scrapy_walsh.policy.formats import markdown_links  # noqa: PLC0415

    text = "[B](http://site.test/b) and [A](http://site.test/a), [again](http://site.test/b)"
    assert markdown_links(text) == [("B", "http://site.test/b"), ("A", "http://site.test/a")]


def test_a_name_that_is_not_public_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="'scrapy_walsh' has no attribute 'Chek'"):
        scrapy_walsh.Chek  # noqa: B018


def test_the_signals_are_frozen_and_documented() -> None:
    names = [name for name in vars(signals) if name.startswith("walsh_")]
    assert names == [
        "walsh_refused", "walsh_held", "walsh_fetched", "walsh_retried", "walsh_deferred",
        "walsh_given_up", "walsh_not_modified", "walsh_answered", "walsh_too_many_redirects",
        "walsh_adopted", "walsh_rejected", "walsh_taken_up", "walsh_asked",
    ]  # fmt: skip
    assert {f"walsh_{kind}": each for kind, each in signals.OF_KIND.items()} == {
        name: vars(signals)[name] for name in names
    }
    page = (Path(__file__).parents[1] / "docs/reference.md").read_text()
    table = page.partition("## Signals")[2].partition("Scrapy's own signals")[0]
    assert set(re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)) == set(names)


def test_the_signature_of_check_is_frozen() -> None:
    assert str(inspect.signature(check)) == (
        "(url: 'str', *, robots: 'str | bytes | None' = None, "
        "blocklist: 'str | bytes | None' = None, token: 'str') -> 'Verdict'"
    )


def test_the_fields_of_a_verdict_are_frozen() -> None:
    assert [field.name for field in dataclasses.fields(Verdict)] == [
        "allowed", "name", "requirement", "reason", "document", "line", "group", "readings",
        "rule", "digest", "address", "unanswered", "cause", "due", "brief",
    ]  # fmt: skip


def test_each_outcome_is_an_ignore_request() -> None:
    for outcome in (scrapy_walsh.Refused, scrapy_walsh.NotModified, scrapy_walsh.GaveUp):
        assert issubclass(outcome, IgnoreRequest)


def test_each_error_of_ours_is_a_walsh_error() -> None:
    exceptions = importlib.import_module("scrapy_walsh.exceptions")
    found = [each for _, each in inspect.getmembers(exceptions, inspect.isclass)]
    assert scrapy_walsh.WalshError in found
    for error in found:
        assert issubclass(error, scrapy_walsh.WalshError)


# -- what is loaded -----------------------------------------------------------------------


def loaded(code: str) -> set[str]:
    """Which of the slow packages Python has loaded after *code*."""
    names = "{'scrapy', 'twisted', 'jsonschema', 'redis'}"
    code += f"\nimport sys\nprint(*({names} & sys.modules.keys()))"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return set(done.stdout.split())


CALL = "from scrapy_walsh import check; check('http://h.test/', token='B'"


@pytest.mark.parametrize(
    ("code", "slow"),
    [
        ("import scrapy_walsh", set()),
        ("from scrapy_walsh import SPEC_VERSION, Verdict, WalshError, check", set()),
        ("import scrapy_walsh; dir(scrapy_walsh)", set()),
        ("from scrapy_walsh import signals", set()),
        (f"{CALL}, robots={ROBOTS!r})", set()),
        (f"{CALL}, blocklist={LIST!r})", {"jsonschema"}),
    ],
    ids=["import", "names", "dir", "signals", "robots", "blocklist"],
)
def test_the_package_and_check_load_neither_scrapy_nor_twisted(code: str, slow: set[str]) -> None:
    assert loaded(code) == slow


# -- check --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "documents", "expected"),
    [
        ("http://h.test/private", {"robots": ROBOTS}, (False, "disallowed_explicit", "R2", 2)),
        ("http://h.test/page", {"robots": ROBOTS}, (True, "allowed_explicit", "R2", 3)),
        ("http://h.test/", {"robots": ROBOTS}, (True, "allowed_implicit", "R2", None)),
        ("http://h.test/", {"robots": b""}, (True, "allowed_implicit", "R2", None)),
        ("http://www.blocked.test/", {"blocklist": LIST}, (False, "blocked_operator", "R3", None)),
        ("http://h.test/", {"blocklist": LIST}, (True, "allowed_implicit", "R3", None)),
        ("http://h.test/", {}, (True, "allowed_implicit", "R3", None)),
        ("ftp://h.test/", {"robots": ROBOTS}, (False, "out_of_scope", "R6", None)),
        ("h.test/private", {"robots": ROBOTS}, (False, "out_of_scope", "R6", None)),
    ],
)
def test_check_answers_with_a_verdict(
    url: str, documents: dict[str, bytes], expected: tuple[bool, str, str, int | None]
) -> None:
    verdict = check(url, **documents, token=TOKEN)
    assert (verdict.allowed, verdict.name, verdict.requirement, verdict.line) == expected


def test_check_asks_the_blocklist_first() -> None:
    robots = b"User-agent: *\nDisallow: /"
    verdict = check("http://blocked.test/", robots=robots, blocklist=LIST, token=TOKEN)
    assert verdict.requirement == "R3"


def test_check_says_which_document_was_not_given() -> None:
    url = "http://h.test/"
    no_robots, no_list = "R2 is not judged: no robots.txt", "R3 is not judged: no blocklist"
    nothing = check(url, token=TOKEN).reason
    assert no_robots in nothing
    assert no_list in nothing
    assert "the blocklist given" not in nothing
    assert no_list in check(url, robots=ROBOTS, token=TOKEN).reason
    assert no_robots in check(url, blocklist=LIST, token=TOKEN).reason
    assert "not judged" not in check(url, robots=ROBOTS, blocklist=LIST, token=TOKEN).reason
    denied = check("http://h.test/private", robots=ROBOTS, token=TOKEN)
    assert "not judged" not in denied.reason


@pytest.mark.parametrize(
    "url",
    ["http://", "http:///x", "http://[::1/", "http://h.test:99999/", "https:////h.test/", "http://%/"],
)  # fmt: skip
@pytest.mark.parametrize("documents", [{}, {"robots": b""}, {"blocklist": LIST}])
def test_check_refuses_a_url_without_a_readable_host(url: str, documents: dict[str, bytes]) -> None:
    verdict = check(url, **documents, token=TOKEN)
    assert (verdict.allowed, verdict.requirement) == (False, "R3")


@given(st.text(), st.none() | st.binary(), st.sampled_from([None, LIST]))
def test_check_answers_for_any_text(url: str, robots: bytes | None, document: bytes | None) -> None:
    verdict = check(url, robots=robots, blocklist=document, token=TOKEN)
    assert verdict.reason.isprintable()


@pytest.mark.parametrize("token", ["ExampleBot/1.0", "", "a b", "Mozilla/5.0 (compatible)", 17])
def test_r4v_2_check_takes_no_version(token: Any) -> None:
    with pytest.raises(ValueError, match="give the name alone"):
        check("http://h.test/", robots=ROBOTS, token=token)


def test_check_has_no_default_token() -> None:
    with pytest.raises(TypeError, match="token"):
        check("http://h.test/", robots=ROBOTS)  # type: ignore[call-arg]


@pytest.mark.parametrize(
    "body", [b"", b"<html>", json.dumps({**blocklist(), "updated": 17}).encode(), b"[]"]
)
def test_r3_5_check_raises_for_a_list_that_must_not_be_adopted(body: bytes) -> None:
    with pytest.raises(DocumentInvalid):
        check("http://h.test/", blocklist=body, token=TOKEN)


FILES = (
    ROBOTS,
    b"User-agent: examplebot\nDisallow: /\n\nUser-agent: *\nAllow: /",
    b"User-agent: *\nCrawl-delay: 7\nDisallow: /a*b$\nAllow: /a\n",
    b"\xef\xbb\xbfUser-agent: *\rDisallow: /caf\xe9\rDisallow: /x",
)
URLS = (
    "http://h.test/private/x", "https://H.test:8443/page.php5", "http://h.test/axb", "http://h.test/",
    "http://h.test/caf%E9", "http://www.blocked.test/x", "ftp://h.test/x", "http://[64:ff9b::1]/",
    "https:////h.test/x", "http://%/",
)  # fmt: skip


@pytest.mark.parametrize(
    ("robots", "document"),
    [*((robots, LIST) for robots in (*FILES, None)), *((robots, None) for robots in FILES)],
)
def test_check_and_the_command_give_one_answer(
    robots: bytes | None,
    document: bytes | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    options = ["--token", TOKEN, "--json"]
    for option, body in (("--robots", robots), ("--blocklist", document)):
        if body is not None:
            Path(option.strip("-")).write_bytes(body)
            options += [option, option.strip("-")]
    for url in URLS:
        verdict = check(url, robots=robots, blocklist=document, token=TOKEN)
        code = main(["check", url, *options])
        said, errors = capsys.readouterr()
        if code == 2:  # the command says that there is no URL to judge
            assert (verdict.allowed, errors.count("\n")) == (False, 1)
            continue
        answer = json.loads(said)
        assert code == (not verdict.allowed)
        assert (answer["allowed"], answer["verdict"], answer["requirement"], answer["reason"]) == (
            verdict.allowed,
            verdict.name,
            verdict.requirement,
            verdict.reason,
        )
        assert (answer["line"], answer["group"]) == (verdict.line, list(verdict.group))
        assert answer.get("readings", {}) == dict(verdict.readings)


# -- docs ---------------------------------------------------------------------------------

DOCUMENT = (ROOT / "docs/api.md").read_text()


def test_docs_show_what_check_answers() -> None:
    names: dict[str, Any] = {}
    shown = 0
    for block in re.findall(r"```python\n(.*?)```", DOCUMENT, re.DOTALL):
        exec(block, names)  # noqa: S102  our own documentation
        for code, value in re.findall(r"^(\S.*?)(?:  |\n)# (.*)$", block, re.MULTILINE):
            assert eval(code, names) == eval(value), code  # noqa: S307
            shown += 1
    assert shown == 9


def test_docs_name_the_public_face_and_every_field() -> None:
    for name in scrapy_walsh.__all__:
        assert f"`{name}`" in DOCUMENT
    table = DOCUMENT.partition("## A verdict")[2]
    rows = re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)
    assert rows == [field.name for field in dataclasses.fields(Verdict)]
