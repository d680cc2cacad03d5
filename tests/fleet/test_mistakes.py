"""WALSH_SHARED_STATE names something that will never do: one line at the start, and exit 1."""

from __future__ import annotations

import re
import socket
import subprocess
from typing import TYPE_CHECKING

import pytest

from scrapy_walsh.commands.doctor import MARKS, of_fleet
from scrapy_walsh.config import WalshConfig
from scrapy_walsh.exceptions import ConfigError
from scrapy_walsh.fleet.link import Link
from scrapy_walsh.proof.sandbox import requests
from tests.crawl.harness import OWN_IDENTITY, wait_until
from tests.fleet.fleet import BINARY, Server, worker
from tests.fleet.test_scrapy_redis import FLEET_SPIDER, settings

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from scrapy_walsh.proof.sandbox import Sandbox


#: The refusal of a Redis that wants a password, as old and new versions of its client word it.
NO_PASSWORD = "authenticated|Authentication required"


def link(url: str) -> Link:
    return Link(url, "ExampleBot")


def began(url: str) -> str:
    """What the start says of the Redis at *url*."""
    with pytest.raises(ConfigError) as caught:
        link(url).begin()
    line = str(caught.value)
    assert line.startswith("WALSH_SHARED_STATE: ")
    assert "\n" not in line
    assert "secret" not in line
    return line


@pytest.fixture
def run(tmp_path: Path) -> Iterator[list[Server]]:
    """Servers to end."""
    started: list[Server] = []
    yield started
    for each in started:
        each.kill()


def start(run: list[Server], folder: Path, *options: str) -> Server:
    made = Server(folder, *options)
    run.append(made)
    made.start()
    return made


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ("unknown:secret@", "/0", "invalid username-password pair"),
        ("", "/99", "DB index is out of range"),
        ("", "/0?ssl_word=1", "ssl_word"),
        ("", "/0?db=secret", "['`]db['`]"),
    ],
)
def test_a_url_that_is_wrong_is_said(server: Server, before: str, after: str, said: str) -> None:
    url = server.url.replace("//", f"//{before}").removesuffix("/0")
    with pytest.raises(ConfigError, match=f"{said}.*correct its URL"):
        link(f"{url}{after}").begin()


def test_a_password_that_is_missing_or_wrong_is_said(run: list[Server], tmp_path: Path) -> None:
    closed = start(run, tmp_path, "--requirepass", "word")
    for url in (closed.url, closed.url.replace("//", "//:secret@")):
        assert re.search(f"{NO_PASSWORD}|invalid username-password", began(url))


@pytest.mark.parametrize(
    "rights",
    ["~walsh:* +@read", "~walsh:* +@all -@write", "~other:* +@all", "~walsh:* +@all -@scripting"],
)
def test_too_few_rights_are_said(server: Server, rights: str) -> None:
    server.client.execute_command("ACL", "SETUSER", "few", "on", ">word", *rights.split())
    assert re.search("permission|can't run", began(server.url.replace("//", "//few:word@")))


def test_a_replica_a_sentinel_and_a_cluster_are_said(run: list[Server], tmp_path: Path) -> None:
    primary = start(run, tmp_path)
    replica = start(run, tmp_path, "--replicaof", "127.0.0.1", str(primary.port))
    assert re.search("read only|replica", began(replica.url))
    cluster = start(run, tmp_path, "--cluster-enabled", "yes", "--cluster-port", str(free_port()))
    assert "slot" in began(cluster.url)
    (tmp_path / "sentinel.conf").write_text(
        f"port {cluster.port}\nbind 127.0.0.1\nsentinel monitor m 127.0.0.1 {primary.port} 1\n"
    )
    cluster.kill()
    sentinel = subprocess.Popen(
        [str(BINARY), str(tmp_path / "sentinel.conf"), "--sentinel"], stdout=subprocess.DEVNULL
    )
    try:
        wait_until(lambda: answers(cluster.port))
        assert "unknown command" in began(cluster.url)
    finally:
        sentinel.kill()
        sentinel.wait()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def answers(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def test_tls_where_there_is_none_and_the_reverse_are_said(
    run: list[Server], tmp_path: Path
) -> None:
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    self_signed(key, certificate)
    secure = Server(tmp_path, "--tls-cert-file", str(certificate), "--tls-key-file", str(key))
    secure.options += ("--tls-auth-clients", "no", "--tls-port", str(secure.port), "--port", "0")
    port = secure.port
    secure.client = link(f"rediss://localhost:{port}/0?ssl_cert_reqs=none").client
    run.append(secure)
    secure.start()
    for url in (f"redis://:secret@127.0.0.1:{port}/0", f"rediss://:secret@localhost:{port}/0"):
        assert "rediss:// for TLS" in began(url)
    assert "rediss:// for TLS" in began(f"rediss://localhost:{port}/0?ssl_ca_certs=none.pem")
    assert link(f"rediss://localhost:{port}/0?ssl_ca_certs={certificate}").begin() is not None
    plain = start(run, tmp_path)
    assert "rediss:// for TLS" in began(f"rediss://:secret@127.0.0.1:{plain.port}/0")


def self_signed(key: Path, certificate: Path) -> None:
    import datetime as dt  # noqa: PLC0415

    from cryptography import x509  # noqa: PLC0415
    from cryptography.hazmat.primitives import hashes, serialization  # noqa: PLC0415
    from cryptography.hazmat.primitives.asymmetric import ec  # noqa: PLC0415
    from cryptography.x509.oid import NameOID  # noqa: PLC0415

    made = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = dt.datetime.now(dt.UTC)
    signed = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(made.public_key())
        .serial_number(1)
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .sign(made, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    form = serialization.PrivateFormat.PKCS8
    key.write_bytes(made.private_bytes(pem, form, serialization.NoEncryption()))
    certificate.write_bytes(signed.public_bytes(pem))


def test_a_redis_that_is_not_up_yet_is_no_mistake(server: Server) -> None:
    server.kill()
    assert link(server.url).begin() is None
    assert link("redis://no-such-host.invalid/0").begin() is None


def test_a_redis_that_throws_records_away_is_refused(server: Server) -> None:
    server.client.config_set("maxmemory-policy", "allkeys-lru")
    assert link(server.url).begin() is not None  # there is no limit
    server.client.config_set("maxmemory", "100mb")
    assert "maxmemory-policy allkeys-lru" in began(server.url)
    server.client.config_set("maxmemory-policy", "noeviction")
    assert link(server.url).begin() is not None


def test_a_redis_that_writes_nothing_down_is_a_warning(server: Server) -> None:
    assert (link(server.url).begin() or "").endswith("set appendonly yes")
    server.client.config_set("appendonly", "yes")
    assert link(server.url).begin() == ""


def test_where_info_is_forbidden_is_refused(server: Server) -> None:
    """Without it nobody can see that Redis was started anew."""
    server.client.execute_command(
        *("ACL", "SETUSER", "few", "on", ">word", "~walsh:*", "+@all", "-@dangerous")
    )
    assert "can't run" in began(server.url.replace("//", "//few:word@"))


def test_doctor_says_the_same(server: Server) -> None:
    def said() -> list[tuple[str, str]]:
        given = {"WALSH_IDENTITY": OWN_IDENTITY, "WALSH_SHARED_STATE": server.url}
        found = of_fleet(WalshConfig.from_settings(given, lambda: "default"))
        return [(MARKS[each.outcome], each.text) for each in found]

    [(mark, text)] = said()
    assert (mark, text.endswith("set appendonly yes")) == ("FAIL", True)
    server.client.config_set("appendonly", "yes")
    assert [mark for mark, _ in said()] == ["ok"]
    server.client.config_set("requirepass", "word")
    [(mark, text)] = said()
    assert mark == "FAIL"
    assert re.search(NO_PASSWORD, text)
    server.kill()
    [(mark, text)] = said()
    assert (mark, "does not answer" in text) == ("FAIL", True)


@pytest.mark.parametrize("queue", [False, True])
def test_a_crawl_with_such_a_mistake_does_not_start(
    box: Sandbox, server: Server, tmp_path: Path, *, queue: bool
) -> None:
    server.client.config_set("requirepass", "word")
    more = settings(server) if queue else {}
    spider = {"spider": FLEET_SPIDER} if queue else {}
    one = worker(tmp_path / "p", box, server, ["http://a.test/page"], **spider, **more)
    said = one.said(30, code=1)
    assert said.splitlines()[-1].startswith("scrapy_walsh: WALSH_SHARED_STATE: redis://127.0.0.1")
    assert "Traceback" not in said
    assert not requests(box.log)


SHORT = """
from scrapy_walsh.fleet import link
link.LONGEST_OUTAGE = 3.0
"""


def test_a_redis_that_stays_away_ends_the_crawl(
    box: Sandbox, server: Server, tmp_path: Path
) -> None:
    from tests.crawl.harness import LIST_SPIDER  # noqa: PLC0415

    server.kill()
    one = worker(tmp_path / "p", box, server, ["http://a.test/page"], spider=LIST_SPIDER + SHORT)
    said = one.said(60, code=1)
    assert "the crawl ends: check that Redis" in said
    assert "Traceback" not in said
    assert not requests(box.log)


def test_a_crawl_with_the_scheduler_of_scrapy_redis_does_not_wait_for_its_start(
    box: Sandbox, server: Server, tmp_path: Path
) -> None:
    server.kill()
    one = worker(tmp_path / "p", box, server, spider=FLEET_SPIDER, **settings(server))
    said = one.said(60, code=1)
    assert said.splitlines()[-1].endswith("start it, or correct WALSH_SHARED_STATE")
    assert "Traceback" not in said


def test_a_mistake_that_shows_once_redis_is_up_ends_the_crawl(
    box: Sandbox, server: Server, tmp_path: Path
) -> None:
    server.kill()
    one = worker(tmp_path / "p", box, server, ["http://a.test/page"])
    wait_until(lambda: "nothing is sent until it is back" in one.output)
    server.options = ("--requirepass", "word")
    server.start()
    said = one.said(60, code=1)
    assert re.search(NO_PASSWORD, said)
    assert "Traceback" not in said
    assert not requests(box.log)
