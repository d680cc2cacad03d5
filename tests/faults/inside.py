"""The faults themselves: a module of the test's project, loaded in the process of the crawl.

``FAULT`` in the project's settings says what goes wrong: ``do`` names a function of this file, the
other members are its arguments. ``on`` says which requests it concerns (:func:`concerns`). Nothing
of the package is imported here before the crawl has done so by itself.
"""

from __future__ import annotations

import asyncio
import atexit
import errno
import importlib
import os
import resource
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from scrapy import Spider, signals
from scrapy.exceptions import CloseSpider, IgnoreRequest, NotSupported, StopDownload
from scrapy.http import HtmlResponse, Request, Response

if TYPE_CHECKING:
    from collections.abc import Callable

#: Errors that a row can name.
ERRORS: dict[str, Callable[[], BaseException]] = {
    "IgnoreRequest": lambda: IgnoreRequest("seen enough of this host"),
    "ValueError": lambda: ValueError("no colour for this host"),
    "KeyError": lambda: KeyError("colour"),
    "CloseSpider": lambda: CloseSpider("the budget is used up"),
    "NotSupported": lambda: NotSupported("no such thing as a colour"),
    "StopDownload": lambda: StopDownload(fail=False),
    "StopDownload fail": lambda: StopDownload(fail=True),
    "RuntimeError": lambda: RuntimeError("a defect of our own"),
    "OSError": lambda: OSError(errno.EIO, os.strerror(errno.EIO)),
    "full disk": lambda: OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)),
    "sqlite3": lambda: _sqlite_error("disk I/O error", sqlite3.SQLITE_IOERR),
    "sqlite3 full": lambda: _sqlite_error("database or disk is full", sqlite3.SQLITE_FULL),
    "locked": lambda: _sqlite_error("database is locked", sqlite3.SQLITE_BUSY),
    "MemoryError": lambda: MemoryError("no memory is left"),
    "full disk state": lambda: _state_error("No space left on device"),
    "no fork": lambda: BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN)),
}


def _sqlite_error(why: str, code: int) -> BaseException:
    error = sqlite3.OperationalError(why)
    error.sqlite_errorcode = code
    return error


def _state_error(why: str) -> BaseException:
    from scrapy_walsh.exceptions import StateError  # noqa: PLC0415

    return StateError(f"the ledger in WALSH_STATE_DIR cannot be written: {why}")


MADE = "the fault of this row was made"
_MADE: list[bool] = []
LIST, ROBOTS = "blocklist.json", "/robots.txt"


def concerns(url: str, on: str) -> bool:
    """Whether *url* is what *on* names: robots, list, documents (both), targets, all."""
    path = urlsplit(url).path
    robots, listed = path == ROBOTS, path.endswith(LIST)
    found = {"robots": robots, "list": listed, "documents": robots or listed, "all": True}
    found["targets"] = not found["documents"]
    found["forbidden"] = robots and "forbidden.test" in url
    return found[on]


def made() -> None:
    """Say that the fault was made: a row in which it was not shows nothing."""
    if not _MADE:
        _MADE.append(True)
        print(MADE, file=sys.stderr, flush=True)


def keep_log() -> None:
    """Have another process write the log, for whose file no limit of this one's holds."""
    log = subprocess.Popen(["cat"], stdin=subprocess.PIPE)  # noqa: S607
    assert log.stdin is not None
    for descriptor in (1, 2):
        os.dup2(log.stdin.fileno(), descriptor)
    log.stdin.close()

    def end() -> None:
        os.close(1)
        os.close(2)
        log.wait()

    atexit.register(end)


def resolve_names() -> None:
    """Every ``*.test`` is this machine."""
    by_name, info = socket.gethostbyname, socket.getaddrinfo

    def here(host: Any) -> Any:
        text = host.decode() if isinstance(host, bytes) else str(host)
        return "127.0.0.1" if text.endswith(".test") else host

    socket.gethostbyname = lambda host: by_name(here(host))
    socket.getaddrinfo = lambda host, *more, **named: info(here(host), *more, **named)


# -- middlewares of the same project ----------------------------------------------------------


class Middleware:
    """A downloader middleware: what the row names, before the wire or after it."""

    def __init__(self, fault: dict[str, Any]) -> None:
        self.do, self.on, self.fault = fault["do"], fault.get("on", "documents"), fault
        self.seen: set[str] = set()

    @classmethod
    def from_crawler(cls, crawler: Any) -> Middleware:
        return cls(crawler.settings.getdict("FAULT"))

    def process_request(self, request: Any, spider: Any = None) -> Any:
        found = getattr(self, f"before_{self.do}", None)
        if found is None or not concerns(request.url, self.on):
            return None
        made()
        return found(request)

    def process_response(self, request: Any, response: Any, spider: Any = None) -> Any:
        found = getattr(self, f"after_{self.do}", None)
        if found is None or not concerns(request.url, self.on):
            return response
        made()
        return found(request, response)

    def process_exception(self, request: Any, exception: Any, spider: Any = None) -> Any:
        found = getattr(self, f"failed_{self.do}", None)
        return found(request) if found and concerns(request.url, self.on) else None

    # before the wire

    def before_raise(self, request: Any) -> Any:
        raise ERRORS[self.fault["error"]]()

    def before_answer(self, request: Any) -> Any:
        return Response(request.url, status=self.fault.get("status", 200), body=b"")

    def before_set(self, request: Any) -> Any:
        """Set members of the request in place: ``method``, ``meta``, ``headers``."""
        request.meta.update(self.fault.get("meta", {}))
        request.headers.update(self.fault.get("headers", {}))
        if "method" in self.fault:
            request.method = self.fault["method"]
        for name in self.fault.get("delete", ()):
            request.headers.pop(name, None)

    def before_clear(self, request: Any) -> Any:
        request.headers.clear()

    def before_forget(self, request: Any) -> Any:
        request.meta.clear()

    def before_replace(self, request: Any) -> Any:
        """Put another request in its place, once."""
        if request.meta.get("replaced"):
            return None
        changes = dict(self.fault["with"])
        if "url" in changes:
            changes["url"] = request.url + changes["url"]
        return request.replace(meta={**request.meta, "replaced": True}, **changes)

    def before_fresh(self, request: Any) -> Any:
        """Put a new request with the same URL, and nothing else, in its place, once."""
        if request.url in self.seen:
            return None
        self.seen.add(request.url)
        return Request(request.url, dont_filter=True)

    def before_move(self, request: Any) -> Any:
        """Change the URL in place, as some middlewares do."""
        request._set_url(request.url + self.fault["url"])

    # after the wire

    def after_text(self, request: Any, response: Any) -> Any:
        """A ban detection: it looks for words in what came."""
        return response.replace(status=429) if "captcha" in response.text else response

    def after_css(self, request: Any, response: Any) -> Any:
        response.css("title::text").get()
        return response

    def after_raise_after(self, request: Any, response: Any) -> Any:
        raise ERRORS[self.fault["error"]]()

    def after_change(self, request: Any, response: Any) -> Any:
        """Another status, body or class of response."""
        changes = dict(self.fault["with"])
        if "body" in changes:
            changes["body"] = changes["body"].encode()
        return response.replace(**changes)

    def after_html(self, request: Any, response: Any) -> Any:
        return HtmlResponse(response.url, body=b"<p>cached</p>", encoding="utf-8")

    def after_nothing(self, request: Any, response: Any) -> Any:
        return None

    def after_again(self, request: Any, response: Any) -> Any:
        """As a retry middleware does: the same once more."""
        if request.meta.get("again"):
            return response
        return request.replace(dont_filter=True, meta={**request.meta, "again": True})

    def after_elsewhere(self, request: Any, response: Any) -> Any:
        """Go to the documents of another host."""
        if "healthy.test" in request.url or request.meta.get("again"):
            return response
        url = request.url.replace("forbidden.test", "healthy.test")
        return request.replace(url=url, dont_filter=True, meta={**request.meta, "again": True})

    # after a failure

    def failed_again(self, request: Any) -> Any:
        if request.meta.get("again"):
            return None
        return request.replace(dont_filter=True, meta={**request.meta, "again": True})

    def failed_mend(self, request: Any) -> Any:
        """What cannot be had is taken for empty."""
        return Response(request.url, status=self.fault.get("status", 200), body=b"")

    def failed_raise_again(self, request: Any) -> Any:
        raise ERRORS[self.fault["error"]]()


# -- everything else: an extension of the project ----------------------------------------------


class Extension:
    """Does what the row names when the crawl is made: ``FAULT["do"]`` is a method."""

    def __init__(self, crawler: Any) -> None:
        self.crawler = crawler
        self.fault = crawler.settings.getdict("FAULT")
        getattr(self, self.fault["do"], lambda: None)()

    @classmethod
    def from_crawler(cls, crawler: Any) -> Extension:
        return cls(crawler)

    def _error(self) -> BaseException:
        return ERRORS[self.fault["error"]]()

    def hear(self) -> None:
        """A handler of a signal that raises."""

        def handler(**arguments: Any) -> None:
            request = arguments.get("request")
            if request is None or concerns(request.url, self.fault.get("on", "all")):
                raise self._error()

        self._handler = handler
        module, name = self.fault["signal"].rsplit(".", 1)
        signal_named = getattr(importlib.import_module(module), name)
        how = self.fault.get("how", "at once")
        if how == "any sender":  # an old recipe, which goes past the crawler's own manager
            from pydispatch import dispatcher  # type: ignore[import-untyped]  # noqa: PLC0415

            dispatcher.connect(handler, signal_named)
        elif how == "late":

            def connect(**_: Any) -> None:
                self.crawler.signals.connect(handler, signal_named)

            self._connect = connect
            self.crawler.signals.connect(connect, signals.request_reached_downloader)
        else:
            self.crawler.signals.connect(handler, signal_named)

    def close(self) -> None:
        """The project closes the crawl while what is concerned is under way."""
        closed: list[Any] = []

        def change(under_way: bool) -> None:
            if under_way and not closed:
                from scrapy.utils.defer import deferred_from_coro  # noqa: PLC0415

                engine = self.crawler.engine
                closed.append(deferred_from_coro(engine.close_spider_async(reason="enough")))

        _around(self.fault.get("on", "documents"), change)

    def machine(self) -> None:
        """The machine says *errno* where a connection is made for what is concerned."""
        number = getattr(errno, self.fault["errno"])
        at, concerned = self.fault["at"], _while_under_way(self.fault.get("on", "documents"))

        class Failing(socket.socket):
            def connect_ex(self, address: Any) -> int:
                return number if at == "connect" and concerned() else super().connect_ex(address)

            def bind(self, address: Any) -> None:
                if at == "bind" and concerned():
                    raise OSError(number, os.strerror(number))
                super().bind(address)

        from twisted.internet import tcp  # noqa: PLC0415

        client_of_twisted: Any = tcp.Client

        def make(client: Any) -> Any:
            if concerned():
                made()
            if at == "socket" and concerned():
                raise OSError(number, os.strerror(number))
            failing = Failing(client.addressFamily, client.socketType)
            failing.setblocking(False)
            return failing

        client_of_twisted.createInternetSocket = make

    def descriptors(self) -> None:
        """No descriptor is left while what is concerned is under way (RLIMIT_NOFILE)."""
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)

        def change(under_way: bool) -> None:
            if under_way:
                made()
                free = os.dup(0)
                os.close(free)
                resource.setrlimit(resource.RLIMIT_NOFILE, (free, hard))
            else:
                resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

        _around(self.fault.get("on", "documents"), change)

    def names(self) -> None:
        """No name is found while what is concerned is under way."""
        concerned = _while_under_way(self.fault.get("on", "documents"))
        by_name, info = socket.gethostbyname, socket.getaddrinfo
        number = getattr(socket, self.fault["error"])

        def failing(ask: Any) -> Any:
            def asked(*arguments: Any, **named: Any) -> Any:
                if concerned():
                    made()
                    raise socket.gaierror(number, "Temporary failure in name resolution")
                return ask(*arguments, **named)

            return asked

        socket.gethostbyname, socket.getaddrinfo = failing(by_name), failing(info)

    def environ(self) -> None:
        """The environment that a child of this process would have."""
        os.environ["WALSH_TESTS_PLAIN"] = "1"  # the child is an interpreter of its own
        folder = self.fault.get("folder")
        if folder:
            where = str(Path(folder).absolute())
            # Behind the standard library, as a file of site-packages is for this process.
            sys.path.append(where)
            path = [where, *filter(None, [os.environ.get("PYTHONPATH")])]
            os.environ["PYTHONPATH"] = os.pathsep.join(path)
        os.environ.update(self.fault.get("set", {}))
        if "executable" in self.fault:
            name = self.fault["executable"]
            sys.executable = str(Path(name).absolute()) if name.startswith("bin") else name

    def no_fork(self) -> None:
        """The system makes no process."""

        def refuse(*_: Any, **__: Any) -> Any:
            raise self._error()

        module: Any = subprocess
        module.Popen.__init__ = refuse
        for name in ("fork", "forkpty", "posix_spawn", "posix_spawnp"):
            setattr(os, name, refuse)
        module._fork_exec = refuse

    def no_thread(self) -> None:
        """The system makes no thread, once the crawl has begun."""

        thread: Any = threading.Thread

        def refuse(*_: Any) -> Any:
            raise RuntimeError("can't start new thread")

        def begin() -> None:
            thread.start = refuse

        self._begin = begin
        self.crawler.signals.connect(begin, signals.spider_opened)

    def broken(self) -> None:
        """The function at ``place`` raises: each time, after some calls, or for one argument."""
        owner, name = _found(self.fault["place"])
        whole = getattr(owner, name)
        calls = [0]

        def raising(*arguments: Any, **named: Any) -> Any:
            words = " ".join(map(_word, arguments))
            if self.fault.get("where", "") in words:
                calls[0] += 1
                if calls[0] > self.fault.get("after", 0):
                    made()
                    raise self._error()
            return whole(*arguments, **named)

        setattr(owner, name, raising)
        for module in [each for key, each in sys.modules.items() if key.startswith("scrapy_walsh")]:
            for known, value in list(vars(module).items()):
                if value is whole:
                    setattr(module, known, raising)

    def small_disk(self) -> None:
        """No file may grow beyond some octets: what a full disk is, without one."""
        most = self.fault.get("octets", 8192)

        def begin() -> None:
            keep_log()
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))

        self._begin = begin
        if self.fault.get("at_once"):
            begin()
        else:
            self.crawler.signals.connect(begin, signals.spider_opened)

    def files(self) -> None:
        """Something is done to the state's files when the first page has come."""
        done: list[bool] = []

        def spoil(request: Any, **_: Any) -> None:
            if not done and concerns(request.url, "targets"):
                done.append(True)
                made()
                spoil_files(Path(".scrapy/walsh"), self.fault["spoil"])

        self._spoil = spoil
        self.crawler.signals.connect(spoil, signals.response_downloaded)


def _word(value: Any) -> str:
    return value.__name__ if isinstance(value, type) else str(value)


def _found(place: str) -> tuple[Any, str]:
    """The object that has what *place* names, ``module:Class.name``; its last name."""
    module, _, path = place.partition(":")
    found: Any = importlib.import_module(module)
    *way, name = path.split(".")
    for each in way:
        found = getattr(found, each)
    getattr(found, name)
    return found, name


def _around(on: str, change: Callable[[bool], None]) -> None:
    """Call *change* before and after Scrapy's own handler sends what is concerned."""
    from scrapy.core.downloader.handlers.http11 import HTTP11DownloadHandler  # noqa: PLC0415

    handlers: list[Any] = [HTTP11DownloadHandler]
    with suppress(ImportError):  # before 2.19
        from scrapy.core.downloader.handlers._aiohttp import AiohttpDownloadHandler  # noqa: PLC0415

        handlers.append(AiohttpDownloadHandler)
    for handler in handlers:
        handler.download_request = _changed(handler.download_request, on, change)


def _changed(send: Any, on: str, change: Callable[[bool], None]) -> Any:
    import inspect  # noqa: PLC0415

    if inspect.iscoroutinefunction(send):

        async def sent(self: Any, request: Any, *more: Any) -> Any:
            if not concerns(request.url, on):
                return await send(self, request, *more)
            change(True)
            try:
                return await send(self, request, *more)
            finally:
                change(False)

        return sent

    def sent_before(self: Any, request: Any, *more: Any) -> Any:
        if not concerns(request.url, on):
            return send(self, request, *more)
        change(True)
        deferred = send(self, request, *more)

        def ended(result: Any) -> Any:
            change(False)
            return result

        return deferred.addBoth(ended)

    return sent_before


def _while_under_way(on: str) -> Callable[[], bool]:
    """A function that says whether what is concerned is under way now."""
    under_way = [False]

    def change(now: bool) -> None:
        under_way[0] = now

    _around(on, change)
    return lambda: under_way[0]


# -- files, done before a run or in it ----------------------------------------------------------


def spoil_files(state: Path, how: str) -> None:  # noqa: C901 PLR0912  a list, one after the other
    """Do *how* to the state directory."""
    database, ledger = state / "state.sqlite3", state / "ledger.jsonl"
    state.mkdir(parents=True, exist_ok=True)
    beside = [Path(f"{database}{suffix}") for suffix in ("-wal", "-shm")]
    if how == "database gone":
        for each in (database, *beside):
            each.unlink(missing_ok=True)
    elif how == "database cut":
        database.write_bytes(database.read_bytes()[:5000] if database.exists() else b"SQLite")
    elif how == "database is text":
        database.write_bytes(b"Dear diary,\n" * 1000)
    elif how == "database zeroed":
        size = database.stat().st_size if database.exists() else 8192
        database.write_bytes(b"\0" * size)
    elif how == "database empty":
        database.write_bytes(b"")
    elif how == "another program's":
        for each in (database, *beside):
            each.unlink(missing_ok=True)
        with sqlite3.connect(database) as other:
            other.execute("CREATE TABLE songs (name TEXT)")
            other.execute("INSERT INTO songs VALUES ('one')")
        other.close()
    elif how == "database is a directory":
        for each in (database, *beside):
            each.unlink(missing_ok=True)
        database.mkdir()
    elif how == "ledger is a directory":
        ledger.unlink(missing_ok=True)
        ledger.mkdir()
    elif how == "ledger is text":
        ledger.write_text("Dear diary,\n")
    elif how == "documents are text":
        (state / "ledger-documents.sqlite").write_text("Dear diary,\n" * 100)
    elif how == "list copies damaged":
        for name in ("blocklist.json", "blocklist-2.json"):
            if (state / name).exists():
                (state / name).write_text("damaged")
    elif how == "everything damaged":
        for each in [*state.iterdir()]:
            if each.is_file():
                each.write_bytes(each.read_bytes()[:16] + b"damaged")
    elif how == "directory gone":
        import shutil  # noqa: PLC0415

        shutil.rmtree(state)
    else:
        raise ValueError(how)


# -- the spider -----------------------------------------------------------------------------------


class Probe(Spider):
    """Asks for what it is given."""

    name = "probe"

    def __init__(self, urls: str = "", **named: Any) -> None:
        super().__init__(**named)
        self.urls = urls.split()

    async def start(self) -> Any:
        for url in self.urls:
            yield Request(url, callback=self.parse, errback=self.failed)

    def parse(self, response: Any) -> Any:
        """Nothing is made of a page."""

    def failed(self, failure: Any) -> Any:
        """Nor of an error."""


class Waits(Probe):
    """Its ``start`` ends when the callback of a request has come that it has not declared."""

    name = "waits"
    came = False

    async def start(self) -> Any:
        yield Request(self.urls[-1], callback=self.parse, errback=self.failed)
        while not self.came:
            await asyncio.sleep(0.1)

    def parse(self, response: Any) -> Any:
        self.came = "more" in response.url
        yield Request(response.url + "/more", callback=self.parse, errback=self.failed)

    def failed(self, failure: Any) -> Any:
        self.came = True


resolve_names()
