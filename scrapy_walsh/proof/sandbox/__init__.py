"""Many test sites on one loopback port: sites as data, and a log of every request as it arrived.

``with Sandbox() as box:`` starts it; ``http://any.test/`` is reached through ``box.proxy_url``.
"""

from __future__ import annotations

from .log import (
    LoggedRequest,
    exchanged,
    gaps,
    host_key,
    hosts,
    max_in_flight,
    paths,
    read_log,
    requests,
    user_agents,
)
from .routes import blocklist, page
from .scenario import default_sites, demo_sources
from .server import Sandbox
from .site import Request, Route, Site
from .sitefile import load_sites

__all__ = [
    "LoggedRequest",
    "Request",
    "Route",
    "Sandbox",
    "Site",
    "blocklist",
    "default_sites",
    "demo_sources",
    "exchanged",
    "gaps",
    "host_key",
    "hosts",
    "load_sites",
    "max_in_flight",
    "page",
    "paths",
    "read_log",
    "requests",
    "user_agents",
]
