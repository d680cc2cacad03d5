"""The form of a ledger's lines: JSON, numbered, chained by SHA-256.

A line is a JSON object in ASCII whose last member is ``hash``: the SHA-256, hexadecimal, of the
octets of the line before ``,"hash":``. ``prev`` is the hash of the line before, ``n`` its number
from 1. Both go on over rotated files. So no line can be altered, dropped from between others, or
moved, without every later hash being written anew; ``ledger.head`` has the last one.
"""

from __future__ import annotations

import hashlib
import json
import math
from typing import TYPE_CHECKING, Any, Final

from scrapy_walsh.policy.strict_json import json_object

if TYPE_CHECKING:
    from collections.abc import Mapping


CONTRACT: Final = "walsh-ledger/v1"
FILE: Final = "ledger.jsonl"
HEAD: Final = "ledger.head"
#: What the first line of all is chained to.
GENESIS: Final = "0" * 64
#: What stands in place of a query in a redacted ledger.
REDACTED: Final = "?redacted"

#: Made once: ``json.dumps`` would make one for each line, which takes as long as the line itself.
_ENCODER: Final = json.JSONEncoder(separators=(",", ":"), allow_nan=False)
_HASH: Final = b',"hash":"'
_TAIL: Final = len(_HASH) + 64 + len(b'"}')
_URL_MEMBERS: Final = ("url", "document", "sent", "via", "by", "reason")


def chained(entry: Mapping[str, Any], number: int, previous: str) -> tuple[bytes, str]:
    """The line of *entry*, with its line end, and its hash. Empty members are left out."""
    members = {name: value for name, value in entry.items() if _says_something(value)}
    whole = {"n": number, **members, "prev": previous}
    text = _ENCODER.encode(whole)[:-1].encode("ascii")
    digest = hashlib.sha256(text).hexdigest()
    return b'%s%s%s"}\n' % (text, _HASH, digest.encode("ascii")), digest


def digest_of(line: bytes) -> str:
    """The hash that *line*, without its line end, ought to carry."""
    return hashlib.sha256(line[:-_TAIL]).hexdigest()


def parsed(line: bytes) -> dict[str, Any]:
    """The members of a line without its line end; ValueError where it is not a ledger line."""
    if line[-_TAIL:-66] != _HASH or line[-2:] != b'"}':
        raise ValueError("does not end in a hash")
    found: dict[str, Any] = json_object(line)
    number, previous, kind = found.get("n"), found.get("prev"), found.get("kind")
    if type(number) is not int or not isinstance(previous, str) or not isinstance(kind, str):
        raise ValueError("has no number, no kind, or no hash of the line before")
    return found


def redacted(entry: Mapping[str, Any]) -> dict[str, Any]:
    """*entry* without the query strings of its URLs, also where its reason repeats them."""
    queries = {
        "?" + value.partition("?")[2]
        for name in _URL_MEMBERS[:-1]
        if isinstance(value := entry.get(name), str) and "?" in value
    }
    found = dict(entry)
    for name in _URL_MEMBERS:
        for query in queries:
            if isinstance(found.get(name), str):
                found[name] = found[name].replace(query, REDACTED)
    return found


def _says_something(value: object) -> bool:
    if isinstance(value, float):
        return math.isfinite(value)
    return value is not None and value not in ("", (), [])
