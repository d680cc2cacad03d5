"""Every ``WALSH_*`` value that cannot be used, not only the first."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from scrapy_walsh.config import SettingsLike, WalshConfig
from scrapy_walsh.exceptions import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

_NAME: Final = re.compile(r"[A-Z_]+")
#: For what cannot be used and has no default that can, so that what depends on neither is read.
_STAND_INS: Final[dict[str, Any]] = {
    "WALSH_IDENTITY": {
        "product": "Unnamed/0.0",
        "policy_url": "https://unnamed.invalid/",
        "blocklist_url": "https://unnamed.invalid/blocklist.json",
    },
    "WALSH_STATE_DIR": "memory",
}


class Reading(NamedTuple):
    """``config``: with defaults for the settings in ``replaced``. ``problems``: a line each."""

    config: WalshConfig
    problems: list[str]
    replaced: frozenset[str]


class _Overlay:
    """*settings* with some values replaced."""

    def __init__(self, settings: SettingsLike) -> None:
        self._settings = settings
        self.replaced: dict[str, Any] = {}

    def get(self, name: str, default: Any = None) -> Any:
        if name in self.replaced:
            return self.replaced[name]
        return self._settings.get(name, default)

    def keys(self) -> Any:
        return self._settings.keys()


def read(settings: SettingsLike, default_state_dir: Callable[[], str | Path]) -> Reading:
    """Read *settings*; a value that is refused is noted, and its default read in its place."""
    overlay, problems = _Overlay(settings), []
    while True:
        try:
            config = WalshConfig.from_settings(overlay, default_state_dir)
        except ConfigError as error:
            problems.append(str(error))
            found = _NAME.match(str(error))  # each message begins with its setting
            if found is None or found[0] in overlay.replaced:
                raise
            overlay.replaced[found[0]] = _STAND_INS.get(found[0])
        else:
            return Reading(config, problems, frozenset(overlay.replaced))
