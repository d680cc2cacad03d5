"""By whose fault a document did not come: the site's, or ours (design: the fourth answer).

A robots.txt or a blocklist travels like a target: through the downloader middlewares and signal
receivers of the project, to the wire, and back. ``handler`` notes what the wire brought, and that
counts, whatever the project's components make of it later. Where the wire brought no answer, this
module says why:

| how the fetch ended | whose fault |
|---|---|
| an error of the network | the site's: it cannot be reached |
| the same, with an error number of our machine in its chain of causes | ours |
| the same, with a proxy, unless a tunnel was answered with 5xx | ours |
| the certificate of the operator's server does not verify (R3) | ours |
| any other error, raised at the wire or before it | ours |
| it never came to the wire: a component answered or refused it | ours |

One kind of proxy is not looked at: the sandbox, which plays all sites itself. While it runs it
names itself in the environment variable :data:`LAB_PROXY`.

The class of an error alone does not tell. Scrapy's handlers turn "too many open files" and a proxy
that refuses into "connection refused", and the network's errors include every OSError.
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

#: Names the proxies, separated by commas, that are the sites themselves (``proof.sandbox``).
LAB_PROXY: Final = "WALSH_LAB_PROXY"
#: Error numbers with which this machine, and no site, ends a connection.
_OF_THIS_MACHINE: Final = frozenset(
    {
        *(errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.EACCES, errno.EPERM),
        *(errno.EADDRNOTAVAIL, errno.EADDRINUSE, errno.ENETDOWN, errno.ENETUNREACH),
    }
)
#: OSErrors whose number is of another table: those of OpenSSL and of ``getaddrinfo``.
_NUMBERED_OTHERWISE: Final = (ssl.SSLError, gaierror)
#: How Scrapy's handlers tell the status with which a proxy refused a tunnel.
_TUNNEL_STATUS: Final = re.compile(r"(?:'status': |^)([1-5]\d\d)\b")
_TUNNEL_ERRORS: Final = frozenset({"TunnelError", "ProxyError", "ClientHttpProxyError"})
_SEE_MACHINE: Final = "see this machine's network and its limits (ulimit -n)"
_LONGEST: Final = 200
#: What it means, in a few words, where a connection ended with an error whose name, or that of what
#: led to it, has that in it. The first counts. Scrapy and Twisted have several classes for each.
_MEANINGS: Final = {
    "HeaderTooLarge": "its header section is too large",
    **dict.fromkeys(("Resolve", "DNSLookup"), "its name cannot be resolved"),
    **dict.fromkeys(("Timeout", "TimedOut"), "timed out"),
    "DataLoss": "cut off",
    **dict.fromkeys(("ResponseFailed", "NeverReceived", "ConnectionLost"), "connection lost"),
    "Refused": "connection refused",
    "ConnectionDone": "connection closed",
}
#: The errors of Twisted's and aiohttp's parsers for what is no answer in HTTP/1.1; and others that
#: are one where an answer of Twisted's has failed by them.
_OF_PARSERS: Final = frozenset(
    {
        *("ParseError", "BadResponseVersion", "InvalidHeaderName", "InvalidHeaderValue"),
        *("_MalformedChunkedDataError", "BadStatusLine", "BadHttpMessage"),
    }
)
_OF_AN_ANSWER: Final = frozenset({"ValueError", "KeyError"})


def of_transfer(error: BaseException, *, proxy: str | None) -> OwnFault | None:
    """What failed on our side where an exchange ended with *error*; None where the site failed.

    *proxy*: URL of the proxy that the request went through, if any.
    """
    if (fault := of_machine(error)) is not None:
        return fault
    if not isinstance(error, compat.TRANSPORT_ERRORS):
        return OwnFault(f"{_text(error)}: see the log for its cause", type(error).__name__)
    if _fails_for_us(proxy) and not any(map(_is_tunnels_5xx, _causes(error))):
        return OwnFault(f"its proxy failed ({_text(error)}): see {_shown(proxy)}", f"proxy {proxy}")
    return None


def is_unreadable(error: BaseException) -> bool:
    """Whether *error*, of the network, is that an answer came, and was not HTTP/1.1."""
    names = {type(each).__name__ for each in _causes(error)}
    of_answer = "ResponseFailed" in names and bool(names & _OF_AN_ANSWER)
    return of_answer or bool(names & _OF_PARSERS)


def no_answer(error: BaseException) -> NoAnswer:
    """The network's *error* with which an exchange ended, for a person."""
    return NoAnswer(None if is_unreadable(error) else meaning(error))


def meaning(error: BaseException) -> str:
    """Why there was no answer, in a few words, where an exchange ended with *error*."""
    names = [type(each).__name__ for each in _causes(error)]
    found = (words for part, words in _MEANINGS.items() if any(part in name for name in names))
    return next(found, _text(error))


def of_machine(error: BaseException) -> OwnFault | None:
    """What of our code or of this machine led to *error*; None where nothing of it did."""
    for each in _causes(error):
        if isinstance(each, OwnFault):
            return each
        if _number(each) in _OF_THIS_MACHINE or isinstance(each, (ConnectBindError, NoRouteError)):
            cause = f"{type(each).__name__} {_number(each)}"
            return OwnFault(f"{_text(each)}: {_SEE_MACHINE}", cause)
    return None


def of_certificate(error: BaseException) -> OwnFault | None:
    """What to do where *error* is that a certificate does not verify; None for any other.

    It may be this machine's CAs or clock, somebody on the path, or the operator's server: none of
    them says that a list has no entries.
    """
    for each in _causes(error):
        mismatch = type(each).__module__.startswith("service_identity")
        if mismatch or "certificate verify failed" in str(each).lower():
            line = "the certificate of its server does not verify: see this machine's CAs (package "
            line += "ca-certificates, SSL_CERT_FILE) and clock, then the operator's server"
            return OwnFault(f"{line} ({_text(each)})", "certificate")
    return None


def says_something(error: BaseException) -> bool:
    """Whether an exchange that ended with *error* says something about the server (R5).

    An error of this machine does not, nor does an exchange that this side broke off. That a proxy
    failed is taken for the server's error: R5 is as patient with it.
    """
    return of_transfer(error, proxy=None) is None


def of_answer(status: int, proxy: str | None) -> OwnFault | None:
    """What failed on our side though an answer with *status* came; None where all is well.

    407 is the proxy's, not the site's.
    """
    if status != 407 or not _fails_for_us(proxy):
        return None
    return OwnFault(f"its proxy asks for a password (407): see {_shown(proxy)}", f"proxy {proxy}")


def before_wire(error: BaseException | None) -> OwnFault:
    """What failed where a document's request never came to the wire.

    *error*: what was raised; None where a component gave an answer in the place of the site's.
    """
    let = "let requests pass that have walsh_document in their meta"
    if error is None:
        cause = "a downloader middleware of this project answered in the place of the site"
        return OwnFault(f"{cause}: {let}", cause)
    component = _component(error)
    return OwnFault(f"{component} raised {_text(error)}: {let}", f"{component} {type(error)}")


def _component(error: BaseException) -> str:
    """The class or module of the project whose code raised *error*, for a person to look for."""
    others = {"scrapy", "twisted", "scrapy_walsh", *sys.stdlib_module_names}
    for frame, _ in walk_tb(error.__traceback__):
        module = str(frame.f_globals.get("__name__", ""))
        if module.partition(".")[0] not in others:
            owner = frame.f_locals.get("self")
            return module if owner is None else f"{module}.{type(owner).__name__}"
    return "a component of this project"


def pass_on(what: str, error: Exception) -> NoReturn:
    """Raise *error*, or an OwnFault that begins with *what* where our own code should not raise it.

    What this package raises on purpose (IgnoreRequest, WalshError) goes on as it is.
    """
    if isinstance(error, (IgnoreRequest, WalshError)):
        raise error
    cause = f"{what} {type(error).__name__}"
    raise OwnFault(f"{what}: {_text(error)}: please report it", cause) from error


@contextmanager
def ours(what: str) -> Iterator[None]:
    """:func:`pass_on` what is raised within."""
    try:
        yield
    except Exception as error:
        pass_on(what, error)


def _fails_for_us(proxy: str | None) -> bool:
    """Whether what *proxy* does not bring is our fault: it is one, and not the sandbox."""
    return bool(proxy) and not is_lab(proxy)


def is_lab(proxy: str | None) -> bool:
    """Whether *proxy* is the sandbox, which plays the sites, with certificates of its own."""
    return proxy in os.environ.get(LAB_PROXY, "").split(",")


def _shown(proxy: str | None) -> str:
    """*proxy* without a password."""
    return str(proxy).rpartition("@")[2]


def _text(error: BaseException) -> str:
    name, lines = type(error).__name__, str(error).splitlines()
    return f"{name}: {lines[0]}"[:_LONGEST] if lines else name


def _causes(error: BaseException) -> Iterator[BaseException]:
    """*error* and all errors that led to it: causes, members of groups, Twisted's reasons."""
    found: list[object] = [error]
    seen: set[int] = set()
    while found:
        each = found.pop(0)
        each = getattr(each, "value", each)  # of a Failure
        if not isinstance(each, BaseException) or id(each) in seen:
            continue
        seen.add(id(each))
        yield each
        found += (each.__cause__, each.__context__, getattr(each, "os_error", None))
        found += getattr(each, "reasons", None) or ()
        found += getattr(each, "exceptions", None) or ()


def _number(error: BaseException) -> int:
    """The error number of *error*, by errno's table; 0 for none."""
    if isinstance(error, _NUMBERED_OTHERWISE):
        return 0
    number = getattr(error, "osError", None)  # of Twisted's
    if number is None and isinstance(error, OSError):
        number = error.errno
    return number if isinstance(number, int) else 0


def _is_tunnels_5xx(error: BaseException) -> bool:
    """Whether a proxy answered 5xx when it was to open a tunnel: it cannot reach the site."""
    if type(error).__name__ not in _TUNNEL_ERRORS:
        return False
    status = getattr(error, "status", None)
    if status is None and (found := _TUNNEL_STATUS.search(str(error))):
        status = int(found[1])
    return isinstance(status, int) and status >= 500
