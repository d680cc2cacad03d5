"""D38: what was not declared leads to no address that is not public. These crawls have no proxy."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from contextlib import ExitStack, closing, contextmanager, suppress
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from scrapy.settings import Settings, default_settings

from scrapy_walsh.adapters import compat
from scrapy_walsh.adapters.wire.names import Names
from scrapy_walsh.proof.sandbox import Route, Sandbox
from tests import zygote
from tests.crawl.harness import (
    OWN_IDENTITY,
    Crawl,
    crawl,
    listing,
    make_project,
    operator,
    run_scrapy,
    site,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

#: The addresses of names. For these crawls 127.0.0.1 is the internet, and 127.0.0.2 an intranet.
NAMES = {
    **{f"{name}.test": ["127.0.0.1"] for name in ("operator", "out", "robots", "odd", "index")},
    **{f"{name}.test": ["127.0.0.2"] for name in ("in", "home", "inside")},
    "metadata.test": ["169.254.169.254"],
    "mixed.test": ["127.0.0.2", "127.0.0.1"],
    "six.test": ["::1"],
}
INTERNET = f"""
import socket
from scrapy_walsh.policy import addresses

names = {NAMES!r}
info, kind_of = socket.getaddrinfo, addresses.kind_of

def getaddrinfo(host, *more, **named):
    found = names.get(host.decode() if isinstance(host, bytes) else host, [host])
    return [each for address in found for each in info(address, *more, **named)]

socket.getaddrinfo = getaddrinfo
socket.gethostbyname = lambda host: getaddrinfo(host, 0)[0][4][0]
addresses.kind_of = lambda address: "public" if address == "127.0.0.1" else kind_of(address)
"""
SPIDER = """
import scrapy

class Probe(scrapy.Spider):
    name = "probe"

    def __init__(self, urls="", **kwargs):
        super().__init__(**kwargs)
        self.urls = urls.split()

    async def start(self):
        for url in self.urls:
            yield scrapy.Request(url, callback=self.parse, errback=self.failed)

    def parse(self, response):
        yield {"url": response.url, "status": response.status}
        if response.headers.get("X-Link"):
            link = response.headers["X-Link"].decode()
            yield scrapy.Request(link, callback=self.parse, errback=self.failed)

    def failed(self, failure):
        error, why = failure.type.__name__, str(failure.value)
        yield {"url": failure.request.url, "error": error, "why": why}
"""
HANDLERS: dict[str, dict[str, Any]] = {
    "twisted": {},
    **(
        {"aiohttp": {"TWISTED_REACTOR_ENABLED": False}}
        if hasattr(default_settings, "TWISTED_REACTOR_ENABLED")
        else {}
    ),
}


@contextmanager
def also_at(address: str, port: int) -> Iterator[None]:
    """Let the server at 127.0.0.1 answer at *address*, too."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET

    def pump(source: socket.socket, sink: socket.socket) -> None:
        # The other direction may have closed both first.
        with suppress(OSError), closing(source), closing(sink):
            while data := source.recv(65536):
                sink.sendall(data)

    def serve() -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            server = socket.create_connection(("127.0.0.1", port))
            for pair in (client, server), (server, client):
                threading.Thread(target=pump, args=pair, daemon=True).start()

    with closing(socket.create_server((address, port), family=family)) as listener:
        threading.Thread(target=serve, daemon=True).start()
        yield


def sites(port: int) -> list[Any]:
    def url(host: str, path: str = "page") -> str:
        return f"http://{host}:{port}/{path}"

    hops = {
        "/to/name": url("in.test"),
        "/to/address": url("127.0.0.2"),
        "/to/number": url("0x7f.2"),
        "/to/mapped": url("[::ffff:127.0.0.2]"),
        "/to/metadata": "http://169.254.169.254/latest/meta-data/",
        "/to/home": url("home.test", "other"),
        "/to/mixed": url("mixed.test"),
    }
    moved = {path: Route(302, location=location) for path, location in hops.items()}
    linked = {"/links/in": Route(body="p", headers={"X-Link": url("in.test", "linked")})}
    home = {
        "/to/inside": Route(302, location=url("inside.test")),
        "/to/metadata": Route(302, location="http://169.254.169.254/"),
        "/links/inside": Route(body="p", headers={"X-Link": url("inside.test", "linked")}),
    }
    index = f"<sitemapindex><sitemap><loc>{url('in.test')}</loc></sitemap></sitemapindex>"
    return [
        operator(listing()),
        site("out.test", {**moved, **linked}),
        site("home.test", home),
        site("robots.test", robots=Route(302, location=url("in.test", "robots.txt"))),
        site("odd.test", robots=Route(302, location=url("127.1", "robots.txt"))),
        site("index.test", {"/index.xml": Route(body=index, content_type="application/xml")}),
        *map(site, ("in.test", "inside.test", "mixed.test", "six.test", "metadata.test")),
        *map(site, ("127.1", "127.0.0.2", "0x7f.2", "169.254.169.254", "[::ffff:127.0.0.2]")),
    ]


PATHS = (
    *("out.test/to/name", "out.test/to/address", "out.test/to/number", "out.test/to/mapped"),
    *("out.test/to/metadata", "out.test/to/home", "out.test/to/mixed", "out.test/links/in"),
    *("home.test/to/inside", "home.test/to/metadata", "home.test/links/inside"),
    *("odd.test/page", "robots.test/page", "metadata.test/page", "six.test/page", "home.test/page"),
)
#: Where a hop is refused: the host that is not requested, and where it came from.
REFUSED = {
    "in.test/page": "out.test/to/name",
    "127.0.0.2/page": "out.test/to/address",
    "0x7f.2/page": "out.test/to/number",
    "169.254.169.254/latest/meta-data/": "out.test/to/metadata",
    "home.test/other": "out.test/to/home",
    "in.test/linked": "out.test/links/in",
    "metadata.test/page": "",
}


@pytest.fixture(scope="module", params=HANDLERS)
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder: Path = tmp_path_factory.mktemp(request.param)
    (folder / "handler").write_text(request.param)
    return folder


def operator_at(port: int) -> dict[str, Any]:
    """Settings of a bot whose operator's site is at *port*, for crawls without a proxy."""
    identity = {
        name: value.replace("operator.test", f"operator.test:{port}")
        for name, value in OWN_IDENTITY.items()
    }
    return {
        "WALSH_IDENTITY": identity,
        "WALSH_BLOCKLIST_URL": identity["blocklist_url"],
        "WALSH_BLOCKLIST_SCHEMA_URL": None,
    }


def run(folder: Path, **settings: Any) -> tuple[Crawl, int]:
    with Sandbox() as box, ExitStack() as also:
        for address in ("127.0.0.2", "::1"):
            also.enter_context(also_at(address, box.port))
        for each in sites(box.port):
            box.put(each)
        given = {
            **operator_at(box.port),
            "WALSH_FOLLOW_LINKS": True,
            "HTTPPROXY_ENABLED": False,
            **settings,
        }
        project = make_project(folder, SPIDER, given)
        (project / "sitecustomize.py").write_text(INTERNET)
        urls = [f"http://{path.replace('/', f':{box.port}/', 1)}" for path in PATHS]
        return crawl(project, box, *urls, **{zygote.BROKEN: "1"}), box.port


@pytest.fixture(scope="module")
def done(folder: Path) -> tuple[Crawl, int]:
    return run(folder, **HANDLERS[(folder / "handler").read_text()])


def asked(crawl: Crawl) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for each in crawl.log:
        found.setdefault(each.host.rpartition(":")[0], []).append(each.path)
    return found


def test_a_hop_into_the_own_network_is_not_followed(done: tuple[Crawl, int]) -> None:
    found = asked(done[0])
    never = {"in.test", "127.0.0.2", "0x7f.2", "metadata.test", "[::ffff:127.0.0.2]"}
    assert not never & found.keys(), found
    assert not [host for host in found if "169.254" in host]
    assert "/other" not in found["home.test"]


@pytest.mark.parametrize("place", REFUSED)
def test_a_refusal_names_where_the_hop_came_from(done: tuple[Crawl, int], place: str) -> None:
    crawl, port = done
    host, _, path = place.partition("/")
    url = f"http://{host}/{path}" if "169.254" in host else f"http://{host}:{port}/{path}"
    why = crawl.why(url)
    assert "WALSH_PRIVATE_ADDRESSES private_address" in why, (why, crawl.output)
    if came := REFUSED[place]:
        assert f"http://{came.replace('/', f':{port}/', 1)} led there" in why
    (line,) = crawl.lines(f"refused {url} (WALSH_PRIVATE_ADDRESSES private_address)")
    assert line


def test_each_host_that_is_refused_has_one_warning(done: tuple[Crawl, int]) -> None:
    """The addresses 127.0.0.2, 0x7f.2 and ::ffff:127.0.0.2 are one host."""
    lines = done[0].lines("] WARNING", "(WALSH_PRIVATE_ADDRESSES private_address)")
    assert len(lines) == 5, lines


def test_what_was_declared_and_what_it_leads_to_at_home_is_requested(
    done: tuple[Crawl, int],
) -> None:
    found = asked(done[0])
    assert set(found["inside.test"]) == {"/robots.txt", "/page", "/linked"}
    assert set(found["home.test"]) == {
        *("/robots.txt", "/page", "/to/inside", "/to/metadata", "/links/inside"),
    }


def test_of_a_name_with_several_addresses_only_a_public_one_is_used(
    done: tuple[Crawl, int], folder: Path
) -> None:
    assert asked(done[0])["mixed.test"] == ["/robots.txt", "/page"]
    reached = {each["address"] for each in ledger(folder) if "mixed.test" in each.get("url", "")
               and each["kind"] == "asked"}  # fmt: skip
    assert reached == {"127.0.0.1"}


def test_a_host_with_addresses_of_ipv6_alone_is_read(done: tuple[Crawl, int]) -> None:
    assert asked(done[0])["six.test"] == ["/robots.txt", "/page"]


def test_a_refused_hop_of_robots_txt_defers_the_targets(done: tuple[Crawl, int]) -> None:
    crawl, port = done
    assert asked(crawl)["robots.test"] == ["/robots.txt"]
    why = crawl.why(f"http://robots.test:{port}/page")
    assert "R2 deferred" in why
    assert f"redirects to http://in.test:{port}/robots.txt, which is refused" in why


def test_a_redirect_of_robots_txt_that_a_handler_cannot_send_is_refused(
    done: tuple[Crawl, int],
) -> None:
    """127.1 is a public address here, and aiohttp sends nothing to an address in that form."""
    crawl, port = done
    if crawl.fetched(f"http://odd.test:{port}/page"):
        assert asked(crawl)["127.1"] == ["/robots.txt"]
        return
    assert "127.1" not in asked(crawl)
    assert "its URL cannot be sent" in crawl.why(f"http://odd.test:{port}/page")


def test_it_is_no_fault_of_ours_and_no_silence(done: tuple[Crawl, int]) -> None:
    crawl, _ = done
    assert crawl.returncode == 0, crawl.output
    assert crawl.stats["close_reason"] == "finished"
    assert not crawl.lines("gave no answer")
    assert "walsh/retried" not in crawl.stats


def test_verify_derives_each_refusal(done: tuple[Crawl, int], folder: Path) -> None:
    assert done
    found = run_scrapy(
        folder, None, "verify", ".scrapy/walsh", module="scrapy_walsh", **{zygote.BROKEN: "1"}
    )
    assert found.returncode == 0, found.stdout
    refused = [each for each in ledger(folder) if each.get("verdict") == "private_address"]
    assert len(refused) == len(REFUSED) + 2  # the mapped address, and home's own metadata
    assert all(each["address"] for each in refused)


THROUGH = (
    SPIDER
    + """
class Through:
    def process_request(self, request, spider=None):
        if request.url.startswith("https:"):
            request.meta["proxy"] = PROXY
"""
)


@pytest.mark.parametrize("handler", HANDLERS)
@pytest.mark.parametrize(("proxy", "reached"), [("metadata.test", False), ("in.test", True)])
def test_the_name_of_a_proxy_that_opens_a_tunnel_is_judged(
    tmp_path: Path, handler: str, proxy: str, reached: bool
) -> None:
    with Sandbox() as box, also_at("127.0.0.2", box.port):
        box.put(operator(listing()))
        box.put(site("out.test"))
        given = {
            **HANDLERS[handler],
            **operator_at(box.port),
            "HTTPPROXY_ENABLED": False,
            "DOWNLOADER_MIDDLEWARES": {"spiders.Through": 700},
        }
        spider = f"PROXY = 'http://{proxy}:{box.port}'\n{THROUGH}"
        project = make_project(tmp_path / "project", spider, given)
        (project / "sitecustomize.py").write_text(INTERNET)
        done = crawl(project, box, "https://out.test/page", **{zygote.BROKEN: "1"})
    assert done.returncode == 0, done.output
    assert done.fetched("https://out.test/page") == reached, done.output
    if not reached:
        why = done.why("https://out.test/page")
        assert "WALSH_PRIVATE_ADDRESSES private_address" in why, done.output
        assert "169.254.169.254" in why


def ledger(folder: Path) -> list[dict[str, Any]]:
    lines = (folder / ".scrapy/walsh/ledger.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def test_a_look_up_by_aiohttp_ends_within_dns_timeout() -> None:
    async def resolve(host: str, port: int) -> list[Any]:
        await asyncio.sleep(3600)
        return [host, port]

    connector = SimpleNamespace(_resolve_host=resolve, connect=None, _wrap_create_connection=None)
    handler = SimpleNamespace(_session=SimpleNamespace(connector=connector))
    names = Names(Settings({"DNS_TIMEOUT": 0.05}))
    compat.guard_connections(handler, object, names.timeout)
    with pytest.raises(OSError, match=r"mute.test was not resolved within DNS_TIMEOUT \(0.05 s\)"):
        asyncio.run(connector._resolve_host("mute.test", 80))
