"""``walsh doctor``: whether this project can keep its promises, before it sends a request.

With ``--online`` it requests the operator's policy page (R1.4) and blocklist once each; where
requests are signed (D25), also the key directory, to verify a signature of ours by it.
"""

from __future__ import annotations

import logging
import platform
import time
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import scrapy

from scrapy_walsh.adapters.context import default_state_dir
from scrapy_walsh.adapters.crawl import Crawl
from scrapy_walsh.adapters.documents.validate import test_child
from scrapy_walsh.commands import common, own_process
from scrapy_walsh.commands.common import Misuse
from scrapy_walsh.commands.doctor_state import of_state
from scrapy_walsh.commands.own_crawl import Page, Pages, PagesSpider, request_pages
from scrapy_walsh.commands.terminal import show, table
from scrapy_walsh.config import WalshConfig, has_idle_key, out_of_bounds
from scrapy_walsh.exceptions import ConfigError, DocumentInvalid, OwnFault, WalshError
from scrapy_walsh.policy.signing import DIRECTORY_TYPE, Target
from scrapy_walsh.policy.words import one_line, plural
from scrapy_walsh.proof.findings import Finding, Outcome
from scrapy_walsh.proof.keys import DIRECTORY
from scrapy_walsh.proof.signatures import Seen, directory_keys, judge
from scrapy_walsh.signals import walsh_rejected
from scrapy_walsh.spec import __version__
from scrapy_walsh.state.records import BLOCKLIST, StoredDocument

if TYPE_CHECKING:
    import argparse
    from collections.abc import AsyncIterator, Iterator, Mapping, Sequence

    from scrapy.settings import Settings

    from scrapy_walsh.policy.event import Event

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

_PROBE: Final = "scrapy_walsh.commands.doctor_probe"
#: What must not fail for ``--online`` to request anything.
_NEEDED: Final = ("signing", "state", "blocklist")
#: Seconds that the look at the spiders may take.
_PROBE_TIMEOUT: Final = 120.0
#: Names that are reserved for tests and documentation (RFC 2606), below a dot.
_RESERVED: Final = (
    ".test", ".example", ".invalid", ".localhost", ".example.com", ".example.net", ".example.org",
)  # fmt: skip
#: The most spiders whose seats are in place that are named one by one.
_NAMED: Final = 8
#: Why ``--online`` sends, with nothing retried and no long wait.
_REASON: Final = "walsh doctor --online looks whether the operator's URLs answer"
_HASTE: Final[Mapping[str, Any]] = {"WALSH_MAX_RETRIES": 0, "WALSH_PATIENCE": 30}
#: Seconds by which our clock and a server's may differ: the answer takes some, and Date is whole.
_CLOCKS_DIFFER: Final = 30.0


def add_options(parser: argparse.ArgumentParser) -> None:
    """What ``walsh doctor`` takes."""
    parser.add_argument(
        "--online",
        action="store_true",
        help="request the operator's own policy page and blocklist, through the gates",
    )
    common.add_settings(parser)
    common.add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Look at the project in the working directory, and print each finding."""
    from scrapy.utils.project import inside_project  # noqa: PLC0415  slow

    if not inside_project():
        raise Misuse("no project here: run it where scrapy.cfg is, or below")
    found = []
    for finding in _findings(common.given_settings(args), online=args.online):
        found.append(finding)
        if not args.json:
            show(table([cells_of(finding)], least=LEAST, gap=1))
    counts = Counter(MARKS[each.outcome] for each in found)
    members = {"holds": not counts["FAIL"], "findings": list(map(members_of, found))}
    total = f"{plural(len(found), 'finding')}: {counts['FAIL']} FAIL, {counts['warn']} warn"
    common.answer(args, members, [total])
    return 1 if counts["FAIL"] else 0


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


def _findings(given: Mapping[str, Any], *, online: bool) -> Iterator[Finding]:
    """Everything, in the order in which it should be put right.

    *given*: settings of the command line.
    """
    try:
        settings = common.project_settings(given)
    except (Exception, SystemExit) as error:  # whatever a project's code may raise
        why = f"{type(error).__name__}: {one_line(error)}"
        yield _FAIL(_EVERY, "settings", f"the project's settings cannot be read: {why}")
        return
    config, problem = None, ""
    try:
        config = WalshConfig.from_settings(settings, default_state_dir)
    except ConfigError as error:
        problem = str(error)
    yield _of_versions()
    if config is None:  # no crawl starts, and that is all that its start would say
        yield from _spiders(given, problem)
        yield _of_child()
        return
    sound = True
    for finding in (
        *of_identity(config),
        *of_owner(config),
        *_of_signing(config, idle=has_idle_key(settings)),
        *_spiders(given, problem),
        *of_state(config),
    ):
        sound = sound and not (finding.outcome is Outcome.BROKEN and finding.about in _NEEDED)
        yield finding
    yield _of_child()
    yield from of_fleet(config)
    yield from _of_operator(config, settings, online=online, sound=sound)


# -- versions, identity and settings ------------------------------------------------------


def _of_versions() -> Finding:
    """What runs here, for whoever is asked for help; ``pip check`` tells whether it fits."""
    text = f"scrapy-walsh {__version__}, Scrapy {scrapy.__version__}"
    return _OK(_EVERY, "versions", f"{text}, Python {platform.python_version()}")


def of_identity(config: WalshConfig) -> Iterator[Finding]:
    """Who the bot is, where the operator's documents come from, and settings that a requirement
    forbids or limits.
    """
    identity = config.identity
    sends = f"sends {identity.user_agent!r}; robots.txt is read for {identity.token}"
    yield _OK("R1", "identity", sends)
    if config.mirrored:
        text = f"blocklist from {config.blocklist_url}, schema from {config.schema_url}: not "
        yield _NOTE("R3", "documents", f"{text}the identity's own; an attestation says so")
    for name, is_set, rule in (
        ("WALSH_FOLLOW_LINKS", config.follow_links, "R6"),
        ("WALSH_SCRAPING", config.scraping, "R9"),
    ):
        if is_set:
            yield _WARN(rule, "settings", f"{name} is on: {rule} is attested false; or remove it")
    for each, how in out_of_bounds(config):
        why = f"{each.name} {how}, which the specification asks for: remove it, or correct it"
        yield _FAIL(each.row.requirement, "settings", why)
    if config.revisit_reason:
        text = "WALSH_REVISIT_REASON is set for every run: give it to single runs, with -s"
        yield _WARN("R8", "settings", text)


def of_owner(config: WalshConfig) -> Iterator[Finding]:
    """Whether the identity is one's own: not the docs' example, nor another operator's."""
    identity = config.identity
    if config.is_walsh_research:
        yield _NOTE(
            "R1",
            "identity",
            "walsh-research is the operator of wal.sh/bot and nobody else: if that is not you, "
            "make your own with `walsh init`",
        )
    urls = {"policy_url": identity.policy_url, "blocklist_url": identity.blocklist_url}
    reserved = [f"{name} {url}" for name, url in urls.items() if _is_reserved(url)]
    named = [f"product {identity.product}"] if "example" in identity.token.lower() else []
    if placeholders := ", ".join([*named, *reserved]):
        text = f"only an example: {placeholders}: nobody can opt out there; put your own"
        yield _WARN("R1", "identity", text)


def _is_reserved(url: str) -> bool:
    """Whether the host of *url* has a name that nobody can own (RFC 2606)."""
    return f".{urlsplit(url).hostname or ''}".endswith(_RESERVED)


def _of_signing(config: WalshConfig, *, idle: bool) -> Iterator[Finding]:
    """Whether the key of signed requests can be used. *idle*: there is one that nothing uses."""
    if idle:
        text = "WALSH_SIGNING_KEY is set, and nothing is signed: set WALSH_SIGN_REQUESTS = True"
        yield _WARN("R1", "signing", text)
    if config.signing_key is None:
        return
    from scrapy_walsh.adapters.signing import signer_of  # noqa: PLC0415  an extra

    try:
        signer = signer_of(config)
    except ConfigError as error:
        yield _FAIL("R1", "signing", str(error))
        return
    assert signer is not None  # noqa: S101  there is a key
    text = f"requests are signed by key {signer.keyid}, which {signer.directory} must list"
    yield _OK("R1", "signing", text)


# -- spiders ------------------------------------------------------------------------------


def _spiders(given: Mapping[str, Any], problem: str) -> Iterator[Finding]:
    """What a look at every spider finds; *problem*: of the project's own settings, if any."""
    try:
        report = own_process.ask(_PROBE, given, _PROBE_TIMEOUT)
    except own_process.NoAnswerError as error:
        if problem:
            yield _FAIL(_EVERY, "settings", problem)
        text = f"pins and seats are not seen: looking at them {error}"
        yield _FAIL(_EVERY, "spiders", text)
    else:
        yield from of_spiders(report)


def of_spiders(report: Mapping[str, Any]) -> Iterator[Finding]:
    """What the look at every spider found: *report* is that of ``doctor_probe``."""
    for each in report["broken"]:
        text = f"{each['module']} cannot be imported, so nothing in it is seen: {each['error']}"
        yield _FAIL(_EVERY, "spiders", text)
    if report["reached"]:
        text = f"the project's code connects to {', '.join(report['reached'])} while it is loaded, "
        text += "past every gate (doctor prevented it): use a spider's requests"
        yield _WARN("R0.1", "spiders", text)
    spiders = report["spiders"]
    yield from _grouped(spiders, [tuple(each) for each in report["project"]["said"]])
    if whole := sorted(each["name"] for each in spiders if each["whole"]):
        whose = ", ".join(whole) if len(whole) <= _NAMED else f"{len(whole)} spiders"
        yield _OK(_EVERY, "seats", f"every pin and seat is in place for {whose}")


def _grouped(
    spiders: Sequence[Mapping[str, Any]], common: Sequence[tuple[str, ...]]
) -> Iterator[Finding]:
    """Each different finding once, with the names of its spiders unless it is the project's."""
    found: dict[tuple[str, ...], list[str]] = {}
    for each in spiders:
        for said in map(tuple, each["said"]):
            found.setdefault(said, []).append(str(each["name"]))
    for said, names in found.items():
        outcome, rule, about, text = said
        everyone = said in common or len(names) == len(spiders) > 1
        more = f", and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
        whose = "" if everyone else f" (spider {', '.join(sorted(names)[:_NAMED])}{more})"
        yield Finding(Outcome[outcome], rule, about, f"{text}{whose}")


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
        found = link.begin()
    except ConfigError as error:
        yield _FAIL("R4", "fleet", str(error))
        return
    if found is None:
        text = f"{link.name} does not answer: every worker waits for it: start it, or correct "
        yield _FAIL("R4", "fleet", f"{text}WALSH_SHARED_STATE")
    for level, line in found or ():
        yield (_FAIL if level == logging.WARNING else _NOTE)("R4", "fleet", line)
    if found == []:
        yield _OK("R4", "fleet", f"{link.name} answers, and keeps its data")


# -- the operator's URLs ------------------------------------------------------------------


def _of_operator(
    config: WalshConfig, settings: Settings, *, online: bool, sound: bool
) -> Iterator[Finding]:
    url = config.identity.policy_url
    if not (online and sound):
        why = "requested: correct the FAILs above first"
        why = why if online else "looked at; --online requests it"
        yield _UNSEEN("R1.4", "policy", f"{url} not {why}")
        return
    try:
        settings.setdict(_HASTE, priority="cmdline")
        pages = request_pages(settings, _REASON, DoctorSpider)
    except WalshError as error:
        yield _FAIL("R1.4", "policy", f"{url} could not be requested: {one_line(error)}")
        return
    yield _of_page("R1.4", "policy", url, pages[url])
    yield _of_page("R3", "blocklist", config.blocklist_url, pages[config.blocklist_url])
    if config.sign_requests:
        yield _of_directory(config, pages[config.key_directory])
    yield from _of_clock(pages, signed=config.sign_requests)


class DoctorSpider(PagesSpider):
    """Requests the operator's URLs."""

    name = "walsh_doctor"

    async def start(self) -> AsyncIterator[Any]:
        """The blocklist comes as in any crawl; it is a target only where it was not yet due."""
        core = Crawl.of(self.crawler)
        core.sources.account.due = False
        url, since = core.config.blocklist_url, time.time()

        def rejected(event: Event) -> None:
            if event.url == url:
                self.pages.setdefault(url, Page(event.reason))

        self.crawler.signals.connect(rejected, walsh_rejected)
        await core.documents.operator.bring()
        held = core.store.get(StoredDocument, BLOCKLIST, url)
        if held is not None and held.fetched_at >= since and held.status is not None:
            self.pages.setdefault(url, Page(held.status))
        if url not in self.pages:
            yield self.page(url)
        yield self.page(core.config.identity.policy_url)
        if core.signer is not None:  # whoever verifies follows no redirect
            yield self.page(core.signer.directory, redirects=False)


def _of_page(requirement: str, about: str, url: str, page: Page) -> Finding:
    if isinstance(page.answer, str):  # why it was not adopted, or what came in place of an answer
        text = f"{url}: {page.answer}: put it right, or correct its URL"
        return _FAIL(requirement, about, text)
    text = f"{url} answers {page.answer}"
    if page.is_up:
        return _OK(requirement, about, text)
    return _FAIL(requirement, about, f"{text}: put it up, or correct its URL")


def _of_directory(config: WalshConfig, page: Page) -> Finding:
    """Whether a signature of ours holds by the key directory, as whoever verifies one has it."""
    from scrapy_walsh.adapters.signing import signer_of  # noqa: PLC0415  an extra

    url, kind, signer = config.key_directory, page.kind.partition(";")[0].strip(), signer_of(config)
    assert signer is not None  # noqa: S101  requests are signed
    if isinstance(page.answer, str):
        why = page.answer
    elif page.answer != 200:
        why = f"it answers {page.answer}, not 200"
    elif kind.lower() != DIRECTORY_TYPE:
        why = f"it is served as {kind or 'no type at all'}"
    else:
        sent, now = Target("GET", "site.example", "/"), time.time()
        fields = {name.lower(): [each] for name, each in signer.fields(sent, now).items()}
        seen = Seen(sent.method, sent.authority, sent.path, now, fields)
        try:
            why = judge(seen, directory_keys(page.body)).why
        except DocumentInvalid as error:
            why = str(error)
    if why:
        what = f"serve the file {DIRECTORY} that attest --keygen wrote, as {DIRECTORY_TYPE}"
        return _FAIL("R1", "signing", f"{url}: {why}: {what}")
    text = f"{url} lists key {signer.keyid}, and a signature of ours holds by it"
    return _OK("R1", "signing", text)


def _of_clock(pages: Pages, *, signed: bool) -> Iterator[Finding]:
    """Whether the clock agrees with the Date of the answers: a signature holds for minutes."""
    dated = (page.ahead for page in pages.values() if page.ahead is not None)
    ahead = min(dated, key=abs, default=None)
    if ahead is not None and abs(ahead) > _CLOCKS_DIFFER:
        where = "ahead of" if ahead > 0 else "behind"
        text = f"it is {abs(ahead):.0f} s {where} the Date of the answers: set it"
        text += "; servers refuse signatures from another time" if signed else ""
        yield (_FAIL if signed else _WARN)("R1", "clock", text)
    elif signed and ahead is not None:
        yield _OK("R1", "clock", f"it agrees with the Date of the answers, to {abs(ahead):.0f} s")
    elif signed:
        yield _UNSEEN("R1", "clock", "no answer had a Date to compare it with")
