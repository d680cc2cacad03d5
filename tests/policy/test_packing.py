"""R2: a Content-Encoding that nobody asked for, and what is text."""

from __future__ import annotations

import gzip
import zlib

import pytest

from scrapy_walsh.policy.packing import is_text, packings

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
