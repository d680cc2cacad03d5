"""R2: a Content-Encoding that nobody asked for, and what is text."""

from __future__ import annotations

import gzip
import zlib

import pytest

from scrapy_walsh.policy.packing import is_text, packings, unpack

RULES = b"User-agent: *\r\nDisallow: /private/\n\tAllow: /\f# caf"


@pytest.mark.parametrize(
    ("fields", "found"),
    [
        ([], (0, False)),
        (["identity"], (0, False)),
        (["", " Identity ,x-identity"], (0, False)),
        (["GZip"], (1, False)),
        (["gzip, identity"], (1, False)),
        (["identity", "deflate"], (1, False)),
        (["gzip", "x-gzip"], (2, False)),
        (["utf-8"], (0, True)),
        (["none"], (0, True)),
        (["gzip, utf-8"], (1, True)),
        (["br"], (0, True)),
    ],
)
def test_r2_27_the_words_of_content_encoding(fields: list[str], found: tuple[int, bool]) -> None:
    assert packings(fields) == found


@pytest.mark.parametrize(
    "body",
    [
        b"",
        RULES,
        b"\xef\xbb\xbf" + RULES,
        RULES + "é 規則".encode(),
        RULES + "é".encode()[:1],  # cut off within a character
        "# 規則\n".encode() * 20,
        RULES + "é".encode("latin-1"),
        RULES + "“quoted”".encode("cp1252"),
    ],
)
def test_r2_27_text(body: bytes) -> None:
    assert is_text(body)


@pytest.mark.parametrize(
    "body",
    [
        gzip.compress(RULES, mtime=0),
        zlib.compress(RULES),
        b"\x8b\x02\x80",
        b"\x28\xb5\x2f\xfd\x20\x19\xc9\xe0\xa1\xb2\xc3\xd4\xe5",  # as zstd begins
        RULES + b"\x00",
        RULES + b"\x7f",
        RULES.decode().encode("utf-16"),
        bytes(range(0xA0, 0x100)) * 3,
    ],
)
def test_r2_27_no_text(body: bytes) -> None:
    assert not is_text(body)


MEMBER = gzip.compress(RULES, mtime=0)


@pytest.mark.parametrize(
    ("packed", "limit", "body"),
    [
        (b"", 99, b""),
        (MEMBER, 99, RULES),
        (zlib.compress(RULES), 99, RULES),
        (MEMBER + MEMBER, 1000, RULES * 2),
        (gzip.compress(b"", mtime=0) * 9 + MEMBER, 1000, RULES),
        (MEMBER, len(RULES), RULES),
        (MEMBER, 5, RULES[:5]),
        (MEMBER[:-9], 99, None),
        (MEMBER + MEMBER[:7], 1000, None),
        (MEMBER[:-9], 30, RULES[:30]),  # perhaps cut by whoever read it
        (gzip.compress(bytes(100_000), mtime=0), 70_000, bytes(70_000)),
        (gzip.compress(bytes(100_000), 0, mtime=0), 200_000, bytes(100_000)),
    ],
)
def test_r2_27_what_is_packed_is_unpacked_to_a_limit(
    packed: bytes, limit: int, body: bytes | None
) -> None:
    assert unpack(packed, limit) == body


@pytest.mark.parametrize("packed", [b"User-agent: *", MEMBER + b"more"])
def test_r2_27_other_data_is_not_unpacked(packed: bytes) -> None:
    with pytest.raises(zlib.error):
        unpack(packed, 1000)
