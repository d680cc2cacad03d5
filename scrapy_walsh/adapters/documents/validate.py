"""R10: validates a blocklist, and has a child process say yes or no where that may be costly.

A hostile ``pattern`` takes for ever, with the interpreter lock held, and nothing in a process can
end that. By a *tame* schema (``policy.list.schema``) nothing can take long, so then no child is
needed.

The child runs :func:`main` below, started by this interpreter with ``-I -S``:
neither variables of the environment nor a sitecustomize have a say in it, and its standard library
comes before what this process has on its path, so that no file there (PyPI's ``typing``,
``enum34``) hides a module of Python. It reads from stdin one line of JSON, the task, and then
``length`` octets of body. It answers with a line of JSON on a descriptor of its own: ``{"ok":
true}`` with what the task asked for, and lines after it; ``{"ok": false, "error", "costly"}``, a
real no; or ``{"ok": false, "limit"}``. Any other end says nothing of the document: OwnFault.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from dataclasses import astuple, fields
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from scrapy_walsh.exceptions import DocumentInvalid, DocumentTooCostly, OwnFault, one_line
from scrapy_walsh.policy.list import schema

if TYPE_CHECKING:
    from scrapy_walsh.policy.list.blocklist import Blocklist
    from scrapy_walsh.state.records import StoredDocument

_BOOT: Final = """
import json, sys
task = json.loads(sys.stdin.buffer.readline())
sys.path += [place for place in task["path"] if place not in sys.path]
from scrapy_walsh.adapters.documents.validate import main
main(task)
"""
_ROOT: Final = str(Path(__file__).parents[3])
#: Octets of memory that the validator may take: a list of a million entries needs a third.
_MEMORY: Final = 2 * 1024**3
#: Seconds in which any machine can start a child and validate an empty list.
_TEST_TIME: Final = 60.0
#: Seconds of processor time; the caller's timeout is what ends a child, unless the caller died.
_CPU: Final = 300
_TEST_LIST: Final = b'{"contract": "walsh-research-blocklist/v1", "blocked": []}'


#: The children that are at work.
_CHILDREN: Final[set[subprocess.Popen[bytes]]] = set()


class AtLimit(OwnFault):
    """The child was ended at a limit of time or memory, or by a signal.

    A slow machine cannot be told from a hostile document.
    """


class Stopped(OwnFault):
    """The child was ended because a crawl is: this is no fault, and says nothing of a document."""


def validate(
    found: dict[str, Any], body: bytes, fallback_schema: dict[str, Any] | None, timeout: float
) -> None:
    """As ``policy.list.schema.check_schema``, in at most about *timeout* seconds.

    *found* was read from *body*. Blocks: an event loop calls it in a thread. Also raises OwnFault
    where a child is needed, and does not say yes or no.
    """
    if schema.is_tame(found, fallback_schema):
        schema.check_schema(found, fallback_schema)
    else:
        ask_child({"fallback_schema": fallback_schema}, body, timeout, _MEMORY)


def reread(kept: StoredDocument) -> Blocklist:
    """The list that is *kept* (``schema.reread_blocklist``). Raises DocumentInvalid.

    It does so, too, where only the record of the list is left.
    """
    if not kept.body:
        raise DocumentInvalid("its text is lost: no copy of it is left")
    return schema.reread_blocklist(kept.body, kept.key)


def ask_child(
    task: dict[str, Any], body: bytes, timeout: float, memory: int
) -> tuple[dict[str, Any], bytes]:
    """Have a child process do *task*: the first line of its answer, and what comes after it.

    Blocks for *timeout* seconds at most, and at the first call for a test of the child. *memory*:
    octets. Raises DocumentInvalid (one line) where the child says no; OwnFault where it does not
    say: AtLimit where it was ended, Stopped where :func:`stop_children` did that.
    """
    test_child()
    return _ask(task, body, timeout, memory)


@cache  # what raises is not cached: a machine may have been short of processes for a while
def test_child() -> None:
    """Have a child validate an empty list. Raises OwnFault where none can be had."""
    try:
        _ask({"fallback_schema": {}}, _TEST_LIST, _TEST_TIME, _MEMORY)
    except (AtLimit, DocumentInvalid) as error:  # no document is at fault
        raise OwnFault(str(error)) from error


def _ask(
    task: dict[str, Any], body: bytes, timeout: float, memory: int
) -> tuple[dict[str, Any], bytes]:
    path = [*map(str, sys.path), _ROOT]  # in the order in which this process looks
    head = json.dumps({**task, "length": len(body), "memory": memory, "path": path}).encode()
    try:
        child = _run(b"%s\n%s" % (head, body), timeout)
    except subprocess.TimeoutExpired as error:
        raise AtLimit(_line(f"no answer in {timeout:g} s")) from error
    except (OSError, ValueError) as error:
        raise OwnFault(_line(f"it cannot be started: {one_line(error)}")) from error
    code, (first, _, rest) = child.returncode, child.stdout.partition(b"\n")
    answer = _answer(first) if code == 0 else None  # part of an answer is none
    if answer is None:
        last = one_line(child.stderr.decode("utf-8", "replace").strip().rpartition("\n")[2])
        why = f"it ended with code {code} and no answer{': ' if last else ''}{last}"
        raise (AtLimit if code < 0 else OwnFault)(_line(why))
    if "limit" in answer:
        raise AtLimit(_line(f"it would need more than {memory >> 20} MiB of memory"))
    if not answer["ok"]:
        raise (DocumentTooCostly if answer["costly"] else DocumentInvalid)(answer["error"])
    return answer, rest


def _run(task: bytes, timeout: float) -> subprocess.CompletedProcess[bytes]:
    """Start a child, and wait for its end. Raises Stopped, and the errors of ``subprocess.run``."""
    with subprocess.Popen(  # noqa: S603 - our own module, by our own interpreter
        [sys.executable or os.devnull, "-I", "-S", "-c", _BOOT],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={name: text for name, text in os.environ.items() if not name.startswith("PYTHON")},
    ) as child:
        _CHILDREN.add(child)
        try:
            output, errors = child.communicate(task, timeout)
        except BaseException:
            child.kill()
            raise
        finally:
            is_stopped = child not in _CHILDREN
            _CHILDREN.discard(child)
    if is_stopped:
        raise Stopped("the run was stopped while it was read")
    return subprocess.CompletedProcess(child.args, child.returncode, output, errors)


def stop_children() -> None:
    """End the children that are at work: a crawl is being stopped, and waits for their answers."""
    while _CHILDREN:
        _CHILDREN.pop().kill()


def _answer(line: bytes) -> dict[str, Any] | None:
    """What the child says in *line*; None where a child of ours would not say that."""
    try:
        found = json.loads(line)
    except ValueError:
        return None
    return found if isinstance(found, dict) and "ok" in found else None


def _line(why: str) -> str:
    return (
        f"the child process that reads costly documents gave no answer ({why}): see that "
        f"sys.executable, {sys.executable!r}, is this environment's Python and may start processes"
    )


# -- in the child ---------------------------------------------------------------------------


def main(task: dict[str, Any]) -> None:
    """Do *task*: read its body, and write the answer."""
    with os.fdopen(os.dup(1), "wb") as answer:
        os.dup2(2, 1)  # what else is printed goes to stderr
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C lets a crawl end what it has begun
        gc.disable()  # a short life with a million small objects
        limit("RLIMIT_AS", task["memory"])
        limit("RLIMIT_CPU", _CPU)
        answer.write(_done(task, sys.stdin.buffer))


def limit(name: str, most: int) -> None:
    """Set one limit where this system has it: macOS refuses RLIMIT_AS, and Windows has none."""
    with suppress(ImportError, AttributeError, OSError, ValueError):
        import resource  # noqa: PLC0415

        resource.setrlimit(getattr(resource, name), (most, most))


def _done(task: dict[str, Any], given: Any) -> bytes:
    try:
        body = given.read(task["length"])
        if "format" not in task:
            schema.check_schema(schema.read_document(body), task["fallback_schema"])
            return line_of({"ok": True})
        from scrapy_walsh.policy.formats.links import links_of  # noqa: PLC0415 - for this alone

        links = links_of(task["format"], body, task["content_type"], task["url"])
        names = (field.name for field in fields(links) if field.name != "entries")
        head = {name: getattr(links, name) for name in names}
        return line_of({"ok": True, **head}) + b"".join(map(line_of, map(astuple, links.entries)))
    except DocumentInvalid as error:
        costly = isinstance(error, DocumentTooCostly)
        return line_of({"ok": False, "error": str(error), "costly": costly})
    except MemoryError:
        return b'{"ok": false, "limit": "memory"}\n'


def line_of(value: dict[str, Any] | tuple[Any, ...]) -> bytes:
    """One line of the answer."""
    return json.dumps(value).encode() + b"\n"
