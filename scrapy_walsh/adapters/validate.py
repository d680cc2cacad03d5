"""R10: validates a blocklist in a child process, where it would pause the crawl's own.

To validate a million entries takes seconds, and a hostile ``pattern`` takes for ever, both with the
interpreter lock held. Storing a long list holds it too (``adapters.bulk``).

The child is ``python -m scrapy_walsh.adapters.child``. It reads from stdin one line of JSON, the
task, with the members ``fallback_schema``, ``document`` and ``length``, and then ``length`` octets
of body. It writes to stdout either ``{"ok": false, "error"}``, or a line ``{"ok": true, "contract",
"updated", "refresh", "warnings", "document", "digest", "inline", "count"}``, the normalised
domains, one a line, and a last line that says what could not be stored (``adapters.bulk``). Its
other tasks are large answers of sources (``adapters.apart``).
"""

from __future__ import annotations

import contextlib
import json
import mmap
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final, NamedTuple, cast

from scrapy_walsh.exceptions import DocumentInvalid, StateError
from scrapy_walsh.policy.blocklist import Blocklist, BlocklistBuilder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from io import BufferedReader

    from scrapy_walsh.policy.schema import ParsedBlocklist

_MODULE: Final = "scrapy_walsh.adapters.child"
_ROOT: Final = str(Path(__file__).parents[2])
_PIECE: Final = 64 * 1024  # octets; no piece is long enough to pause an event loop
_PRIVATE: Final[dict[str, Any]] = {} if sys.platform == "win32" else {"access": mmap.ACCESS_COPY}


class NoAnswer(DocumentInvalid):
    """The child was not started, was too slow, or was killed: that says nothing of a document."""


class Output(NamedTuple):
    """The child's answer: its first line, the domains in pieces of whole lines, its last line."""

    head: dict[str, Any]
    pieces: list[bytes]
    tail: dict[str, Any]


def validate_in_child(
    body: bytes,
    fallback_schema: dict[str, Any] | None,
    document: str | None,
    timeout: float,
    started: Callable[[Callable[[], None]], None] | None = None,
) -> Output:
    """Validate ``body`` in a child process and return its output for :func:`builder_of`.

    As :func:`ask_child`, whose other parameters these are.
    """
    task = {"fallback_schema": fallback_schema, "document": document}
    return ask_child(task, body, timeout, started)


def ask_child(
    task: dict[str, Any],
    body: bytes,
    timeout: float,
    started: Callable[[Callable[[], None]], None] | None = None,
) -> Output:
    """Have a child process do ``task``.

    Blocks for at most ``timeout`` seconds and the time that the disk takes: call it from a
    thread. ``started`` is called with a function that kills the child, for a caller that cannot
    wait any longer. Raises DocumentInvalid (one line) when the document must not be adopted;
    NoAnswer when the child did not say; StateError when what the task needs cannot be read.
    """
    began = time.monotonic()
    try:
        code, lines = run_child(task, body, timeout, started)
    except OSError as error:
        raise NoAnswer(f"blocklist validator could not be started: {error}") from error
    if code != 0:  # also when part of an answer came: half a list would lift opt-outs
        late = time.monotonic() - began >= timeout
        why = f"no answer in {timeout:g} s" if late else f"its process ended with code {code}"
        raise NoAnswer(f"blocklist cannot be validated: {why}")
    answer = json.loads(lines.pop(0))
    if not answer["ok"]:
        raise (StateError if "disk" in answer else DocumentInvalid)(answer["error"])
    last, _, tail = lines.pop().removesuffix(b"\n").rpartition(b"\n")
    return Output(answer, [*lines, last + b"\n"] if last else lines, json.loads(tail))


def read_in_child(
    body: bytes, fallback_schema: dict[str, Any] | None, document: str | None, timeout: float
) -> Blocklist:
    """The list in ``body``, by a child process; as :func:`validate_in_child`, for who may wait."""
    output = validate_in_child(body, fallback_schema, document, timeout)
    builder = builder_of(output)
    for domains in blocklist_chunks(output):
        builder.add(domains)
    return builder.build()


def builder_of(output: Output) -> BlocklistBuilder:
    """Return an empty builder with the facts of the child's output (not yet its domains)."""
    head = output.head
    facts = Blocklist(
        refresh=head["refresh"],
        updated=head["updated"],
        contract=head["contract"],
        warnings=tuple(head["warnings"]),
        document=head["document"],
        digest=head["digest"],
    )
    return BlocklistBuilder(facts, head["count"], zeroed_memory)


def zeroed_memory(octets: int) -> memoryview:
    """Memory of this process alone that the system zeroes page by page, as each is first used.

    For the table of a long list: 32 MB that are zeroed in one step can pause an event loop.
    """
    return memoryview(mmap.mmap(-1, octets, **_PRIVATE))


def blocklist_chunks(output: Output, size: int = 2_000) -> Iterator[list[str]]:
    """Yield the domains of the child's output, at most about ``size`` at a time, for the builder.

    Never splits the whole at once: a million lines in one step would pause an event loop.
    """
    for piece in output.pieces:
        start = 0
        while start < len(piece):
            end = piece.find(b"\n", min(start + size * 20, len(piece) - 1))
            yield piece[start:end].decode("ascii").split("\n")
            start = end + 1


def validation(body: bytes, task: dict[str, Any], **more: Any) -> tuple[bytes, bytes]:
    """Return the first line of the answer, with ``more`` members, and all domains.

    Raises DocumentInvalid.
    """
    from scrapy_walsh.policy.schema import validated  # noqa: PLC0415 - the parent needs no jsonschema

    return lines_of(validated(body, task["fallback_schema"]), task, **more)


def lines_of(parsed: ParsedBlocklist, task: dict[str, Any], **more: Any) -> tuple[bytes, bytes]:
    """Return the first line of the answer to ``task``, with ``more`` members, and all domains."""
    facts = {
        "ok": True,
        "contract": parsed.contract,
        "updated": parsed.updated,
        "refresh": parsed.refresh,
        "warnings": parsed.warnings,
        "document": task["document"],
        "digest": parsed.digest,
        "inline": parsed.inline,
        "count": len(parsed.domains),
    }
    domains = "".join(f"{domain}\n" for domain in parsed.domains)
    return line_of({**facts, **more}), domains.encode("ascii")


def line_of(value: dict[str, Any] | tuple[Any, ...]) -> bytes:
    """One line of the child's answer."""
    return json.dumps(value).encode() + b"\n"


def run_child(
    task: dict[str, Any],
    body: bytes,
    timeout: float,
    started: Callable[[Callable[[], None]], None] | None = None,
) -> tuple[int, list[bytes]]:
    """Return exit code and output: the first line, then pieces of whole lines.

    The child reads all before it writes, so pipes suffice. Raises OSError where it cannot be
    started. Not ``subprocess.run``: one large read or join would copy it with the interpreter
    lock held.
    """
    head = line_of({**task, "length": len(body)})
    child = subprocess.Popen(  # noqa: S603 - our own module, by our own interpreter
        [sys.executable, "-m", _MODULE],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": _python_path()},
    )
    if started is not None:
        started(child.kill)
    watchdog = threading.Timer(timeout, child.kill)
    watchdog.start()
    try:
        with child:
            with contextlib.suppress(BrokenPipeError), cast("BinaryIO", child.stdin) as stdin:
                stdin.writelines((head, body))
            stdout = cast("BufferedReader", child.stdout)
            first = stdout.readline()
            watchdog.cancel()
            if started is not None:  # the answer is there: do not kill what stores the document
                started(lambda: None)
            lines = [first, *_whole_lines(stdout)]
            return child.wait(), lines
    finally:
        watchdog.cancel()


def _whole_lines(stdout: BufferedReader) -> Iterator[bytes]:
    """Yield the rest of the output in pieces that end with a line."""
    begun = b""
    while piece := stdout.read1(_PIECE):
        lines, newline, rest = piece.rpartition(b"\n")
        if newline:
            yield begun + lines + newline
            begun = rest
        else:
            begun += piece
    if begun:
        yield begun


def _python_path() -> str:
    return os.pathsep.join(filter(None, [_ROOT, os.environ.get("PYTHONPATH")]))
