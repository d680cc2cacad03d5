"""The settings of this package: one frozen value, read in one place.

An unusable value raises ``ConfigError``. Its message is one line with the setting, the value and
the accepted values. No other module reads a ``WALSH_*`` setting.
"""

from __future__ import annotations

import difflib
import importlib.util
import json
import os
import re
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
from scrapy_walsh.policy.hints import LONGEST
from scrapy_walsh.policy.hosts import BY_ADDRESS, BY_HOST
from scrapy_walsh.policy.identity import Identity, identity_from, is_walsh
from scrapy_walsh.policy.robots.fetch import ROBOTS_TTL
from scrapy_walsh.policy.robots.usage import KNOWN, LABEL, LEVELS, RECORD, REFUSE, category
from scrapy_walsh.policy.signing import directory_url
from scrapy_walsh.policy.throttle import MIN_REQUEST_INTERVAL
from scrapy_walsh.policy.urls import is_http_url, without_userinfo
from scrapy_walsh.policy.visits import AUTO, REVISIT_FLOOR, cadence

if TYPE_CHECKING:
    from scrapy.settings import BaseSettings


#: Values of ``WALSH_SLOW_HOSTS``: send one target a visit, or none.
SLOW_VISIT, SLOW_SKIP = "visit", "skip"
#: Values of ``WALSH_LEDGER``: write it, write it without the queries of URLs, write none.
LEDGER_ON, LEDGER_REDACTED, LEDGER_OFF = "on", "redact", "off"

#: What may be done if a document cannot be reached, and how strict that is.
_POSITIONS: Final = {"allow": 0, "defer": 1, "deny": 1}
#: The place of a setting in an attestation, which is public: among its overrides, or in another
#: member. A private setting (a path, or a URL with a password) has none: an attestation says at
#: most that it is set.
OVERRIDE, ELSEWHERE, PRIVATE = "override", "elsewhere", "private"
_ROW: Final = "row"


#: Converts a setting's name and value to the value that is used. Raises ConfigError.
Reader = Callable[[str, Any], Any]


class Row(NamedTuple):
    """The rules for one setting, in the metadata of its field in :class:`WalshConfig`.

    ``read``: converts and checks a value. ``requirement``: the requirement that it belongs to.
    ``terms``: whether the ledger's line ``started`` has it. ``choices``: the accepted texts; empty
    for any text.

    ``least``, ``most``: bounds of the requirement. A value beyond them breaks it, even if ``read``
    accepts that; a value farther inside is stricter. ``stricter``: for a setting without bounds
    that changes the result of a conformance run. It maps a value to a number, which is larger if
    the value is stricter. ``attested``: ``OVERRIDE``, ``ELSEWHERE`` or ``PRIVATE``. ``named``: the
    setting's name, if it is not ``WALSH_`` and the field's name.
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
    """A row of the table, with the name of its setting (``WALSH_X``) and of its field."""

    name: str
    field: str
    row: Row


def _row(*values: Any, **options: Any) -> Any:
    return field(metadata={_ROW: Row(*values, **options)})


def _one_of(choices: tuple[str, ...], **options: Any) -> Any:
    """Return the row of a setting with a list of *choices*. The first one is the default."""
    type_: Any = Literal[choices]
    return _row(_of_type(type_, ", ".join(choices)), choices[0], choices=choices, **options)


# -- accepted values ----------------------------------------------------------------------


def _refuse(name: str, value: object, accepted: str) -> ConfigError:
    return ConfigError(f"{name} is {value!r}; accepted: {accepted}")


def _of_type(type_: Any, accepted: str) -> Reader:
    def read(name: str, value: Any) -> Any:
        try:  # not strict, because a command line gives only text
            return msgspec.convert(_unpacked(value), type_, strict=False)
        except msgspec.ValidationError:
            raise _refuse(name, value, accepted) from None

    return read


def _number(minimum: float, maximum: float | None = None, *, whole: bool = False) -> Reader:
    accepted = "a whole number" if whole else "a number of seconds"
    accepted += f", at least {minimum:g}" + (
        f", at most {maximum:g}" if maximum is not None else ""
    )
    bounds = msgspec.Meta(ge=minimum, le=sys.maxsize if maximum is None else maximum)
    return _of_type(Annotated[int if whole else float, bounds], accepted)


def _revisit(name: str, value: Any) -> float:
    try:
        return cadence(value) or REVISIT  # "auto" begins with a day
    except ValueError as error:
        raise ConfigError(f"{name} is {error}") from None


def _auto(_name: str, value: Any) -> bool:
    """Whether WALSH_REVISIT, which :func:`_revisit` has read, is "auto"."""
    return cadence(value) == AUTO


_flag: Final = _of_type(bool, "True or False")


_ledger_choice: Final = _of_type(
    bool | Literal[LEDGER_ON, LEDGER_OFF, LEDGER_REDACTED],
    'True, False, or "redact" to keep it without queries',
)


def _ledger(name: str, value: Any) -> str:
    """Return ``on``, ``off`` or ``redact``."""
    choice = _ledger_choice(name, value)
    if isinstance(choice, str):
        return choice
    if choice:
        return LEDGER_ON
    return LEDGER_OFF


#: ``organisation/repository``, or ``organisation/repository@commit`` (R13).
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
        redacted = without_userinfo(url) or value  # it may have a password
        raise _refuse(name, redacted, "an absolute http or https URL, no user name in it")
    return _escaped(url)


def _escaped(url: str) -> str:
    """*url* as Scrapy escapes a request's, so that it is recorded as it is sent (D36)."""
    return safe_url_string(url)


_texts: Final = _of_type(tuple[str, ...], 'a list of host suffixes, such as ["gov", ".mil"]')


def _names(name: str, value: Any) -> tuple[str, ...]:
    if isinstance(value, str) and not value.lstrip().startswith("["):
        value = [entry for entry in value.split(",") if entry.strip()]
    return tuple(entry.strip() for entry in _texts(name, value))


_ACCEPTED_USES: Final = (
    f"a dict of uses to {RECORD!r} or {REFUSE!r}, for example of {', '.join(KNOWN)}"
)
_Use = Annotated[str, msgspec.Meta(pattern=rf"^(?:{LABEL}|{'|'.join(LEVELS[1:])})$")]
_uses: Final = _of_type(dict[_Use, Literal[RECORD, REFUSE]], _ACCEPTED_USES)  # type: ignore[valid-type]


_Name = Annotated[str, msgspec.Meta(min_length=1)]
_pace_by: Final = _of_type(
    Literal[BY_HOST, BY_ADDRESS] | dict[_Name, _Name],
    'host, address, or a dict of patterns to names, such as {"*.blog.example": "blogs"}',
)


def _closed(position: str) -> float:
    """Return how strict a value of WALSH_PRIVATE_ADDRESSES is."""
    return float(position == DECLARED)


def _usage(name: str, value: Any) -> tuple[tuple[str, str], ...]:
    uses: dict[str, str] = {}
    letters = {re.sub("[^a-z]", "", use): use for use in KNOWN}
    for label, action in _uses(name, value).items():
        use = category(label)
        meant = letters.get(re.sub("[^a-z]", "", use), use)
        if meant != use:  # else an opt-out would be read past because of a misspelt name
            raise _refuse(name, value, f"{_ACCEPTED_USES}; did you mean {meant}?")
        uses[use] = REFUSE if REFUSE in (action, uses.get(use)) else action
    return tuple(sorted(uses.items()))


def _unpacked(value: object) -> object:
    """Return *value*. Text with a JSON object or list, as on a command line, is decoded."""
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
    """Raise ConfigError if *module* is not installed. The setting *name* needs it."""
    if importlib.util.find_spec(module) is None:
        raise ConfigError(f"{name} needs a package: pip install 'scrapy-walsh[{extra}]'")


def _state_dir(name: str, value: Any) -> Path | None:
    accepted = 'a directory, or "memory" for a one-off run'
    if value == "memory":
        return None
    return _path(name, value, accepted)


def _metrics(name: str, value: Any) -> Path:
    path = _path(name, value, 'a file, such as "walsh.prom"')
    _needs(name, "prometheus_client", "metrics")
    return path


def _redis_url(name: str, value: Any) -> str:
    try:
        # An error of this parser can refuse a setting, but cannot open a gate (D36).
        parts = urlsplit(str(value).strip())
        usable = parts.scheme in ("redis", "rediss") and bool(parts.hostname)
        usable = usable and parts.port != 0 and (parts.path.strip("/") or "0").isdigit()
    except ValueError:
        usable = False
    if not usable:  # a value with "@" may hold a password, so the message does not show it
        redacted = "a URL that cannot be used" if "@" in str(value) else repr(value)
        raise ConfigError(f"{name} is {redacted}; accepted: redis://HOST:PORT/NUMBER, or rediss://")
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
    """The configuration of a crawl, and the table of all settings.

    To add a setting, add one row here. Durations are seconds. ``state_dir``: None for memory only.
    ``usage``: for each category of use, the action if a robots.txt disallows it. ``signing_key``:
    the file with the key for signing requests; None if requests are not signed.
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
    pace_by: str | dict[str, str] = _row(_pace_by, BY_HOST, "R5", terms=True)
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
    auto_revisit: bool = _row(
        _auto, REVISIT, "R8", terms=True, attested=ELSEWHERE, named="WALSH_REVISIT"
    )
    revisit_reason: str | None = _row(_text, None, "R8", terms=True)
    hints: float = _row(_number(0.0, LONGEST), LONGEST, "R8", terms=True)
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
        """Read and check all settings. Raises ConfigError for the first unusable value."""
        values = {setting.field: _read(settings, setting) for setting in SETTINGS}
        identity = values["identity"]
        values["blocklist_url"] = values["blocklist_url"] or identity.blocklist_url
        values["schema_url"] = values["schema_url"] or identity.schema_url
        if settings.get("WALSH_STATE_DIR") is None:
            values["state_dir"] = Path(default_state_dir())
        # A longer DOWNLOAD_DELAY raises the minimum interval.
        delay = _number(0.0)("DOWNLOAD_DELAY", settings.get("DOWNLOAD_DELAY") or 0)
        values["min_interval"] = max(values["min_interval"], delay)
        signed = values["sign_requests"]
        values["signing_key"] = _signing_key(values["signing_key"], identity) if signed else None
        config = cls(**values)
        _check_profile(config)
        return config

    @property
    def is_walsh_research(self) -> bool:
        """Whether the identity belongs to the specification's own operator."""
        return is_walsh(self.identity.token)


def _setting(of: Field[Any]) -> Setting:
    row: Row = of.metadata[_ROW]
    return Setting(row.named or f"WALSH_{of.name.upper()}", of.name, row)


#: All settings, in reading order.
SETTINGS: Final = tuple(map(_setting, fields(WalshConfig)))
DEFAULTS: Final[Mapping[str, Any]] = {setting.name: setting.row.default for setting in SETTINGS}


def identity_given(settings: SettingsLike) -> Any:
    """Return the project's WALSH_IDENTITY: a profile's name or a dict; falsy if there is none."""
    return settings.get("WALSH_IDENTITY")


def follows_links(settings: BaseSettings) -> bool:
    """Whether the project follows links (R6)."""
    return bool(settings.getbool("WALSH_FOLLOW_LINKS"))


def scrapes(settings: BaseSettings) -> bool:
    """Whether the project scrapes HTML on purpose (R9)."""
    return bool(settings.getbool("WALSH_SCRAPING"))


def hides_queries(settings: SettingsLike) -> bool:
    """Whether no query of a URL may be shown, in the ledger or elsewhere."""
    return bool(settings.get("WALSH_LEDGER") == LEDGER_REDACTED)


def is_shared(settings: SettingsLike) -> bool:
    """Whether workers on many machines share records through Redis."""
    return settings.get("WALSH_SHARED_STATE") is not None


def unknown_settings(settings: SettingsLike) -> list[str]:
    """Return a line for each unknown ``WALSH_*`` setting, with a similar name if there is one."""
    lines = []
    for name in sorted(str(key) for key in settings.keys()):  # noqa: SIM118  Scrapy's own mapping
        if name.startswith("WALSH_") and name not in DEFAULTS:
            close = difflib.get_close_matches(name, DEFAULTS, n=1)
            hint = f"; did you mean {close[0]}?" if close else ""
            lines.append(f"{name} is not a setting of scrapy_walsh and is not read{hint}")
    return lines


def unknown_uses(config: WalshConfig) -> list[str]:
    """Return a line for each name in WALSH_USAGE that no vocabulary known to us has."""
    return [
        f"WALSH_USAGE names {use}, which no vocabulary known here has: it counts only for sites "
        "that write this name"
        for use, _ in config.usage
        if use not in KNOWN
    ]


def _read(settings: SettingsLike, setting: Setting) -> Any:
    """Return the value to use. It is None if the setting may be missing, and is."""
    raw = settings.get(setting.name)
    value = setting.row.default if raw is None else raw
    if value is None and setting.field != "identity":
        return None
    return setting.row.read(setting.name, value)


def _signing_key(value: object, identity: Identity) -> Path:
    """Check the settings for WALSH_SIGN_REQUESTS; return the key's file. The crawl reads it."""
    accepted = "with WALSH_SIGN_REQUESTS: a file that attest --keygen made"
    path = _path("WALSH_SIGNING_KEY", value, accepted)
    directory_url(identity.policy_url)
    _needs("WALSH_SIGN_REQUESTS", "http_message_signatures", "sign")
    return path


def _check_profile(config: WalshConfig) -> None:
    """Raise ConfigError if walsh-research should follow links (R6) or scrape HTML (R9)."""
    for name, never in ("follow_links", "follows links (R6)"), ("scraping", "scrapes HTML (R9)"):
        if config.is_walsh_research and getattr(config, name):
            raise ConfigError(
                f"WALSH_{name.upper()} is True; accepted with WALSH_IDENTITY of your own only: "
                f"walsh-research never {never}"
            )


def gates_of(values: Any) -> Gates:
    """Return the settings for the decisions in ``policy/chain.py``.

    *values*: a WalshConfig, or another object with its fields, for example the terms of a run.
    """
    members: dict[str, Any] = {
        gate_field.name: getattr(values, gate_field.name, None) for gate_field in fields(Gates)
    }
    usage = dict(values.usage)
    members["skip_slow"] = values.slow_hosts == SLOW_SKIP
    members["refused_uses"] = tuple(use for use, action in usage.items() if action == REFUSE)
    return Gates(**members)
