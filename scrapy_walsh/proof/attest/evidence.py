"""The conformance record that an attestation relies on.

It is used only if it was made by this build, on this Scrapy, as this identity, with settings no
stricter than the project's, and was not edited since.
"""

from __future__ import annotations

import time
from datetime import datetime
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Final

from scrapy_walsh.exceptions import DocumentInvalid
from scrapy_walsh.proof.attest.document import TOOL, Evidence
from scrapy_walsh.proof.attest.terms import compare
from scrapy_walsh.proof.conformance.record import code_digest, read_record
from scrapy_walsh.spec import SPEC_VERSION, __version__

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from scrapy_walsh.config import WalshConfig

#: What to do about it: the end of a message.
_RUN: Final = "run walsh conformance"
#: The packages whose versions must be those of the conformance run.
_BENEATH: Final = ("scrapy", "protego")


def evidence_in(path: Path, config: WalshConfig) -> Evidence:
    """The record in the file *path*, if it shows something about this build with *config*.

    Otherwise the evidence has no record, but the problem. Never raises for what is in the file.
    """
    try:
        record = read_record(path)
    except FileNotFoundError:
        return Evidence(None, f"there is no conformance record {path}: {_RUN}")
    except OSError as error:
        return Evidence(None, f"cannot read the conformance record {path}: {error.strerror}")
    except DocumentInvalid as error:
        return Evidence(None, str(error))
    terms = compare(record["settings"], config)
    problem = _difference(record, config.identity.user_agent) or _misdated(record["date"])
    problem = problem or terms.problem
    if problem:
        return Evidence(None, f"the conformance record {path} {problem}: {_RUN} again")
    return Evidence(record, note=terms.note)


def _difference(record: Mapping[str, Any], user_agent: str) -> str | None:
    """Why *record* is not of this build and identity; None if it is."""
    ours = {
        "tool": TOOL,
        "tool_version": __version__,
        "code": code_digest(),
        "spec": SPEC_VERSION,
        "user_agent": user_agent,
    }
    beneath = {name: version(name) for name in _BENEATH}
    for name, value in {**ours, **beneath}.items():
        found = record["versions"].get(name) if name in beneath else record[name]
        if found != value:
            return f"is of another build or identity ({name}: {found}, here {value})"
    return "is of a --live run, which shows a few rows only" if record["live"] else None


def _misdated(date: str) -> str | None:
    """What is wrong with the record's *date*, ISO 8601; None if nothing is."""
    try:
        seen = datetime.fromisoformat(date)
    except ValueError:
        return f"has no date ({date})"
    if seen.tzinfo is None:
        return f"has a date without a time zone ({date})"
    return f"has a date in the future ({date})" if seen.timestamp() > time.time() else None
