"""The add-on: ``ADDONS = {"scrapy_walsh.Addon": 500}`` is the whole installation."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from scrapy.settings import SETTINGS_PRIORITIES, default_settings

from scrapy_walsh.adapters import compat, disk_lines, plugins, seats
from scrapy_walsh.adapters.context import default_state_dir
from scrapy_walsh.adapters.events import logger, tell_plugins
from scrapy_walsh.config import WalshConfig, unknown_settings
from scrapy_walsh.exceptions import StateError, WalshError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from scrapy.settings import BaseSettings, Settings

#: Above the command line and the job settings of Scrapy Cloud.
_PRIORITY: Final = 1000
_SPIDERS: Final = "scrapy_walsh.spiders"


class Addon:
    """Pins the settings that the specification needs, and warns of each value that it overrides.

    It also sets defaults of its own (``seats.PREFERRED``) where a project sets nothing.
    """

    @classmethod
    def update_pre_crawler_settings(cls, settings: BaseSettings) -> None:
        """Add ``walsh_metadata`` to the project's spiders; called before those are looked for.

        It comes first: of two spiders of one name, Scrapy takes the last.
        """
        listed = settings.getlist("SPIDER_MODULES")
        if not any(each.startswith(_SPIDERS) for each in listed):
            priority = settings.getpriority("SPIDER_MODULES") or 0
            settings.set("SPIDER_MODULES", [_SPIDERS, *listed], priority=priority)

    def update_settings(self, settings: Settings) -> None:
        """Called by Scrapy before a crawl starts; ConfigError for settings that cannot be used."""
        try:
            config = WalshConfig.from_settings(settings, default_state_dir)
            if (why := disk_lines.why_unusable(settings)) is not None:
                raise StateError(f"{why}: set another, or remove it")
        except WalshError as error:
            compat.refuse_start(error)
        for line in unknown_settings(settings):
            logger.warning("%s", line)
        for name, value in seats.PREFERRED.items():
            settings.set(name, value, priority="addon")
        tell_plugins(plugins.named_in(settings))  # before their components are overridden
        by_hand = seats.by_hand(settings)
        for name, value in seats.pinned(config).items():
            _pin(settings, name, value, by_hand=by_hand)
        _keep_handlers(settings)
        for name, components in seats.SEATS.items():
            _seat(settings, name, components)


def _pin(settings: BaseSettings, name: str, value: Any, *, by_hand: bool) -> None:
    found = settings.get(name)
    if isinstance(value, bool):
        with suppress(ValueError):  # the command line's "1", a file's "true"
            found = settings.getbool(name)
    priority = settings.getpriority(name) or 0
    if SETTINGS_PRIORITIES["project"] <= priority < _PRIORITY and not plugins.covers(found):
        for told in _contradictions(name, found, value, by_hand=by_hand):
            logger.warning("%s is %s: %s", name, _one_line(found), told)
    settings.set(name, value, priority=_PRIORITY)


def _contradictions(name: str, found: Any, value: Any, *, by_hand: bool) -> Iterator[str]:
    """What a project must hear of its value *found* for a pin; nothing where it changes nothing."""
    if _equal(found, value):
        if name in seats.UNHEARD and not by_hand:
            yield seats.UNHEARD[name]
    elif name not in seats.GRANTED or not _equal(found, seats.GRANTED[name]):
        instead = f" ({seats.INSTEAD[name]})" if name in seats.INSTEAD else ""
        yield f"scrapy_walsh overrides it with {value}{instead}"


def _keep_handlers(settings: BaseSettings) -> None:
    """Put Scrapy's own handlers back where others are set that our handler may not wrap."""
    foreign = seats.wrapped(settings)
    for scheme, found in foreign.items():
        if plugins.covers(found):
            continue
        own = default_settings.DOWNLOAD_HANDLERS_BASE[scheme]
        logger.warning(
            "%s[%r] is %s: scrapy_walsh overrides it with %s", seats.BASE, scheme, found, own
        )
    if foreign:
        base = {**settings.getdict(seats.BASE)}
        base |= {scheme: default_settings.DOWNLOAD_HANDLERS_BASE[scheme] for scheme in foreign}
        settings.set(seats.BASE, base, priority=_PRIORITY)


def _equal(found: Any, value: Any) -> bool:
    return found == value or str(found) == str(value)


def _one_line(value: Any) -> str:
    text = repr(dict(value)) if hasattr(value, "keys") else repr(value)
    return text if len(text) <= 200 else f"{text[:200]}..."


def _seat(settings: BaseSettings, name: str, components: Any) -> None:
    """Set the seats on top of the project's own, which stay."""
    merged = settings.getdict(name)
    for path, place in components.items():
        if path in merged and merged[path] != place:
            logger.warning("%s has %s at %s: scrapy_walsh sets %s", name, path, merged[path], place)
        merged[path] = place
    settings.set(name, merged, priority=_PRIORITY)
