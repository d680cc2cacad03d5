"""What ``walsh doctor`` says: one finding a line, and the requirement that each is about.

Pure: values in, findings out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from scrapy_walsh.adapters.plugins import BY_LINE
from scrapy_walsh.config import SETTINGS, out_of_bounds
from scrapy_walsh.findings import Finding, Outcome

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from scrapy_walsh.config import WalshConfig

#: The outcomes as a line and the JSON have them. ``FAIL``: a MUST does not hold, or could not be
#: seen to hold; or no crawl would start. ``unseen``: not looked at, as without ``--online``.
MARKS: Final[Mapping[Outcome, str]] = {
    Outcome.HELD: "ok",
    Outcome.NOTE: "note",
    Outcome.WARNING: "warn",
    Outcome.BROKEN: "FAIL",
    Outcome.UNSEEN: "unseen",
}

#: What a line about a setting or seat is about: the first name that occurs in it decides.
_REQUIREMENTS: Final[Mapping[str, str]] = {
    **{each.name: each.row.requirement for each in SETTINGS},
    "USER_AGENT": "R1", "CONCURRENT_REQUESTS": "R4", "DOWNLOAD_DELAY": "R4",
    "RETRY_ENABLED": "R5", "ROBOTSTXT_OBEY": "R2", "HTTPCACHE_ENABLED": "R6",
    "METAREFRESH_ENABLED": "R6", "REDIRECT_MAX_TIMES": "R3", "GateMiddleware": "R2",
    "RedirectMiddleware": "R3", "BackoffMiddleware": "R5", "RevalidateMiddleware": "R7",
    "ScopeMiddleware": "R6", "AutoThrottle": "R4", "DOWNLOAD_HANDLERS": "R1",
    "REQUEST_FINGERPRINTER_CLASS": "R7", "DOWNLOADER ": "R4", "HostQueue": "R4",
    "COOKIES_ENABLED": "R0.1", "REMOTE_CONTROL_ENABLED": "R0.1", "TELNETCONSOLE_ENABLED": "R0.1",
}  # fmt: skip
_EVERY: Final = "R0.6"
#: The widths of the first columns, the mark and the requirement.
LEAST: Final = (6, 5)

#: Names that are reserved for tests and documentation (RFC 2606), below a dot.
_RESERVED: Final = (
    ".test", ".example", ".invalid", ".localhost", ".example.com", ".example.net", ".example.org",
)  # fmt: skip
#: The most spiders whose seats are in place that are named one by one.
_NAMED: Final = 8
_BARE: Final = (
    'it crawls without scrapy_walsh: give ADDONS {"scrapy_walsh.Addon": 500}, in the project and '
    "in custom_settings that set ADDONS"
)


def cells_of(finding: Finding) -> tuple[str, str, str]:
    """The cells of its row: mark, requirement, and what it says and asks for."""
    return MARKS[finding.outcome], finding.rule, f"{finding.about}: {finding.text}"


def members_of(finding: Finding) -> dict[str, str]:
    """The finding as a JSON object."""
    return {
        "mark": MARKS[finding.outcome],
        "requirement": finding.rule,
        "about": finding.about,
        "text": finding.text,
    }


def requirement_of(line: str) -> str:
    """The requirement that a line about a setting or a seat is about."""
    places = [(line.find(name), -len(name), name) for name in _REQUIREMENTS if name in line]
    return _REQUIREMENTS[min(places)[2]] if places else _EVERY


# -- identity and settings ----------------------------------------------------------------


def of_settings(lines: Iterable[str], spiders: str = "") -> Iterator[Finding]:
    """A finding for each WALSH_* value that cannot be used, as ``ConfigError`` words it."""
    for line in lines:
        yield Finding(Outcome.BROKEN, requirement_of(line), "settings", f"{line}{spiders}")


def of_identity(config: WalshConfig) -> Iterator[Finding]:
    """Who the bot is, where the operator's documents come from, and settings that a requirement
    forbids or limits.
    """
    identity = config.identity
    yield Finding(
        Outcome.HELD,
        "R1",
        "identity",
        f"sends {identity.user_agent!r}; robots.txt is read for {identity.token}",
    )
    if config.mirrored:
        yield Finding(
            Outcome.NOTE,
            "R3",
            "documents",
            f"blocklist from {config.blocklist_url}, schema from {config.schema_url}: not "
            "the identity's own; an attestation says so",
        )
    if config.follow_links:
        yield Finding(
            Outcome.WARNING,
            "R6",
            "settings",
            "WALSH_FOLLOW_LINKS is on: R6 is attested false; or remove it",
        )
    if config.scraping:
        yield Finding(
            Outcome.WARNING,
            "R9",
            "settings",
            "WALSH_SCRAPING is on: R9 is attested false; or remove it",
        )
    for each, how in out_of_bounds(config):
        why = f"{each.name} {how}, which the specification asks for: remove it, or correct it"
        yield Finding(Outcome.BROKEN, each.row.requirement, "settings", why)
    if config.revisit_reason:
        yield Finding(
            Outcome.WARNING,
            "R8",
            "settings",
            "WALSH_REVISIT_REASON is set for every run: give it to single runs, with -s",
        )


def of_owner(config: WalshConfig) -> Iterator[Finding]:
    """Whether the identity is one's own: not the docs' example, nor another operator's."""
    identity = config.identity
    if config.is_walsh_research:
        yield Finding(
            Outcome.NOTE,
            "R1",
            "identity",
            "walsh-research is the operator of wal.sh/bot and nobody else: if that is not you, "
            "make your own with `walsh init`",
        )
    urls = {"policy_url": identity.policy_url, "blocklist_url": identity.blocklist_url}
    reserved = [f"{name} {url}" for name, url in urls.items() if _is_reserved(url)]
    named = [f"product {identity.product}"] if "example" in identity.token.lower() else []
    if placeholders := [*named, *reserved]:
        yield Finding(
            Outcome.WARNING,
            "R1",
            "identity",
            f"only an example: {', '.join(placeholders)}: nobody can opt out there; put your own",
        )


def _is_reserved(url: str) -> bool:
    """Whether the host of *url* has a name that nobody can own (RFC 2606)."""
    host = f".{urlsplit(url).hostname or ''}"
    return host.endswith(_RESERVED)


# -- seats --------------------------------------------------------------------------------


def of_spiders(report: Mapping[str, Any]) -> Iterator[Finding]:
    """What the look at every spider found: *report* is that of ``doctor_probe``."""
    for each in report["broken"]:
        yield Finding(
            Outcome.BROKEN,
            _EVERY,
            "spiders",
            f"{each['module']} cannot be imported, so nothing in it is seen: {each['error']}",
        )
    if report["reached"]:
        yield Finding(
            Outcome.WARNING,
            "R0.1",
            "spiders",
            f"the project's code connects to {', '.join(report['reached'])} while it is loaded, "
            "past every gate (doctor prevented it): use a spider's requests",
        )
    spiders, project = report["spiders"], report["project"]
    for text, suffix in _grouped(spiders, "config", project):
        yield from of_settings([text], suffix)
    for text, suffix in _grouped(spiders, "unknown", project):
        yield Finding(
            Outcome.WARNING, requirement_of(text), "settings", f"{text}: remove it{suffix}"
        )
    for text, suffix in _grouped(spiders, "overridden", project):
        yield Finding(
            Outcome.WARNING,
            requirement_of(text),
            "pins",
            f"{text}; it is pinned: remove yours{suffix}",
        )
    for text, suffix in _grouped(spiders, "hasty", project):
        yield Finding(Outcome.WARNING, "R2", "settings", f"{text}{suffix}")
    for text, suffix in _grouped(spiders, "plugins", project):
        plugin = BY_LINE[text]
        outcome = Outcome.WARNING if plugin.warns else Outcome.NOTE
        yield Finding(outcome, plugin.requirement, "plugins", f"{text}{suffix}")
    for text, suffix in _grouped(spiders, "jobdir", project):
        yield Finding(
            Outcome.BROKEN,
            _EVERY,
            "jobdir",
            f"{text}: no crawl starts: set another, or remove it{suffix}",
        )
    yield from _of_seats(spiders)


def _of_seats(spiders: Sequence[Mapping[str, Any]]) -> Iterator[Finding]:
    seen = [{**each, "lines": _seat_lines(each)} for each in spiders]
    for text, suffix in _grouped(seen, "lines"):
        yield Finding(Outcome.BROKEN, requirement_of(text), "seats", f"{text}{suffix}")
    whole = [each["name"] for each in seen if not each["lines"] and not each["config"]]
    if whole:
        whose = ", ".join(sorted(whole)) if len(whole) <= _NAMED else f"{len(whole)} spiders"
        yield Finding(Outcome.HELD, _EVERY, "seats", f"every pin and seat is in place for {whose}")


def _seat_lines(spider: Mapping[str, Any]) -> list[str]:
    if spider["config"] and not spider["error"]:  # no crawl starts, and that is said
        return []
    if spider["missing"] is None:
        why = spider["error"] or "its crawl did not open"
        return [f"cannot be looked at: {why}: correct the setting or component that fails so"]
    missing: list[str] = spider["missing"]
    return [_BARE] if spider["bare"] and not spider["addon"] else missing


def _grouped(
    spiders: Sequence[Mapping[str, Any]], member: str, project: Mapping[str, Any] | None = None
) -> Iterator[tuple[str, str]]:
    """Each different line once, with the names of its spiders unless it is of the project."""
    found: dict[str, list[str]] = {}
    for each in spiders:
        for line in each[member]:
            found.setdefault(line, []).append(each["name"])
    for line, names in found.items():
        common = project is not None and line in project[member]
        whose = ", ".join(sorted(names))
        yield line, "" if common or len(names) == len(spiders) > 1 else f" (spider {whose})"


# -- versions -----------------------------------------------------------------------------


def of_versions(
    needs: Iterable[tuple[str, str, str | None, bool]], reactor: str
) -> Iterator[Finding]:
    """*needs*: name, accepted versions, installed version or None, whether it is accepted."""
    rows = list(needs)
    for name, accepted, version, accepts in rows:
        if not accepts:
            yield Finding(
                Outcome.BROKEN,
                _EVERY,
                "versions",
                f"{name} is {version or 'not installed'}; accepted: {accepted}: "
                f"pip install '{name}{accepted}'",
            )
    if all(accepts for *_, accepts in rows):
        shown = ", ".join(f"{name} {version}" for name, _, version, _ in rows)
        yield Finding(Outcome.HELD, _EVERY, "versions", f"{shown}; reactor {reactor}")
