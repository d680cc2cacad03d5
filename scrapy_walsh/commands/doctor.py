"""``walsh doctor``: whether this project can keep its promises, before it sends a request.

With ``--online`` it requests the operator's policy page (R1.4) and blocklist once each. If requests
are signed (D25), it also requests the key directory, to verify a signature of its own.
"""

from __future__ import annotations

import platform
import re
import time
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import scrapy

from scrapy_walsh.adapters.context import default_state_dir
from scrapy_walsh.adapters.documents.validate import test_child
from scrapy_walsh.commands import common, own_process
from scrapy_walsh.commands.common import Misuse
from scrapy_walsh.commands.doctor_state import of_state
from scrapy_walsh.commands.own_crawl import Page, request_pages
from scrapy_walsh.commands.terminal import NAMED, named, show, table
from scrapy_walsh.config import SETTINGS, WalshConfig
from scrapy_walsh.exceptions import (
    ConfigError,
    DocumentInvalid,
    OwnFault,
    WalshError,
    one_line,
)
from scrapy_walsh.policy.signing import DIRECTORY_TYPE, directory_url
from scrapy_walsh.policy.urls import Target
from scrapy_walsh.policy.words import plural
from scrapy_walsh.proof.findings import Finding, Outcome
from scrapy_walsh.proof.keys import DIRECTORY
from scrapy_walsh.proof.signatures import Seen, directory_keys, judge
from scrapy_walsh.proof.verify.terms import out_of_bounds
from scrapy_walsh.spec import __version__

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Mapping

    from scrapy.settings import Settings

#: The outcomes as a line and the JSON have them. ``FAIL``: a MUST does not hold, or could not be
#: seen to hold; or no crawl would start. ``unseen``: not looked at, as without ``--online``.
MARKS: Final[Mapping[Outcome, str]] = {
    Outcome.HELD: "ok",
    Outcome.NOTE: "note",
    Outcome.WARNING: "warn",
    Outcome.BROKEN: "FAIL",
    Outcome.UNSEEN: "unseen",
}
_OK, _NOTE, _WARN, _FAIL, _UNSEEN = (partial(Finding, outcome) for outcome in MARKS)
_EVERY: Final = "R0.6"
#: The widths of the first columns, the mark and the requirement.
LEAST: Final = (6, 5)

PROBE: Final = "scrapy_walsh.commands.doctor_probe"
#: Seconds that the look at the spiders may take: 450 of them take a minute.
PROBE_TIMEOUT: Final = 600.0
#: Hosts that cannot be registered: names for tests and documentation (RFC 2606).
_RESERVED: Final = re.compile(r"(?:^|\.)(?:example(?:\.(?:com|net|org))?|test|invalid|localhost)$")
_OURS: Final = re.compile(r"WALSH_\w+")
_RULES: Final = {each.name: each.row.requirement for each in SETTINGS}
#: Why ``--online`` sends, with nothing retried and no long wait.
_REASON: Final = "walsh doctor --online looks whether the operator's URLs answer"
_HASTE: Final[Mapping[str, Any]] = {
    "WALSH_MAX_RETRIES": 0,
    "WALSH_PATIENCE": 30,
}
#: Seconds that our clock and a server's may differ, because the answer takes some, and Date is
#: whole.
_CLOCKS_DIFFER: Final = 30.0


def add_options(parser: argparse.ArgumentParser) -> None:
    """What ``walsh doctor`` takes."""
    parser.add_argument(
        "--online",
        action="store_true",
        help="request the operator's own policy page and blocklist, through the gates",
    )
    parser.add_argument("-v", "--verbose", action="store_true", help="name every spider")
    common.add_settings(parser)
    common.add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Look at the project in the working directory, and print each finding."""
    from scrapy.utils.project import inside_project  # noqa: PLC0415  slow

    if not inside_project():
        raise Misuse("no project here: run it where scrapy.cfg is, or below")
    findings = []
    limit = None if args.verbose or args.json else NAMED
    for finding in _findings(common.given_settings(args), online=args.online, most=limit):
        findings.append(finding)
        if not args.json:
            show(table([cells_of(finding)], least=LEAST, gap=1))
    counts = Counter(MARKS[finding.outcome] for finding in findings)
    members = {
        "holds": not counts["FAIL"],
        "findings": list(map(members_of, findings)),
    }
    total = f"{plural(len(findings), 'finding')}: {counts['FAIL']} FAIL, {counts['warn']} warn"
    common.answer(args, members, [total])
    if counts["FAIL"]:
        return 1
    return 0


def cells_of(finding: Finding) -> tuple[str, str, str]:
    """The cells of its row: mark, requirement, and what it says and asks for."""
    return (
        MARKS[finding.outcome],
        finding.rule,
        f"{finding.about}: {finding.text}",
    )


def members_of(finding: Finding) -> dict[str, str]:
    """The finding as a JSON object."""
    return {
        "mark": MARKS[finding.outcome],
        "requirement": finding.rule,
        "about": finding.about,
        "text": finding.text,
    }


def _findings(options: Mapping[str, Any], *, online: bool, most: int | None) -> Iterator[Finding]:
    """All findings, in the order to put them right.

    *options*: settings of the command line. *most*: as in :func:`named`.
    """
    try:
        settings = common.project_settings(options)
    except (
        Exception,
        SystemExit,
    ) as error:  # whatever a project's code may raise
        reason = f"{type(error).__name__}: {one_line(error)}"
        yield _FAIL(
            _EVERY,
            "settings",
            f"the project's settings cannot be read: {reason}",
        )
        return
    versions = f"scrapy-walsh {__version__}, Scrapy {scrapy.__version__}"
    yield _OK(_EVERY, "versions", f"{versions}, Python {platform.python_version()}")
    try:
        config = WalshConfig.from_settings(settings, default_state_dir)
    except ConfigError as error:  # no crawl starts, but of a spider whose own settings mend it
        yield _UNSEEN(
            _EVERY,
            "settings",
            f"identity, state and fleet are not checked: {error}",
        )
        yield from _spiders(options, most)
        return
    sound = True
    for finding in _of_project(config, options, most):
        sound = sound and finding.outcome is not Outcome.BROKEN
        yield finding
    yield from _of_operator(config, settings, online=online, sound=sound)


def _of_project(
    config: WalshConfig, options: Mapping[str, Any], limit: int | None
) -> Iterator[Finding]:
    """The findings that need no request, except to the operator's own Redis."""
    yield from of_identity(config)
    yield from _spiders(options, limit)
    yield from of_state(config)
    yield _of_child()
    yield from of_fleet(config)


def _rule_of(text: str) -> str:
    """The requirement of the first of our settings in *text*; the installation is for all."""
    match = _OURS.search(text)
    if match:
        return _RULES.get(match[0], _EVERY)
    return _EVERY


# -- identity and settings ----------------------------------------------------------------


def of_identity(config: WalshConfig) -> Iterator[Finding]:
    """The identity of the bot, and settings that a requirement forbids or limits."""
    identity = config.identity
    sends = f"sends {identity.user_agent!r}; robots.txt is read for {identity.token}"
    yield _OK("R1", "identity", sends)
    if config.is_walsh_research:
        text = "walsh-research is for the operator of wal.sh/bot only: if that is not you, "
        yield _NOTE("R1", "identity", f"{text}make your own with `walsh init`")
    urls = (identity.policy_url, identity.blocklist_url)
    placeholders = [identity.product] if "example" in identity.token.lower() else []
    placeholders += (url for url in urls if _RESERVED.search(urlsplit(url).hostname or ""))
    if placeholders:
        text = f"only an example: {', '.join(placeholders)}: no site can opt out there; "
        yield _WARN("R1", "identity", f"{text}use your own")
    if config.follow_links:  # a person chose it, and `walsh init` asks for it
        text = "links are followed, as WALSH_FOLLOW_LINKS says; all other rules hold for them"
        yield _NOTE("R6", "settings", text)
    if config.scraping:
        yield _NOTE("R9", "settings", "HTML is scraped, as WALSH_SCRAPING says")
    if config.revisit_reason:
        text = "WALSH_REVISIT_REASON lifts R8 in every run: remove it, and give it with -s once"
        yield _WARN("R8", "settings", text)
    for setting, how in out_of_bounds(config):
        advice = f"{setting.name} {how}, which the specification asks for: remove it, or correct it"
        yield _FAIL(setting.row.requirement, "settings", advice)


# -- spiders ------------------------------------------------------------------------------


def _spiders(options: Mapping[str, Any], limit: int | None) -> Iterator[Finding]:
    """The findings of a look at every spider."""
    try:
        report = own_process.ask(PROBE, options, PROBE_TIMEOUT)
    except own_process.NoAnswerError as error:
        yield _FAIL(
            _EVERY,
            "spiders",
            f"settings and components could not be checked: the check {error}",
        )
    else:
        yield from of_spiders(report, limit)


def of_spiders(report: Mapping[str, Any], most: int | None = NAMED) -> Iterator[Finding]:
    """Each different finding once, with the names of its spiders unless it is of all of them.

    *report*: that of ``doctor_probe``. *most*: as in :func:`named`.
    """
    for line in report["broken"]:
        yield _FAIL(_EVERY, "spiders", line)
    spiders = report["spiders"]
    spiders_of: dict[tuple[str, str], list[str]] = {}
    for name, notes in spiders.items():
        for outcome, text in notes:
            spiders_of.setdefault((outcome, text), []).append(name)
    for (outcome, text), names in spiders_of.items():
        if len(names) < len(spiders):
            text = f"{text} (spider {named(names, len(spiders), most)})"  # noqa: PLW2901
        yield Finding(Outcome[outcome], _rule_of(text), "spiders", text)
    broken = Outcome.BROKEN.name
    sound = [name for name, notes in spiders.items() if all(note[0] != broken for note in notes)]
    if sound:
        text = f"every setting and component is in place for {named(sound, len(spiders), most)}"
        yield _OK(_EVERY, "seats", text)


# -- this machine -------------------------------------------------------------------------


def _of_child() -> Finding:
    """Whether a child process can read what may be costly: without it, R3 may lack its list."""
    try:
        test_child()
    except OwnFault as error:
        return _FAIL("R10", "child", str(error))
    text = "a process can be started for lists with unusual schemas, and for large sources"
    return _OK("R10", "child", text)


def of_fleet(config: WalshConfig) -> Iterator[Finding]:
    """Whether the fleet's Redis answers: without it nothing is sent."""
    if config.shared_state is None:
        return
    from scrapy_walsh.fleet.link import Link  # noqa: PLC0415  an extra

    try:
        link = Link(config.shared_state, config.identity.token)
        notice = link.begin()
    except ConfigError as error:
        yield _FAIL("R4", "fleet", str(error))
        return
    if notice is None:
        text = f"{link.name} does not answer: every worker waits for it: start it, or correct "
        yield _FAIL("R4", "fleet", f"{text}WALSH_SHARED_STATE")
    elif notice:
        yield _FAIL("R4", "fleet", notice)
    else:
        yield _OK("R4", "fleet", f"{link.name} answers, and keeps its data")


# -- the operator's URLs ------------------------------------------------------------------


def _of_operator(
    config: WalshConfig, settings: Settings, *, online: bool, sound: bool
) -> Iterator[Finding]:
    url = config.identity.policy_url
    list_url = config.blocklist_url
    signed = config.sign_requests
    if not (online and sound):
        reason = "requested: correct the FAILs above first"
        reason = reason if online else "checked; --online requests it"
        yield _UNSEEN("R1.4", "policy", f"{url} not {reason}")
        return
    settings.setdict(_HASTE, priority="cmdline")
    directory = [directory_url(config.identity.policy_url)] if signed else []
    try:
        pages = request_pages(settings, _REASON, url, list_url, *directory)
    except WalshError as error:
        yield _FAIL("R1.4", "policy", f"{url} could not be requested: {one_line(error)}")
        return
    yield _of_page("R1.4", "policy", url, pages[url])
    yield _of_page("R3", "blocklist", list_url, pages[list_url])
    for key in directory:
        yield _of_directory(config, pages[key])
    yield from _of_clock(pages, signed=signed)


def _of_page(requirement: str, about: str, url: str, page: Page) -> Finding:
    if page.is_up and not page.rejected:
        return _OK(requirement, about, f"{url} answers {page.answer}")
    file = "blocklist.json" if about == "blocklist" else "policy.html"
    text = f"{url}: {page.rejected or page.answer}: upload {file} there, or correct its URL"
    return _FAIL(requirement, about, text)


def _of_directory(config: WalshConfig, page: Page) -> Finding:
    """Whether a signature of ours holds by the key directory, as a server would verify it."""
    from scrapy_walsh.adapters.wire.signing import signer_of  # noqa: PLC0415  an extra

    kind = page.kind.partition(";")[0].strip()
    signer = signer_of(config)
    assert signer is not None  # noqa: S101  requests are signed
    url = signer.directory
    if page.answer != 200:
        reason = f"it answers {page.answer}, not 200"
    elif kind.lower() != DIRECTORY_TYPE:
        reason = f"it is served as {kind or 'no type at all'}"
    else:
        target = Target("GET", "site.example", "/")
        now = time.time()
        fields = {name.lower(): [value] for name, value in signer.fields(target, now).items()}
        request = Seen(target.method, target.authority, target.path, now, fields)
        try:
            reason = judge(request, directory_keys(page.body)).why
        except DocumentInvalid as error:
            reason = str(error)
    if reason:
        advice = f"serve the file {DIRECTORY} that attest --keygen wrote, as {DIRECTORY_TYPE}"
        return _FAIL("R1", "signing", f"{url}: {reason}: {advice}")
    text = f"{url} lists key {signer.keyid}, and a signature by our key was verified with it"
    return _OK("R1", "signing", text)


def _of_clock(pages: Mapping[str, Page], *, signed: bool) -> Iterator[Finding]:
    """Whether the clock agrees with the Date of the answers: a signature holds for minutes."""
    dated = (page.ahead for page in pages.values() if page.ahead is not None)
    ahead = min(dated, key=abs, default=None)
    if ahead is not None and abs(ahead) > _CLOCKS_DIFFER:
        where = "ahead of" if ahead > 0 else "behind"
        text = f"it is {abs(ahead):.0f} s {where} the Date of the answers: set it"
        text += "; servers refuse signatures from another time" if signed else ""
        yield (_FAIL if signed else _WARN)("R1", "clock", text)
