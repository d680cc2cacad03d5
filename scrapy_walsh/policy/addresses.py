"""Which addresses are not public, and whether a URL may lead a crawl there (D38).

The table is our own, as of 2026-11-27, because the interpreter's changes with its version:
``ipaddress`` of Python 3.12 and 3.13 disagree about some addresses. The table comes from the IANA's
registries of special-purpose addresses for IPv4 and IPv6. We use only the parser of ``ipaddress``
and its arithmetic of networks, because they follow RFC 4291 and do not change.

Two choices are stricter than the registries. In IPv6, only 2000::/3 is public, because hosts on the
internet have no other addresses. And no anycast address of a protocol is public (for example
192.0.0.9 or 2001:1::1), because no web server has one.

An IPv6 address may contain an IPv4 address. Then a translator or a tunnel sends the packets to
that. Such an address is public only if both are.
"""

from __future__ import annotations

import ipaddress
from functools import lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple

from scrapy_walsh.policy import hosts
from scrapy_walsh.policy.verdict import BY_ADDRESS, PRIVATE_ADDRESS, Verdict

if TYPE_CHECKING:
    from collections.abc import Iterator

#: Values of WALSH_PRIVATE_ADDRESSES: only a declared URL may lead to a private address; any URL
#: may.
DECLARED: Final = "declared"
ALLOW: Final = "allow"

#: The kinds of addresses. LINK_LOCAL: in this network segment, for example a cloud's server of
#: credentials.
PUBLIC: Final = "public"
PRIVATE: Final = "private"
LINK_LOCAL: Final = "link-local"


class Led(NamedTuple):
    """How a crawl came to a URL. ``url``: the URL that redirects or links there, or "".

    ``kind``: the kind of the address that its host was reached at; PUBLIC if that is not known.
    """

    url: str = ""
    kind: str = PUBLIC


#: For a URL that no other URL led to.
NO_LEAD: Final = Led()

_PRIVATE_V4: Final = (
    "0.0.0.0/8",  # this network (RFC 791); Linux takes 0.0.0.0 for 127.0.0.1
    "10.0.0.0/8",  # private use (RFC 1918)
    "100.64.0.0/10",  # behind a carrier's NAT (RFC 6598)
    "127.0.0.0/8",  # this machine (RFC 1122)
    "172.16.0.0/12",  # private use (RFC 1918)
    "192.0.0.0/24",  # protocol assignments (RFC 6890)
    "192.0.2.0/24",  # documentation (RFC 5737)
    "192.31.196.0/24",  # AS112 (RFC 7535)
    "192.52.193.0/24",  # AMT (RFC 7450)
    "192.88.99.0/24",  # relays of 6to4, given up (RFC 7526)
    "192.168.0.0/16",  # private use (RFC 1918)
    "192.175.48.0/24",  # AS112 (RFC 7534)
    "198.18.0.0/15",  # benchmarks (RFC 2544)
    "198.51.100.0/24",  # documentation (RFC 5737)
    "203.0.113.0/24",  # documentation (RFC 5737)
    "224.0.0.0/4",  # multicast (RFC 5771)
    "240.0.0.0/4",  # reserved (RFC 1112), and broadcast (RFC 919)
)
_LINK_LOCAL_V4: Final = "169.254.0.0/16"  # RFC 3927
_GLOBAL_V6: Final = "2000::/3"  # RFC 4291
#: Within 2000::/3. Teredo and 6to4 are not listed: the IPv4 address inside decides about them.
_PRIVATE_V6: Final = (
    "2001::/23",  # protocol assignments (RFC 2928)
    "2001:db8::/32",  # documentation (RFC 3849)
    "2620:4f:8000::/48",  # AS112 (RFC 7534)
    "3fff::/20",  # documentation (RFC 9637)
)
_LINK_LOCAL_V6: Final = "fe80::/10"  # RFC 4291
_TEREDO: Final = "2001::/32"  # RFC 4380
_SIX_TO_FOUR: Final = "2002::/16"  # RFC 3056
_MAPPED: Final = "::ffff:0:0/96"  # RFC 4291
_COMPATIBLE: Final = "::/96"  # RFC 4291, given up
_NAT64: Final = "64:ff9b::/96"  # RFC 6052
_NAT64_LOCAL: Final = "64:ff9b:1::/48"  # RFC 8215
#: The networks that contain an IPv4 address, and by how many bits to shift it to the right.
_CARRIERS: Final = (
    (_MAPPED, (0,)),
    (_COMPATIBLE, (0,)),
    (_NAT64, (0,)),
    (_SIX_TO_FOUR, (80,)),
)
_32_BITS: Final = (1 << 32) - 1
#: Public networks with addresses that only say how an IPv4 address is reached.
_JUDGED_BY_WHAT_THEY_CARRY: Final = (_MAPPED, _NAT64, _SIX_TO_FOUR, _TEREDO)


def _table(*networks: str) -> tuple[tuple[int, int], ...]:
    """The first and the last address of each network, as numbers."""
    parsed = map(ipaddress.ip_network, networks)
    return tuple(
        (int(network.network_address), int(network.broadcast_address)) for network in parsed
    )


def _is_in(number: int, table: tuple[tuple[int, int], ...]) -> bool:
    return any(low <= number <= high for low, high in table)


_TABLES: Final = {
    name: _table(*networks)
    for name, networks in {
        "private v4": _PRIVATE_V4,
        "link-local v4": (_LINK_LOCAL_V4,),
        "global v6": (_GLOBAL_V6,),
        "private v6": _PRIVATE_V6,
        "link-local v6": (_LINK_LOCAL_V6,),
        "judged by what they carry": _JUDGED_BY_WHAT_THEY_CARRY,
        "teredo": (_TEREDO,),
        "nat64 local": (_NAT64_LOCAL,),
    }.items()
}
_CARRIER_TABLES: Final = tuple((_table(network), shifts) for network, shifts in _CARRIERS)


@lru_cache(maxsize=1024)
def kind_of(address: str) -> str:
    """PUBLIC, PRIVATE or LINK_LOCAL, of *address*: IPv4 with dots, or IPv6 without brackets.

    Raises ValueError if *address* is none.
    """
    # D36: it only reads the text (RFC 4291).
    parsed = ipaddress.ip_address(address.partition("%")[0])
    number = int(parsed)
    if parsed.version == 4:
        return _kind_of_v4(number)
    kinds = {_kind_of_v4(ipv4) for ipv4 in _carried(number)}
    if LINK_LOCAL in kinds or _is_in(number, _TABLES["link-local v6"]):
        return LINK_LOCAL
    if PRIVATE in kinds:
        return PRIVATE
    if _is_in(number, _TABLES["judged by what they carry"]):
        return PUBLIC
    if _is_in(number, _TABLES["private v6"]) or not _is_in(number, _TABLES["global v6"]):
        return PRIVATE
    return PUBLIC


def _kind_of_v4(number: int) -> str:
    if _is_in(number, _TABLES["link-local v4"]):
        return LINK_LOCAL
    return PRIVATE if _is_in(number, _TABLES["private v4"]) else PUBLIC


def _carried(number: int) -> Iterator[int]:
    """The IPv4 addresses that an IPv6 address contains, or may contain."""
    for table, shifts in _CARRIER_TABLES:
        if _is_in(number, table):
            yield from (number >> shift & _32_BITS for shift in shifts)
    if _is_in(number, _TABLES["teredo"]):
        yield number >> 64 & _32_BITS  # the server
        yield ~number & _32_BITS  # the client, with each bit turned round
    if _is_in(number, _TABLES["nat64 local"]):
        octets = number.to_bytes(16, "big")
        for indexes in hosts.CARRIED:
            yield int.from_bytes(bytes(octets[index] for index in indexes), "big")


def literals_of(url: str) -> tuple[str, ...]:
    """The IP addresses that the host of *url* is written as, in each way to read it; () for a name.

    For example ``127.0.0.1`` of ``http://0x7f.1/``. The name ``localhost``, and what is below it,
    is the address of this machine (RFC 6761, 6.3). Raises ValueError as ``hosts.host_forms``.
    """
    if hosts.usual_url(url) and "localhost" not in url:
        return ()
    literals = [form for form in hosts.host_forms(url) if _is_address(form)]
    name = hosts.host_of(url)
    if name == "localhost" or name.endswith(".localhost"):
        literals.append("127.0.0.1")
    return tuple(literals)


def _is_address(host: str) -> bool:
    if ":" in host:
        return True
    return host.rpartition(".")[2].isdecimal()


def may_reach(kind: str, *, declared: bool, literal: bool, led: Led) -> bool:
    """Whether a URL may be requested at an address of that *kind*.

    *declared*: the operator has named the URL. *literal*: the address stands in the URL.
    """
    if kind == PUBLIC:
        return True
    if declared:
        return literal or kind != LINK_LOCAL
    # A host of an intranet has no reason to lead to a cloud's credentials.
    return led.kind == kind or (kind == PRIVATE and led.kind == LINK_LOCAL)


def refusal(address: str, led: Led) -> Verdict:
    """The verdict against a URL that leads to *address*."""
    cause = "it was not declared"
    if led.url:
        cause = f"{led.url} led there"
    elif kind_of(address) == LINK_LOCAL:
        cause = "its URL does not name that address itself"
    reason = f"its host is at {address}, which is not public ({kind_of(address)}), and {cause}"
    return Verdict(False, PRIVATE_ADDRESS, BY_ADDRESS, reason, address=address)
