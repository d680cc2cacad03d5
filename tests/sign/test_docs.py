"""docs/signing.md, and the part of docs/audit.md on forged requests: each block is run or read."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from joserfc.jwk import OKPKey

from scrapy_walsh.adapters.wire.signing import signer_of
from scrapy_walsh.commands.main import main
from scrapy_walsh.config import WalshConfig
from scrapy_walsh.policy.signing import DIRECTORY_PATH, DIRECTORY_TYPE
from tests.crawl.harness import SIGNING_IDENTITY
from tests.kit import quoted
from tests.sign import verifier
from tests.sign.test_audit import AGENT, HOST, Given, given
from tests.sign.test_signature import VECTORS, public

if TYPE_CHECKING:
    from scrapy_walsh.proof.sandbox import LoggedRequest

__all__ = ["given"]

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", (DOCS / page).read_text(), re.DOTALL)


# -- signing.md ---------------------------------------------------------------------------


def test_the_key_is_made_and_used_as_the_page_says(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    setup, look = blocks("signing.md", "bash")
    install, keygen = setup.splitlines()
    assert install == "pip install 'scrapy-walsh[sign]'"
    assert main(shlex.split(keygen)[1:]) == 0
    said = capsys.readouterr().out
    assert DIRECTORY_TYPE in said
    assert "WALSH_SIGNING_KEY" in said
    settings: dict[str, Any] = {}
    exec(blocks("signing.md", "python")[0], settings)  # noqa: S102  our own documentation
    mine = {name: value for name, value in settings.items() if name.isupper()}
    signer = signer_of(
        WalshConfig.from_settings({"WALSH_IDENTITY": SIGNING_IDENTITY, **mine}, Path)
    )
    assert signer is not None
    assert signer.keyid in said
    assert look == "scrapy walsh doctor --online\n"  # tests/sign/test_doctor.py runs it


def test_the_server_is_told_the_place_and_the_type() -> None:
    (location,) = blocks("signing.md", "nginx")
    assert f"location = {DIRECTORY_PATH} {{" in location
    assert f"default_type {DIRECTORY_TYPE};" in location


def test_the_request_of_the_page_holds() -> None:
    (shown,) = blocks("signing.md", "text")
    headers = [tuple(line.split(": ", 1)) for line in shown.splitlines()]
    request = {"scheme": "https", "host": "www.site.example", "method": "GET", "path": "/news"}
    key = public(VECTORS["key"])
    told = verifier.verify({**request, "headers": headers}, [key], now=1795376346)
    assert told["keyid"] == OKPKey.import_key(key).thumbprint()


# -- audit.md -----------------------------------------------------------------------------


def by_nginx(template: str, request: LoggedRequest) -> str:
    """The line that nginx writes by a ``log_format``."""
    form = "".join(re.findall(r"'([^']*)'", template))
    return re.sub(r"\$(\w+)", lambda found: value(found[1], request), form)


def by_apache(template: str, request: LoggedRequest) -> str:
    """The line that Apache writes by a ``LogFormat``."""
    form = shlex.split(template)[1]
    names = {"h": "remote_addr", "l": "remote_user", "u": "remote_user", "r": "request",
             ">s": "status", "b": "body_bytes_sent"}  # fmt: skip
    form = re.sub(
        r"%\{([\w-]+)\}i",
        lambda found: value(f"http_{found[1].lower().replace('-', '_')}", request),
        form.replace("%t", f"[{value('time_local', request)}]"),
    )
    return re.sub(r"%(>?[a-z])(?=[\s\"]|$)", lambda found: value(names[found[1]], request), form)


def value(name: str, request: LoggedRequest) -> str:
    from datetime import UTC, datetime  # noqa: PLC0415

    known = {
        "remote_addr": "192.0.2.7",
        "remote_user": "-",
        "time_local": f"{datetime.fromtimestamp(request.wall, UTC):%d/%b/%Y:%H:%M:%S +0000}",
        "request": f"GET {request.target.removeprefix(f'http://{HOST}')} HTTP/1.1",
        "status": "200",
        "body_bytes_sent": "5",
    }
    sent = request.values(name.removeprefix("http_").replace("_", "-"))
    return known.get(name) or quoted(", ".join(sent)) or "-"


@pytest.mark.parametrize(("language", "writes"), [("nginx", by_nginx), ("apache", by_apache)])
def test_the_log_formats_of_the_page_have_what_the_command_reads(
    given: Given, folder: Path, capsys: pytest.CaptureFixture[str], language: str, writes: Any
) -> None:
    (template,) = blocks("audit.md", language)
    (line,) = (each for each in blocks("audit.md", "bash") if "--directory" in each)
    entries = [each for each in given.log if each.host == HOST]
    Path("access.log").write_text("".join(f"{writes(template, each)}\n" for each in entries))
    Path("directory.json").write_bytes(Path(given.directory).read_bytes())
    words = shlex.split(line)[3:]
    words[words.index("--host") + 1] = HOST
    code = main([*words, "--token", "ExampleBot", "--user-agent", AGENT])
    told = capsys.readouterr()
    assert code == 0, told
    assert "requests: 3\n" in told.out
    assert "signed by: " in told.out
    assert "\nnot judged" not in told.out
