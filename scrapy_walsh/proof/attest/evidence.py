"""The conformance record that an attestation relies on.

It is used only if it was made by this build, on this Scrapy, as this identity, with settings no
stricter than the project's, and was not edited since.
"""

from __future__ import annotations

import time
from datetime import datetime
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from scrapy_walsh.config import SETTINGS, Setting, WalshConfig
from scrapy_walsh.exceptions import ConfigError, DocumentInvalid
from scrapy_walsh.proof.attest.document import TOOL, Evidence
from scrapy_walsh.proof.conformance.check import code_digest, read_record
from scrapy_walsh.spec import SPEC_VERSION, __version__

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


# Compares the settings of a conformance run with those of the project that attests. Pure.
#
# A run with stricter settings than the project's says nothing about the project. A project that is
# stricter than the run keeps what the run showed: that difference is only mentioned.

#: The settings that change what a run shows.
_SHOWN: Final = [each for each in SETTINGS if each.row.stricter is not None]
#: Scrapy's setting that can raise WALSH_MIN_INTERVAL.
_DELAY: Final = "DOWNLOAD_DELAY"


class Terms(NamedTuple):
    """``problem``: why the run says nothing about the project. ``note``: differences that are fine.

    Each in one line; None where there is nothing to say.
    """

    problem: str | None = None
    note: str | None = None


class _Difference(NamedTuple):
    """A setting whose value in the run differs from that of the project (``here``)."""

    setting: Setting
    run: Any
    here: Any

    def __str__(self) -> str:
        return f"{self.setting.name} {self.run}, here {self.here}"

    def stricter_run(self) -> bool:
        """Whether the run was stricter than the project, and than the default.

        A project below the default is judged for that by ``document``, whatever the run had.
        """
        row = self.setting.row
        strictness = row.stricter or float
        return strictness(self.run) > max(strictness(self.here), strictness(row.default))


def compare(settings: Mapping[str, Any], config: WalshConfig) -> Terms:
    """Compare *settings*, that member of a conformance record, with *config*, the project's.

    Raises nothing: settings that cannot be read are a problem.
    """
    overrides = settings.get("overrides")
    if not isinstance(overrides, dict):
        return Terms("does not say with which settings it was made")
    names = (*(each.name for each in _SHOWN), _DELAY)
    given = {name: overrides[name] for name in names if name in overrides}
    try:
        run = WalshConfig.from_settings({**given, "WALSH_IDENTITY": "walsh-research"}, Path)
    except ConfigError as error:
        return Terms(f"has settings with which nothing can run ({error})")
    found = list(_differences(run, config))
    stricter = [each for each in found if each.stricter_run()]
    if stricter:
        return Terms(f"is of a run with stricter settings ({_listed(stricter)})")
    return Terms(note=f"the conformance run had {_listed(found)}" if found else None)


def _differences(run: WalshConfig, here: WalshConfig) -> Iterator[_Difference]:
    for each in _SHOWN:
        found = _Difference(each, getattr(run, each.field), getattr(here, each.field))
        if found.run != found.here:
            yield found


def _listed(found: list[_Difference]) -> str:
    return "; ".join(map(str, found))


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
