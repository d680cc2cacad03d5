"""The signature itself: the standards' vectors, 10,000 requests, each way to tamper with one."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from hypothesis import given, settings
from hypothesis import strategies as st
from scrapy import Request

from scrapy_walsh.adapters import compat
from scrapy_walsh.adapters.wire.signing import Signer
from scrapy_walsh.keys import jwk_of
from scrapy_walsh.policy import signing
from scrapy_walsh.policy.signing import FIELDS
from scrapy_walsh.policy.urls import Target, target
from scrapy_walsh.proof import signatures
from scrapy_walsh.proof.keys import decode, directory_of
from scrapy_walsh.proof.signatures import Fault, Seen
from tests.crawl.harness import KEYS_URL
from tests.sign import verifier

VECTORS: dict[str, Any] = json.loads(
    (Path(__file__).parents[1] / "data/signing.json").read_text("utf-8")
)
NOW = 1_800_000_000.0
SECRET = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
OTHER = Ed25519PrivateKey.from_private_bytes(bytes(range(1, 33)))
KEYS: list[dict[str, Any]] = directory_of([jwk_of(SECRET.public_key())])
BOTH = [*KEYS, *directory_of([jwk_of(OTHER.public_key())])]
SIGNER = Signer(SECRET, KEYS_URL)


class TwistedLike:
    """What ``compat.sent_target`` takes for Scrapy's handler on Twisted."""

    _pool = object()


def seen_of(sent: Target, fields: dict[str, str], at: float = NOW) -> Seen:
    return Seen(
        sent.method,
        sent.authority,
        sent.path,
        at,
        {name.lower(): [value] for name, value in fields.items()},
    )


def request_of(sent: Target, fields: dict[str, str]) -> dict[str, Any]:
    return {
        "scheme": "http",
        "host": sent.authority,
        "method": sent.method,
        "path": sent.path,
        "headers": tuple(fields.items()),
    }


# -- the standards' own vectors -----------------------------------------------------------


@pytest.mark.parametrize("vector", VECTORS["thumbprints"], ids=lambda each: each["x"][:8])
def test_thumbprints_of_the_standards(vector: dict[str, str]) -> None:
    public = Ed25519PublicKey.from_public_bytes(decode(vector["x"], 32))
    assert jwk_of(public)["kid"] == vector["thumbprint"]
    key = {"kty": "OKP", "crv": "Ed25519", "x": vector["x"]}
    assert verifier.thumbprint(key) == vector["thumbprint"]


def test_the_library_makes_the_signature_of_rfc_9421(monkeypatch: pytest.MonkeyPatch) -> None:
    """Appendix B.2.6: Ed25519 gives one signature only, so ours must be the RFC's octets."""
    vector = VECTORS["rfc9421"]
    secret = Ed25519PrivateKey.from_private_bytes(verifier.from_base64url(VECTORS["key"]["d"]))
    components = vector["components"]
    base = verifier.base_of(list(components), vector["parameters"], components)
    assert base64.b64encode(secret.sign(base)).decode() == vector["signature"]
    signer = Signer(secret, KEYS_URL)
    signer.keyid = vector["keyid"]
    # Our own parameters and components, replaced by the vector's.
    monkeypatch.setattr(signing, "COVERED", tuple(components))
    monkeypatch.setattr(signing, "TAG", None)
    monkeypatch.setattr(signing, "window", lambda now: (int(now), 0))
    monkeypatch.setattr(signing, "covered_values", lambda *_: components)
    monkeypatch.setattr("scrapy_walsh.adapters.wire.signing.datetime", NoEnd)
    fields = signer.fields(target("POST", "https", "example.com", "/foo"), vector["created"])
    assert fields["Signature-Input"] == f"sig={vector['parameters']}"
    assert fields["Signature"] == f"sig=:{vector['signature']}:"


class NoEnd:
    """``datetime``, for a signature without ``expires``."""

    @staticmethod
    def fromtimestamp(seconds: float, zone: Any) -> Any:
        from datetime import datetime  # noqa: PLC0415

        return datetime.fromtimestamp(seconds, zone) if seconds else None


@pytest.mark.parametrize("vector", VECTORS["requests"], ids=lambda each: each["title"])
def test_the_drafts_requests_are_verified(vector: dict[str, str]) -> None:
    given_request = VECTORS["request"]
    keys = signatures.directory_keys(json.dumps({"keys": [public(VECTORS["key"])]}).encode())
    sent = Target(given_request["method"], given_request["authority"], given_request["target"])
    fields = {name: vector[name] for name in FIELDS}
    seen = seen_of(sent, fields, 1735689700)
    assert signatures.judge(seen, keys).fault is None
    elsewhere = seen_of(sent._replace(authority="other.test"), fields, 1735689700)
    assert signatures.judge(elsewhere, keys).fault is Fault.FORGED


def public(key: dict[str, str]) -> dict[str, str]:
    return {name: value for name, value in key.items() if name != "d"}


# -- 10,000 requests ----------------------------------------------------------------------

HOSTS = (
    "site.test",
    "Site.Test:80",
    "site.test:8080",
    "[::1]:8080",
    "m\u00fcnchen.test",
    "h.test.",
)
PATHS = (
    "",
    "/",
    "//a/../b",
    "/%2f;p=1",
    "/a|b[1]{2}",
    "/\u00fc",
    "/a b",
    "/'\"\\",
    "/:@!$&()*+,=~",
)
METHODS = ("GET", "POST", "HEAD", "PURGE")


def test_each_form_of_request_is_accepted_by_the_second_implementation() -> None:
    """Every combination of scheme, host, path, query and method, once."""
    count = 0
    for number in range(2 * 6 * 9 * 4 * 4):
        scheme, method = ("http", "https")[number % 2], METHODS[number // 432 % 4]
        host, path = HOSTS[number // 2 % 6], PATHS[number // 12 % 9]
        query = ("", "?", f"?q={number}", "?a=/b?c#d")[number // 108 % 4]
        place = path + str(number) if path.startswith("/") else path
        request = Request(f"{scheme}://{host}{place}{query}", method=method)
        sent = compat.sent_target(TwistedLike(), request)
        fields = SIGNER.fields(sent, NOW + number)
        parts = urlsplit(request.url)  # read by another hand than the one that signs
        seen = {
            "scheme": scheme,
            "host": parts.netloc,
            "method": method,
            "path": parts.path,
            "headers": tuple(fields.items()),
        }
        told = verifier.verify(seen, KEYS, now=NOW + number)
        assert told["keyid"] == SIGNER.keyid
        assert signatures.judge(seen_of(sent, fields, NOW + number), KEYS).fault is None
        count += 1
    assert count == 1728


@given(st.sampled_from(METHODS), st.text("abc-.", min_size=1), st.text(max_size=30))
@settings(max_examples=2 * settings.default.max_examples, deadline=None)
def test_whatever_path_is_sent_is_signed(method: str, name: str, path: str) -> None:
    sent = compat.sent_target(TwistedLike(), Request(f"http://x{name}/{path}", method=method))
    verifier.verify(request_of(sent, SIGNER.fields(sent, NOW)), KEYS, now=NOW)


@pytest.mark.parametrize(
    ("url", "authority", "path", "query"),
    [
        ("http://Site.test:80/a?b#c", "site.test", "/a", "b"),
        ("https://site.test:443", "site.test", "/", None),
        ("https://site.test:80/", "site.test:80", "/", None),
        ("http://site.test:443?q", "site.test:443", "/", "q"),
        ("http://[::1]:8080/x", "[::1]:8080", "/x", None),
        ("http://[::1]/x", "[::1]", "/x", None),
        ("http://h.test./x", "h.test.", "/x", None),
        ("http://h.test//x/../y;p?q", "h.test", "//x/../y;p", "q"),
    ],
)
def test_host_path_and_query_are_those_that_are_sent(
    url: str, authority: str, path: str, query: str | None
) -> None:
    expected = Target("GET", authority, path, query)
    assert compat.sent_target(TwistedLike(), Request(url)) == expected


def test_a_handler_that_is_not_known_is_not_signed_for() -> None:
    with pytest.raises(RuntimeError, match="object"):
        compat.sent_target(object(), Request("http://site.test/"))


# -- tampering ----------------------------------------------------------------------------

SENT = Target("GET", "site.test", "/page")
FIELDS_SENT = SIGNER.fields(SENT, NOW)


class Tampered(NamedTuple):
    """What arrives in the place of what was sent, and what is found."""

    found: Fault
    sent: Target = SENT
    fields: dict[str, str] = FIELDS_SENT
    at: float = NOW
    keys: list[dict[str, Any]] = KEYS


def altered(name: str, old: str, new: str) -> dict[str, str]:
    assert old in FIELDS_SENT[name]
    return {**FIELDS_SENT, name: FIELDS_SENT[name].replace(old, new)}


def without(name: str) -> dict[str, str]:
    return {key: value for key, value in FIELDS_SENT.items() if key != name}


def flipped() -> dict[str, str]:
    octets = bytearray(verifier.octets(FIELDS_SENT["Signature"].partition("=")[2]))
    octets[5] ^= 1
    return {**FIELDS_SENT, "Signature": f"sig=:{base64.b64encode(octets).decode()}:"}


THEIRS = Signer(OTHER, KEYS_URL)
TAMPERED = {
    "another host": Tampered(Fault.FORGED, SENT._replace(authority="other.test")),
    "a host below": Tampered(Fault.FORGED, SENT._replace(authority="www.site.test")),
    "another port": Tampered(Fault.FORGED, SENT._replace(authority="site.test:8080")),
    "another path": Tampered(Fault.FORGED, SENT._replace(path="/Page")),
    "a path below": Tampered(Fault.FORGED, SENT._replace(path="/page/")),
    "another method": Tampered(Fault.FORGED, SENT._replace(method="POST")),
    "expired": Tampered(Fault.TIME, at=NOW + signing.LIFETIME + 1),
    "not yet": Tampered(Fault.TIME, at=NOW - 1),
    "made to last": Tampered(
        Fault.FORGED,
        fields=altered("Signature-Input", "expires=1800000300", "expires=1900000000"),
        at=NOW + 1000,
    ),
    "made later": Tampered(
        Fault.FORGED, fields=altered("Signature-Input", "created=1800000000", "created=1799999000")
    ),
    "another agent": Tampered(
        Fault.FORGED, fields=altered("Signature-Agent", "operator.test", "other.test")
    ),
    "an agent by http": Tampered(
        Fault.FORGED, fields=altered("Signature-Agent", "https://", "http://")
    ),
    "another label": Tampered(
        Fault.MALFORMED, fields=altered("Signature", "sig=", "other=")
    ),
    "another name of the key": Tampered(
        Fault.KEY, fields=altered("Signature-Input", SIGNER.keyid, THEIRS.keyid)
    ),
    "a listed key that did not sign": Tampered(
        Fault.FORGED,
        fields=altered("Signature-Input", SIGNER.keyid, THEIRS.keyid),
        keys=BOTH,
    ),
    "a key that is not listed": Tampered(Fault.KEY, fields=THEIRS.fields(SENT, NOW)),
    "another tag": Tampered(
        Fault.MALFORMED, fields=altered("Signature-Input", "web-bot-auth", "web-bot-outh")
    ),
    "no name of the key": Tampered(
        Fault.MALFORMED, fields=altered("Signature-Input", f';keyid="{SIGNER.keyid}"', "")
    ),
    "made at a part of a second": Tampered(
        Fault.MALFORMED, fields=altered("Signature-Input", "created=1800000000", "created=1.5")
    ),
    "made at true": Tampered(
        Fault.MALFORMED, fields=altered("Signature-Input", "created=1800000000", "created=?1")
    ),
    "an end in words": Tampered(
        Fault.MALFORMED, fields=altered("Signature-Input", "1800000300", '"1800000300"')
    ),
    "less covered": Tampered(
        Fault.FORGED, fields=altered("Signature-Input", ' "@method" "@path"', "")
    ),
    "covered in another order": Tampered(
        Fault.FORGED, fields=altered("Signature-Input", '"@method" "@path"', '"@path" "@method"')
    ),
    "the host not covered": Tampered(
        Fault.MALFORMED, fields=altered("Signature-Input", '"@authority" ', "")
    ),
    "one more parameter": Tampered(
        Fault.FORGED, fields=altered("Signature-Input", ";tag", ';nonce="a";tag')
    ),
    "an octet of the signature": Tampered(Fault.FORGED, fields=flipped()),
    "the signature of another request": Tampered(
        Fault.FORGED,
        fields={**FIELDS_SENT, "Signature": SIGNER.fields(SENT, NOW + 1)["Signature"]},
    ),
    "half a signature": Tampered(
        Fault.FORGED, fields={**FIELDS_SENT, "Signature": f"{FIELDS_SENT['Signature'][:45]}=:"}
    ),
    "no signature": Tampered(Fault.MALFORMED, fields=without("Signature")),
    "no input": Tampered(Fault.MALFORMED, fields=without("Signature-Input")),
    "no agent": Tampered(Fault.FORGED, fields=without("Signature-Agent")),
    "nothing": Tampered(Fault.UNSIGNED, fields={}),
    "something else": Tampered(Fault.MALFORMED, fields={**FIELDS_SENT, "Signature-Input": "("}),
    "endless": Tampered(
        Fault.MALFORMED, fields={**FIELDS_SENT, "Signature-Input": "a=1," * 10_000}
    ),
}  # fmt: skip


def test_what_was_not_tampered_with_holds() -> None:
    verifier.verify(request_of(SENT, FIELDS_SENT), KEYS, now=NOW)
    assert signatures.judge(seen_of(SENT, FIELDS_SENT), KEYS).fault is None
    assert len(TAMPERED) >= 20


@pytest.mark.parametrize("way", TAMPERED)
def test_the_second_implementation_refuses_what_was_tampered_with(way: str) -> None:
    each = TAMPERED[way]
    with pytest.raises(verifier.Bad):
        verifier.verify(request_of(each.sent, each.fields), each.keys, now=each.at)


@pytest.mark.parametrize("way", TAMPERED)
def test_what_was_tampered_with_is_named(way: str) -> None:
    each = TAMPERED[way]
    found = signatures.judge(seen_of(each.sent, each.fields, each.at), each.keys)
    assert found.fault is each.found
    assert found.why
    assert "\n" not in found.why


# -- directories --------------------------------------------------------------------------


def test_a_key_without_a_name_is_named_and_one_with_another_is_left_out() -> None:
    key = KEYS[0]
    unnamed = {name: value for name, value in key.items() if name != "kid"}
    named = {**key, "kid": "mine"}
    body = json.dumps({"keys": [unnamed, named, {"kty": "EC", "crv": "P-256", "x": "\u00fc"}]})
    assert signatures.directory_keys(body.encode()) == [{**unnamed, "kid": key["kid"]}]


@pytest.mark.parametrize(
    ("times", "fault"),
    [
        ({"nbf": NOW + 1}, Fault.KEY),
        ({"exp": NOW - 1}, Fault.KEY),
        ({"nbf": NOW - 1, "exp": NOW + 1}, None),
        ({"nbf": "soon"}, None),
        ({"exp": 10**400}, None),
        ({"nbf": 10**400}, Fault.KEY),
    ],
)
def test_a_key_holds_for_its_time(times: dict[str, Any], fault: Fault | None) -> None:
    keys = [{**KEYS[0], **times}]
    assert signatures.judge(seen_of(SENT, FIELDS_SENT), keys).fault is fault


def test_one_signature_of_several_that_holds_is_enough() -> None:
    """Another signer's stands beside ours, as behind a proxy that signs (RFC 9421 section 4.3)."""
    theirs = {
        name: value.replace("sig", "proxy", 1) for name, value in THEIRS.fields(SENT, NOW).items()
    }
    both = {name: f"{theirs[name]}, {FIELDS_SENT[name]}" for name in FIELDS}
    assert signatures.judge(seen_of(SENT, both), KEYS).fault is None


#: Octets of the fields, and pieces of which they are made.
PIECES = st.sampled_from(
    ["sig", "=", "(", ")", ";", '"', ",", ":", " ", "tag", "web-bot-auth", '"web-bot-auth"', "?1",
     "created", "1800000000", "@2", '%"x"', "9" * 20, "1.5", "AAAA", SIGNER.keyid, "\\", "\x00",
     "\xff", '("@authority" "signature-agent";key="sig")', "expires", "keyid", "bs", "key", "*"]
)  # fmt: skip
FIELD = st.lists(PIECES, max_size=25).map("".join)


@given(st.tuples(FIELD, FIELD, FIELD), st.integers(0, 7))
@settings(max_examples=4 * settings.default.max_examples, deadline=None)
def test_no_field_however_hostile_is_more_than_a_fault(
    made: tuple[str, str, str], which: int
) -> None:
    """Any of the three fields is as it was sent, or made of such pieces."""
    fields = {
        name: made[place] if which >> place & 1 else FIELDS_SENT[name]
        for place, name in enumerate(FIELDS)
    }
    found = signatures.judge(seen_of(SENT, fields), KEYS)
    assert (found.fault is None) == (fields == FIELDS_SENT)


def test_a_replay_is_found() -> None:
    first = signatures.judge(seen_of(SENT, FIELDS_SENT), KEYS)
    other = signatures.judge(seen_of(SENT, SIGNER.fields(SENT, NOW + 1), NOW + 1), KEYS)
    assert list(signatures.repeated([("a", first), ("b", other), ("c", first)])) == [("a", "c")]
    elsewhere = signatures.judge(seen_of(SENT._replace(path="/z"), FIELDS_SENT), KEYS)
    assert elsewhere.fault is Fault.FORGED
    assert list(signatures.repeated([("z", elsewhere), ("a", first)])) == []
