"""The lab judges the signatures of any crawler, by the server's log and its key directory."""

from __future__ import annotations

import json
import shlex
import sys
from typing import TYPE_CHECKING, Any

import pytest

from scrapy_walsh.proof.conformance.check import judged
from scrapy_walsh.proof.conformance.scene_signing import SIGNING
from scrapy_walsh.proof.findings import Outcome
from tests.crawl.harness import KEYS_URL, keygen
from tests.kit import conformance, evidence, request
from tests.sign.test_signature import KEYS, OTHER, SIGNER, Signer, Target

if TYPE_CHECKING:
    from pathlib import Path

    from scrapy_walsh.proof.sandbox import LoggedRequest

SIGNED, LISTED, IN_TIME, OWN = (row.title for row in SIGNING.rows)
BEGAN = 1_800_000_000.0


def sent(
    host: str = "a.test",
    path: str = "/x",
    at: float = 0.0,
    *,
    fields: dict[str, str] | None = None,
    by: Signer = SIGNER,
    signed_at: float | None = None,
) -> LoggedRequest:
    """A request in the server's log, signed as it should be but for what is given."""
    when = BEGAN + (at if signed_at is None else signed_at)
    own = by.fields(Target("GET", host, path.partition("?")[0]), when)
    headers = {"Host": host, **(own if fields is None else fields)}
    return request(host, path, at, headers=tuple(headers.items()))


def outcomes(*log: LoggedRequest, keys: list[dict[str, Any]] = KEYS) -> dict[str, Outcome]:
    from dataclasses import replace  # noqa: PLC0415

    found = judged(SIGNING.rows, replace(evidence(list(log)), keys=keys))
    return {check.title: check.outcome for check in found}


GOOD = sent()
REPLAYED = {name: value for name, value in GOOD.headers if name != "Host"}
BAD = {
    "right": ([], None),
    "unsigned": ([sent(path="/y", fields={})], SIGNED),
    "expired": ([sent(path="/y", at=1000, signed_at=0)], IN_TIME),
    "of tomorrow": ([sent(path="/y", signed_at=1000)], IN_TIME),
    "another host's, replayed": ([sent("b.test", at=1, fields=REPLAYED)], OWN),
    "its own, replayed": ([sent(at=2, fields=REPLAYED)], OWN),
    "wrong key": ([sent(path="/y", by=Signer(OTHER, KEYS_URL))], LISTED),
    "unreadable": ([sent(path="/y", fields={"Signature-Input": "("})], OWN),
}


@pytest.mark.parametrize("name", BAD)
def test_each_row_sees_its_own_fault_and_no_other(name: str) -> None:
    bad, row = BAD[name]
    found = outcomes(GOOD, *bad)
    assert {title for title, outcome in found.items() if outcome is not Outcome.HELD} == (
        {row} if row else set()
    )
    if row:
        assert found[row] is Outcome.BROKEN


def test_where_nothing_was_sent_nothing_is_held() -> None:
    assert set(outcomes().values()) == {Outcome.UNSEEN}


BOT = """
import os, sys, time, urllib.request
from pathlib import Path
from urllib.parse import urlsplit
from scrapy_walsh.adapters.wire.signing import Signer
from scrapy_walsh.keys import load_private_key
from scrapy_walsh.policy.urls import target

signer = Signer(load_private_key(Path(sys.argv[1])), "https://bot.test/keys")
for url in os.environ["WALSH_LAB_URLS"].split():
    parts = urlsplit(url)
    sent = target("GET", parts.scheme, parts.netloc, parts.path)
    if sys.argv[2] == "badly":
        sent = sent._replace(authority="other.test")
    fields = signer.fields(sent, time.time())
    request = urllib.request.Request(url, headers={"User-Agent": "ExampleBot/1.0", **fields})
    urllib.request.urlopen(request).read()
"""


@pytest.mark.crawl
@pytest.mark.parametrize(("how", "outcome"), [("well", "PASS"), ("badly", "FAIL")])
def test_another_crawler_is_judged(tmp_path: Path, how: str, outcome: str) -> None:
    settings, _ = keygen(tmp_path / "keys")
    (tmp_path / "bot.py").write_text(BOT)
    command = shlex.join([sys.executable, "bot.py", settings["WALSH_SIGNING_KEY"], how])
    directory = str(tmp_path / "keys/http-message-signatures-directory")
    words = ("--only", "identity", "--command", command, "--user-agent", "ExampleBot/1.0")
    done = conformance(
        tmp_path, *words, "--token", "ExampleBot", "--directory", directory, "--json"
    )
    assert done.outcomes("R1")[OWN] == outcome, done.stderr
    plain = conformance(tmp_path, *words, "--token", "ExampleBot", "--json")
    assert OWN not in plain.outcomes("R1")


@pytest.mark.parametrize("body", ["", json.dumps({"keys": []})])
def test_a_directory_that_is_none_is_misuse(tmp_path: Path, body: str) -> None:
    (tmp_path / "keys").write_text(body)
    done = conformance(tmp_path, "--command", "true", "--directory", str(tmp_path / "keys"))
    assert (done.code, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert "--directory" in line
