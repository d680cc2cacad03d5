"""The records lead somewhere: each code that is cited has a text, each link of the docs a target.

It reads files and runs nothing.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import scrapy_walsh
from scrapy_walsh.spec import REQUIREMENTS

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parent.parent
PACKAGE = Path(scrapy_walsh.__file__).parent
RECORDS = ROOT / "docs" / "decisions"
CONTRIBUTING = ROOT / "CONTRIBUTING.md"

#: A decision, a trap, a proposal (D8, T1, N3); a requirement, a part, a statement (R4, R2a, R5.3).
CODE = re.compile(r"\b(?:[DTN]\d{1,2}|R\d{1,2}(?:[a-z](?:\.\d+)?|\.\d+)?)\b")
ANCHOR = re.compile(r'<a id="([^"]+)"></a>')
LINK = re.compile(r"\]\(([^)\s]+)\)")
FENCE = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)
#: A file or a folder as the records name it: `policy/chain.py`, `state/`, and where it may lie.
PLACES = (ROOT, PACKAGE.parent, PACKAGE, ROOT / "tests")
PLACE = re.compile(r"`([a-z_]+(?:/[a-z_0-9]+)*(?:\.py|/))`")


def pages() -> list[Path]:
    """Every page of the documentation."""
    return [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]


def citing() -> list[Path]:
    """Every file whose codes must lead somewhere."""
    modules = [path for folder in (PACKAGE, ROOT / "tests", ROOT / "bench")
               for path in sorted(folder.rglob("*.py"))]  # fmt: skip
    return [*pages(), *modules]


def told_by_a_test(source: str) -> str:
    """The docstrings and comments of a module. Its other text is data, which cites nothing."""
    found = [
        ast.get_docstring(node) or ""
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    found += [token.string for token in tokens if token.type == tokenize.COMMENT]
    return "\n".join(found)


def codes_without(path: Path, known: set[str]) -> set[str]:
    """The codes that *path* cites and that are not *known*."""
    text = path.read_text()
    unknown = {code for code in CODE.findall(text) if code.lower() not in known}
    shipped = path.is_relative_to(PACKAGE)
    if not unknown or shipped or path.suffix != ".py":
        return unknown
    return unknown & set(CODE.findall(told_by_a_test(text)))


def anchors_of(text: str) -> list[str]:
    """The link targets of a page: those that it sets, and those that GitHub makes of headings."""
    headings = re.findall(r"^#+ (.+)$", FENCE.sub("", text), re.MULTILINE)
    made = [re.sub(r"[^\w\- ]", "", each.lower()).strip().replace(" ", "-") for each in headings]
    return [*ANCHOR.findall(text), *made]


def records() -> Iterator[tuple[Path, str]]:
    """Each link target of a code, with the page that it is on."""
    for page in sorted(RECORDS.glob("*.md")):
        for anchor in ANCHOR.findall(page.read_text()):
            yield page, anchor


def test_every_code_that_is_cited_leads_to_a_text() -> None:
    known = {anchor for _, anchor in records()}
    without = [
        f"{code} in {path}" for path in citing() for code in sorted(codes_without(path, known))
    ]
    assert not without, f"no text in docs/decisions/ for: {'; '.join(without)}"


def test_no_code_has_two_texts() -> None:
    found = [anchor for _, anchor in records()]
    assert sorted({each for each in found if found.count(each) > 1}) == []


@pytest.mark.parametrize(
    ("code", "page"), [("D8", "decisions"), ("T1", "traps"), ("R5.3", "requirements")]
)
def test_a_code_is_found_on_the_page_of_its_kind(code: str, page: str) -> None:
    assert (RECORDS / f"{page}.md", code.lower()) in list(records())


def test_every_link_of_the_docs_has_a_target() -> None:
    broken = []
    for page in pages():
        for link in LINK.findall(FENCE.sub("", page.read_text())):
            name, _, anchor = link.partition("#")
            if "://" in name:
                continue
            target = page.parent / name if name else page
            if not target.exists() or (anchor and anchor not in anchors_of(target.read_text())):
                broken.append(f"{link} in {page.relative_to(ROOT)}")
    assert not broken, f"links that lead nowhere: {'; '.join(broken)}"


def test_every_file_that_the_records_name_exists() -> None:
    named = [CONTRIBUTING, ROOT / "docs" / "architecture.md", *sorted(RECORDS.glob("*.md"))]
    gone = [
        f"{name} in {page.relative_to(ROOT)}"
        for page in named
        for name in PLACE.findall(page.read_text())
        if not any((folder / name).exists() for folder in PLACES)
    ]
    assert not gone, f"no such file: {'; '.join(gone)}"


def test_the_table_of_decisions_has_each_of_them() -> None:
    text = (RECORDS / "decisions.md").read_text()
    listed = re.findall(r"^\| \[(D\d+)\]", text, re.MULTILINE)
    assert listed == re.findall(r"^## (D\d+):", text, re.MULTILINE)


def test_the_home_of_every_requirement_is_named() -> None:
    text = CONTRIBUTING.read_text()
    for row in REQUIREMENTS:
        anchor = f"[{row.id}](docs/decisions/requirements.md#{row.id.lower()})"
        assert f"| {anchor} | {row.level} | {row.title} | `{row.home}` |" in text
        assert (PACKAGE / row.home).exists()


def test_a_code_is_known_by_its_form() -> None:
    assert CODE.findall("R2a.3, R5.3 and R7g.1 (D8): T1's; 2026-05-23T00:00, RFC 9309, D10x") == [
        "R2a.3", "R5.3", "R7g.1", "D8", "T1",
    ]  # fmt: skip


def test_the_data_of_a_test_cites_nothing() -> None:
    assert CODE.findall(told_by_a_test('"""T1."""\nT0 = 5  # D8\nname = "T99"\n')) == ["T1", "D8"]
