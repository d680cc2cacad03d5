"""The child process that ``validate`` describes: one task, one answer."""

from __future__ import annotations

import gc
import json
import os
import signal
import sys
from contextlib import suppress
from dataclasses import astuple
from typing import Any, Final

from scrapy_walsh.exceptions import DocumentInvalid, DocumentTooCostly

_CPU: Final = 300  # seconds; the caller's timeout is what ends it, unless the caller died


def main(task: dict[str, Any]) -> None:
    """Do *task*: read its body, and write the answer."""
    with os.fdopen(os.dup(1), "wb") as answer:
        os.dup2(2, 1)  # what else is printed goes to stderr
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C lets a crawl end what it has begun
        gc.disable()  # a short life with a million small objects
        limit("RLIMIT_AS", task["memory"])
        limit("RLIMIT_CPU", _CPU)
        answer.write(_answer(task, sys.stdin.buffer))


def limit(name: str, most: int) -> None:
    """Set one limit where this system has it: macOS refuses RLIMIT_AS, and Windows has none."""
    with suppress(ImportError, AttributeError, OSError, ValueError):
        import resource  # noqa: PLC0415

        resource.setrlimit(getattr(resource, name), (most, most))


def _answer(task: dict[str, Any], given: Any) -> bytes:
    try:
        body = given.read(task["length"])
        return links(task, body) if "format" in task else validation(task, body)
    except DocumentInvalid as error:
        costly = isinstance(error, DocumentTooCostly)
        return line_of({"ok": False, "error": str(error), "costly": costly})
    except MemoryError:
        return b'{"ok": false, "limit": "memory"}\n'


def validation(task: dict[str, Any], body: bytes) -> bytes:
    """Yes, where the blocklist in *body* is valid by its schema. Raises DocumentInvalid."""
    from scrapy_walsh.policy.list import schema  # noqa: PLC0415 - one task, one import

    schema.check_schema(schema.read_document(body), task["fallback_schema"])
    return line_of({"ok": True})


def links(task: dict[str, Any], body: bytes) -> bytes:
    """What a source's document has: a line, and a line for each entry. Raises DocumentInvalid."""
    from scrapy_walsh.policy.formats.links import links_of  # noqa: PLC0415 - one task, one import

    found = links_of(task["format"], body, task["content_type"], task["url"])
    head = {"headings": found.headings, "note": found.note, "children": found.children}
    return line_of({"ok": True, **head}) + b"".join(map(line_of, map(astuple, found.entries)))


def line_of(value: dict[str, Any] | tuple[Any, ...]) -> bytes:
    """One line of the answer."""
    return json.dumps(value).encode() + b"\n"
