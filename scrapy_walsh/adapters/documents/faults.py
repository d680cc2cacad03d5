"""Decides whether the site or our side caused a failed fetch of a document (D33).

A request for a robots.txt or a blocklist passes the project's downloader middlewares and signal
receivers, like a target. ``handler`` notes the answer at the wire, and only that answer counts. If
there was none, this module finds the cause:

| end of the fetch | cause |
|---|---|
| an error of the network | the site: it cannot be reached |
| the same, with an error number of our machine in its chain of causes | our side |
| the same, through a proxy, unless a tunnel was answered with 5xx | our side |
| the certificate of the operator's server does not verify (R3) | our side |
| any other error, at the wire or before it | our side |
| the request never reached the wire: a component answered or refused it | our side |

The sandbox is the only exception for proxies, because it plays all sites itself. While it runs, its
URL is in the environment variable :data:`LAB_PROXY`.

The class of an error is not enough. For example, Scrapy's handlers turn "too many open files" and
a failed proxy into "connection refused", and every OSError is an error of the network.
"""

from __future__ import annotations

import errno
import os
import re
import ssl
import sys
from contextlib import contextmanager
from socket import gaierror
from traceback import walk_tb
from typing import TYPE_CHECKING, Final, NoReturn

from scrapy.exceptions import IgnoreRequest
from twisted.internet.error import ConnectBindError, NoRouteError

from scrapy_walsh.adapters import compat
from scrapy_walsh.exceptions import OwnFault, WalshError
from scrapy_walsh.policy.backoff import NoAnswer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from scrapy_walsh.adapters.wire.names import Connecting
    from scrapy_walsh.policy.event import Unsent

#: The variable with the URLs of sandbox proxies, separated by commas (``proof.sandbox``).
LAB_PROXY: Final = "WALSH_LAB_PROXY"
#: Error numbers that come from this machine, not from a site.
_OF_THIS_MACHINE: Final = frozenset(
    {
        *(errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.EACCES, errno.EPERM),
        *(errno.EADDRNOTAVAIL, errno.EADDRINUSE, errno.ENETDOWN, errno.ENETUNREACH),
    }
)
#: OSErrors with numbers from other tables: OpenSSL's and ``getaddrinfo``'s.
_NUMBERED_OTHERWISE: Final = (ssl.SSLError, gaierror)
#: Finds the status of a refused tunnel in the errors of Scrapy's handlers.
_TUNNEL_STATUS: Final = re.compile(r"(?:'status': |^)([1-5]\d\d)\b")
_TUNNEL_ERRORS: Final = frozenset({"TunnelError", "ProxyError", "ClientHttpProxyError"})
_SEE_MACHINE: Final = "check this machine's network and its limits (ulimit -n)"
_LONGEST: Final = 200
#: aiohttp's error for a URL that it does not send, for example ``http://192.168.257/``. A site may
#: redirect or link to such a URL, so this is not our fault.
_UNSENDABLE: Final = "InvalidUrlClientError"
#: Explanations for errors. Each key is a part of the class name of the error, or of its cause. The
#: first match counts. Parts are used because Scrapy and Twisted have several classes for each.
_MEANINGS: Final = {
    "HeaderTooLarge": "its header section is too large",
    _UNSENDABLE: "its URL cannot be sent",
    **dict.fromkeys(("Resolve", "DNSLookup"), "its name cannot be resolved"),
    **dict.fromkeys(("Timeout", "TimedOut"), "timed out"),
    "DataLoss": "cut off",
    **dict.fromkeys(("ResponseFailed", "NeverReceived", "ConnectionLost"), "connection lost"),
    "Refused": "connection refused",
    "ConnectionDone": "connection closed",
}
#: Errors of Twisted's and aiohttp's parsers for an answer that is not HTTP/1.1.
_OF_PARSERS: Final = frozenset(
    {
        *("ParseError", "BadResponseVersion", "InvalidHeaderName", "InvalidHeaderValue"),
        *("_MalformedChunkedDataError", "BadStatusLine", "BadHttpMessage"),
    }
)
#: Errors that mean the same if they made Twisted's ``ResponseFailed``.
_OF_AN_ANSWER: Final = frozenset({"ValueError", "KeyError"})


def of_transfer(error: BaseException, *, proxy: str | None) -> OwnFault | None:
    """Return the fault of our side that ended an exchange with *error*, or None for the site's.

    *proxy*: the URL of the request's proxy, if any.
    """
    fault = of_machine(error)
    if fault is not None:
        return fault
    if is_unsendable(error):
        return None
    if not isinstance(error, compat.TRANSPORT_ERRORS):
        return OwnFault(f"{_text(error)}: see the log for its cause", type(error).__name__)
    if fails_for_us(proxy) and not any(map(_is_tunnels_5xx, _causes(error))):
        return OwnFault(
            f"its proxy failed ({_text(error)}): see {_without_password(proxy)}", f"proxy {proxy}"
        )
    return None


def is_unreadable(error: BaseException) -> bool:
    """Whether an answer came, but *error* shows that it was not HTTP/1.1."""
    names = {type(cause).__name__ for cause in _causes(error)}
    of_answer = "ResponseFailed" in names and bool(names & _OF_AN_ANSWER)
    return of_answer or bool(names & _OF_PARSERS)


def no_answer(error: BaseException) -> NoAnswer:
    """Return the reason of an exchange that ended with *error*, an error of the network."""
    return NoAnswer(None if is_unreadable(error) else meaning(error))


def meaning(error: BaseException) -> str:
    """Return the cause of *error*, in a few words, for an exchange without an answer."""
    names = [type(cause).__name__ for cause in _causes(error)]
    meanings = (words for part, words in _MEANINGS.items() if any(part in name for name in names))
    return next(meanings, _text(error))


def of_machine(error: BaseException) -> OwnFault | None:
    """Return the fault of our code or this machine that led to *error*, or None."""
    for nested in _causes(error):
        if isinstance(nested, OwnFault):
            return nested
        if _number(nested) in _OF_THIS_MACHINE or isinstance(
            nested, (ConnectBindError, NoRouteError)
        ):
            cause = f"{type(nested).__name__} {_number(nested)}"
            return OwnFault(f"{_text(nested)}: {_SEE_MACHINE}", cause)
    return None


def of_certificate(error: BaseException) -> OwnFault | None:
    """Return a fault if *error* means that a certificate does not verify, else None.

    The cause may be this machine's CAs or clock, an interceptor, or the operator's server. In none
    of these cases do we know that the list has no entries.
    """
    for cause in _causes(error):
        mismatch = type(cause).__module__.startswith("service_identity")
        if mismatch or "certificate verify failed" in str(cause).lower():
            line = (
                "the certificate of its server does not verify: check this machine's CAs (package "
            )
            line += "ca-certificates, SSL_CERT_FILE) and clock, then the operator's server"
            return OwnFault(f"{line} ({_text(cause)})", "certificate")
    return None


def says_something(error: BaseException) -> bool:
    """Whether an exchange that ended with *error* counts for the server's back-off (R5).

    It does not count if this machine failed, if our side broke the exchange off, or if the URL
    cannot be sent. If a proxy failed, it counts, because R5 should be as patient with it.
    """
    return of_transfer(error, proxy=None) is None and not is_unsendable(error)


def unsent(error: BaseException, connecting: Connecting, proxy: str | None) -> Unsent | None:
    """Return why nothing of a request that ended with *error* was sent; None if something was.

    *connecting*: its connection. *proxy*: as in :func:`of_transfer`. The site's server has no
    request in its log then, whoever is to blame.
    """
    if connecting.transport is not None:
        return None if compat.is_secured(connecting.transport) else "tls"
    if not says_something(error):
        return "ours"
    if fails_for_us(proxy):
        return "proxy"
    # The sandbox as a proxy takes every connection, so what fails there is the handshake.
    if proxy or any(isinstance(cause, ssl.SSLError) for cause in _causes(error)):
        return "tls"
    return "connection" if connecting.address else "name"


def of_answer(status: int, proxy: str | None) -> OwnFault | None:
    """Return a fault if the answer came from the proxy, which is so for status 407; else None."""
    if status != 407 or not fails_for_us(proxy):
        return None
    return OwnFault(
        f"its proxy asks for a password (407): see {_without_password(proxy)}", f"proxy {proxy}"
    )


def before_wire(error: BaseException | None) -> OwnFault:
    """Return the fault if a document's request never reached the wire.

    *error*: the exception, or None if a component of the project answered instead of the site.
    """
    let = "let requests pass that have walsh_document in their meta"
    if error is None:
        cause = "a downloader middleware of this project answered instead of the site"
        return OwnFault(f"{cause}: {let}", cause)
    component = _component(error)
    return OwnFault(f"{component} raised {_text(error)}: {let}", f"{component} {type(error)}")


def _component(error: BaseException) -> str:
    """Return the project's class or module that raised *error*, for the message."""
    libraries = {"scrapy", "twisted", "scrapy_walsh", *sys.stdlib_module_names}
    for frame, _ in walk_tb(error.__traceback__):
        module = str(frame.f_globals.get("__name__", ""))
        if module.partition(".")[0] not in libraries:
            owner = frame.f_locals.get("self")
            if owner is None:
                return module
            return f"{module}.{type(owner).__name__}"
    return "a component of this project"


def pass_on(failure: str, error: Exception) -> NoReturn:
    """Raise *error*, or an OwnFault that begins with *failure* if *error* is unexpected.

    Errors that this package raises on purpose (IgnoreRequest, WalshError) stay as they are.
    """
    if isinstance(error, (IgnoreRequest, WalshError)):
        raise error
    cause = f"{failure} {type(error).__name__}"
    raise OwnFault(f"{failure}: {_text(error)}: please report it", cause) from error


@contextmanager
def as_own_fault(failure: str) -> Iterator[None]:
    """Call :func:`pass_on` for an exception in the block."""
    try:
        yield
    except Exception as error:
        pass_on(failure, error)


def fails_for_us(proxy: str | None) -> bool:
    """Whether a failure of *proxy* is our fault: there is a proxy, and it is no sandbox."""
    return bool(proxy) and not is_lab(proxy)


def is_lab(proxy: str | None) -> bool:
    """Whether *proxy* is the sandbox. It plays the sites, with its own certificates."""
    return proxy in os.environ.get(LAB_PROXY, "").split(",")


def _without_password(proxy: str | None) -> str:
    """Return *proxy* without user name and password."""
    return str(proxy).rpartition("@")[2]


def _text(error: BaseException) -> str:
    name = type(error).__name__
    lines = str(error).splitlines()
    if lines:
        return f"{name}: {lines[0]}"[:_LONGEST]
    return name


def is_unsendable(error: BaseException) -> bool:
    """Whether nothing was sent because the handler does not take such a URL."""
    return any(type(cause).__name__ == _UNSENDABLE for cause in _causes(error))


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Yield *error* and all errors that led to it: causes, group members, Twisted's reasons."""
    queue: list[object] = [error]
    seen_ids: set[int] = set()
    while queue:
        cause = queue.pop(0)
        cause = getattr(cause, "value", cause)  # of a Failure
        if not isinstance(cause, BaseException) or id(cause) in seen_ids:
            continue
        seen_ids.add(id(cause))
        yield cause
        queue += (cause.__cause__, cause.__context__, getattr(cause, "os_error", None))
        queue += getattr(cause, "reasons", None) or ()
        queue += getattr(cause, "exceptions", None) or ()


def _number(error: BaseException) -> int:
    """Return the number of *error* in errno's table; 0 if it has none."""
    if isinstance(error, _NUMBERED_OTHERWISE):
        return 0
    number = getattr(error, "osError", None)  # of Twisted's
    if number is None and isinstance(error, OSError):
        number = error.errno
    if isinstance(number, int):
        return number
    return 0


def _is_tunnels_5xx(error: BaseException) -> bool:
    """Whether a proxy answered 5xx to a request for a tunnel, because it cannot reach the site."""
    if type(error).__name__ not in _TUNNEL_ERRORS:
        return False
    status = getattr(error, "status", None)
    if status is None and (match := _TUNNEL_STATUS.search(str(error))):
        status = int(match[1])
    return isinstance(status, int) and status >= 500
