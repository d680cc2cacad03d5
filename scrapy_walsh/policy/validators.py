"""Which validators to send, and which to store (R7; spec section 10.2).

They are stored for each exact URL and representation, not for canonical URLs (T20). For example,
``/a`` and ``/a/`` do not share an ETag, nor do the markdown and the HTML of a page. Field values
are text that was decoded as Latin-1; encoded as Latin-1 they are the octets that were received.

A broken server may answer 304 for ever, or say that a page was changed in the year 2041. Then
"unchanged" would hold for ever. So validators expire (:func:`lifetime`), a 304 does not extend
that, and a date that cannot be true is not stored.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Final

from scrapy_walsh.policy.backoff import http_date
from scrapy_walsh.policy.throttle import Wall  # noqa: TC001  a store reads the declared types
from scrapy_walsh.policy.urls import exact_url

#: Seconds that validators are sent at least.
LIFETIME: Final = 30 * 86_400.0
#: Visits of a source that they are sent for at least, if that is longer.
_VISITS: Final = 2


@dataclass(frozen=True, slots=True)
class Validators:
    """The validators of a representation of an exact URL (T20).

    ``representation``: of :func:`representation_key`. ``stored_at``: Unix seconds.
    ``content_type``: of the answer that had them, which a 304 need not repeat. ``lifetime``: for
    how many seconds they are sent. ``spider``: the spider that took the answer, because another
    spider has not seen its content.
    """

    url: str
    representation: str
    etag: str | None
    last_modified: str | None
    stored_at: Wall
    content_type: str | None = None
    lifetime: float = LIFETIME
    spider: str = ""


#: Characters that no field value may have: control characters, and those beyond Latin-1.
_NOT_SENT: Final = re.compile(r"[^\x20-\x7e\x80-\xff]")
_PACKED_TAG: Final = re.compile(r'((?:W/)?"[^"]+)-(?:gzip|br)"')


def conditional_headers(etag: str | None, last_modified: str | None) -> dict[str, str]:
    """The header fields of a conditional request (RFC 9110 section 13.1); none without validators.

    The values are sent as they were received. A value that must not be in a header is left out,
    even if it comes from the store. Apache's mod_deflate and mod_brotli answer ``"x-gzip"``, and
    know only ``"x"`` again, so that is sent too.
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


def key_of(url: str, accept: str | None) -> tuple[str, str]:
    """Where the validators of an answer are kept (T20): its exact URL, and its representation."""
    return exact_url(url), representation_key(accept)


def replaces_validators(method: str, status: int | None) -> bool:
    """Whether an answer replaces the stored validators: a 200 to a GET does, no other answer."""
    return method == "GET" and status == 200


def lifetime(interval: float) -> float:
    """For how many seconds validators are sent; *interval*: of their source, in seconds."""
    return max(LIFETIME, _VISITS * interval)


def is_alive(stored: Validators, now: float) -> bool:
    """Whether *stored* may still be sent; *now*: Unix seconds.

    Validators from the future may not: the clock was put back, and a full answer costs less than a
    wrong 304.
    """
    return 0 <= now - stored.stored_at < stored.lifetime


def to_store(answered: Validators, date: str | None = None) -> Validators | None:
    """The validators to store after an answer that replaces them. *answered*: its fields.

    None if it has no validators: then the stored ones must be deleted. *date*: its Date field. A
    Last-Modified is left out if it is later than that, or, without a Date, later than
    ``stored_at``. An origin server must not send it (RFC 9110 section 8.8.2.1).
    """
    tag, modified = _entity_tag(answered.etag), _field_value(answered.last_modified)
    changed_at = http_date(modified, answered.stored_at)
    answered_at = http_date(date, answered.stored_at)
    if answered_at is None:
        answered_at = answered.stored_at
    if changed_at is not None and changed_at > answered_at:
        modified = None
    if tag is None and modified is None:
        return None
    content_type = _field_value(answered.content_type)
    return replace(answered, etag=tag, last_modified=modified, content_type=content_type)


def _entity_tag(value: str | None) -> str | None:
    # "If-None-Match: *" matches every representation: the server would answer 304 for ever.
    return None if value == "*" else _field_value(value)


def _field_value(value: str | None) -> str | None:
    usable = value is not None and value.strip() and not _NOT_SENT.search(value)
    return value if usable else None
