"""R13: tags on the operator's own URLs, in conformance runs only; judged at the server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

import pytest

from scrapy_walsh.adapters.wire.tags import implementation
from scrapy_walsh.proof.sandbox import Route, Sandbox
from tests.crawl.harness import Crawl, make_project, run_scrapy, site, solo

if TYPE_CHECKING:
    from pathlib import Path

SPEC = "walsh-research-compliance/v1.3"
TAGGED: dict[str, Any] = {"WALSH_TAG_REQUESTS": True, "WALSH_IMPL": "org/repo@afd2c01"}
CANARY = "http://operator.test/research/bots/dogfood-allow"


def tags(run: Crawl, host: str) -> list[dict[str, list[str]]]:
    return [parse_qs(urlsplit(each.target).query) for each in run.requests(host)]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Crawl:
    page = {"/page": Route(body="page", etag='"1"')}
    return solo(
        tmp_path_factory.mktemp("tags"),
        CANARY,
        "http://other.test/page",
        "http://operator.test/research/bots/dogfood-disallow",
        sites=(site("other.test", page),),
        settings=TAGGED,
    )


def test_r13_2_the_spider_sees_the_url_that_it_asked_for(run: Crawl) -> None:
    assert run.fetched(CANARY)
    assert not any("impl=" in item["url"] for item in run.items)


def test_r13_2_the_gates_see_the_url_without_tags(run: Crawl) -> None:
    assert "R2 disallowed_explicit" in run.why(
        "http://operator.test/research/bots/dogfood-disallow"
    )


def test_r13_4_an_ordinary_crawl_is_not_tagged(tmp_path: Path) -> None:
    found = solo(tmp_path / "plain", CANARY, settings={"WALSH_IMPL": "org/repo"})
    assert tags(found, "operator.test") == [{}, {}, {}]


def test_r0_4_a_shell_tags_with_dev(tmp_path: Path) -> None:
    with Sandbox() as box:
        project = make_project(tmp_path / "shell", settings={"WALSH_IMPL": "org/repo@afd2c01"})
        run_scrapy(project, box, "shell", CANARY, "-c", "response.status")
        found = parse_qs(urlsplit(box.log[-1].target).query)
    assert found == {"impl": ["org/repo"], "sha": ["dev"], "spec": [SPEC]}


@pytest.mark.parametrize(
    ("setting", "environment", "expected"),
    [
        ("org/repo", {"GITHUB_REPOSITORY": "a/b"}, ("org/repo", None)),
        ("org/repo@abc", {}, ("org/repo", "abc")),
        (None, {"GITHUB_REPOSITORY": "a/b", "GITHUB_SHA": "0123456789abc"}, ("a/b", "0123456")),
        (None, {"GITHUB_REPOSITORY": "a/b"}, ("a/b", None)),
        (None, {}, (None, None)),
    ],
)
def test_r13_3_who_is_named(
    setting: str | None, environment: dict[str, str], expected: tuple[str | None, str | None]
) -> None:
    assert implementation(setting, environment) == expected
