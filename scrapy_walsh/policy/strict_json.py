"""The only reader of JSON that is validated, signed, or chained (R10; RFC 8259, RFC 7493).

It is strict. If two readers understood a text differently, one would verify members that the other
does not see. So text that is not UTF-8, a member that occurs twice, NaN and Infinity are refused.
"""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Any, NoReturn

from scrapy_walsh.exceptions import DocumentInvalid

if TYPE_CHECKING:
    from collections.abc import Container


def json_object(body: bytes, subject: str = "it", *, once: Container[str] | None = None) -> Any:
    """The JSON object in *body*. Raises DocumentInvalid; its message begins with *subject*.

    *once*: names that must not occur twice in an object; None: every name. With a set of names it
    is lenient about a byte order mark and UTF-16. A blocklist that can be understood is adopted,
    because to refuse it would refuse its opt-outs.
    """

    def members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        document = dict(pairs)
        if len(document) < len(pairs):
            for name, count in Counter(name for name, _ in pairs).items():
                if count > 1 and (once is None or name in once):
                    raise DocumentInvalid(f"{subject} has two members named {ascii(name)[:100]}")
        return document

    try:
        document = json.loads(
            body.decode("utf-8") if once is None else body,
            object_pairs_hook=members,
            parse_constant=_no_number,
        )
    except RecursionError:
        raise DocumentInvalid(f"{subject} is nested too deeply") from None
    except DocumentInvalid:
        raise
    except UnicodeDecodeError:
        raise DocumentInvalid(f"{subject} is not JSON: it is not UTF-8") from None
    except ValueError as error:
        raise DocumentInvalid(f"{subject} is not JSON: {str(error)[:300]}") from None
    if not isinstance(document, dict):
        raise DocumentInvalid(f"{subject} is not a JSON object")
    return document


def _no_number(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number")
