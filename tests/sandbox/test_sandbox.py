"""The sandbox: what it logs, what it answers, and the default scenario."""

from __future__ import annotations

import contextlib
import gc
import json
import math
import signal
import socket
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request
from typing import TYPE_CHECKING, Any

import feedparser
import jsonschema
import pytest

from scrapy_walsh.commands.main import main
from scrapy_walsh.exceptions import ConfigError
from scrapy_walsh.proof.sandbox import (
    LoggedRequest,
    Request,
    Route,
    Sandbox,
    Site,
    blocklist,
    default_sites,
    demo_sources,
    gaps,
    host_key,
    hosts,
    load_sites,
    max_in_flight,
    page,
    paths,
    read_log,
    requests,
    user_agents,
)
from scrapy_walsh.proof.sandbox.log import RequestLog

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

SECONDS = 30.0
PLAIN = "text/plain"


@pytest.fixture(scope="module")
def box() -> Iterator[Sandbox]:
    with Sandbox() as running:
        yield running


def connect(box: Sandbox) -> socket.socket:
    return socket.create_connection(("127.0.0.1", box.port), timeout=SECONDS)


def receive(client: socket.socket) -> bytes:
    """Everything until the server closes."""
    return b"".join(iter(lambda: client.recv(65536), b""))


def receive_one(client: socket.socket) -> bytes:
    """One answer with a Content-Length; nothing is read past it."""
    data = b""
    while b"\r\n\r\n" not in data:
        data += client.recv(1)
    length = int(data.lower().partition(b"content-length: ")[2].partition(b"\r")[0])
    while length:
        part = client.recv(length)
        data, length = data + part, length - len(part)
    return data


def exchange(box: Sandbox, text: str) -> str:
    with connect(box) as client:
        client.sendall(text.encode("latin-1"))
        return receive(client).decode("latin-1")


def get(box: Sandbox, url: str, **headers: str) -> str:
    """The raw answer to one GET, the proxy's way, on its own connection."""
    lines = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
    return exchange(box, f"GET {url} HTTP/1.1\r\n{lines}Connection: close\r\n\r\n")


def status(answer: str) -> int:
    return int(answer.split(" ", 2)[1])


def body(answer: str) -> str:
    return answer.partition("\r\n\r\n")[2]


def header(answer: str, name: str) -> str | None:
    lines = answer.partition("\r\n\r\n")[0].split("\r\n")[1:]
    fields = {key.lower(): value for key, _, value in (line.partition(": ") for line in lines)}
    return fields.get(name.lower())


def until(condition: Callable[[], bool]) -> None:
    """Wait for what another thread does; a bound, not a measurement."""
    end = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < end, "never came true"
        time.sleep(0.005)


def opener(box: Sandbox) -> urllib.request.OpenerDirector:
    proxies = urllib.request.ProxyHandler({"http": box.proxy_url, "https": box.proxy_url})
    trust = ssl.create_default_context(cadata=box.ca_pem)
    return urllib.request.build_opener(proxies, urllib.request.HTTPSHandler(context=trust))


# The log


def test_header_lines_are_logged_raw_in_order_with_duplicates(box: Sandbox) -> None:
    exchange(
        box,
        "GET http://h.test/a%2Fb?q=1 HTTP/1.1\r\nhOsT: other.test\r\nUser-Agent: one\r\n"
        "X-Empty:\r\nUSER-AGENT:two \r\nX-Folded: a\r\n b\r\nX-Octet: \xe9\r\n"
        "Connection: close\r\n\r\n",
    )
    record = box.log[-1]
    assert record.headers == (
        ("hOsT", "other.test"),
        ("User-Agent", "one"),
        ("X-Empty", ""),
        ("USER-AGENT", "two"),
        ("X-Folded", "a"),
        (" b", ""),
        ("X-Octet", "\xe9"),
        ("Connection", "close"),
    )
    assert record.values("user-agent") == ["one", "two"]


@pytest.mark.parametrize(
    ("lines", "scheme", "host", "path"),
    [
        ("GET http://H.test:80/p?q HTTP/1.1\r\nHost: x.test", "http", "H.test:80", "/p"),
        ("GET http://h.test HTTP/1.1\r\nHost: h.test", "http", "h.test", "/"),
        ("GET http://h.test?q=/x HTTP/1.1\r\nHost: h.test", "http", "h.test", "/"),
        ("GET http://u@h.test:81/p HTTP/1.1\r\nHost: h.test", "http", "u@h.test:81", "/p"),
        ("GET https://h.test/p HTTP/1.1\r\nHost: h.test", "https", "h.test", "/p"),
        ("GET /p?u=http://g.test/ HTTP/1.1\r\nHost: h.test:81", "http", "h.test:81", "/p"),
        ("GET /p HTTP/1.0", "http", "", "/p"),
    ],
)
def test_every_form_of_target_names_its_host(
    box: Sandbox, lines: str, scheme: str, host: str, path: str
) -> None:
    exchange(box, f"{lines}\r\nConnection: close\r\n\r\n")
    record = box.log[-1]
    assert (record.scheme, record.host, record.path) == (scheme, host, path)
    assert record.target == lines.split(" ")[1]


def test_a_kept_connection_has_one_number_and_a_new_one_another(box: Sandbox) -> None:
    before = len(box.log)
    with connect(box) as client:
        for _ in range(2):
            client.sendall(b"GET http://rss.test/ HTTP/1.1\r\nHost: rss.test\r\n\r\n")
            assert b"Connection: keep-alive" in receive_one(client)
    get(box, "http://rss.test/")
    first, second, third = (record.connection for record in box.log[before:])
    assert first == second < third


@pytest.mark.parametrize(
    "lines",
    [
        "GET http://rss.test/ HTTP/1.1\r\nConnection: close",
        "GET http://rss.test/ HTTP/1.1\r\nProxy-Connection: Close",
        "GET http://rss.test/ HTTP/1.0",
        "POST http://rss.test/ HTTP/1.1\r\nTransfer-Encoding: chunked",
        "nonsense",
    ],
)
def test_the_server_closes_when_the_client_cannot_go_on(box: Sandbox, lines: str) -> None:
    assert header(exchange(box, f"{lines}\r\n\r\n"), "Connection") == "close"


def test_pipelined_requests_and_a_body_are_told_apart(box: Sandbox) -> None:
    before = len(box.log)
    exchange(
        box,
        "POST http://rss.test/a HTTP/1.1\r\nContent-Length: 15\r\n\r\nGET / HTTP/1.1\n"
        "\r\nGET http://rss.test/b HTTP/1.1\r\nConnection: close\r\n\r\n",
    )
    assert [(each.method, each.path) for each in box.log[before:]] == [
        ("POST", "/a"),
        ("GET", "/b"),
    ]


def test_a_request_cut_off_before_its_end_is_not_logged(box: Sandbox) -> None:
    before = len(box.log)
    with connect(box) as client:
        client.sendall(b"GET http://rss.test/ HTTP/1.1\r\nHost: rss.te")
        client.shutdown(socket.SHUT_WR)
        assert receive(client) == b""
    assert len(box.log) == before


def test_a_client_that_half_closes_has_left(box: Sandbox, caplog: pytest.LogCaptureFixture) -> None:
    before = len(box.log)
    with connect(box) as client:
        client.sendall(b"GET http://broken.test/hang HTTP/1.1\r\n\r\n")
        client.shutdown(socket.SHUT_WR)
        assert receive(client) == b""
    until(lambda: [each.completed for each in box.log[before:]] not in ([], [None]))
    assert box.log[-1].status is None
    gc.collect()
    assert [each for each in caplog.records if each.levelname == "ERROR"] == []


def test_requests_in_flight_are_counted_until_answered_or_left(box: Sandbox) -> None:
    before = len(box.log)
    hang = b"GET http://broken.test/hang HTTP/1.1\r\nHost: broken.test\r\n\r\n"
    with connect(box) as first, connect(box) as second:
        first.sendall(hang)
        until(lambda: len(box.log) == before + 1)
        second.sendall(hang)
        until(lambda: len(box.log) == before + 2)
        assert [record.completed for record in box.log[before:]] == [None, None]
    until(lambda: None not in [record.completed for record in box.log[before:]])
    get(box, "http://rss.test/")
    late = box.log[before:]
    assert [record.in_flight for record in late] == [1, 2, 1]
    assert [record.status for record in late] == [None, None, 200]
    assert max_in_flight(late) == 2


def test_a_completed_request_took_its_delay(box: Sandbox) -> None:
    box.put(Site("slow.test", {"/": Route(delay=0.1)}))
    get(box, "http://slow.test/")
    record = box.log[-1]
    assert record.completed is not None
    assert record.completed - record.arrived >= 0.1
    assert abs(record.wall - time.time()) < 60


def test_no_client_has_an_answer_before_the_log_says_that_it_was_completed(
    box: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    end = RequestLog.end

    def late(*arguments: Any) -> None:
        time.sleep(0.1)  # what a busy machine does to the server, once the kernel has the answer
        end(*arguments)

    monkeypatch.setattr(RequestLog, "end", late)
    get(box, "http://path.test/robots.txt")
    had = time.monotonic()
    until(lambda: box.log[-1].completed is not None)
    assert (box.log[-1].completed or math.inf) <= had


def test_a_large_body_is_completed_when_the_client_has_taken_it() -> None:
    size = 8 << 20
    with Sandbox([Site("h.test", {"/": Route(body=bytes(size))})]) as box, connect(box) as client:
        client.sendall(b"GET http://h.test/ HTTP/1.1\r\nConnection: close\r\n\r\n")
        until(lambda: len(box.log) == 1)
        assert box.log[0].completed is None
        assert len(receive(client)) > size
        assert box.log[0].completed is not None


def test_clearing_forgets_the_log_but_not_what_is_in_flight() -> None:
    with Sandbox([]) as box, connect(box) as client:
        box.set_route("h.test", "/", Route(behaviour="hang"))
        client.sendall(b"GET http://h.test/ HTTP/1.1\r\n\r\n")
        until(lambda: len(box.log) == 1)
        box.clear()
        assert box.log == []
        get(box, "http://other.test/")
        client.close()
        until(lambda: get(box, "http://other.test/") != "" and box.log[-1].in_flight == 1)
        assert {record.host for record in box.log} == {"other.test"}
        assert (box.log[0].in_flight, box.log[0].status) == (2, 404)


def test_the_file_holds_the_same_records_and_survives_a_hang(tmp_path: Path) -> None:
    file = tmp_path / "log.jsonl"
    with Sandbox(log_path=file) as box, connect(box) as client:
        client.sendall(b"GET http://broken.test/hang HTTP/1.1\r\nX-A: 1\r\nx-a: 2\r\n\r\n")
        until(lambda: len(box.log) == 1)
        get(box, "http://rss.test/")
        assert [record.host for record in read_log(file)] == ["rss.test"]
    assert read_log(file) == box.log
    assert [record.host for record in box.log] == ["broken.test", "rss.test"]


# Questions to the log


def record(
    arrived: float,
    completed: float | None,
    host: str = "h.test",
    *,
    method: str = "GET",
    agents: tuple[str, ...] = ("bot",),
) -> LoggedRequest:
    return LoggedRequest(
        arrived=arrived,
        completed=completed,
        wall=0.0,
        scheme="http",
        host=host,
        method=method,
        target=f"/{arrived:g}",
        path=f"/{arrived:g}",
        headers=tuple(("User-Agent", agent) for agent in agents),
        connection=1,
        in_flight=1,
        status=200,
    )


def test_gaps_run_from_completion_to_arrival_or_from_start_to_start() -> None:
    log = [record(3.0, 3.5), record(1.0, 1.25), record(2.0, 2.0, "g.test"), record(3.25, None)]
    assert gaps(log, "h.test") == [1.75, -0.25]
    assert gaps(log, "H.TEST", start_to_start=True) == [2.0, 0.25]
    assert gaps(log) == [0.75, 1.0, -0.25]
    assert gaps([*log, record(9.0, 9.0)], "h.test")[-1] == -math.inf
    assert gaps(log[:1]) == []


def test_a_connect_opens_the_way_and_is_no_request() -> None:
    log = [record(1.0, 1.1, "h.test:443", method="CONNECT", agents=()), record(1.2, 1.3)]
    assert paths(log) == ["/1.2"]
    assert user_agents(log) == {"bot"}
    assert hosts(log) == ["h.test:443", "h.test"]
    assert len(requests(log)) == 1


def test_a_missing_user_agent_and_a_second_one_both_show() -> None:
    log = [record(1.0, 1.0, agents=()), record(2.0, 2.0, agents=("bot", "other"))]
    assert user_agents(log) == {"", "bot", "other"}


def test_an_empty_log_has_nothing_in_flight() -> None:
    assert max_in_flight([]) == 0


@pytest.mark.parametrize(
    ("scheme", "host", "key"),
    [
        ("http", "H.Test:80", "h.test"),
        ("https", "h.test:443", "h.test"),
        ("http", "h.test:443", "h.test:443"),
        ("http", "u:p@h.test.:8080", "h.test:8080"),
        ("http", "h.test.", "h.test"),
        ("http", "[::1]:80", "[::1]"),
    ],
)
def test_one_host_has_one_key(scheme: str, host: str, key: str) -> None:
    assert host_key(scheme, host) == key


# Answers


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({}, 200),
        ({"If_None_Match": '"v1"'}, 304),
        ({"If_None_Match": 'W/"v0", W/"v1"'}, 304),
        ({"If_None_Match": "*"}, 304),
        ({"If_None_Match": '"v2"'}, 200),
        ({"If_Modified_Since": "Tue, 03 Nov 2026 08:30:00 GMT"}, 304),
        ({"If_Modified_Since": "Tue, 03 Nov 2026 08:30:01 GMT"}, 200),
        ({"If_None_Match": "", "If_Modified_Since": "Tue, 03 Nov 2026 08:30:00 GMT"}, 200),
        ({"If_None_Match": '"v2"', "If_Modified_Since": "Tue, 03 Nov 2026 08:30:00 GMT"}, 200),
    ],
)
def test_conditional_requests(box: Sandbox, headers: dict[str, str], expected: int) -> None:
    date = "Tue, 03 Nov 2026 08:30:00 GMT"
    box.set_route("cond.test", "/", Route(body="text", etag='"v1"', last_modified=date))
    answer = get(box, "http://cond.test/", **headers)
    assert status(answer) == expected
    assert body(answer) == ("text" if expected == 200 else "")
    assert header(answer, "ETag") == '"v1"'
    assert header(answer, "Last-Modified") == date


def test_a_sequence_is_served_in_turn_and_its_last_answer_stays(box: Sandbox) -> None:
    box.set_route("turn.test", "/", Route(sequence=[Route(429), Route(503), Route(body="at last")]))
    assert [status(get(box, "http://turn.test/")) for _ in range(4)] == [429, 503, 200, 200]


def test_a_sequence_starts_again_for_another_port_and_for_a_new_route(box: Sandbox) -> None:
    route = Route(sequence=[Route(503), Route(200)])
    box.set_route("again.test", "/", route)
    urls = ["http://again.test/", "http://again.test:81/", "http://again.test/"]
    assert [status(get(box, url)) for url in urls] == [503, 503, 200]
    box.set_route("again.test", "/", route)
    assert status(get(box, "http://again.test/")) == 503


@pytest.mark.parametrize(
    ("accept", "kind"),
    [
        ("text/markdown, text/html;q=0.8, */*;q=0.1", "text/markdown"),
        ("TEXT/Markdown", "text/markdown"),
        ("text/html", "text/html"),
        ("*/*", "text/html"),
    ],
)
def test_markdown_is_served_to_whoever_names_it(box: Sandbox, accept: str, kind: str) -> None:
    answer = get(box, "http://markdown.test/notes", Accept=accept)
    assert (header(answer, "Content-Type") or "").startswith(kind)
    assert header(answer, "Vary") == "Accept"


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("http://one.test/a?x=1", "exact"),
        ("http://one.test/a?x=2", "path"),
        ("http://one.test/b", "rest"),
        ("http://ONE.test:80/a", "path"),
        ("http://one.test:81/a", "path"),
        ("http://one.test:82/a", "port"),
        ("https://one.test/a", "tls"),
        ("http://none.test/robots.txt", "Not Found\n"),
    ],
)
def test_the_nearest_site_and_the_nearest_key_answer(url: str, expected: str) -> None:
    texts = {"/a?x=1": "exact", "/a": "path", "*": "rest"}
    sites = [
        Site("one.test", {key: Route(body=text) for key, text in texts.items()}),
        Site("one.test:82", {"/a": Route(body="port")}),
        Site("https://one.test", {"/a": Route(body="tls")}),
    ]
    with Sandbox(sites) as box:
        assert body(get(box, url)) == expected


def test_a_route_can_be_a_function_of_the_request(box: Sandbox) -> None:
    def echo(request: Request) -> Route:
        return Route(201, f"{request.method} {request.query} {request.body!r} {len(request.log)}")

    box.clear()
    box.set_route("echo.test", "/", echo)
    text = "POST http://echo.test/?a=1 HTTP/1.1\r\nContent-Length: 2\r\nConnection: close\r\n\r\nhi"
    assert body(exchange(box, text)) == "POST a=1 b'hi' 1"


def test_a_function_can_change_the_routes(box: Sandbox) -> None:
    def once(request: Request) -> Route:
        box.set_route("once.test", request.path, Route(410))
        return Route(body=str(len(box.log) > 0))

    box.set_route("once.test", "/", once)
    assert body(get(box, "http://once.test/")) == "True"
    assert status(get(box, "http://once.test/")) == 410


def test_headers_of_a_route_stand_before_ours_and_may_repeat(box: Sandbox) -> None:
    pairs = [("Content-Type", "x/y"), ("Set-Cookie", "a=1"), ("Set-Cookie", "b=2")]
    box.set_route("head.test", "/", Route(body="x", headers=pairs))
    answer = get(box, "http://head.test/")
    assert answer.count("Set-Cookie: ") == 2
    assert answer.count("Content-Type: ") == 1
    assert header(answer, "Content-Type") == "x/y"


def test_head_has_the_length_and_no_body(box: Sandbox) -> None:
    answer = exchange(box, "HEAD http://rss.test/ HTTP/1.1\r\nConnection: close\r\n\r\n")
    assert header(answer, "Content-Length") == str(len(page("page.html")))
    assert body(answer) == ""


@pytest.mark.parametrize(("path", "sent"), [("/close", None), ("/reset", None), ("/truncate", 200)])
def test_a_broken_answer_is_logged_as_far_as_it_went(
    box: Sandbox, path: str, sent: int | None
) -> None:
    answer = b""
    with connect(box) as client:
        client.sendall(f"GET http://broken.test{path} HTTP/1.1\r\n\r\n".encode())
        if path == "/reset":
            with pytest.raises(ConnectionResetError):
                receive(client)
        else:
            answer = receive(client)
    text = answer.decode()
    assert (int(header(text, "Content-Length") or 0) > len(body(text))) is (sent == 200)
    assert box.log[-1].status == sent
    assert box.log[-1].completed is not None


def test_an_endless_body_ends_when_the_client_leaves(box: Sandbox) -> None:
    with connect(box) as client:
        client.sendall(b"GET http://broken.test/endless HTTP/1.1\r\n\r\n")
        got = 0
        while got < 200_000:
            got += len(client.recv(65536))
        assert box.log[-1].completed is None
    until(lambda: box.log[-1].completed is not None)
    assert box.log[-1].status == 200


def test_a_drip_comes_octet_by_octet(box: Sandbox) -> None:
    box.set_route("drip.test", "/", Route(body="slowly", behaviour="drip", pause=0.02))
    assert body(get(box, "http://drip.test/")) == "slowly"
    dripped = box.log[-1]
    assert dripped.completed is not None
    assert dripped.completed - dripped.arrived >= 6 * 0.02


# Ways in


def test_only_the_loopback_interface_is_bound(box: Sandbox) -> None:
    with pytest.raises(OSError, match=r".*"):
        socket.create_connection(("127.0.0.2", box.port), timeout=SECONDS)


def test_asked_directly_the_site_of_the_host_field_answers() -> None:
    with Sandbox([Site("127.0.0.1", {"/": Route(410)})]) as box:
        fields = f"Host: 127.0.0.1:{box.port}\r\nConnection: close"
        answer = exchange(box, f"GET / HTTP/1.1\r\n{fields}\r\n\r\n")
        assert status(answer) == 410
        assert paths(box.log, f"127.0.0.1:{box.port}") == ["/"]


def test_connect_ends_in_tls_that_a_client_can_verify(box: Sandbox) -> None:
    before = len(box.log)
    with opener(box).open("http://secure.test/", timeout=SECONDS) as response:
        assert response.url == "https://secure.test/"
    log = box.log[before:]
    assert [(each.scheme, each.method, each.host) for each in log] == [
        ("http", "GET", "secure.test"),
        ("https", "CONNECT", "secure.test:443"),
        ("https", "GET", "secure.test"),
    ]
    assert log[1].connection == log[2].connection
    assert [each.in_flight for each in log] == [1, 1, 1]


def test_a_second_request_in_the_tunnel_is_seen(box: Sandbox) -> None:
    before = len(box.log)
    trust = ssl.create_default_context(cadata=box.ca_pem)
    with connect(box) as plain:
        plain.sendall(b"CONNECT plain-name.test:8443 HTTP/1.1\r\n\r\n")
        assert plain.recv(1024).startswith(b"HTTP/1.1 200 ")
        with trust.wrap_socket(plain, server_hostname="plain-name.test") as client:
            for _ in range(2):
                client.sendall(b"GET /x HTTP/1.1\r\n\r\n")
                assert receive_one(client).startswith(b"HTTP/1.1 404 ")
    log = box.log[before:]
    assert [each.host for each in log] == ["plain-name.test:8443"] * 3
    assert [each.scheme for each in requests(log)] == ["https", "https"]


@pytest.mark.parametrize("target", [":443", "\xfc\xdf" * 99])
def test_connect_to_a_name_that_no_certificate_carries_is_an_error(
    box: Sandbox, target: str
) -> None:
    answer = exchange(box, f"CONNECT {target} HTTP/1.1\r\n\r\n")
    assert status(answer) == 502


def test_a_serial_client_is_never_seen_twice_at_once(box: Sandbox) -> None:
    box.put(Site("serial.test", {"/": Route(body="x"), "/large": Route(body=bytes(1 << 19))}))
    before = len(box.log)
    client = opener(box)
    for path in ("/", "/large") * 20:
        for scheme in ("http", "https"):
            client.open(f"{scheme}://serial.test{path}", timeout=SECONDS).read()
    log = box.log[before:]
    assert max_in_flight(log) == 1
    assert len(requests(log)) == 80
    assert min(gaps(log)) >= 0


def test_a_host_without_tls_refuses_connect() -> None:
    with Sandbox([Site("plain.test", tls=False)]) as box:
        answer = exchange(box, "CONNECT plain.test:443 HTTP/1.1\r\nHost: plain.test:443\r\n\r\n")
        assert status(answer) == 502
        assert box.log[-1].status == 502


def test_a_client_that_breaks_off_the_handshake_ends_only_itself(
    box: Sandbox, caplog: pytest.LogCaptureFixture
) -> None:
    with connect(box) as client:
        client.sendall(b"CONNECT h.test:443 HTTP/1.1\r\n\r\n")
        assert client.recv(1024).startswith(b"HTTP/1.1 200 ")
        client.sendall(b"GET / HTTP/1.1\r\n\r\n")
        with contextlib.suppress(ConnectionError):
            receive(client)
    assert status(get(box, "http://rss.test/")) == 200
    gc.collect()
    assert [each for each in caplog.records if each.levelname == "ERROR"] == []


def test_the_sandbox_stops_with_requests_pending_and_keeps_its_log() -> None:
    with contextlib.ExitStack() as clients:
        with Sandbox() as box:
            for path in ("hang", "endless", "drip"):
                client = clients.enter_context(connect(box))
                client.sendall(f"GET http://broken.test/{path} HTTP/1.1\r\n\r\n".encode())
            until(lambda: len(box.log) == 3)
        assert all(each.completed is not None for each in box.log)
    with pytest.raises(ConnectionRefusedError):
        connect(box)
    assert len(box.log) == 3


# Sites from a file


TOML_SITES = """
[[sites]]
host = "news.test"
tls = false

[sites.routes]
"/robots.txt" = { body = "User-agent: *\\nDisallow: /x\\n", content_type = "text/plain" }
"/feed" = { sequence = [{ status = 503, headers = { Retry-After = "1" } }, "<rss/>"] }
"/notes" = { body = "html", accept = { "text/markdown" = { body = "md" } } }
"*" = "the rest"
"""


@pytest.mark.parametrize("suffix", ["toml", "json"])
def test_sites_are_read_from_a_file(tmp_path: Path, suffix: str) -> None:
    routes: dict[str, Any] = {
        "/robots.txt": {"body": "User-agent: *\nDisallow: /x\n", "content_type": PLAIN},
        "/feed": {"sequence": [{"status": 503, "headers": {"Retry-After": "1"}}, "<rss/>"]},
        "/notes": {"body": "html", "accept": {"text/markdown": {"body": "md"}}},
        "*": "the rest",
    }
    document = {"sites": [{"host": "news.test", "tls": False, "routes": routes}]}
    file = tmp_path / f"sites.{suffix}"
    file.write_text(TOML_SITES if suffix == "toml" else json.dumps(document), encoding="utf-8")
    expected = Site(
        "news.test",
        {
            "/robots.txt": Route(body="User-agent: *\nDisallow: /x\n", content_type=PLAIN),
            "/feed": Route(
                sequence=(Route(503, headers={"Retry-After": "1"}), Route(body="<rss/>"))
            ),
            "/notes": Route(body="html", accept={"text/markdown": Route(body="md")}),
            "*": Route(body="the rest"),
        },
        tls=False,
    )
    assert load_sites(file) == [expected]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "line 1 column 2"),
        ("[]", "not sites"),
        ('{"sites": ["h.test"]}', "not str"),
        ('{"sites": [{}]}', "'host'"),
        ('{"sites": [{"host": "h", "port": 1}]}', "'port'"),
        ('{"sites": [{"host": "h", "routes": {"/": 1}}]}', "not sites"),
        ('{"sites": [{"host": "h", "routes": {"/": {"code": 1}}}]}', "'code'"),
        ('{"sites": [{"host": "h", "routes": {"/": {"behaviour": "x"}}}]}', "behaviour 'x'"),
        ('{"sites": [{"host": "h", "routes": {"/": {"sequence": [3]}}}]}', "not sites"),
    ],
)
def test_a_file_that_cannot_be_used_is_named(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "sites.json"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError, match=message) as caught:
        load_sites(file)
    assert str(caught.value).startswith(str(file))


# The command


def test_the_command_prints_its_port_serves_logs_and_stops_at_a_signal(tmp_path: Path) -> None:
    sites, log = tmp_path / "sites.toml", tmp_path / "log.jsonl"
    sites.write_text(TOML_SITES, encoding="utf-8")
    command = [sys.executable, "-m", "scrapy_walsh", "sandbox", "--json"]
    command += ["--sites", str(sites), "--log", str(log)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        ready = json.loads(process.stdout.readline())
        assert ready["proxy"] == f"http://127.0.0.1:{ready['port']}"
        asked = urllib.request.Request(f"{ready['proxy']}/any", headers={"Host": "news.test"})
        with urllib.request.urlopen(asked, timeout=SECONDS) as response:
            assert response.read() == b"the rest"
        process.send_signal(signal.SIGTERM)
        assert process.wait(SECONDS) == 0
    assert paths(read_log(log)) == ["/any"]


@pytest.mark.parametrize("octets", [b"\xff\xfe\x00[[sites]]", b"[" * 100_000])
@pytest.mark.parametrize("suffix", ["toml", "json"])
def test_the_command_names_a_file_that_is_no_text(
    octets: bytes, suffix: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / f"sites.{suffix}"
    file.write_bytes(octets)
    assert main(["sandbox", "--sites", str(file)]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n"), str(file) in err) == ("", 1, True)


def test_the_command_names_a_file_it_cannot_read(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sandbox", "--sites", "no-such-file.toml"]) == 2
    assert "no-such-file.toml" in capsys.readouterr().err


def test_the_command_names_a_port_that_is_taken(
    box: Sandbox, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["sandbox", "--port", str(box.port)]) == 2
    assert str(box.port) in capsys.readouterr().err


# The default scenario


def test_the_blocklist_satisfies_its_inline_schema(box: Sandbox) -> None:
    base = "http://operator.test/.well-known/walsh-research"
    document = json.loads(body(get(box, f"{base}/blocklist.json")))
    schema = json.loads(body(get(box, f"{base}/blocklist.schema.json")))
    assert document["schema"] == schema
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate(document, schema)
    assert [entry["domain"] for entry in document["blocked"]] == ["blocked.test"]
    assert "opt out" in body(get(box, document["policy"]))


@pytest.mark.parametrize(
    "change",
    [
        {"contract": "walsh-research-blocklist/v2"},
        {"contract": "walsh-research-blocklist/v1.1"},
        {"refresh": "6 hours"},
        {"operator": 1},
        {"updated": None},
        {"blocked": {"domain": "blocked.test"}},
        {"blocked": ["blocked.test"]},
        {"blocked": [{"domain": "blocked.test"}]},
        {"blocked": [{"added": "2026-05-23"}]},
        *({name: ...} for name in ("contract", "updated", "operator", "policy", "refresh")),
        {"blocked": ...},
    ],
)
def test_the_schema_refuses_what_the_contract_refuses(change: dict[str, Any]) -> None:
    changed = {**blocklist(), **change}
    document = {key: value for key, value in changed.items() if value is not ...}
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(document, blocklist()["schema"])


@pytest.mark.parametrize("change", [{"blocked": []}, {"extra": "x"}, {"contact": ...}])
def test_the_schema_accepts_what_the_contract_accepts(change: dict[str, Any]) -> None:
    changed = {**blocklist(), **change}
    document = {key: value for key, value in changed.items() if value is not ...}
    jsonschema.validate(document, blocklist()["schema"])


def test_a_blocklist_can_be_made_for_other_domains_without_its_schema() -> None:
    document = blocklist("http://o.test", "a.test", "b.test", inline=False)
    assert [entry["domain"] for entry in document["blocked"]] == ["a.test", "b.test"]
    assert document["policy"] == "http://o.test/bot/"
    assert "schema" not in document


@pytest.mark.parametrize(("name", "entries"), [("rss.xml", 6), ("atom.xml", 3)])
def test_the_feeds_are_well_formed(name: str, entries: int) -> None:
    feed = feedparser.parse(page(name))
    assert not feed.bozo
    assert len(feed.entries) == entries
    assert all(entry.title for entry in feed.entries)


def test_the_json_feed_has_its_required_members() -> None:
    feed = json.loads(page("feed.json"))
    assert feed["version"].startswith("https://jsonfeed.org/version/1")
    assert all(item["id"] for item in feed["items"])
    assert len(feed["items"]) == 4


@pytest.mark.parametrize("name", ["allow", "disallow", "walsh-only"])
@pytest.mark.parametrize("suffix", ["", ".html", ".md"])
def test_every_canary_would_answer(box: Sandbox, name: str, suffix: str) -> None:
    assert status(get(box, f"http://operator.test/research/bots/dogfood-{name}{suffix}")) == 200


@pytest.mark.parametrize(
    ("path", "location"),
    [
        ("/own", "/target"),
        ("/other", "http://path.test/public"),
        ("/blocked", "http://blocked.test/notes"),
        ("/denied", "/private/notes"),
        ("/hops/6", "/hops/5"),
        ("/hops/0", "/target"),
    ],
)
def test_redirects_lead_where_they_should(box: Sandbox, path: str, location: str) -> None:
    answer = get(box, f"http://redirect.test{path}")
    assert (status(answer), header(answer, "Location")) == (302, location)


def test_every_site_of_the_default_scenario_is_served_afresh() -> None:
    names = [site.host for site in default_sites()]
    assert len(names) == len(set(names))
    assert default_sites()[0].routes is not default_sites()[0].routes


def test_every_source_of_the_demo_has_an_answer(box: Sandbox) -> None:
    for source in demo_sources():
        for url in filter(None, (source.url, source.feed)):
            assert status(get(box, url)) in (200, 302, 429), url
    assert len({source.url for source in demo_sources()}) == len(demo_sources())


def test_blocked_hosts_would_answer_whatever_they_are_asked(box: Sandbox) -> None:
    for host in ("blocked.test", "www.blocked.test"):
        for path in ("/", "/robots.txt", "/notes", "/llms.txt"):
            assert status(get(box, f"http://{host}{path}")) == 200
