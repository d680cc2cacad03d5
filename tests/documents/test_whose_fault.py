"""D33: the line between a site that cannot be reached, and an error on our side.

Each row is an error that a fetch may end with. That real crawls keep to it is in ``tests/faults``.
"""

from __future__ import annotations

import errno
import os
import socket
import ssl

import pytest
from scrapy.core.downloader.handlers.http11 import TunnelError
from scrapy.exceptions import IgnoreRequest, NotSupported
from twisted.internet import error as net
from twisted.python.failure import Failure
from twisted.web.client import ResponseFailed

from scrapy_walsh.adapters import compat
from scrapy_walsh.adapters.documents import faults
from scrapy_walsh.exceptions import OwnFault, StateError

PROXY = "http://proxy.test:3128"
#: Scrapy's own names of the network's errors, of the oldest version that we support and the newest.
NETWORK = [each for each in compat.TRANSPORT_ERRORS if each.__module__.startswith("scrapy.")]
OF_THIS_MACHINE = [
    *(errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.EACCES, errno.EPERM),
    *(errno.EADDRNOTAVAIL, errno.EADDRINUSE, errno.ENETDOWN, errno.ENETUNREACH),
]


def caused(error: BaseException, cause: BaseException) -> BaseException:
    error.__cause__ = cause
    return error


def failed(*causes: BaseException) -> ResponseFailed:
    return ResponseFailed([Failure(each) for each in causes])


SITES = {
    "refused": net.ConnectionRefusedError(osError=errno.ECONNREFUSED),
    "timed out": net.TCPTimedOutError(osError=errno.ETIMEDOUT),
    "no such host": net.DNSLookupError("no results"),
    "lost": net.ConnectionLost(),
    "closed": net.ConnectionDone(),
    "lost in the answer": failed(net.ConnectionLost()),
    "header too large": compat.HeaderTooLarge("too long"),
    "reset": ConnectionResetError(errno.ECONNRESET, "reset"),
    # OpenSSL's and getaddrinfo's numbers are of other tables: 1 is EPERM in errno's.
    "tls": caused(failed(net.ConnectionLost()), ssl.SSLError(1, "certificate verify failed")),
    "name": caused(net.ConnectError(), socket.gaierror(-2, "Name or service not known")),
}


@pytest.mark.parametrize(
    "why", ["certificate verify failed", "('SSL routines', '', 'certificate verify failed')"]
)
def test_r3_a_certificate_that_does_not_verify_says_nothing_of_the_list(why: str) -> None:
    fault = faults.of_certificate(caused(failed(net.ConnectionLost()), ssl.SSLError(1, why)))
    assert fault is not None
    assert "SSL_CERT_FILE" in str(fault)
    assert faults.of_certificate(failed(net.ConnectionLost())) is None


@pytest.mark.parametrize("error", SITES.values(), ids=SITES)
def test_an_error_of_the_network_is_the_sites(error: BaseException) -> None:
    assert faults.of_transfer(error, proxy=None) is None
    assert faults.says_something(error)


@pytest.mark.parametrize("error", NETWORK, ids=lambda each: each.__name__)
def test_so_is_each_that_scrapy_knows(error: type[BaseException]) -> None:
    assert faults.of_transfer(error("why"), proxy=None) is None


@pytest.mark.parametrize("number", OF_THIS_MACHINE, ids=errno.errorcode.get)
def test_an_error_number_of_this_machine_is_ours_wherever_it_stands(number: int) -> None:
    plain = OSError(number, os.strerror(number))
    for error in (
        plain,
        net.ConnectError(osError=number),
        caused(net.ConnectionRefusedError("all attempts failed"), plain),
        caused(net.ConnectError(), ExceptionGroup("all attempts failed", [plain])),
        failed(net.ConnectionLost(), plain),
    ):
        fault = faults.of_transfer(error, proxy=None)
        assert isinstance(fault, OwnFault)
        assert not faults.says_something(error)
        assert "\n" not in str(fault)


@pytest.mark.parametrize(
    "error",
    [
        net.ConnectBindError(),
        net.NoRouteError(),
        NotSupported("ftp"),
        ValueError("why"),
        IgnoreRequest("why"),
        StateError("the disk failed"),
        OwnFault("why"),
    ],
    ids=lambda each: type(each).__name__,
)
def test_what_is_no_error_of_the_network_is_ours(error: BaseException) -> None:
    assert isinstance(faults.of_transfer(error, proxy=None), OwnFault)


def test_a_url_that_the_handler_does_not_send_is_the_sites_and_no_failure_of_its_server() -> None:
    """A site may redirect or link to ``http://192.168.257/``; aiohttp sends nothing there."""
    cause = type("InvalidUrlClientError", (Exception,), {})("is not a canonical IPv4 address")
    error = caused(NotSupported("why"), cause)
    assert faults.of_transfer(error, proxy=None) is None
    assert not faults.says_something(error)
    assert "its URL cannot be sent" in str(faults.no_answer(error))


@pytest.mark.parametrize("error", SITES.values(), ids=SITES)
def test_behind_a_proxy_it_may_be_the_proxys_so_it_is_ours(error: BaseException) -> None:
    fault = faults.of_transfer(error, proxy="http://me:secret@proxy.test:3128")
    assert isinstance(fault, OwnFault)
    assert "proxy.test" in str(fault)
    assert "secret" not in str(fault)


@pytest.mark.parametrize(("status", "ours"), [(502, False), (504, False), (403, True), (407, True)])
def test_a_tunnel_that_ends_with_5xx_is_the_sites(status: int, ours: bool) -> None:
    text = f"Could not open CONNECT tunnel with proxy proxy.test:3128 [{{'status': {status}}}]"
    assert isinstance(faults.of_transfer(TunnelError(text), proxy=PROXY), OwnFault) == ours


def test_the_sandbox_is_no_proxy_but_the_sites(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(faults.LAB_PROXY, f"http://127.0.0.1:1,{PROXY}")
    assert faults.of_transfer(net.ConnectionLost(), proxy=PROXY) is None


@pytest.mark.parametrize(
    ("status", "proxy", "ours"),
    [
        (200, None, False),
        (404, PROXY, False),
        (503, PROXY, False),
        (407, None, False),
        (407, PROXY, True),
    ],
)
def test_an_answer_counts_unless_the_proxy_gave_it(
    status: int, proxy: str | None, ours: bool
) -> None:
    assert isinstance(faults.of_answer(status, proxy), OwnFault) == ours


class _Middleware:
    def process_request(self) -> None:
        raise IgnoreRequest("not today")


class _Other(_Middleware):
    def process_request(self) -> None:
        raise IgnoreRequest("nor tomorrow")


def test_a_component_that_raises_is_named_and_two_of_them_are_two_causes() -> None:
    causes = []
    for each in (_Middleware(), _Other()):
        with pytest.raises(IgnoreRequest) as raised:
            each.process_request()
        # Its traceback begins in this function; a crawl's begins in Scrapy.
        fault = faults.before_wire(raised.value.with_traceback(raised.tb.tb_next))
        assert str(fault).startswith(f"{__name__}.{type(each).__name__} raised IgnoreRequest: no")
        causes.append(fault.cause)
    assert len(set(causes)) == 2
