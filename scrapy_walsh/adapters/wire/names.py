"""D38: the addresses of a name, and the one that the request which is connecting may use.

``Names`` looks names up for Scrapy's handler on Twisted: both families, within DNS_TIMEOUT, with a
cache as large as DNSCACHE_SIZE. Scrapy's own default, ``CachingThreadedResolver``, knows IPv4
alone; its other one, ``CachingHostnameResolver``, has no limit of time. A DNS_RESOLVER that the
project sets is used as it is. aiohttp, of the other handler, looks names up by itself.

``Connecting`` stands after both, and after their caches: it is of one request, is asked when that
connects, and gives one address. So no later look-up can change what was judged, and no two
connections race (R4).
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
    """Looks names up for one crawl. Without a reactor it is not used."""

    def __init__(self, settings: BaseSettings) -> None:
        self._timeout = settings.getfloat("DNS_TIMEOUT")
        #: Whether the project has set a resolver of its own, which is then used.
        self._by_reactor = compat.sets_resolver(settings)
        self._told = False
        size = settings.getint("DNSCACHE_SIZE") if settings.getbool("DNSCACHE_ENABLED") else 0
        self._cache: LocalCache[str, list[str]] = LocalCache(size)
        self._keeps = size > 0
        #: Of the request that is being sent.
        self.connecting: Connecting | None = None

    def current(self) -> Connecting:
        """What the request that is being sent may connect to."""
        if self.connecting is None:
            raise OwnFault("a connection begins, and no request is being sent: please report it")
        return self.connecting

    def look_up(self, name: str, tell: Callable[[list[str]], object]) -> None:
        """Call *tell* with the addresses of *name*; with none where it cannot be resolved."""
        if name in self._cache:
            tell(self._cache[name])
            return

        def keep(ips: list[str]) -> None:
            if ips and self._keeps:
                self._cache[name] = ips
            if not ips and self._by_reactor and not self._told:
                self._told = True
                logger.warning(
                    "%s has no address by the resolver that TWISTED_DNS_RESOLVER (DNS_RESOLVER) "
                    "sets: CachingThreadedResolver knows IPv4 alone; without the setting both "
                    "families are looked up",
                    name,
                )
            tell(ips)

        if self._by_reactor:
            compat.resolve_by_reactor(name, keep)
        else:
            nothing: list[str] = []
            compat.in_thread(lambda: _addresses_of(name), self._timeout, keep, nothing)


def _addresses_of(name: str) -> list[str]:
    """The addresses of *name*, in the system's order; none where there are none."""
    # The first time without families that this machine has no address of; some names, such as
    # ``::1``, are found only without that condition.
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
    """What the request of *ticket* may connect to.

    *named*: what the operator's settings name, if it is that: the blocklist, or a proxy.
    ``refused``: the verdict against the first address, if there is something against each of them.
    ``address``: the one that was chosen, else empty.
    """

    def __init__(self, context: Context, names: Names, ticket: Ticket, named: str | None) -> None:
        self._context = context
        self._names = names
        self._ticket = ticket
        self._named = named
        self.refused: Verdict | None = None
        self.address = ""

    def resolve(self, name: str, tell: Callable[[str | None], object]) -> None:
        """Call *tell* with the address of *name* to connect to; with None for none."""
        self._names.look_up(name, lambda ips: tell(self.choose(ips)))

    def _judge(self, address: str) -> Verdict | None:
        """D38: the verdict against connecting to *address*, or None."""
        context, ticket, named = self._context, self._ticket, self._named
        if not named:
            url = ticket.url
            return chain.judge_addresses(url, (address,), context.scope, context.gates, ticket.led)
        url = named if "://" in named else f"http://{named}"
        return chain.judge_addresses(url, (address,), None, context.gates)

    def choose(self, ips: Sequence[str]) -> str | None:
        """The address of *ips* to connect to: of IPv4, if there is one; None for none."""
        verdicts = [self._judge(ip) for ip in ips]
        allowed = [ip for ip, verdict in zip(ips, verdicts, strict=True) if verdict is None]
        if not allowed:
            self.refused = next(iter(verdicts), None)
        by_version_4 = [ip for ip in allowed if ":" not in ip]
        chosen = next(iter(by_version_4 or allowed), None)
        self.address = chosen or ""
        return chosen
