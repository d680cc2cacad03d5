"""Scrapy Cloud: the example project's egg under the platform's own job runner."""

from __future__ import annotations

import re
import shutil
from typing import TYPE_CHECKING, Any

import pytest

from scrapy_walsh.proof.sandbox import Route, Sandbox, Site, gaps, max_in_flight, user_agents
from tests.crawl.harness import OPEN, OPERATOR, kept
from tests.crawl.harness import site as make_site
from tests.deploy.cloud import DOTSCRAPY, Container, Storage
from tests.deploy.conftest import DOCS, EXAMPLE_AGENT, build_egg, copy_project, snippet

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytest.importorskip("sh_scrapy", reason="in a clone: pip install -e '.[deploy-test]'")

pytestmark = pytest.mark.crawl

FEED = "http://rss.test/feed.xml"
DENIED = "http://path.test/private/x"
MIRROR = {
    "WALSH_BLOCKLIST_URL": f"{OPERATOR}/blocklist.json",
    "WALSH_BLOCKLIST_SCHEMA_URL": f"{OPERATOR}/blocklist.schema.json",
}
#: What a hasty job asks for; each is a MUST that it would break.
LOOSE: dict[str, Any] = {
    "CONCURRENT_REQUESTS": 16,
    "CONCURRENT_REQUESTS_PER_DOMAIN": 16,
    "DOWNLOAD_DELAY": 0,
    "USER_AGENT": "Mozilla/5.0 (Windows NT 10.0)",
    "ROBOTSTXT_OBEY": False,
    "RETRY_ENABLED": True,
    "COOKIES_ENABLED": "True",
    "DOWNLOADER_MIDDLEWARES": {"scrapy_walsh.adapters.downloadermiddlewares.GateMiddleware": None},
    "DOWNLOAD_HANDLERS": {"http": "scrapy.core.downloader.handlers.http11.HTTP11DownloadHandler"},
    "SCHEDULER_PRIORITY_QUEUE": "scrapy.pqueues.ScrapyPriorityQueue",
}


@pytest.fixture
def box() -> Iterator[Sandbox]:
    with Sandbox() as running:
        yield running


@pytest.fixture
def storage() -> Iterator[Storage]:
    with Storage() as running:
        yield running


@pytest.fixture
def cloud(tmp_path: Path, egg: Path, box: Sandbox, storage: Storage) -> Cloud:
    return Cloud(tmp_path, egg, box, storage)


class Cloud:
    """Containers that are new for each job, with one S3 and one storage."""

    def __init__(self, folder: Path, egg: Path, box: Sandbox, storage: Storage) -> None:
        self.folder, self.egg, self.box, self.storage = folder, egg, box, storage

    def container(self, name: str | int) -> Container:
        home, place = self.folder / "home", self.folder / f"container-{name}"
        return Container(place, self.egg, self.box, home, self.storage)


def urls(*found: str) -> dict[str, str]:
    return {"urls": " ".join(found)}


def test_a_job_hands_over_items_log_stats_and_outcome(cloud: Cloud) -> None:
    job = cloud.container(1).run(1, arguments=urls(FEED, DENIED), project_settings=MIRROR)
    assert (job.returncode, job.outcome) == (0, "finished"), job.log
    assert len(job.items) == job.stats["item_scraped_count"] > 0
    assert {item["source"] for item in job.items} == {"rss.test"}
    assert job.stats["walsh/refused/R2"] == 1
    assert f"refused {DENIED} (R2 disallowed_explicit)" in job.log
    assert re.search(r"rss\.test +read: feed ", job.log)
    assert {entry["url"] for entry in job.of("REQ")} == {
        f"http://{request.host}{request.path}" for request in cloud.box.log
    }
    assert user_agents(cloud.box.log) == {EXAMPLE_AGENT}


@pytest.mark.parametrize(
    ("order", "settings"), [(0, {}), (100, {"AUTOTHROTTLE_ENABLED": True})], ids=["0", "late"]
)
def test_state_comes_and_goes_with_dotscrapy(
    cloud: Cloud, order: int, settings: dict[str, Any]
) -> None:
    """Each job has a new disk: what it remembers is what DotScrapy brought."""
    pytest.importorskip(
        "scrapy_dotpersistence", reason="in a clone: pip install -e '.[deploy-test]'"
    )
    job = {
        "arguments": urls(FEED),
        "project_settings": {**MIRROR, **settings},
        "addons": ({**DOTSCRAPY, "order": order},),
    }
    first = cloud.container(1).run(1, **job)
    assert len(first.items) > 0
    assert "Traceback" not in first.log
    assert cloud.box.log
    cloud.box.clear()
    second = cloud.container(2).run(2, **job)
    assert (second.returncode, second.outcome, second.items) == (0, "finished", [])
    assert second.stats["walsh/refused/R8"] == 1
    assert cloud.box.log == []


@pytest.mark.parametrize("layer", ["project_settings", "spider_settings", "job_settings"])
def test_settings_of_a_job_cannot_loosen_a_must(cloud: Cloud, layer: str) -> None:
    cloud.box.put(make_site("paced.test"))
    layers = {"project_settings": MIRROR}
    layers[layer] = {**layers.get(layer, {}), **LOOSE}
    job = cloud.container(1).run(1, arguments=urls("http://paced.test/page", DENIED), **layers)
    assert (job.returncode, job.outcome) == (0, "finished"), job.log
    log = cloud.box.log
    assert user_agents(log) == {EXAMPLE_AGENT}
    assert max_in_flight(log) == 1
    assert not any(request.path == "/private/x" for request in log)
    assert kept(gaps(log, "paced.test")[1:], 1.0)
    for name in ("CONCURRENT_REQUESTS", "USER_AGENT", "COOKIES_ENABLED"):
        assert f"{name} is " in job.log
        assert "scrapy_walsh overrides it" in job.log


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("WALSH_MIN_INTERVAL", 0.1),
        ("WALSH_MAX_RETRIES", "50"),
        ("ADDONS", {}),
    ],
)
def test_a_job_out_of_bounds_asks_nothing(cloud: Cloud, setting: str, value: Any) -> None:
    project = {**MIRROR, "WALSH_IDENTITY": "walsh-research"}
    job = cloud.container(1).run(
        1, arguments=urls(FEED), project_settings=project, job_settings={setting: value}
    )
    assert job.returncode == 1
    assert setting in job.log
    assert cloud.box.log == []


def slow_feed() -> Site:
    """A host whose page takes longer than a job that asks for it needs to be held up."""
    return make_site("slow.test", {"/feed.xml": Route(body="<rss/>", delay=5)}, robots=OPEN)


def test_a_job_that_overlaps_another_is_refused(cloud: Cloud) -> None:
    """On two machines: only the platform's storage can tell."""
    cloud.box.put(slow_feed())
    running = cloud.container(1).start(
        1, arguments=urls("http://slow.test/feed.xml"), project_settings=MIRROR
    )
    running.until("adopted http://slow.test/robots.txt")
    with running.held_up():
        late = cloud.container(2).run(2, arguments=urls(FEED), project_settings=MIRROR)
    assert (late.returncode, late.outcome) == (1, "walsh_refused"), late.log
    assert "job 12345/1/1 of this project was active" in late.log
    done = running.wait()
    assert (done.returncode, done.outcome) == (0, "finished")
    assert not any(request.host == "rss.test" for request in cloud.box.log)
    assert cloud.storage.leases == {}
    after = cloud.container(3).run(3, arguments=urls(FEED), project_settings=MIRROR)
    assert (after.returncode, after.outcome) == (0, "finished"), after.log


def test_a_job_goes_on_where_the_storage_refuses(cloud: Cloud) -> None:
    cloud.storage.status = 403
    job = cloud.container(1).run(1, arguments=urls(FEED), project_settings=MIRROR)
    assert (job.returncode, job.outcome) == (0, "finished"), job.log
    assert "the lease of this job cannot be kept in the project's collection" in job.log


def test_the_spider_of_the_docs_reads_sources_from_an_egg(cloud: Cloud) -> None:
    project = copy_project(cloud.folder / "project")
    package = project / "example_project"
    shutil.move(project / "sources.toml", package / "sources.toml")
    (package / "sources.toml").write_text(
        f'[[source]]\nname = "feed"\nurl = "http://rss.test/"\nfeed = "{FEED}"\n'
    )
    (package / "spiders.py").write_text(snippet(DOCS, "spider"))
    settings = package / "settings.py"
    settings.write_text(f'{settings.read_text()}SPIDER_MODULES += ["example_project.spiders"]\n')
    cloud.egg = build_egg(project, cloud.folder / "daily.egg")
    job = cloud.container(1).run(1, spider="daily", project_settings=MIRROR)
    assert (job.returncode, job.outcome) == (0, "finished"), job.log
    assert {item["source"] for item in job.items} == {"feed"}
