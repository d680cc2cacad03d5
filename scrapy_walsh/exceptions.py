"""The errors of this package. Their classes show the cause of a failure.

For example, catch the error of an invalid blocklist:

    >>> from scrapy_walsh import WalshError, check
    >>> try:
    ...     check("https://site.example/", blocklist="no JSON", token="ExampleBot")
    ... except WalshError as error:
    ...     print(type(error).__name__)
    DocumentInvalid

- ``ConfigError``: the operator's settings.
- ``SourcesInvalid``: the operator's file of sources.
- ``DocumentInvalid``: a document that a server sent. ``DocumentTooCostly``: reading it would cost
  too much.
- ``ScrapingRefused``: the project's code.
- ``OwnFault``: our code, this machine or the project around us. ``StateError``: the disk.
  ``StoreAway``: the shared store.

Each message is one line: the problem, the place, and what to do. Text from others is made harmless
first (``visible``), so that it cannot control a log, a terminal or a report.
"""

from __future__ import annotations


def visible(text: str) -> str:
    """Return *text* on one line, without characters that could control a log or a terminal.

    If Python calls a character unprintable, it is escaped as in a string literal. Examples are line
    ends, other control characters, bidirectional overrides and lone surrogates.
    """
    if text.isprintable():
        return text
    return "".join(
        character if character.isprintable() else ascii(character)[1:-1] for character in text
    )


def one_line(value: object, limit: int = 300) -> str:
    """Return the text of *value*, an error or a foreign text, as part of a message.

    White space becomes single spaces, the text is cut after *limit* characters, and unprintable
    characters are escaped (``visible``).
    """
    return visible(" ".join(str(value).split())[:limit])


class WalshError(Exception):
    """The base of all errors that this package raises on purpose."""


class ConfigError(WalshError, ValueError):
    """A setting is unusable. The message has its name, its value and the accepted values."""


class SourcesInvalid(WalshError, ValueError):
    """A file of sources, or an entry in it, is unusable. The message names the place."""


class DocumentInvalid(WalshError, ValueError):
    """A server sent a document (blocklist, schema, feed) that must not be adopted."""


class DocumentTooCostly(DocumentInvalid):
    """To read the document would take too much time, memory or nesting."""


class ScrapingRefused(WalshError, RuntimeError):
    """The spider used a selector on an HTML page, which the identity forbids (R9)."""


class OwnFault(WalshError):
    """We could not read or store something because of a failure on our side.

    If our side could not load a document, we must not treat the site as unreachable. So
    nothing is sent that the document might refuse, and the run ends with exit code 1. The message
    names the cause and what to do. ``cause``: its key in the log. Faults with the same key are
    logged once, even if they concern many hosts. If it is empty, the message is the key.
    """

    def __init__(self, line: str, cause: str = "") -> None:
        super().__init__(line)
        self.cause = cause


class StateError(OwnFault, OSError):
    """The state directory cannot be read or written."""


class StoreAway(StateError):
    """The shared store does not answer. No host can be booked, so no request may be sent."""
