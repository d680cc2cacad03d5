"""Keys: how they are kept, rotated, and refused."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed448, rsa
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)
from joserfc.jwk import KeySet

from scrapy_walsh.commands.main import main
from scrapy_walsh.keys import jwk_of
from scrapy_walsh.proof import keys

posix = pytest.mark.skipif(os.name != "posix", reason="permissions are POSIX's")


def kids(directory: Path) -> list[str]:
    """The published keys, as another implementation reads them."""
    published = json.loads((directory / "jwks.json").read_text())
    for key in KeySet.import_key_set(published).keys:
        assert key.kid == key.thumbprint()
        assert not key.is_private
    return [key["kid"] for key in published["keys"]]


def listed(directory: Path) -> list[str]:
    """The keys of the directory for signed requests, as another implementation reads them."""
    published = json.loads((directory / "http-message-signatures-directory").read_text())
    assert KeySet.import_key_set(published).keys
    return [key["kid"] for key in published["keys"]]


def kid_of(path: Path) -> str:
    key = load_pem_private_key(path.read_bytes(), None)
    assert isinstance(key, Ed25519PrivateKey)
    return jwk_of(key.public_key())["kid"]


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "below" / "keys"


def keygen(directory: Path) -> int:
    return main(["attest", "--keygen", str(directory)])


@posix
def test_key_is_its_owners_whatever_the_umask(directory: Path) -> None:
    before = os.umask(0)
    try:
        assert keygen(directory) == keygen(directory) == 0
    finally:
        os.umask(before)
    assert mode(directory) == 0o700
    pems = list(directory.glob("*.pem"))
    assert len(pems) == 2
    assert {mode(pem) for pem in pems} == {0o600}
    assert mode(directory / "jwks.json") == 0o644


def test_key_is_pkcs8_and_published(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert keygen(directory) == 0
    assert (directory / "key.pem").read_text().startswith("-----BEGIN PRIVATE KEY-----\n")
    assert [path.name for path in directory.glob("*.pem")] == ["key.pem"]
    assert kids(directory) == [kid_of(directory / "key.pem")]
    published = json.loads((directory / "jwks.json").read_text())["keys"]
    assert [sorted(key) for key in published] == [["alg", "crv", "kid", "kty", "use", "x"]]
    assert kids(directory)[0] in capsys.readouterr().out


def test_rotation_keeps_every_key(directory: Path) -> None:
    made: list[str] = []
    for _ in range(3):
        assert keygen(directory) == 0
        made.insert(0, kid_of(directory / "key.pem"))
        assert kids(directory) == made
        assert listed(directory) == made
    for kid in made[1:]:
        assert kid_of(directory / f"{kid}.pem") == kid


def test_rotation_keeps_foreign_entries_and_finds_its_own(directory: Path) -> None:
    """A lost jwks.json is made anew with the key at hand; other members of entries stay."""
    keygen(directory)
    foreign = {"kty": "EC", "kid": "foreign", "crv": "P-256", "x": "AA", "y": "AA"}
    (directory / "jwks.json").write_text(json.dumps({"keys": [foreign]}))
    old = kid_of(directory / "key.pem")
    keygen(directory)
    published = json.loads((directory / "jwks.json").read_text())["keys"]
    assert [key["kid"] for key in published] == [kid_of(directory / "key.pem"), old, "foreign"]
    assert published[2] == foreign
    assert listed(directory) == [kid_of(directory / "key.pem"), old]


def test_the_directory_of_signed_requests_names_no_algorithm_that_it_must_not(
    directory: Path,
) -> None:
    """Section 5.5.1 of the draft: `alg` is a name of RFC 9421, which `EdDSA` is not."""
    keygen(directory)
    published = json.loads((directory / "http-message-signatures-directory").read_text())["keys"]
    assert [sorted(key) for key in published] == [["crv", "kid", "kty", "use", "x"]]


@pytest.mark.parametrize("step", range(1, 5))
def test_killed_rotation_loses_no_key(
    directory: Path, step: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each rename of a rotation may be the one that never happens: sets, old key, new key."""
    keygen(directory)
    first = kid_of(directory / "key.pem")
    renames = 0
    rename = Path.replace

    def killed(self: Path, target: Path) -> Path:
        nonlocal renames
        renames += 1
        if renames == step:
            raise OSError("killed")
        return rename(self, target)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", killed)
        assert keygen(directory) == 2
    assert kid_of(directory / "key.pem") == first
    assert first in kids(directory)
    assert keygen(directory) == 0
    second = kid_of(directory / "key.pem")
    assert second != first
    assert kids(directory)[:2] == [second, first]
    assert kid_of(directory / f"{first}.pem") == first
    assert sorted(path.suffix for path in directory.iterdir() if path.suffix != ".lock") == [
        "", ".json", ".pem", ".pem",
    ]  # fmt: skip
    assert listed(directory) == kids(directory)


@posix
def test_directory_that_others_can_write_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tmp_path.chmod(0o770)
    assert keygen(tmp_path) == 2
    assert list(tmp_path.iterdir()) == []
    assert "chmod 700" in capsys.readouterr().err


@pytest.mark.parametrize("body", ["", "[]", '{"keys": [{"kty": "OKP", "kid": "k", "d": "AA"}]}'])
def test_key_set_that_cannot_be_added_to_stays(
    directory: Path, body: str, capsys: pytest.CaptureFixture[str]
) -> None:
    keygen(directory)
    pem = (directory / "key.pem").read_bytes()
    (directory / "jwks.json").write_text(body)
    capsys.readouterr()
    assert keygen(directory) == 2
    assert (directory / "jwks.json").read_text() == body
    assert (directory / "key.pem").read_bytes() == pem
    told = capsys.readouterr()
    assert told.out == ""
    assert len(told.err.splitlines()) == 1


def pem(key: object, password: bytes | None = None) -> bytes:
    hidden = BestAvailableEncryption(password) if password else NoEncryption()
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, hidden)  # type: ignore[attr-defined,no-any-return]


ED25519 = Ed25519PrivateKey.generate()
UNUSABLE = {
    "empty": (b"", "no Ed25519 key"),
    "text": (b"key", "no Ed25519 key"),
    "public": (
        ED25519.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo),
        "no Ed25519 key",
    ),
    "torn": (pem(ED25519)[:60], "no Ed25519 key"),
    "encrypted": (pem(ED25519, b"x"), "no Ed25519 key"),
    "RSA": (pem(rsa.generate_private_key(65537, 2048)), "no Ed25519 key"),
    "EC": (pem(ec.generate_private_key(ec.SECP256R1())), "no Ed25519 key"),
    "Ed448": (pem(ed448.Ed448PrivateKey.generate()), "no Ed25519 key"),
}


def put(path: Path, body: bytes, permissions: int = 0o600) -> Path:
    path.write_bytes(body)
    path.chmod(permissions)
    return path


@pytest.mark.parametrize(("body", "named"), UNUSABLE.values(), ids=UNUSABLE)
def test_unusable_key_is_refused(tmp_path: Path, body: bytes, named: str) -> None:
    path = put(tmp_path / "key.pem", body)
    with pytest.raises(keys.KeyUnusable, match=named) as told:
        keys.load_private_key(path)
    assert str(path) in str(told.value)


@posix
@pytest.mark.parametrize("permissions", [0o640, 0o604, 0o620, 0o644, 0o660, 0o666])
def test_key_that_others_can_use_is_refused(tmp_path: Path, permissions: int) -> None:
    path = put(tmp_path / "key.pem", pem(ED25519), permissions)
    with pytest.raises(keys.KeyUnusable, match="chmod 600"):
        keys.load_private_key(path)
    path.chmod(0o400)
    assert keys.load_private_key(path).private_bytes_raw() == ED25519.private_bytes_raw()


def test_unusable_key_is_not_replaced(directory: Path) -> None:
    keygen(directory)
    put(directory / "key.pem", b"something else")
    assert keygen(directory) == 2
    assert (directory / "key.pem").read_bytes() == b"something else"
