"""R3c, R10: which documents are adopted, by whose schema, and what may be validated in place."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scrapy_walsh.exceptions import DocumentInvalid
from scrapy_walsh.policy.list.blocklist import is_inline
from scrapy_walsh.policy.list.schema import (
    is_tame,
    parse_blocklist,
    read_document,
)

DATA = Path(__file__).parents[1] / "data"
CONTRACT = "walsh-research-blocklist/v1"
BASE: dict[str, Any] = {
    "contract": CONTRACT,
    "updated": "2026-05-23T00:00:00Z",
    "operator": "Test Operator",
    "contact": "ops@ops.test",
    "policy": "https://ops.test/bot/",
    "refresh": "PT6H",
    "blocked": [{"domain": "blocked.test", "added": "2026-05-23", "reason": "test"}],
}
TEXT = {"type": "string"}
ENTRY = {
    "type": "object",
    "required": ["domain", "added"],
    "properties": {"domain": TEXT, "added": {**TEXT, "format": "date"}, "reason": TEXT},
}
STANDALONE: dict[str, Any] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "$id": "https://ops.test/blocklist.schema.json",
    "type": "object",
    "required": ["contract", "updated", "operator", "policy", "refresh", "blocked"],
    "properties": {
        "contract": {"const": CONTRACT},
        "updated": {**TEXT, "format": "date-time"},
        "operator": TEXT,
        "contact": {**TEXT, "format": "email"},
        "policy": {**TEXT, "format": "uri"},
        "refresh": {**TEXT, "pattern": "^P"},
        "blocked": {"type": "array", "items": ENTRY},
    },
}
ONE_LINE = re.compile(r"\A[^\n]{1,1000}\Z")
URL = "https://ops.test/blocklist.json"


def body_of(row: dict[str, Any]) -> bytes:
    if "raw" in row:
        return str(row["raw"]).encode()
    if "repeat" in row:
        text, times = row["repeat"]
        return str(text * times).encode()
    members = {**BASE, **row.get("with", {})}
    return json.dumps(
        {k: v for k, v in members.items() if k not in row.get("without", [])}
    ).encode()


def document(**members: Any) -> bytes:
    return body_of({"with": members})


def tame(body: bytes, standalone: dict[str, Any] | None = None) -> bool:
    return is_tame(read_document(body), standalone)


def adopts(body: bytes, standalone: dict[str, Any] | None = None) -> bool:
    try:
        parse_blocklist(body, standalone)
    except DocumentInvalid as error:
        if not ONE_LINE.fullmatch(str(error)):
            raise
        return False
    return True


ROWS = [
    pytest.param(row, id=row["id"])
    for row in json.loads((DATA / "blocklist_documents.json").read_text(encoding="utf-8"))
]


@pytest.mark.parametrize("row", ROWS)
def test_r3_4_adopted_only_when_valid(row: dict[str, Any]) -> None:
    assert adopts(body_of(row), STANDALONE) is row["adopt"]


@pytest.mark.parametrize(
    "body",
    [
        document().replace(b'"blocked":', b'"blocked": [], "blocked":'),
        document().replace(b'"contract":', b'"contract": "x", "contract":'),
        document().replace(b'"domain":', b'"domain": "a.test", "domain":'),
        document(schema={}).replace(b'"schema":', b'"schema": {}, "schema":'),
    ],
)
def test_a_member_given_twice_is_ambiguous(body: bytes) -> None:
    assert not adopts(body, STANDALONE)


def test_a_harmless_member_given_twice_is_harmless() -> None:
    assert adopts(document().replace(b'"reason":', b'"reason": "a", "reason":'), STANDALONE)


@pytest.mark.parametrize(
    "body",
    [
        b"\xff\xfe\xfa",
        b'{"contract": "\xff"}',
        document(extra=1).replace(b'"extra": 1', b'"extra": ' + b"9" * 10_000),
    ],
)
def test_r3_4_unreadable_octets_are_not_adopted(body: bytes) -> None:
    assert not adopts(body, STANDALONE)


def test_a_byte_order_mark_is_harmless() -> None:
    assert adopts(b"\xef\xbb\xbf" + document(), STANDALONE)


def test_r10_5_without_any_schema_nothing_is_adopted() -> None:
    with pytest.raises(DocumentInvalid, match="no schema"):
        parse_blocklist(document(), None)


def test_r10_1_an_inline_schema_is_used_instead_of_the_standalone_one() -> None:
    assert adopts(document(schema={"type": "object"}), {"not": {}})
    assert not adopts(document(schema={"not": {}}), STANDALONE)


@pytest.mark.parametrize("ref", ["http://evil.test/s.json", "https://ops.test/other.json"])
def test_no_ref_is_ever_fetched(ref: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []
    monkeypatch.setattr("urllib.request.urlopen", lambda *args, **_: asked.append(args))
    schema = {"$id": "https://ops.test/s.json", "properties": {"blocked": {"$ref": ref}}}
    assert not adopts(document(schema=schema))
    assert asked == []


@pytest.mark.parametrize(
    ("body", "needed"),
    [
        (document(), True),
        (document(schema={}), False),
        (document(schema=None), False),
    ],
)
def test_r10_1_the_standalone_schema_is_only_needed_without_an_inline_one(
    body: bytes, needed: bool
) -> None:
    assert is_inline(read_document(body)) is not needed


def test_r3_parsed_list_carries_the_facts_of_its_document() -> None:
    made = parse_blocklist(document(refresh="PT1H", contract=CONTRACT), STANDALONE, URL)
    assert list(made) == ["blocked.test"]
    assert made.refresh == 3600
    assert made.updated == BASE["updated"]
    assert made.contract == CONTRACT
    verdict = made.blocks("http://www.blocked.test/")
    assert verdict is not None
    assert verdict.document == URL


def test_an_empty_domain_is_ignored_and_the_rest_adopted() -> None:
    blocked = [{"domain": domain, "added": "2026-05-23"} for domain in ("", "a.test", " ")]
    made = parse_blocklist(document(blocked=blocked), STANDALONE)
    assert list(made) == ["a.test"]
    assert len(made.warnings) == 2


def test_the_error_names_the_place_in_the_document() -> None:
    blocked = [{"domain": f"h{n}.test", "added": "2026-05-23"} for n in range(50)]
    del blocked[41]["added"]
    with pytest.raises(DocumentInvalid, match="/blocked/41: 'added'"):
        parse_blocklist(document(blocked=blocked), STANDALONE)


VALUES: st.SearchStrategy[Any] = st.sampled_from(["a.test", "", 1, 1.0, 1.5, True, None, [], {}])
ENTRIES = st.lists(
    st.dictionaries(st.sampled_from(["domain", "added", "n"]), VALUES) | VALUES, max_size=6
)
TYPES = st.sampled_from(["string", "number", "integer", "boolean", "null", "array", "object"])
MEMBERS: st.SearchStrategy[Any] = st.dictionaries(
    st.sampled_from(["domain", "added", "n"]), st.builds(dict, type=TYPES)
)
ITEMS = st.fixed_dictionaries(
    {},
    optional={
        "type": TYPES,
        "required": st.lists(st.sampled_from(["domain", "added"]), unique=True),
        "properties": MEMBERS,
        "additionalProperties": st.booleans(),
    },
)


@pytest.mark.slow
@settings(max_examples=3 * settings.default.max_examples)
@given(entries=ENTRIES, items=ITEMS)
def test_one_entry_of_a_shape_speaks_for_all(entries: list[Any], items: dict[str, Any]) -> None:
    schema = {"properties": {"blocked": {"type": "array", "items": items}}}
    found = {"contract": CONTRACT, "blocked": entries}
    valid = jsonschema.Draft202012Validator(schema).is_valid(found)
    floor = all(isinstance(e, dict) and isinstance(e.get("domain"), str) for e in entries)
    assert adopts(json.dumps(found).encode(), schema) is (valid and floor)


def test_whole_and_broken_numbers_are_two_shapes() -> None:
    schema = {"properties": {"blocked": {"items": {"properties": {"n": {"type": "integer"}}}}}}
    blocked = [{"domain": "a.test", "n": 1.0}, {"domain": "b.test", "n": 1.5}]
    assert adopts(document(blocked=blocked[:1]), schema)
    assert not adopts(document(blocked=blocked), schema)


def test_an_unreadable_time_of_update_is_none() -> None:
    assert parse_blocklist(document(updated=7), {}).updated is None


def test_the_usual_document_is_tame() -> None:
    assert tame(document(), STANDALONE)
    assert tame(document(schema=STANDALONE))


def test_a_document_of_any_length_is_tame() -> None:
    blocked = [{"domain": f"h{n}.test", "added": "2026-05-23"} for n in range(10_000)]
    assert tame(document(blocked=blocked), STANDALONE)
    assert tame(document(extra="x" * 300_000), STANDALONE)


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#"},
        {"allOf": [{}]},
        {"properties": {"refresh": {"pattern": "(P+)+$"}}},
        {"properties": {"refresh": {"pattern": "^P.*"}}},
        {"properties": {"refresh": {"pattern": 5}}},
        {"properties": {"refresh": {"pattern": "a" * 1000}}},
        {"properties": {"blocked": {"uniqueItems": True}}},
        {"properties": {"blocked": {"items": {"properties": {"domain": {"pattern": "^a"}}}}}},
        {"properties": {"blocked": {"items": {"properties": {"domain": {"enum": ["a"]}}}}}},
        {"properties": {"blocked": {"items": {"patternProperties": {"(a+)+$": {}}}}}},
        {"properties": {"blocked": {"items": {"additionalProperties": {"pattern": "^a"}}}}},
        {"properties": {"blocked": True}},
        {"properties": {"extra": {"items": {"type": "string"}}}},
        {"properties": []},
        {"enum": [1] * 500},
        {"required": ["a"] * 3000},
    ],
)
def test_a_schema_that_might_run_away_is_not_tame(schema: dict[str, Any]) -> None:
    assert not tame(document(), schema)
    assert not tame(document(schema=schema))


def test_entries_of_many_shapes_are_not_tame() -> None:
    blocked = [{"domain": "a.test", f"x{n}": 1} for n in range(200)]
    assert not tame(document(blocked=blocked), STANDALONE)
    assert adopts(document(blocked=[{**each, "added": ""} for each in blocked]), STANDALONE)
    assert not adopts(document(blocked=blocked), STANDALONE)


def test_the_child_imports_no_scrapy() -> None:
    code = (
        "import sys; from scrapy_walsh.adapters.documents import validate;"
        "sys.exit(bool({'scrapy', 'twisted'} & sys.modules.keys()))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
