"""Ed25519 from its text (RFC 8032 section 5.1) in plain integers: a second implementation.

Slow, and for tests alone: nothing of it is shared with the one that signs.
"""

from __future__ import annotations

import hashlib

P = 2**255 - 19
L = 2**252 + 27742317777372353535851937790883648493
D = -121665 * pow(121666, -1, P) % P
ROOT_OF_MINUS_ONE = pow(2, (P - 1) // 4, P)

Point = tuple[int, int]  # affine


def _add(a: Point, b: Point) -> Point:
    (x1, y1), (x2, y2) = a, b
    twist = D * x1 * x2 * y1 * y2
    x = (x1 * y2 + x2 * y1) * pow(1 + twist, -1, P)
    y = (y1 * y2 + x1 * x2) * pow(1 - twist, -1, P)
    return x % P, y % P


def _times(scalar: int, point: Point) -> Point:
    total = (0, 1)
    while scalar:
        if scalar & 1:
            total = _add(total, point)
        point = _add(point, point)
        scalar >>= 1
    return total


def _decode(octets: bytes) -> Point:
    number = int.from_bytes(octets, "little")
    sign, y = number >> 255, number & (2**255 - 1)
    square = (y * y - 1) * pow(D * y * y + 1, -1, P) % P
    x = pow(square, (P + 3) // 8, P)
    if (x * x - square) % P:
        x = x * ROOT_OF_MINUS_ONE % P
    if y >= P or (x * x - square) % P or (x == 0 and sign):
        raise ValueError("no point of the curve")
    return (P - x if x & 1 != sign else x), y


BASE = _decode((4 * pow(5, -1, P) % P).to_bytes(32, "little"))


def verify(public: bytes, message: bytes, signature: bytes) -> bool:
    """Whether *signature* (64 octets) over *message* is by the key *public* (32 octets)."""
    first, s = signature[:32], int.from_bytes(signature[32:], "little")
    if len(signature) != 64 or s >= L:
        return False
    k = int.from_bytes(hashlib.sha512(first + public + message).digest(), "little") % L
    return _times(s, BASE) == _add(_decode(first), _times(k, _decode(public)))
