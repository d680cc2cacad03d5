"""D3: what the environment can do to the child process, and what each document is read as then.

Each row is a fault. Where the child survives it, a document of each of its two tasks is read. Where
none can be had, those are read for which none is needed, and the others *could not be loaded
(our side)*: never taken for invalid, and never for a list that was not held.
"""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
import pytest_twisted

from scrapy_walsh.adapters.documents import apart, validate
from scrapy_walsh.commands.common import read_blocklist
from scrapy_walsh.exceptions import DocumentInvalid, DocumentTooCostly, OwnFault
from scrapy_walsh.policy.formats import representation as formats
from scrapy_walsh.proof.sandbox import Route, Sandbox, blocklist
from tests.crawl.harness import (
    LIST_SPIDER,
    crawl,
    listing,
    make_project,
    operator,
    run_scrapy,
    site,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

URL = "http://site.test/feed"
WILD: dict[str, Any] = {"properties": {"operator": {"pattern": "^(a+)+$"}}}

# -- the documents ------------------------------------------------------------------------


def text_of(*domains: str, **changes: Any) -> bytes:
    return json.dumps({**blocklist("http://operator.test", *domains), **changes}).encode()


async def read(body: bytes) -> int:
    return len(read_blocklist(body, None, URL))


async def small_list() -> int:
    return await read(text_of("a.test"))


async def long_list() -> int:
    return await read(text_of(*(f"h{number}.test" for number in range(2000))))


async def wild_schema() -> int:
    return await read(text_of("a.test", schema=WILD, operator="aaa"))


async def feed() -> int:
    items = "".join(f"<item><link>http://a.test/{n}</link></item>" for n in range(500))
    body = f"<rss version='2.0'><channel>{items}</channel></rss>".encode()
    return len((await apart.links_of(formats.FEED, body, None, URL)).entries)


async def packed_sitemap() -> int:
    urls = "<url><loc>http://site.test/a</loc></url>"
    body = f"<urlset xmlns='http://www.sitemaps.org/schemas/sitemap/0.9'>{urls}</urlset>".encode()
    return len((await apart.links_of(formats.GZIP, gzip.compress(body), None, URL)).entries)


#: What reads a document for which no child is needed, or one; and how many entries it has.
BY_US = {small_list: 1, long_list: 2000}
BY_THE_CHILD = {wild_schema: 1, feed: 500, packed_sitemap: 1}

# -- the faults ---------------------------------------------------------------------------


class Place:
    """The environment of this process, which a fault changes."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, directory: Path) -> None:
        self.patch = monkeypatch
        self.directory = directory

    def modules(self, **texts: str) -> None:
        """Python files on this process's path, behind and before all else, and in PYTHONPATH."""
        for name, text in texts.items():
            (self.directory / f"{name}.py").write_text(text)
        self.patch.setattr(sys, "path", [*sys.path, str(self.directory)])
        self.patch.setenv("PYTHONPATH", str(self.directory))

    def variables(self, **values: str) -> None:
        for name, value in values.items():
            self.patch.setenv(name, value)

    def first(self, **texts: str) -> None:
        self.modules(**texts)
        self.patch.setattr(sys, "path", [str(self.directory), *sys.path])

    def executable(self, text: str) -> None:
        path = self.directory / "python"
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)
        self.patch.setattr(sys, "executable", str(path))


def refused(*_: object, **__: object) -> Any:
    raise BlockingIOError(11, "Resource temporarily unavailable")


#: PyPI has packages of these names, for versions of Python that nobody uses any more.
SHIM = "raise ImportError('a file of PyPI, for Python 2')\n"
SHIMS = ("typing", "enum", "dataclasses", "json", "contextlib")

SURVIVED: dict[str, Callable[[Place], None]] = {
    "files of PyPI behind": lambda at: at.modules(**dict.fromkeys(SHIMS, SHIM)),
    "files of PyPI before": lambda at: at.first(**dict.fromkeys(SHIMS, SHIM)),
    "variables of Python's": lambda at: at.variables(
        PYTHONHOME="/nowhere",
        PYTHONINSPECT="1",
        PYTHONSTARTUP="/nowhere.py",
        PYTHONWARNINGS="error",
    ),
    "a sitecustomize that prints, and fails": lambda at: at.modules(
        sitecustomize=f"print('hello')\n{SHIM}"
    ),
    "a library that prints": lambda at: at.first(
        markdown_it=f"print('hello')\n{real('markdown_it')}", attr=f"print('hi')\n{real('attr')}"
    ),
}
NO_CHILD: dict[str, tuple[Callable[[Place], None], str]] = {
    "sys.executable is empty": (lambda at: at.patch.setattr(sys, "executable", ""), "''"),
    "sys.executable is None": (lambda at: at.patch.setattr(sys, "executable", None), "None"),
    "sys.executable is gone": (
        lambda at: at.patch.setattr(sys, "executable", "/nowhere/python"),
        "No such file",
    ),
    "sys.executable is another program": (
        lambda at: at.patch.setattr(sys, "executable", "/bin/echo"),
        "code 0 and no answer",
    ),
    "a fork is refused": (
        lambda at: at.patch.setattr(subprocess, "Popen", refused),
        "temporarily unavailable",
    ),
    "it fails, and says why": (
        lambda at: at.executable("echo one >&2; echo 'No module named x' >&2; exit 1"),
        "code 1 and no answer: No module named x",
    ),
    "it dies before it answers": (lambda at: at.executable("kill -9 $$"), "code -9"),
    "it dies within its answer": (
        lambda at: at.executable("""cat >/dev/null; echo '{"ok": true}'; exit 3"""),
        "code 3",
    ),
    "a library is missing": (
        lambda at: at.first(jsonschema=SHIM),
        "code 1 and no answer: ImportError: a file of PyPI",
    ),
}


def real(name: str) -> str:
    """Python text that becomes the module *name* as it is installed."""
    return (
        "import sys, importlib\n"
        "here, sys.path = sys.path, [p for p in sys.path if p != __file__.rpartition('/')[0]]\n"
        f"del sys.modules[__name__]; sys.modules[__name__] = importlib.import_module({name!r})\n"
        "sys.path = here\n"
    )


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Place]:
    validate.test_child.cache_clear()
    yield Place(monkeypatch, tmp_path)
    validate.test_child.cache_clear()


@pytest.mark.parametrize("fault", SURVIVED)
@pytest_twisted.ensureDeferred
async def test_what_the_child_survives(place: Place, fault: str) -> None:
    SURVIVED[fault](place)
    for document in (wild_schema, feed):  # the child's two tasks
        assert await document() == BY_THE_CHILD[document]


@pytest_twisted.ensureDeferred
async def test_what_the_child_reads() -> None:
    for document, count in BY_THE_CHILD.items():
        assert await document() == count


@pytest.mark.parametrize("fault", NO_CHILD)
@pytest_twisted.ensureDeferred
async def test_where_no_child_can_be_had(place: Place, fault: str) -> None:
    make, said = NO_CHILD[fault]
    make(place)
    for document, count in BY_US.items():
        assert await document() == count
    for document in BY_THE_CHILD:
        with pytest.raises(OwnFault) as found:
            await document()
        assert said in str(found.value)
        assert "sys.executable" in str(found.value)
        assert "\n" not in str(found.value)


# -- limits -------------------------------------------------------------------------------


def test_each_limit_is_set_by_itself(tmp_path: Path) -> None:
    """As on macOS, which refuses RLIMIT_AS."""
    code = """
import resource
from scrapy_walsh.adapters.documents import validate
whole = resource.setrlimit
def refuses(which, limits):
    if which == resource.RLIMIT_AS:
        raise ValueError("current limit exceeds maximum limit")
    whole(which, limits)
resource.setrlimit = refuses
validate.limit("RLIMIT_AS", 2**31)
validate.limit("RLIMIT_CPU", 300)
validate.limit("RLIMIT_NOT_HERE", 1)
print(resource.getrlimit(resource.RLIMIT_CPU)[0])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True)
    assert done.stdout == "300\n"


HOSTILE = text_of("a.test", schema=WILD, operator="a" * 60 + "!")


def test_d3_a_child_over_its_time_is_our_fault(place: Place) -> None:
    with pytest.raises(OwnFault, match=r"no answer in (1 s of processor time|10 s)"):
        validate.validate(json.loads(HOSTILE), HOSTILE, None, 1)


def test_d3_a_child_over_its_memory_is_our_fault(place: Place) -> None:
    task = {"fallback_schema": {"allOf": [{}]}}
    body = text_of("a.test").replace(b"{", b'{"extra": [' + b"[], " * 8_000_000 + b"[]], ", 1)
    with pytest.raises(OwnFault, match="more than 256 MiB of memory"):
        validate.ask_child(task, body, 60, 256 * 2**20)


def test_d3_a_child_that_is_killed_is_our_fault(place: Place) -> None:
    """By the system that has no memory left, for instance."""
    validate.test_child()
    place.executable("kill -9 $$")
    with pytest.raises(validate.AtLimit, match="code -9"):
        read_blocklist(text_of("a.test", schema=WILD, operator="a"), None, URL)


@pytest_twisted.ensureDeferred
async def test_a_source_that_kills_the_child_is_costly_and_no_fault_of_ours(
    place: Place,
) -> None:
    """No site can make a run end with exit 1: a child could be had, and this document ended it."""
    validate.test_child()
    place.executable("kill -9 $$")
    with pytest.raises(DocumentTooCostly, match="cannot be read within"):
        await feed()


def test_d3_a_no_is_a_no(place: Place) -> None:
    with pytest.raises(DocumentInvalid, match="fails its schema at /operator"):
        read_blocklist(text_of("a.test", schema=WILD, operator="b"), None, URL)


# -- in a crawl, and in the commands ------------------------------------------------------

NO_EXECUTABLE = "import sys\nsys.executable = ''\n"


def test_a_source_that_we_cannot_read_fails_because_of_us(tmp_path: Path) -> None:
    items = "".join(f"<item><link>http://a.test/{n}</link></item>" for n in range(500))
    body = f"<rss version='2.0'><channel>{items}</channel></rss>"
    settings = {"SPIDER_MODULES": ["scrapy_walsh.spiders"]}
    project = make_project(tmp_path / "project", settings=settings)
    with (project / "probe_settings.py").open("a") as file:
        file.write(NO_EXECUTABLE)
    feeds = Route(body=body, content_type="application/rss+xml")
    with Sandbox() as box:
        box.put(operator(listing("blocked.test")))
        box.put(site("feed.test", {"/": feeds}))
        given = ("-a", "urls=http://feed.test/", "-a", "report=report.json")
        run = crawl(project, box, spider_name="walsh_metadata", arguments=given)
    (row,) = json.loads((project / "report.json").read_text())["sources"]
    assert row["outcome"] == "failed"
    assert "not read, error on our side" in row["reason"]
    assert "60 s" not in row["reason"]
    assert run.returncode == 1
    assert run.stats["walsh/own_faults"] == 1
    assert run.lines(
        "ERROR", "http://feed.test/: not read, error on our side", "sys.executable, ''"
    )


@pytest.mark.parametrize("fails", [False, True])
def test_the_doctor_tests_the_child(tmp_path: Path, fails: bool) -> None:
    project = make_project(tmp_path / "project")
    with (project / "probe_settings.py").open("a") as file:
        file.write(NO_EXECUTABLE * fails)
    with Sandbox() as box:
        found = run_scrapy(project, box, "walsh", "doctor")
    (line,) = [line for line in found.stdout.splitlines() if " child: " in line]
    assert line.startswith("FAIL" if fails else "ok")
    assert ("0 FAIL" in found.stdout) is not fails


@pytest.mark.parametrize("known", [True, False])
def test_check_says_that_r3_is_not_judged(tmp_path: Path, known: bool) -> None:
    project = make_project(tmp_path / "project", settings={"WALSH_MAX_RETRIES": 0})
    (project / "spiders.py").write_text(LIST_SPIDER)
    with Sandbox() as box:
        box.put(operator(listing("blocked.test") if known else Route(404)))
        box.put(site("free.test"))
        plain = run_scrapy(project, box, "walsh", "check", "http://free.test/x")
        parsed = run_scrapy(project, box, "walsh", "check", "http://free.test/x", "--json")
    assert plain.returncode == parsed.returncode == 0, plain.stderr
    reason = json.loads(parsed.stdout.splitlines()[-1])["reason"]
    for text in (plain.stdout, reason):
        assert ("R3 is not judged: no blocklist is known" in text) is not known


# -- a container with little memory, and a busy machine -----------------------------------------

#: Control groups, as files by their paths below the root, and what they leave: in MiB, None: all.
GROUPS: dict[str, tuple[str, dict[str, str], int | None]] = {
    "version 2": (
        "0::/a/b\n",
        {"a/memory.max": "256", "a/memory.current": "100", "a/b/memory.max": "max"},
        156,
    ),
    "version 2, the least of all": (
        "0::/a/b\n",
        {
            "a/memory.max": "256", "a/memory.current": "200",
            "a/b/memory.max": "100", "a/b/memory.current": "10",
        },
        56,
    ),
    "version 2, the root of a container": (
        "0::/\n", {"memory.max": "256", "memory.current": "200", "memory.stat": "inactive_file 50"},
        106,
    ),
    "version 1": (
        "4:memory:/a\n3:cpu:/a\n0::/\n",
        {"memory/a/memory.limit_in_bytes": "256", "memory/a/memory.usage_in_bytes": "56",
         "memory/a/memory.stat": "inactive_file 9\ntotal_inactive_file 20\n"},
        220,
    ),
    "version 1, a path that is not seen inside": (
        "4:memory:/docker/0123\n",
        {"memory/memory.limit_in_bytes": "256", "memory/memory.usage_in_bytes": "56"},
        200,
    ),
    "full": ("0::/\n", {"memory.max": "256", "memory.current": "300"}, 0),
    "no limit": ("0::/a\n", {"a/memory.max": "max", "a/memory.current": "100"}, None),
    "none": ("", {}, None),
    "not to be read": ("0::/a\n", {"a/memory.max": "?", "a/memory.current": "100"}, None),
}  # fmt: skip


@pytest.mark.parametrize("name", GROUPS)
def test_what_a_container_leaves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    own, files, left = GROUPS[name]
    root = tmp_path / "cgroup"
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        in_octets = [str(int(word) << 20) if word.isdecimal() else word for word in text.split()]
        lines = zip(in_octets[::2], in_octets[1::2], strict=True) if " " in text else ()
        (root / path).write_text("\n".join(map(" ".join, lines)) or in_octets[0])
    (tmp_path / "own").write_text(own)
    monkeypatch.setattr(validate, "CGROUPS", root)
    monkeypatch.setattr(validate, "OWN_CGROUPS", tmp_path / "own")
    assert validate.memory_left() == (sys.maxsize if left is None else left << 20)


LONG_FEED = "".join(f"<item><link>http://a.test/{n}</link></item>" for n in range(150_000))


@pytest_twisted.ensureDeferred
async def test_a_child_may_take_half_of_what_a_container_leaves(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It dies first, and that is our fault: the source is unread, and no site is blamed."""
    body = f"<rss version='2.0'><channel>{LONG_FEED}</channel></rss>".encode()
    small = body[: 40 * 20_000] + b"</channel></rss>"
    monkeypatch.setattr(validate, "memory_left", lambda: 200 << 20)
    found = await apart.links_of(formats.FEED, small, "application/rss+xml", URL)
    assert len(found.entries) > 10_000
    with pytest.raises(
        validate.NoMemory, match=r"more than 100 MiB .* half of what this container"
    ):
        await apart.links_of(formats.FEED, body, "application/rss+xml", URL)


@pytest_twisted.ensureDeferred
async def test_a_busy_machine_is_not_the_fault_of_a_feed(place: Place) -> None:
    """The limit is one of processor time; by the clock ten times as much may pass."""
    validate.test_child()
    place.executable(f'sleep 2.5; exec {sys.executable} "$@"')
    body = b"<rss version='2.0'><channel>" + LONG_FEED[:20_000].encode() + b"</channel></rss>"
    found = await apart.links_of(formats.FEED, body, "application/rss+xml", URL, timeout=2)
    assert len(found.entries) > 100
