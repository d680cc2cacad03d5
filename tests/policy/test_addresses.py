"""D38: which addresses are not public, by our own table, alike on each Python."""

from __future__ import annotations

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scrapy_walsh.policy.addresses import (
    LINK_LOCAL,
    PRIVATE,
    PUBLIC,
    Led,
    kind_of,
    literals_of,
    may_reach,
)

KINDS = {
    # IPv4: the first and the last address of each network, and what lies beside it
    **dict.fromkeys(("0.0.0.0", "0.255.255.255", "10.0.0.0", "10.255.255.255"), PRIVATE),
    **dict.fromkeys(("1.0.0.0", "9.255.255.255", "11.0.0.0", "8.8.8.8"), PUBLIC),
    **dict.fromkeys(("100.63.255.255", "100.128.0.0"), PUBLIC),
    **dict.fromkeys(("100.64.0.0", "100.127.255.255"), PRIVATE),
    **dict.fromkeys(("126.255.255.255", "128.0.0.0"), PUBLIC),
    **dict.fromkeys(("127.0.0.1", "127.255.255.255"), PRIVATE),
    **dict.fromkeys(("169.253.255.255", "169.255.0.0"), PUBLIC),
    **dict.fromkeys(("169.254.0.0", "169.254.169.254", "169.254.255.255"), LINK_LOCAL),
    **dict.fromkeys(("172.15.255.255", "172.32.0.0"), PUBLIC),
    **dict.fromkeys(("172.16.0.0", "172.31.255.255"), PRIVATE),
    **dict.fromkeys(("192.0.0.9", "192.0.0.10", "192.0.2.1", "192.88.99.1"), PRIVATE),
    **dict.fromkeys(("192.167.255.255", "192.169.0.0", "192.0.1.1"), PUBLIC),
    **dict.fromkeys(("192.168.0.0", "192.168.255.255"), PRIVATE),
    **dict.fromkeys(("198.17.255.255", "198.20.0.0"), PUBLIC),
    **dict.fromkeys(("198.18.0.0", "198.19.255.255", "198.51.100.7", "203.0.113.7"), PRIVATE),
    **dict.fromkeys(("223.255.255.255",), PUBLIC),
    **dict.fromkeys(("224.0.0.1", "239.255.255.255", "240.0.0.1", "255.255.255.255"), PRIVATE),
    # IPv6
    **dict.fromkeys(("::", "::1", "fc00::1", "fdff::1", "fd00:ec2::254", "fec0::1"), PRIVATE),
    **dict.fromkeys(("fe80::1", "fe80::1%eth0", "febf::1"), LINK_LOCAL),
    **dict.fromkeys(("ff02::1", "100::1", "100:0:0:1::1", "5f00::1", "4000::1"), PRIVATE),
    **dict.fromkeys(("2001:db8::1", "3fff::1", "2001:1::1", "2001:20::1"), PRIVATE),
    **dict.fromkeys(("2001:200::1", "2606:4700::1111", "2a00:1450::1", "3ffe::1"), PUBLIC),
    # what carries an address of IPv4: mapped, compatible, SIIT, 6to4, Teredo, NAT64
    **dict.fromkeys(("::ffff:127.0.0.1", "::ffff:10.0.0.1", "::127.0.0.1", "::8.8.8.8"), PRIVATE),
    **dict.fromkeys(("::ffff:8.8.8.8",), PUBLIC),
    **dict.fromkeys(("::ffff:169.254.169.254", "::169.254.169.254"), LINK_LOCAL),
    **dict.fromkeys(("::ffff:0:8.8.8.8",), PRIVATE),
    **dict.fromkeys(("2002:a00:1::", "2002:7f00:1::1", "2002:c0a8:101::5"), PRIVATE),
    **dict.fromkeys(("2002:808:808::1",), PUBLIC),
    **dict.fromkeys(("2002:a9fe:a9fe::1",), LINK_LOCAL),
    **dict.fromkeys(("2001:0:0a00:1::f7f7:f7f7", "2001:0:808:808::80ff:fffe"), PRIVATE),
    **dict.fromkeys(("2001:0:808:808::f7f7:f7f7",), PUBLIC),
    **dict.fromkeys(("2001:0:808:808::5601:5601",), LINK_LOCAL),
    **dict.fromkeys(("64:ff9b::10.0.0.1", "64:ff9b::127.0.0.1", "64:ff9b:1::8.8.8.8"), PRIVATE),
    **dict.fromkeys(("64:ff9b::8.8.8.8",), PUBLIC),
    **dict.fromkeys(("64:ff9b::169.254.169.254", "64:ff9b:1::169.254.169.254"), LINK_LOCAL),
}


@pytest.mark.parametrize(("address", "kind"), KINDS.items())
def test_the_kind_of_an_address_is_that_of_our_table(address: str, kind: str) -> None:
    assert kind_of(address) == kind


@given(st.integers(0, (1 << 32) - 1))
def test_what_carries_an_address_is_never_more_public_than_that(number: int) -> None:
    own = kind_of(str(ipaddress.IPv4Address(number)))
    high, low = number >> 16, number & 0xFFFF
    turned_high, turned_low = high ^ 0xFFFF, low ^ 0xFFFF
    for carrier in (
        f"::ffff:{high:x}:{low:x}",
        f"64:ff9b::{high:x}:{low:x}",
        f"2002:{high:x}:{low:x}::1",
        f"2001:0:{high:x}:{low:x}::f7f7:f7f7",
        f"2001:0:808:808::{turned_high:x}:{turned_low:x}",
    ):
        assert kind_of(carrier) == own, carrier


LITERALS = {
    "http://a.test/": (),
    "http://10.test/": (),
    "http://127.0.0.1.nip.test/": (),
    "http://127.0.0.1:8080/x": ("127.0.0.1",),
    "http://0x7f.1/": ("127.0.0.1",),
    "http://2130706433/": ("127.0.0.1",),
    "http://127.1/": ("127.0.0.1",),
    "http://0177.0.0.1/": ("127.0.0.1", "177.0.0.1"),
    "http://\uff11\uff12\uff17.0.0.1/": ("127.0.0.1",),
    "http://[::1]/": ("::1",),
    "http://[::ffff:10.0.0.1]:81/": ("10.0.0.1",),
    "http://[fe80::1%25eth0]/": ("fe80::1",),
    "http://localhost/": ("127.0.0.1",),
    "http://LocalHost.:80/": ("127.0.0.1",),
    "http://printer.localhost/": ("127.0.0.1",),
    "http://user@127.0.0.1\\@a.test/": ("127.0.0.1",),
}


@pytest.mark.parametrize(("url", "addresses"), LITERALS.items())
def test_a_host_that_is_written_as_an_address_is_known_as_one(
    url: str, addresses: tuple[str, ...]
) -> None:
    assert literals_of(url) == addresses


@pytest.mark.parametrize("literal", [False, True])
@pytest.mark.parametrize("led_by", [PUBLIC, PRIVATE, LINK_LOCAL])
def test_what_was_declared_may_have_any_address_but_a_link_local_one_of_a_name(
    literal: bool, led_by: str
) -> None:
    def may(kind: str) -> bool:
        return may_reach(kind, declared=True, literal=literal, led=Led("http://a.test/", led_by))

    assert may(PUBLIC)
    assert may(PRIVATE)
    assert may(LINK_LOCAL) is literal


@pytest.mark.parametrize(
    ("kind", "led_by", "may"),
    [
        (PUBLIC, PUBLIC, True),
        (PUBLIC, PRIVATE, True),
        (PRIVATE, PUBLIC, False),
        (PRIVATE, PRIVATE, True),
        (PRIVATE, LINK_LOCAL, True),
        (LINK_LOCAL, PUBLIC, False),
        (LINK_LOCAL, PRIVATE, False),
        (LINK_LOCAL, LINK_LOCAL, True),
    ],
)
def test_a_hop_may_lead_to_a_private_address_from_a_host_at_one(
    kind: str, led_by: str, may: bool
) -> None:
    for literal in (False, True):
        assert (
            may_reach(kind, declared=False, literal=literal, led=Led("http://a.test/", led_by))
            is may
        )
