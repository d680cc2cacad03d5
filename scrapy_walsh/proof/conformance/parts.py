"""All parts of the lab, and what they make together: the sites, the targets, the checks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from scrapy_walsh.proof.conformance.check import judged
from scrapy_walsh.proof.conformance.part import operator_site
from scrapy_walsh.proof.conformance.parts_data import AGAIN, FORMATS, SCOPE
from scrapy_walsh.proof.conformance.parts_pace import BACKOFF, PACING
from scrapy_walsh.proof.conformance.parts_rules import BLOCKLIST, HOSTILE, IDENTITY, ROBOTS_RULES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scrapy_walsh.proof.conformance.check import Check
    from scrapy_walsh.proof.conformance.evidence import Evidence
    from scrapy_walsh.proof.conformance.part import Part
    from scrapy_walsh.proof.sandbox import Site

#: The slowest first: while its hosts are not due, the others are crawled.
PARTS: Final = (
    BACKOFF,
    PACING,
    IDENTITY,
    ROBOTS_RULES,
    BLOCKLIST,
    HOSTILE,
    SCOPE,
    AGAIN,
    FORMATS,
)


def sites(parts: Sequence[Part], token: str) -> list[Site]:
    """The hosts of *parts*, and the operator's."""
    return [operator_site(), *(each for part in parts for each in part.sites(token))]


def targets(parts: Sequence[Part], number: int) -> list[str]:
    """What run *number* (from 0) is given."""
    return [url for part in parts for url in (part.later if number else part.urls)]


def judge(parts: Sequence[Part], evidence: Evidence) -> list[Check]:
    """Every row of *parts*, judged by the log."""
    return [check for part in parts for check in judged(part.rows, evidence)]
