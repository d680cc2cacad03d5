"""Validates a blocklist, in a child process if that may be costly (R10).

A hostile ``pattern`` may run for ever with the interpreter lock held, and nothing in the same
process can end it. A *tame* schema (``policy.list.schema``) is always fast, so it needs no child.

The child runs :func:`main` in this interpreter, with ``-I -S``. So environment variables and a
sitecustomize have no effect. Its standard library comes first on the path. Otherwise another
package there, for example PyPI's ``enum34``, could hide a module of Python.

The child reads the task, a line of JSON, from stdin, and then ``length`` octets of body. It answers
with a line of JSON on its own descriptor:

- ``{"ok": true}`` with the results of the task, which may continue in further lines;
- ``{"ok": false, "error", "costly"}`` if the document is invalid;
- ``{"ok": false, "limit"}`` if it needs too much memory.

Any other end does not concern the document, so it raises OwnFault.
"""

from __future__ import annotations

import errno
import gc
import json
import math
import os
import signal
import subprocess
import sys
import time
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
#: Octets of memory for the validator. A list with a million entries needs a third of that.
_MEMORY: Final = 2 * 1024**3
#: Seconds for a test of the child, enough for any machine.
_TEST_TIME: Final = 60.0
#: A child may take so many seconds by the clock for each second of processor time. A busy machine
#: is not the fault of a document.
PATIENCE: Final = 10
CGROUPS: Final = Path("/sys/fs/cgroup")
OWN_CGROUPS: Final = Path("/proc/self/cgroup")
_TEST_LIST: Final = b'{"contract": "walsh-research-blocklist/v1", "blocked": []}'


_XCPU: Final = getattr(signal, "SIGXCPU", math.inf)  # Windows has neither
_KILL: Final = getattr(signal, "SIGKILL", math.inf)

#: The children that are at work.
_CHILDREN: Final[set[subprocess.Popen[bytes]]] = set()


class AtLimit(OwnFault):
    """The child was ended by a limit of time or memory, or by a signal.

    The cause may be a slow machine or a hostile document.
    """


class NoMemory(OwnFault):
    """The child was ended because this machine's container leaves little memory."""


class Stopped(OwnFault):
    """The child was ended because a crawl is: this is no fault, and says nothing of a document."""


def validate(
    content: dict[str, Any], body: bytes, fallback_schema: dict[str, Any] | None, timeout: float
) -> None:
    """Like ``policy.list.schema.check_schema``, but within about *timeout* seconds of processor
    time.

    *content* was read from *body*. It blocks, so an event loop calls it in a thread. Also raises
    OwnFault if a child is needed and gives no answer.
    """
    if schema.is_tame(content, fallback_schema):
        schema.check_schema(content, fallback_schema)
    else:
        ask_child({"fallback_schema": fallback_schema}, body, timeout, _MEMORY)


def reread(document: StoredDocument) -> Blocklist:
    """Return the list in *document*, a stored record (``schema.reread_blocklist``).

    Raises DocumentInvalid, also if only the record is left and its text is lost.
    """
    if not document.body:
        raise DocumentInvalid("its text is lost: no copy of it is left")
    return schema.reread_blocklist(document.body, document.key)


def ask_child(
    task: dict[str, Any], body: bytes, timeout: float, memory: int
) -> tuple[dict[str, Any], bytes]:
    """Let a child process do *task*. Returns the first line of its answer, and further lines.

    The child may take *timeout* seconds of processor time, and ten times that by the clock. At the
    first call it is tested. *memory*: octets, but at most half of what the container leaves. Raises
    DocumentInvalid if the document is invalid. Raises AtLimit if the child was ended, NoMemory if
    the container is the reason, Stopped if :func:`stop_children` did that, and OwnFault if it gave
    no answer.
    """
    test_child()
    return _ask(task, body, timeout, memory)


@cache  # an exception is not cached, because a machine may lack processes only for a while
def test_child() -> None:
    """Let a child validate an empty list. Raises OwnFault if that fails."""
    try:
        _ask({"fallback_schema": {}}, _TEST_LIST, _TEST_TIME, _MEMORY)
    except (AtLimit, DocumentInvalid) as error:  # our own document cannot be the cause
        raise OwnFault(str(error)) from error


def _ask(
    task: dict[str, Any], body: bytes, timeout: float, memory: int
) -> tuple[dict[str, Any], bytes]:
    path = [*map(str, sys.path), _ROOT]  # in this process's order
    allowed = min(memory, memory_left() // 2)
    limits = {"memory": allowed, "cpu": timeout}
    head = json.dumps({**task, **limits, "length": len(body), "path": path}).encode()
    longest = timeout * PATIENCE
    try:
        child = _run(b"%s\n%s" % (head, body), longest)
    except subprocess.TimeoutExpired as error:
        raise AtLimit(_failure_line(f"no answer in {longest:g} s")) from error
    except (OSError, ValueError) as error:
        raise OwnFault(_failure_line(f"it cannot be started: {one_line(error)}")) from error
    code = child.returncode
    if code == -_XCPU:
        raise AtLimit(_failure_line(f"no answer in {timeout:g} s of processor time"))
    answer_line, _, lines = child.stdout.partition(b"\n")
    # If the child failed, its answer may be cut off.
    answer = _read_answer(answer_line) if code == 0 else None
    has_no_memory = code == errno.ENOMEM or (answer is not None and "limit" in answer)
    if allowed < memory and (has_no_memory or code == -_KILL):
        raise NoMemory(
            f"more than {allowed >> 20} MiB of memory would be needed, which is half of what this "
            "container leaves: give it more memory"
        )
    if has_no_memory:
        raise AtLimit(_failure_line(f"it would need more than {memory >> 20} MiB of memory"))
    if answer is None:
        last_error = one_line(child.stderr.decode("utf-8", "replace").strip().rpartition("\n")[2])
        reason = f"it ended with code {code} and no answer{': ' if last_error else ''}{last_error}"
        raise (AtLimit if code < 0 else OwnFault)(_failure_line(reason))
    if not answer["ok"]:
        raise (DocumentTooCostly if answer["costly"] else DocumentInvalid)(answer["error"])
    return answer, lines


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


def _read_answer(line: bytes) -> dict[str, Any] | None:
    """Return the answer in *line*, or None if it is no answer of our child."""
    try:
        answer = json.loads(line)
    except ValueError:
        return None
    if isinstance(answer, dict) and "ok" in answer:
        return answer
    return None


def _failure_line(reason: str) -> str:
    return (
        f"the child process that reads costly documents gave no answer ({reason}): see that "
        f"sys.executable, {sys.executable!r}, is this environment's Python and may start processes"
    )


# -- in the child ---------------------------------------------------------------------------


def main(task: dict[str, Any]) -> None:
    """Read the body of *task*, do it, and write the answer."""
    with os.fdopen(os.dup(1), "wb") as answer:
        os.dup2(2, 1)  # other output goes to stderr
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # after Ctrl-C a crawl finishes its work
        gc.disable()  # the child makes a million small objects, and soon ends
        with suppress(OSError):  # if memory runs out all the same, the child goes before the crawl
            Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")
        limit("RLIMIT_AS", task["memory"] + _mapped_only())
        limit("RLIMIT_CORE", 0)
        limit("RLIMIT_CPU", math.ceil(time.process_time() + task["cpu"]), 1)
        try:
            answer.write(_do_task(task, sys.stdin.buffer))
        except MemoryError:  # also while the answer to the first one was made
            os._exit(errno.ENOMEM)


def limit(name: str, maximum: int, spare: int = 0) -> None:
    """Set a limit if the system has it. macOS refuses RLIMIT_AS, and Windows has no limits.

    *spare*: by how much the hard limit is larger, so that the signal tells that it was the limit.
    """
    with suppress(ImportError, AttributeError, OSError, ValueError):
        import resource  # noqa: PLC0415

        resource.setrlimit(getattr(resource, name), (maximum, maximum + spare))


def _mapped_only() -> int:
    """Octets of address space that use no memory, for example of libraries."""
    with suppress(OSError, ValueError):
        size, resident = map(int, Path("/proc/self/statm").read_text().split()[:2])
        return (size - resident) * os.sysconf("SC_PAGE_SIZE")
    return 0


def memory_left() -> int:
    """Octets that the container of this process leaves; a very large number without a limit.

    It is the least of all control groups around it, by cgroups(7) of version 2 or 1. The cache of
    files counts as left.
    """
    left = sys.maxsize
    with suppress(OSError):
        for line in OWN_CGROUPS.read_text(encoding="utf-8").splitlines():
            _, controllers, path = line.split(":", 2)
            if controllers in ("", "memory"):
                names = _NAMES[controllers]
                here = CGROUPS / controllers / path.lstrip("/")
                for group in (here, *here.parents):
                    if group.is_relative_to(CGROUPS):
                        left = min(left, _left_in(group, *names))
    return left


#: By controllers of a line of ``/proc/self/cgroup``: the files of the limit and of the use, and the
#: name of cached files in ``memory.stat``.
_NAMES: Final = {
    "": ("memory.max", "memory.current", "inactive_file "),
    "memory": ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file "),
}


def _left_in(group: Path, most: str, used: str, cached: str) -> int:
    """Octets that one control group leaves; a very large number if it has no limit."""
    try:
        maximum = int((group / most).read_text())
        current = int((group / used).read_text())
    except (OSError, ValueError):  # no such group, or the word "max"
        return sys.maxsize
    with suppress(OSError, ValueError):
        for line in (group / "memory.stat").read_text().splitlines():
            if line.startswith(cached):
                current -= int(line.removeprefix(cached))
    return max(maximum - current, 0)


def _do_task(task: dict[str, Any], stream: Any) -> bytes:
    try:
        body = stream.read(task["length"])
        if "format" not in task:
            schema.check_schema(schema.read_document(body), task["fallback_schema"])
            return line_of({"ok": True})
        from scrapy_walsh.policy.formats.links import links_of  # noqa: PLC0415 - only for this task

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
    """Return *value* as one line of the answer."""
    return json.dumps(value).encode() + b"\n"
