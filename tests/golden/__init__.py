"""What the judges say today, pinned: each pinned test's findings, compared with a golden file.

A test's helper calls ``note`` with what a judge found; ``tests/conftest.py`` compares the notes of
a test with the golden file of its module, after the test has passed. ``python -m tests.golden``
writes the files anew: read the difference before it is committed.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any, Final

HERE: Final = Path(__file__).parent
#: The golden file of each module whose tests are pinned.
MODULES: Final = {
    "tests.ledger.test_verify_forged": "verify_forged",
    "tests.ledger.test_verify_days": "verify_days",
    "tests.audit.test_judge": "audit",
    "tests.conformance.test_judge": "conformance",
    "tests.golden.test_golden": "golden",
}
#: A test that makes more notes than this is pinned by the SHA-256 of them.
MOST: Final = 12

_notes: list[Any] = []
_known: dict[str, dict[str, Any]] = {}


def note(found: Any) -> None:
    """Note what a judge found, as JSON has it."""
    _notes.append(found)


def begin() -> None:
    """A test begins."""
    _notes.clear()


def noted(directory: Path | None) -> Any:
    """The notes of the test; *directory*: its own, which no golden file may name. None: nothing."""
    if not _notes:
        return None
    text = json.dumps(_notes)
    if directory is not None:
        text = text.replace(f"{directory}/", "").replace(str(directory), ".")
    if len(_notes) > MOST:
        return {"notes": len(_notes), "sha256": hashlib.sha256(text.encode()).hexdigest()}
    return json.loads(text)


def read(name: str) -> dict[str, Any]:
    """The golden file *name*: what was found, by test."""
    if name not in _known:
        path = HERE / f"{name}.json"
        _known[name] = json.loads(path.read_bytes()) if path.exists() else {}
    return _known[name]


def put(name: str, test: str, found: Any) -> None:
    """Pin what *test* found; ``save`` writes it."""
    read(name)[test] = found


def save() -> None:
    """Write the golden files, a test a line."""
    for name, tests in _known.items():
        lines = (
            f"{json.dumps(test)}: {json.dumps(tests[test], separators=(',', ':'))}"
            for test in sorted(tests)
        )
        (HERE / f"{name}.json").write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
