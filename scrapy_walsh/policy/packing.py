"""R2: what a Content-Encoding means for a document that was asked for as it is (RFC 9110 8.4).

We send ``Accept-Encoding: identity``. Some servers name an encoding all the same: a packing
(gzip, deflate), which is unpacked, or a word that is none of HTTP's (``utf-8``, ``none``), or a
packing that we do not read (``br``, ``zstd``). After a word of the last two kinds only the body can
tell whether it is packed: what is text is read as it stands, and nothing else is.
"""

from __future__ import annotations

import codecs
import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

_PACKED: Final = frozenset({"gzip", "x-gzip", "deflate"})
_AS_IT_IS: Final = frozenset({"", "identity", "x-identity"})

#: The control octets that no text holds: all but tab, LF, FF and CR.
_CONTROL: Final = re.compile(rb"[\x00-\x08\x0b\x0e-\x1f\x7f]")
_ASCII: Final = bytes(range(0x80))
#: Of text that is not UTF-8, the part that is ASCII at least: of packed octets it is about a half.
_MOSTLY: Final = 0.75


def packings(fields: Sequence[str]) -> tuple[int, bool]:
    """How often a body is packed by gzip or deflate, and whether another word stands there.

    ``fields``: the values of all Content-Encoding lines, each a list separated by commas.
    """
    words = [word.strip().lower() for field in fields for word in field.split(",")]
    named = [word for word in words if word not in _AS_IT_IS]
    packed = sum(word in _PACKED for word in named)
    return packed, packed < len(named)


def is_text(body: bytes) -> bool:
    """Whether *body*, which may be cut off anywhere, is text in UTF-8, or in an 8-bit set.

    Text has no control octets but tab, LF, FF and CR. What is not UTF-8 is mostly ASCII.
    """
    if _CONTROL.search(body):
        return False
    try:
        codecs.getincrementaldecoder("utf-8")().decode(body)
    except UnicodeDecodeError:
        return len(body.translate(None, _ASCII)) <= (1 - _MOSTLY) * len(body)
    return True
