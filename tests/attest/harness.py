"""A conformance record in which all was seen to hold, and documents made from it."""

from __future__ import annotations

from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from scrapy_walsh import SPEC_VERSION, __version__
from scrapy_walsh.proof.attest.document import IDS
from scrapy_walsh.proof.conformance.check import code_digest, write_record
from tests.crawl.harness import USER_AGENT

if TYPE_CHECKING:
    from pathlib import Path

DATE = "2026-05-24T10:00:00+00:00"


def check(id_: str, outcome: str = "PASS", **more: str) -> dict[str, str]:
    """A check of the record."""
    given = {"requirement": id_.rstrip("abcd"), "level": "MUST", "title": "title", "detail": ""}
    return {"id": id_, "outcome": outcome, **given, **more}


def record(**more: Any) -> dict[str, Any]:
    """The record of this build as walsh-research, *more* laid over it."""
    return {
        "contract": "walsh-conformance/v1",
        "tool": "scrapy-walsh",
        "tool_version": __version__,
        "code": code_digest(),
        "spec": SPEC_VERSION,
        "user_agent": USER_AGENT,
        "date": DATE,
        "seconds": 61.5,
        "live": False,
        "versions": {name: version(name) for name in ("scrapy", "protego")},
        "settings": {"mirrored": True, "overrides": {}},
        "checks": [check(id_) for id_ in IDS],
        **more,
    }


def put_record(path: Path, **more: Any) -> Path:
    """Write :func:`record` to *path*, its digest right."""
    write_record(path, record(**more))
    return path
