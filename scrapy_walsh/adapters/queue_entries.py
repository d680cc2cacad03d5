"""The entries of a fleet's queue: requests as octets in Redis, and what cannot be used of them.

An entry is data, whoever wrote it. Only its members in ``_TAKEN`` are read, the result is a plain
``scrapy.Request``, and its callbacks are methods of the spider.
"""

from __future__ import annotations

import base64
import inspect
import json
import re
from typing import TYPE_CHECKING, Any, Final

import redis
from scrapy import Request

from scrapy_walsh.adapters.asked import form_of
from scrapy_walsh.adapters.events import logger
from scrapy_walsh.policy import hosts, recrawl

if TYPE_CHECKING:
    from scrapy import Spider

    from scrapy_walsh.adapters.crawl import Crawl

#: The members of an entry that a request is made of.
_TAKEN: Final = frozenset({
    "url", "callback", "method", "headers", "body", "cookies", "meta", "encoding", "priority",
    "dont_filter", "errback", "flags", "cb_kwargs",
})  # fmt: skip
#: Members that other versions write and that are not read: which class of Scrapy's it was.
_UNREAD: Final = frozenset({"_class", "dumps_kwargs"})
_CLASSES: Final = frozenset({
    None, "scrapy.http.request.Request", "scrapy.http.request.form.FormRequest",
    "scrapy.http.request.json_request.JsonRequest", "scrapy.http.request.rpc.XmlRpcRequest",
})  # fmt: skip
#: Entries that are kept for a person, and the octets of each.
_ASIDE, _ASIDE_OCTETS = 1000, 64 * 1024


class Entries:
    """Writes requests as entries, and reads them. *serializer*: SCHEDULER_SERIALIZER, or None."""

    def __init__(self, crawl: Crawl, spider: Spider, serializer: Any = None) -> None:
        self._crawl, self._spider = crawl, spider
        self._serializer = serializer or _Json

    def encode(self, request: Request) -> bytes:
        """An entry: a line with the URL and the declared target that it belongs to (R6), then
        the request. ValueError where it cannot be serialised.
        """
        url, key = request.url, recrawl.key_of(request.url, form_of(request))
        # ``key`` and ``origin`` name the records that its worker will read (``scripts.POP``).
        names = {"source": self._crawl.scope.source_of(url), "key": key, "origin": _origin(url)}
        head = json.dumps({"url": url, **names}).encode()
        try:
            kept = self._crawl.intake.kept(request)
            fields = {name: value for name, value in kept.items() if name in _TAKEN}
            data = self._serializer.dumps(fields)
        except TypeError as error:
            raise ValueError(
                f"{request.url} cannot be queued as JSON: {error}; see SCHEDULER_SERIALIZER"
            ) from error
        return head + b"\n" + (data.encode() if isinstance(data, str) else bytes(data))

    def decode(self, data: bytes) -> Request:
        """The request in the entry *data*. Raises any Exception where there is none in it."""
        head, _, body = data.partition(b"\n")
        source = json.loads(head)["source"]
        if source is not None and not isinstance(source, str):
            raise ValueError("its source is not text")
        request = self._crawl.intake.request(self._request(self._serializer.loads(body)))
        if source is not None:
            self._crawl.scope.declare(source)
            self._crawl.scope.declare_hop(request.url, source)
        if self._crawl.scope.is_source(request.url):
            self._crawl.intake.declare(request)  # with what it named when it was declared
        return request

    def _request(self, fields: Any) -> Request:
        if not isinstance(fields, dict):
            raise ValueError("it is not a JSON object")
        unknown = fields.keys() - _TAKEN - _UNREAD
        if unknown:
            raise ValueError(f"it has members that no request has: {sorted(map(str, unknown))}")
        if fields.get("_class") not in _CLASSES:
            raise ValueError("its _class is not one of Scrapy's request classes")
        given = {name: value for name, value in fields.items() if name in _TAKEN}
        for name in ("callback", "errback"):
            if given.get(name) is not None:
                given[name] = self._method(given[name])
        return Request(**given)

    def _method(self, name: object) -> Any:
        """The method *name* of the spider; ValueError where *name* is anything else."""
        named = isinstance(name, str) and not name.startswith("__")
        found = getattr(self._spider, str(name), None) if named else None
        if not inspect.ismethod(found) or found.__self__ is not self._spider:
            raise ValueError(f"{name!r} is not a method of the spider")
        return found


class Aside:
    """Keeps entries that cannot be used in a Redis list, latest first, for a person to look at."""

    def __init__(self, crawl: Crawl, client: Any, key: str) -> None:
        self._crawl, self._client, self._key = crawl, client, key

    def put(self, data: bytes, error: object) -> None:
        """Keep *data*, count it, and log why. The queue goes on without this entry."""
        try:
            with self._client.pipeline() as pipe:
                pipe.lpush(self._key, data[:_ASIDE_OCTETS])
                pipe.ltrim(self._key, 0, _ASIDE - 1)
                pipe.execute()
        except redis.RedisError as away:
            logger.error("an entry could not be kept in %s: %s", self._key, away)
        start = re.sub(r"//[^/\s]*@", "//", data[:200].decode("utf-8", "backslashreplace"))
        why = f"{type(error).__name__}: {error}" if isinstance(error, Exception) else error
        self._crawl.recorder.set_aside(
            "fleet/set_aside",
            f"an entry of the queue cannot be used and is set aside in {self._key}: {why}: {start}",
        )


def _origin(url: str) -> str | None:
    try:
        return hosts.origin(url)
    except ValueError:
        return None


class _Json:
    """Requests as JSON: headers as Latin-1 text, bodies as base64."""

    @staticmethod
    def dumps(fields: dict[str, Any]) -> bytes:
        """Raises TypeError for values that JSON does not have."""
        headers = {
            name.decode("latin-1"): [value.decode("latin-1") for value in values]
            for name, values in fields["headers"].items()
        }
        body = base64.b64encode(fields["body"]).decode()
        return json.dumps({**fields, "headers": headers, "body": body}).encode()

    @staticmethod
    def loads(data: bytes) -> dict[str, Any]:
        """What ``dumps`` was given."""
        fields: dict[str, Any] = json.loads(data)
        headers = {
            name.encode("latin-1"): [value.encode("latin-1") for value in values]
            for name, values in fields["headers"].items()
        }
        return {**fields, "headers": headers, "body": base64.b64decode(fields["body"])}
