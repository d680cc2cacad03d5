"""The host of a URL (R3, R4).

One host has many spellings (T15). ``host_of`` gives the canonical form. ``host_forms`` gives each
form that a reader may find in a URL, because the blocklist blocks if any of them is listed. Hosts
are compared without port (R3); the throttle key has it (R4, T17).

Nearly all URLs are plain (``_PLAIN_URL``): one regular expression finds their only form. All others
take a slow path: scheme and authority are split off in each way that a standard or a tool does
(``_authorities``), the host is decoded, and each way to read it adds a form: today's IDNA and that
of 2003, an IPv4 address with octal numbers and without (``_canonical``).
"""

from __future__ import annotations

import ipaddress
import re
from contextlib import suppress
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote_to_bytes

import idna

from scrapy_walsh.policy.urls import DEFAULT_PORT, stripped

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

# The common case: an ASCII authority without userinfo and escapes. Its last label is not a number,
# and it has at most the 127 labels of DNS. Everything else takes the slow path.
_HOST: Final = r"(?:[A-Za-z0-9_-]++\.){0,126}[A-Za-z_][A-Za-z0-9_-]*+"
_PLAIN_URL: Final = re.compile(rf"([Hh][Tt][Tt][Pp][Ss]?)://({_HOST})\.?(?::([0-9]*))?(?:[/?#]|\Z)")
_PLAIN_HOST: Final = re.compile(_HOST)

_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")
# WHATWG URL: after these schemes the authority begins behind any run of slashes and backslashes.
_SPECIAL: Final = frozenset({"http", "https", "ws", "wss", "ftp"})
_AUTHORITY: Final = re.compile(r"(?:\[([^\[\]]*:[^\[\]]*)\]|([^:\[]*))(?::([0-9]*))?")
_FORBIDDEN: Final = re.compile(
    r"[\x00-\x20\x7f#/:<>?@\[\\\]^|%]"
)  # WHATWG forbidden domain code points
_NUMBER: Final = re.compile(r"0[xX][0-9A-Fa-f]*|[0-9]+")
# The octets of the IPv4 address in an IPv6 address, by the length of its prefix (RFC 6052 2.2);
# octet 8 is skipped. D36: the networks are these.
_NAT64: Final = ipaddress.IPv6Network("64:ff9b::/96")
_NAT64_LOCAL: Final = ipaddress.IPv6Network("64:ff9b:1::/48")  # RFC 8215: any of those lengths
CARRIED: Final = ((6, 7, 9, 10), (7, 9, 10, 11), (9, 10, 11, 12), (12, 13, 14, 15))
#: What IDNA 2003 makes of the four characters that UTS 46 keeps (its section 7.2): ß, ς, the two
#: joiners.
_DEVIATIONS: Final = {0xDF: "ss", 0x3C2: "\u03c3", 0x200C: "", 0x200D: ""}
_MAX_NAME: Final = 255  # characters: a longer name cannot be resolved, and IDNA is quadratic


#: Matches the most common URLs: in lower case, without a port, too short for too many labels. Group
#: 1 is then the only form of the host. For any other URL, :func:`host_forms` gives the forms.
usual_url: Final = re.compile(
    r"https?://([a-z0-9_-][a-z0-9._-]{0,180}\.[a-z_][a-z0-9_-]{0,62})(?:[/?#]|\Z)"
).match


def host_of(url_or_host: str) -> str:
    """Return the canonical host of a URL, ``host:port`` or bare host, without the port.

    Lower case, IDNA, no trailing dot; IPv6 compressed and without brackets, IPv4 dotted.
    Raises ValueError if there is no readable host.
    """
    return host_forms(url_or_host)[0]


def host_forms(url_or_host: str) -> tuple[str, ...]:
    """Return every defensible canonical form of the host; the first is :func:`host_of`.

    Raises ValueError if there is no readable host.
    """
    plain = _PLAIN_URL.match(url_or_host)
    if plain:
        return (plain[2].lower(),)
    if _PLAIN_HOST.fullmatch(url_or_host):
        return (url_or_host.lower(),)
    return _forms(url_or_host)


def carried_ipv4(host: str) -> tuple[str, ...]:
    """Return the IPv4 addresses that a canonical IPv6 address stands for, or may stand for.

    That is so for addresses of NAT64 (RFC 6052; with the local-use prefix of RFC 8215, for each of
    the places that an address may have) and of 6to4 (RFC 3056). An IPv4-mapped address needs no
    care here, since its canonical form is the IPv4 address.
    """
    if ":" not in host:
        return ()
    # D36: reads the text, and knows 2002::/16, which RFC 3056 fixes.
    address = ipaddress.IPv6Address(host)
    if address.sixtofour:
        return (str(address.sixtofour),)
    places = CARRIED if address in _NAT64_LOCAL else CARRIED[-1:] if address in _NAT64 else ()
    return tuple(".".join(str(address.packed[n]) for n in place) for place in places)


def is_doubtful(url: str) -> bool:
    """Tell whether standards and tools disagree about the beginning of a URL's host.

    By RFC 3986 it begins after two slashes; by WHATWG URL after any number of slashes and
    backslashes; and Scrapy drops two slashes of four.
    """
    scheme = _SCHEME.match(text := stripped(url))
    if not scheme or scheme[1].lower() not in _SPECIAL:
        return False
    after_scheme = text[scheme.end() :]
    return len(after_scheme) - len(after_scheme.lstrip("/\\")) != 2


@lru_cache(maxsize=64)
def proxy_host(proxy: str) -> str:
    """Return the host of a proxy as ``Request.meta`` names it, with or without a scheme.

    For a text without a host it is ``@``: the blocklist finds no readable host in it, and refuses.
    """
    try:
        return host_of(proxy if "://" in proxy else f"http://{proxy}")
    except ValueError:
        return "@"


def host_key(url: str) -> str:
    """Return the throttle key (R4): the host, plus ``:port`` unless it is a web default.

    The ports 80 and 443 are left out whatever the scheme: ``http://h``, ``https://h`` and
    ``http://h:443`` are one host, with one pace. Raises ValueError if there is no readable host
    or port.
    """
    return _names(url)[1]


#: Values of ``WALSH_PACE_BY``: hosts are paced by name alone, or also by address.
BY_HOST, BY_ADDRESS = "host", "address"


def server_key(key: str, address: str, pace_by: str | Mapping[str, str]) -> str:
    """Return the key of the server that the host *key* is paced with (T43); "" for none.

    It cannot be the key of a host. *address*: of the host; "" if it is not known. *pace_by*:
    WALSH_PACE_BY. The first pattern that matches the host without its port counts.
    """
    name = address
    if not isinstance(pace_by, str) and not key.startswith("@"):
        name = ""
        with suppress(ValueError):  # another version may have stored a key that is unreadable
            host = host_of(key)
            matches = (name for pattern, name in pace_by.items() if fnmatchcase(host, pattern))
            name = next(matches, "")
    return name and f"@{name}"


@lru_cache(maxsize=1024)
def origin(url: str) -> str:
    """Return ``scheme://host[:port]`` of a URL, a default port left out (RFC 6454).

    Raises ValueError if there is no scheme, or no readable host or port.
    """
    name = _names(url)[0]
    if not name:
        raise ValueError(f"no scheme in {_show(url)}")
    return name


@lru_cache(maxsize=1024)  # the queue, the gates and the handler call it for one URL in turns
def host_or_url(url: str) -> str:
    """:func:`host_key` of *url*; *url* itself if it has no readable host."""
    try:
        return host_key(url)
    except ValueError:
        return url


def origin_or_url(url: str) -> str:
    """:func:`origin` of *url*; *url* itself if it has no readable host."""
    try:
        return origin(url)
    except ValueError:
        return url


def is_asked(url: str, scheme: str, authority: str) -> bool:
    """Tell whether a request to *authority*, as it is sent, goes to the host of *url* (D36).

    A client library finds the host in its own way; the gates have judged what :func:`origin` finds.
    """
    try:
        return origin(f"{scheme}://{authority}") == origin(url)
    except ValueError:
        return False


def robots_url(url: str) -> str:
    """Return the URL of the robots.txt for ``url`` (RFC 9309 section 2.3). Raises as ``origin``."""
    return f"{origin(url)}/robots.txt"


def excluded_suffix(host: str, suffixes: Sequence[str]) -> str | None:
    """Return the first of ``suffixes`` that ``host`` equals or is below, by label, or None.

    Case and a leading dot make no difference; an empty suffix matches nothing.
    """
    forms = host_forms(host)
    for suffix in map(_suffix, suffixes):
        if suffix and any(form == suffix or form.endswith(f".{suffix}") for form in forms):
            return suffix
    return None


@lru_cache(maxsize=256)
def _suffix(text: str) -> str:
    bare = text.strip().strip("*.").lower()
    try:
        return host_of(bare) if bare else ""
    except ValueError:
        return bare


def _names(url: str) -> tuple[str, str]:
    """Return the origin (empty without a scheme) and the throttle key."""
    plain = _PLAIN_URL.match(url)
    if plain:
        scheme, host, port = plain[1].lower(), plain[2].lower(), plain[3]
    else:
        scheme, authorities = _authorities(url)
        host, port = _forms(url)[0], _split_port(scheme, authorities[0])[1]
    number = int(port) if port else 0
    if number > 65535:
        raise ValueError(f"port above 65535 in {_show(url)}")
    shown_port = number if port and number != DEFAULT_PORT.get(scheme) else None
    key = host if shown_port in (None, 80, 443) else _join(host, shown_port)
    return f"{scheme}://{_join(host, shown_port)}" if scheme else "", key


def _join(host: str, port: int | None) -> str:
    bracketed = f"[{host}]" if ":" in host else host
    return bracketed if port is None else f"{bracketed}:{port}"


@lru_cache(maxsize=1024)
def _forms(text: str) -> tuple[str, ...]:
    scheme, (preferred, *alternatives) = _authorities(text)
    try:
        forms = dict.fromkeys(_canonical(_split_port(scheme, preferred)[0]))
    except ValueError:
        raise ValueError(f"no readable host in {_show(text)}") from None
    for authority in alternatives:
        with suppress(ValueError):
            forms.update(dict.fromkeys(_canonical(_split_port(scheme, authority)[0])))
    return tuple(forms)


def _show(text: str) -> str:
    return repr(text if len(text) <= 200 else f"{text[:200]}...")


def _authorities(text: str) -> tuple[str, list[str]]:
    """Return the scheme and the authority as WHATWG URL reads it, then as RFC 3986 does.

    They differ if there is a backslash. WHATWG URL ends the authority there, as browsers do. By RFC
    3986 it goes on, and the host, or its end, follows the last backslash.
    """
    scheme, after_scheme = _split_scheme(stripped(text))
    rfc_3986 = re.split(r"[/?#]", after_scheme, maxsplit=1)[0].rpartition("@")[2]
    if "\\" not in after_scheme:
        return scheme, [rfc_3986]
    whatwg = re.split(r"[/\\?#]", after_scheme, maxsplit=1)[0].rpartition("@")[2]
    return scheme, [whatwg, rfc_3986.rpartition("\\")[2]]


def _split_scheme(text: str) -> tuple[str, str]:
    """Return the lower-case scheme (empty for a bare host) and what follows the slashes."""
    match = _SCHEME.match(text)
    scheme = match[1].lower() if match else ""
    after_scheme = text[match.end() :] if match else text
    if scheme in _SPECIAL:
        return scheme, after_scheme.lstrip("/\\")
    if after_scheme[:2].replace("\\", "/") == "//":
        return scheme, after_scheme[2:]
    return "", text


def _split_port(scheme: str, authority: str) -> tuple[str, str]:
    """Return host (brackets dropped) and port digits (may be empty)."""
    match = _AUTHORITY.fullmatch(authority)
    if match:
        return match[1] or match[2], match[3] or ""
    # An IPv6 address without brackets, as blocklists have it. In a URL its end may be a port.
    if not scheme and authority.count(":") > 1:
        return authority, ""
    raise ValueError(f"no readable port in {_show(authority)}")


def _canonical(host: str) -> Iterator[str]:
    """Yield the canonical forms of a host text. Raises ValueError if there are none."""
    if ":" in host:
        yield _ipv6(host)
        return
    # D36: RFC 3986 section 2.1 fixes what an escape is.
    decoded = unquote_to_bytes(host).decode("utf-8")
    if len(decoded) > _MAX_NAME:
        raise ValueError("host is too long")
    names = [name.strip(".") for name in _ascii_names(decoded) if not _FORBIDDEN.search(name)]
    if not any(names):
        raise ValueError("host is unreadable")
    for bare in filter(None, names):
        yield from _ipv4(bare) if _NUMBER.fullmatch(bare.rpartition(".")[2]) else (bare,)


def _ipv6(host: str) -> str:
    # D36: it is read and written (RFC 4291, RFC 5952), and never asked what is private. Python 3.13
    # writes a mapped address in another way, so it is taken as the IPv4 address.
    address = ipaddress.IPv6Address(host.partition("%")[0])
    return str(address.ipv4_mapped or address)


def _ascii_names(name: str) -> Iterator[str]:
    """Yield the ASCII forms of a name: UTS 46 as of today, then IDNA 2003 if it differs.

    Both are by the tables of the ``idna`` package. The interpreter's codec comes last: it changes
    from one Python to the next (in 3.14 it reads no capital sharp s), but Scrapy makes the host of
    a Request by it. So whatever it gives is a form as well, and no other form rests on it (D36).
    """
    if name.isascii():
        yield name.lower()
        return
    for convert in (_uts46, _idna2003, _idna_codec):
        with suppress(UnicodeError):
            yield convert(name)


def _uts46(name: str) -> str:
    return _punycode(_mapped(name))


def _idna2003(name: str) -> str:
    return _punycode(_mapped(name).translate(_DEVIATIONS))


def _idna_codec(name: str) -> str:
    # D36: a form more, beside two that do not rest on it.
    return name.encode("idna").decode("ascii").lower()


def _mapped(name: str) -> str:
    # Before Unicode 15.1 the table made "ss" of a capital sharp s. The package normalizes by the
    # interpreter's table, which never changes for a character that it has (Unicode's stability
    # policy); a character that it does not have yet stays as it is, in names of a list and of a URL
    # alike. The package would refuse underscores and symbols, which resolvers accept.
    return idna.uts46_remap(name.replace("\u1e9e", "\u00df"), std3_rules=False)


def _punycode(name: str) -> str:
    return ".".join(
        label if label.isascii() else f"xn--{label.encode('punycode').decode('ascii')}"
        for label in name.split(".")
    )


def _ipv4(name: str) -> list[str]:
    """Return the dotted form of an address in any of inet_aton's notations.

    A leading zero means octal to inet_aton and nothing to others, so both addresses are given.
    """
    addresses: list[str] = []
    for base in (8, 10):
        with suppress(ValueError):
            # D36: of a number, which has one dotted form.
            addresses.append(str(ipaddress.IPv4Address(_ipv4_number(name.split("."), base))))
    if not addresses:
        raise ValueError("not an IPv4 address")
    return addresses


def _ipv4_number(parts: list[str], zero_base: int) -> int:
    if len(parts) > 4 or not all(map(_NUMBER.fullmatch, parts)):
        raise ValueError("not an IPv4 address")
    *octets, final = [_ipv4_part(part, zero_base) for part in parts]
    if any(octet > 255 for octet in octets) or final >= 256 ** (5 - len(parts)):
        raise ValueError("not an IPv4 address")
    return sum(octet << (8 * (3 - place)) for place, octet in enumerate(octets)) + final


def _ipv4_part(part: str, zero_base: int) -> int:
    if part[:2] in ("0x", "0X"):
        return int(part[2:] or "0", 16)
    return int(part, zero_base if part[0] == "0" and len(part) > 1 else 10)
