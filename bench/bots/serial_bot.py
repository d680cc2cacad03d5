"""A polite serial crawler as a person writes it by hand, for ``bench/makespan.py``.

It reads the URLs as JSON from standard input. One request at a time: robots.txt, then the targets
of each host with its Crawl-delay or a second between them. Of the hosts that are due it takes one
that has begun, and of those the one with most work left. 429 and 5xx wait for Retry-After, or for a
random part of a time that doubles. A robots.txt that answers 5xx has one retry, and so has a host
that gives no answer, last of all. It keeps nothing on disk, and judges nothing else.
"""

from __future__ import annotations

import json
import os
import random
import re
import sys
import time
from collections import deque
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException
from urllib.parse import urljoin, urlsplit
from urllib.robotparser import RobotFileParser

TIMEOUT, RETRIES = float(os.environ.get("SERIAL_TIMEOUT", "30")), 5
#: Without a proxy, each host is connected to.
PROXY = urlsplit(os.environ.get("http_proxy", "")).netloc


@dataclass
class Host:
    name: str
    urls: deque[str] = field(default_factory=deque)
    rules: RobotFileParser | None = None
    tries: int = 0
    interval: float = 1.0
    due: float = 0.0
    silent: bool = False

    def rank(self) -> tuple[bool, bool, float]:
        return not self.silent, self.rules is not None, len(self.urls) * self.interval


def get(url: str) -> tuple[int, dict[str, str], str]:
    """The answer; OSError or HTTPException where there is none."""
    connection = HTTPConnection(PROXY or urlsplit(url).netloc, timeout=TIMEOUT)
    try:
        connection.request("GET", url, headers={"User-Agent": "serial", "Connection": "close"})
        response = connection.getresponse()
        body = response.read().decode("utf-8", "replace")
        return response.status, {k.lower(): v for k, v in response.getheaders()}, body
    finally:
        connection.close()


def back_off(host: Host, status: int, fields: dict[str, str]) -> bool:
    """Whether the request is to be sent again, after a wait."""
    if status < 500 and status != 429:
        return False
    said = fields.get("retry-after", "")
    wait = float(said) if said.isdigit() else random.uniform(0, min(60, 2**host.tries))
    host.due = max(host.due, time.monotonic() + wait)
    host.tries += 1
    return host.tries <= (RETRIES if host.rules else 1)


def read_rules(host: Host) -> None:
    status, fields, body = get(f"http://{host.name}/robots.txt")
    host.due = time.monotonic() + host.interval
    if back_off(host, status, fields):
        return
    host.rules, host.tries = RobotFileParser(), 0
    host.rules.parse(body.splitlines() if status == 200 else [])
    delay = re.search(r"(?im)^crawl-delay:\s*([0-9.]+)", body)
    host.interval = max(1.0, float(delay[1]) if delay else 1.0)
    if status < 500:
        host.due = time.monotonic()


def visit(host: Host) -> None:
    if host.rules is None:
        read_rules(host)
        return
    url = host.urls.popleft()
    if not host.rules.can_fetch("serial", url):
        return
    status, fields, _ = get(url)
    host.due = time.monotonic() + host.interval
    if back_off(host, status, fields):
        host.urls.appendleft(url)
        return
    host.tries = 0
    if status in {301, 302, 303, 307, 308}:
        host.urls.appendleft(urljoin(url, fields["location"]))


def crawl(urls: list[str]) -> None:
    hosts: dict[str, Host] = {}
    for url in urls:
        name = urlsplit(url).netloc
        hosts.setdefault(name, Host(name)).urls.append(url)
    while hosts:
        now = time.monotonic()
        due = [host for host in hosts.values() if host.due <= now]
        if not due:
            time.sleep(min(host.due for host in hosts.values()) - now)
            continue
        host = max(due, key=Host.rank)
        try:
            visit(host)
        except (OSError, HTTPException):
            if host.silent:
                host.urls.clear()
            host.silent, host.due = True, time.monotonic() + host.interval
        if not host.urls:
            del hosts[host.name]


if __name__ == "__main__":
    crawl(json.load(sys.stdin))
