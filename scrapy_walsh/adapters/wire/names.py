"""Resolves names, and chooses one address for the connection of a request (D38).

``Names`` resolves names for Scrapy's handler on Twisted: IPv4 and IPv6, within DNS_TIMEOUT, with a
cache of DNSCACHE_SIZE. Scrapy's default, ``CachingThreadedResolver``, finds only IPv4, and
``CachingHostnameResolver`` has no time limit. If the project sets a DNS_RESOLVER, we use that. The
other handler uses aiohttp, which resolves names itself, within DNS_TIMEOUT as well.

``Connecting`` works after both handlers and their caches. It belongs to one request, and returns
one address when the request connects. So a later look-up cannot replace the judged address, and
two connections never race (R4).
"""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Final

from scrapy.utils.datatypes import LocalCache

from scrapy_walsh.adapters import compat
from scrapy_walsh.adapters.events import logger
from scrapy_walsh.exceptions import OwnFault
from scrapy_walsh.policy import chain

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from scrapy.settings import BaseSettings

    from scrapy_walsh.adapters.context import Context
    from scrapy_walsh.adapters.ticket import Ticket
    from scrapy_walsh.policy.verdict import Verdict


class Names:
    """The resolver of a crawl. It is not used without a reactor."""

    def __init__(self, settings: BaseSettings) -> None:
        #: Seconds for a look-up; 0: no limit.
        self.timeout = settings.getfloat("DNS_TIMEOUT")
        #: Whether the project has set its own resolver.
        self._uses_reactor = compat.sets_resolver(settings)
        self._has_warned = False
        size = settings.getint("DNSCACHE_SIZE") if settings.getbool("DNSCACHE_ENABLED") else 0
        self._cache: LocalCache[str, list[str]] = LocalCache(size)
        self._has_cache = size > 0
        #: The connection of the request that is being sent.
        self.connecting: Connecting | None = None

    def current(self) -> Connecting:
        """Return the connection of the request that is being sent."""
        if self.connecting is None:
            raise OwnFault(
                "a connection was opened while no request was being sent: please report it"
            )
        return self.connecting

    def look_up(self, name: str, tell: Callable[[list[str]], object]) -> None:
        """Call *tell* with the addresses of *name*; the list is empty if there are none."""
        if name in self._cache:
            tell(self._cache[name])
            return

        def keep(ips: list[str]) -> None:
            if ips and self._has_cache:
                self._cache[name] = ips
            if not ips and self._uses_reactor and not self._has_warned:
                self._has_warned = True
                logger.warning(
                    "%s has no address in the resolver of TWISTED_DNS_RESOLVER (DNS_RESOLVER): "
                    "CachingThreadedResolver knows IPv4 only; without the setting both families "
                    "are looked up",
                    name,
                )
            tell(ips)

        if self._uses_reactor:
            compat.resolve_by_reactor(name, keep)
        else:
            nothing: list[str] = []
            compat.in_thread(lambda: _addresses_of(name), self.timeout, keep, nothing)


def _addresses_of(name: str) -> list[str]:
    """Return the addresses of *name* in the system's order; an empty list if there are none."""
    # First, skip a family if this machine has no address of it. Some names, for example ``::1``,
    # resolve only without that condition.
    for flags in (socket.AI_ADDRCONFIG, 0):
        try:
            rows = socket.getaddrinfo(name, 0, type=socket.SOCK_STREAM, flags=flags)
        except (OSError, UnicodeError):
            continue
        ips = [str(row[4][0]) for row in rows if row[0] in _FAMILIES]
        if ips:
            return list(dict.fromkeys(ips))
    return []


_FAMILIES: Final = (socket.AF_INET, socket.AF_INET6)


class Connecting:
    """The connection of the request that belongs to *ticket*.

    *configured*: the URL or host from the operator's settings, if the request goes to the blocklist
    or through a proxy. ``refused``: the verdict on the first address, if all addresses are refused.
    ``address``: the chosen address; empty before that. *reached*: called with it, unless there is a
    proxy (``Pacing.reached``). ``wait``: the seconds that it has returned: if there are any, no
    connection is made. ``transport``: of the connection; None until it is made.
    """

    def __init__(
        self,
        context: Context,
        names: Names,
        ticket: Ticket,
        configured: str | None,
        reached: Callable[[str], float] | None = None,
    ) -> None:
        self._context = context
        self._names = names
        self._ticket = ticket
        self._configured = configured
        self._reached = reached
        self.refused: Verdict | None = None
        self.address = ""
        self.wait = 0.0
        self.transport: object = None

    @property
    def is_stopped(self) -> bool:
        """Whether no connection is made."""
        return self.refused is not None or self.wait > 0

    def resolve(self, name: str, tell: Callable[[str | None], object]) -> None:
        """Call *tell* with the address to connect to; None if there is none."""
        self._names.look_up(name, lambda ips: tell(self.choose(ips)))

    def _judge(self, address: str) -> Verdict | None:
        """Return the verdict that refuses *address*, or None (D38)."""
        context = self._context
        ticket = self._ticket
        configured = self._configured
        if not configured:
            url = ticket.url
            return chain.judge_addresses(url, (address,), context.scope, context.gates, ticket.led)
        url = configured if "://" in configured else f"http://{configured}"
        return chain.judge_addresses(url, (address,), None, context.gates)

    def choose(self, ips: Sequence[str]) -> str | None:
        """Return the address of *ips* to connect to, IPv4 first; None if all are refused."""
        verdicts = [self._judge(ip) for ip in ips]
        allowed = [ip for ip, verdict in zip(ips, verdicts, strict=True) if verdict is None]
        if not allowed:
            self.refused = next(iter(verdicts), None)
        by_version_4 = [ip for ip in allowed if ":" not in ip]
        chosen = next(iter(by_version_4 or allowed), None)
        self.address = chosen or ""
        if chosen is not None and self._reached is not None:
            self.wait = self._reached(chosen)
        return None if self.wait > 0 else chosen
