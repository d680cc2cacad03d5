"""The settings of this package: one frozen value, read in one place.

A value that cannot be used raises ``ConfigError`` with one line that names the setting,
the value and what is accepted. Nothing else in the package reads a ``WALSH_*`` setting.
"""

from __future__ import annotations

import difflib
import importlib.util
import json
import math
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol
from urllib.parse import urlsplit

from scrapy_walsh.exceptions import ConfigError
from scrapy_walsh.policy.backoff import BACKOFF_BASE, BACKOFF_CAP, MAX_RETRIES
from scrapy_walsh.policy.chain import Gates
from scrapy_walsh.policy.freshness import ROBOTS_TTL
from scrapy_walsh.policy.identity import WALSH_RESEARCH, Identity, identity_from
from scrapy_walsh.policy.recrawl import REVISIT, REVISIT_FLOOR
from scrapy_walsh.policy.signing import directory_url
from scrapy_walsh.policy.throttle import MIN_REQUEST_INTERVAL
from scrapy_walsh.policy.urls import without_userinfo
from scrapy_walsh.policy.usage import CATEGORIES, RECORD, REFUSE

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

UNREACHABLE_POSITIONS: Final = ("allow", "defer", "deny")
#: Of ``WALSH_SLOW_HOSTS``: one target a visit, or none.
SLOW_VISIT, SLOW_SKIP = "visit", "skip"
#: Of ``WALSH_LEDGER``: kept, kept without the query strings of URLs, not kept.
LEDGER_ON, LEDGER_REDACTED, LEDGER_OFF = "on", "redact", "off"

#: Settings that other parts of the package read through ``WalshConfig``, with their defaults.
DEFAULTS: Final[Mapping[str, Any]] = {
    "WALSH_IDENTITY": None,
    "WALSH_BLOCKLIST_URL": None,
    "WALSH_BLOCKLIST_SCHEMA_URL": None,
    "WALSH_BLOCKLIST_UNREACHABLE": "allow",
    "WALSH_STATE_DIR": None,
    "WALSH_SHARED_STATE": None,
    "WALSH_MIN_INTERVAL": MIN_REQUEST_INTERVAL,
    "WALSH_MAX_RETRIES": MAX_RETRIES,
    "WALSH_BACKOFF_BASE": BACKOFF_BASE,
    "WALSH_BACKOFF_CAP": BACKOFF_CAP,
    "WALSH_PATIENCE": 300.0,
    "WALSH_ROBOTS_TTL": ROBOTS_TTL,
    "WALSH_ROBOTS_UNREACHABLE": "allow",
    "WALSH_PACE_ROBOTS": False,
    "WALSH_ROBOTS_CACHE_SIZE": 4096,
    "WALSH_EXCLUDED_TLDS": (),
    "WALSH_REVISIT": REVISIT,
    "WALSH_REVISIT_REASON": None,
    "WALSH_FOLLOW_LINKS": False,
    "WALSH_SCRAPING": False,
    "WALSH_USAGE": {},
    "WALSH_SLOW_HOSTS": SLOW_VISIT,
    "WALSH_LEDGER": True,
    "WALSH_EXIT_ATTENTION": False,
    "WALSH_SIGN_REQUESTS": False,
    "WALSH_SIGNING_KEY": None,
    "WALSH_IMPL": None,
    "WALSH_TAG_REQUESTS": False,
}


class SettingsLike(Protocol):
    """What ``WalshConfig.from_settings`` needs of Scrapy's settings."""

    def get(self, name: str, default: Any = None, /) -> Any:
        """The value of *name*."""

    def keys(self) -> Any:
        """The names that are set."""


@dataclass(frozen=True, slots=True)
class WalshConfig:
    """The whole configuration. Durations are seconds; ``state_dir`` None means memory only.

    ``usage``: categories of use, each with what is to be done where a robots.txt disallows it.
    ``signing_key``: the file of the key that requests are signed with; None where they are not.
    ``with_userinfo``: settings whose URL held a user name or a password, which is left out.
    """

    identity: Identity
    blocklist_url: str
    schema_url: str | None
    blocklist_unreachable: str
    state_dir: Path | None
    shared_state: str | None
    min_interval: float
    max_retries: int
    backoff_base: float
    backoff_cap: float
    patience: float
    robots_ttl: float
    robots_unreachable: str
    pace_robots: bool
    robots_cache_size: int
    excluded_tlds: tuple[str, ...]
    revisit: float
    revisit_reason: str | None
    follow_links: bool
    scraping: bool
    usage: tuple[tuple[str, str], ...]
    slow_hosts: str
    ledger: str
    exit_attention: bool
    sign_requests: bool
    signing_key: Path | None
    impl: str | None
    tag_requests: bool
    with_userinfo: tuple[str, ...] = ()

    @classmethod
    def from_settings(
        cls, settings: SettingsLike, default_state_dir: Callable[[], str | Path]
    ) -> WalshConfig:
        """Read and check every setting; ConfigError on the first that cannot be used."""
        identity = identity_from(_unpacked(settings.get("WALSH_IDENTITY")))
        config = cls(
            identity=identity,
            blocklist_url=_url(settings, "WALSH_BLOCKLIST_URL") or identity.blocklist_url,
            schema_url=_url(settings, "WALSH_BLOCKLIST_SCHEMA_URL") or identity.schema_url,
            blocklist_unreachable=_choice(
                settings, "WALSH_BLOCKLIST_UNREACHABLE", UNREACHABLE_POSITIONS
            ),
            state_dir=_state_dir(settings, default_state_dir),
            shared_state=_redis_url(settings),
            min_interval=max(
                _number(settings, "WALSH_MIN_INTERVAL", least=MIN_REQUEST_INTERVAL),
                _download_delay(settings),
            ),
            max_retries=_whole(settings, "WALSH_MAX_RETRIES", least=0, most=MAX_RETRIES),
            backoff_base=_number(settings, "WALSH_BACKOFF_BASE", least=0.001),
            backoff_cap=_number(settings, "WALSH_BACKOFF_CAP", least=0.001),
            patience=_number(settings, "WALSH_PATIENCE", least=0.0),
            robots_ttl=_number(settings, "WALSH_ROBOTS_TTL", least=0.1, most=ROBOTS_TTL),
            robots_unreachable=_choice(settings, "WALSH_ROBOTS_UNREACHABLE", UNREACHABLE_POSITIONS),
            pace_robots=_flag(settings, "WALSH_PACE_ROBOTS"),
            robots_cache_size=_whole(settings, "WALSH_ROBOTS_CACHE_SIZE", least=1, most=None),
            excluded_tlds=_names(settings, "WALSH_EXCLUDED_TLDS"),
            revisit=_number(settings, "WALSH_REVISIT", least=REVISIT_FLOOR),
            revisit_reason=_text(settings, "WALSH_REVISIT_REASON"),
            follow_links=_flag(settings, "WALSH_FOLLOW_LINKS"),
            scraping=_flag(settings, "WALSH_SCRAPING"),
            usage=_usage(settings),
            slow_hosts=_choice(settings, "WALSH_SLOW_HOSTS", (SLOW_VISIT, SLOW_SKIP)),
            ledger=_ledger(settings),
            exit_attention=_flag(settings, "WALSH_EXIT_ATTENTION"),
            sign_requests=_flag(settings, "WALSH_SIGN_REQUESTS"),
            signing_key=_signing_key(settings, identity),
            impl=_impl(settings),
            tag_requests=_flag(settings, "WALSH_TAG_REQUESTS"),
            with_userinfo=tuple(name for name in _URLS if _has_userinfo(_get(settings, name))),
        )
        _check_profile(config)
        return config

    @property
    def is_walsh_research(self) -> bool:
        """Whether the identity is that of the specification's own operator."""
        return self.identity.token.lower() == WALSH_RESEARCH.token.lower()

    @property
    def key_directory(self) -> str:
        """The URL where the key of signed requests is listed. ConfigError where it is not https."""
        return directory_url(self.identity.policy_url)

    @property
    def mirrored(self) -> bool:
        """Whether the operator's documents come from elsewhere than the identity says."""
        identity = self.identity
        return (self.blocklist_url, self.schema_url) != (
            identity.blocklist_url,
            identity.schema_url,
        )


def has_identity(settings: SettingsLike) -> bool:
    """Whether an identity was chosen at all; ``WalshConfig`` says whether it can be used."""
    return bool(settings.get("WALSH_IDENTITY"))


def identity_given(settings: SettingsLike) -> Any:
    """The identity as the project writes it: a profile's name or a dict."""
    return settings.get("WALSH_IDENTITY")


def is_shared(settings: SettingsLike) -> bool:
    """Whether workers on many machines share records through Redis."""
    return settings.get("WALSH_SHARED_STATE") is not None


def has_idle_key(settings: SettingsLike) -> bool:
    """Whether there is a key to sign requests with, and they are not signed."""
    name = "WALSH_SIGN_REQUESTS"
    on = _FLAGS.get(str(_get(settings, name)).strip().lower(), True)
    return _get(settings, "WALSH_SIGNING_KEY") is not None and not on


def unknown_settings(settings: SettingsLike) -> list[str]:
    """A line for each ``WALSH_*`` setting that does not exist, with the name that may be meant."""
    lines = []
    for name in sorted(str(key) for key in settings.keys()):  # noqa: SIM118  Scrapy's own mapping
        if name.startswith("WALSH_") and name not in DEFAULTS:
            close = difflib.get_close_matches(name, DEFAULTS, n=1)
            hint = f"; did you mean {close[0]}?" if close else ""
            lines.append(f"{name} is not a setting of scrapy_walsh and is not read{hint}")
    return lines


def _get(settings: SettingsLike, name: str) -> Any:
    value = settings.get(name)
    return DEFAULTS[name] if value is None else value


def _refuse(name: str, value: object, accepted: str) -> ConfigError:
    return ConfigError(f"{name} is {value!r}; accepted: {accepted}")


def _number(settings: SettingsLike, name: str, *, least: float, most: float | None = None) -> float:
    value = _get(settings, name)
    accepted = f"a number of seconds, at least {least:g}" + (f", at most {most:g}" if most else "")
    try:
        number = math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError):
        raise _refuse(name, value, accepted) from None
    if not (math.isfinite(number) and number >= least and (most is None or number <= most)):
        raise _refuse(name, value, accepted)
    return number


def _whole(settings: SettingsLike, name: str, *, least: int, most: int | None) -> int:
    value = _get(settings, name)
    accepted = f"a whole number, at least {least}" + (
        f", at most {most}" if most is not None else ""
    )
    try:
        number = float("nan") if isinstance(value, bool) else float(value)
    except (TypeError, ValueError):
        raise _refuse(name, value, accepted) from None
    if not (number.is_integer() and number >= least and (most is None or number <= most)):
        raise _refuse(name, value, accepted)
    return int(number)


_IMPL: Final = re.compile(r"[\w.-]+/[\w.-]+(@[\w.-]+)?", re.ASCII)

_FLAGS: Final[Mapping[str, bool]] = {
    "1": True, "true": True, "yes": True, "on": True,
    "0": False, "false": False, "no": False, "off": False,
}  # fmt: skip


def _flag(settings: SettingsLike, name: str) -> bool:
    value = _get(settings, name)
    flag = _FLAGS.get(str(value).strip().lower())
    if flag is None:
        raise _refuse(name, value, "True or False")
    return flag


def _choice(settings: SettingsLike, name: str, choices: tuple[str, ...]) -> str:
    value = _get(settings, name)
    if value not in choices:
        raise _refuse(name, value, ", ".join(choices))
    return str(value)


def _ledger(settings: SettingsLike) -> str:
    """``on``, ``off`` or ``redact``."""
    name = "WALSH_LEDGER"
    value = _get(settings, name)
    if str(value).strip().lower() == LEDGER_REDACTED:
        return LEDGER_REDACTED
    try:
        return LEDGER_ON if _flag(settings, name) else LEDGER_OFF
    except ConfigError:
        raise _refuse(name, value, 'True, False, or "redact" to keep it without queries') from None


def _impl(settings: SettingsLike) -> str | None:
    """``organisation/repository``, with ``@commit`` where it is known (R13)."""
    value = _get(settings, "WALSH_IMPL")
    if value is None:
        return None
    if not isinstance(value, str) or not _IMPL.fullmatch(value.strip()):
        raise _refuse("WALSH_IMPL", value, "ORGANISATION/REPOSITORY, or that and @COMMIT")
    return value.strip()


def _text(settings: SettingsLike, name: str) -> str | None:
    value = _get(settings, name)
    if value is None:
        return None
    if not isinstance(value, str) or not value.strip() or not value.isprintable():
        raise _refuse(name, value, "a written reason of one line, or nothing")
    return value.strip()


#: Settings that are URLs of documents.
_URLS: Final = ("WALSH_BLOCKLIST_URL", "WALSH_BLOCKLIST_SCHEMA_URL")


def _has_userinfo(value: object) -> bool:
    return isinstance(value, str) and without_userinfo(value) != value


def _url(settings: SettingsLike, name: str) -> str | None:
    value = _get(settings, name)
    if value is None:
        return None
    accepted = "an absolute http or https URL"
    if not isinstance(value, str):
        raise _refuse(name, value, accepted)
    try:
        parts = urlsplit(value.strip())
        usable = parts.scheme in ("http", "https") and bool(parts.hostname)
    except ValueError:
        usable = False
    bare = without_userinfo(value.strip())
    if not usable:
        raise _refuse(name, bare, accepted)
    return bare


def _names(settings: SettingsLike, name: str) -> tuple[str, ...]:
    value = _get(settings, name)
    if isinstance(value, str):
        value = _split(value)
    if not isinstance(value, (list, tuple, set, frozenset)) or not all(
        isinstance(entry, str) for entry in value
    ):
        raise _refuse(name, value, 'a list of host suffixes, such as ["gov", ".mil"]')
    return tuple(entry.strip() for entry in value)


def _usage(settings: SettingsLike) -> tuple[tuple[str, str], ...]:
    value = _unpacked(_get(settings, "WALSH_USAGE"))
    categories, actions = ", ".join(CATEGORIES), (RECORD, REFUSE)
    if not isinstance(value, dict) or not all(
        category in CATEGORIES and action in actions for category, action in value.items()
    ):
        accepted = f"a dict with {RECORD!r} or {REFUSE!r} for each of these uses: {categories}"
        raise _refuse("WALSH_USAGE", value, accepted)
    return tuple(sorted(value.items()))


def _unpacked(value: object) -> object:
    """*value*; where it is a JSON object in text, as from a command line, the dict."""
    if isinstance(value, str) and value.lstrip().startswith("{"):
        try:
            return json.loads(value)
        except ValueError:
            return value
    return value


def _split(text: str) -> Any:
    """The list in *text*, as from a command line: JSON, or names with commas between them."""
    if text.lstrip().startswith("["):
        try:
            return json.loads(text)
        except ValueError:
            return text
    return [entry for entry in text.split(",") if entry.strip()]


def _state_dir(settings: SettingsLike, default: Callable[[], str | Path]) -> Path | None:
    value = _get(settings, "WALSH_STATE_DIR")
    if value is None:
        return Path(default())
    if value == "memory":
        return None
    if not isinstance(value, (str, os.PathLike)) or not str(value).strip():
        raise _refuse("WALSH_STATE_DIR", value, 'a directory, or "memory" for a one-off run')
    return Path(value)


def _redis_url(settings: SettingsLike) -> str | None:
    name = "WALSH_SHARED_STATE"
    value = _get(settings, name)
    if value is None:
        return None
    try:
        parts = urlsplit(str(value).strip())
        usable = parts.scheme in ("redis", "rediss") and bool(parts.hostname)
        usable = usable and parts.port != 0 and (parts.path.strip("/") or "0").isdigit()
    except ValueError:
        usable = False
    if not usable:  # the value is not shown where it may hold a password
        shown = "a URL that cannot be used" if "@" in str(value) else repr(value)
        raise ConfigError(f"{name} is {shown}; accepted: redis://HOST:PORT/NUMBER, or rediss://")
    if importlib.util.find_spec("redis") is None:
        raise ConfigError(f"{name} needs a package: pip install 'scrapy-walsh[redis]'")
    return str(value).strip()


def _signing_key(settings: SettingsLike, identity: Identity) -> Path | None:
    """The key's file where WALSH_SIGN_REQUESTS is on; the crawl reads it."""
    name = "WALSH_SIGNING_KEY"
    value = _get(settings, name)
    if not _flag(settings, "WALSH_SIGN_REQUESTS"):
        return None
    if not isinstance(value, (str, os.PathLike)) or not str(value).strip():
        raise _refuse(name, value, "with WALSH_SIGN_REQUESTS: a file that attest --keygen made")
    directory_url(identity.policy_url)
    if importlib.util.find_spec("http_message_signatures") is None:
        raise ConfigError("WALSH_SIGN_REQUESTS needs a package: pip install 'scrapy-walsh[sign]'")
    return Path(value)


def _download_delay(settings: SettingsLike) -> float:
    """Scrapy's own DOWNLOAD_DELAY, in seconds: it raises the minimum interval, if it is longer."""
    try:
        delay = float(settings.get("DOWNLOAD_DELAY") or 0)
    except (TypeError, ValueError):
        raise _refuse("DOWNLOAD_DELAY", settings.get("DOWNLOAD_DELAY"), "a number") from None
    return delay if math.isfinite(delay) else 0.0


def _check_profile(config: WalshConfig) -> None:
    """Raise ConfigError where walsh-research is to follow links (R6) or scrape HTML (R9)."""
    if not config.is_walsh_research:
        return
    for name, is_set, never in (
        ("WALSH_FOLLOW_LINKS", config.follow_links, "follows links (R6)"),
        ("WALSH_SCRAPING", config.scraping, "scrapes HTML (R9)"),
    ):
        if is_set:
            raise ConfigError(
                f"{name} is True; accepted with WALSH_IDENTITY of your own only: "
                f"walsh-research never {never}"
            )


def gates_of(config: WalshConfig) -> Gates:
    """The settings that ``policy/chain.py`` decides by."""
    return Gates(
        config.excluded_tlds,
        config.revisit,
        config.revisit_reason,
        config.patience,
        config.slow_hosts == SLOW_SKIP,
        config.max_retries,
        config.backoff_base,
        config.backoff_cap,
        tuple(category for category, action in config.usage if action == REFUSE),
    )
