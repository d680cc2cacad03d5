"""The conformance record that an attestation relies on.

It is used only if it was made by this build, on this Scrapy, as this identity, with settings no
stricter than the project's, and was not edited since.
"""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from scrapy_walsh.config import SETTINGS, WalshConfig
from scrapy_walsh.exceptions import ConfigError, DocumentInvalid
from scrapy_walsh.proof.attest.document import TOOL, Evidence
from scrapy_walsh.proof.conformance.check import code_digest, read_record
from scrapy_walsh.spec import SPEC_VERSION, __version__

if TYPE_CHECKING:
    from collections.abc import Mapping


# Compares the settings of a conformance run with those of the project that attests. Pure.
#
# A run with stricter settings than the project's says nothing about the project. A project that is
# stricter than the run keeps what the run showed: that difference is only mentioned.

#: Scrapy's setting that can raise WALSH_MIN_INTERVAL.
_DELAY: Final = "DOWNLOAD_DELAY"


def compare(settings: Mapping[str, Any], config: WalshConfig) -> tuple[str | None, str | None]:
    """Compare *settings*, that member of a conformance record, with *config*, the project's.

    Returns why the run says nothing about the project, and which differences are fine: each in one
    line, None where there is nothing to say. Settings that cannot be read are a problem. A project
    below a default is judged for that by ``document``, whatever the run had.
    """
    overrides = settings.get("overrides")
    if not isinstance(overrides, dict):
        return "does not say with which settings it was made", None
    names = (*(each.name for each in SETTINGS if each.row.stricter), _DELAY)
    given = {name: overrides[name] for name in names if name in overrides}
    try:
        run = WalshConfig.from_settings({**given, "WALSH_IDENTITY": "walsh-research"}, Path)
    except ConfigError as error:
        return f"has settings with which nothing can run ({error})", None
    stricter: list[str] = []
    fine: list[str] = []
    for each in SETTINGS:
        theirs, ours = getattr(run, each.field), getattr(config, each.field)
        if (rank := each.row.stricter) is not None and theirs != ours:
            above = rank(theirs) > max(rank(ours), rank(each.row.default))
            (stricter if above else fine).append(f"{each.name} {theirs}, here {ours}")
    if stricter:
        return f"is of a run with stricter settings ({'; '.join(stricter)})", None
    return None, f"the conformance run had {'; '.join(fine)}" if fine else None


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
    stricter, note = compare(record["settings"], config)
    problem = _difference(record, config.identity.user_agent) or stricter
    if problem:
        return Evidence(None, f"the conformance record {path} {problem}: {_RUN} again")
    return Evidence(record, note=note)


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
    if record["live"]:
        return "is of a --live run, which shows a few rows only"
    with suppress(ValueError, TypeError):  # no date, or one without a time zone
        if datetime.fromisoformat(record["date"]) <= datetime.now(UTC):
            return None
    return f"has no date with a time zone, or one in the future ({record['date']})"
