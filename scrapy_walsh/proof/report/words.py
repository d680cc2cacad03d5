"""How a page says things: texts cut to a width, codes, times, answers. Pure."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

from scrapy_walsh.exceptions import visible
from scrapy_walsh.spec import REQUIREMENTS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scrapy_walsh.policy.event import Unsent
    from scrapy_walsh.proof.ledger import Line

_IDS: Final = tuple(requirement.id for requirement in REQUIREMENTS)
_UNSENT: Final[Mapping[Unsent, str]] = {
    "name": "no address",
    "connection": "no connection",
    "tls": "no TLS",
    "proxy": "our proxy",
    "ours": "our side",
}
_CODE: Final = re.compile(r"\b(R[0-9]+)\b")


def cut(text: str, width: int) -> str:
    """*text*; if it has more than *width* characters, with an ellipsis for its middle."""
    text = visible(text)
    if len(text) <= width:
        return text
    tail = width // 3
    return f"{text[: width - tail - 1]}…{text[-tail:]}"


def instant(at: float) -> str:
    """Unix seconds as a UTC time."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def answer_of(line: Line) -> str:
    """The answer to a request: its status and reason phrase, or that there was none."""
    if line.unsent:
        return f"not sent ({_UNSENT[line.unsent]})"
    if line.status is None:
        if line.answered:
            return "no answer"
        return "we cancelled it"
    try:
        return f"{line.status} {HTTPStatus(line.status).phrase}"
    except ValueError:
        return str(line.status)


def codes(text: str) -> list[tuple[str, str]]:
    """*text* in parts, each with the requirement that it is the code of, or with none."""
    return [(part, part if part in _IDS else "") for part in _CODE.split(text) if part]
