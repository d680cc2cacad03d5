"""What the tests of signed requests share: a key, an identity whose policy page is https."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from scrapy_walsh.proof.keys import keys_of, make_keys
from scrapy_walsh.proof.sandbox import requests
from tests.crawl.harness import OPERATOR
from tests.sign.verifier import as_sent, verify

if TYPE_CHECKING:
    from pathlib import Path

    from tests.crawl.harness import Crawl

DIRECTORY_PATH = "/.well-known/http-message-signatures-directory"
DIRECTORY = f"https://operator.test{DIRECTORY_PATH}"
IDENTITY = {
    "product": "ExampleBot/1.0",
    "policy_url": "https://operator.test/bot/",
    "blocklist_url": f"{OPERATOR}/blocklist.json",
    "schema_url": f"{OPERATOR}/blocklist.schema.json",
}
COVERED = ['"@authority"', '"signature-agent";key="sig"', '"@method"', '"@path"']


def keygen(directory: Path) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Settings with which requests are signed by a new key in *directory*, and the key set."""
    made = make_keys(directory)
    settings = {
        "WALSH_IDENTITY": IDENTITY,
        "WALSH_SIGN_REQUESTS": True,
        "WALSH_SIGNING_KEY": str(made.key),
    }
    return settings, keys_of(made.jwks.read_bytes())


def check_all(run: Crawl, keys: list[dict[str, Any]]) -> int:
    """Verify each request of *run* by the second implementation; how many there were."""
    found = requests(run.log)
    for each in found:
        told = verify(as_sent(each), keys, now=each.wall)
        assert told["covered"] == COVERED
        assert told["directory"] == DIRECTORY
        assert told["expires"] - told["created"] == 300
        assert set(told) == {"created", "expires", "keyid", "tag", "covered", "directory"}
    return len(found)
