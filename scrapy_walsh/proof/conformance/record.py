"""The record of a conformance run, contract ``walsh-conformance/v1``: what an attestation rests on.

It has the digest of the code that ran, and a digest of itself, so that a record of another version,
or one that was edited, is noticed.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from scrapy_walsh.exceptions import DocumentInvalid
from scrapy_walsh.files import replace_file
from scrapy_walsh.policy.strict_json import json_object
from scrapy_walsh.proof.conformance.check import WORDS

if TYPE_CHECKING:
    from collections.abc import Mapping

CONTRACT: Final = "walsh-conformance/v1"
FILE: Final = "conformance.json"
OUTCOMES: Final = tuple(WORDS.values())

_PACKAGE: Final = Path(__file__).resolve().parents[2]
_TEXTS: Final = ("contract", "tool", "tool_version", "code", "spec", "user_agent", "date", "digest")
_MEMBERS: Final[dict[str, type | tuple[type, ...]]] = {
    **dict.fromkeys(_TEXTS, str),
    "seconds": (int, float),
    "live": bool,
    "versions": dict,
    "settings": dict,
    "checks": list,
}
_CHECK_MEMBERS: Final = ("id", "requirement", "level", "title", "outcome", "detail")


def code_digest() -> str:
    """SHA-256, in hex, over the package's own files: the build that a record speaks of.

    The files in the order of their paths (relative to the package, ``/`` between the parts); of
    each the path, NUL, its octets, NUL.
    """
    own = (each for each in _PACKAGE.rglob("*") if each.is_file() and each.suffix != ".pyc")
    files = {each.relative_to(_PACKAGE).as_posix(): each for each in own}
    digest = hashlib.sha256()
    for name in sorted(files):
        digest.update(name.encode() + b"\0" + files[name].read_bytes() + b"\0")
    return digest.hexdigest()


def record_digest(record: Mapping[str, Any]) -> str:
    """SHA-256, in hex, of *record* without its ``digest``, as JSON with sorted keys, no spaces."""
    rest = {name: value for name, value in record.items() if name != "digest"}
    text = json.dumps(rest, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()


def write_record(path: Path, record: Mapping[str, Any]) -> None:
    """Write *record*, its ``digest`` set, to *path*; the old file stays until the new one is whole.

    Raises OSError.
    """
    whole = {**record, "digest": record_digest(record)}
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(whole, indent=2, ensure_ascii=False) + "\n"
    replace_file(path, text.encode())


def read_record(path: Path) -> dict[str, Any]:
    """The record in *path*, its shape and its digest checked.

    Raises OSError when it cannot be read, DocumentInvalid (one line) when it is not a record.
    """
    try:
        record: dict[str, Any] = json_object(path.read_bytes())
        problem = _problem(record)
    except DocumentInvalid as error:
        problem = str(error)
    if problem:
        raise DocumentInvalid(f"{path}: {problem}; run walsh conformance again")
    return record


def _problem(record: dict[str, Any]) -> str | None:
    """What is wrong with the parsed *record*, or None."""
    if record.get("contract") != CONTRACT:
        return f"contract is {record.get('contract')!r}, not {CONTRACT!r}"
    for name, kind in _MEMBERS.items():
        if not isinstance(record.get(name), kind):
            return f"member {name!r} is missing or of another type"
    for number, check in enumerate(record["checks"]):
        if not _is_check(check):
            return f"checks[{number}] is not a check"
    if record["digest"] != record_digest(record):
        return "its digest is not that of its content: it was edited or damaged"
    return None


def _is_check(check: Any) -> bool:
    return (
        isinstance(check, dict)
        and all(isinstance(check.get(name), str) for name in _CHECK_MEMBERS)
        and check["outcome"] in OUTCOMES
    )
