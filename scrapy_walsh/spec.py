"""The requirements R1 to R13: level, title, and home module of each."""

from __future__ import annotations

from typing import Final, NamedTuple

#: The version of this package.
__version__ = "0.3.0"

#: The version of the specification that this package targets (spec section 4).
SPEC_VERSION: Final = "walsh-research-compliance/v1.3"


class Requirement(NamedTuple):
    """One row of the specification's checklist (spec section 15, R13: section 22.1)."""

    id: str
    level: str
    title: str
    home: str


REQUIREMENTS: Final = (
    Requirement("R1", "MUST", "exact User-Agent, no impersonation", "policy/identity.py"),
    Requirement("R2", "MUST", "robots.txt fetched, cached, obeyed", "policy/robots/file.py"),
    Requirement("R3", "MUST", "operator blocklist, before robots.txt", "policy/list/blocklist.py"),
    Requirement("R4", "MUST", "serial; max(1 s, Crawl-delay) per host", "policy/host.py"),
    Requirement("R5", "MUST", "backoff, full jitter, Retry-After", "policy/backoff.py"),
    Requirement("R6", "MUST", "declared targets only, metadata only", "policy/scope.py"),
    Requirement(
        "R7", "SHOULD", "conditional fetch, canonical-URL de-duplication", "policy/validators.py"
    ),
    Requirement("R8", "SHOULD", "daily or less per source", "policy/visits.py"),
    Requirement(
        "R9",
        "SHOULD/MUST NOT",
        "structured formats, never scraping",
        "policy/formats/representation.py",
    ),
    Requirement(
        "R10", "MUST", "blocklist schema: inline first, external fallback", "policy/list/schema.py"
    ),
    Requirement("R11", "SHOULD", "caches outlive the process", "state/"),
    Requirement("R12", "clarification", "stale: block on refresh", "policy/freshness.py"),
    Requirement("R13", "SHOULD", "implementation tags on the operator's URLs", "policy/tagging.py"),
)
