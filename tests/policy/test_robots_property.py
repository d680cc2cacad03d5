"""Any file, any URL: what some reading of section 9.1 denies is never allowed."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from protego import Protego

from scrapy_walsh.policy.robots.file import parse_robots
from scrapy_walsh.policy.robots.rules import as_octets, normalize, normalize_values
from tests.policy.robots_oracle import oracle, paths

TOKEN = "Walsh-Research"
NAMES = ["*", "Walsh-Research", "walsh", "w", "walsh*", "walsh-research/1.2", "walsh2", "GPTBot"]
NAMES += ["* all", "*bot", "walsh/2", "walsh-research2", "walsh-researcher", "\xa0walsh\u2002"]
PIECES = ["a", "b", "/", "/", "%61", "%2F", "%2f", "é", "%C3", "%A9", "?", "=", "%3D", "%", "2"]
PIECES += ["[", "%5b", "]", "%5D"]
DOTS = ["/.", "/..", "/%2e%2E/", ".", "\\", "..\\"]

values = st.lists(st.sampled_from([*PIECES, "*", "*", "**", "$", "%24", "%2A"]), max_size=6)
patterns = st.builds(
    lambda lead, body, tail: lead + "".join(body) + tail,
    st.sampled_from(["/", "/", "/", "", "*"]),
    values,
    st.sampled_from(["", "", "", "$", "$", "\u2002", "\udca0"]),
)
targets = st.lists(st.sampled_from([*PIECES, *DOTS, "$", "*"]), max_size=8).map(
    lambda pieces: "/" + "".join(pieces)
)
rule_lines = st.builds("{}: {}".format, st.sampled_from(["Allow", "Disallow"]), patterns)
other_lines = st.sampled_from(
    ["Crawl-delay: 2", "Sitemap: /s.xml", "Content-Signal: a=b", "# x", ""]
)
name_lines = st.sampled_from(NAMES).map("User-agent: {}".format)
files = st.builds(
    lambda first, lines, end: end.join([first, *lines]),
    name_lines,
    st.lists(st.one_of(rule_lines, rule_lines, name_lines, other_lines), max_size=8),
    st.sampled_from(["\n", "\r\n", "\r"]),
)


@pytest.mark.slow
@settings(max_examples=4 * settings.default.max_examples)
@given(files, targets)
@example("User-agent: *\nDisallow: /*a\nAllow: /ab", "/aba")  # only each * at its most denies
@example("User-agent: *\nDisallow: /a\nAllow: /*", "/abc")  # only each * at its least
@example("User-agent: *\nDisallow: /****x\nAllow: /%61:*x", "/a:bbx")  # only the pattern's octets
@example("User-agent: *\nDisallow: /*b$\nAllow: /aab", "/aab")  # since $ counts
@example("User-agent: *\nDisallow: /\n\nUser-agent: walsh-research2\nAllow: /", "/a")
@example("User-agent: *\nAllow: /\n\nUser-agent: walsh/2\nDisallow: /", "/a")
@example("User-agent: *\xa0\nDisallow:\u2002/a\udca0", "/a")
@example("User-agent: *\nDisallow: /%C3\nAllow: /*A9", "/é")
@example("User-agent: *\nDisallow: /a[\nAllow: /a%5B*", "/a%5B")  # only brackets as octets
@example("User-agent: *\nDisallow: /a/b", "/a\\b")
@example("User-agent: *\nDisallow: $", "/a\\b/..")  # two forms are resolved ones
def test_r2c_allowed_if_and_only_if_every_reading_and_protego_allow(text: str, target: str) -> None:
    url = "http://h.test" + target
    answers = oracle(text, TOKEN, target)
    allowed = parse_robots(text.encode("utf-8", "surrogateescape"), TOKEN).decide(url).allowed
    protego = Protego.parse(text.encode("utf-8", "replace").decode())
    if allowed:
        assert all(answers.values())
        assert protego.can_fetch(url, TOKEN)
    elif all(answers.values()):
        forms = [url, *("http://h.test" + path for path in paths(target))]
        assert not all(protego.can_fetch(form, TOKEN) for form in forms)


@settings(max_examples=2 * settings.default.max_examples)
@given(st.binary(max_size=200), st.text(max_size=30))
def test_no_octets_and_no_url_raise(body: bytes, url: str) -> None:
    robots = parse_robots(body, TOKEN)
    assert robots.decide(url).requirement == "R2"
    assert "\n" not in robots.decide(url).reason


@given(files, targets)
def test_r2c_a_group_for_everybody_else_changes_nothing(text: str, target: str) -> None:
    more = "User-agent: GoogleBot\nAllow: /\n\n" + text
    before = parse_robots(text.encode("utf-8", "surrogateescape"), TOKEN).decide(target)
    after = parse_robots(more.encode("utf-8", "surrogateescape"), TOKEN).decide(target)
    assert (before.allowed, before.name) == (after.allowed, after.name)


FIELDS = ["User-agent:", "useragent ", "user agent", "\tUser-agent :", "user  agent:", "Disallow:"]
FIELDS += ["disallow ", "Allow:", "foo:", "foo ", "Sitemap:", "Request-rate:", "#", ""]
#: Names and rules as Protego takes them, with a colon and without, beside lines that say nothing.
LOOSE = st.builds(
    "{}{}{}{}".format,
    st.sampled_from(FIELDS),
    st.sampled_from([" ", "", "\xa0"]),
    st.sampled_from([*NAMES, "b", "b: c", "b:c", "wal*sh", "research", "/", "/a", "/*a$", ""]),
    st.sampled_from(["", "", " ", ":", "# c: d"]),
)


@pytest.mark.slow
@settings(max_examples=4 * settings.default.max_examples)
@given(
    st.lists(LOOSE, max_size=12),
    st.sampled_from(["\n", "\n\n", "\x0b", "\u2028"]),
    st.sampled_from(["/", "/a", "/aa", "/b"]),
)
@example(["useragent b", "user agent *", "foo b", "disallow /a"], "\n", "/a")
def test_d1_what_protego_denies_however_it_is_written_is_denied(
    lines: list[str], end: str, target: str
) -> None:
    text = end.join(lines)
    if parse_robots(text.encode(), TOKEN).decide(target).allowed:
        assert Protego.parse(text).can_fetch(target, TOKEN)


VALUES = st.lists(st.text("aZ/%2fF*$?é\x0b\udc80 ", min_size=1), min_size=1)


@given(VALUES)
def test_values_are_spelt_together_as_each_alone(values: list[str]) -> None:
    spelt = normalize_values(values)
    assert spelt == ["*".join(map(normalize, value.split("*"))) for value in values]
    assert as_octets("\n".join(spelt)).split("\n") == list(map(as_octets, spelt))
