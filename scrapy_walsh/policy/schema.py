"""R10: validates a blocklist before it is adopted (R3c), by its inline schema if it has one.

Validation has two parts, and both must pass (T9): the schema, and floor checks of our own, because
a document that has its schema inline could have one that accepts anything. No ``$ref`` is ever
fetched: a document whose schema has one that cannot be resolved is not valid.

A schema can make validation take for ever, and a list may have a million entries. So there is a
class of schemas, called *tame*, whose keywords all cost little, and by which the validity of an
entry depends only on its shape: which members it has, of which types. By a tame schema one entry of
each shape is validated in place of all. A small document with a tame schema and few shapes is
validated at once (:func:`is_tame`); the caller has all others validated in a child process.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from scrapy_walsh.exceptions import DocumentInvalid
from scrapy_walsh.policy.blocklist import Blocklist, BlocklistBuilder, normalised
from scrapy_walsh.policy.freshness import refresh_seconds
from scrapy_walsh.policy.strict_json import json_object
from scrapy_walsh.policy.words import one_line

if TYPE_CHECKING:
    from collections.abc import Iterator

_CONTRACT: Final = re.compile(r"walsh-research-blocklist/v1(\.[0-9]+)?")
# Members that must not occur twice: two JSON parsers could then read two different lists.
_READ_ONCE: Final = frozenset({"contract", "updated", "refresh", "schema", "blocked", "domain"})

_TAME_BODY: Final = 32 * 1024  # octets
_TAME_NODES: Final = 200  # of the schema
_TAME_SHAPES: Final = 100  # of entries
_ANNOTATIONS: Final = frozenset(
    {"$comment", "title", "description", "default", "examples", "format", "type"}
)
_OBJECT: Final = _ANNOTATIONS | {"required", "properties", "additionalProperties"}
_ROOT: Final = _OBJECT | {"$schema", "$id"}
_ARRAY: Final = _ANNOTATIONS | {"items"}
_SCALAR: Final = _ANNOTATIONS | {"const", "enum", "pattern", "minLength"}
_TAME_PATTERN: Final = re.compile(r"\^?[A-Za-z0-9_/ -]*\$?")


@dataclass(frozen=True, slots=True)
class ParsedBlocklist:
    """What a valid blocklist says.

    ``contract``, ``updated``: as it says. ``refresh``: seconds, within floor and ceiling (T12).
    ``domains``: normalised. ``warnings``: one line each. ``digest``: SHA-256 of its octets,
    hexadecimal. ``inline``: it has its schema inline.
    """

    contract: str
    updated: str | None
    refresh: float
    domains: list[str]
    warnings: tuple[str, ...]
    digest: str
    inline: bool


def parse_blocklist(
    body: bytes, fallback_schema: dict[str, Any] | None, document: str | None = None
) -> Blocklist:
    """Return the blocklist in ``body``, validated.

    ``fallback_schema``: the standalone schema, used where the document has none inline; None if
    there is none. ``document``: URL of the body, for verdicts. Raises DocumentInvalid (one line) if
    it must not be adopted. With a hostile schema it may never end (see :func:`is_tame`).
    """
    return built(validated(body, fallback_schema), document)


def reread_blocklist(body: bytes, document: str | None = None) -> Blocklist:
    """Return the blocklist in ``body``, which was validated when it was adopted.

    As :func:`parse_blocklist`, with the floor checks alone.
    """
    return built(reread(body), document)


def built(parsed: ParsedBlocklist, document: str | None = None) -> Blocklist:
    """Return the blocklist that *parsed* says. ``document``: URL of the body, for verdicts."""
    builder = BlocklistBuilder(facts_of(parsed, document))
    builder.add(parsed.domains)
    return builder.build()


def facts_of(parsed: ParsedBlocklist, document: str | None) -> Blocklist:
    """Return an empty list with all that *parsed* says but its domains, for a BlocklistBuilder."""
    return Blocklist(
        refresh=parsed.refresh,
        updated=parsed.updated,
        contract=parsed.contract,
        warnings=parsed.warnings,
        document=document,
        digest=parsed.digest,
    )


def validated(body: bytes, fallback_schema: dict[str, Any] | None) -> ParsedBlocklist:
    """Return what ``body`` says, validated. Raises as :func:`parse_blocklist` does."""
    found = _json_object(body)
    contract = _contract(found)
    _check_schema(found, _schema(found, fallback_schema))
    return _parsed(body, found, contract)


def reread(body: bytes) -> ParsedBlocklist:
    """Return what ``body`` says, after the floor checks alone (D3).

    For a document that was validated when it was adopted, and that is still the same by its
    checksum: a later schema cannot lift its opt-outs, or delay them. Raises DocumentInvalid.
    """
    found = _json_object(body)
    return _parsed(body, found, _contract(found))


def _parsed(body: bytes, found: dict[str, Any], contract: str) -> ParsedBlocklist:
    domains, warnings = normalised(_entries(found))
    updated = found.get("updated")
    return ParsedBlocklist(
        contract=contract,
        updated=updated if isinstance(updated, str) else None,
        refresh=refresh_seconds(found.get("refresh")),
        domains=domains,
        warnings=warnings,
        digest=hashlib.sha256(body).hexdigest(),
        inline="schema" in found,
    )


def needs_standalone_schema(body: bytes) -> bool:
    """Tell whether ``body`` is a JSON object without an inline schema (R10.1).

    It parses the body, so an event loop should call it for small ones only.
    """
    try:
        return "schema" not in _json_object(body)
    except DocumentInvalid:
        return False


def is_tame(body: bytes, fallback_schema: dict[str, Any] | None) -> bool:
    """Tell whether :func:`validated` is sure to take well under 50 ms.

    That is so for a small body, a schema with keywords that cost little, and entries of few shapes
    (the same members with the same types). It says nothing about whether the document is valid.
    """
    if len(body) > _TAME_BODY:
        return False
    try:
        found = _json_object(body)
        schema = _schema(found, fallback_schema)
        small = sum(1 for _ in _nodes(schema)) <= _TAME_NODES
    except (DocumentInvalid, RecursionError):
        return False
    return small and _is_tame_schema(schema) and len(_representatives(found)) <= _TAME_SHAPES


def _json_object(body: bytes) -> dict[str, Any]:
    found: dict[str, Any] = json_object(body, "blocklist", once=_READ_ONCE)
    return found


def _contract(found: dict[str, Any]) -> str:
    contract = found.get("contract")
    if not isinstance(contract, str) or not _CONTRACT.fullmatch(contract):
        shown = one_line(repr(contract))
        raise DocumentInvalid(f"blocklist contract is {shown}, not walsh-research-blocklist/v1")
    return contract


def _schema(found: dict[str, Any], fallback_schema: dict[str, Any] | None) -> dict[str, Any]:
    if "schema" not in found and fallback_schema is None:
        raise DocumentInvalid("blocklist has no schema inline, and there is no standalone schema")
    schema = found.get("schema", fallback_schema)
    # JSON Schema 2020-12, section 4.3.2: true is the same as {}. The floor checks remain (T9).
    if schema is True:
        return {}
    if not isinstance(schema, dict):
        raise DocumentInvalid("blocklist schema is not a JSON object")
    return schema


def _check_schema(found: dict[str, Any], schema: dict[str, Any]) -> None:
    indexes = _representatives(found) if _is_tame_schema(schema) else []
    # A sixth of the time in which a crawl starts, and only a list that has changed needs them.
    from jsonschema import Draft202012Validator  # noqa: PLC0415
    from referencing import Registry  # noqa: PLC0415

    if indexes:
        found = {**found, "blocked": [found["blocked"][index] for index in indexes]}
    try:
        Draft202012Validator.check_schema(schema)
        # An explicit empty registry, because the default one fetches what a $ref names.
        validator = Draft202012Validator(schema, registry=Registry())
        error = next(validator.iter_errors(found), None)
    except Exception as failure:  # whatever it is, the document was not validated
        why = one_line(getattr(failure, "message", failure)) or type(failure).__name__
        raise DocumentInvalid(f"blocklist cannot be validated: {why}") from failure
    if error is not None:
        where = one_line(_place(list(error.absolute_path), indexes))
        raise DocumentInvalid(f"blocklist fails its schema at {where}: {one_line(error.message)}")


def _place(path: list[Any], indexes: list[int]) -> str:
    if indexes and path[:1] == ["blocked"] and len(path) > 1:
        path[1] = indexes[path[1]]
    return "/".join(map(str, ["", *path])) or "its root"


def _representatives(found: dict[str, Any]) -> list[int]:
    """Return the index of one entry of each shape.

    By a tame schema, entries of one shape are all valid or all invalid. So one of each is
    validated, and a million entries take the validator no longer than a few.
    """
    blocked = found.get("blocked")
    shapes: dict[object, int] = {}
    for index, entry in enumerate(blocked if isinstance(blocked, list) else []):
        shapes.setdefault(_shape(entry), index)
    return list(shapes.values())


def _shape(value: object) -> object:
    if isinstance(value, dict):
        return tuple((name, _json_type(member)) for name, member in value.items())
    return _json_type(value)


def _json_type(value: object) -> object:
    # 1.0 is an "integer" to JSON Schema and 1.5 is not.
    return value.is_integer() if isinstance(value, float) else type(value)


def _entries(found: dict[str, Any]) -> list[str]:
    blocked = found.get("blocked")
    if not isinstance(blocked, list):
        raise DocumentInvalid("blocklist has no array 'blocked'")
    for index, entry in enumerate(blocked):
        if not isinstance(entry, dict) or not isinstance(entry.get("domain"), str):
            raise DocumentInvalid(
                f"blocklist entry {index} is not an object with a string 'domain'"
            )
    return [entry["domain"] for entry in blocked]


def _is_tame_schema(schema: dict[str, Any]) -> bool:
    """Tell whether a schema is tame, as the module's docstring says."""
    properties = schema.get("properties", {})
    if not _within(schema, _ROOT) or not isinstance(properties, dict):
        return False
    others = dict(properties)
    blocked = others.pop("blocked", {})
    return _is_tame_array(blocked) and all(map(_is_tame_scalar, others.values()))


def _is_tame_array(schema: Any) -> bool:
    if not _within(schema, _ARRAY):
        return False
    items = schema.get("items", {})
    if not _within(items, _OBJECT):
        return False
    properties = items.get("properties", {})
    return isinstance(properties, dict) and all(
        _within(member, _ANNOTATIONS) for member in properties.values()
    )


def _is_tame_scalar(schema: Any) -> bool:
    if not _within(schema, _SCALAR):
        return False
    pattern = schema.get("pattern", "")
    return isinstance(pattern, str) and bool(_TAME_PATTERN.fullmatch(pattern))


def _within(schema: Any, keywords: frozenset[str]) -> bool:
    return (
        isinstance(schema, dict)
        and keywords.issuperset(schema)
        and isinstance(schema.get("additionalProperties", True), bool)
    )


def _nodes(value: object) -> Iterator[object]:
    yield value
    if isinstance(value, dict):
        for member in value.values():
            yield from _nodes(member)
    elif isinstance(value, list):
        for element in value:
            yield from _nodes(element)
