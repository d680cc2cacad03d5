"""Unpack a document that came with a Content-Encoding, though we asked for none (R2; RFC 9110 8.4).

We send ``Accept-Encoding: identity``. Some servers name an encoding all the same. gzip and deflate
are unpacked. Other words are encodings that we do not unpack (``br``, ``zstd``), or no encodings of
HTTP at all (``utf-8``, ``none``). After such a word only the body tells whether it is packed: a
body that is text is read as it is, and any other body is not read. A server may also name no
encoding, or pack twice: :func:`unpacked_once_more` judges by the octets alone.
"""

from __future__ import annotations

import codecs
import re
from contextlib import suppress
from typing import TYPE_CHECKING, Final
from zlib import decompressobj
from zlib import error as zlib_error

if TYPE_CHECKING:
    from collections.abc import Sequence

_PACKED: Final = frozenset({"gzip", "x-gzip", "deflate"})
_AS_IT_IS: Final = frozenset({"", "identity", "x-identity"})

#: The control octets that text does not have: all but tab, LF, FF and CR.
_CONTROL: Final = re.compile(rb"[\x00-\x08\x0b\x0e-\x1f\x7f]")
_ASCII: Final = bytes(range(0x80))
#: The least part of ASCII in text that is not UTF-8. In packed octets it is about a half.
_MOSTLY: Final = 0.75
#: zlib's number for data in the format of gzip or zlib, whichever it has (RFC 1952, RFC 1950).
_EITHER: Final = 32 + 15


def packings(fields: Sequence[str]) -> tuple[int, bool]:
    """How often a body was packed with gzip or deflate, and whether there are other words too.

    ``fields``: the values of all Content-Encoding fields, each a list separated by commas.
    """
    words = [word.strip().lower() for field in fields for word in field.split(",")]
    codings = [word for word in words if word not in _AS_IT_IS]
    count = sum(word in _PACKED for word in codings)
    return count, count < len(codings)


#: Octets that each member gets first. zlib copies the octets after its end.
_PIECE: Final = 512


def unpack(packed: bytes, limit: int, start: bytes = b"") -> bytes | None:
    """The gzip or zlib members of *packed*, one after the other, up to *limit* octets of them.

    Data after a member is left out if it does not begin with *start*. Returns None if the data is
    cut off, unless *packed* is longer than *limit*: then its reader may have cut it. Raises
    zlib.error for other data.
    """
    pieces: list[bytes] = []
    position, budget, is_whole = 0, limit, True
    while position < len(packed) and budget > 0 and packed.startswith(start, position):
        # In growing pieces, because a piece with many short members is copied for each of them.
        member, size, is_whole = decompressobj(_EITHER), _PIECE, False
        while not is_whole and position < len(packed) and budget > 0:
            piece = packed[position : position + size]
            pieces.append(member.decompress(piece, budget))
            position += len(piece) - len(member.unused_data) - len(member.unconsumed_tail)
            budget -= len(pieces[-1])
            size, is_whole = 2 * size, member.eof
    cut_off = not is_whole and budget > 0 and len(packed) <= limit
    return None if cut_off else b"".join(pieces)


def unpacked_once_more(body: bytes, limit: int) -> bytes | None:
    """*body*, unpacked if it is packed, up to *limit* octets; None if it is packed and damaged.

    Only the octets say whether it is packed: by gzip, or by zlib with a usual window.
    """
    is_gzip = body.startswith(b"\x1f\x8b\x08")
    if not is_gzip and not (body[:1] == b"\x78" and int.from_bytes(body[:2], "big") % 31 == 0):
        return body
    content: bytes | None = None
    with suppress(zlib_error):
        content = unpack(body, limit)
    return body if content is None and not is_gzip else content  # a text may begin with an x


def is_text(body: bytes) -> bool:
    """Whether *body*, which may be cut off anywhere, is text in UTF-8, or in an 8-bit set.

    Text has no control octets but tab, LF, FF and CR. If text is not UTF-8, it is mostly ASCII.
    """
    if _CONTROL.search(body):
        return False
    try:
        codecs.getincrementaldecoder("utf-8")().decode(body)
    except UnicodeDecodeError:
        return len(body.translate(None, _ASCII)) <= (1 - _MOSTLY) * len(body)
    return True
