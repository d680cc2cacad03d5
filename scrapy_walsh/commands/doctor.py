"""``walsh doctor``: whether this project can keep its promises, before it sends a request."""

from __future__ import annotations

import json
import os
import platform
import sqlite3
import time
from importlib import metadata
from typing import TYPE_CHECKING, Any, Final

from scrapy_walsh.adapters.documents.validate import test_child
from scrapy_walsh.commands import doctor_findings, doctor_state, own_process
from scrapy_walsh.commands.check_answer import Misuse
from scrapy_walsh.commands.doctor_findings import LEAST, cells_of, members_of
from scrapy_walsh.commands.project import add_json, add_settings, given_settings
from scrapy_walsh.config import WalshConfig, has_idle_key
from scrapy_walsh.exceptions import ConfigError, OwnFault, StateError, WalshError
from scrapy_walsh.findings import Finding, Outcome
from scrapy_walsh.policy.words import one_line, plural
from scrapy_walsh.terminal import show, table

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Mapping

    from scrapy.settings import Settings


_PACKAGE: Final = "scrapy-walsh"
_PROBE: Final = "scrapy_walsh.commands.doctor_probe"
#: What must not fail for ``--online`` to request anything.
_NEEDED: Final = ("signing", "state", "blocklist")
#: Seconds that the look at the spiders may take.
_PROBE_TIMEOUT: Final = 120.0
#: Seconds that the shared store may take to answer.
_REDIS_TIMEOUT: Final = 2.0


def add_options(parser: argparse.ArgumentParser) -> None:
    """What ``walsh doctor`` takes."""
    parser.add_argument(
        "--online",
        action="store_true",
        help="request the operator's own policy page and blocklist, through the gates",
    )
    add_settings(parser)
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Look at the project in the working directory, and print each finding."""
    from scrapy.utils.project import inside_project  # noqa: PLC0415  slow

    if not inside_project():
        raise Misuse("no project here: run it where scrapy.cfg is, or below")
    found = []
    for finding in _findings(given_settings(args), online=args.online):
        found.append(finding)
        if not args.json:
            show(table([cells_of(finding)], least=LEAST, gap=1))
    fails = sum(finding.outcome is Outcome.BROKEN for finding in found)
    if args.json:
        members = [members_of(finding) for finding in found]
        print(json.dumps({"holds": not fails, "findings": members}))
    else:
        warnings = sum(finding.outcome is Outcome.WARNING for finding in found)
        print(f"{plural(len(found), 'finding')}: {fails} FAIL, {warnings} warn")
    return 1 if fails else 0


def _findings(given: Mapping[str, Any], *, online: bool) -> Iterator[Finding]:
    """Everything, in the order in which it should be put right.

    *given*: settings of the command line.
    """
    from scrapy.utils.project import get_project_settings  # noqa: PLC0415  slow

    from scrapy_walsh.adapters.context import default_state_dir  # noqa: PLC0415  slow

    try:
        settings = get_project_settings()
    except (Exception, SystemExit) as error:  # whatever a project's code may raise
        why = f"{type(error).__name__}: {one_line(error)}"
        yield Finding(
            Outcome.BROKEN, "R0.6", "settings", f"the project's settings cannot be read: {why}"
        )
        return
    for name, value in given.items():
        settings.set(name, value, priority="cmdline")
    config, problem = None, ""
    try:
        config = WalshConfig.from_settings(settings, default_state_dir)
    except ConfigError as error:
        problem = str(error)
    try:
        needs = _versions(config)
    except metadata.PackageNotFoundError:
        yield Finding(
            Outcome.UNSEEN,
            "R0.6",
            "versions",
            f"{_PACKAGE} is not installed: type pip install . in its clone",
        )
    else:
        yield from doctor_findings.of_versions(needs, _reactor(settings))
    if config is None:  # no crawl starts, and that is all that its start would say
        yield from _spiders(_probe(given), [problem])
        yield _of_child()
        return
    sound = True
    for finding in (
        *doctor_findings.of_identity(config),
        *doctor_findings.of_owner(config),
        *_of_signing(config, idle=has_idle_key(settings)),
        *_spiders(_probe(given), []),
        *_of_state(config),
    ):
        sound = sound and not (finding.outcome is Outcome.BROKEN and finding.about in _NEEDED)
        yield finding
    yield _of_child()
    yield from _of_fleet(config)
    yield from _of_cloud(config, settings)
    yield from _of_operator(config, settings, online=online, sound=sound)


# -- versions -----------------------------------------------------------------------------


def _versions(config: WalshConfig | None) -> list[tuple[str, str, str | None, bool]]:
    """The packages that these settings need, as ``doctor_findings.of_versions`` takes them."""
    from packaging.requirements import Requirement  # noqa: PLC0415  slow
    from packaging.specifiers import SpecifierSet  # noqa: PLC0415

    extras = {""}
    if config is not None:
        extras |= {"redis"} if config.shared_state else set()
        extras |= {"sign"} if config.sign_requests else set()
    python = SpecifierSet(metadata.metadata(_PACKAGE)["Requires-Python"])
    version = platform.python_version()
    rows: list[tuple[str, str, str | None, bool]] = [
        ("Python", str(python), version, python.contains(version, prereleases=True))
    ]
    for line in metadata.requires(_PACKAGE) or ():
        need = Requirement(line)
        marker = need.marker
        if marker is not None and not any(marker.evaluate({"extra": each}) for each in extras):
            continue
        found = _installed(need.name)
        accepts = found is not None and need.specifier.contains(found, prereleases=True)
        rows.append((need.name, str(need.specifier), found, accepts))
    return rows


def _installed(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _reactor(settings: Settings) -> str:
    if "TWISTED_REACTOR_ENABLED" in settings and not settings.getbool("TWISTED_REACTOR_ENABLED"):
        return "none (asyncio)"
    return str(settings.get("TWISTED_REACTOR") or "Twisted's default").rpartition(".")[2]


# -- signed requests ------------------------------------------------------------------------


def _of_signing(config: WalshConfig, *, idle: bool) -> Iterator[Finding]:
    """Whether the key of signed requests can be used. *idle*: there is one that nothing uses."""
    if idle:
        text = "WALSH_SIGNING_KEY is set, and nothing is signed: set WALSH_SIGN_REQUESTS = True"
        yield Finding(Outcome.WARNING, "R1", "signing", text)
    if config.signing_key is None:
        return
    from scrapy_walsh.adapters.signing import signer_of  # noqa: PLC0415  an extra

    try:
        signer = signer_of(config)
    except ConfigError as error:
        yield Finding(Outcome.BROKEN, "R1", "signing", str(error))
        return
    assert signer is not None  # noqa: S101  there is a key
    text = f"requests are signed by key {signer.keyid}, which {signer.directory} must list"
    yield Finding(Outcome.HELD, "R1", "signing", text)


# -- spiders ------------------------------------------------------------------------------


def _probe(given: Mapping[str, Any]) -> dict[str, Any] | str:
    """The report of ``doctor_probe``, or why there is none."""
    try:
        return own_process.ask(_PROBE, given, _PROBE_TIMEOUT)
    except own_process.NoAnswerError as error:
        return f"looking at them {error}"


def _spiders(report: dict[str, Any] | str, problems: list[str]) -> Iterator[Finding]:
    if isinstance(report, str):
        yield from doctor_findings.of_settings(problems)
        yield Finding(Outcome.BROKEN, "R0.6", "spiders", f"pins and seats are not seen: {report}")
        return
    if not report["spiders"]:  # each module is broken
        yield from doctor_findings.of_settings(problems)
    yield from doctor_findings.of_spiders(report)


# -- state --------------------------------------------------------------------------------


def _of_state(config: WalshConfig) -> Iterator[Finding]:
    directory = config.state_dir
    if directory is None:
        yield doctor_state.of_memory()
        return
    place = doctor_state.place_of(directory)
    yield from doctor_state.of_place(place)
    if place.error is not None or (directory.exists() and not place.exists):
        return
    if place.problems:
        text = "not looked at in damaged files: see the next crawl"
        yield Finding(Outcome.UNSEEN, "R3", "blocklist", text)
        return
    try:
        yield from doctor_state.of_start(config, directory)
    except (StateError, OSError, sqlite3.Error) as error:
        text = f"{directory} cannot be read: {one_line(error)}"
        yield Finding(Outcome.BROKEN, "R11", "state", text)


def _of_child() -> Finding:
    """Whether a child process can read what may be costly: without it, R3 may lack its list."""
    try:
        test_child()
    except OwnFault as error:
        return Finding(Outcome.BROKEN, "R10", "child", str(error))
    text = "a process can be started for lists with unusual schemas, and for large sources"
    return Finding(Outcome.HELD, "R10", "child", text)


def _of_fleet(config: WalshConfig) -> Iterator[Finding]:
    """Whether the fleet's Redis answers: without it nothing is sent."""
    if config.shared_state is None:
        return
    import redis  # noqa: PLC0415  an extra, which the settings need

    from scrapy_walsh.fleet.link import Link  # noqa: PLC0415

    name = Link(config.shared_state, "", time.time, time.monotonic).name
    client = redis.Redis.from_url(
        config.shared_state,
        socket_timeout=_REDIS_TIMEOUT,
        socket_connect_timeout=_REDIS_TIMEOUT,
    )
    try:
        client.ping()
    except redis.RedisError as error:
        yield Finding(
            Outcome.BROKEN,
            "R4",
            "fleet",
            f"{name} does not answer ({one_line(error)}): every worker waits for it: start it, "
            "or correct WALSH_SHARED_STATE",
        )
    else:
        yield Finding(Outcome.HELD, "R4", "fleet", f"{name} answers")
    finally:
        client.close()


def _of_cloud(config: WalshConfig, settings: Settings) -> Iterator[Finding]:
    """In a job of Scrapy Cloud: that it must run alone, and whether its state is kept."""
    if "SHUB_JOBKEY" not in os.environ or config.shared_state is not None:
        return
    yield Finding(
        Outcome.NOTE,
        "R4",
        "cloud",
        "one job at a time: a job that overlaps another refuses to start",
    )
    if config.state_dir is not None and not settings.getbool("DOTSCRAPY_ENABLED"):
        yield Finding(
            Outcome.WARNING,
            "R11",
            "cloud",
            "the state directory is lost when this job ends: enable DotScrapy Persistence",
        )


# -- the operator -------------------------------------------------------------------------


def _of_operator(
    config: WalshConfig, settings: Settings, *, online: bool, sound: bool
) -> Iterator[Finding]:
    url = config.identity.policy_url
    if not online:
        text = f"{url} not looked at; --online requests it"
        yield Finding(Outcome.UNSEEN, "R1.4", "policy", text)
        return
    if not sound:
        yield Finding(
            Outcome.UNSEEN, "R1.4", "policy", f"{url} not requested: correct the FAILs above first"
        )
        return
    from scrapy_walsh.commands.doctor_online import findings  # noqa: PLC0415  slow

    try:
        yield from findings(config, settings)
    except WalshError as error:
        yield Finding(
            Outcome.BROKEN, "R1.4", "policy", f"{url} could not be requested: {one_line(error)}"
        )
