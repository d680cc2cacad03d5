"""WALSH_SHARED_STATE: checked at the start, and never shown with its password."""

from __future__ import annotations

import importlib.util

import pytest

from scrapy_walsh.config import WalshConfig
from scrapy_walsh.exceptions import ConfigError
from tests.crawl.harness import OWN_IDENTITY


def read(value: object) -> str | None:
    settings = {"WALSH_IDENTITY": OWN_IDENTITY, "WALSH_SHARED_STATE": value}
    return WalshConfig.from_settings(settings, lambda: "default").shared_state


@pytest.mark.parametrize(
    "url", ["redis://h.test", "redis://h.test:6380/3", "rediss://user:word@h.test/0"]
)
def test_a_url_of_a_redis_is_accepted(url: str) -> None:
    assert read(url) == url


def test_nothing_is_shared_by_default() -> None:
    assert read(None) is None


@pytest.mark.parametrize(
    "value", ["", "h.test:6379", "http://h.test", "redis://", "redis://h.test:port", 6379, True]
)
def test_anything_else_is_refused_in_one_line(value: object) -> None:
    with pytest.raises(ConfigError, match=r"^WALSH_SHARED_STATE is .*; accepted: redis://.*$"):
        read(value)


def test_a_password_is_not_repeated() -> None:
    with pytest.raises(ConfigError) as caught:
        read("redis://user:word@h.test:port")
    assert "word" not in str(caught.value)


def test_the_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"pip install 'scrapy-walsh\[redis\]'"):
        read("redis://h.test")
