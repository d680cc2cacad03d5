"""What a host does with a request."""

from __future__ import annotations

from typing import NamedTuple


class Answer(NamedTuple):
    """An answer after ``latency`` seconds. ``status`` None: it hangs for ever, or ``refuses``."""

    status: int | None = 200
    body: bytes = b""
    headers: dict[str, str] = {}  # noqa: RUF012  never changed
    latency: float = 0.1
    refuses: bool = False
