"""R7: which validators to send, and which to store (spec section 10.2).

They are stored for each exact URL and representation, not for canonical URLs (T20): ``/a`` and
``/a/``, or the markdown and the HTML of one page, do not share an ETag. Field values are text that
was decoded as Latin-1; encoded as Latin-1 they are the octets that were received.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from scrapy_walsh.policy.times import Wall  # noqa: TC001  a store reads the declared types


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


class _Replayed(Protocol):
    @property
    def etag(self) -> str | None: ...
    @property
    def last_modified(self) -> str | None: ...


def conditional_headers(validators: _Replayed | None) -> dict[str, str]:
    """The header fields of a conditional request (RFC 9110 section 13.1); none without validators.

    The values are sent as they were received. One that must not be in a header is left out, even
    where it comes from the store.
    """
    if validators is None:
        return {}
    fields = {
        "If-None-Match": _entity_tag(validators.etag),
        "If-Modified-Since": _field_value(validators.last_modified),
    }
    return {name: value for name, value in fields.items() if value is not None}


def representation_key(accept: str | None) -> str:
    """The name of a representation: the value of Accept, ``*/*`` without one (RFC 9110 12.5.1)."""
    return (accept or "").strip() or "*/*"


def replaces_validators(method: str, status: int) -> bool:
    """Whether an answer replaces the stored validators: a 200 to a GET does, no other answer."""
    return method == "GET" and status == 200


def validators_from(
    url: str,
    representation: str,
    etag: str | None,
    last_modified: str | None,
    *,
    now: float,
    content_type: str | None = None,
) -> Validators | None:
    """What to store after an answer that :func:`replaces_validators`.

    None if it has no validators: then the stored ones must be deleted. *url*: exactly as requested.
    *representation*: of :func:`representation_key`. *etag*, *last_modified*, *content_type*: the
    answer's fields, None if absent. *now*: Unix seconds.
    """
    tag, date = _entity_tag(etag), _field_value(last_modified)
    if tag is None and date is None:
        return None
    return Validators(url, representation, tag, date, now, _field_value(content_type))


def _entity_tag(value: str | None) -> str | None:
    # "If-None-Match: *" matches every representation: the server would answer 304 for ever.
    return None if value == "*" else _field_value(value)


def _field_value(value: str | None) -> str | None:
    if value is None or not value.strip():
        return None
    if any(char < " " or char == "\x7f" or char > "\xff" for char in value):
        return None
    return value
