"""R2: the request target that a server receives is that of the URL that was judged (D36).

The crawls go to the sites without a proxy: a proxy reads the whole URL, and so hides what a client
library makes of its path.
"""

from __future__ import annotations

import json
import random
import re
import socket
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from scrapy.settings import default_settings

from scrapy_walsh.policy import hosts
from scrapy_walsh.policy.urls import path_and_query, request_target
from scrapy_walsh.proof.sandbox import Request, Route, Sandbox
from tests.crawl.harness import (
    FAR_OFF,
    Crawl,
    answer,
    keygen,
    listing,
    operator,
    rules,
    site,
    state_dir,
    verify,
    without_proxy,
)
from tests.zygote import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

HANDLERS = (
    "twisted",
    *(("aiohttp",) if hasattr(default_settings, "TWISTED_REACTOR_ENABLED") else ()),
)

# -- 2,000 URLs, by their odd parts -------------------------------------------------------

SEGMENTS = (
    *("", "", ".", "..", "a", "x;p=1", ";", "%2F", "%2f..", "%2e%2e", "%", "%zz", "a%20b"),
    *("\u00e9", "\u6f22", "*", "$", "@", "a:b", "'", '"', "~", "+", "(a)", "a,b", "a&b=c"),
)
#: These are escaped by Scrapy, unless a request has ``verbatim_url``.
RAW = ("|", "[x]", "{y}", "^", "`", "\\")
QUERIES = (
    None,
    None,
    "",
    "q",
    "a=b?c",
    "a=//x/../y",
    "?",
    "\u00e9",
    "%2F%3f",
    "a;b",
    "a=http://h/",
)
FRAGMENTS = ("", "", "", "#f", "#/a?b", "#")
#: What no request line can hold.
UNSENDABLE = ("a b", "\u00e9", "\x7f", "a\tb")
NAMED = ("a.test", "A.Test", "b\u00fccher.test", "a_b.test", "xn--bcher-kva.test", "a.test.")
#: Hosts that only a proxy reaches from here.
ELSEWHERE = (
    *(*NAMED, "192.0.2.1", "0x7f.1", "a.test:8080", "a.test:80", "a.test:00081"),
    *("[2001:db8::1]", "[2001:db8::1]:81", "[::ffff:192.0.2.1]", "[2001:DB8:0:0::1]:80"),
)


class Asked(NamedTuple):
    url: str
    proxy: str | None
    verbatim: bool


def url_of(chance: random.Random, scheme: str, host: str, *, verbatim: bool) -> str:
    """An address with a path, a query and a fragment that are odd in several ways at once."""
    known = (*SEGMENTS, *RAW)
    if verbatim:  # most of what Scrapy would escape cannot be sent as it is
        known = tuple(each for each in known if each.isascii())
    segments = [chance.choice(known) for _ in range(chance.choice((0, 1, 2, 3, 5)))]
    path = "".join(f"/{each}" for each in segments)
    query = chance.choice([each for each in QUERIES if not verbatim or (each or "").isascii()])
    before = f"{scheme}://{host}{path}" + ("" if query is None else f"?{query}")
    return before + chance.choice(FRAGMENTS)


def draw(port: int, tunnel: int) -> tuple[list[Asked], list[Asked]]:
    """2,000 requests: to the server at *port*, by itself and as a proxy; then through *tunnel*."""
    chance = random.Random(36)
    here, proxy = f":{port}", f"http://127.0.0.1:{port}"
    # Before Scrapy 2.14 Twisted connects to no name with an underscore.
    direct = [f"{name}{here}" for name in NAMED if VERBATIM or "_" not in name]
    direct += [f"127.0.0.1{here}", f"127.0.0.1:0{port}", f"[::1]{here}", f"[0:0::1]{here}"]
    plain = []
    for number in range(1900):
        way = proxy if number % 3 else None
        verbatim = chance.random() < 0.4
        host = chance.choice(ELSEWHERE if way else direct)
        url = url_of(chance, "http", host, verbatim=verbatim)
        if number % 25 == 0:
            userinfo = chance.choice(("u:p", "u", ":", "a%40b"))
            url = url.replace("://", f"://{userinfo}@")
        elif number % 25 == 1 and "verbatim_url" in VERBATIM:
            url, verbatim = f"http://{host}/{chance.choice(UNSENDABLE)}", True
        plain.append(Asked(url, way, verbatim))
    secure = f"http://127.0.0.1:{tunnel}"
    names = [each for each in ELSEWHERE if "_" not in each]  # no certificate can carry it
    through = [
        Asked(url_of(chance, "https", chance.choice(names), verbatim=False), secure, verbatim=False)
        for _ in range(100)
    ]
    return plain, through


#: ``Request.meta`` of this Scrapy, if it knows how to leave a URL as it is.
VERBATIM = ("verbatim_url",) if hasattr(__import__("scrapy").Request, "_url_is_verbatim") else ()


@contextmanager
def raw_server() -> Iterator[tuple[int, list[tuple[str, str]]]]:
    """A server on both loopbacks: its port, and request line and Host field of each request."""
    heads: list[tuple[str, str]] = []
    first = socket.create_server(("127.0.0.1", 0))
    port = first.getsockname()[1]
    servers = [first]
    with suppress(OSError):  # a machine without IPv6
        servers.append(socket.create_server(("::1", port), family=socket.AF_INET6))

    def serve(server: socket.socket) -> None:
        with suppress(OSError):  # closed
            while True:
                connection, _ = server.accept()
                with connection, suppress(OSError):
                    heads.append(read_head(connection))
                    connection.sendall(b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n")

    threads = [threading.Thread(target=serve, args=(each,), daemon=True) for each in servers]
    for each in threads:
        each.start()
    yield port, heads
    for each in servers:
        each.shutdown(socket.SHUT_RDWR)
        each.close()


def read_head(connection: socket.socket) -> tuple[str, str]:
    data = b""
    while b"\r\n\r\n" not in data:
        piece = connection.recv(1 << 16)
        if not piece:
            break
        data += piece
    first, *lines = data.decode("latin-1").split("\r\n")
    host = next((line[5:].strip() for line in lines if line.lower().startswith("host:")), "")
    return first, host


def send(handler: str, requests: Sequence[Asked]) -> list[list[Any]]:
    """What ``tests/crawl/sent.py`` says of each request, by *handler*."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.crawl.sent", handler],
        input=json.dumps(requests),
        text=True,
        capture_output=True,
        cwd=ROOT,
        timeout=300,
        check=True,
    )
    return [json.loads(line) for line in done.stdout.splitlines()]


def by_hand(url: str) -> str:
    """The request target of *url* in origin form, by no pattern of the package's."""
    rest = url.partition("#")[0].partition("://")[2]
    cut = min([rest.index(each) for each in "/?" if each in rest], default=len(rest))
    return rest[cut:] if rest[cut:].startswith("/") else f"/{rest[cut:]}"


def authority_of(url: str) -> str:
    return re.split(r"[/?#]", url.partition("://")[2], maxsplit=1)[0]


@pytest.mark.slow
@pytest.mark.parametrize("handler", HANDLERS)
def test_r2_a_server_receives_the_target_that_was_judged(handler: str) -> None:
    with raw_server() as (port, heads), Sandbox() as box:
        plain, through = draw(port, box.port)
        told = send(handler, [*plain, *through])
        received = list(heads)
        tunnelled = [each.target for each in box.log if each.method != "CONNECT"]
        opened = [each.target for each in box.log if each.method == "CONNECT"]
    answers = [(each, *said) for each, said in zip([*plain, *through], told, strict=True)]
    sent = [(each, url, target) for each, url, target in answers if isinstance(target, list)]
    kept = [(each, url, why) for each, url, why in answers if isinstance(why, str)]
    expected = []
    for each, url, (method, authority, path, query) in sent:
        target = path if query is None else f"{path}?{query}"
        assert target == by_hand(url), url
        assert hosts.origin(f"http://{authority}/") == hosts.origin(url.replace("https:", "http:"))
        whole = each.proxy and url.startswith("http:")
        before = f"http://{authority_of(url)}" if whole else ""
        expected.append(f"{method} {before}{target} HTTP/1.1")
    assert [first for first, _ in received] + [f"GET {each} HTTP/1.1" for each in tunnelled] == (
        expected
    )
    for (_, field), (_, url, target) in zip(received, sent, strict=False):
        assert hosts.origin(f"http://{field}") == hosts.origin(f"http://{target[1]}"), url
    # A tunnel is opened to the host of the URL, and to no other.
    through_sent = [url for each, url, _ in sent if each.url.startswith("https:")]
    assert [hosts.origin(f"https://{each}") for each in opened] == [
        hosts.origin(each) for each in through_sent
    ]
    # What cannot be sent as it is, is not sent, and each such request says why.
    for _, url, why in kept:
        assert why.startswith("OwnFault: "), (url, why)
        visible = url.isascii() and url.isprintable() and " " not in url
        # Scrapy's handler on Twisted would leave out the brackets of an IPv6 address.
        bare = handler == "twisted" and url.startswith("https://[")
        assert "@" in authority_of(url) or not visible or bare, (url, why)
    assert len(sent) > 1700
    assert len(kept) > 60


@pytest.mark.parametrize(
    ("url", "target"),
    [
        ("http://a.test", "/"),
        ("http://a.test?", "/?"),
        ("http://a.test?q", "/?q"),
        ("http://a.test#f", "/"),
        ("http://a.test//x/y", "//x/y"),
        ("http://a.test////x?//", "////x?//"),
        ("HTTPS://a.test/;?;#?", "/;?;"),
        ("http://a.test/a/../b/./%2e%2E", "/a/../b/./%2e%2E"),
        ("http://[::1]:80/|\\^", "/|\\^"),
    ],
)
def test_r2_a_request_target_is_what_the_url_says(url: str, target: str) -> None:
    assert request_target(url) == target
    path, query = path_and_query(url)
    assert target == (path if query is None else f"{path}?{query}")
    assert request_target(url, absolute=True).removeprefix(url[: -len(target)] or url)


@pytest.mark.parametrize(
    "url",
    [
        *("http://u:p@a.test/", "http://a.test/a b", "http://a.test/\u00e9", "http://a.test/\x7f"),
        *("http://a.test/x\r\nX: y", "http:///x", "http:/a.test/x", "ftp://a.test/x", "/x", ""),
        *("http://a\\b.test/x", "http://a.test/?\ud800", "http://\u00e9.test/", "http://a.test/\n"),
    ],
)
def test_r2_what_no_request_line_can_hold_is_not_sent(url: str) -> None:
    with pytest.raises(ValueError, match="not valid in a request line"):
        request_target(url)


# -- crawls without a proxy ---------------------------------------------------------------

#: What the standard library makes of ``//x/y``, from Python 3.13 on, is refused here.
MANGLED = "Disallow: ////\nDisallow: /robots\nAllow: /"


def _robots(request: Request) -> Route:
    """A robots.txt behind a hop whose path begins with two slashes."""
    return Route(302, location=f"http://{request.host}//robots/rules")


#: The address of the list, as it is configured and as Scrapy escapes it.
ODD_LIST, ODD_LIST_SENT = "//bot/../list|1.json?", "//bot/../list%7C1.json"
SITES = (
    operator(answer(status=404), **{ODD_LIST_SENT: listing("listed.test")}),
    site("plain.test", robots=rules(MANGLED)),
    site(
        "hop.test",
        {"/from": lambda each: Route(302, location=f"http://{each.host}//to/../here;p")},
        rules(MANGLED),
    ),
    site("robots.test", {"//robots/rules": rules("Disallow: /private/")}, _robots),
)
PATHS = (
    "http://plain.test:PORT//x/y",
    "http://hop.test:PORT/from",
    "http://robots.test:PORT//x/y",
    "http://robots.test:PORT//private/y",
)
#: A request of ``verbatim_url`` is sent as it stands, or not at all.
VERBATIM_SPIDER = """
import scrapy

class Probe(scrapy.Spider):
    name = "probe"

    def __init__(self, urls="", **kwargs):
        super().__init__(**kwargs)
        self.urls = urls.split()

    async def start(self):
        for url in self.urls:
            meta = {"verbatim_url": "PLAIN" not in url}
            yield scrapy.Request(url.replace("_", " "), meta=meta, errback=self.failed)

    def parse(self, response):
        yield {"url": response.url, "status": response.status}

    def failed(self, failure):
        error, why = failure.type.__name__, str(failure.value)
        yield {"url": failure.request.url, "error": error, "why": why}
"""


class Ways(NamedTuple):
    crawls: dict[str, Crawl]
    projects: dict[str, Path]


@pytest.fixture(scope="module")
def direct(tmp_path_factory: pytest.TempPathFactory) -> Ways:
    folder = tmp_path_factory.mktemp("direct")
    signed, _ = keygen(folder / "keys")
    identity = dict(signed.pop("WALSH_IDENTITY"))
    ways: dict[str, dict[str, Any]] = {
        "twisted": {},
        "signed": {**signed, "WALSH_IDENTITY": identity},
        "aiohttp": {"TWISTED_REACTOR_ENABLED": False},
    }
    if "aiohttp" not in HANDLERS:
        del ways["aiohttp"]
    projects = {name: folder / name for name in ways}

    def run(name: str) -> Crawl:
        url = f"http://operator.test:PORT{ODD_LIST}"
        settings = {**FAR_OFF, "WALSH_BLOCKLIST_URL": url, **ways[name]}
        return without_proxy(projects[name], *PATHS, sites=SITES, settings=settings)

    with ThreadPoolExecutor(2) as pool:
        return Ways(dict(zip(ways, pool.map(run, ways), strict=True)), projects)


def targets_of(done: Crawl, name: str) -> list[str]:
    return [each.target for each in done.log if each.host.startswith(f"{name}.test")]


WAYS = ("twisted", "signed", *HANDLERS[1:])


@pytest.mark.parametrize("way", WAYS)
def test_r2_targets_and_hops_are_sent_as_they_were_judged(direct: Ways, way: str) -> None:
    done = direct.crawls[way]
    assert done.returncode == 0, done.output
    assert targets_of(done, "plain") == ["/robots.txt", "//x/y"]
    assert targets_of(done, "hop") == ["/robots.txt", "/from", "//to/../here;p"]


@pytest.mark.parametrize("way", WAYS)
def test_r2_a_hop_of_robots_txt_is_sent_as_it_stands(direct: Ways, way: str) -> None:
    done = direct.crawls[way]
    assert targets_of(done, "robots")[:2] == ["/robots.txt", "//robots/rules"]
    assert "//x/y" in targets_of(done, "robots")


@pytest.mark.parametrize("way", WAYS)
def test_r3_the_list_is_recorded_under_the_url_that_was_sent(direct: Ways, way: str) -> None:
    assert ODD_LIST_SENT in targets_of(direct.crawls[way], "operator")
    lines = (state_dir(direct.projects[way]) / "ledger.jsonl").read_text().splitlines()
    asked = [each for each in map(json.loads, lines) if each["kind"] == "asked"]
    urls = [each["url"] for each in asked if "//operator.test:" in each["url"]]
    assert {path for url in urls for path, _ in [path_and_query(url)]} >= {ODD_LIST_SENT}
    assert not [url for url in urls if "|" in url or url.endswith("?")]


@pytest.mark.parametrize("way", WAYS)
def test_r2_verify_follows_what_was_sent(direct: Ways, way: str) -> None:
    code, printed = verify(state_dir(direct.projects[way]))
    assert code == 0, printed


@pytest.mark.skipif(not VERBATIM, reason="this Scrapy escapes each URL")
def test_r2_a_url_that_cannot_be_sent_as_it_is_is_not_sent(tmp_path: Path) -> None:
    paths = ("/lone?", "?", "/a/../b", "//x;?", "/in_valid", "/\u00e9")
    done = without_proxy(
        tmp_path,
        *(f"http://v{number}.test:PORT{path}" for number, path in enumerate(paths)),
        sites=[operator(listing()), *(site(f"v{number}.test") for number in range(len(paths)))],
        spider=VERBATIM_SPIDER,
        settings=FAR_OFF,
    )
    sent = [targets_of(done, f"v{number}")[1:] for number in range(len(paths))]
    assert sent == [["/lone?"], ["/?"], ["/a/../b"], ["//x;?"], [], []]
    assert done.returncode == 1
    assert done.lines("could not be requested", "it is not valid in a request line")
    assert "Traceback" not in done.output
