"""The reference says what the code does: settings, meta keys, exceptions, docstrings."""

from __future__ import annotations

import ast
import inspect
import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import scrapy_walsh
from scrapy_walsh import exceptions
from scrapy_walsh.adapters import outcomes
from scrapy_walsh.commands.common import default_state_dir
from scrapy_walsh.config import DEFAULTS, WalshConfig
from scrapy_walsh.exceptions import ConfigError
from scrapy_walsh.proof.sandbox import Route
from tests.crawl.harness import SETTINGS, site, solo

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
IDENTITY = {
    "product": "OurBot/1.0",
    "policy_url": "https://bots.org/policy",
    "blocklist_url": "https://bots.org/blocklist.json",
}


def section(title: str) -> str:
    """The part of reference.md under a heading of the second level."""
    text = (DOCS / "reference.md").read_text().partition(f"\n## {title}\n")[2]
    assert text, title
    return text.partition("\n## ")[0]


def rows(text: str) -> Iterator[list[str]]:
    """The cells of each row of a text's tables whose first cell is a name in code."""
    for line in text.splitlines():
        if line.startswith("| `"):
            yield [cell.strip() for cell in line.strip("|").split(" | ")]


def run_block(name: str) -> str:
    """The Python code of reference.md that a comment says is run."""
    text = (DOCS / "reference.md").read_text()
    found = re.search(rf"<!-- run: {name} -->\n```python\n(.*?)```", text, re.DOTALL)
    assert found is not None, name
    return found[1]


# -- settings.md --------------------------------------------------------------------------

SHOWN = {name.strip("`"): rest for name, *rest in rows((DOCS / "settings.md").read_text())}


def config(**settings: Any) -> WalshConfig:
    return WalshConfig.from_settings({"WALSH_IDENTITY": IDENTITY, **settings}, default_state_dir)


def test_settings_are_all_on_the_page_with_their_defaults() -> None:
    assert SHOWN.keys() == DEFAULTS.keys()
    for name, default in DEFAULTS.items():
        if default is not None and default != ():
            assert SHOWN[name][0].strip("`") == str(default), name
        else:
            assert SHOWN[name][0] in {"none", "the identity's", "`.scrapy/walsh`"} or (
                name == "WALSH_IMPL"
            )


def bounds() -> Iterator[tuple[str, str, float]]:
    for name, (_, accepted, _) in SHOWN.items():
        for word, number in re.findall(r"at (least|most) ([\d.]+)", accepted):
            yield name, word, float(number)


@pytest.mark.parametrize(("name", "word", "bound"), list(bounds()))
def test_a_bound_on_the_page_is_the_one_that_is_kept(name: str, word: str, bound: float) -> None:
    config(**{name: bound})
    step = 1 if DEFAULTS[name].__class__ is int else 1e-6
    with pytest.raises(ConfigError, match=f"{name} is .* at {word}"):
        config(**{name: bound - step if word == "least" else bound + step})


def choices() -> Iterator[tuple[str, str]]:
    for name, (_, accepted, _) in SHOWN.items():
        named = re.findall(r"`(\w+)`", accepted)
        if " or `" in accepted and not accepted.startswith("a d"):
            yield from ((name, each) for each in named)


@pytest.mark.parametrize(("name", "value"), list(choices()))
def test_a_choice_on_the_page_is_accepted_and_no_other(name: str, value: str) -> None:
    config(**{name: value})
    with pytest.raises(ConfigError, match=f"{name} is 'perhaps'"):
        config(**{name: "perhaps"})


# -- reference.md: keys of meta ------------------------------------------------------------

#: What else begins so: the reason for which a crawl was refused, an attribute of log records, a
#: collection of Scrapy Cloud, a spider.
NO_META = {"walsh_not_well", "walsh_refused", "walsh_event", "walsh_leases", "walsh_metadata"}


def test_the_page_names_every_meta_key() -> None:
    found = set()
    for folder in ("adapters", "sources", "spiders", "fleet"):
        for path in (Path(scrapy_walsh.__file__).parent / folder).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Constant) and isinstance(node.value, str):
                    found |= set(re.findall(r"\Awalsh_[a-z_]+\Z", node.value))
    named = set(re.findall(r"`(walsh_[a-z_]+)`", section("Keys of Request.meta")))
    assert named == found - NO_META


def test_the_spider_of_the_meta_page_falls_back_to_http(tmp_path: Path) -> None:
    code = run_block("try https").replace(".example", ".test").replace('"bare_hosts"', '"probe"')
    feed = Route(body="<rss/>", content_type="application/rss+xml")
    plain = replace(site("first.test", {"/feed.xml": feed}), tls=False)
    run = solo(
        tmp_path / "bare",
        spider=code,
        sites=(plain, site("second.test", {"/feed.xml": feed})),
        settings=SETTINGS,
    )
    fetched = {item["url"] for item in run.items}
    assert fetched == {"http://first.test/feed.xml", "https://second.test/feed.xml"}


# -- reference.md: exceptions -------------------------------------------------------------


def test_the_page_names_every_exception_and_its_base() -> None:
    text = section("Exceptions in an errback") + section("Exceptions that the package raises")
    shown = {name.strip("`"): rest for name, *rest in rows(text)}
    errors = {
        name: value
        for name, value in vars(exceptions).items()
        if isinstance(value, type) and name != "WalshError"
    }
    # NotYet reaches no errback.
    ends = {
        name
        for name, value in vars(outcomes).items()
        if isinstance(value, type) and value.__module__ == outcomes.__name__ and name != "NotYet"
    }
    assert shown.keys() == errors.keys() | ends
    for name, error in errors.items():
        assert shown[name][0].strip("`") == error.__bases__[-1].__name__, name
    for name in ends:
        error = getattr(outcomes, name)
        signature = inspect.signature(error).parameters if "__init__" in vars(error) else ()
        assert set(re.findall(r"`(\w+)`", shown[name][1])) <= {*signature, "verdict"}
        assert all(f"`{each}`" in shown[name][1] for each in signature)


def test_the_spider_of_the_exceptions_page_runs(tmp_path: Path) -> None:
    code = run_block("errback").replace(".example", ".test").replace('"careful"', '"probe"')
    closed = "User-agent: *\nDisallow: /\n"
    run = solo(tmp_path / "open", spider=code, sites=(site("site.test"),), settings=SETTINGS)
    assert [item["url"] for item in run.items] == ["https://site.test/feed.xml"]
    run = solo(
        tmp_path / "closed", spider=code, sites=(site("site.test", {}, closed),), settings=SETTINGS
    )
    assert run.items == []
    assert run.lines("disallowed_explicit by R2")


# -- api.md -------------------------------------------------------------------------------


def test_the_page_of_docstrings_has_the_whole_public_face() -> None:
    named = re.findall(r"\.\. auto\w+:: ([\w.]+)", (DOCS / "api.md").read_text())
    for name in scrapy_walsh.__all__:
        if not name.isupper() and not name.startswith("__") and name != "WalshError":
            assert name in named
    assert "scrapy_walsh.exceptions" in named  # and so WalshError


# -- faq.md -------------------------------------------------------------------------------


def test_the_reason_of_the_faq_is_one_that_is_accepted() -> None:
    text = (DOCS / "faq.md").read_text()
    found = re.search(r'<!-- reason -->\n```bash\n.*-s WALSH_REVISIT_REASON="(.*)"\n```', text)
    assert found is not None
    assert config(WALSH_REVISIT_REASON=found[1]).revisit_reason == found[1]
