"""The attestation, contract ``walsh-research-attestation/v1`` (spec section 14).

A requirement is true if the conformance record has checks of it, all of them passed, and no setting
of the project undoes what they showed. What no run has shown is false. So R1 is false until the
policy page was requested (R1.4): the sandbox, where conformance runs, has another one. All is pure
but :func:`evidence_in`, which reads the record.
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

#: Where a request may follow another sooner than R4 or WALSH_REVISIT says, by requirement, and
#: where a target may be declared by a document (R6).
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
_OF_THE_RECORD: Final = ("date", "digest", "code", "live", "versions", "settings")
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
        """What speaks against R1."""
        if self.checked is None:
            why = f"the policy page {self.url} was not requested (R1.4): run attest --online"
            return unseen(why)
        return broken(f"policy page {self.url}: {self.problem}") if self.problem else None

    def members(self) -> dict[str, Any]:
        """The attestation's member ``policy_url``."""
        outcome = Outcome.HELD if self.against is None else self.against.outcome
        found = {"url": self.url, "checked": self.checked, "status": self.status}
        return {**found, "outcome": WORDS[outcome]}


# -- the conformance record that it rests on -----------------------------------------------
#
# It is used only if it was made by this build, on this Scrapy, as this identity, with settings no
# stricter than the project's, and was not edited since. A run with stricter settings says nothing
# about the project. A project that is stricter than the run keeps what the run showed.

#: What to do about it: the end of a message.
_RUN: Final = "run walsh conformance"
#: The packages whose versions must be those of the conformance run.
_BENEATH: Final = ("scrapy", "protego")


def evidence_in(path: Path, config: WalshConfig) -> Mapping[str, Any]:
    """The record in the file *path*, if it shows something about this build with *config*.

    Raises DocumentInvalid, whose text says why it does not, in one line.
    """
    try:
        record = read_record(path)
    except OSError as error:
        why = f"there is no conformance record {path} to read ({error.strerror}): {_RUN}"
        raise DocumentInvalid(why) from None
    try:
        problem = _difference(record, config.identity.user_agent)
        problem = problem or _stricter(record["settings"], config)
    except (KeyError, TypeError, AttributeError) as error:
        problem = f"is not whole ({error!r})"
    if problem:
        raise DocumentInvalid(f"the conformance record {path} {problem}: {_RUN} again")
    return record


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


def _stricter(settings: Mapping[str, Any], config: WalshConfig) -> str | None:
    """Why a run with *settings*, that member of its record, says nothing about *config*.

    None where it does. Settings that cannot be read are a problem. A project below a default is
    judged for that by ``judge``, whatever the run had.
    """
    overrides = settings.get("overrides")
    if not isinstance(overrides, dict):
        return "does not say with which settings it was made"
    names = {"DOWNLOAD_DELAY", *(each.name for each in SETTINGS if _rank(each.row))}
    given = {name: value for name, value in overrides.items() if name in names}
    try:
        run = WalshConfig.from_settings({**given, "WALSH_IDENTITY": "walsh-research"}, Path)
    except ConfigError as error:
        return f"has settings with which nothing can run ({error})"
    found: list[str] = []
    for each in SETTINGS:
        theirs, ours = getattr(run, each.field), getattr(config, each.field)
        rank = _rank(each.row)
        if rank is not None and rank(theirs) > max(rank(ours), rank(each.row.default)):
            found.append(f"{each.name} {theirs}, here {ours}")
    return f"is of a run with stricter settings ({'; '.join(found)})" if found else None


def _rank(row: Row) -> Callable[[Any], float] | None:
    """A function of a setting's value, the larger the stricter; None where a run shows nothing."""
    if row.least is not None:
        return float
    return operator.neg if row.most is not None else row.stricter


# -- requirements -------------------------------------------------------------------------


def judge(
    record: Mapping[str, Any] | None, config: WalshConfig, page: PolicyPage
) -> dict[str, list[Finding]]:
    """What speaks against each requirement, by id, in the order of the checklist.

    *record*: of :func:`evidence_in`; None where there is none. *config*: that of the project that
    attests. *page*: the policy page of its identity. A finding without a text is one whose reason
    is printed elsewhere.
    """
    if record is None:
        return {id_: [unseen("")] for id_ in IDS}
    found: dict[str, list[Finding]] = {id_: [] for id_ in IDS}
    looked_at = set()
    for check in record["checks"]:
        # The checks of a part, which is an id of the checklist, are reported with it alone.
        id_ = check["id"] if check["id"] in found else check["requirement"]
        looked_at |= {id_, check["requirement"]}
        against, outcome = found.setdefault(id_, []), _OF_WORD[check["outcome"]]
        if outcome is not Outcome.HELD:
            detail = f" ({check['detail']})" if check["detail"] else ""
            why = f"{check['outcome']}: {check['id']} {check['title']}{detail}"
            against.append(Finding(outcome, text=why))
    why = f"{WORDS[Outcome.UNSEEN]}: the conformance record has no check of it"
    for id_ in (each for each in IDS if each not in looked_at):
        found[id_].append(unseen(why))
    for id_, letters in _PARTS.items():
        missing = [id_ + part for part in letters if found[id_ + part]]
        if missing:
            found[id_].append(unseen(f"these parts of it are not: {', '.join(missing)}"))
    for id_, finding in _undone(config, page):
        found[id_].append(finding)
    return found


def value_of(against: Sequence[Finding]) -> bool | str:
    """The value of a requirement in the attestation: True, False, or OPERATOR."""
    outcomes = {finding.outcome for finding in against}
    return OPERATOR if outcomes == {Outcome.OPERATOR} else not outcomes


def _undone(config: WalshConfig, page: PolicyPage) -> Iterator[tuple[str, Finding]]:
    """What the policy page lacks, and what settings undo of what the conformance run showed."""
    if page.against is not None:
        yield "R1", page.against
    if any(each.row.requirement == "R5" for each, _ in out_of_bounds(config)):
        why = "WALSH_BACKOFF_BASE or WALSH_BACKOFF_CAP retries sooner than the schedule"
        yield "R5", broken(why)
    if config.follow_links:
        yield "R6", broken("WALSH_FOLLOW_LINKS is True")
    if config.revisit_reason or config.revisit < DEFAULTS["WALSH_REVISIT"]:
        why = "WALSH_REVISIT or WALSH_REVISIT_REASON lets a source be requested sooner"
        yield "R8", Finding(Outcome.OPERATOR, text=f"{OPERATOR}: {why}")
    if config.scraping:
        yield "R9", broken("WALSH_SCRAPING is True")
    if config.state_dir is None and config.shared_state is None:
        yield "R11", broken("WALSH_STATE_DIR is memory, which does not outlive a run")


# -- the document -------------------------------------------------------------------------


def document(
    record: Mapping[str, Any] | None,
    config: WalshConfig,
    page: PolicyPage,
    found: Mapping[str, Sequence[Finding]],
    issued: str,
    *,
    lifted: Sequence[Mapping[str, str]] = (),
) -> dict[str, Any]:
    """The attestation, unsigned. *found*: what :func:`judge` returned. *issued*: ISO 8601, UTC.

    *lifted*: the holds that a person has lifted (D40): host, reason, and when.
    """
    return {
        "contract": CONTRACT,
        "tool": TOOL,
        "tool_version": __version__,
        "spec": SPEC_VERSION,
        "user_agent": config.identity.user_agent,
        "requirements": {id_: value_of(against) for id_, against in found.items()},
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
        name: without_userinfo(used) for name, (used, own) in urls.items() if used and used != own
    }


def _overrides(config: WalshConfig) -> dict[str, Any]:
    """The settings whose values differ from their defaults, by name."""
    untouched = WalshConfig.from_settings({"WALSH_IDENTITY": "walsh-research"}, Path)
    stated = {}
    for each in sorted(SETTINGS, key=lambda each: each.name):
        value = getattr(config, each.field)
        if each.row.attested == OVERRIDE and value != getattr(untouched, each.field):
            stated[each.name] = to_builtins(value, enc_hook=str)
    if config.state_dir is None:
        stated["WALSH_STATE_DIR"] = "memory"
    if config.shared_state is not None:
        stated["WALSH_SHARED_STATE"] = "set"
    return stated


# -- an attestation that somebody else made -------------------------------------------------


def check_contract(found: Mapping[str, Any]) -> None:
    """Raise DocumentInvalid if *found* is not an attestation of this contract."""
    if found.get("contract") != CONTRACT:
        raise DocumentInvalid(f"its contract is not {CONTRACT}")
