"""A look at a project's crawls in a process of its own, which can open no connection.

``walsh doctor`` and ``walsh plan`` have the project's own code run, whatever it tries. Questions
and answers are JSON objects.
"""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import warnings
from contextlib import contextmanager
from logging.handlers import BufferingHandler
from threading import Timer
from typing import TYPE_CHECKING, Any, Final

from scrapy_walsh.exceptions import WalshError, one_line
from scrapy_walsh.terminal import leave_out_queries, leaves_out_queries

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

#: Events of ``sys.audit`` that use the network, and the argument that has the other side's name.
_ASKING: Final = {
    "socket.connect": 1,
    "socket.sendto": 1,
    "socket.sendmsg": 1,
    "socket.getaddrinfo": 0,
    "socket.gethostbyname": 0,
}
#: Settings of a project that a crawl of ours does without: they write, or keep it from its end.
APART: Final[Mapping[str, Any]] = {
    "ITEM_PIPELINES": {},
    "FEEDS": {},
    "JOBDIR": None,
    "LOG_FILE": None,
    "WALSH_METRICS": None,
    "TWISTED_REACTOR_ENABLED": True,
}


#: The name in place of a spider, if the project has none.
NO_SPIDER: Final = "(no spider yet)"
#: The member of an answer that tells whether queries are hidden, as the spider's settings say.
_HIDES: Final = "hides_queries"
#: Seconds after which a person at the terminal is told what goes on.
_SILENCE: Final = 2.0


class NoAnswerError(WalshError):
    """The process gave no answer. Its text says why, in one line."""


@contextmanager
def heard(name: str = "scrapy_walsh") -> Iterator[list[logging.LogRecord]]:
    """The records of the logger *name*, and of those below it, meanwhile."""
    handler = BufferingHandler(sys.maxsize)
    logger = logging.getLogger(name)
    logger.addHandler(handler)
    try:
        yield handler.buffer
    finally:
        logger.removeHandler(handler)


def ask(module: str, arguments: Mapping[str, Any], timeout: float) -> dict[str, Any]:
    """What ``python -m MODULE`` answers to *arguments*, in *timeout* seconds; NoAnswerError."""
    path = os.pathsep.join(os.path.abspath(folder) for folder in sys.path)  # noqa: PTH100  "" is here
    progress = Timer(_SILENCE, _tell_progress)
    progress.start()
    try:
        done = subprocess.run(  # noqa: S603  our own module, by our own interpreter
            [sys.executable, "-m", module, json.dumps(arguments)],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            env={**os.environ, "PYTHONPATH": path},
            timeout=timeout,
            check=False,
        )
        answer: dict[str, Any] = json.loads(done.stdout)
    except subprocess.TimeoutExpired:
        raise NoAnswerError(f"took longer than {timeout:g} s") from None
    except OSError as error:
        raise NoAnswerError(f"cannot be done: {one_line(error)}") from error
    except ValueError:
        last_line = done.stderr.strip().splitlines()[-1:] or ["it said nothing"]
        ending = f"ended with exit code {done.returncode}: {one_line(last_line[0])}"
        raise NoAnswerError(ending) from None
    finally:
        progress.cancel()
    if answer.pop(_HIDES):
        leave_out_queries()
    return answer


def _tell_progress() -> None:
    if sys.stderr is not None and sys.stderr.isatty():
        text = "looking at the project's spiders; a large project takes a minute"
        print(text, file=sys.stderr, flush=True)


def answer(look: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    """In that process: write what *look* answers. It ends here, whatever is still under way."""
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as file:
        os.dup2(2, 1)  # what the project prints
        warnings.simplefilter("ignore")
        os.environ.pop("SHUB_JOBKEY", None)  # the look is no job, and must post no lease
        answer = look(json.loads(sys.argv[1]))
        file.write(json.dumps({**answer, _HIDES: leaves_out_queries()}))
    sys.stderr.flush()
    os._exit(0)


def shut_network() -> None:
    """Refuse every connection of this process from now on, but to sockets that are files."""

    def refuse(event: str, arguments: tuple[Any, ...]) -> None:
        if event not in _ASKING:
            return
        whom = arguments[_ASKING[event]]
        if event.startswith("socket.get") or isinstance(whom, tuple):
            name = whom[0] if isinstance(whom, tuple) else whom
            raise ConnectionRefusedError(f"this command allows no connection, here to {name}")

    sys.addaudithook(refuse)
