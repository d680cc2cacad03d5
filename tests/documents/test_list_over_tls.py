"""R3: who is on the path to the operator's server cannot empty the list, or write another.

The sandbox speaks TLS with a certificate of its own authority, which no system knows. What was
requested is what its log says: a request that came through a handshake which was not broken off.
"""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING, Any

import pytest
from scrapy.settings import default_settings

from scrapy_walsh.proof.sandbox import Sandbox
from scrapy_walsh.state import open_store
from scrapy_walsh.state.records import StoredDocument
from tests.crawl.harness import (
    LIST_SPIDER,
    OPERATOR,
    Crawl,
    age_document,
    crawl,
    make_project,
    site,
    state_dir,
)

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.crawl
SECURE = OPERATOR.replace("http:", "https:")
LIST = f"{SECURE}/blocklist.json"
DOCUMENTS: dict[str, Any] = {
    "WALSH_BLOCKLIST_URL": LIST,
    "WALSH_BLOCKLIST_SCHEMA_URL": f"{SECURE}/blocklist.schema.json",
    "WALSH_MAX_RETRIES": 0,
}
TARGET = "https://signed.test/open"
TRUSTING = f"""
from scrapy.core.downloader.contextfactory import ScrapyClientContextFactory
{LIST_SPIDER}

class Trusting(ScrapyClientContextFactory):
    pass
"""
WAYS: dict[str, dict[str, Any]] = {
    "as it comes": {},
    "a context factory of the project's": {"DOWNLOADER_CLIENTCONTEXTFACTORY": "spiders.Trusting"},
}
if hasattr(default_settings, "DOWNLOAD_VERIFY_CERTIFICATES"):
    WAYS["no certificate is verified"] = {"DOWNLOAD_VERIFY_CERTIFICATES": False}
    if importlib.util.find_spec("aiohttp"):
        path = "scrapy.core.downloader.handlers._aiohttp.AiohttpDownloadHandler"
        WAYS["another handler of Scrapy's"] = {
            "DOWNLOAD_HANDLERS_BASE": {**default_settings.DOWNLOAD_HANDLERS_BASE, "https": path}
        }


def run(box: Sandbox, project: Path, *, trusted: bool) -> Crawl:
    """A crawl of TARGET; *trusted*: the sandbox's authority is a CA of the system."""
    ca = project / "ca.pem"
    ca.write_text(box.ca_pem or "")
    known = {"SSL_CERT_FILE": str(ca)} if trusted else {}
    return crawl(project, box, TARGET, WALSH_LAB_PROXY="", **known)  # else it is taken for a lab


def requested(done: Crawl) -> list[str]:
    """What was requested of any site; a tunnel that the sandbox opened is no request to one."""
    return [each.target for each in done.log if each.method != "CONNECT"]


@pytest.mark.parametrize("way", WAYS)
def test_r3_a_list_whose_server_is_not_verified_is_not_taken(tmp_path: Path, way: str) -> None:
    project = make_project(tmp_path, TRUSTING, {**DOCUMENTS, **WAYS[way]})
    with Sandbox() as box:
        box.put(site("signed.test"))
        ours = run(box, project, trusted=False)
        known = run(box, project, trusted=True)
    assert requested(ours) == []
    assert ours.returncode == 1
    assert ours.lines("nothing is requested", "certificate", "ca-certificates", "SSL_CERT_FILE")
    assert known.asked("operator.test")[0].endswith("blocklist.json")
    # The site's own certificate is the crawl's to judge: by default none is verified.
    assert known.asked("signed.test") == ["/robots.txt", "/open"]


def test_r3_a_list_that_is_held_stays_where_its_server_is_not_verified(tmp_path: Path) -> None:
    project = make_project(tmp_path, TRUSTING, DOCUMENTS)
    with Sandbox() as box:
        box.put(site("signed.test"))
        first = run(box, project, trusted=True)
        age_document(project, "blocklist", LIST)
        second = run(box, project, trusted=False)
        store = open_store(state_dir(project))
        kept = store.get(StoredDocument, "blocklist", LIST)
        store.close()
    assert first.asked("signed.test") == ["/robots.txt", "/open"]
    assert (requested(second), second.returncode) == ([], 1)
    assert kept is not None
    assert kept.body
