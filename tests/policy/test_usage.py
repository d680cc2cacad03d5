"""What a site says about use: the drafts' examples, malformed fields, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from scrapy_walsh.policy import chain
from scrapy_walsh.policy.gates import Gates
from scrapy_walsh.policy.list.blocklist import Blocklist
from scrapy_walsh.policy.robots import groups
from scrapy_walsh.policy.robots.file import Robots, no_rules, parse_robots
from scrapy_walsh.policy.robots.usage import (
    CATEGORIES,
    Statement,
    as_member,
    combine,
    of_feed,
    of_response,
    refused_use,
)
from scrapy_walsh.policy.scope import Scope

DOCUMENT = "http://site.test/robots.txt"
PAGE = "http://site.test/page"


def robots(text: str, token: str = "OtherBot") -> Robots:  # noqa: S107
    return parse_robots(text.encode(), token, DOCUMENT)


def values(found: tuple[Statement, ...]) -> list[str]:
    return [statement.value for statement in found]


def preferences(text: str, path: str = "/page", token: str = "OtherBot") -> dict[str, bool]:  # noqa: S107
    return combine(robots(text, token).said(f"http://site.test{path}"))


# -- draft-ietf-aipref-attach -------------------------------------------------------------

#: The draft's example: of a simple robots.txt, and its table of paths.
EXAMPLE = """\
User-Agent: *
Allow: /
Disallow: /never/
Content-Usage: train-ai=n
Content-Usage: /ai-ok/ train-ai=y

User-Agent: ExampleBot
Allow: /
Content-Usage: train-ai=y
"""


@pytest.mark.parametrize(
    ("token", "path", "crawl", "expected"),
    [
        ("OtherBot", "/test", True, {"train-ai": False}),
        ("OtherBot", "/never/test", False, None),
        ("OtherBot", "/ai-ok/test", True, {"train-ai": True}),
        ("ExampleBot", "/never/test", True, {"train-ai": True}),
    ],
)
def test_the_example_of_the_draft(
    token: str, path: str, crawl: bool, expected: dict[str, bool] | None
):
    rules = robots(EXAMPLE, token)
    assert rules.decide(path).allowed is crawl
    if expected is not None:  # what may not be crawled has no statement that matters
        assert preferences(EXAMPLE, path, token) == expected


def test_a_statement_has_its_line_and_its_own_words():
    (said,) = robots(EXAMPLE).said("http://site.test/ai-ok/x?q=1")
    assert said == Statement(
        "Content-Usage", "train-ai=y", DOCUMENT, 5, preferences=(("train-ai", True),)
    )
    assert str(said) == "robots.txt:5 Content-Usage: train-ai=y"
    assert said.members() == {
        "field": "Content-Usage",
        "value": "train-ai=y",
        "document": DOCUMENT,
        "line": 5,
    }


GROUP = "User-agent: *\n"


@pytest.mark.parametrize(
    ("lines", "path", "expected"),
    [
        # The longest path wins, as for Allow and Disallow, with their * and $ and escapes.
        ("Content-Usage: / train-ai=n\nContent-Usage: /a train-ai=y", "/ab", True),
        ("Content-Usage: /a/ train-ai=n\nContent-Usage: train-ai=y", "/b", True),
        ("Content-Usage: /*.pdf$ train-ai=n\nContent-Usage: / train-ai=y", "/x.pdf", False),
        ("Content-Usage: /*.pdf$ train-ai=n\nContent-Usage: / train-ai=y", "/x.pdf?a", True),
        ("Content-Usage: /caf%C3%A9 train-ai=n", "/caf%c3%a9", False),
        ("Content-Usage: /a?b train-ai=n", "/a?b=c", False),
        # Tabs, blanks around the colon, upper case in the name, and a comment.
        ("content-usage :  /a\ttrain-ai=n  # why", "/a", False),
        # Identical paths are combined: what disallows prevails, in either order.
        ("Content-Usage: /a train-ai=y\nContent-Usage: /a train-ai=n", "/a", False),
        ("Content-Usage: /a train-ai=n\nContent-Usage: /a train-ai=y", "/a", False),
        # A path without a preference says nothing, and still is the longest.
        ("Content-Usage: train-ai=n\nContent-Usage: /a", "/a", None),
        # What begins with anything but a slash has no path.
        ("Content-Usage: *.pdf train-ai=n", "/a.pdf", False),
        # A rule that cannot be read hides no rule that can be, whatever its path.
        ("Content-Usage: / train-ai=n\nContent-Usage: /a train-ai=(y", "/ab", False),
        ("Content-Usage: train-ai=n\nContent-Usage: /a train-ai=(y", "/ab", False),
        ("Content-Usage: / train-ai=y\nContent-Usage: /a train-ai=(y", "/ab", True),
        ("Content-Usage: / train-ai=y\nContent-Usage: /a TRAIN-AI=No,", "/ab", False),
    ],
)
def test_the_longest_path_applies(lines: str, path: str, expected: bool | None):
    assert preferences(f"{GROUP}{lines}\n", path).get("train-ai") is expected


def test_the_lines_of_our_group_apply_and_no_others():
    text = "User-agent: OtherBot\nDisallow:\n\nUser-agent: *\nContent-Usage: train-ai=n\n"
    assert preferences(text) == {}
    assert preferences(text, token="ThirdBot") == {"train-ai": False}


def test_where_names_can_be_read_in_two_ways_what_disallows_prevails():
    """D1: `OtherBot/2.0` is our name, or it is not, and then the group of * is ours."""
    text = "User-agent: OtherBot/2.0\nContent-Usage: train-ai=y\n\n"
    text += "User-agent: *\nContent-Usage: train-ai=n\n"
    assert preferences(text) == {"train-ai": False}


def test_the_longest_path_applies_within_one_way_to_read_the_names():
    one = "User-agent: OtherBot\nContent-Usage: train-ai=n\nAllow: /\n"
    other = "User-agent: OtherBot/1.0\nContent-Usage: /page train-ai=y\nAllow: /\n"
    assert preferences(one + other) == {"train-ai": False}


def test_r2_2_a_usage_line_changes_no_group():
    """The specification does not know it, so a User-agent line after it goes on with the names."""
    text = "User-agent: OtherBot\nContent-Usage: train-ai=n\nUser-agent: b\nDisallow: /x\n"
    assert not robots(text).decide("/x").allowed


def test_a_file_that_takes_too_long_to_match_is_malformed():
    text = f"{GROUP}Disallow: /x\n"
    text += "".join(f"Content-Usage: /*a*{n}*b train-ai=n\n" for n in range(20_000))
    (said,) = robots(text).said("http://site.test/" + "ab" * 2000)
    assert (said.malformed, said.line) == ("the rules would take too long to match", 3)
    assert combine([said]) == {}


# -- draft-ietf-aipref-vocab --------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("train-ai=y, search=n", {"train-ai": True, "search": False}),
        # The draft's own cases: the last value of a key counts, and must be a token y or n. But
        # each *no* beside a category forbids it (D1).
        ('train-ai=y, train-ai, search=n, search="n"', {"search": False}),
        ("train-ai=n, train-ai=y", {"train-ai": False}),
        ("train-ai=?0", {"train-ai": False}),
        ("train-ai=false", {"train-ai": False}),
        ("train-ai=none", {}),
        ("train-ai=0.5", {}),
        ("train-ai;allow=n, train-ai=y", {"train-ai": True}),
        ('train-ai;has;parameters="?"', {}),
        # Values that are not known say nothing.
        ("train-ai=yes", {}),
        ("train-ai=1", {}),
        # A label that is not known counts as it stands (issue 43): it may be named in WALSH_USAGE.
        ("future=n, train-ai=n", {"future": False, "train-ai": False}),
        ("ai-use=n, x_1.y*=y, future=maybe", {"ai-use": False, "x_1.y*": True}),
        ("future=n, future=y", {"future": False}),
        ("train-ai=y;future=n, search=y; future=n", {"train-ai": True, "search": True}),
        # Labels of Content-Signal and RSL allow nothing here.
        ("ai-train=y, ai-train=n", {"train-ai": False}),
        ("ai-train=y", {}),
        ("", {}),
    ],
)
def test_preferences_of_a_value(value: str, expected: dict[str, bool]):
    (said,) = of_response({"content-usage": [value]}, PAGE, "Bot") or (None,)
    assert said is not None
    assert dict(said.preferences) == expected
    assert said.malformed == ""


@pytest.mark.parametrize(
    "value",
    [
        "Train-AI=y",
        "train-ai=y,",
        "train-ai=",
        "train-ai=y; search=é",
        "train-ai=\x00n",
        "train-ai=y " + "," * 5000,
        "(train-ai=y",
        "train-ai=nothing,",
    ],
)
@pytest.mark.parametrize("where", ["header", "robots.txt"])
def test_a_malformed_field_is_recorded_and_allows_nothing(value: str, where: str):
    if where == "header":
        (said,) = of_response({"content-usage": [value]}, PAGE, "Bot")
    else:
        (said,) = robots(f"{GROUP}Content-Usage: {value}\n").said(PAGE)
    assert said.malformed
    assert said.preferences == ()
    assert said.members()["malformed"] == said.malformed
    assert str(said).isprintable()
    assert len(str(said)) < 700


@pytest.mark.parametrize(
    "value",
    [
        "Train-AI=N", "train-ai=n,", "train-ai=n; search=é", "(ai-train = no", "train-ai=NO",
        "train-ai=nö", "ai-train: no", "ai-train no", "train-ai='false'", "train-ai=n, train-ai=y",
        "not-train-ai=y, train-ai=n,",
    ],
)  # fmt: skip
def test_a_plain_no_is_heard_however_badly_the_field_is_written(value: str):
    text = f"{GROUP}Content-Usage: {value}\nContent-Usage: search=y, train-ai=y\n"
    assert preferences(text) == {"search": True, "train-ai": False}


def test_statements_combine_to_the_most_restrictive():
    said = [
        Statement("a", "", "", preferences=(("train-ai", True), ("search", True))),
        Statement("b", "", "", preferences=(("train-ai", False),)),
        Statement("c", "", "", preferences=(("train-ai", True),)),
    ]
    assert combine(said) == {"train-ai": False, "search": True}
    assert combine([]) == {}


# -- Content-Signal -----------------------------------------------------------------------


def test_content_signal_applies_to_its_whole_group():
    text = f"{GROUP}Content-Signal: search=yes,ai-train=no, ai-input=no\nAllow: /\n"
    (said,) = robots(text).said(PAGE)
    assert said.value == "search=yes,ai-train=no, ai-input=no"
    assert combine([said]) == {"search": True, "train-ai": False, "ai-input": False}


def test_content_signal_stands_beside_any_path():
    text = f"{GROUP}Content-Signal: ai-train=no\nContent-Usage: /page train-ai=y\n"
    assert values(robots(text).said(PAGE)) == ["ai-train=no", "train-ai=y"]
    assert preferences(text) == {"train-ai": False}


@pytest.mark.parametrize(
    ("value", "reference", "full", "keep"),
    [
        ("use=immediate", False, False, False),
        ("use=reference", True, False, None),
        ("use=full", True, True, None),
        # The narrowest counts, however badly it is written. It allows nothing if it is malformed.
        ("use=full, use=immediate", False, False, False),
        ("Use=Immediate,", False, False, False),
        ("use: reference;;", None, False, None),
        ("use=full;;", None, None, None),
        # These say nothing about it.
        ("use=nothing-new", None, None, None),
        ("reuse=immediate", None, None, None),
        ("search=yes;use=immediately", None, None, None),
    ],
)
@pytest.mark.parametrize("where", ["header", "robots.txt"])
def test_the_level_of_use_in_content_signal(
    value: str, reference: bool | None, full: bool | None, keep: bool | None, where: str
):
    if where == "header":
        said = of_response({"content-signal": ["ai-train=no", value]}, PAGE, "Bot")
    else:
        said = robots(f"{GROUP}Content-Signal: ai-train=no, {value}\n").said(PAGE)
    uses = combine(said)
    assert (uses.get("use=reference"), uses.get("use=full")) == (reference, full)
    assert uses["train-ai"] is False
    member = as_member(said)
    assert member is not None
    assert member.get("keep") is keep


def test_the_level_of_use_is_content_signal_s_alone():
    (said,) = of_response({"content-usage": ["use=immediate"]}, PAGE, "Bot")
    assert said.preferences == ()


# -- RSL ----------------------------------------------------------------------------------

LICENCE = "https://site.test/license.xml"


@pytest.mark.parametrize(
    "text",
    [
        f"License: {LICENCE}\n{GROUP}Allow: /\n",
        f"{GROUP}Allow: /\n\nlicense :{LICENCE}  # for all\n",
        # It belongs to no group, and ends no run of User-agent lines.
        f"User-agent: a\nLicense: {LICENCE}\nUser-agent: OtherBot\nAllow: /\n",
        f"User-agent: third\nDisallow: /\nLicense: {LICENCE}\n",
    ],
)
def test_a_license_line_is_for_every_bot(text: str):
    (said,) = robots(text).said(PAGE)
    assert (said.field, said.value, said.malformed) == ("License", LICENCE, "")
    assert text.split("\n")[(said.line or 0) - 1].lower().startswith("license")
    assert robots(text).decide("/page").allowed
    assert not judge(robots(text), PAGE, "license").allowed
    assert judge(robots(text), PAGE, "train-ai").allowed


def test_a_license_line_changes_no_group():
    text = f"User-agent: OtherBot\nLicense: {LICENCE}\nUser-agent: b\nDisallow: /x\n"
    assert not robots(text).decide("/x").allowed


def test_a_license_that_is_no_url_is_malformed_and_counts():
    rules = robots(f"License: /license.xml\n{GROUP}Content-Usage: train-ai=y\n")
    first, second = rules.said(PAGE)
    assert (first.malformed, second.value) == ("not an absolute URL", "train-ai=y")
    assert judge(rules, PAGE, "license").name == "disallowed_usage"


def test_licenses_stand_beside_rules_that_take_too_long():
    text = f"License: {LICENCE}\n{GROUP}Disallow: /x\n"
    text += "".join(f"Content-Usage: /*a*{n}*b train-ai=n\n" for n in range(20_000))
    said = robots(text).said("http://site.test/" + "ab" * 2000)
    assert [statement.field for statement in said] == ["License", "Content-Usage"]


def test_a_page_with_a_license_line_is_no_robots_txt():
    """Such a page must not lift known rules."""
    assert not groups.has_field(b"<pre>\nLicense: MIT\n</pre>")
    assert groups.has_field(b"License: https://a.test/\nDisallow: /\n")


@pytest.mark.parametrize(
    ("terms", "disallowed"),
    [
        ('<rsl:prohibits type="usage">ai-train</rsl:prohibits>', {"train-ai"}),
        ("<prohibits type='usage'>\n Search, ai-input\n</prohibits>", {"search", "ai-input"}),
        (
            "<prohibits>ai-all</prohibits>",
            {"ai-all", "train-ai", "ai-use", "ai-input", "ai-index"},
        ),
        ("<p:prohibits type='usage'>vendor:archive</p:prohibits>", {"vendor:archive"}),
        ('<rsl:prohibits type="geo">US</rsl:prohibits>', set()),
        ('<rsl:permits type="usage">ai-train</rsl:permits>', set()),
        ("<rsl:license/>", set()),
    ],
)
def test_terms_of_a_feed(terms: str, disallowed: set[str]):
    (said,) = of_feed(terms, PAGE)
    assert combine([said]) == dict.fromkeys(disallowed, False)
    assert (said.field, said.document, said.line) == ("rsl:content", PAGE, None)
    assert refused_use([said], ["license"]) == (said, "license")


def test_all_uses_that_rsl_prohibits_are_covered():
    uses = combine(of_feed("<prohibits type='usage'>all</prohibits>", PAGE))
    assert {"all", *CATEGORIES} <= set(uses)
    assert not any(uses.values())


# -- other fields of a response -----------------------------------------------------------


def said_by(**fields: Any) -> list[str]:
    named = {name.replace("_", "-"): [*value] for name, value in fields.items()}
    return [str(each) for each in of_response(named, PAGE, "Walsh-Research")]


@pytest.mark.parametrize(
    ("value", "ours"),
    [
        ("noindex, noai", True),
        ("noai", True),
        ("walsh-research: noindex", True),
        ("Walsh-Research:none", True),
        ("otherbot: noindex, nofollow, walsh-research: noai", True),
        ("noai, otherbot: noindex", True),
        ("googlebot: nofollow", False),
        ("otherbot: noindex, nofollow", False),
        ("unavailable_after: 25 Jun 2026 15:00:00 PST", True),
        ("googlebot: unavailable_after: 25 Jun 2026 15:00:00 PST", False),
        ("max-snippet: 10", True),
    ],
)
def test_x_robots_tag_with_our_token_or_without(value: str, ours: bool):
    assert said_by(x_robots_tag=[value]) == ([f"header X-Robots-Tag: {value}"] if ours else [])


def test_tdm_fields_are_recorded_as_they_are():
    found = said_by(tdm_reservation=["1"], tdm_policy=["https://site.test/policy.json"])
    assert found == [
        "header TDM-Reservation: 1",
        "header TDM-Policy: https://site.test/policy.json",
    ]
    assert said_by(tdm_reservation=["yes"]) == [
        "header TDM-Reservation: yes (malformed: neither 0 nor 1)"
    ]


@pytest.mark.parametrize(
    ("value", "target"),
    [
        ('<https://cc.test/by/4.0/>; rel="license"', "https://cc.test/by/4.0/"),
        ("</terms>; rel=license", "/terms"),
        ('</a>; rel="next", </b>; title="t"; rel="copyright license"', "/b"),
        ('</a>; rel="licensed"', None),
        ('</a>; rel="next"; title="license"', None),
    ],
)
def test_a_license_link(value: str, target: str | None):
    expected = [] if target is None else [f'header Link: <{target}>; rel="license"']
    assert said_by(link=[value]) == expected


def test_a_flood_of_fields_is_bounded():
    found = of_response({"x-robots-tag": ["noai " + "x" * 9000] * 500}, PAGE, "Bot")
    assert len(found) == 20
    assert max(map(len, values(found))) == 300


def test_what_an_item_gets():
    said = of_response({"content-usage": ["train-ai=n", "search=y"]}, PAGE, "Bot")
    assert as_member(said) == {
        "said": [{"field": "Content-Usage", "value": "train-ai=n, search=y", "document": PAGE}],
        "preferences": {"search": "allowed", "train-ai": "disallowed"},
    }
    assert as_member(()) is None


# -- WALSH_USAGE --------------------------------------------------------------------------


class Held:
    """Documents: no blocklist, and one robots.txt."""

    def __init__(self, rules: Robots) -> None:
        self._rules = rules

    def blocklist(self) -> Blocklist:
        return Blocklist()

    def robots(self, origin: str) -> Robots:
        return self._rules

    def last_visit(self, key: str) -> None:
        return None


def judge(rules: Robots, url: str, *refused: str) -> Any:
    scope = Scope(follow_links=True)
    return chain.judge(url, scope, Held(rules), Gates(refused_uses=refused), 0.0)


def test_nothing_is_refused_by_default():
    assert judge(robots(EXAMPLE), PAGE).allowed


def test_a_use_that_is_refused_has_a_verdict_with_its_line():
    verdict = judge(robots(EXAMPLE), PAGE, "train-ai")
    assert (verdict.allowed, verdict.name) == (False, "disallowed_usage")
    assert (verdict.requirement, verdict.document) == ("WALSH_USAGE", DOCUMENT)
    assert (verdict.line, verdict.rule, verdict.group) == (4, "Content-Usage: train-ai=n", ("*",))
    assert verdict.digest == robots(EXAMPLE).digest
    assert "\n" not in verdict.reason


@pytest.mark.parametrize(
    ("path", "refused"),
    [("/ai-ok/x", ("train-ai",)), ("/x", ("search",)), ("/x", ("ai-input",))],
)
def test_other_paths_and_uses_are_allowed(path: str, refused: tuple[str, ...]):
    assert judge(robots(EXAMPLE), f"http://site.test{path}", *refused).allowed


def test_r2_robots_txt_is_asked_first():
    verdict = judge(robots(EXAMPLE), "http://site.test/never/x", "train-ai")
    assert (verdict.requirement, verdict.name) == ("R2", "disallowed_explicit")


def test_content_signal_counts_as_the_vocabulary_s_category():
    rules = robots(f"{GROUP}Content-Signal: ai-train=no\n")
    assert judge(rules, PAGE, "train-ai").name == "disallowed_usage"


def test_a_malformed_line_refuses_by_a_plain_no_alone():
    assert not judge(robots(f"{GROUP}Content-Usage: train-ai=n,\n"), PAGE, "train-ai").allowed
    assert judge(robots(f"{GROUP}Content-Usage: train-ai=(,\n"), PAGE, "train-ai").allowed
    assert judge(no_rules(DOCUMENT), PAGE, "train-ai").allowed


def test_a_use_that_is_not_known_refuses_by_its_name_alone():
    rules = robots(f"{GROUP}Content-Usage: future=n\nContent-Signal: use=immediate\n")
    assert not judge(rules, PAGE, "future").allowed
    assert judge(rules, PAGE, "futures", "train-ai").allowed
    assert "refuses use=reference" in judge(rules, PAGE, "use=reference").reason


def test_the_categories_are_those_of_the_texts():
    assert CATEGORIES == ("train-ai", "ai-use", "search", "ai-input")
