"""A key that cannot be used: one line at the start, and nothing is sent unsigned."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from scrapy_walsh.config import WalshConfig
from scrapy_walsh.exceptions import ConfigError
from scrapy_walsh.proof.attest.document import PolicyPage, document
from scrapy_walsh.proof.verify.terms import broken_terms, terms_of
from tests.crawl.harness import (
    KEYS_URL,
    OWN_IDENTITY,
    SIGNING_IDENTITY,
    keygen,
    make_project,
    run_scrapy,
    site,
    solo,
    state_dir,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from scrapy_walsh.proof.sandbox import Sandbox
    from tests.crawl.harness import Crawl

URL = "http://site.test/x"


def spoiled(path: Path, how: str) -> None:
    """Make the key at *path* one that cannot be used."""
    if how == "missing":
        path.unlink()
    elif how == "readable by others":
        path.chmod(0o640)
    elif how == "text":
        path.write_text("key")
    elif how == "a directory":
        path.unlink()
        path.mkdir()
    elif how == "RSA":
        key = rsa.generate_private_key(65537, 2048)
        path.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))


@pytest.mark.crawl
@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("missing", "cannot be read (No such file or directory)"),
        pytest.param(
            "readable by others",
            "chmod 600",
            marks=pytest.mark.skipif(os.name != "posix", reason=""),
        ),
        ("text", "holds no Ed25519 key in PEM"),
        ("a directory", "cannot be read (Is a directory)"),
        ("RSA", "holds no Ed25519 key in PEM"),
    ],
)
def test_a_key_that_cannot_be_used_is_one_line_and_nothing_is_sent(
    run: Callable[..., Crawl], tmp_path: Path, how: str, said: str
) -> None:
    settings, _ = keygen(tmp_path / "keys")
    spoiled(Path(settings["WALSH_SIGNING_KEY"]), how)
    done = run(URL, settings=settings)
    assert done.returncode != 0
    (line,) = done.lines("scrapy_walsh:")
    assert "WALSH_SIGNING_KEY: " in line
    assert said in line
    assert "Traceback" not in done.output
    assert done.log == []


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"WALSH_SIGN_REQUESTS": True}, "WALSH_SIGNING_KEY is None; accepted: with WALSH_SIGN"),
        ({"WALSH_SIGN_REQUESTS": True, "WALSH_SIGNING_KEY": 7}, "WALSH_SIGNING_KEY is 7"),
        ({"WALSH_SIGN_REQUESTS": "perhaps"}, "WALSH_SIGN_REQUESTS is 'perhaps'"),
        (
            {"WALSH_SIGN_REQUESTS": True, "WALSH_SIGNING_KEY": "k", "WALSH_IDENTITY": OWN_IDENTITY},
            "the policy_url http://operator.test/bot/ is not https",
        ),
    ],
)
def test_settings_that_do_not_fit_are_one_line(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError) as told:
        WalshConfig.from_settings({"WALSH_IDENTITY": SIGNING_IDENTITY, **settings}, Path)
    assert said in str(told.value)
    assert "\n" not in str(told.value)


def test_a_missing_package_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    settings = {
        "WALSH_SIGN_REQUESTS": True,
        "WALSH_SIGNING_KEY": "k",
        "WALSH_IDENTITY": SIGNING_IDENTITY,
    }
    with pytest.raises(ConfigError, match=r"pip install 'scrapy-walsh\[sign\]'"):
        WalshConfig.from_settings(settings, Path)


def test_a_key_that_is_not_signed_with_is_not_read() -> None:
    settings = {"WALSH_SIGNING_KEY": "/no/such/file", "WALSH_IDENTITY": SIGNING_IDENTITY}
    config = WalshConfig.from_settings(settings, Path)
    assert (config.sign_requests, config.signing_key) == (False, None)


# -- off, and what is written down --------------------------------------------------------


SPIDER = """
import scrapy

class Probe(scrapy.Spider):
    name = "probe"

    async def start(self):
        headers = {"Signature": "sig=:AAAA:", "Signature-Input": 'sig=("@path")'}
        yield scrapy.Request("http://site.test/x", headers=headers)

    def parse(self, response):
        pass
"""


@pytest.mark.crawl
def test_without_the_setting_a_spider_may_sign_by_itself(tmp_path: Path) -> None:
    """A server may want a signature of another kind, which is a matter of the spider's."""
    done = solo(tmp_path, sites=(site("site.test"),), spider=SPIDER)
    robots, page = done.requests("site.test")
    assert robots.values("Signature") == []
    assert page.values("Signature") == ["sig=:AAAA:"]
    assert done.lines("WARNING", "Signature") == []


def started(project: Path) -> dict[str, Any]:
    lines = (state_dir(project) / "ledger.jsonl").read_text().splitlines()
    (found,) = [each for each in map(json.loads, lines) if each["kind"] == "started"]
    return found


@pytest.mark.crawl
def test_the_ledger_says_by_which_key_and_verify_reads_it(box: Sandbox, tmp_path: Path) -> None:
    settings, (key,) = keygen(tmp_path / "keys")
    project = tmp_path / "signed"
    solo(project, URL, sites=(site("site.test"),), settings=settings)
    line = started(project)
    assert line["signed"] == {"keyid": key["kid"], "directory": KEYS_URL}
    assert settings["WALSH_SIGNING_KEY"] not in json.dumps(line)
    done = run_scrapy(project, box, "walsh", "verify", str(state_dir(project)))
    assert done.returncode == 0, done.stdout


def test_an_attestation_says_that_requests_are_signed_and_not_where_the_key_is(
    tmp_path: Path,
) -> None:
    settings, _ = keygen(tmp_path / "keys")
    config = WalshConfig.from_settings(settings, Path)
    page, found = PolicyPage("https://operator.test/bot/"), {}
    made = document(None, config, page, found, "2026-11-22T20:00:00Z")
    assert made["overrides"] == {"WALSH_SIGN_REQUESTS": True}
    assert settings["WALSH_SIGNING_KEY"] not in json.dumps(made)


@pytest.mark.crawl
def test_a_ledger_of_a_crawl_that_does_not_sign_says_nothing_of_it(tmp_path: Path) -> None:
    project = make_project(tmp_path / "plain")
    solo(project, URL, sites=(site("site.test"),))
    assert "signed" not in started(project)


@pytest.mark.crawl
def test_verify_finds_a_directory_that_is_not_on_the_policy_pages_host(tmp_path: Path) -> None:
    settings, _ = keygen(tmp_path / "keys")
    project = tmp_path / "signed"
    solo(project, URL, sites=(site("site.test"),), settings=settings)
    line = started(project)
    assert list(broken_terms(terms_of(line))) == []
    line["signed"]["directory"] = KEYS_URL.replace("operator", "other")
    assert [rule for rule, _ in broken_terms(terms_of(line))] == ["R1"]


CANNOT_SIGN = """
import scrapy
from scrapy_walsh.adapters.wire.signing import Signer

def fails(self, target, now):
    raise ValueError("no signature for this")

Signer.fields = fails

class Probe(scrapy.Spider):
    name = "probe"
    start_urls = ["http://site.test/x"]

    def parse(self, response):
        pass
"""


@pytest.mark.crawl
def test_a_request_that_cannot_be_signed_is_not_sent(tmp_path: Path) -> None:
    settings, _ = keygen(tmp_path / "keys")
    done = solo(
        tmp_path / "project", sites=(site("site.test"),), spider=CANNOT_SIGN, settings=settings
    )
    assert done.log == []
    assert done.lines("no signature for this")
