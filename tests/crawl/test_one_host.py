"""R3: the host that the list sees is the host that Scrapy connects to, however a URL is written."""

from __future__ import annotations

import ipaddress
import json
import random
import re
import socket
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

from scrapy_walsh.policy.hosts import robots_url
from scrapy_walsh.policy.list.blocklist import Blocklist, normalise

if TYPE_CHECKING:
    from tests.crawl.reached import Reached

ROOT = Path(__file__).parents[2]
CASES: dict[str, list[str]] = json.loads((ROOT / "tests/data/url_hosts.json").read_text("utf-8"))
#: What a resolver takes for a name.
NAME = re.compile(r"\.?[A-Za-z0-9_][A-Za-z0-9_.-]*")

#: What a URL is made of; "_" is nothing at all.
PIECES = {
    "scheme": "http https HTTP ht\ntp",
    "opening": ":// :// :// : :/ :/// ://// :\\\\ :/\\ ://\t :////\\",
    "user": "_ _ _ u@ u:p@ evil.test:80@ [::1]@ evil.test\\@ a@b@ %40 @",
    "host": """
        host.test HOST.test. ho%73t.test b\u00fccher.test stra\u00dfe.test xn--n3h.test a_b.test
        192.0.2.7 0xc0000207 3221225991 192.0.2.010 \uff11\uff19\uff12.0.2.7 host.7 _ .
        [2001:db8::1] 2001:db8::1 [::ffff:192.0.2.7] [fe80::1%25eth0] [v1.x] [::1
        host.test\u3002 host.test%00 host.test;x host.test\u00ad
    """,
    "port": "_ _ _ :80 : :080 :8080 :80:80 :%38 :65536 \\ \\:81",
    "tail": "_ / /x ?x@evil.test #f #@evil.test //evil.test/ \\@evil.test /..//x",
}


def made(count: int) -> list[str]:
    """Return so many URLs of those pieces, the same each time."""
    pick = random.Random(12)
    pieces = [re.split(" +", re.sub(r" *\n +", " ", text).strip(" ")) for text in PIECES.values()]
    return ["".join(pick.choice(some).strip("_") for some in pieces) for _ in range(count)]


def written() -> list[str]:
    """Return the cases that were written by hand."""
    return [url for group in CASES.values() for url in group]


def reached(urls: list[str]) -> list[Reached]:
    done = subprocess.run(
        [sys.executable, "-m", "tests.crawl.reached"],
        input=json.dumps(urls),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        cwd=ROOT,
        timeout=120,
        check=True,
    )
    return [(url, host, header) for url, host, header in json.loads(done.stdout)]


def resolved(host: str) -> str | None:
    """What a resolver makes of a host: an address, or a name to ask for; None for neither."""
    bare = host.strip("[]")
    if ":" in bare:
        try:
            address = ipaddress.IPv6Address(bare.partition("%")[0])
        except ValueError:
            return None
        return str(address.ipv4_mapped or address)
    try:
        return socket.inet_ntoa(socket.inet_aton(bare.rstrip(".")))
    except OSError:
        return bare.lower().strip(".") or None if NAME.fullmatch(bare) else None


def refused(url: str, listed: str) -> bool:
    """Whether a list with that one host refuses the URL, as the gate reads it."""
    try:
        return Blocklist(domains=set(normalise([listed])[0])).blocks(url) is not None
    except ValueError:
        return True


#: 1,500, and 6,000 with ``--hypothesis-profile thorough``.
MADE = 60 * settings.default.max_examples


@pytest.fixture(scope="module")
def found() -> dict[str, Reached]:
    """Where the cases written by hand, and those that are made, go: one process for all."""
    urls = [*written(), *made(MADE)]
    return dict(zip(urls, reached(urls), strict=True))


@pytest.mark.parametrize(("urls", "least"), [(written(), 190), (made(MADE), MADE // 10)])
def test_r3_2_the_list_sees_the_host_that_the_socket_reaches(
    found: dict[str, Reached], urls: list[str], least: int
) -> None:
    asked = 0
    for raw in urls:
        url, host, header = found[raw]
        real = resolved(host) if host else None
        if url is None or real is None:
            continue
        asked += 1
        assert refused(url, real), f"{raw!r} goes to {host}"
        assert refused(raw, real), f"{raw!r} goes to {host}, read before Scrapy does"
        if header is not None:
            assert resolved(re.sub(r":\d+\Z", "", header)) == real, raw
    assert asked > least  # the rest never leaves


def test_r2_4_robots_txt_is_asked_of_the_host_that_the_socket_reaches(
    found: dict[str, Reached],
) -> None:
    there = [found[each] for each in made(MADE)]
    kept = [
        (url, host)
        for url, host, _ in there
        if url and host and resolved(host) and not refused(url, "none.test")
    ]
    documents = reached([robots_url(url) for url, _ in kept])
    assert len(kept) > 100
    for (url, host), (_, document_host, _) in zip(kept, documents, strict=True):
        assert document_host is not None
        assert resolved(document_host) == resolved(host), url
