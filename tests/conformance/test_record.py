"""The record: its digest is that of its content, and what is not a record is not read as one."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

import scrapy_walsh
from scrapy_walsh.exceptions import DocumentInvalid
from scrapy_walsh.proof.conformance.check import (
    code_digest,
    read_record,
    record_digest,
    write_record,
)

CHECK = {
    "id": "R4b",
    "requirement": "R4",
    "level": "MUST",
    "title": "spacing",
    "outcome": "PASS",
    "detail": "gap=2.000s",
}
RECORD: dict[str, Any] = {
    "contract": "walsh-conformance/v1",
    "tool": "scrapy-walsh",
    "tool_version": "0.1.0",
    "code": "00",
    "spec": "walsh-research-compliance/v1.3",
    "user_agent": "ExampleBot é",
    "date": "2026-11-21T08:00:00+00:00",
    "seconds": 44.5,
    "live": False,
    "versions": {"python": "3.11.2"},
    "settings": {"mirrored": True},
    "checks": [CHECK],
}


def test_a_record_is_read_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "state" / "conformance.json"
    write_record(path, RECORD)
    read = read_record(path)
    assert read == {**RECORD, "digest": record_digest(RECORD)}
    assert [each.name for each in path.parent.iterdir()] == ["conformance.json"]


def test_the_digest_is_sha_256_over_canonical_json(tmp_path: Path) -> None:
    text = json.dumps(RECORD, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    assert record_digest(RECORD) == hashlib.sha256(text.encode()).hexdigest()


def test_the_code_digest_is_over_paths_and_octets_in_order() -> None:
    package = Path(scrapy_walsh.__file__).parent
    digest = hashlib.sha256()
    files = [path for path in package.rglob("*.*") if path.suffix != ".pyc"]
    assert package / "proof" / "conformance" / "vectors.json" in files
    for name in sorted(path.relative_to(package).as_posix() for path in files):
        digest.update(name.encode() + b"\0" + (package / name).read_bytes() + b"\0")
    assert code_digest() == digest.hexdigest()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"contract": "walsh-conformance/v2"}, "contract is 'walsh-conformance/v2'"),
        ({"seconds": "soon"}, "digest"),
        ({"checks": [{**CHECK, "outcome": "FAIL"}]}, "digest"),
        ({"checks": []}, "digest"),
        ({"digest": "00"}, "digest"),
    ],
)
def test_an_edited_record_is_refused_in_one_line(
    tmp_path: Path, change: dict[str, Any], said: str
) -> None:
    path = tmp_path / "conformance.json"
    write_record(path, RECORD)
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(DocumentInvalid) as error:
        read_record(path)
    assert said in str(error.value)
    assert str(path) in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("text", ["", "[]", "{", "\x00", "null"])
def test_what_is_no_record_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "conformance.json"
    path.write_text(text)
    with pytest.raises(DocumentInvalid):
        read_record(path)
