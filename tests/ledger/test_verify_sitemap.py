"""What a sitemap index declares, in ledgers written by hand: derived again, or found."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from scrapy_walsh.ledger.files import DOCUMENTS, Documents
from tests.kit import LIST, ROBOTS, Forge, H, digest, report_of, told, write

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

INDEX, CHILD = f"{H}/index.xml", f"{H}/a.xml"
FOUND = "could not declare"


def forged(children: bool = True) -> Forge:
    """A run that requested an index."""
    forge = Forge()
    forge.start(0, "one", "p1")
    forge.add(0.1, "declared", url=INDEX, **({"children": True} if children else {}))
    forge.operator_list(1)
    forge.robots(1.1)
    forge.get(1.2, INDEX)
    return forge


def listed(forge: Forge, url: str = CHILD, by: str = INDEX) -> dict[str, Any]:
    return forge.add(1.3, "declared", url=url, by=by)


def found(forge: Forge, folder: Path) -> tuple[list[str], list[str]]:
    """The findings, and the notes."""
    write(folder, forge.entries)
    documents = Documents(folder / DOCUMENTS)
    for body in (LIST, ROBOTS):
        documents.put("any", body, digest(body), 1)
    report = report_of(folder)
    return list(told(report)), report.notes


def test_what_an_index_declared_is_within_scope(tmp_path: Path) -> None:
    forge = forged()
    listed(forge)
    forge.get(3.3, CHILD)
    forge.add(4, "ended", reason="finished")
    findings, notes = found(forge, tmp_path)
    assert findings == []
    assert any("an attestation says R6 false for that" in note for note in notes)


def without_leave(forge: Forge) -> dict[str, Any]:
    del forge.only("declared", INDEX)["children"]
    return listed(forge)


def before_an_answer(forge: Forge) -> dict[str, Any]:
    entry = listed(forge)
    asked = forge.only("asked", INDEX)
    forge.entries.remove(entry)
    forge.entries.insert(forge.index(asked), {**entry, "at": asked["at"]})
    return forge.entries[forge.index(asked) - 1]


def of_another_host(forge: Forge) -> dict[str, Any]:
    return listed(forge, "http://other.test/a.xml")


def of_a_child(forge: Forge) -> dict[str, Any]:
    listed(forge)
    forge.get(3.3, CHILD)
    return listed(forge, f"{H}/deep.xml", CHILD)


def the_one_after_a_thousand(forge: Forge) -> dict[str, Any]:
    for number in range(1000):
        listed(forge, f"{H}/{number}.xml")
    return listed(forge, f"{H}/1000.xml")


@pytest.mark.parametrize(
    "forgery",
    [without_leave, before_an_answer, of_another_host, of_a_child, the_one_after_a_thousand],
    ids=lambda each: each.__name__,
)
def test_r6_2_what_an_index_may_not_declare_is_found(
    forgery: Callable[[Forge], dict[str, Any]], tmp_path: Path
) -> None:
    forge = forged()
    entry = forgery(forge)
    findings, _ = found(forge, tmp_path)
    assert [line for line in findings if f"line {forge.number(entry)}: R6: " in line]
    assert len([line for line in findings if FOUND in line]) == 1
