"""What a person reads in a log, a terminal or a report: counts with their nouns, one line each.

Nothing that a server sent may have an effect there (``visible``).
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
    """*what* as text, its white space folded into single spaces, cut after *limit* characters."""
    return " ".join(str(what).split())[:limit]


def plural(count: int, noun: str, many: str = "") -> str:
    """A count with its noun, for a person: ``1 request``, ``1,204 requests``."""
    return f"{count:,} {noun if count == 1 else many or noun + 's'}"
