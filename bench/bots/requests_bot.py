"""A small bot on requests and urllib.robotparser, for ``bench/lab.py``.

Its shape is the usual one, gate by gate in a row: blocklist, robots.txt, throttle, back-off,
conditional GET; serial, and all in memory but for the validators.
"""

from __future__ import annotations

import json
import os
import random
import time
from email.utils import parsedate_to_datetime
from pathlib import Path
from urllib.parse import urlsplit
from urllib.robotparser import RobotFileParser

import requests

TOKEN = "Walsh-Research"  # noqa: S105
USER_AGENT = f"Mozilla/5.0 (compatible; {TOKEN}/1.2; +https://wal.sh/bot/)"
MIN_INTERVAL, MAX_RETRIES, CAP, TIMEOUT = 1.0, 5, 60.0, 10.0
VALIDATORS = Path(os.environ["WALSH_LAB_DIR"], "validators.json")


class Bot:
    """One crawl."""

    def __init__(self) -> None:
        self.session = requests.Session()
        self.session.headers["User-Agent"] = USER_AGENT
        self.robots: dict[str, RobotFileParser] = {}
        self.last: dict[str, float] = {}
        self.validators: dict[str, str] = {}
        if VALIDATORS.exists():
            self.validators = json.loads(VALIDATORS.read_text())
        listed = self.session.get(os.environ["WALSH_LAB_BLOCKLIST"], timeout=TIMEOUT).json()
        self.blocked = {entry["domain"] for entry in listed["blocked"]}

    def fetch(self, url: str) -> str:
        """What became of *url*."""
        host = urlsplit(url).hostname or ""
        if any(host == domain or host.endswith(f".{domain}") for domain in self.blocked):
            return "R3"
        rules = self.rules_of(url)
        if not rules.can_fetch(TOKEN, url):
            return "R2"
        self.wait(urlsplit(url).netloc, float(rules.crawl_delay(TOKEN) or 0))
        return str(self.with_backoff(url))

    def rules_of(self, url: str) -> RobotFileParser:
        """The rules of the host, asked once a run."""
        origin = "{0.scheme}://{0.netloc}".format(urlsplit(url))
        if origin not in self.robots:
            rules = self.robots[origin] = RobotFileParser()
            answer = self.get(f"{origin}/robots.txt")
            rules.parse(answer.text.splitlines() if answer is not None and answer.ok else [])
        return self.robots[origin]

    def get(self, url: str, **headers: str) -> requests.Response | None:
        """The answer, or None where none came."""
        try:
            return self.session.get(url, headers=headers, timeout=TIMEOUT)
        except requests.RequestException:
            return None

    def wait(self, host: str, crawl_delay: float) -> None:
        """Space the host; the first request to it does not wait."""
        if host in self.last:
            due = self.last[host] + max(MIN_INTERVAL, crawl_delay)
            time.sleep(max(0.0, due - time.monotonic()))
        self.last[host] = time.monotonic()

    def with_backoff(self, url: str) -> int:
        """The status of the last answer, 0 where none came."""
        headers = {"If-None-Match": self.validators[url]} if url in self.validators else {}
        for attempt in range(MAX_RETRIES + 1):
            answer = self.get(url, **headers)
            if answer is not None and answer.status_code not in (429, 503):
                break
            if attempt < MAX_RETRIES:
                told = None if answer is None else answer.headers.get("Retry-After")
                time.sleep(delay(told, attempt))
        if answer is None:
            return 0
        if answer.ok and "ETag" in answer.headers:
            self.validators[url] = answer.headers["ETag"]
        return answer.status_code


def delay(retry_after: str | None, attempt: int) -> float:
    """Retry-After where there is one, else full jitter."""
    if retry_after is None:
        return random.uniform(0, min(CAP, 2.0**attempt))
    if retry_after.isdigit():
        return float(retry_after)
    return max(0.0, parsedate_to_datetime(retry_after).timestamp() - time.time())


if __name__ == "__main__":
    bot = Bot()
    for target in os.environ["WALSH_LAB_URLS"].split():
        print(bot.fetch(target), target)
    VALIDATORS.write_text(json.dumps(bot.validators))
