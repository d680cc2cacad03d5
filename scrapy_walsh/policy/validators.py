"""R7: which validators to send, and which to store (spec section 10.2).

They are stored for each exact URL and representation, not for canonical URLs (T20): ``/a`` and
``/a/``, or the markdown and the HTML of one page, do not share an ETag. Field values are text that
was decoded as Latin-1; encoded as Latin-1 they are the octets that were received.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Final

from scrapy_walsh.policy.throttle import Wall  # noqa: TC001  a store reads the declared types


@dataclass(frozen=True, slots=True)
class Validators:
    """The validators of one representation of one exact URL (T20).

    ``representation``: of :func:`representation_key`. ``stored_at``: Unix seconds.
    ``content_type``: of the answer that had them, which a 304 need not repeat.
    """

    url: str
    representation: str
    etag: str | None
    last_modified: str | None
    stored_at: Wall
    content_type: str | None = None


#: What no field value may have: control characters, and what is not Latin-1.
_NOT_SENT: Final = re.compile(r"[^\x20-\x7e\x80-\xff]")
_PACKED_TAG: Final = re.compile(r'((?:W/)?"[^"]+)-(?:gzip|br)"')


def conditional_headers(etag: str | None, last_modified: str | None) -> dict[str, str]:
    """The header fields of a conditional request (RFC 9110 section 13.1); none without validators.

    The values are sent as they were received. One that must not be in a header is left out, even
    where it comes from the store. Apache's mod_deflate and mod_brotli answer ``"x-gzip"``, and know
    only ``"x"`` again, so that is sent too.
    """
    tag = _entity_tag(etag)
    packed = _PACKED_TAG.fullmatch(tag or "")
    fields = {
        "If-None-Match": f'{tag}, {packed[1]}"' if packed else tag,
        "If-Modified-Since": _field_value(last_modified),
    }
    return {name: value for name, value in fields.items() if value is not None}


def representation_key(accept: str | None) -> str:
    """The name of a representation: the value of Accept, ``*/*`` without one (RFC 9110 12.5.1)."""
    return (accept or "").strip() or "*/*"


def replaces_validators(method: str, status: int | None) -> bool:
    """Whether an answer replaces the stored validators: a 200 to a GET does, no other answer."""
    return method == "GET" and status == 200


def to_store(answered: Validators) -> Validators | None:
    """What to store after an answer that :func:`replaces_validators`; *answered*: its fields.

    None if it has no validators: then the stored ones must be deleted.
    """
    tag, date = _entity_tag(answered.etag), _field_value(answered.last_modified)
    if tag is None and date is None:
        return None
    content_type = _field_value(answered.content_type)
    return replace(answered, etag=tag, last_modified=date, content_type=content_type)


def _entity_tag(value: str | None) -> str | None:
    # "If-None-Match: *" matches every representation: the server would answer 304 for ever.
    return None if value == "*" else _field_value(value)


def _field_value(value: str | None) -> str | None:
    usable = value is not None and value.strip() and not _NOT_SENT.search(value)
    return value if usable else None
