"""R10: validates a blocklist in a child process, where it can neither pause nor outlast a crawl.

A million entries take seconds and a hostile ``pattern`` takes for ever, both with the
interpreter lock held. ``python -m scrapy_walsh.adapters.validate`` reads a JSON line
``{"fallback_schema", "document", "length"}`` and that many octets of body from stdin, and
writes to stdout either ``{"ok": false, "error"}``, or a line ``{"ok": true, "contract",
"updated", "refresh", "warnings", "document", "digest", "count"}`` and the normalised domains, one
a line.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final, cast

from scrapy_walsh.errors import DocumentInvalid
from scrapy_walsh.policy.blocklist import Blocklist, BlocklistBuilder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_MODULE: Final = "scrapy_walsh.adapters.validate"
_ROOT: Final = str(Path(__file__).parents[2])
_MEMORY: Final = 2 * 1024**3  # octets
_CPU: Final = 300  # seconds; the caller's timeout is what ends it, unless the caller died


def validate_in_child(
    body: bytes,
    fallback_schema: dict[str, Any] | None,
    document: str | None,
    timeout: float,
    started: Callable[[Callable[[], None]], None] | None = None,
) -> bytes:
    """Validate ``body`` in a child process and return its output for :func:`builder_of`.

    Blocks for at most ``timeout`` seconds: call it from a thread. ``started`` is given what ends
    the child sooner, for a caller that must not wait any more. Raises DocumentInvalid
    (one line) when the document must not be adopted, or could not be validated in time.
    """
    head = {"fallback_schema": fallback_schema, "document": document, "length": len(body)}
    try:
        code, output = _run_child(json.dumps(head).encode() + b"\n", body, timeout, started)
    except OSError as error:
        raise DocumentInvalid(f"blocklist validator could not be started: {error}") from error
    if code != 0:  # also when part of an answer came: half a list would lift opt-outs
        raise DocumentInvalid(
            f"blocklist cannot be validated: no answer in {timeout:g} s (exit code {code})"
        )
    answer = _head(output)
    if not answer["ok"]:
        raise DocumentInvalid(answer["error"])
    return output


def builder_of(output: bytes) -> BlocklistBuilder:
    """Return an empty builder with the facts of the child's output (not yet its domains)."""
    head = _head(output)
    facts = Blocklist(
        refresh=head["refresh"],
        updated=head["updated"],
        contract=head["contract"],
        warnings=tuple(head["warnings"]),
        document=head["document"],
        digest=head["digest"],
    )
    return BlocklistBuilder(facts)


def blocklist_chunks(output: bytes, size: int = 5_000) -> Iterator[list[str]]:
    """Yield the domains of the child's output, about ``size`` at a time, for the builder.

    Never splits the whole at once: a million lines in one step would pause an event loop.
    """
    start = output.index(b"\n") + 1
    while start < len(output):
        end = output.find(b"\n", min(start + size * 20, len(output) - 1))
        yield output[start:end].decode("ascii").split("\n")
        start = end + 1


def main() -> int:
    """Run as the child. Returns the exit code."""
    _limit_resources()
    gc.disable()  # a short life with a million small objects
    sys.stdout.buffer.write(_answer(sys.stdin.buffer))
    sys.stdout.buffer.flush()
    return 0


def _answer(stdin: BinaryIO) -> bytes:
    from scrapy_walsh.policy.schema import validated  # noqa: PLC0415 - the parent needs no jsonschema

    head = json.loads(stdin.readline())
    body = stdin.read(head["length"])
    try:
        parsed = validated(body, head["fallback_schema"])
    except DocumentInvalid as error:
        return _line({"ok": False, "error": str(error)})
    first = {
        "ok": True,
        "contract": parsed.contract,
        "updated": parsed.updated,
        "refresh": parsed.refresh,
        "warnings": parsed.warnings,
        "document": head["document"],
        "digest": parsed.digest,
        "count": len(parsed.domains),
    }
    return _line(first) + "".join(f"{domain}\n" for domain in parsed.domains).encode("ascii")


def _line(value: dict[str, Any]) -> bytes:
    return json.dumps(value).encode() + b"\n"


def _limit_resources() -> None:
    with contextlib.suppress(ImportError, OSError, ValueError):  # no such limits on Windows
        import resource  # noqa: PLC0415

        resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
        resource.setrlimit(resource.RLIMIT_CPU, (_CPU, _CPU))


def _run_child(
    head: bytes,
    body: bytes,
    timeout: float,
    started: Callable[[Callable[[], None]], None] | None,
) -> tuple[int, bytes]:
    """Return exit code and output. The child reads all before it writes, so pipes suffice.

    Not ``subprocess.run``: joining head and body would copy a large body in one go, with the
    interpreter lock held.
    """
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
            output = cast("BinaryIO", child.stdout).read()
            return child.wait(), output
    finally:
        watchdog.cancel()


def _python_path() -> str:
    return os.pathsep.join(filter(None, [_ROOT, os.environ.get("PYTHONPATH")]))


def _head(output: bytes) -> dict[str, Any]:
    head: dict[str, Any] = json.loads(output[: output.index(b"\n")])
    return head


if __name__ == "__main__":
    sys.exit(main())
