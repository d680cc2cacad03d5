"""What the README has one type first, and each ``pip install``, in a clone of what is committed.

The environment that ``make demo`` makes in the clone is the active one. It sees what is installed
here, pip included, so nothing but this package is fetched or installed; that what it imports is
declared, a test of its own looks up.
"""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import sysconfig
import tomllib
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement

import scrapy_walsh
from tests.test_records import LINK

pytestmark = pytest.mark.slow

CHECKOUT = next((each for each in Path(__file__).parents if (each / ".git").exists()), None)
ACTIVE = Path("scrapy-walsh/.venv")
#: What is left of the environment of these tests: where pip looks, and through what.
KEPT = re.compile(r"PIP_\w+|SSL_CERT_\w+|https?_proxy|no_proxy", re.IGNORECASE)
#: A command of ours, in text or code; those that install other packages are for those packages.
INSTALL = re.compile(
    r"pip install (?:\.(?=[\s`]|$)|(['\"]?)(?:\./)?scrapy-walsh(?:\[[\w,-]+\])?\1)", re.MULTILINE
)


#: Of the extras, and of a platform that has its own: what needs one of these says so itself.
OPTIONAL = {
    *("http_message_signatures", "prometheus_client", "redis", "rfc8785", "scrapinghub"),
    *("shtab", "spidermon"),
}
#: ``python``, whose ``-m venv DIRECTORY`` makes an environment that sees what is installed here.
PYTHON = f"""#!/bin/sh -e
case "$*" in
"-m venv "*)
    '{sys.executable}' -m venv --without-pip "$3"
    cd "$3"
    printf '#!/bin/sh\\nexec python -m pip "$@"\\n' > bin/pip
    chmod +x bin/pip
    cd lib/python*/site-packages
    echo '{sysconfig.get_path("purelib")}' > what_is_here.pth ;;
*)
    exec '{sys.executable}' "$@" ;;
esac
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the clone, ``scrapy-walsh``."""
    if CHECKOUT is None:
        pytest.skip("these files are of no clone")
    made = tmp_path_factory.mktemp("clone")
    (made / ".gitconfig").write_text("[safe]\n\tdirectory = *\n")  # of another owner, in CI
    (made / "python").write_text(PYTHON)
    (made / "python").chmod(0o755)
    typed(made, f"git clone --quiet '{CHECKOUT}' scrapy-walsh")
    return made


def typed(folder: Path, commands: str, cwd: str = ".") -> str:
    """What the shell prints for *commands*, each of which must succeed."""
    kept = {name: value for name, value in os.environ.items() if KEPT.fullmatch(name)}
    kept["PIP_NO_COMPILE"] = "1"  # most of pip's time: Python compiles what is imported
    kept["PIP_REQUIRE_VIRTUALENV"] = "1"  # nothing is installed anywhere else
    kept["PYTHON"] = str(folder / "python")  # what make takes
    path = f"{folder / ACTIVE / 'bin'}{os.pathsep}{os.environ['PATH']}"
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


@pytest.fixture(scope="module")
def installed(folder: Path) -> Path:
    """Where the README's block for a clone has installed the package, without ``make test``."""
    (block,) = re.findall(r"<!-- clone -->\n```bash\n(.*?)```", readme(folder), re.DOTALL)
    lines = [each for each in block.splitlines() if each.split()[:2] != ["make", "test"]]
    assert len(lines) == len(block.splitlines()) - 1  # that one runs this
    assert "new links: 26" in typed(folder, "\n".join(lines), "scrapy-walsh")
    active = str(folder / ACTIVE)
    return Path(sysconfig.get_path("purelib", vars={"base": active, "platbase": active}))


def imported(path: Path) -> set[str]:
    """The packages of others that a module imports, at once or later."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {each.name.partition(".")[0] for each in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            found.add(str(node.module).partition(".")[0])
    return found - sys.stdlib_module_names - {"scrapy_walsh"}


def test_what_the_package_imports_is_declared() -> None:
    """By itself or by what it needs: an environment with these alone is enough."""
    declared: set[str] = set()
    wanted = {"scrapy-walsh"}
    while new := {each.lower().replace("_", "-") for each in wanted} - declared:
        declared |= new
        wanted = {
            needed.name
            for name in new
            for needed in map(Requirement, metadata.requires(name) or ())
            if needed.marker is None or needed.marker.evaluate({"extra": ""})
        }
    here = metadata.packages_distributions()
    missing = {
        name
        for path in Path(scrapy_walsh.__file__).parent.rglob("*.py")
        for name in imported(path)
        if not {each.lower().replace("_", "-") for each in here.get(name, ())} & declared
    }
    assert missing <= OPTIONAL


def readme(folder: Path) -> str:
    return (folder / "scrapy-walsh/README.md").read_text()


def test_the_first_block_of_the_readme_installs_all_of_the_package(
    folder: Path, installed: Path
) -> None:
    files = package(installed)
    assert files == package(folder / "scrapy-walsh")
    assert {".py", ".html", ".css", ".json", ".typed"} <= {each.suffix for each in files}
    assert typed(folder, "walsh --version") == typed(folder, "scrapy-walsh --version")


def test_the_first_block_of_the_readme_runs_a_command_of_the_package(
    folder: Path, installed: Path
) -> None:
    """By a ``uvx`` that has the package, because the real one would fetch all others, too."""
    (block, *_) = re.findall(r"```bash\n(.*?)```", readme(folder), re.DOTALL)
    uvx = 'uvx() { [ "$1 $2" = "--from git+REPOSITORY" ]; shift 2; "$@" --help; }\n'
    said = typed(folder, uvx + block)
    assert [f"usage: walsh {name} " in said for name in ("demo", "read")] == [True, True]


def test_an_index_s_page_has_the_links_of_the_readme_made_absolute(
    folder: Path, installed: Path
) -> None:
    project = tomllib.loads((folder / "scrapy-walsh/pyproject.toml").read_text())["project"]
    repository = project["urls"]["Repository"]
    (found,) = metadata.distributions(name="scrapy-walsh", path=[str(installed)])
    expected = []
    for picture, link in re.findall(r"(!?)\[[^\]]*\]\(([^)\s]+)\)", readme(folder)):
        kind = "raw" if picture else "blob"
        expected.append(link if "://" in link else f"{repository}/{kind}/main/{link}")
    assert LINK.findall(str(found.metadata.get_payload())) == expected
    assert len([each for each in expected if each.startswith(repository)]) > 20


@pytest.mark.usefixtures("installed")
def test_each_pip_install_that_we_name_works(folder: Path) -> None:
    clone = folder / "scrapy-walsh"
    places = [clone / each for each in ("docs", "scrapy_walsh", "bench", "example_project")]
    files = [*clone.glob("*.md"), *(path for place in places for path in place.rglob("*.*"))]
    texts = [path.read_text() for path in files if path.suffix in {".md", ".py", ".txt"}]
    said = {found[0] for text in texts for found in INSTALL.finditer(text)}
    here = {"pip install .", "pip install ./scrapy-walsh"}  # the README's, and the tutorial's
    assert here < said
    assert "Would install scrapy-walsh" in typed(folder, "pip install ./scrapy-walsh --dry-run")
    assert len(said - here) >= 4
    named = " ".join(command.removeprefix("pip install ") for command in sorted(said - here))
    found = typed(folder, f"pip install {named} --dry-run")
    assert "already satisfied: scrapy-walsh[" in found
    assert "does not provide the extra" not in found
