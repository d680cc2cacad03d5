"""Validate a blocklist before it is adopted (R10, R3c), by its inline schema if it has one.

Validation has two parts, and both must pass (T9): the schema, and our own floor checks, because an
inline schema could accept anything. No ``$ref`` is ever fetched. If a schema has a ``$ref`` that
cannot be resolved, the document is not valid.

A schema can make validation take for ever, and a list may have a million entries. So some schemas
are called *tame*. All their keywords cost little, and by them an entry is valid or not by its shape
alone: its members and their types. By a tame schema we validate one entry of each shape in place of
all. If a document has a tame schema and few shapes, its reader validates it (:func:`is_tame`). All
other documents are validated in a child process.
"""

from __future__ import annotations

import hashlib
import json
import re
from typing import Any, Final

from scrapy_walsh.exceptions import DocumentInvalid, one_line
from scrapy_walsh.policy.freshness import refresh_seconds
from scrapy_walsh.policy.list.blocklist import Blocklist, is_inline, normalise
from scrapy_walsh.policy.strict_json import json_object

_CONTRACT: Final = re.compile(r"walsh-research-blocklist/v1(\.[0-9]+)?")
_MAIL: Final = re.compile(r"[\w.+-]{1,64}@[\w.-]{1,255}")
# Members that must not occur twice: two JSON parsers could then read two different lists.
_READ_ONCE: Final = frozenset({"contract", "updated", "refresh", "schema", "blocked", "domain"})

_TAME_LENGTH: Final = 10_000  # characters of the schema as JSON
_TAME_SHAPES: Final = 100  # of entries
_ANNOTATIONS: Final = frozenset(
    {"$comment", "title", "description", "default", "examples", "format", "type"}
)
_OBJECT: Final = _ANNOTATIONS | {"required", "properties", "additionalProperties"}
#: The keywords that a tame schema has for each part of a document.
_TAME: Final = {
    "document": _OBJECT | {"$schema", "$id"},
    "blocked": _ANNOTATIONS | {"items"},
    "member": _ANNOTATIONS | {"const", "enum", "pattern", "minLength"},
    "entry": _OBJECT,
    "member of an entry": _ANNOTATIONS,
}
_TAME_PATTERN: Final = re.compile(r"\^?[A-Za-z0-9_/ -]{0,200}\$?")


def parse_blocklist(
    body: bytes, fallback_schema: dict[str, Any] | None, document: str | None = None
) -> Blocklist:
    """Return the blocklist in ``body``, validated.

    ``fallback_schema``: the standalone schema, used if the document has none inline, or None.
    ``document``: URL of the body, for verdicts. Raises DocumentInvalid (one line) if it must not be
    adopted. With a hostile schema it may never end (see :func:`is_tame`).
    """
    members = read_document(body)
    check_schema(members, fallback_schema)
    return blocklist_in(members, body, document)


def reread_blocklist(body: bytes, document: str | None = None) -> Blocklist:
    """Return the blocklist in ``body``, after the floor checks alone (D3).

    For a document that was validated when it was adopted, and that is still the same by its
    checksum: a later schema cannot lift its opt-outs, or delay them. Raises DocumentInvalid.
    """
    return blocklist_in(read_document(body), body, document)


def read_document(body: bytes) -> dict[str, Any]:
    """Return the JSON object in ``body``. Raises DocumentInvalid for anything else.

    The first of three steps, between which a caller may ask :func:`is_tame`, or for the standalone
    schema; the others are :func:`check_schema` and :func:`blocklist_in`.
    """
    members: dict[str, Any] = json_object(body, "blocklist", once=_READ_ONCE)
    contract = members.get("contract")
    if not isinstance(contract, str) or not _CONTRACT.fullmatch(contract):
        quoted = one_line(repr(contract))
        raise DocumentInvalid(f"blocklist contract is {quoted}, not walsh-research-blocklist/v1")
    return members


def read_schema(body: bytes) -> dict[str, Any]:
    """Return the schema beside a list that *body* has. Raises DocumentInvalid for anything else.

    It is read leniently: a crawl and ``verify`` must understand the same.
    """
    schema: dict[str, Any] = json_object(body, "the standalone schema", once=())
    return schema


def is_tame(members: dict[str, Any], fallback_schema: dict[str, Any] | None) -> bool:
    """Tell whether :func:`check_schema` is sure to end soon, however long the list is.

    That is so for a schema with keywords that cost little, and entries of few shapes (the same
    members with the same types). It says nothing about whether the document is valid.
    """
    try:
        schema = _schema(members, fallback_schema)
        is_short = len(json.dumps(schema)) <= _TAME_LENGTH
    except DocumentInvalid:
        return True  # it is refused before anything is validated
    except RecursionError:
        return False
    return is_short and _is_tame_schema(schema) and _representatives(members) is not None


def blocklist_in(members: dict[str, Any], body: bytes, document: str | None) -> Blocklist:
    """Return what ``members``, which was read from ``body``, says. Raises DocumentInvalid."""
    domains, warnings = normalise(_entries(members))
    updated = members.get("updated")
    return Blocklist(
        # Not set(domains), which for a million holds the interpreter lock for half a second.
        domains={name for name in domains},  # noqa: C416
        refresh=refresh_seconds(members.get("refresh")),
        updated=updated if isinstance(updated, str) else None,
        contract=members["contract"],
        contact=_mail_address(members.get("contact")),
        warnings=warnings,
        document=document,
        digest=hashlib.sha256(body).hexdigest(),
        inline=is_inline(members),
    )


def _mail_address(value: object) -> str:
    if isinstance(value, str) and _MAIL.fullmatch(value):
        return value
    return ""


def _schema(members: dict[str, Any], fallback_schema: dict[str, Any] | None) -> dict[str, Any]:
    if not is_inline(members) and fallback_schema is None:
        raise DocumentInvalid("blocklist has no schema inline, and there is no standalone schema")
    schema = members.get("schema", fallback_schema)
    # JSON Schema 2020-12, section 4.3.2: true is the same as {}. The floor checks remain (T9).
    if schema is True:
        return {}
    if not isinstance(schema, dict):
        raise DocumentInvalid("blocklist schema is not a JSON object")
    return schema


def check_schema(members: dict[str, Any], fallback_schema: dict[str, Any] | None) -> None:
    """Validate a document by its schema. Raises DocumentInvalid (one line) if it is not valid."""
    schema = _schema(members, fallback_schema)
    indexes = (_representatives(members) or []) if _is_tame_schema(schema) else []
    # They take a sixth of a crawl's start, and only a list that has changed needs them.
    from jsonschema import Draft202012Validator  # noqa: PLC0415
    from referencing import Registry  # noqa: PLC0415

    if indexes:
        members = {**members, "blocked": [members["blocked"][index] for index in indexes]}
    try:
        Draft202012Validator.check_schema(schema)
        # An explicit empty registry, because the default one fetches what a $ref names.
        validator = Draft202012Validator(schema, registry=Registry())
        error = next(validator.iter_errors(members), None)
    except MemoryError:  # that is this process's limit, and says nothing about the document
        raise
    except Exception as failure:  # whatever it is, the document was not validated
        reason = one_line(getattr(failure, "message", failure)) or type(failure).__name__
        raise DocumentInvalid(f"blocklist cannot be validated: {reason}") from failure
    if error is not None:
        place = one_line(_place(list(error.absolute_path), indexes))
        raise DocumentInvalid(f"blocklist fails its schema at {place}: {one_line(error.message)}")


def _place(path: list[Any], indexes: list[int]) -> str:
    if indexes and path[:1] == ["blocked"] and len(path) > 1:
        path[1] = indexes[path[1]]
    return "/".join(map(str, ["", *path])) or "its root"


def _representatives(members: dict[str, Any]) -> list[int] | None:
    """Return the index of an entry for each shape, or None if there are many shapes.

    By a tame schema, entries of the same shape are all valid or all invalid. So one entry for each
    shape is validated, and a million entries take the validator no longer than a few.
    """
    blocked = members.get("blocked")
    shapes: dict[object, int] = {}
    for index, entry in enumerate(blocked if isinstance(blocked, list) else []):
        shapes.setdefault(_shape(entry), index)
        if len(shapes) > _TAME_SHAPES:
            return None
    return list(shapes.values())


def _shape(value: object) -> object:
    if isinstance(value, dict):
        return tuple((name, _json_type(member)) for name, member in value.items())
    return _json_type(value)


def _json_type(value: object) -> object:
    # 1.0 is an "integer" to JSON Schema and 1.5 is not.
    return value.is_integer() if isinstance(value, float) else type(value)


def _entries(members: dict[str, Any]) -> list[str]:
    blocked = members.get("blocked")
    if not isinstance(blocked, list):
        raise DocumentInvalid("blocklist has no array 'blocked'")
    for index, entry in enumerate(blocked):
        if not isinstance(entry, dict) or not isinstance(entry.get("domain"), str):
            raise DocumentInvalid(
                f"blocklist entry {index} is not an object with a string 'domain'"
            )
    return [entry["domain"] for entry in blocked]


def _is_tame_schema(schema: Any, part: str = "document") -> bool:
    """Tell whether a schema is tame, as the module's docstring says. *part*: of _TAME."""
    if not isinstance(schema, dict) or not _TAME[part].issuperset(schema):
        return False
    properties, pattern = schema.get("properties", {}), schema.get("pattern", "")
    if not isinstance(properties, dict) or not isinstance(pattern, str):
        return False
    member_part = {"document": "member", "entry": "member of an entry"}.get(part, "")
    return (
        isinstance(schema.get("additionalProperties", True), bool)
        and _TAME_PATTERN.fullmatch(pattern) is not None
        and ("items" not in schema or _is_tame_schema(schema["items"], "entry"))
        and all(
            _is_tame_schema(
                member, "blocked" if (part, name) == ("document", "blocked") else member_part
            )
            for name, member in properties.items()
        )
    )
