"""Switches the add-on on in each crawl of a process, and shortens R4's and R5's waits.

``sitecustomize`` calls it, in pytest's processes and in those that tests start. Nothing is imported
earlier than Scrapy's tests import it: a module is changed when it has been executed.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import ModuleType

ADDONS = {"scrapy_walsh.Addon": 0}
#: Seconds, in place of R4's one second and of R5's one and sixty. Not 0: the agenda divides by it.
SHORT = 0.001


def changes(operator: str) -> dict[str, dict[str, Any]]:
    """By module, the names that get other values. *operator*: URL of the server of the list."""
    identity = {
        "product": "ExampleBot/1.0",
        "policy_url": f"{operator}/bot/",
        "blocklist_url": f"{operator}/blocklist.json",
        "schema_url": f"{operator}/blocklist.schema.json",
    }
    return {
        "scrapy.settings.default_settings": {
            "ADDONS": ADDONS,
            "WALSH_IDENTITY": identity,
            "WALSH_FOLLOW_LINKS": True,  # a spider of these tests follows what it likes (R6)
            "WALSH_SCRAPING": True,  # and reads pages (R9)
            "WALSH_PRIVATE_ADDRESSES": "allow",  # their servers are on loopback
            "WALSH_STATE_DIR": "memory",
        },
        "scrapy.settings": {},
        "scrapy_walsh.policy.throttle": {"MIN_REQUEST_INTERVAL": SHORT},
        "scrapy_walsh.policy.gates": {"BACKOFF_BASE": SHORT, "BACKOFF_CAP": 10 * SHORT},
    }


class _Changed(importlib.abc.Loader):
    """Executes a module by its own loader, and then gives names other values."""

    def __init__(self, loader: importlib.abc.Loader, values: dict[str, Any]) -> None:
        self._loader, self._values = loader, values

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self._loader.exec_module(module)
        vars(module).update(self._values)
        if module.__name__ == "scrapy.settings":
            _keep_addons(module)


def _keep_addons(settings: Any) -> None:
    """Keep the add-on on in a project that `startproject` has made: its settings have no add-on."""
    set_module = settings.BaseSettings.setmodule

    def setmodule(self: Any, module: Any, priority: int | str = "project") -> None:
        set_module(self, module, priority)
        if not self.get("ADDONS"):
            self.set("ADDONS", ADDONS, priority)

    settings.BaseSettings.setmodule = setmodule


class _Finder(importlib.abc.MetaPathFinder):
    def __init__(self, changed: dict[str, dict[str, Any]]) -> None:
        self._changed = changed

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name not in self._changed:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = _Changed(spec.loader, self._changed[name])
        return spec


def switch_on(operator: str) -> None:
    """Have each crawl of this process use the add-on; once a process."""
    if not any(isinstance(each, _Finder) for each in sys.meta_path):
        sys.meta_path.insert(0, _Finder(changes(operator)))
