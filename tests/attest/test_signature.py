"""Signatures: known answers, a second implementation, and everything that must not pass."""

from __future__ import annotations

import base64
import contextlib
import json
import struct
import subprocess
from typing import TYPE_CHECKING, Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from hypothesis import given
from hypothesis import strategies as st
from joserfc.jwk import KeySet, OKPKey

from scrapy_walsh.commands.main import main
from scrapy_walsh.exceptions import DocumentInvalid
from scrapy_walsh.proof import keys as jwks
from scrapy_walsh.proof.attest import signature
from scrapy_walsh.proof.attest.document import CONTRACT
from tests.attest import ed25519

if TYPE_CHECKING:
    from pathlib import Path

# RFC 8037 appendix A.
SECRET = "nWGxne_9WmC6hEr0kuwsxERJxWl7MmkZcDusAxyuf2A"
PUBLIC = "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"
THUMBPRINT = "kPrK_qmxVWaYVA9wwBF6Iuo3vVzz7TxHCTwXBygrS4k"
JWS_INPUT = b"eyJhbGciOiJFZERTQSJ9.RXhhbXBsZSBvZiBFZDI1NTE5IHNpZ25pbmc"
JWS_VALUE = "hgyY0il_MGCjP0JzlnLWG1PPOt7-09PGcvMg3AIbQR6dWbhijcNR4ki4iylGjg5BhVsPt9g7sVvpAr_MuM0KAg"
KEY = Ed25519PrivateKey.from_private_bytes(jwks.decode(SECRET, 32))
KEYS = [jwks.jwk_of(KEY.public_key())]
DOCUMENT: dict[str, Any] = {
    "contract": CONTRACT,
    "tool": "tool",
    "tool_version": "1.0",
    "spec": "walsh-research-compliance/v1.3",
    "user_agent": "Mozilla/5.0 (compatible; ExampleBot/1.0; +https://bot.example/\u00e9)",
    "requirements": {"R1": True, "R2": False, "R8": "operator-responsibility"},
    "issued": "2026-05-24T10:00:00Z",
    "overrides": {"WALSH_MIN_INTERVAL": 2.5, "WALSH_MAX_RETRIES": 3},
}
SIGNED = signature.sign(DOCUMENT, KEY)


def base64url(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


# -- known answers ------------------------------------------------------------------------


def test_rfc8037_key_and_thumbprint() -> None:
    assert KEYS == [
        {
            "kty": "OKP",
            "crv": "Ed25519",
            "x": PUBLIC,
            "kid": THUMBPRINT,
            "use": "sig",
            "alg": "EdDSA",
        }
    ]


def test_rfc8037_signature() -> None:
    value = base64url(JWS_VALUE)
    assert KEY.sign(JWS_INPUT) == value
    assert ed25519.verify(base64url(PUBLIC), JWS_INPUT, value)
    assert not ed25519.verify(base64url(PUBLIC), JWS_INPUT + b".", value)


def test_rfc8785_sample() -> None:
    given = rb"""{
      "numbers": [333333333.33333329, 1E30, 4.50, 2e-3, 0.000000000000000000000000001],
      "string": "\u20ac$\u000F\u000aA'\u0042\u0022\u005c\\\"\/",
      "literals": [null, true, false]
    }"""
    assert signature.canonical(jwks.parse(given)).decode() == (
        '{"literals":[null,true,false],'
        '"numbers":[333333333.3333333,1e+30,4.5,0.002,1e-27],'
        '"string":"\u20ac$\\u000f\\nA\'B\\"\\\\\\\\\\"/"}'
    )


def test_rfc8785_members_go_by_utf_16() -> None:
    names = ["\u20ac", "\r", "\ufb33", "1", "\U0001f600", "\u0080", "\u00f6"]
    octets = signature.canonical(dict.fromkeys(names, 0))
    assert list(json.loads(octets)) == [
        "\r", "1", "\u0080", "\u00f6", "\u20ac", "\U0001f600", "\ufb33",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("octets", "written"),
    [
        ("8000000000000000", "0"),
        ("0000000000000001", "5e-324"),
        ("7fefffffffffffff", "1.7976931348623157e+308"),
        ("4340000000000000", "9007199254740992"),
        ("4430000000000000", "295147905179352830000"),
        ("44b52d02c7e14af5", "9.999999999999997e+22"),
        ("444b1ae4d6e2ef4f", "999999999999999900000"),
        ("444b1ae4d6e2ef50", "1e+21"),
        ("3eb0c6f7a0b5ed8c", "9.999999999999997e-7"),
        ("3eb0c6f7a0b5ed8d", "0.000001"),
        ("becbf647612f3696", "-0.0000033333333333333333"),
        ("43143ff3c1cb0959", "1424953923781206.2"),
    ],
)
def test_rfc8785_numbers(octets: str, written: str) -> None:
    (number,) = struct.unpack(">d", bytes.fromhex(octets))
    assert signature.canonical(number).decode() == written


# -- other implementations ----------------------------------------------------------------


def signed_octets() -> bytes:
    """The document as RFC 8785 has it, written by the standard library: ASCII names, no floats
    that it would spell otherwise."""
    return json.dumps(DOCUMENT, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def test_signature_holds_for_another_implementation() -> None:
    found = SIGNED["signature"]
    key = OKPKey.import_key(KEYS[0])
    assert found["kid"] == key.thumbprint() == THUMBPRINT
    public = key.get_op_key("verify").public_bytes(Encoding.Raw, PublicFormat.Raw)
    assert ed25519.verify(public, signed_octets(), base64url(found["value"]))
    assert not ed25519.verify(public, signed_octets() + b"\n", base64url(found["value"]))


def test_signature_holds_for_openssl(tmp_path: Path) -> None:
    (tmp_path / "key.pem").write_bytes(
        KEY.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    )
    (tmp_path / "octets").write_bytes(signed_octets())
    (tmp_path / "value").write_bytes(base64url(SIGNED["signature"]["value"]))
    command = "openssl pkeyutl -verify -pubin -inkey key.pem -rawin -in octets -sigfile value"
    try:
        done = subprocess.run(command.split(), cwd=tmp_path, capture_output=True, check=False)
    except FileNotFoundError:
        pytest.skip("no openssl here")
    assert done.returncode == 0, done


def test_signature_of_another_implementation_is_taken() -> None:
    """joserfc's key signs the octets; its key set is read."""
    key = OKPKey.generate_key("Ed25519", {"use": "sig", "alg": "EdDSA"}, private=True)
    key.ensure_kid()
    value = key.get_op_key("sign").sign(signed_octets())
    member = {"alg": "EdDSA", "kid": key.kid, "value": jwks.encode(value)}
    published = json.dumps(KeySet([key]).as_dict(private=False)).encode()
    assert signature.verify({**DOCUMENT, "signature": member}, jwks.keys_of(published)) == key.kid


# -- what must not pass -------------------------------------------------------------------


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("signed")
    (directory / "jwks.json").write_text(json.dumps({"keys": KEYS}))
    return directory


def code_of(folder: Path, octets: bytes) -> int:
    """What ``walsh attest --verify`` says of *octets*."""
    (folder / "a.json").write_bytes(octets)
    return main(["attest", "--verify", str(folder / "a.json"), "--jwks", str(folder / "jwks.json")])


OCTETS = signature.canonical(SIGNED)


@pytest.mark.parametrize("number", [2**53, float("nan"), float("inf"), "\ud800"])
def test_what_could_not_be_verified_is_not_signed(number: Any) -> None:
    with pytest.raises(DocumentInvalid):
        signature.sign({**DOCUMENT, "overrides": {"x": number}}, KEY)


def test_signed_document_verifies_however_it_is_laid_out(folder: Path) -> None:
    assert code_of(folder, OCTETS) == 0
    assert code_of(folder, json.dumps(SIGNED, indent=4).encode()) == 0


@given(place=st.integers(0, len(OCTETS) - 1), octet=st.binary(max_size=1))
def test_one_octet_altered_or_dropped_is_noticed(folder: Path, place: int, octet: bytes) -> None:
    altered = OCTETS[:place] + octet + OCTETS[place + 1 :]
    assert code_of(folder, altered) == (0 if altered == OCTETS else 1)


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53) + 1, 2**53 - 1)
    | st.floats(-(2**52), 2**52)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab\u00e9"), inner),
    max_leaves=6,
)


@pytest.mark.slow
@given(value=VALUES, data=st.data())
def test_one_octet_altered_in_any_document(folder: Path, value: Any, data: Any) -> None:
    octets = signature.canonical(signature.sign({**DOCUMENT, "overrides": value}, KEY))
    assert code_of(folder, octets) == 0
    place = data.draw(st.integers(0, len(octets) - 1))
    altered = octets[:place] + data.draw(st.binary(max_size=1)) + octets[place + 1 :]
    # "1e+21" and "1e021" are one number: a document that says the same was not altered.
    if code_of(folder, altered) == 0:
        assert json.loads(altered) == json.loads(octets)


def with_signature(**more: Any) -> dict[str, Any]:
    return {**SIGNED, "signature": {**SIGNED["signature"], **more}}


def resigned(**more: Any) -> bytes:
    return json.dumps(signature.sign({**DOCUMENT, **more}, KEY)).encode()


def dumped(document: dict[str, Any]) -> bytes:
    return json.dumps(document).encode()


VALUE = SIGNED["signature"]["value"]
BAD = {
    "not signed": (dumped(DOCUMENT), "not signed"),
    "null signature": (dumped({**SIGNED, "signature": None}), "not signed"),
    "signature is text": (dumped({**SIGNED, "signature": VALUE}), "alg, kid, value"),
    "one member more": (dumped(with_signature(x=1)), "alg, kid, value"),
    "alg none": (dumped(with_signature(alg="none")), "'none'"),
    "another alg": (dumped(with_signature(alg="HS256")), "'HS256'"),
    "unknown kid": (dumped(with_signature(kid="other")), "'other'"),
    "kid is a number": (dumped(with_signature(kid=1)), "not in the JWKS"),
    "no value": (dumped(with_signature(value="")), "not by key"),
    "half a value": (dumped(with_signature(value=VALUE[:43])), "not by key"),
    "padded value": (dumped(with_signature(value=VALUE + "==")), "not by key"),
    "value spelled otherwise": (
        dumped(with_signature(value=VALUE[:-1] + chr(ord(VALUE[-1]) + 1))),
        "not by key",
    ),
    "value is a list": (dumped(with_signature(value=[])), "not by key"),
    "member twice": (OCTETS.replace(b'{"R1":true', b'{"R1":false,"R1":true'), "two members named"),
    "NaN": (OCTETS.replace(b"2.5", b"NaN"), "NaN"),
    "Infinity": (OCTETS.replace(b"2.5", b"-Infinity"), "Infinity"),
    "infinite by size": (OCTETS.replace(b"2.5", b"1e999"), "canonical"),
    "integer of 2^53": (OCTETS.replace(b"2.5", b"9007199254740992"), "canonical"),
    "long integer": (OCTETS.replace(b"2.5", b"9" * 5000), "not JSON"),
    "lone surrogate": (OCTETS.replace(b'"1.0"', b'"\\ud800"'), "canonical"),
    "lone surrogate in a name": (OCTETS.replace(b'{"R1"', b'{"\\ud800":1,"R1"'), "canonical"),
    "not UTF-8": (OCTETS.replace("\u00e9".encode(), b"\xe9"), "UTF-8"),
    "byte order mark": (b"\xef\xbb\xbf" + OCTETS, "not JSON"),
    "huge": (OCTETS + b" " * jwks.LIMIT, "longer"),
    "deep": (b"[" * 100_000, "deep"),
    "a list": (b"[]", "object"),
    "empty": (b"", "not JSON"),
    "another contract": (resigned(contract="walsh-research-blocklist/v1"), "contract"),
}


@pytest.mark.parametrize(("octets", "named"), BAD.values(), ids=BAD)
def test_bad_document_is_refused_in_one_line(
    folder: Path, octets: bytes, named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert code_of(folder, octets) == 1
    told = capsys.readouterr()
    assert told.out == ""
    assert len(told.err.splitlines()) == 1
    assert named in told.err


def x25519() -> dict[str, Any]:
    public = X25519PrivateKey.generate().public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
    return {**KEYS[0], "crv": "X25519", "x": jwks.encode(public)}


OTHER_KEYS = {
    "another type": [{**KEYS[0], "kty": "RSA", "n": "AQAB", "e": "AQAB"}],
    "another curve": [x25519()],
    "another key": [{**KEYS[0], "x": jwks.encode(b"\x09" * 32)}],
    "for encryption": [{**KEYS[0], "use": "enc"}],
    "for another alg": [{**KEYS[0], "alg": "HS256"}],
    "no x": [{name: value for name, value in KEYS[0].items() if name != "x"}],
    "short x": [{**KEYS[0], "x": PUBLIC[:-4]}],
    "two of one name": [KEYS[0], x25519()],
    "none": [],
}


@pytest.mark.parametrize("keys", OTHER_KEYS.values(), ids=OTHER_KEYS)
def test_key_of_the_right_name_must_be_the_right_key(keys: list[dict[str, Any]]) -> None:
    assert signature.verify(SIGNED, KEYS) == THUMBPRINT
    with pytest.raises(DocumentInvalid):
        signature.verify(SIGNED, keys)


def test_key_may_be_described_in_fewer_words() -> None:
    bare = {name: KEYS[0][name] for name in ("kty", "crv", "x", "kid")}
    assert signature.verify(SIGNED, [bare]) == THUMBPRINT
    assert signature.verify(SIGNED, [{**bare, "alg": "Ed25519"}]) == THUMBPRINT


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"{}",
        b'{"keys": {}}',
        b'{"keys": [1]}',
        b'{"keys": [], "keys": []}',
        json.dumps({"keys": [{**KEYS[0], "d": SECRET}]}).encode(),
    ],
)
def test_key_set_that_is_none(folder: Path, tmp_path: Path, body: bytes) -> None:
    """Nothing can be said of the document: misuse, not a verdict."""
    code_of(folder, OCTETS)
    (tmp_path / "jwks.json").write_bytes(body)
    arguments = ["--verify", str(folder / "a.json"), "--jwks", str(tmp_path / "jwks.json")]
    assert main(["attest", *arguments]) == 2


# -- keys that nobody needs a private half for --------------------------------------------


def _torsion() -> list[bytes]:
    """Every point whose order divides 8, from the text of the curve: by the second implementation.

    A point times the order of the base point's subgroup has such an order.
    """
    points = set()
    number = 0
    while len(points) < 8:
        number += 1
        with contextlib.suppress(ValueError):
            point = ed25519._decode(number.to_bytes(32, "little"))
            points.add(ed25519._times(ed25519.L, point))
    return sorted(_encode(point) for point in points)


def _encode(point: ed25519.Point) -> bytes:
    x, y = point
    return (y | (x & 1) << 255).to_bytes(32, "little")


def test_a_point_of_low_order_is_no_key() -> None:
    for octets in _torsion():
        key = {**KEYS[0], "x": jwks.encode(octets)}
        with pytest.raises(DocumentInvalid, match="low order"):
            jwks.public_key([key], key["kid"])


@pytest.mark.parametrize(
    "number",
    [
        ed25519.P,  # 0
        ed25519.P + 1,  # 1
        1 | 1 << 255,  # -0, 1
        ed25519.P - 1 | 1 << 255,
        ed25519.P + 1 | 1 << 255,
    ],
)
def test_another_spelling_of_such_a_point_is_no_key(number: int) -> None:
    key = {**KEYS[0], "x": jwks.encode(number.to_bytes(32, "little"))}
    with pytest.raises(DocumentInvalid, match="low order"):
        jwks.public_key([key], key["kid"])


def test_a_document_signed_by_nobody_is_refused() -> None:
    """The identity point as key: R = S * base, and any S, holds for every document."""
    one = (1).to_bytes(32, "little")
    key = {**KEYS[0], "x": jwks.encode(one)}
    value = jwks.encode(_encode(ed25519.BASE) + one)
    document = {"any": "thing", "signature": {"alg": "EdDSA", "kid": key["kid"], "value": value}}
    with pytest.raises(DocumentInvalid, match="low order"):
        signature.verify(document, [key])
