"""The settings of a conformance run: the project's own, but for what the run must set itself."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Final

from scrapy_walsh.commands.check_answer import Misuse
from scrapy_walsh.commands.project import pairs, settings_to_read, settings_to_send
from scrapy_walsh.config import DEFAULTS, WalshConfig, identity_given
from scrapy_walsh.proof.conformance.crawl import Bot

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping
    from pathlib import Path

    from scrapy_walsh.config import SettingsLike

#: What every run sets itself: identity, where the documents and the state are, R8's reason, tags,
#: and the key that one of its scenes signs with.
_TAKEN: Final = frozenset(
    {
        "WALSH_IDENTITY",
        "WALSH_BLOCKLIST_URL",
        "WALSH_BLOCKLIST_SCHEMA_URL",
        "WALSH_STATE_DIR",
        "WALSH_SHARED_STATE",
        "WALSH_REVISIT_REASON",
        "WALSH_TAG_REQUESTS",
        "WALSH_IMPL",
        "WALSH_SIGN_REQUESTS",
        "WALSH_SIGNING_KEY",
    }
)


class Setup:
    """The bot that is to run, and what the record says of its settings.

    Raises Misuse or ConfigError.
    """

    def __init__(self, args: argparse.Namespace) -> None:
        settings = settings_to_send(args) if args.live else settings_to_read(args)
        given = _given(args)
        from scrapy_walsh.adapters.context import default_state_dir  # noqa: PLC0415  slow

        config = WalshConfig.from_settings(settings, default_state_dir)
        self.state_dir: Path | None = config.state_dir
        self._config = config
        self._overrides = _overrides(settings)
        self._given = {name: _told(name, given[name]) for name in given.keys() - DEFAULTS.keys()}
        self.bot = Bot(
            config.identity,
            identity_given(settings),
            {**self._overrides, **given},
            config.min_interval if config.pace_robots else 0.0,
        )

    @property
    def implementation(self) -> str | None:
        """``organisation/repository@commit`` for R13: of WALSH_IMPL, GitHub's variables, or git."""
        from scrapy_walsh.adapters.tags import implementation  # noqa: PLC0415  slow

        name, commit = implementation(self._config.impl, os.environ)
        return f"{name}@{commit}" if name and commit else name

    def recorded(self, *, live: bool) -> dict[str, Any]:
        """The record's member ``settings``."""
        return {
            "mirrored": not live,
            "pace_robots": self._config.pace_robots,
            "follow_links": self._config.follow_links,
            "overrides": {**self._overrides, **self._given},
        }


def _given(args: argparse.Namespace) -> Mapping[str, str]:
    given = pairs("-s", args.set)
    taken = sorted(_TAKEN & given.keys())
    if taken:
        raise Misuse(f"-s {taken[0]}: a conformance run sets that itself")
    return given


def _told(name: str, value: str) -> str:
    """What the record says of a setting that is not ours: no value, which may be a secret.

    DOWNLOAD_DELAY is recorded with its value, since it concerns spacing.
    """
    return value if name == "DOWNLOAD_DELAY" else "set"


def _overrides(settings: SettingsLike) -> dict[str, Any]:
    """The ``WALSH_`` settings that differ from their defaults, as JSON data."""
    found = {name: settings.get(name) for name in DEFAULTS if name not in _TAKEN}
    return {
        name: list(value) if isinstance(value, (tuple, set, frozenset)) else value
        for name, value in found.items()
        if value is not None and value != DEFAULTS[name]
    }
