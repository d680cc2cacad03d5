"""What the README has one type first, and each ``pip install``, in a clone of what is committed.

The clone has an environment of its own, which is active and empty. pip asks its package index.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

CHECKOUT = next((each for each in Path(__file__).parents if (each / ".git").exists()), None)
#: What is left of the environment of these tests: where pip looks, and through what.
KEPT = re.compile(r"PIP_\w+|SSL_CERT_\w+|https?_proxy|no_proxy", re.IGNORECASE)
#: A command of ours, in text or code; those that install other packages are for those packages.
INSTALL = re.compile(r"pip install (?:\.(?=$|[\s`])|[^\n`]*scrapy-walsh[^\s`]*)", re.MULTILINE)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the clone, ``scrapy-walsh``, and the environment, ``active``."""
    if CHECKOUT is None:
        pytest.skip("these files are of no clone")
    made = tmp_path_factory.mktemp("clone")
    (made / ".gitconfig").write_text("[safe]\n\tdirectory = *\n")  # of another owner, in CI
    subprocess.run([sys.executable, "-m", "venv", made / "active"], check=True)
    typed(made, f"git clone --quiet '{CHECKOUT}' scrapy-walsh")
    return made


def typed(folder: Path, commands: str, cwd: str = ".") -> str:
    """What the shell prints for *commands*, each of which must succeed."""
    kept = {name: value for name, value in os.environ.items() if KEPT.fullmatch(name)}
    path = f"{folder / 'active/bin'}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["/bin/sh", "-e", "-c", commands],
        cwd=folder / cwd,
        env={**kept, "HOME": str(folder), "PATH": path},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def package(root: Path) -> set[Path]:
    """The files of the package below *root*, but for what Python compiles."""
    names = (each.relative_to(root) for each in (root / "scrapy_walsh").rglob("*"))
    return {each for each in names if each.suffix and "__pycache__" not in each.parts}


def test_own_the_first_block_of_the_readme_works_as_typed(folder: Path) -> None:
    """But for ``make test``, which is what runs this."""
    clone = folder / "scrapy-walsh"
    block = re.findall(r"```bash\n(.*?)```", (clone / "README.md").read_text(), re.DOTALL)[0]
    lines = [each for each in block.splitlines() if each.split()[:2] != ["make", "test"]]
    assert len(lines) == len(block.splitlines()) - 1
    said = typed(folder, "\n".join(lines), "scrapy-walsh")
    assert "new links: 26" in said
    where = {"base": str(folder / "active"), "platbase": str(folder / "active")}
    installed = Path(sysconfig.get_path("purelib", vars=where))
    assert package(installed) == package(clone)
    assert {".py", ".html", ".css", ".json"} < {each.suffix for each in package(installed)}
    assert (installed / "scrapy_walsh/py.typed").exists()
    assert "walsh" in typed(folder, "walsh --version && scrapy version")


def test_own_each_pip_install_that_we_name_works(folder: Path) -> None:
    clone = folder / "scrapy-walsh"
    said = {
        command
        for place in ("*.md", "docs/**/*.md", "scrapy_walsh/**/*.py", "bench/**/*", "example_project/**/*")
        for path in clone.glob(place)
        if path.is_file()
        for command in INSTALL.findall(path.read_text())
    }  # fmt: skip
    assert {"pip install .", "pip install ./scrapy-walsh"} < said
    typed(folder, "pip install ./scrapy-walsh")  # of the tutorial; the README's was typed above
    assert "pip install 'scrapy-walsh[sign]'" in said
    for command in sorted(said - {"pip install .", "pip install ./scrapy-walsh"}):
        assert "already satisfied: scrapy-walsh[" in typed(folder, f"{command} --dry-run"), command
