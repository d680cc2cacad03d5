"""The attestation, contract ``walsh-research-attestation/v1`` (spec section 14).

A requirement is true if the conformance record has checks of it, all of them passed, and no setting
of the project undoes what they showed. A requirement that no run has shown is false. So R1 is false
until the policy page was requested (R1.4), because the sandbox of conformance has another page. All
is pure but :func:`evidence_in`, which reads the record.
"""

from __future__ import annotations

import operator
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from msgspec import to_builtins

from scrapy_walsh.config import DEFAULTS, OVERRIDE, SETTINGS, WalshConfig
from scrapy_walsh.exceptions import ConfigError, DocumentInvalid
from scrapy_walsh.policy.scope import MAX_CHILDREN
from scrapy_walsh.policy.urls import without_userinfo
from scrapy_walsh.proof.conformance.check import WORDS, code_digest, read_record
from scrapy_walsh.proof.findings import Finding, Outcome, broken, unseen
from scrapy_walsh.proof.verify.terms import out_of_bounds
from scrapy_walsh.spec import REQUIREMENTS, SPEC_VERSION, __version__

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from scrapy_walsh.config import Row

CONTRACT: Final = "walsh-research-attestation/v1"
TOOL: Final = "scrapy-walsh"
#: The value of a requirement that is for the operator to keep; the reference bot's word for it.
OPERATOR: Final = "operator-responsibility"

#: Where a request may follow another sooner than R4 or WALSH_REVISIT says, by requirement, and a
#: target may be declared by a document (R6).
EXEMPTIONS: Final = {
    "R4": "the target after the first robots.txt of a host never requested before",
    "R4 slow hosts": "with WALSH_SLOW_HOSTS = visit, where a Crawl-delay exceeds WALSH_PATIENCE,"
    " one target in 24 h, 1 s after the robots.txt that had to be refreshed, if the host had no"
    " request for its whole Crawl-delay before",
    "R6 sitemaps": f"the sitemaps on the same host, {MAX_CHILDREN} at most, that a declared sitemap"
    " index lists, where its source says children = true, which is refused to walsh-research",
    "R8 sources": "a source whose declaration has a revisit of its own, an hour at least",
}
#: The requirements that have parts, and the letters of these.
_PARTS: Final = {"R2": "abcd", "R3": "abc"}
#: The requirements of the checklist, in its order (spec section 15; R13: section 22.1).
IDS: Final = tuple(row.id + part for row in REQUIREMENTS for part in ("", *_PARTS.get(row.id, "")))
#: The members of a conformance record that the attestation repeats.
_OF_THE_RECORD: Final = (
    "date",
    "digest",
    "code",
    "live",
    "versions",
    "settings",
)
_OF_WORD: Final = {word: outcome for outcome, word in WORDS.items()}


class PolicyPage(NamedTuple):
    """R1.4: the policy page at ``url``, and what a request for it showed.

    ``checked``: when it was requested, ISO 8601 in UTC; None if it was not. ``status``: of HTTP;
    None if there was no answer. ``problem``: why it is not a public page; None if it is one.
    """

    url: str
    checked: str | None = None
    status: int | None = None
    problem: str | None = None

    @property
    def against(self) -> Finding | None:
        """The findings against R1."""
        if self.checked is None:
            reason = f"the policy page {self.url} was not requested (R1.4): run attest --online"
            return unseen(reason)
        if self.problem:
            return broken(f"policy page {self.url}: {self.problem}")
        return None

    def members(self) -> dict[str, Any]:
        """The attestation's member ``policy_url``."""
        outcome = Outcome.HELD if self.against is None else self.against.outcome
        members = {
            "url": self.url,
            "checked": self.checked,
            "status": self.status,
        }
        return {**members, "outcome": WORDS[outcome]}


# -- the conformance record that it rests on -----------------------------------------------
#
# It is used only if it was made by this build, on this Scrapy, as this identity, with settings no
# stricter than the project's, and was not edited since. A run with stricter settings says nothing
# about the project. A project that is stricter than the run keeps what the run showed.

#: The advice at the end of a message.
_RUN: Final = "run walsh conformance"
#: The packages that must have the versions of the conformance run.
_BENEATH: Final = ("scrapy", "protego")


def evidence_in(path: Path, config: WalshConfig) -> Mapping[str, Any]:
    """The record in the file *path*, if it shows something about this build with *config*.

    Raises DocumentInvalid with the reason in one line.
    """
    try:
        record = read_record(path)
    except OSError as error:
        reason = f"there is no conformance record {path} to read ({error.strerror}): {_RUN}"
        raise DocumentInvalid(reason) from None
    try:
        problem = _difference(record, config.identity.user_agent)
        problem = problem or _find_stricter_settings(record["settings"], config)
    except (KeyError, TypeError, AttributeError) as error:
        problem = f"is not whole ({error!r})"
    if problem:
        raise DocumentInvalid(f"the conformance record {path} {problem}: {_RUN} again")
    return record


def _difference(record: Mapping[str, Any], user_agent: str) -> str | None:
    """Why *record* is not of this build and identity; None if it is."""
    expected = {
        "tool": TOOL,
        "tool_version": __version__,
        "code": code_digest(),
        "spec": SPEC_VERSION,
        "user_agent": user_agent,
    }
    beneath = {name: version(name) for name in _BENEATH}
    for name, value in {**expected, **beneath}.items():
        recorded = record["versions"].get(name) if name in beneath else record[name]
        if recorded != value:
            return f"is of another build or identity ({name}: {recorded}, here {value})"
    if record["live"]:
        return "is of a --live run, which shows a few rows only"
    return None


def _find_stricter_settings(settings: Mapping[str, Any], config: WalshConfig) -> str | None:
    """Why a run with *settings*, that member of its record, says nothing about *config*.

    None if it does. Settings that cannot be read are a problem. A project below a default is judged
    for that by ``judge``, whatever the run had.
    """
    overrides = settings.get("overrides")
    if not isinstance(overrides, dict):
        return "does not say with which settings it was made"
    names = {
        "DOWNLOAD_DELAY",
        *(setting.name for setting in SETTINGS if _rank(setting.row)),
    }
    overrides_used = {name: value for name, value in overrides.items() if name in names}
    try:
        run = WalshConfig.from_settings(
            {**overrides_used, "WALSH_IDENTITY": "walsh-research"}, Path
        )
    except ConfigError as error:
        return f"has settings with which nothing can run ({error})"
    differences: list[str] = []
    for setting in SETTINGS:
        theirs = getattr(run, setting.field)
        own_value = getattr(config, setting.field)
        rank = _rank(setting.row)
        if rank is not None and rank(theirs) > max(rank(own_value), rank(setting.row.default)):
            differences.append(f"{setting.name} {theirs}, here {own_value}")
    if differences:
        return f"is of a run with stricter settings ({'; '.join(differences)})"
    return None


def _rank(row: Row) -> Callable[[Any], float] | None:
    """A function of a setting's value, the larger the stricter; None if a run shows nothing."""
    if row.least is not None:
        return float
    if row.most is not None:
        return operator.neg
    return row.stricter


# -- requirements -------------------------------------------------------------------------


def judge(
    record: Mapping[str, Any] | None, config: WalshConfig, page: PolicyPage
) -> dict[str, list[Finding]]:
    """The findings against each requirement, by id, in the order of the checklist.

    *record*: of :func:`evidence_in`; None if there is none. *config*: that of the project that
    attests. *page*: the policy page of its identity. A finding without a text has its reason
    printed elsewhere.
    """
    if record is None:
        return {id_: [unseen("")] for id_ in IDS}
    findings: dict[str, list[Finding]] = {id_: [] for id_ in IDS}
    looked_at = set()
    for check in record["checks"]:
        # The checks of a part, which is an id of the checklist, are reported with it alone.
        id_ = check["id"] if check["id"] in findings else check["requirement"]
        looked_at |= {id_, check["requirement"]}
        findings_of = findings.setdefault(id_, [])
        outcome = _OF_WORD[check["outcome"]]
        if outcome is not Outcome.HELD:
            detail = f" ({check['detail']})" if check["detail"] else ""
            reason = f"{check['outcome']}: {check['id']} {check['title']}{detail}"
            findings_of.append(Finding(outcome, text=reason))
    reason = f"{WORDS[Outcome.UNSEEN]}: the conformance record has no check of it"
    for id_ in (code for code in IDS if code not in looked_at):
        findings[id_].append(unseen(reason))
    for id_, letters in _PARTS.items():
        absent = [id_ + part for part in letters if findings[id_ + part]]
        if absent:
            findings[id_].append(unseen(f"these parts of it are not: {', '.join(absent)}"))
    for id_, finding in _find_undone_promises(config, page):
        findings[id_].append(finding)
    return findings


def value_of(findings: Sequence[Finding]) -> bool | str:
    """The value of a requirement in the attestation: True, False, or OPERATOR."""
    outcomes = {finding.outcome for finding in findings}
    if outcomes == {Outcome.OPERATOR}:
        return OPERATOR
    return not outcomes


def _find_undone_promises(config: WalshConfig, page: PolicyPage) -> Iterator[tuple[str, Finding]]:
    """The faults of the policy page, and the settings that undo a promise which the conformance run
    has shown.
    """
    if page.against is not None:
        yield "R1", page.against
    if any(setting.row.requirement == "R5" for setting, _ in out_of_bounds(config)):
        reason = "WALSH_BACKOFF_BASE or WALSH_BACKOFF_CAP retries sooner than the schedule"
        yield "R5", broken(reason)
    if config.follow_links:
        yield "R6", broken("WALSH_FOLLOW_LINKS is True")
    if config.revisit_reason or config.revisit < DEFAULTS["WALSH_REVISIT"]:
        reason = "WALSH_REVISIT or WALSH_REVISIT_REASON lets a source be requested sooner"
        yield "R8", Finding(Outcome.OPERATOR, text=f"{OPERATOR}: {reason}")
    if config.scraping:
        yield "R9", broken("WALSH_SCRAPING is True")
    if config.state_dir is None and config.shared_state is None:
        yield (
            "R11",
            broken("WALSH_STATE_DIR is memory, which does not outlive a run"),
        )


# -- the document -------------------------------------------------------------------------


def document(
    record: Mapping[str, Any] | None,
    config: WalshConfig,
    page: PolicyPage,
    findings: Mapping[str, Sequence[Finding]],
    issued: str,
    *,
    lifted: Sequence[Mapping[str, str]] = (),
) -> dict[str, Any]:
    """The attestation, unsigned. *findings*: what :func:`judge` returned. *issued*: ISO 8601, UTC.

    *lifted*: the holds that a person has lifted (D40): host, reason, and when.
    """
    return {
        "contract": CONTRACT,
        "tool": TOOL,
        "tool_version": __version__,
        "spec": SPEC_VERSION,
        "user_agent": config.identity.user_agent,
        "requirements": {id_: value_of(findings_of) for id_, findings_of in findings.items()},
        "issued": issued,
        "conformance": record and {name: record[name] for name in _OF_THE_RECORD},
        "policy_url": page.members(),
        "mirrors": _mirrors(config),
        "overrides": _overrides(config),
        "WALSH_PACE_ROBOTS": config.pace_robots,
        "WALSH_FOLLOW_LINKS": config.follow_links,
        "WALSH_SLOW_HOSTS": config.slow_hosts,
        "exemptions": EXEMPTIONS,
        **({"lifted_holds": [*lifted]} if lifted else {}),
    }


def _mirrors(config: WalshConfig) -> dict[str, str]:
    """The operator's documents that come from elsewhere than the identity says: setting, URL."""
    identity = config.identity
    urls = {
        "WALSH_BLOCKLIST_URL": (config.blocklist_url, identity.blocklist_url),
        "WALSH_BLOCKLIST_SCHEMA_URL": (config.schema_url, identity.schema_url),
    }
    return {
        name: without_userinfo(url)
        for name, (url, default) in urls.items()
        if url and url != default
    }


def _overrides(config: WalshConfig) -> dict[str, Any]:
    """The settings with another value than their default, by name."""
    untouched = WalshConfig.from_settings({"WALSH_IDENTITY": "walsh-research"}, Path)
    stated = {}
    for setting in sorted(SETTINGS, key=lambda setting: setting.name):
        value = getattr(config, setting.field)
        if setting.row.attested == OVERRIDE and value != getattr(untouched, setting.field):
            stated[setting.name] = to_builtins(value, enc_hook=str)
    if config.state_dir is None:
        stated["WALSH_STATE_DIR"] = "memory"
    if config.shared_state is not None:
        stated["WALSH_SHARED_STATE"] = "set"
    return stated


# -- the attestation of another operator ------------------------------------------------------


def check_contract(document: Mapping[str, Any]) -> None:
    """Raise DocumentInvalid if *document* is not an attestation of this contract."""
    if document.get("contract") != CONTRACT:
        raise DocumentInvalid(f"its contract is not {CONTRACT}")
