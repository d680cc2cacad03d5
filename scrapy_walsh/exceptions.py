"""The errors of this package, by whose fault they are.

``ConfigError``: the operator's settings. ``SourcesInvalid``: the operator's sources.
``DocumentInvalid``: a document that somebody serves; ``DocumentTooCostly``: one that is not read to
its end. ``ScrapingRefused``: the project's code. ``StateError``: the disk's.
``StoreAway``: the shared store's.
Each message is one line: what is wrong, where, and what to do.
"""

from __future__ import annotations


class WalshError(Exception):
    """Base of every error that this package raises on purpose."""


class ConfigError(WalshError, ValueError):
    """A setting that cannot be used: the message names it, its value, and what is accepted."""


class SourcesInvalid(WalshError, ValueError):
    """A sources file, or an entry of it, that cannot be used: the message names the place."""


class DocumentInvalid(WalshError, ValueError):
    """A served document (blocklist, schema, feed) that must not be adopted."""


class DocumentTooCostly(DocumentInvalid):
    """A served document that would take too much time, memory or nesting to read."""


class ScrapingRefused(WalshError, RuntimeError):
    """Selectors were used on an HTML page, where R9 forbids it."""


class StateError(WalshError, OSError):
    """The state directory cannot be read or written."""


class StoreAway(StateError):
    """The shared store does not answer: no host can be booked, so nothing may be asked."""
