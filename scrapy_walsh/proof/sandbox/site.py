"""Sites as data: the answer of a host at each path."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal, TypeAlias

from .log import LoggedRequest, host_key, without_port

if TYPE_CHECKING:
    from collections.abc import Iterable

Behaviour = Literal["answer", "close", "reset", "hang", "truncate", "endless", "drip", "headers"]
Headers: TypeAlias = Mapping[str, str] | Sequence[tuple[str, str]]


@dataclass(frozen=True)
class Request(LoggedRequest):
    """The argument of a callable route.

    ``query`` is raw; ``log`` has every request so far, including this request.
    """

    query: str = ""
    body: bytes = b""
    log: Sequence[LoggedRequest] = ()

    def header(self, name: str) -> str | None:
        """The values of that name joined by commas (RFC 9110, 5.3), or None."""
        values = self.values(name)
        if values:
            return ", ".join(values)
        return None


@dataclass(frozen=True)
class Route:
    """One answer.

    ``delay``: seconds before the first octet. ``etag`` (with its quotes) and ``last_modified`` (an
    HTTP-date) are sent, and a matching conditional request gets a 304. ``location`` is sent as it
    stands. ``sequence``: answers served in turn, the last one for ever. ``accept``: media type to
    the answer for a request with that type in its Accept.

    ``behaviour``: ``answer``; ``close`` and ``reset`` (TCP RST) end the connection before a
    single octet; ``hang`` never answers; ``truncate`` announces more than it sends; ``endless``
    sends blocks and ``drip`` single octets, ``pause`` seconds apart; ``headers`` sends 32 MiB of
    header lines, and no end of them. ``interim``: statuses of interim responses (1xx) before it.
    """

    status: int = 200
    body: bytes | str = b""
    content_type: str | None = "text/html; charset=utf-8"
    headers: Headers = ()
    delay: float = 0.0
    etag: str | None = None
    last_modified: str | None = None
    location: str | None = None
    sequence: Sequence[Route] = ()
    accept: Mapping[str, Route] = field(default_factory=dict)
    behaviour: Behaviour = "answer"
    pause: float = 0.01
    interim: Sequence[int] = ()

    @property
    def content(self) -> bytes:
        if isinstance(self.body, str):
            return self.body.encode()
        return self.body


Answerer: TypeAlias = Callable[[Request], Route]


@dataclass(frozen=True)
class Site:
    """A host and its routes.

    ``host`` is ``host[:port]``; with ``https://`` or ``http://`` in front it holds for that
    scheme only. A key of ``routes`` is a raw path, with its query or without, or ``*`` for all
    the rest; what no key covers is a 404. ``tls=False``: a CONNECT to the host fails with 502.
    """

    host: str
    routes: Mapping[str, Route | Answerer] = field(default_factory=dict)
    tls: bool = True


NOT_FOUND = Route(404, "Not Found\n", "text/plain; charset=utf-8")


class Sites:
    """The sites being served, and how often each route has answered."""

    def __init__(self, sites: Iterable[Site]) -> None:
        self._sites: dict[str, Site] = {}
        self._asked: Counter[tuple[str, str, str]] = Counter()
        for site in sites:
            self.put(site)

    def put(self, site: Site) -> None:
        """Serve this site from now on, in place of any other of the same name."""
        self._sites[_site_key(site.host)] = site
        self._asked = Counter({key: n for key, n in self._asked.items() if key[0] != site.host})

    def set_route(self, host: str, path: str, route: Route | Answerer) -> None:
        """Change one route of a site; the site is made when there is none."""
        site = self._sites.get(_site_key(host), Site(host))
        self.put(replace(site, routes={**site.routes, path: route}))

    def find(self, scheme: str, host: str) -> Site | None:
        """The site for *host* as a request names it: with its port, or for all ports."""
        key = host_key(scheme, host)
        names = (key, without_port(key))
        keys = (form for name in names for form in (f"{scheme}://{name}", name))
        return next((self._sites[key] for key in keys if key in self._sites), None)

    def resolve(self, request: Request) -> Route:
        """The answer to a request."""
        site = self.find(request.scheme, request.host)
        if site is None:
            return NOT_FOUND
        candidates = (f"{request.path}?{request.query}", request.path)
        key = next(
            (candidate for candidate in candidates if candidate in site.routes),
            "*",
        )
        entry = site.routes.get(key, NOT_FOUND)
        route = entry if isinstance(entry, Route) else entry(request)
        variant = self._variant(route, request, (site.host, request.key, key))
        if variant.status == 200 and _unchanged(variant, request):
            return replace(variant, status=304, body=b"", content_type=None)
        return variant

    def _variant(self, route: Route, request: Request, key: tuple[str, str, str]) -> Route:
        if route.sequence:
            turn = min(self._asked[key], len(route.sequence) - 1)
            self._asked[key] += 1
            route = route.sequence[turn]
        accepted = (request.header("Accept") or "").lower()
        return next(
            (r for media, r in route.accept.items() if media.lower() in accepted),
            route,
        )


def _site_key(host: str) -> str:
    scheme, separator, name = host.rpartition("://")
    return scheme.lower() + separator + host_key(scheme or "http", name)


def _unchanged(route: Route, request: Request) -> bool:
    """Whether a conditional request gets a 304: If-None-Match first (RFC 9110, 13.2.2)."""
    tags = request.header("If-None-Match")
    if tags is not None:
        etags = [tag.strip().removeprefix("W/") for tag in tags.split(",")]
        return route.etag is not None and (route.etag.removeprefix("W/") in etags or "*" in etags)
    since = request.header("If-Modified-Since")
    return since is not None and since == route.last_modified
