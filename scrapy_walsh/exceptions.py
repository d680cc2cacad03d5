"""The errors of this package, by whose fault they are.

``ConfigError``: the operator's settings. ``SourcesInvalid``: the operator's sources.
``DocumentInvalid``: a document that somebody serves; ``DocumentTooCostly``: one that is not read to
its end. ``ScrapingRefused``: the project's code. ``OwnFault``: ours, or that of the machine or the
project that we run in; of these, ``StateError``: the disk's, and ``StoreAway``: the shared store's.
Each message is one line: what is wrong, where, and what to do. What others wrote has no effect
there, nor in a log, a terminal or a report (``visible``).
"""

from __future__ import annotations


def visible(text: str) -> str:
    """*text* on one line, without anything that a log or a terminal could take for a command.

    Whatever Python calls unprintable is escaped as in its string literals: control characters
    with line ends, bidirectional overrides, lone surrogates. All else stays as it is.
    """
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else ascii(each)[1:-1] for each in text)


def one_line(what: object, limit: int = 300) -> str:
    """What another's error or document says, as part of a message.

    It is made visible, its white space is folded into single spaces, and it is cut after *limit*
    characters.
    """
    return visible(" ".join(str(what).split())[:limit])


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


class OwnFault(WalshError):
    """Something is not known, or could not be kept, because of us (design: the fourth answer).

    What a document says is not known then, which is not the same as a site that cannot be reached:
    nothing is sent that the document might refuse, and the run ends with exit code 1. The message
    names the cause, and says what to do. ``cause``: what is logged once, however many hosts it
    concerns; empty for the message itself.
    """

    def __init__(self, line: str, cause: str = "") -> None:
        super().__init__(line)
        self.cause = cause


class StateError(OwnFault, OSError):
    """The state directory cannot be read or written."""


class StoreAway(StateError):
    """The shared store does not answer: no host can be booked, so nothing may be asked."""
