"""No promise rests on a table of the interpreter's (D36)."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import scrapy_walsh
from scrapy_walsh.policy import hosts

PACKAGE = Path(scrapy_walsh.__file__).parent
#: The rooms of what judges, sends or declares.
ROOMS = ("policy", "adapters", "fleet", "sources", "spiders", "state", "config.py")
TABLES = {
    *("urlsplit", "urlparse", "urlunsplit", "urlunparse", "urljoin", "urldefrag", "parse_qs"),
    *("parse_qsl", "quote", "unquote", "unquote_to_bytes", "urlencode", "ip_address"),
    *("ip_network", "IPv4Address", "IPv6Address", "IPv4Network", "IPv6Network", "parsedate"),
    *("parsedate_tz", "parsedate_to_datetime", "parseaddr", "formatdate"),
}


def calls(source: str) -> list[int]:
    """The lines that call one of the tables, or encode by the codec ``idna``."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Call):
            continue
        name = getattr(node.func, "id", getattr(node.func, "attr", ""))
        values = [each.value for each in node.args if isinstance(each, ast.Constant)]
        if name in TABLES or (name in {"encode", "decode"} and "idna" in values):
            found.append(node.lineno)
    return found


def files() -> list[Path]:
    rooms = [PACKAGE / each for each in ROOMS]
    return [file for each in rooms for file in ([each] if each.is_file() else each.rglob("*.py"))]


@pytest.mark.parametrize("file", files(), ids=lambda each: str(each.relative_to(PACKAGE)))
def test_each_call_of_a_table_has_its_reason_at_the_line(file: Path) -> None:
    source = file.read_text("utf-8")
    lines = source.splitlines()
    bare = [line for line in calls(source) if "D36" not in "\n".join(lines[line - 6 : line])]
    assert bare == [], "say with D36 why this is safe on each Python, or do without it"


def test_a_call_is_found_however_it_is_written() -> None:
    source = 'a.encode("idna")\nurllib.parse.urlsplit(x)\nip_address(y)\nz.encode("utf-8")\n'
    assert calls(source) == [1, 2, 3]


@pytest.mark.parametrize(
    ("listed", "asked"),
    [
        ("STRA\u1e9eE.test", "strasse.test"),
        ("STRA\u1e9eE.test", "xn--strae-oqa.test"),
        ("stra\u00dfe.test", "strasse.test"),
        ("\u03c3\u03c2.test", "xn--4xaa.test"),
        ("a\u200db.test", "ab.test"),
        ("a\u200cb.test", "ab.test"),
        ("B\u00dcCHER.test", "xn--bcher-kva.test"),
        ("\uff22\uff35.test", "bu.test"),
        ("a\u3002b\uff0etest", "a.b.test"),
    ],
)
def test_r3_a_name_blocks_whatever_the_interpreters_codec_reads(
    listed: str, asked: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuses(name: str) -> str:
        raise UnicodeError(name)

    monkeypatch.setattr(hosts, "_idna_codec", refuses)
    hosts._forms.cache_clear()
    try:
        assert asked in hosts.host_forms(listed)
    finally:
        hosts._forms.cache_clear()


@given(st.text(st.characters(min_codepoint=0x80, exclude_categories=["Cs"]), min_size=1))
def test_r3_what_scrapy_makes_of_a_name_is_one_of_its_forms(text: str) -> None:
    """On this Python, too: Scrapy makes the host of a Request by the interpreter's codec."""
    name = f"a{text}b.test"
    try:
        made = name.encode("idna").decode().lower()
        forms = hosts.host_forms(name)
    except (UnicodeError, ValueError):
        return
    assert made.strip(".") in forms or hosts._FORBIDDEN.search(made)
