"""The requirements R1 to R13: level and title."""

from __future__ import annotations

from typing import Final, NamedTuple

#: The version of this package.
__version__ = "0.2.0"

#: The version of the specification that this package targets (spec section 4).
SPEC_VERSION: Final = "walsh-research-compliance/v1.3"


class Requirement(NamedTuple):
    """One row of the specification's checklist (spec section 15, R13: section 22.1)."""

    id: str
    level: str
    title: str


#: CONTRIBUTING.md has the module that is each one's home.
REQUIREMENTS: Final = (
    Requirement("R1", "MUST", "exact User-Agent, no impersonation"),
    Requirement("R2", "MUST", "robots.txt fetched, cached, obeyed"),
    Requirement("R3", "MUST", "operator blocklist, before robots.txt"),
    Requirement("R4", "MUST", "serial; max(1 s, Crawl-delay) per host"),
    Requirement("R5", "MUST", "backoff, full jitter, Retry-After"),
    Requirement("R6", "MUST", "declared targets only, metadata only"),
    Requirement("R7", "SHOULD", "conditional fetch, canonical-URL de-duplication"),
    Requirement("R8", "SHOULD", "daily or less per source"),
    Requirement("R9", "SHOULD/MUST NOT", "structured formats, never scraping"),
    Requirement("R10", "MUST", "blocklist schema: inline first, external fallback"),
    Requirement("R11", "SHOULD", "caches outlive the process"),
    Requirement("R12", "clarification", "stale: block on refresh"),
    Requirement("R13", "SHOULD", "implementation tags on the operator's URLs"),
)
