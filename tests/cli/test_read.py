"""``walsh read``: a file and a command, without a project."""

from __future__ import annotations

import csv
import json
import os
import pty
import re
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import tomlkit

from scrapy_walsh.commands.common import Misuse, user_settings
from scrapy_walsh.commands.main import parser_of
from scrapy_walsh.commands.read import FORMATS, arguments_of
from scrapy_walsh.config import WalshConfig
from scrapy_walsh.proof.sandbox import Route, Sandbox, default_sites, requests, user_agents
from scrapy_walsh.sources.sources import KINDS
from scrapy_walsh.state.records import SeenItem
from scrapy_walsh.state.store import SqliteStore
from tests.crawl.harness import environment, site, walsh

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

pytestmark = pytest.mark.crawl

IDENTITY = {
    "product": "JanesNews/1.0",
    "policy_url": "http://operator.test/bot/",
    "blocklist_url": "http://operator.test/.well-known/walsh-research/blocklist.json",
}
#: R8 is lifted, so that one day holds several runs.
AGAIN = {"WALSH_REVISIT_REASON": "a test reads twice a day"}
FEED = """<?xml version="1.0"?><rss version="2.0"><channel><title>News</title>{}</channel></rss>"""
ITEM = "<item><title>{}</title><link>http://news.test/{}</link></item>"
OPML = """<opml version="2.0"><body>
<outline text="Jane &amp; [Co]" xmlUrl="http://feed.test/feed"/>
<outline text="Refused" xmlUrl="http://denied.test/feed"/>
</body></opml>"""


LAST = "walsh: 1 of 2 sources read, 1 refused (R2); 2 new links\n"


@pytest.fixture(scope="module")
def box() -> Iterator[Sandbox]:
    with Sandbox(default_sites()) as box:
        yield box


class User:
    """A user with a home, and a folder with a list."""

    def __init__(self, folder: Path, box: Sandbox) -> None:
        self.home = folder / "home"
        self.here = folder / "here"
        self.here.mkdir()
        self.config = self.home / ".config" / "walsh" / "walsh.toml"
        self.state = self.home / ".local" / "state" / "walsh"
        self.box = box
        self.more = {
            "HOME": str(self.home),
            "XDG_CONFIG_HOME": "",
            "XDG_STATE_HOME": "not/absolute",
        }
        (self.here / "feeds.opml").write_text(OPML)

    def configure(self, again: Mapping[str, str] = AGAIN) -> None:
        self.config.parent.mkdir(parents=True, exist_ok=True)
        tables = {"identity": IDENTITY, "settings": again}
        self.config.write_text(tomlkit.dumps(tables))

    def feed(self, *titles: str) -> None:
        items = "".join(ITEM.format(title, n) for n, title in enumerate(titles))
        body = FEED.format(items)
        route = Route(body=body, content_type="application/rss+xml", etag=f'"{len(titles)}"')
        self.box.put(site("feed.test", {"/feed": route}))
        self.box.put(
            site("denied.test", {"/feed": route}, robots="User-agent: *\nDisallow: /feed\n")
        )

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        before = tree(self.here)
        done = walsh(self.here, *words, box=self.box, **self.more)
        assert "Traceback" not in done.stderr, done.stderr
        assert tree(self.here) == before
        return done

    def read(self, *words: str) -> subprocess.CompletedProcess[str]:
        return self.run("read", *(words or ("feeds.opml",)))


def tree(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def user(tmp_path: Path, box: Sandbox) -> User:
    return User(tmp_path, box)


def items(done: subprocess.CompletedProcess[str]) -> list[str]:
    return [json.loads(line)["title"] for line in done.stdout.splitlines()]


def test_a_day_with_a_list(user: User) -> None:
    """What is new is written once, in a folder that stays as it is; the rest is one line."""
    user.configure()
    user.feed("One", "Two")
    first = user.read()
    assert (first.returncode, items(first)) == (0, ["One", "Two"])
    assert first.stderr == LAST
    agents = {text for text in user_agents(user.box.log) if "JanesNews" in text}
    assert agents == {"Mozilla/5.0 (compatible; JanesNews/1.0; +http://operator.test/bot/)"}
    assert (user.state / "ledger.jsonl").exists()
    again = user.read()
    assert (again.returncode, again.stdout) == (0, "")
    assert again.stderr == "walsh: 0 of 2 sources read, 1 unchanged, 1 refused (R2)\n"
    user.feed("One", "Two", "Three")
    assert items(user.read()) == ["Three"]
    user.feed("One", "Two", "Three", "Four")
    assert items(user.read("http://feed.test/feed", "--all")) == ["One", "Two", "Three", "Four"]
    # Other commands know where the user has the state.
    shown = user.run("state", "show", "--json")
    assert json.loads(shown.stdout)["directory"] == str(user.state)
    assert user.run("verify").returncode == 0
    user.configure(again={})
    for folder in (user.here, user.home):
        (folder / "scrapy.cfg").write_text("[settings]\ndefault = of_a_project_that_is_not_there\n")
    early = user.read()
    assert (early.returncode, early.stdout) == (0, "")
    assert early.stderr.startswith("walsh: 0 of 2 sources read, 1 not due, 1 refused (R2)")


WANTED = {
    "jsonl": lambda text: [json.loads(line)["title"] for line in text.splitlines()],
    "json": lambda text: [item["title"] for item in json.loads(text)],
    "csv": lambda text: [row["title"] for row in csv.DictReader(text.splitlines())],
    "md": lambda text: [
        re.sub(r"\\(.)", r"\1", title) for title in re.findall(r"^- \[(.*)\]\(", text, re.MULTILINE)
    ],
    "table": lambda text: [line[14:] for line in text.splitlines()[1::2]],
}


def test_each_format_has_every_title(user: User) -> None:
    titles = ["a [link](x) *b* `c`", "caf\xe9 \u2192 \u65e5\u672c", "|,;\"'"]
    user.configure()
    assert WANTED.keys() == FORMATS.keys()
    for form, read in WANTED.items():
        user.feed(*titles, f"of {form}")  # so that no answer is a 304
        done = user.read("--format", form, "--all", "feeds.opml")
        titles.append(f"of {form}")
        assert done.returncode == 0
        assert read(done.stdout) == titles, form
    user.feed(*titles)
    none = user.read("--format", "json", "feeds.opml")
    assert none.stdout.split() == ["[", "]"], none.stderr


def test_what_standard_output_did_not_take_was_not_seen(user: User) -> None:
    user.configure()
    user.feed("One", "Two")
    command = [sys.executable, "-m", "scrapy_walsh", "read", "feeds.opml"]
    reading, writing = os.pipe()
    os.close(reading)
    with Path("/dev/full").open("wb") as full:
        for output, reason in ((full, "No space left on device"), (writing, "")):
            done = subprocess.run(
                command,
                cwd=user.here,
                env=environment(user.here, user.box, **user.more),
                stdout=output,
                stderr=subprocess.PIPE,
                text=True,
                check=False,
            )
            assert done.returncode == 1
            assert (
                "(standard output): 2 items of this run will be emitted again; let its reader "
                "take all of it" in done.stderr
            )
            assert "FEEDS" not in done.stderr
            assert reason in done.stderr
            assert "Traceback" not in done.stderr
            with closing(SqliteStore(user.state)) as store:
                assert list(store.rows(SeenItem)) == []
    os.close(writing)
    assert items(user.read()) == ["One", "Two"]


def on_terminal(user: User, *words: str, answers: str = "") -> tuple[int, str]:
    """What a terminal of 80 columns shows, and the exit code."""
    ours, theirs = pty.openpty()
    os.write(ours, answers.encode())
    with subprocess.Popen(
        [sys.executable, "-m", "scrapy_walsh", *words],
        cwd=user.here,
        env=environment(user.here, user.box, COLUMNS="80", TERM="xterm", **user.more),
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    ) as child:
        os.close(theirs)
        shown = b""
        while True:
            try:
                octets = os.read(ours, 65536)
            except OSError:  # its end, on Linux
                break
            if not octets:
                break
            shown += octets
    os.close(ours)
    return child.returncode, shown.decode().replace("\r\n", "\n")


def test_a_terminal_of_80_columns_has_a_table(user: User) -> None:
    user.configure()
    long = " ".join(["words"] * 30)
    user.feed("\x85\u202eOne", long)
    code, shown = on_terminal(user, "read", "feeds.opml")
    assert code == 0
    lines = shown.splitlines()
    assert lines[0] == "Jane & [Co]"
    assert max(map(len, lines)) <= 80
    assert "One" in lines[1]
    assert "\u202e" not in shown
    assert any(line.strip() == "http://news.test/1" for line in lines)
    assert lines[-1] == "walsh: 1 of 2 sources read, 1 refused (R2); 2 new links"


def test_without_an_identity_a_terminal_is_asked_and_a_pipe_is_told(user: User) -> None:
    user.feed("One")
    user.box.clear()
    for words in (["feeds.opml"], ["http://feed.test/feed", "--format", "csv"]):
        done = user.read(*words)
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
        for text in (str(user.config), *IDENTITY):
            assert text in done.stderr
    assert not user.home.exists()
    before = tree(user.here)
    user.config.parent.mkdir(parents=True)
    user.config.write_text(f"[settings]\nWALSH_BLOCKLIST_URL = '{IDENTITY['blocklist_url']}'")
    answers = "Googlebot\nJanesNews\njane.github.io\n\njane at x\njane@mail.example\n"
    code, shown = on_terminal(user, "read", "feeds.opml", answers=answers)
    assert code == 2, shown
    assert "use your own" in shown  # and asks again
    assert "opt-out@" not in shown
    assert tomlkit.parse(user.config.read_text()).unwrap() == {
        "identity": {
            "product": "JanesNews/1.0",
            "policy_url": "https://jane.github.io/policy.html",
            "blocklist_url": "https://jane.github.io/blocklist.json",
        },
        "settings": {"WALSH_BLOCKLIST_URL": IDENTITY["blocklist_url"]},
    }
    pages = sorted(path.name for path in user.config.parent.iterdir())
    assert pages == ["blocklist.json", "policy.html", "walsh.toml"]
    assert "jane@mail.example" in (user.config.parent / "policy.html").read_text()
    assert tree(user.here) == before
    assert shown.splitlines()[-1] == "then: walsh read feeds.opml"
    assert requests(user.box.log, "feed.test") == []  # its policy page is not there yet


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[identity", "not TOML"),
        ("[[identity]]", "neither a known name nor a dict"),
        ("[identity]\nproduct = 'Ours/1.0'", "no policy_url"),
        ("[identities]\n", "'identities' is no table"),
        ("settings = 3\n", "'settings' is no table"),
        ("[settings]\nWALSH_PATIENC = 3", "did you mean WALSH_PATIENCE?"),
        ("[settings]\nWALSH_IDENTITY = 'walsh-research'\nWALSH_PATIENCE = -1", "WALSH_PATIENCE is"),
    ],
)
def test_a_configuration_that_cannot_be_used_is_one_line(user: User, text: str, said: str) -> None:
    user.config.parent.mkdir(parents=True)
    user.config.write_text(text)
    done = user.read()
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert said in done.stderr
    assert not user.state.exists()


def test_r1_5_an_identity_of_another_operator_is_not_taken_from_the_command_line(
    user: User,
) -> None:
    done = user.read("feeds.opml", "--identity", "walsh-research")
    assert (done.returncode, done.stdout) == (2, "")
    assert "R1.5" in done.stderr


def test_a_list_that_cannot_be_read_ends_as_a_crawl_does(user: User) -> None:
    user.configure()
    for words in (["none.opml"], ["."], ["not/a url"]):
        done = user.read(*words)
        assert (done.returncode, done.stdout) == (1, ""), words
        assert "ERROR: walsh_metadata: " in done.stderr


def test_the_blocks_of_read_md_are_true(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (Path(__file__).parents[2] / "docs" / "read.md").read_text()
    bash, last, text = re.findall(r"^```\w+\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    for line in bash.splitlines():
        args = parser_of("read").parse_args(line.split()[1:])
        assert arguments_of(args.list)
    assert last == LAST
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    (tmp_path / "walsh").mkdir()
    (tmp_path / "walsh" / "walsh.toml").write_text(text)
    config = WalshConfig.from_settings(user_settings(), Path)
    assert (config.identity.token, config.patience) == ("JanesNews", 60.0)
    assert list(user_settings()) == ["WALSH_STATE_DIR", "WALSH_PATIENCE", "WALSH_IDENTITY"]


def test_words_are_one_file_or_urls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for kind in KINDS:
        assert arguments_of([f"list{kind}"]) == {"sources": f"list{kind}"}
        assert arguments_of([f"https://x.test/a{kind}"]) == {"urls": f"https://x.test/a{kind}"}
        with pytest.raises(Misuse, match="give one file, or URLs"):
            arguments_of([f"list{kind}", "x.test"])
    assert arguments_of(["x.test", "http://y.test/"]) == {"urls": "x.test http://y.test/"}
