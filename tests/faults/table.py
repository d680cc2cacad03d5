"""The table: what can fail on our own side, or be done to us by the project, and what follows.

One row a fault. What the specification asks of all of them stands in ``judge.py``; a row says
what becomes of the healthy host besides, and the words that a line of the log must have.
"""

from __future__ import annotations

import sys
import typing
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from tests.crawl.harness import can_mount
from tests.faults.row import (
    AS_USUAL,
    CHILD,
    EITHER,
    FRESH,
    HELD_BACK,
    HOSTS_DOING,
    LONG,
    LONG_WILD,
    NOT_WELL,
    REFUSED,
    SHORT,
    STALE,
    UNKNOWN,
    USUAL,
    WILD,
    Row,
    Then,
    Variant,
)

#: Only where an earlier run has left a list and rules, which are to be asked for again.
_STALE: Final[tuple[Variant, ...]] = ((SHORT, STALE),)
_UNKNOWN: Final[tuple[Variant, ...]] = ((SHORT, UNKNOWN),)
_KEPT: Final[tuple[Variant, ...]] = ((SHORT, STALE), (SHORT, FRESH))
_TAME: Final[tuple[Variant, ...]] = ((SHORT, UNKNOWN), (LONG, UNKNOWN), (LONG, STALE))
_WILD: Final[tuple[Variant, ...]] = ((WILD, UNKNOWN), (LONG_WILD, STALE))
_DEFER: Final[dict[str, Any]] = {
    "WALSH_ROBOTS_UNREACHABLE": "defer",
    "WALSH_BLOCKLIST_UNREACHABLE": "defer",
}
#: Else a name that was looked up while the host before it answered is not asked for again.
_NO_CACHE_OF_NAMES: Final[dict[str, Any]] = {"DNSCACHE_ENABLED": False}
#: What a line says that names a fault of each kind.
_PROXY = ("proxy", "tunnel")
_CHILD = ("child process", "no memory is left")
_ONE_DEFERRED: Final = "Targets of that host are deferred, all others are crawled."
_ONE_AWAY: Final = (
    "That is the site's side: the host counts as unreachable, and `WALSH_ROBOTS_UNREACHABLE` "
    "decides (here: `defer`). All others are crawled."
)
_DISK = ("cannot be written", "WALSH_STATE_DIR", "No space left", "File too large")
_STATE = ("disk I/O error", "state.sqlite3", "WALSH_STATE_DIR")


def has_pypis_typing() -> bool:
    """Whether scrapy-rotating-proxies is installed here, and PyPI's ``typing`` with it."""
    places = {Path(each, "typing.py") for each in sys.path} - {Path(typing.__file__)}
    return find_spec("rotating_proxies") is not None and any(each.exists() for each in places)


def _before(name: str, what: str, then: Then, do: str, **more: Any) -> Row:
    """A middleware of the project that does something before the wire."""
    named = {key: more.pop(key) for key in ("says", "does", "settings", "sites") if key in more}
    variants = more.pop("variants", USUAL)
    return Row(
        name,
        "middleware",
        f"A downloader middleware of the project {what}.",
        then,
        {"do": do, **more},
        variants=variants,
        **named,
    )


_RAISED = (
    _before(
        "IgnoreRequest for documents",
        "raises `IgnoreRequest` for robots.txt and the list",
        HELD_BACK,
        "raise",
        error="IgnoreRequest",
        says=("seen enough of this host", "IgnoreRequest"),
    ),
    _before(
        "IgnoreRequest for robots.txt",
        "raises `IgnoreRequest` for each robots.txt",
        HELD_BACK,
        "raise",
        error="IgnoreRequest",
        on="robots",
        says=("seen enough of this host", "IgnoreRequest"),
    ),
    _before(
        "IgnoreRequest for the list",
        "raises `IgnoreRequest` for the list",
        HELD_BACK,
        "raise",
        error="IgnoreRequest",
        on="list",
        says=("seen enough of this host", "IgnoreRequest"),
    ),
    _before(
        "IgnoreRequest for one robots.txt",
        "raises `IgnoreRequest` for the robots.txt of one host",
        NOT_WELL,
        "raise",
        error="IgnoreRequest",
        on="forbidden",
        does=_ONE_DEFERRED,
        says=("seen enough of this host", "IgnoreRequest"),
    ),
    *(
        _before(
            f"{error} for documents",
            f"raises `{error}` for robots.txt and the list",
            HELD_BACK,
            "raise",
            error=error,
            says=(words, error),
        )
        for error, words in (
            ("ValueError", "no colour for this host"),
            ("KeyError", "colour"),
            ("CloseSpider", "the budget is used up"),
            ("NotSupported", "no such thing as a colour"),
        )
    ),
    _before(
        "ValueError for everything",
        "raises `ValueError` for every request",
        HELD_BACK,
        "raise",
        error="ValueError",
        on="all",
        says=("no colour for this host", "ValueError"),
    ),
    *(
        _before(
            f"Response {status} in place of a document",
            f"returns an empty response with status {status} in place of robots.txt and the list",
            HELD_BACK,
            "answer",
            status=status,
            says=("answered instead of the site",),
        )
        for status in (200, 404, 503)
    ),
    _before(
        "Response in place of robots.txt",
        "returns an empty response with status 200 in place of each robots.txt",
        HELD_BACK,
        "answer",
        on="robots",
        says=("answered instead of the site",),
    ),
)

_ALTERED = (
    _before("HEAD", "turns GET into HEAD", AS_USUAL, "set", method="HEAD"),
    _before("POST", "turns GET into POST", AS_USUAL, "set", method="POST"),
    _before(
        "HEAD in another request",
        "puts a HEAD request in the place of each GET",
        AS_USUAL,
        "replace",
        **{"with": {"method": "HEAD"}},
    ),
    _before("Range", "adds `Range`", AS_USUAL, "set", headers={"Range": "bytes=0-9"}),
    _before("Range for robots.txt", "adds `Range` to robots.txt alone", AS_USUAL, "set",
            headers={"Range": "bytes=0-9"}, on="robots"),
    _before("If-None-Match", "adds `If-None-Match`", AS_USUAL, "set",
            headers={"If-None-Match": "*"}),
    _before("If-Modified-Since", "adds `If-Modified-Since`", AS_USUAL, "set",
            headers={"If-Modified-Since": "Sat, 23 May 2026 00:00:00 GMT"}),
    _before("URL in place", "changes the URL of the request that it is given", AS_USUAL, "move",
            url="?session=1"),
    _before("URL in another request", "puts a request for another URL in the place of each",
            AS_USUAL, "replace", **{"with": {"url": "?session=1"}}),
    _before("download_maxsize", "sets `meta[\"download_maxsize\"]` to 1000", AS_USUAL, "set",
            meta={"download_maxsize": 1000}),
    _before("download_timeout", "sets `meta[\"download_timeout\"]` to a thousandth of a second",
            AS_USUAL, "set", meta={"download_timeout": 0.001}),
    _before("download_fail_on_dataloss, robots.txt",
            "sets `meta[\"download_fail_on_dataloss\"]` to False, and a robots.txt is cut off",
            AS_USUAL, "set", meta={"download_fail_on_dataloss": False},
            sites="forbidden cut off", settings=_DEFER,
            does=_ONE_AWAY),
    _before("download_fail_on_dataloss, list",
            "sets `meta[\"download_fail_on_dataloss\"]` to False, and a new list is cut off",
            AS_USUAL, "set", meta={"download_fail_on_dataloss": False},
            sites="list cut off", settings=_DEFER, variants=_STALE,
            does="The last list stays in force."),
    _before("bindaddress", "sets `meta[\"bindaddress\"]` to an address that this machine has not",
            HELD_BACK, "set", meta={"bindaddress": "203.0.113.9"},
            says=("Cannot assign requested address", "bind")),
    _before("headers cleared", "removes every header field", AS_USUAL, "clear"),
    _before("headers removed", "removes `Accept-Encoding` and `User-Agent`", AS_USUAL, "set",
            delete=["Accept-Encoding", "User-Agent", "Accept"]),
    _before("Accept-Encoding", "asks for other content codings", AS_USUAL, "set",
            headers={"Accept-Encoding": "gzip, br, zstd"}),
    _before("meta cleared", "empties `meta`", HELD_BACK, "forget",
            says=("meta", "not ours any more", "in its place")),
    _before("another request without meta",
            "puts a new request for the same URL in the place of each", HELD_BACK, "fresh",
            says=("instead of the site", "in their meta")),
    _before("Host", "sets another `Host`", AS_USUAL, "set", headers={"Host": "healthy.test"}),
    _before("Authorization", "adds `Authorization`", AS_USUAL, "set",
            headers={"Authorization": "Basic dXNlcjp3b3Jk"}),
    _before("flags of Scrapy", "lets Scrapy redirect, retry and cache documents", AS_USUAL, "set",
            meta={"dont_redirect": False, "dont_retry": False, "dont_cache": False,
                  "handle_httpstatus_all": False}),
    *(
        _before(f"proxy that is {name}", f"sends documents through a proxy that {what}",
                HELD_BACK, "set", meta={"proxy": f"http://127.0.0.1:<{name}>"}, says=_PROXY,
                settings={"DOWNLOAD_TIMEOUT": 2})
        for name, what in (
            ("refusing", "refuses the connection"),
            ("silent", "never answers"),
            ("demanding", "answers 407"),
            ("babbling", "speaks no HTTP"),
            ("closing", "closes the connection"),
        )
    ),
)  # fmt: skip


def _after(name: str, what: str, do: str, **more: Any) -> Row:
    """A middleware of the project that does something after the wire."""
    named = {key: more.pop(key) for key in ("does", "settings", "sites") if key in more}
    variants = more.pop("variants", USUAL)
    return Row(
        name,
        "middleware, after the answer",
        f"A downloader middleware of the project {what}.",
        AS_USUAL,
        {"do": do, **more},
        variants=variants,
        **named,
    )


_AFTER = (
    _after("response.text", "reads `response.text`, as every ban detection does", "text", on="all"),
    _after("response.css", "uses `response.css` on documents", "css"),
    *(
        _after(f"{error} after the answer", f"raises `{error}` when a document has come",
               "raise_after", error=error)
        for error in ("ValueError", "IgnoreRequest", "KeyError", "CloseSpider")
    ),
    _after("body emptied", "empties the body of documents", "change", **{"with": {"body": ""}}),
    *(
        _after(f"status made {status}", f"makes the status of documents {status}", "change",
               **{"with": {"status": status}})
        for status in (404, 403, 503, 304)
    ),
    _after("another class", "returns an HtmlResponse in the place of documents", "html"),
    _after("None returned", "returns None in the place of documents", "nothing"),
    _after("asked again", "returns the request once more, as a retry does", "again",
           does="The document is requested once, or twice, each time in its turn."),
    _after("another host's", "goes for the robots.txt of another host", "elsewhere", on="robots"),
    _after("failure retried", "requests a robots.txt again that could not be had", "again",
           on="robots", sites="forbidden closes", settings=_DEFER, does=_ONE_AWAY),
    _after("failure mended", "returns an empty response where a robots.txt could not be had",
           "mend", on="robots", sites="forbidden closes", settings=_DEFER,
           does=_ONE_AWAY),
    _after("failure mended with 404", "returns a 404 where a robots.txt could not be had",
           "mend", on="robots", status=404, sites="forbidden closes", settings=_DEFER,
           does=_ONE_AWAY),
    _after("failure replaced", "raises another error where a robots.txt could not be had",
           "raise_again", on="robots", error="KeyError", sites="forbidden closes", settings=_DEFER,
           does=_ONE_AWAY),
)  # fmt: skip


def _signal(
    name: str, error: str, *, on: str = "all", module: str = "scrapy.signals", how: str = ""
) -> Row:
    which = {"all": "", "documents": " for documents", "robots": " for robots.txt"}[on]
    return Row(
        f"{name} raises {error}{which}{how and f', connected {how}'}",
        "signal",
        f"A handler of the signal `{name}` raises `{_SPELT.get(error, error)}`{which}"
        f"{_CONNECTED.get(how, '')}.",
        AS_USUAL,
        {"do": "hear", "signal": f"{module}.{name}", "error": error, "on": on, "how": how},
        # More than one piece: what a handler stops at the first has no rule in it.
        sites="long rules",
        variants=((LONG, UNKNOWN), (SHORT, STALE)) if error.startswith("Stop") else _UNKNOWN,
    )


_SPELT: Final = {"StopDownload": "StopDownload(fail=False)", "StopDownload fail": "StopDownload()"}
_CONNECTED: Final = {
    "late": "; it is connected while the crawl goes on",
    "any sender": "; it is connected by pydispatch, for any sender",
}
_SIGNALS = (
    *(
        _signal("headers_received", error, on="documents", how=how)
        for error in ("StopDownload", "StopDownload fail")
        for how in ("late", "any sender")
    ),
    _signal("bytes_received", "StopDownload", how="any sender"),
    *(
        _signal(name, error, on=on)
        for name in ("headers_received", "bytes_received")
        for error, on in (
            ("StopDownload", "all"),
            ("StopDownload", "documents"),
            ("StopDownload fail", "all"),
            ("ValueError", "all"),
            ("CloseSpider", "documents"),
        )
    ),
    *(
        _signal(name, "RuntimeError")
        for name in (
            "response_received",
            "response_downloaded",
            "request_reached_downloader",
            "request_left_downloader",
            "request_scheduled",
            "spider_opened",
            "engine_started",
            "spider_idle",
        )
    ),
    *(
        _signal(name, "RuntimeError", module="scrapy_walsh.signals")
        for name in ("walsh_asked", "walsh_adopted", "walsh_refused")
    ),
)

_SETTINGS = (
    Row("DOWNLOAD_MAXSIZE", "setting", "`DOWNLOAD_MAXSIZE` is 1000, less than a robots.txt has.",
        AS_USUAL, settings={"DOWNLOAD_MAXSIZE": 1000}),
    Row("DOWNLOAD_FAIL_ON_DATALOSS, robots.txt",
        "setting", "`DOWNLOAD_FAIL_ON_DATALOSS` is False, and a robots.txt is cut off.", AS_USUAL,
        settings={"DOWNLOAD_FAIL_ON_DATALOSS": False, **_DEFER}, sites="forbidden cut off",
        does=_ONE_AWAY),
    Row("DOWNLOAD_FAIL_ON_DATALOSS, first list",
        "setting", "`DOWNLOAD_FAIL_ON_DATALOSS` is False, and the first list is cut off.",
        HOSTS_DOING, settings={"DOWNLOAD_FAIL_ON_DATALOSS": False, **_DEFER},
        sites="list cut off", variants=_UNKNOWN,
        does="The operator's site counts as unreachable: `WALSH_BLOCKLIST_UNREACHABLE` decides "
        "(here: `defer`)."),
    Row("DOWNLOAD_TIMEOUT, one slow host", "setting",
        "`DOWNLOAD_TIMEOUT` is 1 s, and one robots.txt takes 3 s.", AS_USUAL,
        settings={"DOWNLOAD_TIMEOUT": 1, **_DEFER}, sites="forbidden slow",
        does=_ONE_AWAY),
    Row("DOWNLOAD_TIMEOUT, all", "setting", "`DOWNLOAD_TIMEOUT` is a thousandth of a second.",
        HOSTS_DOING, settings={"DOWNLOAD_TIMEOUT": 0.001, **_DEFER}, variants=_UNKNOWN,
        does="Every site counts as unreachable: the two settings `..._UNREACHABLE` decide (here: "
        "`defer`). `doctor` warns of it."),
    Row("DOWNLOAD_BIND_ADDRESS", "setting",
        "`DOWNLOAD_BIND_ADDRESS` is an address that this machine has not.", HELD_BACK,
        settings={"DOWNLOAD_BIND_ADDRESS": "203.0.113.9"},
        says=("Cannot assign requested address", "bind")),
    Row("TLS method", "setting", "`DOWNLOADER_CLIENT_TLS_METHOD` is a word that nobody knows.",
        HELD_BACK, settings={"DOWNLOADER_CLIENT_TLS_METHOD": "nonsense"},
        says=("nonsense", "DOWNLOADER_CLIENT_TLS_METHOD")),
    Row("TLS factory", "setting", "`DOWNLOADER_CLIENTCONTEXTFACTORY` is a class that raises.",
        HELD_BACK, settings={"DOWNLOADER_CLIENTCONTEXTFACTORY": "badtls.Factory"},
        files={"badtls.py": "class Factory:\n    def __init__(self, *a, **k):\n"
               "        raise RuntimeError('no certificate of ours')\n"},
        says=("no certificate of ours", "badtls")),
    Row("TLS factory is missing", "setting",
        "`DOWNLOADER_CLIENTCONTEXTFACTORY` names a module that is not there.",
        HELD_BACK, settings={"DOWNLOADER_CLIENTCONTEXTFACTORY": "nowhere.Factory"},
        says=("nowhere",)),
    Row("DEFAULT_REQUEST_HEADERS", "setting",
        "`DEFAULT_REQUEST_HEADERS` has `Range` and `If-None-Match`.", AS_USUAL,
        settings={"DEFAULT_REQUEST_HEADERS": {"Range": "bytes=0-9", "If-None-Match": "*"}}),
    Row("another reactor", "setting", "`TWISTED_REACTOR` is one without asyncio.", AS_USUAL,
        settings={"TWISTED_REACTOR": "twisted.internet.selectreactor.SelectReactor"}),
    Row("another reactor, ValueError", "setting",
        "`TWISTED_REACTOR` is one without asyncio, and a middleware raises for documents.",
        HELD_BACK, {"do": "raise", "error": "ValueError"},
        settings={"TWISTED_REACTOR": "twisted.internet.selectreactor.SelectReactor"},
        says=("no colour for this host",)),
    Row("closed meanwhile", "setting",
        "The project closes the crawl while the first document is requested (`CLOSESPIDER_...`).",
        HOSTS_DOING, {"do": "close"},
        does="It ends, as asked: no fault, and nothing more is sent. The rest is for the next run.",
        ),
    Row("HTTP cache", "setting", "`HTTPCACHE_ENABLED` is True.", AS_USUAL,
        settings={"HTTPCACHE_ENABLED": True}),
    Row("no decompression", "setting", "`COMPRESSION_ENABLED` is False.", AS_USUAL,
        settings={"COMPRESSION_ENABLED": False}),
    Row("other handler", "setting", "`DOWNLOAD_HANDLERS` names Scrapy's handler on aiohttp.",
        AS_USUAL,
        settings={"DOWNLOAD_HANDLERS_BASE": {
            "http": "scrapy.core.downloader.handlers._aiohttp.AiohttpDownloadHandler",
            "https": "scrapy.core.downloader.handlers._aiohttp.AiohttpDownloadHandler"}}),
    Row("other handler, descriptors", "setting",
        "`DOWNLOAD_HANDLERS` names Scrapy's handler on aiohttp, and no file descriptor is left "
        "while documents are requested.", HELD_BACK, {"do": "descriptors"},
        settings={"DOWNLOAD_HANDLERS_BASE": {
            "http": "scrapy.core.downloader.handlers._aiohttp.AiohttpDownloadHandler",
            "https": "scrapy.core.downloader.handlers._aiohttp.AiohttpDownloadHandler"}},
        says=("Too many open files", "EMFILE", "descriptor")),
    Row("other handler, proxy", "setting",
        "`DOWNLOAD_HANDLERS` names Scrapy's handler on aiohttp, and the proxy refuses.", HELD_BACK,
        settings={"DOWNLOAD_HANDLERS_BASE": {
            "http": "scrapy.core.downloader.handlers._aiohttp.AiohttpDownloadHandler",
            "https": "scrapy.core.downloader.handlers._aiohttp.AiohttpDownloadHandler"}},
        environment={"http_proxy": "http://127.0.0.1:<refusing>"}, says=_PROXY),
    Row("ADDONS emptied", "setting", "`ADDONS` is emptied, and `walsh_metadata` is run.", REFUSED,
        settings={"ADDONS": {}, "SPIDER_MODULES": ["scrapy_walsh.spiders"]},
        spider="walsh_metadata", says=("ADDONS", "not fully installed")),
)  # fmt: skip


def _machine(number: str, at: str, words: str, on: str = "documents") -> Row:
    alone = on == "forbidden"
    return Row(
        f"{number}{' for one host' if alone else ''}",
        "machine",
        f"The machine says {number} ({words}) where a connection for "
        f"{'one robots.txt' if alone else 'a document'} is made.",
        NOT_WELL if alone else HELD_BACK,
        {"do": "machine", "errno": number, "at": at, "on": on},
        says=(words, number),
        settings={"DOWNLOAD_BIND_ADDRESS": "127.0.0.1"} if at == "bind" else {},
        does=_ONE_DEFERRED if alone else "",
        variants=_UNKNOWN if alone else USUAL,
    )


def _of_site(number: str, words: str) -> Row:
    return Row(
        f"{number} for one host",
        "machine",
        f"The machine says {number} ({words}) where a connection for one robots.txt is made.",
        AS_USUAL,
        {"do": "machine", "errno": number, "at": "connect", "on": "forbidden"},
        settings=_DEFER,
        does=_ONE_AWAY,
    )


_MACHINE = (
    *(
        _machine(number, at, words)
        for number, at, words in (
            ("EMFILE", "socket", "Too many open files"),
            ("ENFILE", "socket", "Too many open files in system"),
            ("ENOBUFS", "socket", "No buffer space available"),
            ("ENOMEM", "socket", "Cannot allocate memory"),
            ("EACCES", "connect", "Permission denied"),
            ("EPERM", "connect", "Operation not permitted"),
            ("EADDRNOTAVAIL", "connect", "Cannot assign requested address"),
            ("EADDRINUSE", "bind", "Address already in use"),
            ("ENETDOWN", "connect", "Network is down"),
            ("ENETUNREACH", "connect", "Network is unreachable"),
        )
    ),
    _machine("EMFILE", "socket", "Too many open files", "forbidden"),
    _machine("ENETUNREACH", "connect", "Network is unreachable", "forbidden"),
    _of_site("ECONNREFUSED", "Connection refused"),
    _of_site("EHOSTUNREACH", "No route to host"),
    _of_site("ETIMEDOUT", "Connection timed out"),
    Row("descriptors", "machine",
        "No file descriptor is left while documents are requested (`ulimit -n`).", HELD_BACK,
        {"do": "descriptors"}, says=("Too many open files", "EMFILE", "descriptor")),
    Row("descriptors for robots.txt", "machine",
        "No file descriptor is left while each robots.txt is requested.", HELD_BACK,
        {"do": "descriptors", "on": "robots"},
        says=("Too many open files", "EMFILE", "descriptor")),
    Row("names for one host", "machine", "The name of one host is not found for a moment.",
        AS_USUAL, {"do": "names", "error": "EAI_AGAIN", "on": "forbidden"},
        settings={**_DEFER, **_NO_CACHE_OF_NAMES}, does=_ONE_AWAY),
    Row("no names", "machine", "No name is found while documents are requested.", HOSTS_DOING,
        {"do": "names", "error": "EAI_AGAIN"}, settings=_DEFER, variants=_UNKNOWN,
        does="Every site counts as unreachable: the two settings `..._UNREACHABLE` decide (here: "
        "`defer`)."),
    Row("threads", "machine", "The system makes no further thread.", HELD_BACK,
        {"do": "no_thread"}, says=("start new thread", "thread"), variants=_UNKNOWN),
)  # fmt: skip


def _tunnel(name: str, what: str, then: Then = HELD_BACK, **more: Any) -> Row:
    return Row(
        f"tunnel, proxy {name}",
        "proxy",
        f"Documents of https sites go through a proxy that {what}.",
        then,
        {"do": "set", "meta": {"proxy": f"http://127.0.0.1:<{name}>"}},
        proxied=True,
        https=True,
        says=_PROXY if then == HELD_BACK else (),
        settings={"DOWNLOAD_TIMEOUT": 2, **more.pop("settings", {})},
        variants=_UNKNOWN if then == HOSTS_DOING else USUAL,
        **more,
    )


_PROXIES = (
    *(
        Row(f"proxy {name}", "proxy", f"The crawl's proxy {what}.", HELD_BACK,
            environment={"http_proxy": f"http://127.0.0.1:<{name}>"}, says=_PROXY,
            settings={"DOWNLOAD_TIMEOUT": 2})
        for name, what in (
            ("refusing", "refuses the connection"),
            ("silent", "never answers"),
            ("demanding", "answers 407"),
        )
    ),
    Row("407 for one robots.txt", "proxy", "The proxy answers 407 for one robots.txt.", NOT_WELL,
        sites="forbidden 407", proxied=True, says=("407", "proxy"),
        does=_ONE_DEFERRED),
    Row("407 for documents", "proxy", "The proxy answers 407 for robots.txt and the list.",
        HELD_BACK, sites="all 407", proxied=True, says=("407", "proxy")),
    Row("407 of a site", "proxy", "A site answers 407 for its robots.txt, and there is no proxy.",
        AS_USUAL, sites="healthy 407", variants=_UNKNOWN,
        does="It is a 4xx like others (R2.5)."),
    _tunnel("demanding", "answers 407"),
    _tunnel("forbidding", "answers 403"),
    _tunnel("babbling", "speaks no HTTP"),
    _tunnel("closing", "closes the connection"),
    _tunnel("refusing", "refuses the connection"),
    _tunnel("silent", "never answers"),
    _tunnel("failing", "answers 502", HOSTS_DOING, settings=_DEFER,
            does="A tunnel's 5xx is the site's side: the two settings `..._UNREACHABLE` decide "
            "(here: `defer`)."),
)  # fmt: skip

_OLD_MODULE: Final = "raise AttributeError('this module is of another Python')\n"


def _around_child(name: str, what: str, **fault: Any) -> Row:
    """What a child process is to be immune to."""
    files = fault.pop("files", {})
    return Row(
        name,
        "environment",
        what,
        AS_USUAL,
        {"do": "environ", **fault},
        files=files,
        variants=CHILD,
    )


def _no_child(name: str, what: str, fault: dict[str, Any], **more: Any) -> tuple[Row, Row]:
    """No child process is to be had: what does not need one goes on; what does, is not known."""
    quick, says = more.pop("quick", True), more.pop("says", _CHILD)
    return (
        Row(name, "environment", what, AS_USUAL, fault, variants=_TAME, quick=quick,
            does="A list with an ordinary schema is validated by the crawl itself: as usual.",
            **more),
        Row(f"{name}, list with a costly schema", "environment",
            f"{what} The list's schema is one that may take for ever.", HELD_BACK, fault,
            variants=_WILD, says=says, quick=quick, **more),
    )  # fmt: skip


def _metadata(kind: str) -> dict[str, Any]:
    """What a row of ``walsh_metadata`` has, with one source: a feed or a sitemap."""
    url = "http://healthy.test:<port>/a"
    source = f'[[source]]\nname = "one"\nurl = "{url}"\n{kind} = "{url}.xml"\n'
    return {
        "spider": "walsh_metadata",
        "arguments": "sources=sources.toml",
        "files": {"sources.toml": source, "site/typing.py": _OLD_MODULE},
        "variants": _UNKNOWN,
    }


def _read(name: str, what: str, then: Then, fault: dict[str, Any], **more: Any) -> Row:
    if then == NOT_WELL:
        more["does"] = "It is not read in this run; others are."
    return Row(
        name + more.pop("beside", ""), "environment", what, then, fault, sites=name,
        says=("1 of 1 source read",) if then == AS_USUAL else ("not read, error on our side",),
        **_metadata("sitemap" if "sitemap" in name else "feed"), **more,
    )  # fmt: skip


_NO_CHILD: Final = {"do": "environ", "executable": ""}


def _script(text: str) -> dict[str, Any]:
    return {"files": {"bin/python": f"#!/bin/sh\n{text}\n"}}


_EXECUTABLE: Final = {"do": "environ", "executable": "bin/python"}
_ENVIRONMENT = (
    *(
        _around_child(f"{name}.py", f"A package has put `{name}.py` into site-packages.",
                      folder="site", files={f"site/{name}.py": _OLD_MODULE})
        for name in ("typing", "enum", "dataclasses", "json", "signal")
    ),
    Row("scrapy-rotating-proxies", "environment",
        "scrapy-rotating-proxies is used, which brings PyPI's `typing`.", AS_USUAL,
        {"do": "environ"}, needs=has_pypis_typing, variants=CHILD,
        settings={"DOWNLOADER_MIDDLEWARES": {
            "rotating_proxies.middlewares.BanDetectionMiddleware": 620}}),
    _around_child("sitecustomize prints", "A `sitecustomize` prints a line.", folder="site",
                  files={"site/sitecustomize.py": "print('welcome')\n"}),
    _around_child("sitecustomize raises", "A `sitecustomize` raises.", folder="site",
                  files={"site/sitecustomize.py": "raise SystemExit(3)\n"}),
    _around_child("PYTHONHOME", "`PYTHONHOME` is set to a folder without Python.",
                  set={"PYTHONHOME": "/nonexistent"}),
    _around_child("PYTHONINSPECT", "`PYTHONINSPECT` is set.", set={"PYTHONINSPECT": "1"}),
    _around_child("PYTHONWARNINGS", "`PYTHONWARNINGS` makes every warning an error.",
                  set={"PYTHONWARNINGS": "error"}),
    _around_child("PYTHONPATH", "`PYTHONPATH` names folders that are not there.",
                  set={"PYTHONPATH": "/nonexistent:/dev/null"}),
    Row("banner", "environment", "`sys.executable` is a script that prints a line before Python.",
        EITHER, _EXECUTABLE, **_script('echo welcome\nexec <python> "$@"'), variants=CHILD,
        does="As usual where the shell leaves the child its descriptors; else as without a child."),
    *_no_child("no sys.executable", "`sys.executable` is empty (an embedded Python).",
               {"do": "environ", "executable": ""}),
    *_no_child("wrong sys.executable", "`sys.executable` names no file.",
               {"do": "environ", "executable": "/nonexistent/python"}),
    *_no_child("sys.executable is no Python", "`sys.executable` is another program.",
               {"do": "environ", "executable": "/bin/true"}),
    *_no_child("child fails", "The child process ends with code 3.", _EXECUTABLE,
               says=("no license",), **_script("echo no license >&2; exit 3")),
    *_no_child("child killed", "The child process is killed.", _EXECUTABLE,
               **_script("kill -9 $$")),
    *_no_child("child without memory", "The child process gets 30 MB of memory.", _EXECUTABLE,
               **_script('ulimit -v 30000; exec <python> "$@"')),
    *_no_child("child hangs", "The child process hangs.", _EXECUTABLE, quick=False,
               **_script("exec sleep 600")),
    *_no_child("no process", "The system makes no process.", {"do": "no_fork", "error": "no fork"}),
    *_no_child("no memory for a process", "There is no memory for another process.",
               {"do": "no_fork", "error": "MemoryError"}),
    _read("short feed", "A feed of 1 kB comes, and no child process is to be had.", AS_USUAL,
          _NO_CHILD, does="It is read by the crawl itself."),
    _read("long feed", "A feed of more than 8 KiB comes, and no child process is to be had.",
          NOT_WELL, _NO_CHILD),
    _read("sitemap.gz", "A compressed sitemap comes, and no child process is to be had.",
          NOT_WELL, _NO_CHILD),
    *(
        _read(name, f"A {words} comes, and a package has put `typing.py` into site-packages.",
              AS_USUAL, {"do": "environ", "folder": "site"}, beside=", typing.py")
        for name, words in (
            ("long feed", "feed of more than 8 KiB"),
            ("sitemap.gz", "compressed sitemap"),
        )
    ),
)  # fmt: skip


def _own(name: str, what: str, place: str, error: str, says: tuple[str, ...], **more: Any) -> Row:
    fault: dict[str, Any] = {key: more.pop(key) for key in ("where", "after") if key in more}
    then = more.pop("then", HELD_BACK)
    return Row(
        name,
        "our own code",
        what,
        then,
        {"do": "broken", "place": place, "error": error, **fault},
        says=says,
        **more,
    )


_DEFECT = ("a defect of our own", "RuntimeError")
_EXECUTE: Final = "scrapy_walsh.state.database:Connection.execute"
_OWN = (
    *(
        _own(f"{table} cannot be read", f"SQLite cannot read the records of {words}.", _EXECUTE,
             "sqlite3", _STATE, where=f"FROM {table}",
             does="What depends on them is deferred; nothing is sent where the pace, the rules or "
             "the list are not known.")
        for table, words in (
            ("documents", "documents (list, schema, robots.txt)"),
            ("hosts", "hosts (pace, holds)"),
            ("sources", "sources (R8)"),
            ("deferrals", "deferred targets"),
            ("attempts", "attempts (R5)"),
            ("validators", "validators (R7)"),
        )
    ),
    *(
        _own(f"{table} cannot be written", f"SQLite cannot write the records of {words}.", _EXECUTE,
             "sqlite3", _STATE, where=f"INTO {table}",
             does="What was fetched is used in this run; the next run will ask again. Where the "
             "pace of a host cannot be kept, nothing is sent to it.")
        for table, words in (
            ("documents", "documents"),
            ("hosts", "hosts (pace, holds)"),
            ("sources", "sources (R8)"),
        )
    ),
    _own("no room for hosts", "There is no room for the records of hosts.", _EXECUTE,
         "sqlite3 full", ("full", *_STATE), where="INTO hosts",
         does="Nothing is sent to a host whose pace cannot be kept."),
    _own("state is locked", "The state is locked by another program.", _EXECUTE, "locked",
         ("locked", *_STATE), where="FROM hosts"),
    _own("ledger cannot be written", "The ledger cannot be written.",
         "scrapy_walsh.ledger.files:Ledger.write", "full disk state", ("ledger", "No space left"),
         then=NOT_WELL, does="The crawl goes on; the ledger says that lines are missing."),
    _own("ledger raises", "A defect of the ledger's code.",
         "scrapy_walsh.ledger.files:Ledger.write", "RuntimeError", ("ledger", *_DEFECT)),
    _own("document cannot be kept", "A document cannot be kept beside the ledger.",
         "scrapy_walsh.ledger.files:Ledger.keep", "full disk state", ("ledger", "No space left"),
         then=NOT_WELL, does="The crawl goes on; `verify` says that the document is missing."),
    _own("rules cannot be parsed", "A defect in the parser of robots.txt.",
         "scrapy_walsh.policy.robots.file:parse_robots", "RuntimeError", _DEFECT),
    _own("rules of one host cannot be parsed",
         "A defect in the parser of robots.txt, for one host.",
         "scrapy_walsh.policy.robots.file:parse_robots", "RuntimeError", _DEFECT,
         where="forbidden.test", then=NOT_WELL,
         does=_ONE_DEFERRED),
    _own("no memory for rules", "There is no memory to parse a robots.txt.",
         "scrapy_walsh.policy.robots.file:parse_robots", "MemoryError",
         ("no memory", "MemoryError")),
    _own("list cannot be parsed", "A defect in the validation of the list.",
         "scrapy_walsh.policy.list.schema:blocklist_in", "RuntimeError", _DEFECT),
    _own("held list cannot be read again", "A defect in what reads the list of an earlier run.",
         "scrapy_walsh.policy.list.schema:reread_blocklist", "RuntimeError", _DEFECT,
         variants=_KEPT),
    _own("judge raises", "A defect in what judges a target.",
         "scrapy_walsh.policy.chain:judge", "RuntimeError", _DEFECT),
    _own("judge raises later", "A defect in what judges a target, from the fourth on.",
         "scrapy_walsh.policy.chain:judge", "RuntimeError", _DEFECT, after=3),
    _own("admit raises", "A defect in what says whether a target may go now.",
         "scrapy_walsh.policy.chain:admit", "RuntimeError", _DEFECT),
    _own("conclude raises", "A defect in what says what an answer means.",
         "scrapy_walsh.policy.chain:conclude", "RuntimeError", _DEFECT),
    _own("meaning raises", "A defect in what says what an answer for robots.txt means.",
         "scrapy_walsh.policy.robots.fetch:meaning", "RuntimeError", _DEFECT),
    _own("timer raises", "A defect in the timer that asks for the list again.",
         "scrapy_walsh.policy.list.operator:held_off", "RuntimeError", _DEFECT, after=1,
         sites="list fails first", variants=_STALE, settings={"WALSH_MAX_RETRIES": 5},
         does="The last list stays in force."),
    _own("timer of records raises", "A defect in what a timer calls to write records.",
         "scrapy_walsh.state.store:SqliteStore.flush", "RuntimeError", _DEFECT),
    _own("start raises", "A defect in what is done when the spider is opened.",
         "scrapy_walsh.adapters.seats:not_made", "RuntimeError", _DEFECT),
    _own("end raises", "A defect in what is done when the spider is closed.",
         "scrapy_walsh.adapters.events:Recorder.rates", "RuntimeError", _DEFECT,
         then=NOT_WELL, does="What else is due at the end is done."),
    _own("ledger cannot be opened", "The ledger cannot be opened.",
         "scrapy_walsh.ledger.files:Ledger._take_up", "full disk", ("decisions are not recorded",),
         then=NOT_WELL, does="The crawl goes on without one."),
    _own("throttle raises", "A defect in what paces the hosts.",
         "scrapy_walsh.policy.host:Traffic.wait", "RuntimeError", _DEFECT),
    _own("host cannot be booked", "The record of a host cannot be written.",
         "scrapy_walsh.state.store:Store.reserve_host", "full disk state", ("No space left",)),
)  # fmt: skip


_TOO_EARLY: Final = "the next run may request hosts and sources again too early"


def _disk(name: str, what: str, before: str = "", **more: Any) -> Row:
    return Row(
        name, "disk", what, more.pop("then", HELD_BACK), before=before,
        says=more.pop("says", _DISK), **more,
    )  # fmt: skip


def _spoilt(name: str, what: str, spoil: str, **more: Any) -> Row:
    """Something is done to the state while the crawl goes on."""
    fault = {"do": "files", "spoil": spoil}
    variants = (*_STALE, *_UNKNOWN)
    more = {"then": NOT_WELL, "says": (_TOO_EARLY,), "variants": variants, **more}
    return _disk(f"{name}, in the run", f"{what} while a crawl goes on.", fault=fault, **more)


_FOREIGN: Final = ("is not a file of this package",)
_LOST: Final = "The run's last line says that holds and R8's times are lost to the next run."
_DISKS = (
    _disk("full disk", "The disk of the state is full.", "full", needs=can_mount, then=REFUSED,
          variants=((SHORT, UNKNOWN), (SHORT, STALE))),
    _disk("full disk, in the run", "The disk of the state is full from the start of a crawl on.",
          fault={"do": "small_disk"}, does=_LOST,
          variants=((SHORT, UNKNOWN), (SHORT, STALE), (LONG_WILD, UNKNOWN))),
    _disk("full disk, walsh_metadata",
          "The disk of the state is full while `walsh_metadata` runs.", then=NOT_WELL,
          # Two requests write less than 8 kB before the end, where nothing is left to be written.
          fault={"do": "small_disk", "octets": 4096}, sites="short feed", does=_LOST,
          **_metadata("feed")),
    _disk("read-only", "The state directory is mounted for reading only.", "read-only",
          needs=can_mount, variants=_KEPT, then=REFUSED, says=("WALSH_STATE_DIR",)),
    _disk("state directory is a file", "The state directory is a file.", "state is a file",
          then=REFUSED, variants=_UNKNOWN, says=("WALSH_STATE_DIR", "walsh")),
    _disk("database is a directory", "The state's file is a directory.", "database is a directory",
          variants=_STALE, says=("state.sqlite3",), again=False),
    _disk("another program's SQLite", "The state's file is another program's SQLite database.",
          "another program's", then=REFUSED, variants=_STALE, says=_FOREIGN, again=False),
    _disk("state not SQLite, before", "The state's file is no SQLite database.",
          "database is text", then=REFUSED, variants=_KEPT, says=_FOREIGN, again=False),
    *(
        _disk(f"{name}, before", f"{what}, which earlier runs had kept.", spoil, then=NOT_WELL,
              variants=_KEPT, does="The damaged file is set aside, one line says so; the list's "
              "copies stay in force, hosts are spaced as if just requested.",
              says=(_TOO_EARLY,))
        for name, what, spoil in (
            ("state cut", "The state's file is cut off", "database cut"),
            ("state zeroed", "The state's file is zeros", "database zeroed"),
            ("state gone", "The state's file is gone", "database gone"),
        )
    ),
    _disk("all damaged, before", "Every file of the state is damaged, which earlier runs had kept.",
          "everything damaged", then=NOT_WELL, variants=_KEPT,
          does="The files are set aside, and lines say so. Nothing is sent before a list is had; "
          "hosts are spaced as if just requested.",
          says=(_TOO_EARLY,)),
    _disk("copies of the list damaged", "The copies of the list are damaged.",
          "list copies damaged", then=EITHER, says=(), variants=((SHORT, STALE), (LONG, STALE)),
          does="The list is read from the state's file, or asked for; until then nothing is sent."),
    _disk("ledger is a directory", "The ledger's file is a directory.", "ledger is a directory",
          says=("ledger",), variants=_KEPT),
    _disk("ledger is text", "The ledger's file is not a ledger.", "ledger is text", then=EITHER,
          says=("set aside",), variants=_KEPT,
          does="It is set aside, and a new one is made; its second line says so."),
    _disk("ledger's documents", "What is kept beside the ledger is not SQLite.",
          "documents are text", then=EITHER, says=("set aside",), variants=_STALE,
          does="It is set aside, and a new one made; `verify` says which documents are missing."),
    _spoilt("state gone", "The state's file is removed", "database gone", does=_LOST),
    _spoilt("state cut", "The state's file is cut off", "database cut", does=_LOST),
    _spoilt("state not SQLite", "The state's file becomes text", "database is text", does=_LOST),
    _spoilt("another program's SQLite", "The state's file is replaced by another program's",
            "another program's", does=_LOST, again=False),
    _spoilt("directory gone", "The state directory is removed", "directory gone", does=_LOST),
)  # fmt: skip


def _job(name: str, what: str, before: str, then: Then = HELD_BACK, **more: Any) -> Row:
    return Row(name, "JOBDIR", what, then, before=before, settings={"JOBDIR": "job"},
               variants=_UNKNOWN, **more)  # fmt: skip


_JOBS = (
    _job("renamed callback", "A callback was renamed since the job was paused.", "job renamed",
         EITHER, says=("parse_old",), does="Its requests are set aside, named; all others go."),
    _job("damaged row", "A request in the JOBDIR cannot be read.", "job damaged row", EITHER,
         says=("JOBDIR", "requests.sqlite3"), does="It is set aside, named; all others go."),
    _job("JOBDIR is not SQLite", "The JOBDIR's file is not SQLite.", "job is text", REFUSED,
         says=("JOBDIR", "requests.sqlite3")),
    _job("second process", "Another process uses the JOBDIR.", "job second", REFUSED,
         says=("JOBDIR",)),
    _job("read-only JOBDIR", "The JOBDIR is mounted for reading only.", "job read-only", REFUSED,
         says=("JOBDIR",), needs=can_mount),
    _job("full JOBDIR", "The disk of the JOBDIR is full.", "job full", REFUSED,
         says=("JOBDIR", "No space left", "disk is full"), needs=can_mount),
)  # fmt: skip

_SPIDERS = (
    Row("start waits for its callback", "spider",
        "`start()` waits for a callback, whose own request was not declared.", AS_USUAL,
        spider="waits", variants=_UNKNOWN, says=("R6 ",),
        does="After 5 s that request is judged by what has been declared so far: it is refused."),
)  # fmt: skip
_SCRIPT: Final = """
import sys
from scrapy.crawler import CrawlerProcess
from scrapy.utils.project import get_project_settings

process = CrawlerProcess(get_project_settings())
crawler = process.create_crawler("probe")
process.crawl(crawler, urls=sys.argv[1])
process.start()
found = crawler.stats.get_stats()
sys.exit(found["finish_reason"] == "walsh_not_well" and found["walsh/own_faults"] == 1)
"""
_COLOUR: Final[dict[str, Any]] = {
    "fault": {"do": "raise", "error": "ValueError"},
    "says": ("no colour for this host",),
    "variants": _UNKNOWN,
}
_COMMANDS = (
    Row("script", "command", "A middleware raises for documents, and a script runs the crawl.",
        HELD_BACK, files={"script.py": _SCRIPT}, command=("script.py", "<urls>"), **_COLOUR,
        does="The exit code is the script's; `finish_reason` is `walsh_not_well`, and the stat "
        "`walsh/own_faults` says how much failed."),
    Row("walsh discover", "command",
        "A middleware raises for documents, and `walsh discover` is run.", HELD_BACK,
        command=("-m", "scrapy_walsh", "discover", "http://healthy.test:<port>"), **_COLOUR),
    Row("walsh check", "command", "A middleware raises for documents, and `walsh check` is run.",
        HELD_BACK, command=("-m", "scrapy_walsh", "check", "http://healthy.test:<port>/a"),
        **_COLOUR),
)  # fmt: skip

_NOTHING = Row(
    "nothing",
    "no fault",
    "Nothing is wrong: the measure of all others.",
    AS_USUAL,
    variants=((SHORT, UNKNOWN), (SHORT, STALE), (SHORT, FRESH), (LONG, UNKNOWN), (WILD, UNKNOWN)),
)

#: Rows that CI leaves out: another row is of the same kind, or they wait for long.
BY_HAND: Final = frozenset(
    {
        *("POST", "HEAD in another request", "If-Modified-Since", "URL in another request"),
        *("headers removed", "headers cleared", "Accept-Encoding", "Host", "Authorization"),
        *("flags of Scrapy", "KeyError for documents", "NotSupported for documents"),
        *("Response 503 in place of a document", "Response 404 in place of a document"),
        *("IgnoreRequest for documents", "IgnoreRequest for robots.txt", "Range for robots.txt"),
        *("ValueError for everything", "proxy that is silent", "proxy that is closing"),
        *("proxy that is babbling", "response.css", "KeyError after the answer"),
        *("CloseSpider after the answer", "status made 403", "status made 503", "status made 304"),
        *("failure mended with 404", "failure retried", "failure replaced", "another host's"),
        *(
            "ENFILE",
            "ENOBUFS",
            "ENOMEM",
            "EPERM",
            "EADDRINUSE",
            "ENETDOWN",
            "EHOSTUNREACH for one host",
        ),
        *("ETIMEDOUT for one host", "descriptors for robots.txt", "ENETUNREACH for one host"),
        *(
            "proxy silent",
            "tunnel, proxy silent",
            "tunnel, proxy babbling",
            "tunnel, proxy closing",
        ),
        *("tunnel, proxy forbidding", "tunnel, proxy refusing", "TLS method", "HTTP cache"),
        *("TLS factory is missing", "no decompression", "other handler", "another reactor"),
        *("DOWNLOAD_TIMEOUT, one slow host", "dataclasses.py", "json.py", "signal.py"),
        *("PYTHONWARNINGS", "PYTHONPATH", "child without memory", "no memory for a process"),
        *("wrong sys.executable", "sys.executable is no Python", "child fails"),
        *("child without memory, list with a costly schema", "copies of the list damaged"),
        *("deferrals cannot be read", "attempts cannot be read", "validators cannot be read"),
        *("sources cannot be written", "judge raises later", "admit raises", "meaning raises"),
        *("timer raises", "no memory for rules", "state zeroed, before", "state cut, in the run"),
        *("state not SQLite, before", "state not SQLite, in the run", "directory gone, in the run"),
        *("ledger is text", "ledger's documents", "request_left_downloader raises RuntimeError"),
        *("request_scheduled raises RuntimeError", "engine_started raises RuntimeError"),
        *("response_downloaded raises RuntimeError", "spider_idle raises RuntimeError"),
        *("If-None-Match", "download_timeout", "ValueError after the answer", "None returned"),
        *("IgnoreRequest after the answer", "IgnoreRequest for one robots.txt", "URL in place"),
        *("headers_received raises ValueError", "headers_received raises StopDownload fail"),
        *("headers_received raises CloseSpider for documents", "EADDRNOTAVAIL", "EACCES"),
        *("bytes_received raises CloseSpider for documents", "bytes_received raises ValueError"),
        *("headers_received raises StopDownload for documents", "ECONNREFUSED for one host"),
        *("bytes_received raises StopDownload for documents", "walsh_asked raises RuntimeError"),
        *("response_received raises RuntimeError", "spider_opened raises RuntimeError"),
        *("request_reached_downloader raises RuntimeError", "names for one host", "no names"),
        *("headers_received raises StopDownload for documents, connected late",),
        *("headers_received raises StopDownload fail for documents, connected any sender",),
        *(
            "another reactor, ValueError",
            "DOWNLOAD_TIMEOUT, all",
            "other handler, proxy",
            "enum.py",
        ),
        *("407 for documents", "407 of a site", "sitecustomize raises", "PYTHONHOME", "banner"),
        *("no process", "child killed", "sources cannot be read", "documents cannot be written"),
        *(
            "document cannot be kept",
            "hosts cannot be written",
            "throttle raises",
            "state is locked",
        ),
        *(
            "all damaged, before",
            "state cut, before",
            "full disk, in the run",
            "JOBDIR is not SQLite",
        ),
        *("walsh_adopted raises RuntimeError", "walsh_refused raises RuntimeError"),
        # Each in tests/documents/test_child.py; one row shows what a crawl makes of them.
        *("typing.py", "sitecustomize prints"),
        *(
            f"{each}, list with a costly schema"
            for each in (
                *("wrong sys.executable", "sys.executable is no Python", "child fails"),
                *("child killed", "no process", "no memory for a process"),
            )
        ),
        *("short feed", "sitemap.gz", "sitemap.gz, typing.py", "walsh check"),
    }
)
_ALL: Final[tuple[Row, ...]] = (
    _NOTHING,
    *_RAISED,
    *_ALTERED,
    *_AFTER,
    *_SIGNALS,
    *_SETTINGS,
    *_MACHINE,
    *_PROXIES,
    *_ENVIRONMENT,
    *_OWN,
    *_DISKS,
    *_JOBS,
    *_SPIDERS,
    *_COMMANDS,
)
TABLE: Final = tuple(replace(each, quick=each.quick and each.name not in BY_HAND) for each in _ALL)
