"""docs/tutorial.md, typed as it stands: its commands are run, and they print what it shows."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from pathlib import Path

import pytest

from scrapy_walsh.proof.sandbox import Sandbox, default_sites
from scrapy_walsh.proof.sandbox.sitefile import load_sites

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs/tutorial.md").read_text()
#: What a comment says of the block of code below it.
BLOCK = re.compile(r"<!-- (\w+)(?:: ([\w.-]+))? -->\n```\w+\n(.*?)```", re.DOTALL)
#: What differs from one run to the next, and what stands for it.
VARYING = (
    (r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\dZ?", "TIME"),
    (r"\b[0-9a-f]{64}\b", "DIGEST"),
    (r" +$", ""),
)


def steady(text: str) -> list[str]:
    """The lines of *text*, without what differs from run to run."""
    for form, stands in VARYING:
        text = re.sub(form, stands, text, flags=re.MULTILINE)
    return text.strip().splitlines()


def blocks(kind: str) -> dict[str, str]:
    """The blocks of that kind, by name, in order."""
    return {name: text for each, name, text in BLOCK.findall(TEXT) if each == kind}


def script(port: int) -> str:
    """Every command and file of the page, in order, with a line before what each one prints."""
    steps = []
    for kind, name, text in BLOCK.findall(TEXT):
        if kind == "file":
            steps.append(f"cat > {name} <<'END OF FILE'\n{text}END OF FILE\n")
        elif kind == "run":
            # The Crawl-delay is 2 s, and nobody types so fast that it is not over by then.
            wait = "sleep 2.5\n" if "scrapy crawl" in text else ""
            steps.append(f"{wait}echo '@@ {name}'\n{text.replace('8123', str(port))}")
    return "".join(steps)


@pytest.fixture(scope="module")
def typed(tmp_path_factory: pytest.TempPathFactory, typed_path: str) -> tuple[Path, dict[str, str]]:
    """The project that the tutorial leads to, and what each step printed."""
    folder = tmp_path_factory.mktemp("tutorial") / "bots"
    folder.mkdir()
    sites = folder / "sites.toml"
    sites.write_text(blocks("file")["sites.toml"])
    left_out = ("http_proxy", "https_proxy", "no_proxy", "SCRAPY_PROJECT")
    kept = {name: value for name, value in os.environ.items() if name not in left_out}
    with Sandbox([*default_sites(), *load_sites(sites)]) as box:
        done = subprocess.run(
            ["/bin/bash", "-c", script(box.port)],
            cwd=folder,
            env={**kept, "PATH": typed_path, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
    assert done.stderr == "", done.stdout
    printed = re.split(r"^@@ ([\w-]+)\n", done.stdout, flags=re.MULTILINE)
    said = dict(zip(printed[1::2], printed[2::2], strict=True))
    project = folder / "mybot"
    said["settings"] = (project / "mybot/settings.py").read_text().rpartition("\n\n")[2]
    return project, said


@pytest.mark.crawl
@pytest.mark.parametrize("name", blocks("output"))
def test_the_tutorial_shows_what_is_printed(typed: tuple[Path, dict[str, str]], name: str) -> None:
    project, said = typed
    printed = said[name].replace(str(project), "/home/you/bots/mybot")
    printed = re.sub(
        r"\S+ -m scrapy crawl", "/home/you/bots/.venv/bin/python -m scrapy crawl", printed
    )
    assert steady(printed) == steady(blocks("output")[name])


@pytest.mark.crawl
def test_the_tutorial_ends_with_a_project_that_can_go_live(
    typed: tuple[Path, dict[str, str]], typed_path: str
) -> None:
    project, _ = typed
    assert len((project / "items.jsonl").read_text().splitlines()) == 2
    assert (project / "walsh-report.html").exists()
    mail, line = BLOCK.findall(TEXT)[-1][2].splitlines()
    assert mail.startswith("MAILTO=")
    minute, hour, *days, command = line.split(maxsplit=5)
    assert (int(minute) < 60, int(hour) < 24, days) == (True, True, ["*"] * 3)
    command = command.replace("/home/you/bots/mybot", shlex.quote(str(project)))
    command = command.replace("../.venv/bin", shlex.quote(typed_path.partition(os.pathsep)[0]))
    with Sandbox() as box:  # of the day: not a source is due, and no document is stale
        done = subprocess.run(
            ["/bin/sh", "-c", command],
            cwd="/",
            env={**os.environ, "http_proxy": box.proxy_url, "https_proxy": box.proxy_url},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert box.log == []
    # Nothing is new since the morning's run, so there is no mail (D35).
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_every_block_of_the_tutorial_is_one_that_is_run() -> None:
    """But the first, which makes the environment that the tests have already."""
    fences = re.findall(r"^```(\w+)\n(.*?)```", TEXT, re.DOTALL | re.MULTILINE)
    assert "pip install ./scrapy-walsh\n" in fences[0][1]
    assert [text for _, text in fences[1:]] == [text for _, _, text in BLOCK.findall(TEXT)]
    ((_, _, serve),) = [each for each in BLOCK.findall(TEXT) if each[0] == "serve"]
    assert serve == "walsh sandbox --port 8123 --sites sites.toml\n"
