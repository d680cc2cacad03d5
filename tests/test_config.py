"""Settings: each is checked, and a bad one is one line that names it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import fields, replace
from scrapy import Request

from scrapy_walsh.config import SETTINGS, Setting, WalshConfig, unknown_settings
from scrapy_walsh.exceptions import ConfigError
from scrapy_walsh.proof.verify.terms import Terms, broken_terms, out_of_bounds
from scrapy_walsh.spec import REQUIREMENTS

OWN = {
    "product": "ExampleBot/1.0",
    "policy_url": "https://bot.example/policy",
    "blocklist_url": "https://bot.example/blocklist.json",
}


def read(**settings: Any) -> WalshConfig:
    return WalshConfig.from_settings({"WALSH_IDENTITY": OWN, **settings}, lambda: "default")


def test_r6c_1_constants_are_the_defaults():
    config = read()
    assert (config.min_interval, config.max_retries) == (1.0, 5)
    assert (config.backoff_base, config.backoff_cap) == (1.0, 60.0)
    assert (config.robots_ttl, config.patience, config.revisit) == (86400.0, 300.0, 86400.0)
    assert (config.robots_unreachable, config.pace_robots, config.follow_links) == (
        "allow",
        False,
        False,
    )
    assert config.exit_attention is False
    assert config.state_dir == Path("default")


def test_r5c_1_walsh_identity_holds_the_canonical_urls():
    config = read(WALSH_IDENTITY="walsh-research")
    root = "https://wal.sh/.well-known/walsh-research"
    assert config.blocklist_url == f"{root}/blocklist.json"
    assert config.schema_url == f"{root}/blocklist.schema.json"
    assert config.identity.user_agent == (
        "Mozilla/5.0 (compatible; Walsh-Research/1.2; +https://wal.sh/bot/)"
    )


def test_mirror_is_known_as_one():
    config = read(WALSH_BLOCKLIST_URL="http://127.0.0.1:1/list.json")
    assert config.blocklist_url == "http://127.0.0.1:1/list.json"


@pytest.mark.parametrize(
    "path",
    [
        *("/l.json", "/l?", "?", "/l?#f", "/a|b", "/{x}?a=[b]", "/l.json?v=1&w=%7C", "/%"),
        *("//x/../l", "/./l;p", '/^?q=`"', "/a\\b"),
    ],
)
def test_the_operators_urls_are_those_that_scrapy_sends(path: str) -> None:
    url = f"https://bot.example{path}"
    own = {**OWN, "blocklist_url": url, "schema_url": url}
    in_identity = read(WALSH_IDENTITY=own)
    by_setting = read(WALSH_BLOCKLIST_URL=url, WALSH_BLOCKLIST_SCHEMA_URL=url)
    sent = Request(url).url
    assert sent == Request(sent).url
    for config in in_identity, by_setting:
        assert config.blocklist_url == sent
        assert config.schema_url == sent
    # An attestation has no difference to tell.
    assert in_identity.identity.blocklist_url == in_identity.identity.schema_url == sent


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("WALSH_MIN_INTERVAL", 0.5),
        ("WALSH_MIN_INTERVAL", "fast"),
        ("WALSH_MIN_INTERVAL", float("nan")),
        ("WALSH_MIN_INTERVAL", True),
        ("WALSH_MAX_RETRIES", 6),
        ("WALSH_MAX_RETRIES", 2.5),
        ("WALSH_MAX_RETRIES", -1),
        ("WALSH_BACKOFF_BASE", 0),
        ("WALSH_BACKOFF_CAP", "x"),
        ("WALSH_PATIENCE", -1),
        ("WALSH_ROBOTS_TTL", 86401),
        ("WALSH_ROBOTS_UNREACHABLE", "ignore"),
        ("WALSH_BLOCKLIST_UNREACHABLE", "ignore"),
        ("WALSH_PACE_ROBOTS", "maybe"),
        ("WALSH_ROBOTS_CACHE_SIZE", 0),
        ("WALSH_EXCLUDED_TLDS", 5),
        ("WALSH_EXCLUDED_TLDS", [1]),
        ("WALSH_REVISIT", 60),
        ("WALSH_REVISIT_REASON", ""),
        ("WALSH_REVISIT_REASON", "two\nlines"),
        ("WALSH_FOLLOW_LINKS", "x"),
        ("WALSH_EXIT_ATTENTION", "loud"),
        ("WALSH_SCRAPING", "x"),
        ("WALSH_USAGE", "train-ai"),
        ("WALSH_USAGE", ["train-ai"]),
        ("WALSH_USAGE", {"train_ai": "refuse"}),
        ("WALSH_USAGE", {"ai-trains=": "refuse"}),
        ("WALSH_USAGE", {"use=immediate": "refuse"}),
        ("WALSH_USAGE", {"useful use": "refuse"}),
        ("WALSH_USAGE", {"train-ai": "deny"}),
        ("WALSH_USAGE", {"train-ai": ["refuse"]}),
        ("WALSH_BLOCKLIST_URL", "ftp://h.test/"),
        ("WALSH_BLOCKLIST_URL", "blocklist.json"),
        ("WALSH_BLOCKLIST_SCHEMA_URL", 7),
        ("WALSH_STATE_DIR", ""),
        ("WALSH_STATE_DIR", 5),
        ("DOWNLOAD_DELAY", "x"),
    ],
)
def test_bad_value_names_the_setting_and_the_value(name, value):
    with pytest.raises(ConfigError) as caught:
        read(**{name: value})
    message = str(caught.value)
    assert message.startswith(name)
    assert repr(value) in message
    assert "\n" not in message


@pytest.mark.parametrize(
    ("name", "given", "field", "value"),
    [
        ("WALSH_MIN_INTERVAL", "2.5", "min_interval", 2.5),
        ("WALSH_MAX_RETRIES", "0", "max_retries", 0),
        ("WALSH_PACE_ROBOTS", "True", "pace_robots", True),
        ("WALSH_FOLLOW_LINKS", "1", "follow_links", True),
        ("WALSH_SCRAPING", "true", "scraping", True),
        ("WALSH_USAGE", '{"train-ai": "refuse"}', "usage", (("train-ai", "refuse"),)),
        ("WALSH_USAGE", '{"search": "record"}', "usage", (("search", "record"),)),
        (
            "WALSH_USAGE",
            {"ai-train": "refuse", "train-ai": "record", "x.new": "refuse", "use=full": "refuse"},
            "usage",
            (("train-ai", "refuse"), ("use=full", "refuse"), ("x.new", "refuse")),
        ),
        ("WALSH_EXCLUDED_TLDS", "gov,.mil", "excluded_tlds", ("gov", ".mil")),
        ("WALSH_EXCLUDED_TLDS", '["gov"]', "excluded_tlds", ("gov",)),
        ("WALSH_STATE_DIR", "memory", "state_dir", None),
        ("DOWNLOAD_DELAY", "3", "min_interval", 3.0),
        ("DOWNLOAD_DELAY", "0.25", "min_interval", 1.0),
    ],
)
def test_command_line_values_are_read(name, given, field, value):
    assert getattr(read(**{name: given}), field) == value


def test_identity_as_json_is_read():
    """The command line and job settings carry text only."""
    config = read(WALSH_IDENTITY='{"product": "B/1.0", "policy_url": "https://b.example/",'
                  ' "blocklist_url": "https://b.example/list.json"}')  # fmt: skip
    assert config.identity.token == "B"


def test_r6_1_walsh_research_never_follows_links():
    with pytest.raises(ConfigError, match="WALSH_FOLLOW_LINKS"):
        read(WALSH_IDENTITY="walsh-research", WALSH_FOLLOW_LINKS=True)


def test_r9_1_walsh_research_never_scrapes():
    with pytest.raises(ConfigError, match=r"WALSH_SCRAPING is True.*your own.*R9"):
        read(WALSH_IDENTITY="walsh-research", WALSH_SCRAPING=True)


def test_no_identity_names_both_choices():
    with pytest.raises(ConfigError) as caught:
        WalshConfig.from_settings({}, lambda: "default")
    assert "walsh-research" in str(caught.value)
    assert "product" in str(caught.value)


def test_unknown_setting_is_named_with_what_it_may_mean():
    lines = unknown_settings({"WALSH_MIN_INTERVALL": 30, "WALSH_PATIENCE": 1, "BOT_NAME": "x"})
    assert len(lines) == 1
    assert "WALSH_MIN_INTERVALL" in lines[0]
    assert "WALSH_MIN_INTERVAL?" in lines[0]


def test_every_setting_is_read_nowhere_else():
    package = Path(__file__).parent.parent / "scrapy_walsh"
    readers = {
        path.relative_to(package).as_posix()
        for path in package.rglob("*.py")
        if re.search(r"""get\w*\(\s*["']WALSH_""", path.read_text())
    }
    assert readers <= {"config.py"}


# -- one table ----------------------------------------------------------------------------

BOUND = [each for each in SETTINGS if each.row.least is not None or each.row.most is not None]


def test_the_table_has_each_field_and_each_default_is_accepted() -> None:
    config = WalshConfig.from_settings({"WALSH_IDENTITY": "walsh-research"}, Path)
    assert [each.field for each in SETTINGS] == [*config.__slots__]
    assert not list(out_of_bounds(config))
    assert {each.row.requirement for each in SETTINGS} <= {row.id for row in REQUIREMENTS} | {
        "R0.6"
    }


@pytest.mark.parametrize("setting", BOUND, ids=lambda each: each.name)
def test_a_ledger_is_judged_by_the_bounds_of_the_table(setting: Setting) -> None:
    """``verify`` finds each bound that ``doctor`` fails, those of the back-off as well."""
    row = setting.row
    beyond = row.least / 2 if row.least is not None else (row.most or 0) * 2
    terms = replace(Terms(token="T"), **{setting.field: type(row.default)(beyond)})
    found = [(id_, text) for id_, text in broken_terms(terms) if setting.field in text]
    assert found[0][0] == row.requirement
    assert re.search(rf"{setting.field} is {beyond:g}.*(below|above)", found[0][1])


def test_the_terms_of_a_ledger_are_the_rows_that_say_so() -> None:
    stated = {each.field for each in SETTINGS if each.row.terms}
    assert stated < {each.name for each in fields(Terms)}


def test_metrics_without_their_package_are_one_line_at_the_start(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    with pytest.raises(ConfigError, match=r"^WALSH_METRICS needs a package: pip install '\S+'$"):
        read(WALSH_METRICS="walsh.prom")
