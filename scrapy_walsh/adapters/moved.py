"""Import paths of version 0.1.0 that projects may have in their settings: each still works.

One warning line for each names the path to write in its place.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from scrapy.utils.misc import load_object

from scrapy_walsh.adapters.events import logger

if TYPE_CHECKING:
    from collections.abc import Mapping

_HERE: Final = "scrapy_walsh.adapters"
#: Where each class is now, by where it was in 0.1.0.
PATHS: Final[Mapping[str, str]] = {
    f"{_HERE}.{old}": f"{_HERE}.{new}"
    for old, new in {
        "autothrottle.AutoThrottle": "extensions.AutoThrottle",
        "middlewares.BackoffMiddleware": "downloadermiddlewares.BackoffMiddleware",
        "middlewares.Fingerprinter": "scheduler_queue.Fingerprinter",
        "middlewares.GateMiddleware": "downloadermiddlewares.GateMiddleware",
        "middlewares.RedirectMiddleware": "downloadermiddlewares.RedirectMiddleware",
        "middlewares.RevalidateMiddleware": "downloadermiddlewares.RevalidateMiddleware",
        "middlewares.ScopeMiddleware": "spidermiddlewares.ScopeMiddleware",
        "queue.HostQueue": "scheduler_queue.HostQueue",
        "wire.Wire": "handler.Handler",
    }.items()
}
_told: set[str] = set()


def current(path: Any) -> Any:
    """*path*; for an import path of 0.1.0, which is logged, the one that its class has now."""
    if not isinstance(path, str) or path not in PATHS:
        return path
    if path not in _told:
        _told.add(path)
        logger.warning(
            "%s is an import path of version 0.1.0: write %s in its place", path, PATHS[path]
        )
    return PATHS[path]


def moved(module: str, name: str) -> Any:
    """The class that *module*, a full name, had as *name* in 0.1.0; AttributeError for others."""
    old = f"{module}.{name}"
    if old not in PATHS:
        raise AttributeError(f"module {module!r} has no attribute {name!r}")
    return load_object(current(old))
