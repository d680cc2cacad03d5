"""The sitemap indexes that a project's runs let declare targets, as its ledger says (R6).

``children = true`` stands in a file of sources, which an attestation does not see. The ledger has
it: a line ``declared`` with ``children``, for each such index of each run.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from scrapy_walsh.exceptions import StateError
from scrapy_walsh.ledger.reading import DECLARED, files_of, lines_in

if TYPE_CHECKING:
    from pathlib import Path

#: For how long a run counts, in seconds.
COUNTED: Final = 30 * 86_400.0
#: What such a line holds, so that others need not be read.
_MARK: Final = b'"children":true'


def indexes_in(state_dir: Path | None, now: float) -> tuple[str, ...]:
    """The URLs of the indexes that runs of the last 30 days let declare sitemaps, each once.

    *now*: Unix seconds; *state_dir*: None where nothing is kept. Raises StateError where there is a
    ledger, and it cannot be read.
    """
    if state_dir is None:
        return ()
    try:
        files = files_of(state_dir)
    except StateError:
        return ()  # there is none, so no run of this project is on record
    try:
        lines = [raw for _, raw in lines_in(files.parts) if _MARK in raw]
    except OSError as error:
        raise StateError(f"{state_dir}: its ledger cannot be read: {error.strerror}") from None
    found = (_members(raw) for raw in lines)
    late = (each for each in found if each.get("kind") == DECLARED and _within(each, now))
    return tuple(dict.fromkeys(str(each.get("url")) for each in late if each.get("children")))


def _within(members: dict[str, Any], now: float) -> bool:
    at = members.get("at")
    return not isinstance(at, (int, float)) or at > now - COUNTED  # without a time it counts


def _members(raw: bytes) -> dict[str, Any]:
    try:
        found = json.loads(raw)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
