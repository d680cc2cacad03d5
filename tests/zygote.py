"""Starts ``python -m scrapy``, ``python -m scrapy_walsh`` and benches without importing them anew.

Theory of operation. Most of the processor time of these tests went into starting interpreters:
some 1,500 commands, each of which imports the same thousand modules. :func:`run` and
:class:`Popen` are those of :mod:`subprocess`, with one difference. Where a command is one of
those above and nothing about it needs an interpreter of its own, they ask a server, which has
imported everything already, to fork a child that runs it.

- The server is this file, run as a program; one for each process that asks, started by the first
  question. It has one thread and no reactor, since a fork undoes neither. It ends, and what it
  forked with it, when its control socket closes: when the process that asked ends.
- A question is one datagram on the control socket: four file descriptors, which are the child's
  stdin, stdout and stderr and one end of a socket pair of its own. The server forks; the child
  reads the rest of the question (words, directory, environment) from that socket, so the server
  never waits for anybody.
- On the same socket the child writes its process id, and the server, once it has reaped the child,
  its wait status. Signals go to the process id, as ever.
- A child can ask the server in turn: what a command starts (the validator of a list, the crawls of
  ``conformance``) is forked like the command itself. Its :mod:`subprocess` has this Popen.
- The child becomes what ``python -m`` would have made: environment, directory, ``sys.path``,
  ``sys.argv``, default signal handlers. It ends as an interpreter does (threads joined, exit
  handlers, garbage with a finalizer, buffers flushed), but does not take the modules apart, which
  would take as long as a short crawl: a file that is still open then, and that a module or the
  reactor holds, is not written to its end.

What needs an interpreter of its own is started by :mod:`subprocess`: another program, a module that
is neither of these packages nor a file in the command's directory,
``preexec_fn``, another value of what an interpreter reads at its start (``PYTHON*``, locale), a
``sitecustomize`` or another file on the command's path that has the name of a module which the
server holds, a terminal, everything where ``WALSH_TESTS_PLAIN`` is set, and any system without
``fork``. :func:`why_not` decides that. What it cannot see, a test must say by calling
:mod:`subprocess`: a measurement of memory, hashes that differ from one process to the next.

A ``sitecustomize`` that changes nothing but this package, or clocks of :mod:`time`, can be run in
a forked child as well, before the package is imported: ``WALSH_TESTS_BROKEN`` in the command's
environment says so, by 1, or by the module whose commands it changes. For one that only looks on
(an audit hook), the package is not imported anew: ``WALSH_TESTS_WATCHED``.
"""

from __future__ import annotations

import atexit
import copy
import functools
import gc
import importlib.util
import json
import locale
import logging
import logging.config
import os
import pkgutil
import platform
import selectors
import signal
import socket
import struct
import subprocess
import sys
import sysconfig
import tempfile
import threading
import time
import types
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

ROOT: Final = Path(__file__).parents[1]
#: Set in the environment of the tests: every command has an interpreter of its own.
PLAIN: Final = "WALSH_TESTS_PLAIN"
#: Set in a command's environment: its ``sitecustomize`` is of use to a forked child, too.
BROKEN: Final = "WALSH_TESTS_BROKEN"
#: Set in a command's environment: its ``sitecustomize`` changes nothing that was imported.
WATCHED: Final = "WALSH_TESTS_WATCHED"
#: What the server can run: these, and their modules.
PACKAGES: Final = frozenset({"scrapy", "scrapy_walsh"})
#: What Scrapy Cloud starts in a job's container.
START_CRAWL: Final = Path(sys.executable).with_name("start-crawl")
#: This one sets clocks before any import.
CLOCK: Final = "scrapy_walsh.commands.plan_process"
#: And these programs. One measures how an interpreter starts, one sets clocks before any import.
SCRIPTS: Final = frozenset([*(ROOT / "bench").glob("*.py"), START_CRAWL]) - {
    ROOT / "bench" / "hanging.py",
    ROOT / "bench" / "start.py",
}
#: Remembered: a test may set another.
_PYTHON: Final = sys.executable
#: What a crawl imports besides this package, Scrapy's commands, and what Scrapy's settings name.
_WARM: Final = (
    *(
        "certifi",
        "feedparser",
        "itemadapter",
        "jsonschema",
        "markdown_it",
        "packaging.requirements",
    ),
    *("requests", "resource", "shtab"),
    *("scrapy.cmdline", "scrapy.core.downloader.contextfactory", "scrapy.core.downloader.tls"),
    *("scrapy.core.downloader.handlers.http11", "scrapy.core.downloader.webclient"),
    *("scrapy.core.engine", "scrapy.core.scheduler", "scrapy.core.scraper", "scrapy.dupefilters"),
    *("scrapy.crawler", "scrapy.exporters", "scrapy.extensions.remote_control"),
    *("scrapy.extensions.feedexport", "scrapy.extensions.telnet", "scrapy.logformatter"),
    *("scrapy.pqueues", "scrapy.resolver", "scrapy.spiderloader", "scrapy.squeues"),
    *("scrapy.statscollectors", "scrapy.utils.log", "scrapy.utils.ossignal"),
    *("scrapy.utils.serialize", "twisted.internet.asyncioreactor", "xml.sax.expatreader"),
)
#: What an interpreter reads once, at its start.
_AT_THE_START: Final = ("PYTHON", "LC_", "LANG")
#: Of these: what a child can still change, or what changes nothing that a command shows.
_LATER: Final = frozenset({"PYTHONPATH", "PYTHONDONTWRITEBYTECODE"})
#: Names with the values that every interpreter here has without them.
_AS_EVER: Final = {("PYTHONIOENCODING", locale.getpreferredencoding(do_setlocale=False).lower())}
#: Where the server's modules are from.
_EVERYWHERE: Final = {ROOT} | {
    Path(sysconfig.get_path(name), below).resolve()
    for name in ("stdlib", "platstdlib", "purelib", "platlib")
    for below in ("", "lib-dynload")
}
_NUMBER: Final = struct.Struct("!i")


def warm(*names: str) -> None:
    """Import what every crawl and command would, and *names*; no fork need look for garbage in it.

    AssertionError where that has installed a reactor.
    """
    assert platform.platform()  # remembered, like what it asks another program for
    default_settings = importlib.import_module("scrapy.settings.default_settings")
    bases = ("EXTENSIONS_BASE", "DOWNLOADER_MIDDLEWARES_BASE", "SPIDER_MIDDLEWARES_BASE")
    seats = [path.rpartition(".")[0] for base in bases for path in getattr(default_settings, base)]
    for name in [*_WARM, *seats, *_below("scrapy.commands"), *_below("scrapy_walsh"), *names]:
        with suppress(ImportError):  # of an extra that is not installed, or of another Scrapy
            importlib.import_module(name)
    assert "twisted.internet.reactor" not in sys.modules, "a fork cannot undo an import"
    _remember_entry_points()
    _remember_versions()
    _clear_levels_once()
    _copy_settings_in_one_step()
    gc.collect()
    gc.freeze()


def _remember_versions() -> None:
    """Scrapy's first line of a log has those of ten packages, each read from a file."""
    versions = importlib.import_module("scrapy.utils.versions")
    if hasattr(versions, "_version"):
        versions._version = functools.cache(versions._version)  # type: ignore[attr-defined]
        versions.get_versions()


def _clear_levels_once() -> None:
    """Scrapy's configuration of logging sets sixty levels: each would look at every logger."""
    configurator, manager = logging.config.DictConfigurator, logging.Manager
    whole, clear = configurator.configure, manager._clear_cache  # type: ignore[attr-defined]

    def configure(configuration: logging.config.DictConfigurator) -> None:
        manager._clear_cache = _nothing  # type: ignore[attr-defined]
        try:
            whole(configuration)
        finally:
            manager._clear_cache = clear  # type: ignore[attr-defined]
            clear(logging.root.manager)

    configurator.configure = configure  # type: ignore[method-assign]


def _copy_settings_in_one_step() -> None:
    """Scrapy copies its 240 settings twice a crawl, each as :mod:`copy` copies any object."""
    settings = importlib.import_module("scrapy.settings")
    atomic = frozenset({bool, float, int, str, type(None)})

    def copied(attribute: Any, memo: dict[int, Any]) -> Any:
        made = object.__new__(type(attribute))
        value = attribute.value
        made.value = value if type(value) in atomic else copy.deepcopy(value, memo)
        made.priority = attribute.priority
        return made

    settings.SettingsAttribute.__deepcopy__ = copied


def _nothing(*_: object) -> None:
    """Do nothing."""


def _remember_entry_points() -> None:
    """Scrapy asks for them at each start: from now on only what a command adds is looked for."""

    def of(path: list[str]) -> list[metadata.EntryPoint]:
        found = metadata.distributions(path=path)
        return [each for one in found for each in one.entry_points]

    known = list(sys.path)
    held = of(known)

    def entry_points(**wanted: str) -> metadata.EntryPoints:
        added = of([each for each in sys.path if each not in known])
        return metadata.EntryPoints([*held, *added]).select(**wanted)

    cmdline = importlib.import_module("scrapy.cmdline")
    cmdline.entry_points = entry_points  # type: ignore[attr-defined]


def _below(package: str) -> Iterable[str]:
    """The modules of *package*, programs apart: those are to be run, not imported."""
    path = importlib.import_module(package).__path__
    found = pkgutil.walk_packages(path, f"{package}.", onerror=lambda _: None)
    return [each.name for each in found if not each.name.endswith("__main__")]


# -- who asks -------------------------------------------------------------------------------


def run(
    words: Sequence[str],
    *,
    input: str | bytes | None = None,  # noqa: A002  subprocess's name
    capture_output: bool = False,
    timeout: float | None = None,
    check: bool = False,
    **options: Any,
) -> subprocess.CompletedProcess[Any]:
    """As :func:`subprocess.run`; raises what that raises."""
    if input is not None:
        options["stdin"] = subprocess.PIPE
    if capture_output:
        options["stdout"] = options["stderr"] = subprocess.PIPE
    with Popen(words, **options) as process:
        try:
            stdout, stderr = process.communicate(input, timeout=timeout)
        except BaseException:
            process.kill()
            raise
    code = process.returncode
    if check and code:
        raise subprocess.CalledProcessError(code, process.args, stdout, stderr)
    return subprocess.CompletedProcess(process.args, code, stdout, stderr)


class Popen(subprocess.Popen[Any]):
    """As :class:`subprocess.Popen`; :attr:`forked` says whether the server made the process."""

    _status: socket.socket | None = None

    @property
    def forked(self) -> bool:
        """Whether the process is a child of the server."""
        return self._status is not None

    def _execute_child(self, args: Any, executable: Any, preexec_fn: Any, *more: Any) -> None:
        _, pass_fds, cwd, env, _, _, shell, *pipes = more
        pipes, rest = pipes[:6], pipes[6:]
        plain = executable is None and preexec_fn is None and not shell and not pass_fds
        streams = [given if given >= 0 else own for own, given in enumerate(_child_ends(pipes))]
        environment = os.environ if env is None else env
        terminal = any(os.isatty(each) for each in streams)
        if not plain or terminal or why_not(args, cwd, environment) is not None:
            super()._execute_child(args, executable, preexec_fn, *more)
            return
        question = {
            "words": list(args[1:]),
            "directory": os.fspath(cwd or Path.cwd()),
            "environment": dict(environment),
            "session": bool(rest[5]),  # start_new_session
        }
        self._status = _server().ask(question, streams)
        self.pid = _NUMBER.unpack(_read(self._status, _NUMBER.size))[0]
        self._child_created = True
        self._close_pipe_fds(*pipes)

    def _internal_poll(self, *given: Any, **more: Any) -> int | None:
        if self._status is None:
            return super()._internal_poll(*given, **more)  # type: ignore[misc]
        if self._waitpid_lock.acquire(blocking=False):  # else: another thread waits for it
            try:
                self._hear(0)
            finally:
                self._waitpid_lock.release()
        return self.returncode

    def _wait(self, timeout: float | None) -> int:
        if self._status is None:
            return super()._wait(timeout)  # type: ignore[misc]
        with self._waitpid_lock:
            if not self._hear(timeout):
                raise subprocess.TimeoutExpired(self.args, timeout or 0)
        return self.returncode

    def _hear(self, timeout: float | None) -> bool:
        """Take the wait status, for which *timeout* seconds are waited; whether it is there."""
        assert self._status is not None
        if self.returncode is None:
            self._status.settimeout(timeout)
            try:
                status = _read(self._status, _NUMBER.size)
            except (BlockingIOError, TimeoutError):
                return False
            self._handle_exitstatus(*_NUMBER.unpack(status))
            self._status.close()
        return True


# -- commands that a shell starts -----------------------------------------------------------

#: ``scrapy`` and ``walsh`` as a shell finds them: each hands its words, its environment and its
#: streams to the process that runs the tests, and ends as the command did.
_TYPED: Final = """#!{python} -IS
import json, os, socket, sys
with socket.socket(socket.AF_UNIX) as asks:
    asks.connect({place!r})
    told = json.dumps([{module!r}, sys.argv[1:], os.getcwd(), dict(os.environ)]).encode()
    socket.send_fds(asks, [len(told).to_bytes(4, "big")], [0, 1, 2])
    asks.sendall(told)
    code = int(asks.recv(9) or b"1")
sys.exit(code)
"""
_COMMANDS: Final = {"scrapy": "scrapy", "walsh": "scrapy_walsh"}


@contextmanager
def typed() -> Iterator[str]:
    """A directory for PATH: what a shell starts from there by name is forked, too.

    What needs an interpreter of its own gets one, as with :class:`Popen`.
    """
    with tempfile.TemporaryDirectory(prefix="typed") as directory:
        place = str(Path(directory, "asks"))
        for name, module in _COMMANDS.items():
            program = Path(directory, name)
            program.write_text(_TYPED.format(python=_PYTHON, place=place, module=module))
            program.chmod(0o755)
        with socket.socket(socket.AF_UNIX) as hears:
            hears.bind(place)
            hears.listen()
            threading.Thread(target=_take_all, args=(hears,), daemon=True).start()
            yield directory
            hears.shutdown(socket.SHUT_RDWR)


def _take_all(hears: socket.socket) -> None:
    with suppress(OSError):  # closed: the end
        while True:
            connection = hears.accept()[0]
            threading.Thread(target=_take, args=(connection,), daemon=True).start()


def _take(connection: socket.socket) -> None:
    """Run what one of those programs was given."""
    with connection:
        size, streams, *_ = socket.recv_fds(connection, 4, 3)
        text = _read(connection, int.from_bytes(size, "big"))
        module, words, directory, environment = json.loads(text)
        given = dict(zip(("stdin", "stdout", "stderr"), streams, strict=True))
        try:
            command = [_PYTHON, "-m", module, *words]
            code = run(command, cwd=directory, env=environment, **given).returncode
        finally:
            for stream in streams:
                os.close(stream)
        connection.sendall(b"%d" % code)


def _child_ends(pipes: Sequence[int]) -> tuple[int, int, int]:
    """Of the pipes that subprocess made (a -1: none), the child's stdin, stdout and stderr."""
    return pipes[0], pipes[3], pipes[5]


def why_not(words: Any, directory: Any, environment: Mapping[str, str]) -> str | None:
    """Why the command *words* needs an interpreter of its own; None where it does not."""
    if not hasattr(os, "fork") or not hasattr(socket, "send_fds"):
        return "this system cannot fork"
    if os.environ.get(PLAIN):
        return f"{PLAIN} is set"
    script = not isinstance(words, str) and len(words) > 1 and Path(words[1]) in SCRIPTS
    if script and words[0] == _PYTHON:
        return _set_at_the_start(environment)
    if isinstance(words, str) or list(words[:2]) != [_PYTHON, "-m"]:
        return "not a module of this interpreter"
    own = Path(directory or ".", f"{words[2]}.py").is_file()
    known = words[2].partition(".")[0] in PACKAGES
    if not known and not own:
        return f"{words[2]} is not what the server runs"
    return _set_at_the_start(environment) or _hidden(directory, environment)


def _set_at_the_start(environment: Mapping[str, str]) -> str | None:
    """What of *environment* an interpreter reads at its start, where it is not as here."""
    given = {name: value for name, value in environment.items() if (name, value) not in _AS_EVER}
    for name in {*given, *os.environ} - _LATER:
        if name.startswith(_AT_THE_START) and given.get(name) != os.environ.get(name):
            return f"{name} is read when an interpreter starts"
    return None


def _hidden(directory: Any, environment: Mapping[str, str]) -> str | None:
    """What the command would import, and does not where it is forked."""
    hidden = {"sitecustomize", "usercustomize"}
    if environment.get(BROKEN) or environment.get(WATCHED):
        hidden.remove("sitecustomize")
    for folder in _path(directory, environment):
        for name in _modules_in(folder):
            if name in hidden or name in _server().holds:
                return f"{folder} has a module {name} of its own"
    return None


def _path(directory: Any, environment: Mapping[str, str]) -> list[Path]:
    """What ``python -m`` puts in front of ``sys.path``, this repository and Python's own apart."""
    base = Path(directory or ".").resolve()
    named = environment.get("PYTHONPATH", "").split(os.pathsep)
    folders = [base, *(base / each for each in named if each)]
    return [each for each in folders if each.resolve() not in _EVERYWHERE]


def _modules_in(folder: Path) -> list[str]:
    if not folder.is_dir():
        return []
    return [each.name.partition(".")[0] for each in folder.iterdir() if _importable(each)]


def _importable(path: Path) -> bool:
    return path.suffix in {".py", ".so"} or (path.is_dir() and (path / "__init__.py").exists())


class _Server:
    """The server, seen from a process that asks.

    *holds* are the top-level modules that every child has.
    """

    def __init__(self, control: socket.socket, holds: Iterable[str]) -> None:
        self._control = control
        self.holds: Final = frozenset(holds)

    @classmethod
    def start(cls) -> _Server:
        """A new one; it ends with this process."""
        ours, theirs = _questions()
        with theirs:
            process = subprocess.Popen(
                [_PYTHON, __file__, str(theirs.fileno())],
                env={name: v for name, v in os.environ.items() if name != "PYTHONPATH"},
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                start_new_session=True,  # an interrupt at the terminal is for who asks
            )
        holds = ours.recv(1 << 16).decode().split()
        assert holds, "the server of tests/zygote.py did not start"

        def end() -> None:
            ours.close()
            process.wait()

        atexit.register(end)
        return cls(ours, holds)

    def fileno(self) -> int:
        """The descriptor on which this process asks."""
        return self._control.fileno()

    def ask(self, question: Mapping[str, Any], streams: Sequence[int]) -> socket.socket:
        """Have a child forked; on the socket come its process id, and its wait status."""
        ours, theirs = socket.socketpair()
        with theirs:
            socket.send_fds(self._control, [b"?"], [*streams, theirs.fileno()])
        text = json.dumps(question).encode()
        ours.sendall(_NUMBER.pack(len(text)) + text)
        return ours


def _questions() -> tuple[socket.socket, socket.socket]:
    """Two ends of a control socket: where one asks, and where the server hears."""
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)


_SERVERS: Final[dict[int, _Server]] = {}
_STARTING: Final = threading.Lock()


def _server() -> _Server:
    """The server of this process, started where there is none yet."""
    with _STARTING:
        if os.getpid() not in _SERVERS:
            _SERVERS[os.getpid()] = _Server.start()
        return _SERVERS[os.getpid()]


def _read(stream: socket.socket, count: int) -> bytes:
    """*count* octets of *stream*; EOFError where it ends before."""
    found = b""
    while len(found) < count:
        more = stream.recv(count - len(found))
        if not more:
            raise EOFError("the server of tests/zygote.py has ended")
        found += more
    return found


# -- the server -----------------------------------------------------------------------------


@dataclass(frozen=True)
class _Born:
    """What the server hands to a child: its socket, its streams, and where it can ask in turn."""

    status: socket.socket
    streams: list[int]
    server: _Server


def _serve(control: socket.socket) -> _Born | None:
    """Fork a child for each question; None at the end, and in a child what it is to begin with."""
    awake, alarm = socket.socketpair()
    for each in (awake, alarm):
        each.setblocking(False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(alarm.fileno())
    theirs, nested = _questions()  # every child inherits the one end
    server = _Server(theirs, _top_level())
    children: dict[int, socket.socket] = {}
    with selectors.DefaultSelector() as selector:
        for each in (control, nested, awake):
            selector.register(each, selectors.EVENT_READ)
        while True:
            for key, _ in selector.select():
                if key.fileobj is awake:
                    awake.recv(4096)
                    _reap(children)
                    continue
                word, streams, *_ = socket.recv_fds(key.fileobj, 1, 4)
                if not word:
                    _end(children)
                    return None
                status = socket.socket(fileno=streams.pop())
                pid = os.fork()
                if pid == 0:
                    return _Born(status, streams, server)
                children[pid] = status
                for stream in streams:
                    os.close(stream)


def _top_level() -> set[str]:
    return {name.partition(".")[0] for name in sys.modules}


def _reap(children: dict[int, socket.socket]) -> None:
    """Report every child that has ended."""
    while children:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid == 0:
            return
        with children.pop(pid) as stream:
            _tell(stream, status)


def _tell(stream: socket.socket, number: int) -> None:
    with suppress(OSError):  # nobody listens any more
        stream.sendall(_NUMBER.pack(number))


def _end(children: Iterable[int]) -> None:
    for pid in children:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


# -- a child --------------------------------------------------------------------------------


def _become(born: _Born, path: Sequence[str]) -> list[str]:
    """Turn this process into what the question describes; what to run: ``-m MODULE``, or a script.

    *path* is ``sys.path`` without what a command adds to it.
    """
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    length = _NUMBER.unpack(_read(born.status, _NUMBER.size))[0]
    question = json.loads(_read(born.status, length))
    if question["session"]:
        os.setsid()
    _tell(born.status, os.getpid())
    for own, stream in enumerate(born.streams):
        os.dup2(stream, own)
    asks = born.server.fileno()
    os.closerange(3, asks)  # the server's own, and other children's
    os.closerange(asks + 1, os.sysconf("SC_OPEN_MAX"))
    _SERVERS[os.getpid()] = born.server
    subprocess.Popen = Popen  # type: ignore[misc]
    os.chdir(question["directory"])
    os.environ.clear()
    os.environ.update(question["environment"])
    importlib.import_module("time").tzset()
    sys.dont_write_bytecode = bool(os.environ.get("PYTHONDONTWRITEBYTECODE"))
    here = str(Path.cwd())
    named = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    sys.path[:] = [here, *(str(Path(here, each)) for each in named if each), *path]
    words: list[str] = question["words"]
    if words[0] == "-m":
        sys.argv[1:] = words[2:]
    else:
        sys.path[0] = str(Path(words[0]).parent)
        sys.argv[:] = words
    sys.orig_argv[:] = [_PYTHON, *words]
    # Not importlib.invalidate_caches(): what is known of installed packages stays.
    for finder in filter(None, sys.path_importer_cache.values()):
        finder.invalidate_caches()
    gc.unfreeze = _nothing  # the modules of the server stay exempt, at the end as well
    gc.set_threshold(20_000)  # a short command need not look for garbage three hundred times
    if os.environ.get(BROKEN) in {"1", *words[1:2]}:
        _break()
    elif os.environ.get(WATCHED):
        _customize()
    if words[1:2] == [CLOCK]:
        _virtual_clock()
    return words


def _break() -> None:
    """What ``sitecustomize`` does to this package, whose modules are then imported once more."""
    _forget()
    with _clocks_replaced():
        _customize()


def _forget() -> None:
    for name in [each for each in sys.modules if each.partition(".")[0] == "scrapy_walsh"]:
        del sys.modules[name]


@contextmanager
def _clocks_replaced() -> Iterator[None]:
    """A clock that is replaced meanwhile is so wherever a module or a class has kept it."""
    clocks, modules = dict(vars(time)), list(sys.modules.values())
    yield
    now = vars(time)
    pairs = [(old, now[name]) for name, old in clocks.items() if now.get(name, old) is not old]
    if pairs:
        _replace(pairs, modules)


def _virtual_clock() -> None:
    """``walsh plan`` sets its clock before it imports anything: here all of that is there."""
    _forget()
    kind = type(importlib.import_module(CLOCK).CLOCK)
    whole = kind.install

    def install(clock: Any) -> None:
        with _clocks_replaced():
            whole(clock)

    kind.install = install


def _customize() -> None:
    """Import the command's ``sitecustomize``, where it has one; the server may have another."""
    sys.modules.pop("sitecustomize", None)
    if importlib.util.find_spec("sitecustomize") is not None:
        importlib.import_module("sitecustomize")


#: What a function is in, where a class has it and is not asked for it as a method.
_WRAPPERS: Final = (staticmethod, classmethod)


def _replace(pairs: Sequence[tuple[Any, Any]], modules: Iterable[Any]) -> None:
    """Of each of *pairs*, put the second in the place of the first.

    In *modules*, and in every class that has a place in one.
    """
    places = [each for each in modules if isinstance(each, types.ModuleType)]
    classes = {each for place in places for each in vars(place).values() if type(each) is type}
    olds = {id(old): new for old, new in pairs}
    for place in [*places, *classes]:
        for name, value in list(vars(place).items()):
            # Only a method's own: a lazy object of another package would import what is not there.
            kept = value.__func__ if type(value) in _WRAPPERS else value
            if id(kept) in olds:
                new = olds[id(kept)]
                setattr(place, name, staticmethod(new) if isinstance(place, type) else new)


def _run(words: list[str]) -> int:
    """``python WORDS``, and the end of an interpreter; its exit status."""
    import runpy  # noqa: PLC0415

    sys.modules["__main__"] = types.ModuleType("__main__")
    code = 0
    try:
        if words[0] == "-m":
            runpy._run_module_as_main(words[1])  # type: ignore[attr-defined]  what -m calls
        else:
            runpy.run_path(words[0], run_name="__main__")
    except SystemExit as end:
        code = _status_of(end.code)
    except BaseException as error:
        below = error.__traceback__ and error.__traceback__.tb_next  # this function apart
        sys.excepthook(type(error), error.with_traceback(below), below)
        code = -signal.SIGINT if isinstance(error, KeyboardInterrupt) else 1
        del below
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    if gc.isenabled():
        gc.collect()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    return code


def _status_of(code: object) -> int:
    """The exit status that SystemExit's *code* means."""
    if code is None:
        return 0
    if isinstance(code, int):
        return code & 0xFF
    print(code, file=sys.stderr)
    return 1


def _main(control: socket.socket) -> None:
    """Serve to the end; in a child: run what was asked for."""
    del sys.path[0]  # this file's directory
    path = list(sys.path)
    warm()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    control.send(" ".join(_top_level()).encode())
    born = _serve(control)
    if born is None:
        return
    code = _run(_become(born, path))
    if code < 0:
        signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)


if __name__ == "__main__":
    _main(socket.socket(fileno=int(sys.argv[1])))
