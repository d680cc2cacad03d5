"""The attestation, contract ``walsh-research-attestation/v1`` (spec section 14), as values. Pure.

A requirement is true if the conformance record has checks of it, all of them passed, and no setting
of the project undoes what they showed. What no run has shown is false. So R1 is false until the
policy page was requested (R1.4): the sandbox, where conformance runs, has another one.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import urlsplit, urlunsplit

from scrapy_walsh.config import DEFAULTS, OVERRIDE, SETTINGS, SLOW_VISIT, WalshConfig, out_of_bounds
from scrapy_walsh.exceptions import DocumentInvalid
from scrapy_walsh.policy.scope import MAX_CHILDREN
from scrapy_walsh.proof.conformance.check import WORDS
from scrapy_walsh.proof.findings import Finding, Outcome
from scrapy_walsh.spec import REQUIREMENTS, SPEC_VERSION, __version__

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

CONTRACT: Final = "walsh-research-attestation/v1"
TOOL: Final = "scrapy-walsh"
#: The value of a requirement that is for the operator to keep; the reference bot's word for it.
OPERATOR: Final = "operator-responsibility"

#: The requirements that have parts, and the letters of these.
_PARTS: Final = {"R2": "abcd", "R3": "abc"}
#: The requirements of the checklist, in its order (spec section 15; R13: section 22.1).
IDS: Final = tuple(row.id + part for row in REQUIREMENTS for part in ("", *_PARTS.get(row.id, "")))
_ID: Final = re.compile(r"(R\d+)[a-z]?")
_OF_WORD: Final = {word: outcome for outcome, word in WORDS.items()}


@dataclass(frozen=True, slots=True)
class Evidence:
    """The conformance record of this very build, or ``problem``: why there is none, in one line.

    ``note``: in which settings the run differed from the project, in one line. They do not matter.
    """

    record: Mapping[str, Any] | None
    problem: str | None = None
    note: str | None = None


@dataclass(frozen=True, slots=True)
class PolicyPage:
    """R1.4: the policy page at ``url``, and what a request for it showed.

    ``checked``: when it was requested, ISO 8601 in UTC; None if it was not. ``status``: of HTTP;
    None if there was no answer. ``problem``: why it is not a public page; None if it is one.
    """

    url: str
    checked: str | None = None
    status: int | None = None
    problem: str | None = None

    @property
    def outcome(self) -> Outcome:
        """The outcome, as that of a check in a conformance record."""
        if self.checked is None:
            return Outcome.UNSEEN
        return Outcome.BROKEN if self.problem else Outcome.HELD

    def members(self) -> dict[str, Any]:
        """The attestation's member ``policy_url``."""
        return {
            "url": self.url,
            "outcome": WORDS[self.outcome],
            "checked": self.checked,
            "status": self.status,
        }


@dataclass(frozen=True, slots=True)
class Attested:
    """What speaks against the claim that a requirement is kept; empty where nothing does.

    A finding without a text is one whose reason is printed elsewhere.
    """

    against: tuple[Finding, ...] = ()

    @property
    def value(self) -> bool | str:
        """The requirement's value in the attestation: True, False, or OPERATOR."""
        outcomes = {finding.outcome for finding in self.against}
        if outcomes == {Outcome.OPERATOR}:
            return OPERATOR
        return not outcomes


class _Undoing(NamedTuple):
    """A setting with which a requirement is not kept. ``holds``: whether a project has it so."""

    id: str
    outcome: Outcome
    holds: Callable[[WalshConfig], bool]
    why: str


#: Settings with which a build does not do what the conformance run showed of it.
_UNDOINGS: Final = (
    _Undoing(
        "R5",
        Outcome.BROKEN,
        lambda config: any(each.row.requirement == "R5" for each, _ in out_of_bounds(config)),
        "WALSH_BACKOFF_BASE or WALSH_BACKOFF_CAP retries sooner than the schedule",
    ),
    _Undoing(
        "R6", Outcome.BROKEN, lambda config: config.follow_links, "WALSH_FOLLOW_LINKS is True"
    ),
    _Undoing(
        "R8",
        Outcome.OPERATOR,
        lambda config: bool(config.revisit_reason) or config.revisit < DEFAULTS["WALSH_REVISIT"],
        f"{OPERATOR}: WALSH_REVISIT or WALSH_REVISIT_REASON lets a source be requested sooner",
    ),
    _Undoing("R9", Outcome.BROKEN, lambda config: config.scraping, "WALSH_SCRAPING is True"),
    _Undoing(
        "R11",
        Outcome.BROKEN,
        lambda config: config.state_dir is None and config.shared_state is None,
        "WALSH_STATE_DIR is memory, which does not outlive a run",
    ),
)


# -- requirements -------------------------------------------------------------------------


def judge(evidence: Evidence, config: WalshConfig, page: PolicyPage) -> dict[str, Attested]:
    """What speaks against each requirement, by id, in the order of the checklist.

    *config*: that of the project that attests. *page*: the policy page of its identity.
    """
    record = evidence.record
    if record is None:
        return {id_: Attested((Finding(Outcome.UNSEEN, id_),)) for id_ in IDS}
    named = (_main(check["requirement"]) for check in record["checks"])
    found = {id_: _shown(id_, record) for id_ in dict.fromkeys([*IDS, *named])}
    for finding in [*_unseen_parts(found), *_undone(config, page)]:
        found[finding.rule] = Attested((*found[finding.rule].against, finding))
    return found


def _shown(id_: str, record: Mapping[str, Any]) -> Attested:
    """What the checks of *record* showed of *id_*, a requirement or a part of one."""
    checks = [check for check in record["checks"] if _speaks_of(check, id_)]
    if not checks:
        why = f"{WORDS[Outcome.UNSEEN]}: the conformance record has no check of it"
        return Attested((Finding(Outcome.UNSEEN, id_, text=why),))
    # The checks of a part are reported with that part alone.
    parts = [id_ + part for part in _PARTS.get(id_, "")]
    return Attested(
        tuple(
            Finding(_OF_WORD[check["outcome"]], id_, text=_in_words(check))
            for check in checks
            if _OF_WORD[check["outcome"]] is not Outcome.HELD
            and not any(_speaks_of(check, part) for part in parts)
        )
    )


def _speaks_of(check: Mapping[str, Any], id_: str) -> bool:
    if _main(id_) == id_:
        return _main(check["requirement"]) == id_
    return id_ in (_leading(check["id"]), _leading(check["requirement"]))


def _in_words(check: Mapping[str, Any]) -> str:
    detail = f" ({check['detail']})" if check["detail"] else ""
    return f"{check['outcome']}: {check['id']} {check['title']}{detail}"


def _main(id_: str) -> str:
    """R2 of R2a; *id_* itself if it does not look like that."""
    match = _ID.match(id_)
    return match[1] if match else id_


def _leading(id_: str) -> str:
    """R2a of R2a.3; *id_* itself if it does not look like that."""
    match = _ID.match(id_)
    return match[0] if match else id_


def _unseen_parts(found: Mapping[str, Attested]) -> Iterator[Finding]:
    """A finding for each requirement that has a part which is not true."""
    for id_, letters in _PARTS.items():
        missing = [id_ + part for part in letters if found[id_ + part].value is not True]
        if missing:
            why = f"these parts of it are not: {', '.join(missing)}"
            yield Finding(Outcome.UNSEEN, id_, text=why)


def _undone(config: WalshConfig, page: PolicyPage) -> Iterator[Finding]:
    """What the settings undo, and what the policy page lacks."""
    if page.checked is None:
        why = f"the policy page {page.url} was not requested (R1.4): run attest --online"
        yield Finding(Outcome.UNSEEN, "R1", text=why)
    elif page.problem:
        yield Finding(Outcome.BROKEN, "R1", text=f"policy page {page.url}: {page.problem}")
    for undoing in _UNDOINGS:
        if undoing.holds(config):
            yield Finding(undoing.outcome, undoing.id, text=undoing.why)


# -- the document -------------------------------------------------------------------------


def document(
    evidence: Evidence,
    config: WalshConfig,
    page: PolicyPage,
    found: Mapping[str, Attested],
    issued: str,
) -> dict[str, Any]:
    """The attestation, unsigned. *found*: what :func:`judge` returned. *issued*: ISO 8601, UTC."""
    return {
        "contract": CONTRACT,
        "tool": TOOL,
        "tool_version": __version__,
        "spec": SPEC_VERSION,
        "user_agent": config.identity.user_agent,
        "requirements": {id_: each.value for id_, each in found.items()},
        "issued": issued,
        "conformance": _provenance(evidence.record),
        "policy_url": page.members(),
        "mirrors": _mirrors(config),
        "overrides": _overrides(config),
        "WALSH_PACE_ROBOTS": config.pace_robots,
        "WALSH_FOLLOW_LINKS": config.follow_links,
        "WALSH_SLOW_HOSTS": config.slow_hosts,
        "exemptions": _exemptions(config),
    }


def _exemptions(config: WalshConfig) -> dict[str, str]:
    """Where a request may follow another sooner than R4 or WALSH_REVISIT says, by requirement.

    And where a target may be declared by a document (R6), which is refused to walsh-research.
    """
    found = {
        "R4": "the target after the first robots.txt of a host never requested before",
        "R8 sources": "a source whose declaration has a revisit of its own, an hour at least",
    }
    if config.slow_hosts == SLOW_VISIT:
        found["R4 slow hosts"] = (
            f"where a Crawl-delay exceeds WALSH_PATIENCE ({config.patience:g} s), one target in"
            " 24 h, 1 s after the robots.txt that had to be refreshed, if the host had no request"
            " for its whole Crawl-delay before"
        )
    if not config.is_walsh_research:
        found["R6 sitemaps"] = (
            f"the sitemaps on the same host, {MAX_CHILDREN} at most, that a declared sitemap index"
            " lists, where its source says children = true"
        )
    return found


#: The members of a conformance record that the attestation repeats.
_OF_THE_RECORD: Final = ("date", "digest", "code", "live", "versions", "settings")


def _provenance(record: Mapping[str, Any] | None) -> dict[str, Any] | None:
    return None if record is None else {name: record[name] for name in _OF_THE_RECORD}


def _mirrors(config: WalshConfig) -> dict[str, str | None]:
    """The operator's documents that come from elsewhere than the identity says: setting, URL."""
    identity = config.identity
    urls = {
        "WALSH_BLOCKLIST_URL": (config.blocklist_url, identity.blocklist_url),
        "WALSH_BLOCKLIST_SCHEMA_URL": (config.schema_url, identity.schema_url),
    }
    return {name: _public(used) for name, (used, own) in urls.items() if used and used != own}


def _public(url: str) -> str:
    """*url* without user name and password."""
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))


def _overrides(config: WalshConfig) -> dict[str, Any]:
    """The settings whose values differ from their defaults, by name."""
    untouched = WalshConfig.from_settings({"WALSH_IDENTITY": "walsh-research"}, Path)
    stated = {}
    for each in sorted(SETTINGS, key=lambda each: each.name):
        value = getattr(config, each.field)
        if each.row.attested == OVERRIDE and value != getattr(untouched, each.field):
            stated[each.name] = _plain(value)
    if config.state_dir is None:
        stated["WALSH_STATE_DIR"] = "memory"
    if config.shared_state is not None:
        stated["WALSH_SHARED_STATE"] = "set"
    return stated


def _plain(value: Any) -> Any:
    """*value* as a JSON value: a sequence as a list, an object of any other class as text."""
    if isinstance(value, (list, tuple)):
        return [_plain(entry) for entry in value]
    return value if isinstance(value, (bool, int, float, str)) else str(value)


# -- an attestation that somebody else made -------------------------------------------------


def check_shape(found: Mapping[str, Any]) -> None:
    """Check that *found* has what section 14 requires of an attestation; else DocumentInvalid."""
    if found.get("contract") != CONTRACT:
        raise DocumentInvalid(
            f"its contract is {ascii(found.get('contract'))[:100]}, not {CONTRACT!r}"
        )
    for name in ("tool", "tool_version", "spec", "user_agent", "issued"):
        if not isinstance(found.get(name), str):
            raise DocumentInvalid(f"its {name} is missing, or is not a string")
    stated = found.get("requirements")
    if not isinstance(stated, dict) or not stated:
        raise DocumentInvalid("its requirements are missing")
    for name, value in stated.items():
        if not isinstance(value, (bool, str)):
            raise DocumentInvalid(f"requirement {ascii(name)[:100]} is neither true nor false")


def in_words(found: Mapping[str, Any]) -> Iterator[str]:
    """The lines that say to a person what *found* states. It has passed :func:`check_shape`."""
    yield f"issued {found['issued']} by {found['tool']} {found['tool_version']}"
    yield f"of {found['user_agent']}, for {found['spec']}"
    run = found.get("conformance")
    if isinstance(run, dict):
        yield f"conformance run of {run.get('date')}, digest {run.get('digest')}"
    else:
        yield "without a conformance run behind it"
    stated = found["requirements"]
    yield f"true: {_ids(stated, True)}"
    yield f"false: {_ids(stated, False)}"
    yield from (f"{name}: {value}" for name, value in stated.items() if isinstance(value, str))
    for member in ("mirrors", "overrides", "exemptions"):
        if found.get(member):
            yield f"{member}: {found[member]}"


def _ids(stated: Mapping[str, Any], value: bool) -> str:
    return " ".join(name for name, found in stated.items() if found is value) or "none"
