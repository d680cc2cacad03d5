"""The child process that :mod:`scrapy_walsh.adapters.validate` describes: one task, one answer."""

from __future__ import annotations

import contextlib
import gc
import json
import signal
import sys
from dataclasses import astuple
from typing import TYPE_CHECKING, Any, Final

from scrapy_walsh.adapters.validate import line_of, validation
from scrapy_walsh.exceptions import DocumentInvalid, DocumentTooCostly, StateError

if TYPE_CHECKING:
    from collections.abc import Iterator

_MEMORY: Final = 2 * 1024**3  # octets
_CPU: Final = 300  # seconds; the caller's timeout is what ends it, unless the caller died


def main() -> int:
    """Run as the child. Returns the exit code."""
    gc.disable()  # a short life with a million small objects
    stdin, stdout = sys.stdin.buffer, sys.stdout.buffer
    task = json.loads(stdin.readline())
    _limit_resources(task.get("memory", _MEMORY))
    body = stdin.read(task["length"])
    for piece in _answer(task, body):
        stdout.write(piece)
        stdout.flush()  # the first line ends the time limit
    return 0


def _answer(task: dict[str, Any], body: bytes) -> Iterator[bytes]:
    try:
        if "place" in task:
            from scrapy_walsh.adapters import bulk  # noqa: PLC0415 - nor a store

            yield from bulk.perform(task, body)
        elif "format" in task:
            yield from links(body, task)
        else:
            yield from (*validation(body, task), line_of({}))
    except DocumentInvalid as error:
        costly = isinstance(error, DocumentTooCostly)
        yield line_of({"ok": False, "error": str(error), "costly": costly})
    except StateError as error:
        yield line_of({"ok": False, "error": str(error), "disk": True})


def links(body: bytes, task: dict[str, Any]) -> tuple[bytes, bytes]:
    """Return the first line of the answer about a source's document, and a line for each entry.

    Raises DocumentInvalid.
    """
    from scrapy_walsh.policy.links import links_of  # noqa: PLC0415 - the other tasks need no readers

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C lets a crawl end what it has begun
    found = links_of(task["format"], body, task["content_type"], task["url"])
    entries = (line_of(astuple(entry)) for entry in found.entries)
    head = {"headings": found.headings, "note": found.note, "children": found.children}
    return line_of({"ok": True, **head}), b"".join(entries)


def _limit_resources(memory: int) -> None:
    with contextlib.suppress(ImportError, OSError, ValueError):  # no such limits on Windows
        import resource  # noqa: PLC0415

        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
        resource.setrlimit(resource.RLIMIT_CPU, (_CPU, _CPU))


if __name__ == "__main__":
    sys.exit(main())
