"""The settings of this package: one frozen value, read in one place.

A value that cannot be used raises ``ConfigError`` with one line that names the setting,
the value and what is accepted. Nothing else in the package reads a ``WALSH_*`` setting.
"""

from __future__ import annotations

import difflib
import importlib.util
import json
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import Field, dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, NamedTuple
from urllib.parse import urlsplit

import msgspec
from w3lib.url import safe_url_string

from scrapy_walsh.exceptions import ConfigError
from scrapy_walsh.policy.addresses import ALLOW, DECLARED
from scrapy_walsh.policy.gates import BACKOFF_BASE, BACKOFF_CAP, MAX_RETRIES, REVISIT, Gates
from scrapy_walsh.policy.identity import Identity, identity_from, is_walsh
from scrapy_walsh.policy.robots.fetch import ROBOTS_TTL
from scrapy_walsh.policy.robots.usage import CATEGORIES, RECORD, REFUSE
from scrapy_walsh.policy.signing import directory_url
from scrapy_walsh.policy.throttle import MIN_REQUEST_INTERVAL
from scrapy_walsh.policy.urls import is_http_url, without_userinfo
from scrapy_walsh.policy.visits import REVISIT_FLOOR, cadence

if TYPE_CHECKING:
    from scrapy.settings import BaseSettings


#: Of ``WALSH_SLOW_HOSTS``: one target a visit, or none.
SLOW_VISIT, SLOW_SKIP = "visit", "skip"
#: Of ``WALSH_LEDGER``: kept, kept without the query strings of URLs, not kept.
LEDGER_ON, LEDGER_REDACTED, LEDGER_OFF = "on", "redact", "off"

#: What may be done where a document cannot be reached, and how strict that is.
_POSITIONS: Final = {"allow": 0, "defer": 1, "deny": 1}
#: Where an attestation, which is public, states a setting: among its overrides; by a member of its
#: own; nowhere, since it is a path or may hold a password: it says at most that it is set.
OVERRIDE, ELSEWHERE, PRIVATE = "override", "elsewhere", "private"
_ROW: Final = "row"


#: Reads a setting: its name and the value that was given, to the value used; or ConfigError.
Reader = Callable[[str, Any], Any]


class Row(NamedTuple):
    """What a field of :class:`WalshConfig` says of its setting.

    ``read``: what it accepts. ``requirement``: what it is about. ``terms``: whether the ledger's
    line ``started`` has it. ``choices``: of a text, empty for any.
    ``least``, ``most``: beyond these the requirement is not kept, whatever ``read`` accepts; the
    farther from them, the stricter. ``stricter``: of a setting without them, a function of the
    value, the larger the stricter, where it changes what a conformance run shows. ``attested``:
    ``OVERRIDE``, ``ELSEWHERE`` or ``PRIVATE``. ``named``: the setting's name where that is not
    ``WALSH_`` and the field's.
    """

    read: Reader
    default: Any = None
    requirement: str = "R0.6"
    terms: bool = False
    least: float | None = None
    most: float | None = None
    stricter: Callable[[Any], float] | None = None
    attested: str = OVERRIDE
    named: str = ""
    choices: tuple[str, ...] = ()


class Setting(NamedTuple):
    """A row of the table, with the names of its setting (``WALSH_X``) and of its field."""

    name: str
    field: str
    row: Row


def _row(*values: Any, **more: Any) -> Any:
    return field(metadata={_ROW: Row(*values, **more)})


def _one_of(choices: tuple[str, ...], **more: Any) -> Any:
    """The row of a setting that is one of *choices*, the first unless it is set."""
    type_: Any = Literal[choices]
    return _row(_of_type(type_, ", ".join(choices)), choices[0], choices=choices, **more)


# -- what is accepted ---------------------------------------------------------------------


def _refuse(name: str, value: object, accepted: str) -> ConfigError:
    return ConfigError(f"{name} is {value!r}; accepted: {accepted}")


def _of_type(type_: Any, accepted: str) -> Reader:
    def read(name: str, value: Any) -> Any:
        try:  # not strict: the command line has text alone
            return msgspec.convert(_unpacked(value), type_, strict=False)
        except msgspec.ValidationError:
            raise _refuse(name, value, accepted) from None

    return read


def _number(least: float, most: float | None = None, *, whole: bool = False) -> Reader:
    accepted = "a whole number" if whole else "a number of seconds"
    accepted += f", at least {least:g}" + (f", at most {most:g}" if most is not None else "")
    bounds = msgspec.Meta(ge=least, le=sys.maxsize if most is None else most)
    return _of_type(Annotated[int if whole else float, bounds], accepted)


def _revisit(name: str, value: Any) -> float:
    try:
        return cadence(value)
    except ValueError as error:
        raise ConfigError(f"{name} is {error}") from None


_flag: Final = _of_type(bool, "True or False")


_kept: Final = _of_type(
    bool | Literal[LEDGER_ON, LEDGER_OFF, LEDGER_REDACTED],
    'True, False, or "redact" to keep it without queries',
)


def _ledger(name: str, value: Any) -> str:
    """``on``, ``off`` or ``redact``."""
    kept = _kept(name, value)
    return kept if isinstance(kept, str) else LEDGER_ON if kept else LEDGER_OFF


#: ``organisation/repository``, with ``@commit`` where it is known (R13).
_impl: Final = _of_type(
    Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9_.-]+/[A-Za-z0-9_.-]+(@[A-Za-z0-9_.-]+)?$")],
    "ORGANISATION/REPOSITORY, or that and @COMMIT",
)


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str) or not value.strip() or not value.isprintable():
        raise _refuse(name, value, "a written reason of one line, or nothing")
    return value.strip()


def _url(name: str, value: Any) -> str:
    url = value.strip() if isinstance(value, str) else ""
    if not is_http_url(url) or without_userinfo(url) != url:
        shown = without_userinfo(url) or value  # what stands there may be a password
        raise _refuse(name, shown, "an absolute http or https URL, no user name in it")
    return _escaped(url)


def _escaped(url: str) -> str:
    """*url* as Scrapy escapes a request's, so that it is recorded as it is sent (D36)."""
    return safe_url_string(url)


_texts: Final = _of_type(tuple[str, ...], 'a list of host suffixes, such as ["gov", ".mil"]')


def _names(name: str, value: Any) -> tuple[str, ...]:
    if isinstance(value, str) and not value.lstrip().startswith("["):
        value = [entry for entry in value.split(",") if entry.strip()]
    return tuple(entry.strip() for entry in _texts(name, value))


_uses: Final = _of_type(
    dict[Literal[CATEGORIES], Literal[RECORD, REFUSE]],  # type: ignore[valid-type]
    f"a dict with {RECORD!r} or {REFUSE!r} for each of these uses: {', '.join(CATEGORIES)}",
)


def _closed(position: str) -> float:
    """How strict a value of WALSH_PRIVATE_ADDRESSES is."""
    return float(position == DECLARED)


def _usage(name: str, value: Any) -> tuple[tuple[str, str], ...]:
    return tuple(sorted(_uses(name, value).items()))


def _unpacked(value: object) -> object:
    """*value*; where it is a JSON object or list in text, as from a command line, that."""
    if isinstance(value, str) and value.lstrip()[:1] in {"{", "["}:
        try:
            return json.loads(value)
        except ValueError:
            return value
    return value


def _path(name: str, value: Any, accepted: str) -> Path:
    if not isinstance(value, (str, os.PathLike)) or not str(value).strip():
        raise _refuse(name, value, accepted)
    return Path(value)


def _needs(name: str, module: str, extra: str) -> None:
    """Raise ConfigError where *module* is not installed, which *name* needs."""
    if importlib.util.find_spec(module) is None:
        raise ConfigError(f"{name} needs a package: pip install 'scrapy-walsh[{extra}]'")


def _state_dir(name: str, value: Any) -> Path | None:
    accepted = 'a directory, or "memory" for a one-off run'
    return None if value == "memory" else _path(name, value, accepted)


def _metrics(name: str, value: Any) -> Path:
    path = _path(name, value, 'a file, such as "walsh.prom"')
    _needs(name, "prometheus_client", "metrics")
    return path


def _redis_url(name: str, value: Any) -> str:
    try:
        # D36: it refuses a setting, and lets nothing pass that the gates refuse.
        parts = urlsplit(str(value).strip())
        usable = parts.scheme in ("redis", "rediss") and bool(parts.hostname)
        usable = usable and parts.port != 0 and (parts.path.strip("/") or "0").isdigit()
    except ValueError:
        usable = False
    if not usable:  # the value is not shown where it may hold a password
        shown = "a URL that cannot be used" if "@" in str(value) else repr(value)
        raise ConfigError(f"{name} is {shown}; accepted: redis://HOST:PORT/NUMBER, or rediss://")
    _needs(name, "redis", "redis")
    return str(value).strip()


def _identity(name: str, value: Any) -> Identity:  # noqa: ARG001
    identity = identity_from(_unpacked(value))
    schema_url = identity.schema_url and _escaped(identity.schema_url)
    return replace(identity, blocklist_url=_escaped(identity.blocklist_url), schema_url=schema_url)


#: Scrapy's settings, or a dict.
SettingsLike = Mapping[Any, Any]


# -- the table ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class WalshConfig:
    """The whole configuration, and the table of the settings: a row is all that a setting needs.

    Durations are seconds; ``state_dir`` None means memory only.
    ``usage``: categories of use, each with what is to be done where a robots.txt disallows it.
    ``signing_key``: the file of the key that requests are signed with; None where they are not.
    """

    identity: Identity = _row(_identity, None, "R1", attested=ELSEWHERE)
    blocklist_url: str = _row(_url, None, "R3", attested=ELSEWHERE)
    schema_url: str | None = _row(
        _url, None, "R3", attested=ELSEWHERE, named="WALSH_BLOCKLIST_SCHEMA_URL"
    )
    blocklist_unreachable: str = _one_of(
        (*_POSITIONS,), requirement="R3", terms=True, stricter=_POSITIONS.__getitem__
    )
    state_dir: Path | None = _row(_state_dir, None, "R11", attested=PRIVATE)
    shared_state: str | None = _row(_redis_url, None, "R4", attested=PRIVATE)
    min_interval: float = _row(
        _number(MIN_REQUEST_INTERVAL), MIN_REQUEST_INTERVAL, "R4", terms=True,
        least=MIN_REQUEST_INTERVAL,
    )  # fmt: skip
    max_retries: int = _row(
        _number(0, MAX_RETRIES, whole=True), MAX_RETRIES, "R5", terms=True, most=MAX_RETRIES
    )
    backoff_base: float = _row(_number(0.001), BACKOFF_BASE, "R5", terms=True, least=BACKOFF_BASE)
    backoff_cap: float = _row(_number(0.001), BACKOFF_CAP, "R5", terms=True, least=BACKOFF_CAP)
    patience: float = _row(_number(0.0), 300.0, "R5", terms=True)
    robots_ttl: float = _row(
        _number(0.1, ROBOTS_TTL), ROBOTS_TTL, "R2", terms=True, most=ROBOTS_TTL
    )
    robots_unreachable: str = _one_of(
        (*_POSITIONS,), requirement="R2", terms=True, stricter=_POSITIONS.__getitem__
    )
    pace_robots: bool = _row(_flag, False, "R4", terms=True, stricter=float, attested=ELSEWHERE)
    robots_cache_size: int = _row(_number(1, whole=True), 4096, "R2")
    excluded_tlds: tuple[str, ...] = _row(_names, (), terms=True)
    revisit: float = _row(_revisit, REVISIT, "R8", terms=True, least=REVISIT_FLOOR)
    revisit_reason: str | None = _row(_text, None, "R8", terms=True)
    follow_links: bool = _row(_flag, False, "R6", terms=True, attested=ELSEWHERE)
    scraping: bool = _row(_flag, False, "R9", terms=True)
    usage: tuple[tuple[str, str], ...] = _row(_usage, {}, terms=True)
    private_addresses: str = _one_of((DECLARED, ALLOW), terms=True, stricter=_closed)
    slow_hosts: str = _one_of(
        (SLOW_VISIT, SLOW_SKIP), requirement="R4", terms=True, attested=ELSEWHERE
    )
    ledger: str = _row(_ledger, True)
    ledger_kept: int = _row(_number(1 << 20, whole=True), 256 << 20)
    exit_attention: bool = _row(_flag, False)
    metrics: Path | None = _row(_metrics, None, attested=PRIVATE)
    sign_requests: bool = _row(_flag, False, "R1")
    signing_key: Path | None = _row(lambda _name, value: value, None, "R1", attested=PRIVATE)
    impl: str | None = _row(_impl, None, "R13")
    tag_requests: bool = _row(_flag, False, "R13", terms=True)

    @classmethod
    def from_settings(
        cls, settings: SettingsLike, default_state_dir: Callable[[], str | Path]
    ) -> WalshConfig:
        """Read and check every setting; ConfigError on the first that cannot be used."""
        found = {each.field: _read(settings, each) for each in SETTINGS}
        identity = found["identity"]
        found["blocklist_url"] = found["blocklist_url"] or identity.blocklist_url
        found["schema_url"] = found["schema_url"] or identity.schema_url
        if settings.get("WALSH_STATE_DIR") is None:
            found["state_dir"] = Path(default_state_dir())
        # Scrapy's own raises the minimum interval, if it is longer.
        delay = _number(0.0)("DOWNLOAD_DELAY", settings.get("DOWNLOAD_DELAY") or 0)
        found["min_interval"] = max(found["min_interval"], delay)
        signed = found["sign_requests"]
        found["signing_key"] = _signing_key(found["signing_key"], identity) if signed else None
        config = cls(**found)
        _check_profile(config)
        return config

    @property
    def is_walsh_research(self) -> bool:
        """Whether the identity is that of the specification's own operator."""
        return is_walsh(self.identity.token)


def _setting(of: Field[Any]) -> Setting:
    row: Row = of.metadata[_ROW]
    return Setting(row.named or f"WALSH_{of.name.upper()}", of.name, row)


#: Every setting, in the order in which they are read.
SETTINGS: Final = tuple(map(_setting, fields(WalshConfig)))
DEFAULTS: Final[Mapping[str, Any]] = {each.name: each.row.default for each in SETTINGS}


def identity_given(settings: SettingsLike) -> Any:
    """The identity as the project writes it: a profile's name or a dict; falsy where none is."""
    return settings.get("WALSH_IDENTITY")


def follows_links(settings: BaseSettings) -> bool:
    """Whether links are followed (R6), as Scrapy reads a switch."""
    return bool(settings.getbool("WALSH_FOLLOW_LINKS"))


def scrapes(settings: BaseSettings) -> bool:
    """Whether HTML is scraped on purpose (R9)."""
    return bool(settings.getbool("WALSH_SCRAPING"))


def is_shared(settings: SettingsLike) -> bool:
    """Whether workers on many machines share records through Redis."""
    return settings.get("WALSH_SHARED_STATE") is not None


def unknown_settings(settings: SettingsLike) -> list[str]:
    """A line for each ``WALSH_*`` setting that does not exist, with the name that may be meant."""
    lines = []
    for name in sorted(str(key) for key in settings.keys()):  # noqa: SIM118  Scrapy's own mapping
        if name.startswith("WALSH_") and name not in DEFAULTS:
            close = difflib.get_close_matches(name, DEFAULTS, n=1)
            hint = f"; did you mean {close[0]}?" if close else ""
            lines.append(f"{name} is not a setting of scrapy_walsh and is not read{hint}")
    return lines


def _read(settings: SettingsLike, each: Setting) -> Any:
    """The value that is used; None for a setting that may be without one."""
    given = settings.get(each.name)
    value = each.row.default if given is None else given
    if value is None and each.field != "identity":
        return None
    return each.row.read(each.name, value)


def _signing_key(value: object, identity: Identity) -> Path:
    """The key's file, with WALSH_SIGN_REQUESTS on; the crawl reads it."""
    accepted = "with WALSH_SIGN_REQUESTS: a file that attest --keygen made"
    path = _path("WALSH_SIGNING_KEY", value, accepted)
    directory_url(identity.policy_url)
    _needs("WALSH_SIGN_REQUESTS", "http_message_signatures", "sign")
    return path


def _check_profile(config: WalshConfig) -> None:
    """Raise ConfigError where walsh-research is to follow links (R6) or scrape HTML (R9)."""
    for name, never in ("follow_links", "follows links (R6)"), ("scraping", "scrapes HTML (R9)"):
        if config.is_walsh_research and getattr(config, name):
            raise ConfigError(
                f"WALSH_{name.upper()} is True; accepted with WALSH_IDENTITY of your own only: "
                f"walsh-research never {never}"
            )


def gates_of(values: Any) -> Gates:
    """The settings that ``policy/chain.py`` decides by.

    *values*: a WalshConfig, or any object that has their fields, such as the terms of a run.
    """
    told: dict[str, Any] = {each.name: getattr(values, each.name, None) for each in fields(Gates)}
    refused = (use for use, action in dict(values.usage).items() if action == REFUSE)
    told |= {"skip_slow": values.slow_hosts == SLOW_SKIP, "refused_uses": tuple(refused)}
    return Gates(**told)
