"""``walsh doctor`` on signed requests: the key, the directory as it is served, and the clock."""

from __future__ import annotations

import json
import re
import time
from dataclasses import dataclass, field
from email.utils import formatdate
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from scrapy_walsh.policy.signing import DIRECTORY_PATH, DIRECTORY_TYPE
from scrapy_walsh.proof.sandbox import Route, Sandbox, blocklist
from tests.cli.test_doctor import Visit, visit
from tests.crawl.harness import KEYS_URL, keygen, make_project

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass
class Case:
    """What is served as the directory, and what is said."""

    mark: str
    said: str
    route: Callable[[bytes], Route] | None = None
    code: int = 1
    settings: dict[str, Any] = field(default_factory=dict)


def as_is(body: bytes) -> Route:
    return Route(body=body, content_type=DIRECTORY_TYPE)


def as_json(body: bytes) -> Route:
    return Route(body=body, content_type="application/json")


CASES = {
    "served": Case("ok", "a signature by our key was verified with it", as_is, 0),
    "not served": Case("FAIL", "it answers 404, not 200"),
    "as JSON": Case("FAIL", "served as application/json", as_json),
    "redirected": Case("FAIL", "it answers 302", lambda _: Route(302, location="/keys")),
    "no JWKS": Case("FAIL", "not a JWKS", lambda _: as_is(b"{}")),
    "of another key": Case("FAIL", "is not in the JWKS", as_is),
}


def look(folder: Path, case: Case, **more: Any) -> Visit:
    settings, _ = keygen(folder / "keys")
    body = (folder / "keys/http-message-signatures-directory").read_bytes()
    if case.said.startswith("is not in"):
        keygen(folder / "others")
        body = (folder / "others/http-message-signatures-directory").read_bytes()
    project = make_project(folder / "project", settings={**settings, **case.settings})
    with Sandbox() as box:
        if case.route is not None:
            box.set_route("operator.test", DIRECTORY_PATH, case.route(body))
            box.set_route("operator.test", "/keys", as_is(body))
        return visit(project, "--online", box=box, **more)


@pytest.mark.crawl
@pytest.mark.parametrize("name", CASES)
def test_the_directory_is_fetched_and_our_signature_verified(tmp_path: Path, name: str) -> None:
    case = CASES[name]
    found = look(tmp_path, case)
    assert found.line(case.mark, "R1", "signing", KEYS_URL, case.said), found.output
    assert found.code == case.code, found.output
    assert DIRECTORY_PATH in [each.path for each in found.log]
    assert "/keys" not in [each.path for each in found.log]


@pytest.mark.crawl
@pytest.mark.parametrize(("ahead", "said"), [(400, "ahead of"), (-400, "behind")])
def test_a_clock_that_is_far_off_is_said(tmp_path: Path, ahead: int, said: str) -> None:
    """The server is on this machine, so its Date is what is changed."""
    settings, _ = keygen(tmp_path / "keys")
    project = make_project(tmp_path / "project", settings=settings)
    headers = {"Date": formatdate(time.time() - ahead, usegmt=True)}
    body = (tmp_path / "keys/http-message-signatures-directory").read_bytes()
    served = Route(body=body, content_type=DIRECTORY_TYPE, headers=headers)
    listed = Route(body=json.dumps(blocklist()), headers=headers)
    with Sandbox() as box:
        for path in (DIRECTORY_PATH, "/bot/"):
            box.set_route("operator.test", path, served)
        box.set_route("operator.test", "/.well-known/walsh-research/blocklist.json", listed)
        found = visit(project, "--online", box=box)
    line = found.line("FAIL", "R1", "clock", said, "servers refuse signatures")
    assert 390 < int(re.findall(r"it is ([0-9]+) s", line)[0]) < 430


@pytest.mark.crawl
def test_a_key_that_cannot_be_used_is_named_and_nothing_is_sent(tmp_path: Path) -> None:
    settings, _ = keygen(tmp_path / "keys")
    Path(settings["WALSH_SIGNING_KEY"]).chmod(0o644)
    project = make_project(tmp_path / "project", settings=settings)
    with Sandbox() as box:
        found = visit(project, "--online", box=box)
    assert found.code == 1
    assert found.line("FAIL", "R1", "WALSH_SIGNING_KEY", "chmod 600")
    assert found.log == []
