"""``walsh init``: what it writes can be used as it is, and what is there stays as it is."""

from __future__ import annotations

import json
import os
import pty
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from scrapy_walsh.commands.common import default_state_dir
from scrapy_walsh.commands.main import main
from scrapy_walsh.config import WalshConfig
from scrapy_walsh.exceptions import SourcesInvalid
from scrapy_walsh.policy.list.schema import parse_blocklist
from scrapy_walsh.sources.sources import read_sources
from tests import zygote

ROOT = Path(__file__).parents[2]
GIVEN = ("--product", "OurBot/1.0", "--site", "https://www.bots.org/crawler/")
FILES = ["blocklist.json", "policy.html", "sources.toml"]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def _read(name: str) -> str:
    return Path(name).read_text()


def settings_of(text: str) -> dict[str, Any]:
    namespace: dict[str, Any] = {}
    exec(text, namespace)  # noqa: S102  our own output
    return {name: value for name, value in namespace.items() if name.isupper()}


def config_of(settings: dict[str, Any]) -> WalshConfig:
    return WalshConfig.from_settings(settings, default_state_dir)


def test_the_files_can_be_used_as_they_are(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["init", *GIVEN, "--contact", "a&b@bots.org"]) == 0
    said, errors = capsys.readouterr()
    assert errors == ""
    assert sorted(path.name for path in folder.iterdir()) == FILES
    block = re.search(r"^SPIDER_MODULES.*?^}$", said, re.MULTILINE | re.DOTALL)
    assert block is not None
    settings = settings_of(block[0])
    config = config_of(settings)
    assert settings["ADDONS"] == {"scrapy_walsh.Addon": 500}
    assert settings["SPIDER_MODULES"] == ["scrapy_walsh.spiders"]
    document = parse_blocklist(Path("blocklist.json").read_bytes(), None)
    assert (document.inline, list(document), document.refresh) == (True, [], 21600)
    with pytest.raises(SourcesInvalid, match=r"no \[\[source\]\] table; write one"):
        read_sources("sources.toml")  # requests nothing before somebody has said what
    Path("sources.toml").write_text(re.sub(r"(?m)^# (?=\[|\w+ =)", "", _read("sources.toml")))
    assert read_sources("sources.toml")[0][0].name == "An example"
    policy = _read("policy.html")
    for text in (config.identity.user_agent, "User-agent: OurBot", "a&amp;b@bots.org",
                 config.blocklist_url):  # fmt: skip
        assert text in policy
    for url in (config.identity.policy_url, config.blocklist_url):
        assert url.startswith("https://www.bots.org/crawler/")
        assert url in said.partition("to upload")[2]
    line = re.search(
        r"^  \d+ \d+ \* \* \* cd (\S+) && (\S+) -m scrapy crawl walsh_m.*", said, re.MULTILINE
    )
    assert line is not None
    assert line[1] == str(folder)
    assert line[2] == sys.executable
    assert line[0].endswith(" -L WARNING")  # so a good day is silent


def test_whom_to_write_to_is_said_where_it_was_not_given(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["init", *GIVEN, "--dir", "new/folder"]) == 0
    assert "see that opt-out@bots.org reaches you" in capsys.readouterr().out
    assert "mailto:opt-out@bots.org" in Path("new/folder/policy.html").read_text()


@pytest.mark.parametrize("name", FILES)
def test_init_overwrites_nothing_and_makes_what_is_missing(
    name: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / name).symlink_to("nowhere")
    assert main(["init", *GIVEN]) == 0
    said = capsys.readouterr().out
    assert f"kept, as it was: {name}" in said
    assert not (folder / "nowhere").exists()
    others = [each for each in FILES if each != name]
    assert all(f"written: {each}" in said and (folder / each).is_file() for each in others)


def files_of(folder: Path) -> dict[Path, bytes]:
    """Every file in *folder* but what Python compiled when ``init`` looked at the spiders."""
    files = (each for each in folder.rglob("*") if each.is_file())
    return {each: each.read_bytes() for each in files if "__pycache__" not in each.parts}


@pytest.mark.usefixtures("forked")
def test_init_after_init_changes_nothing(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "scrapy.cfg").write_text("[settings]\ndefault = own.settings\n")
    (folder / "own").mkdir()
    (folder / "own" / "settings.py").write_text("SPIDER_MODULES = ['own']\n")
    asked = ["init", *GIVEN, "--sign", "--write"]
    assert main(asked) == 0
    before = files_of(folder)
    capsys.readouterr()
    assert main(asked) == 0
    assert capsys.readouterr().out.count("kept, as it was: ") == 5
    assert before == files_of(folder)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "give --product and --site"),
        (GIVEN[:2], "give --product and --site"),
        (("--product", "Our Bot", *GIVEN[2:]), "Token/MAJOR.MINOR"),
        (("--product", "Googlebot/2.1", *GIVEN[2:]), "use your own"),
        ((*GIVEN[:2], "--site", "ftp://bots.org"), "absolute http or https URL"),
        # Its owner would get the mail.
        ((*GIVEN[:2], "--site", "https://jane.github.io"), "give --contact"),
        ((*GIVEN[:2], "--site", "https://jane.gitlab.io/bot"), "give --contact"),
        ((*GIVEN, "--contact", "nobody"), "no mail address"),
        ((*GIVEN, "--write"), "give --write FILE"),
        ((*GIVEN, "--write", "none.py"), "none.py: No such file"),
    ],
)
def test_misuse_is_one_line_and_writes_nothing(
    words: tuple[str, ...],
    said: str,
    folder: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "stdin", None)
    assert main(["init", *words]) == 2
    output, errors = capsys.readouterr()
    assert (output, errors.count("\n")) == ("", 1)
    assert said in errors
    assert list(folder.iterdir()) == []


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT)}


def test_on_a_terminal_it_asks_for_what_is_not_given(folder: Path) -> None:
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-m", "scrapy_walsh", "init", "--product", "OurBot/1.0"],
        stdin=theirs,
        stdout=subprocess.PIPE,
        text=True,
        env=environment(),
    ) as child:
        os.write(ours, b"bots.org\n\n")
        said, _ = child.communicate(timeout=120)
    os.close(theirs)
    os.close(ours)
    assert child.returncode == 0
    assert "URL below which its pages will be" in said
    assert json.loads((folder / "blocklist.json").read_text())["contact"] == "opt-out@bots.org"


def test_a_name_and_a_host_are_enough(folder: Path) -> None:
    assert main(["init", "--product", "JanesNews", "--site", "jane.example.org"]) == 0
    policy = (folder / "policy.html").read_text()
    assert "JanesNews/1.0; +https://jane.example.org/policy.html" in policy
    assert "opt-out@jane.example.org" in policy


def test_who_does_not_answer_gets_nothing_written(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(_: str) -> str:
        raise EOFError

    monkeypatch.setattr(sys, "stdin", type("Terminal", (), {"isatty": lambda _: True})())
    monkeypatch.setattr("builtins.input", stop)
    assert main(["init", *GIVEN[:2]]) == 2
    assert capsys.readouterr().err == "walsh init: stopped\n"
    assert list(folder.iterdir()) == []


@pytest.mark.usefixtures("forked")
def test_write_appends_to_the_settings_of_a_new_project(folder: Path) -> None:
    """As `scrapy startproject` makes them; what they set already stays."""
    start = [sys.executable, "-m", "scrapy", "startproject", "ours"]
    zygote.run(start, check=True, capture_output=True, env=environment())
    path = folder / "ours" / "ours" / "settings.py"
    before = path.read_text()
    path.write_text(before + 'ADDONS = {"another.Addon": 1}')
    assert main(["init", *GIVEN, "--dir", "ours", "--write"]) == 0
    settings = settings_of(path.read_text())
    assert path.read_text().startswith(before)
    assert settings["SPIDER_MODULES"] == ["ours.spiders", "scrapy_walsh.spiders"]
    assert settings["ADDONS"] == {"another.Addon": 1, "scrapy_walsh.Addon": 500}
    assert config_of(settings).identity.product == "OurBot/1.0"


def test_write_adds_only_what_is_missing(folder: Path) -> None:
    (folder / "scrapy.cfg").write_text("[settings]\ndefault = own.settings\n")
    (folder / "own").mkdir()
    path = folder / "own" / "settings.py"
    before = (
        '# caf\xe9\nWALSH_IDENTITY = "walsh-research"\nSPIDER_MODULES = ["own"]\n'
        'SPIDER_MODULES += ["scrapy_walsh.spiders"]\n'
    )
    path.write_text(before, encoding="latin-1")
    assert main(["init", *GIVEN, "--write"]) == 0
    added = '\nADDONS = {"scrapy_walsh.Addon": 500}\n'
    assert path.read_text(encoding="latin-1") == before + added
    assert (folder / "blocklist.json").exists()


# -- the spiders that are there -----------------------------------------------------------

SPIDERS = """
import scrapy
from scrapy.linkextractors import LinkExtractor
from scrapy.spiders import CrawlSpider, Rule, SitemapSpider, XMLFeedSpider

class Books(CrawlSpider):
    name = "books"
    rules = [Rule(LinkExtractor())]

class Shops(SitemapSpider):
    name = "shops"

class Pages(scrapy.Spider):
    name = "pages"

    def parse(self, response):
        yield from self.further(response)

    def further(self, response):
        return [scrapy.Request(url) for url in response.css("a::attr(href)").getall()]

class Feed(XMLFeedSpider):
    name = "feed"

    def parse_node(self, response, node):
        return {"title": node.xpath("title").get()}

class Declared(scrapy.Spider):
    name = "declared"

    async def start(self):
        yield scrapy.Request("http://h.test/")

class Agreed(Pages):
    name = "agreed"
    custom_settings = {"WALSH_FOLLOW_LINKS": True, "WALSH_SCRAPING": True}
"""


@pytest.fixture
def project(folder: Path) -> Path:
    (folder / "scrapy.cfg").write_text("[settings]\ndefault = own_settings\n")
    (folder / "own_settings.py").write_text("SPIDER_MODULES = ['own_spiders']\n")
    (folder / "own_spiders.py").write_text(SPIDERS)
    return folder


def different(said: str) -> dict[str, list[str]]:
    """The spiders that ``init`` names, by requirement."""
    found = {}
    for line in said.splitlines():
        if line.startswith("will be different ("):
            rule = line.partition("(")[2].partition(")")[0]
            found[rule] = line.rpartition("(spider ")[2].rstrip(")").split(", ")
    return found


@pytest.mark.usefixtures("project")
def test_init_says_before_the_first_run_what_will_be_different(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", None)
    assert main(["init", *GIVEN, "--dir", "new/folder"]) == 0
    said = capsys.readouterr().out
    assert different(said) == {"R6": ["books", "pages", "shops"], "R9": ["books", "pages"]}
    assert "WALSH_FOLLOW_LINKS = True follows them" in said
    assert "set WALSH_SCRAPING = True if that is meant" in said
    (line,) = re.findall(r"^  \d+ \d+ \* \* \* cd .*", said, re.MULTILINE)
    assert "walsh_metadata" not in line
    assert line.endswith(" -m scrapy crawl SPIDER -L WARNING"), "six spiders are too many"


def test_the_line_for_cron_is_for_the_spiders_that_are_there(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Typed by a shell, it crawls with each spider in turn, also after one that failed."""
    (folder / "scrapy.cfg").write_text("[settings]\ndefault = own_settings\n")
    (folder / "own_settings.py").write_text("SPIDER_MODULES = ['own_spiders']\n")
    code = "import scrapy\n"
    for name in ("one", "a b"):
        code += f"class {name[0]}(scrapy.Spider):\n    name = {name!r}\n"
        (folder / "own_spiders.py").write_text(code)
        assert main(["init", *GIVEN]) == 0
        said = capsys.readouterr().out
        (line,) = re.findall(r"^  \d+ \d+ \* \* \* (cd .*)", said, re.MULTILINE)
        assert "SPIDER" not in line
    shown = f'python() {{ shift 3; echo "$@"; false; }}\n{line.replace(sys.executable, "python")}'
    done = subprocess.run(["/bin/sh", "-c", shown], capture_output=True, text=True, check=False)
    assert done.stdout.splitlines() == ["a b -L WARNING", "one -L WARNING"]


@pytest.mark.usefixtures("project")
def test_what_is_agreed_to_on_the_terminal_is_set(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []
    answers = iter(["y", "n"])

    def answer(question: str) -> str:
        asked.append(question)
        return next(answers)

    monkeypatch.setattr(sys, "stdin", type("Terminal", (), {"isatty": lambda _: True})())
    monkeypatch.setattr("builtins.input", answer)
    assert main(["init", *GIVEN, "--contact", "a@bots.org", "--write"]) == 0
    assert asked == [
        "follow links? [y/N] (books, pages, shops): ", "scrape HTML? [y/N] (books, pages): "
    ]  # fmt: skip
    settings = settings_of(_read("own_settings.py"))
    assert settings["WALSH_FOLLOW_LINKS"] is True
    assert "WALSH_SCRAPING" not in settings
    assert "and pages that these link to." in _read("policy.html")
    assert set(different(capsys.readouterr().out)) == {"R9"}


@pytest.mark.parametrize(
    ("settings", "spider", "follows"),
    [
        ("", "", False),
        ("FOLLOW = True\nWALSH_FOLLOW_LINKS = FOLLOW\n", "", True),
        ("", 'custom_settings = {"WALSH_FOLLOW_LINKS": "1"}', True),
        ("# WALSH_FOLLOW_LINKS = True\nWALSH_FOLLOW_LINKS = False\n", "", False),
    ],
)
def test_the_policy_page_says_of_links_what_the_project_does(
    project: Path, settings: str, spider: str, follows: bool
) -> None:
    with (project / "own_settings.py").open("a") as file:
        file.write(f"\n{settings}")
    more = f"import scrapy\n\n\nclass More(scrapy.Spider):\n    name = 'more'\n    {spider}\n"
    (project / "own_spiders.py").write_text(more)
    (project / "beside.py").write_text("# WALSH_FOLLOW_LINKS: another's code says nothing\n")
    assert main(["init", *GIVEN]) == 0
    assert ("pages that these link to" in _read("policy.html")) is follows


def test_a_project_that_cannot_be_looked_at_is_said_in_one_line(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (project / "own_spiders.py").write_text("import no_such_module\n")
    assert main(["init", *GIVEN]) == 0
    assert "own_spiders cannot be imported" in capsys.readouterr().out
    (project / "own_settings.py").write_text("raise ValueError('unset')\n")
    assert main(["init", *GIVEN]) == 0
    assert "cannot be loaded: ValueError: unset" in capsys.readouterr().out
    (project / "own_settings.py").write_text("import os\nos._exit(3)\n")
    assert main(["init", *GIVEN]) == 0
    assert "the spiders could not be checked" in capsys.readouterr().out


# -- docs ---------------------------------------------------------------------------------

DOCUMENT = (ROOT / "docs/blocklist.md").read_text()


def snippet(name: str) -> str:
    found = re.search(rf"<!-- {name} -->\n```\w+\n(.*?)```", DOCUMENT, re.DOTALL)
    assert found is not None, name
    return found[1]


def test_docs_commands_run() -> None:
    (init,) = snippet("init").splitlines()
    add, remove, check, online = snippet("opt-out").splitlines()
    for command in (init, add, remove, check):
        name, *words = shlex.split(command)
        assert (name, main(words)) == ("walsh", 0)
    assert shlex.split(online)[:3] == ["walsh", "blocklist", "check"]


def test_docs_show_the_shortest_list_that_a_crawl_adopts() -> None:
    document = parse_blocklist(snippet("minimal list").encode(), None)
    assert list(document) == ["opted-out.example"]
    assert (document.refresh, document.warnings) == (21600, ())


# -- settings that other modules bring ----------------------------------------------------------

BASE = """
SPIDER_MODULES = ["own_spiders"]
ADDONS = {"own_addon.Mine": 300}
"""
ADDON = """
class Mine:
    def update_settings(self, settings):
        settings.set("MINE", True, "addon")
"""
TELL = """
import json, sys
from scrapy.utils.project import get_project_settings
settings = get_project_settings()
print(json.dumps({"modules": settings.getlist("SPIDER_MODULES"), "addons": list(settings["ADDONS"]),
    "identity": settings.getdict("WALSH_IDENTITY")}))
"""


def loaded(project: Path, **environment: str) -> dict[str, Any]:
    """What Scrapy loads from the settings of *project*."""
    command = [sys.executable, "-c", TELL]
    environ = {**os.environ, **environment}
    run = subprocess.run(
        command, cwd=project, capture_output=True, text=True, env=environ, check=False
    )
    assert run.returncode == 0, run.stderr
    members: dict[str, Any] = json.loads(run.stdout)
    return members


@pytest.fixture
def based(project: Path) -> Path:
    (project / "own_base.py").write_text(BASE)
    (project / "own_addon.py").write_text(ADDON)
    return project


#: The lines of BASE, if a variable of the environment does not forbid them.
CONDITIONAL = "import os\nif 'NEVER' not in os.environ:\n" + BASE.replace("\n", "\n    ")
COPIED = "for name, value in vars(own_base).items():\n    globals()[name] = value\n"


@pytest.mark.parametrize(
    "settings",
    [
        "from own_base import *\n\nLOG_FILE = None\n",
        "import own_base\nSPIDER_MODULES = own_base.SPIDER_MODULES\nADDONS = own_base.ADDONS\n",
        CONDITIONAL,
        f"import own_base\n{COPIED}",
    ],
)
def test_init_keeps_what_other_modules_bring(based: Path, settings: str) -> None:
    (based / "own_settings.py").write_text(settings)
    assert main(["init", *GIVEN, "--write"]) == 0
    members = loaded(based)
    assert members["modules"] == ["own_spiders", "scrapy_walsh.spiders"]
    assert members["addons"] == ["own_addon.Mine", "scrapy_walsh.Addon"]
    assert members["identity"]["product"] == "OurBot/1.0"
    text = _read("own_settings.py")
    assert main(["init", *GIVEN, "--write"]) == 0
    assert _read("own_settings.py") == text


def test_what_init_writes_works_where_the_condition_is_false(based: Path) -> None:
    block = BASE.strip().replace("\n", "\n    ")
    (based / "own_settings.py").write_text(
        f"import os\nif 'NEVER' not in os.environ:\n    {block}\n"
    )
    assert main(["init", *GIVEN, "--write"]) == 0
    members = loaded(based, NEVER="1")
    assert members["modules"] == ["scrapy_walsh.spiders"]
    assert members["addons"] == ["scrapy_walsh.Addon"]


def test_init_writes_no_identity_that_another_module_has(based: Path) -> None:
    (based / "own_base.py").write_text(f"{BASE}WALSH_IDENTITY = 'walsh-research'\n")
    (based / "own_settings.py").write_text("from own_base import *\n")
    assert main(["init", *GIVEN, "--write"]) == 0
    assert "WALSH_IDENTITY" not in _read("own_settings.py")


def test_init_puts_the_settings_back_if_the_project_would_lose_something(
    based: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Here a line behind those of init takes the module of spiders out, once ours is there."""
    text = "from own_base import *\nimport own_base\n"
    (based / "own_settings.py").write_text(text)
    (based / "own_base.py").write_text(
        f"{BASE}\nfrom pathlib import Path\n"
        "if 'OurBot' in Path('own_settings.py').read_text():\n    SPIDER_MODULES = []\n"
    )
    assert main(["init", *GIVEN, "--write"]) == 2
    errors = capsys.readouterr().err
    assert (
        "own_settings.py stays as it was: with the lines of init the project would lose" in errors
    )
    assert "agreed, books, declared, feed, pages" in errors
    assert _read("own_settings.py") == text


def test_many_spiders_are_counted_not_named(
    project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", None)
    more = "".join(f"class P{n}(Pages):\n    name = 'p{n}'\n\n" for n in range(9))
    (project / "own_spiders.py").write_text(SPIDERS + more)
    assert main(["init", *GIVEN]) == 0
    lines = capsys.readouterr().out.splitlines()
    (links,) = (line for line in lines if line.startswith("will be different (R6)"))
    assert links.endswith("(spider 12 of 15 spiders; -v names them)")
    assert main(["init", *GIVEN, "-v"]) == 0
    said = capsys.readouterr().out
    assert len(different(said)["R6"]) == 12


def test_init_says_which_spider_does_not_start(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (project / "own_spiders.py").write_text(
        SPIDERS
        + "\nDeclared.custom_settings = {'DUPEFILTER_DEBUG': 1, 'SCHEDULER': 'gone.Scheduler'}\n"
    )
    assert main(["init", *GIVEN, "--write"]) == 0
    lines = capsys.readouterr().out.splitlines()
    (failure,) = (line for line in lines if line.startswith("walsh doctor fails: "))
    assert any(line.startswith("this is with Scrapy ") for line in lines)
    assert "gone" in failure
    assert failure.endswith("(spider declared)")
