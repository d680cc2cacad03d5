"""The only place that asks which Scrapy this is (2.13 to 2.19), or reaches into it.

Every private name of Scrapy or Twisted that this package leans on is named in this file;
``wire_problem`` and ``fail_command`` say so when one of them is gone.
"""

from __future__ import annotations

import inspect
import logging
import os
import sys
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeVar, cast

import scrapy.exceptions
from scrapy import version_info
from scrapy.settings import default_settings
from scrapy.utils.defer import deferred_from_coro, maybe_deferred_to_future
from scrapy.utils.misc import load_object
from twisted.internet.defer import CancelledError, Deferred

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Coroutine

    from scrapy import Request, Spider
    from scrapy.crawler import Crawler
    from scrapy.http import Response

_T = TypeVar("_T")

#: Settings whose names differ between versions: the jitter of DOWNLOAD_DELAY.
JITTER_SETTING: Final[tuple[str, Any]] = (
    ("DOWNLOAD_DELAY_JITTER", 0.0)
    if hasattr(default_settings, "DOWNLOAD_DELAY_JITTER")
    else ("RANDOMIZE_DOWNLOAD_DELAY", False)
)

#: Whether download handlers are coroutine functions (2.14 and later).
ASYNC_HANDLERS: Final = version_info >= (2, 14)

#: The errors of the network: what Scrapy itself would retry, whatever a project configured.
TRANSPORT_ERRORS: Final[tuple[type[BaseException], ...]] = tuple(
    map(load_object, cast("list[str]", default_settings.RETRY_EXCEPTIONS))
)

#: What a body over DOWNLOAD_MAXSIZE ends in: no error of the network, so nothing is retried.
OVER_LIMIT: Final[type[BaseException]] = getattr(
    scrapy.exceptions, "DownloadCancelledError", CancelledError
)

#: Whether a setting exists in this version; pinning one that does not is noise.
KNOWN_SETTINGS: Final = frozenset(dir(default_settings))


def future(deferred: Deferred[_T]) -> Awaitable[_T]:
    """What a coroutine run by Scrapy may await in place of *deferred*."""
    return cast("Awaitable[_T]", maybe_deferred_to_future(deferred))


def run(coroutine: Coroutine[Any, Any, _T]) -> Deferred[_T]:
    """Start *coroutine* under the reactor or loop in use."""
    return cast("Deferred[_T]", deferred_from_coro(coroutine))


def call_later(delay: float, function: Callable[[], object]) -> Callable[[], None]:
    """Call *function* after *delay* seconds; returns what cancels the call, any number of times."""
    try:
        from scrapy.utils.asyncio import call_later as scrapy_call_later  # noqa: PLC0415
    except ImportError:
        pass
    else:
        return scrapy_call_later(max(0.0, delay), function).cancel
    import twisted.internet  # noqa: PLC0415

    reactor: Any = twisted.internet.reactor
    call = reactor.callLater(max(0.0, delay), function)

    def cancel() -> None:
        if call.active():
            call.cancel()

    return cancel


async def sleep(seconds: float) -> None:
    """Let others run for *seconds*."""
    deferred: Deferred[None] = Deferred()
    call_later(seconds, lambda: deferred.callback(None))
    await future(deferred)


async def run_in_thread(function: Callable[[], _T]) -> _T:
    """The result of *function*, called in a thread of the reactor or loop in use."""
    if "twisted.internet.reactor" not in sys.modules:
        import asyncio  # noqa: PLC0415

        return await asyncio.to_thread(function)
    from twisted.internet.threads import deferToThread  # noqa: PLC0415

    return await future(cast("Deferred[_T]", deferToThread(function)))


def _engine(crawler: Crawler) -> Any:
    """The engine, or None before it is made: since 2.19 reading it too early is an error."""
    return crawler._engine if hasattr(crawler, "_engine") else crawler.engine


def _slot(crawler: Crawler) -> Any:
    return getattr(_engine(crawler), "_slot", None)


async def download(crawler: Crawler, request: Request) -> Response:
    """The engine's download of *request*, through the downloader middlewares only."""
    engine = _engine(crawler)
    if engine is None:
        raise RuntimeError("no engine")
    if hasattr(engine, "download_async"):
        return cast("Response", await engine.download_async(request))
    return cast("Response", await future(engine.download(request)))


async def call_handler(handler: Any, request: Request, spider: Spider | None) -> Response:
    """The answer of a download handler of any version."""
    if inspect.iscoroutinefunction(handler.download_request):
        return cast("Response", await handler.download_request(request))
    return cast("Response", await future(handler.download_request(request, spider)))


def download_handler(crawler: Crawler, scheme: str) -> Any:
    """The handler that will carry *scheme*, or None."""
    downloader = getattr(_engine(crawler), "downloader", None)
    handlers = getattr(downloader, "handlers", None)
    return handlers._get_handler(scheme) if handlers is not None else None


async def close_handler(handler: Any) -> None:
    """Close a download handler of any version."""
    result = handler.close() if hasattr(handler, "close") else None
    if isinstance(result, Deferred):
        await future(result)
    elif result is not None:
        await result


def no_persistent_connections(handler: Any) -> None:
    """Make *handler* open one connection per request: a pooled one may re-send by itself (R5.7).

    Raises RuntimeError for a handler that this package does not know how to tame.
    """
    pool = getattr(handler, "_pool", None)
    if pool is not None and hasattr(pool, "retryAutomatically"):
        pool.persistent = False
        pool.retryAutomatically = False
        return
    session: Any = getattr(handler, "_session", None)
    connector = getattr(session, "connector", None)
    if connector is not None and hasattr(connector, "_force_close"):
        connector._force_close = True
        session._retry_connection = False
        return
    limits: Any = getattr(handler, "_limits", None)
    if hasattr(limits, "max_keepalive_connections") and hasattr(handler, "_make_client"):
        handler._limits = type(limits)(
            max_connections=limits.max_connections, max_keepalive_connections=0
        )
        handler._default_client = handler._make_client()
        return
    raise RuntimeError(f"{type(handler).__qualname__} keeps connections that cannot be closed")


def scheduler(crawler: Crawler) -> Any:
    """The scheduler in use, or None."""
    return getattr(_slot(crawler), "scheduler", None)


def under_way(crawler: Crawler) -> Collection[Request]:
    """The requests between their pop from the scheduler and the end of their scraping."""
    slot = _slot(crawler)
    found: Collection[Request] = () if slot is None else slot.inprogress
    return found


def wake_engine(crawler: Crawler) -> None:
    """Make the engine ask the scheduler again, without the heartbeat's five seconds."""
    slot = _slot(crawler)
    if slot is not None and slot.closing is None:
        slot.nextcall.schedule()


def closing(crawler: Crawler) -> bool:
    """Whether the spider is being closed: nothing may wait any more."""
    slot = _slot(crawler)
    return slot is None or slot.closing is not None


def close_spider(crawler: Crawler, reason: str) -> None:
    """Ask the engine to close the spider, once it runs: closing it earlier ends in a traceback."""
    engine = _engine(crawler)
    if engine is None or engine.spider is None:
        return
    if not engine.running:
        call_later(0.01, lambda: close_spider(crawler, reason))
        return
    if hasattr(engine, "close_spider_async"):
        deferred_from_coro(_close_if_open(engine, reason))
    else:
        engine.close_spider(engine.spider, reason=reason)


async def _close_if_open(engine: Any, reason: str) -> None:
    # A coroutine begins later, and a crawl that was refused may have closed by itself.
    if engine.spider is not None:
        await engine.close_spider_async(reason=reason)


def is_shell(crawler: Crawler) -> bool:
    """Whether a person drives this crawl from ``scrapy shell``: asked when the spider opens.

    The shell alone starts the engine before it opens the spider, and keeps it when idle.
    """
    engine = _engine(crawler)
    slot = _slot(crawler)
    return slot is not None and not slot.close_if_idle and bool(engine.running)


def fail_command() -> bool:
    """Make the ``scrapy`` command that runs this crawl exit with 1; False when there is none.

    Before 2.19 a crawl that fails to start still exits with 0.
    """
    frame = sys._getframe()
    while frame is not None:
        if frame.f_code.co_name == "_run_command" and "cmd" in frame.f_locals:
            frame.f_locals["cmd"].exitcode = 1
            return True
        frame = frame.f_back  # type: ignore[assignment]
    return False


def refuse_start(error: Exception) -> NoReturn:
    """End the command with one line and exit code 1, or, in a script, raise *error*.

    Before 2.19 a command whose crawl fails to start exits with 0, and every version prints
    a traceback: even of SystemExit, where a Deferred catches it. Nothing has been started yet.
    """
    if not fail_command():
        raise error
    sys.stderr.write(f"scrapy_walsh: {error}\n")
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(1)
