"""R2, D1: fields as any widely used parser reads them, and no Allow that grants more than Google's.

``google`` below is a model of what google/robotstxt documents of its reading: a field is known by
what its name begins with, and a line without a colon is cut at its only run of blanks.
"""

from __future__ import annotations

from typing import Final

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from scrapy_walsh.policy.robots.file import parse_robots

TOKEN: Final = "Walsh-Research"
DISALLOWS: Final = ("disallow", "dissallow", "dissalow", "disalow", "diasllow", "disallaw")
AGENTS: Final = ("user-agent", "useragent", "user agent")


def allowed(text: str, path: str = "/x/y") -> bool:
    return parse_robots(text.encode("utf-8", "surrogatepass"), TOKEN).decide(path).allowed


# -- the model --------------------------------------------------------------------------------


def key_and_value(line: str) -> tuple[str, str]:
    blanks = " \t\n\v\f\r"
    line = line.partition("#")[0].strip(blanks)
    key, colon, value = line.partition(":")
    if not colon:
        words = line.replace("\t", " ").split(" ", 1)
        if len(words) < 2 or len(words[1].split()) != 1:
            return "", ""
        key, value = words
    return key.strip(blanks).lower(), value.strip(blanks)


def google(text: str, path: str) -> bool:
    """Whether Google's parser allows *path*; for values without stars and anchors."""
    own: list[tuple[bool, str]] = []
    everyone: list[tuple[bool, str]] = []
    groups: set[int] = set()
    ruled, seen = False, False
    for line in text.split("\n"):
        key, value = key_and_value(line)
        if key.startswith(AGENTS):
            if ruled:
                groups, ruled = set(), False
            name = value.lower()
            if name.startswith("*"):
                groups.add(0)
            elif name == TOKEN.lower():
                groups.add(1)
                seen = True
        elif key.startswith((*DISALLOWS, "allow")):
            ruled = True
            for each in groups:
                (own if each else everyone).append((key.startswith("allow"), value))
    rules = own if seen else everyone
    matching = [(len(value), allow) for allow, value in rules if value and path.startswith(value)]
    return max(matching, default=(0, True))[1]


# -- the classes, by name -----------------------------------------------------------------------


@pytest.mark.parametrize(
    "line",
    [
        *("Disallow; /x", "Disallowed: /x", "Disallow= /x", "Disallow. /x", "Disallow\uff1a /x"),
        *("Disallow\uff1a/x", "Disallow=/x", "Disallow;/x", "disalow; /x", "DISALLOWED /x"),
        *("Disallows\t: /x", "Disallow - /x", "Disallow -> /x", "Disallow-path: /x"),
        *("Disallow /z: /x", "Disallow; /x # a remark", "\ufeffDisallow; /x", " Disallow,\t/x"),
        *("Disallaw. /x", "Dissallowed: /x", "Disallow\u2236 /x", "Disallow\u00a0; /x"),
    ],
)
@pytest.mark.parametrize("agent", ["User-agent: *", f"User-agent; {TOKEN}", "User-agents: *"])
def test_r2_what_others_read_as_a_disallow_is_one(line: str, agent: str) -> None:
    assert not allowed(f"{agent}\n{line}\n")
    assert allowed(f"{agent}\n{line}\n", "/a")


@pytest.mark.parametrize(
    "line",
    [
        *("Allowed: /x/y", "Allow; /x/y", "Allow /x/y", "Allow= /x/y", "Allow=/x/y", "Alow: /x/y"),
        *("Allow\uff1a/x/y", "Allow-path: /x/y", "Allow. /x/y", "Allow all: /x/y"),
    ],
)
def test_r2_an_allow_that_only_others_read_grants_nothing(line: str) -> None:
    assert not allowed(f"User-agent: *\nDisallow: /x\n{line}\n")


@pytest.mark.parametrize("sign", [*' "<>\\^`{|}', "\x01", "\x7f"])
def test_r2_an_allow_with_what_no_url_has_unescaped_grants_nothing(sign: str) -> None:
    """RFC 9309 (2.2.2) would have it escaped; Google's parser compares it as it is."""
    escaped = f"%{ord(sign):02X}"
    rules = f"User-agent: *\nDisallow: /m/\nAllow: /m/a{sign}b/\n"
    assert not allowed(rules, f"/m/a{escaped}b/x")
    assert allowed(rules.replace(sign + "b/", escaped + "b/"), f"/m/a{escaped}b/x")
    assert not allowed(f"User-agent: *\nDisallow: /m/a{sign}b/\n", f"/m/a{escaped}b/x")


@pytest.mark.parametrize("line", ["Disalow: /", "Disallowed: /", "Disallow; /", "Allowed: /q"])
def test_r2_a_rule_that_others_read_ends_a_run_of_names(line: str) -> None:
    """Else the Allow of the next group would lift what this one refuses."""
    file = f"User-agent: *\n{line}\nUser-agent: other\nAllow: /\n\nUser-agent: *\nDisallow: /\n"
    assert not allowed(file)


# -- any mutation ---------------------------------------------------------------------------------

SIGNS = st.text(alphabet=".,;=|>-\u2013\uff1a\u2236 \t:abez_1", max_size=3)
PATHS = ("/x", "/x/y", "/a", "/", "/x/y/z", "")


@st.composite
def mutated(draw: st.DrawFn, word: str) -> str:
    """A line of that field whose word and separator were changed."""
    letters = list(word)
    for _ in range(draw(st.integers(0, 2))):
        at = draw(st.integers(0, len(letters) - 1))
        change = draw(st.sampled_from(["drop", "double", "swap", "case"]))
        if change == "drop" and len(letters) > 2:
            del letters[at]
        elif change == "double":
            letters.insert(at, letters[at])
        elif change == "swap" and at:
            letters[at - 1 : at + 1] = letters[at], letters[at - 1]
        else:
            letters[at] = letters[at].swapcase()
    separator = draw(st.sampled_from([":", ": ", " ", ""])) + draw(SIGNS)
    value = draw(st.sampled_from(["*", TOKEN, "other"] if "agent" in word.lower() else PATHS))
    return "".join(letters) + draw(st.sampled_from(["", separator])) + separator + value


def lines(*words: str) -> st.SearchStrategy[str]:
    return st.one_of([mutated(word) for word in words])


EXACT = st.sampled_from(
    ["User-agent: *", f"User-agent: {TOKEN}", "User-agent: other"]
    + [f"{kind}: {path}" for kind in ("Allow", "Disallow") for path in PATHS]
)
FILES = st.lists(
    EXACT | lines("Disallow", "User-agent", "Allow", "Disalow", "Useragent"), max_size=9
)


@given(FILES)
def test_r2_what_googles_parser_refuses_is_refused(file: list[str]) -> None:
    text = "\n".join(["User-agent: *", *file])
    for path in ("/x/y", "/a/b", "/"):
        if not google(text, path):
            assert not allowed(text, path), text


@given(lines("Allow"), st.sampled_from(PATHS[:-1]), st.booleans())
def test_r2_no_mutated_allow_lifts_a_disallow(line: str, path: str, last: bool) -> None:
    name = line.partition(":")[0].strip().lower()
    assume(name != "allow" and not name.startswith("user"))
    rules = [f"Disallow: {path}", line] if last else [line, f"Disallow: {path}"]
    assert not allowed("\n".join(["User-agent: *", *rules]), path)


@given(st.lists(EXACT, max_size=9), lines("Disallow", "Disalow"))
def test_r2_a_mutated_disallow_never_allows_more(file: list[str], line: str) -> None:
    """It is in the last group, so that it ends no run of names."""
    text = "\n".join(["User-agent: *", *file, "Disallow: /nothing"])
    for path in ("/x/y", "/a/b", "/"):
        if not allowed(text, path):
            assert not allowed(f"{text}\n{line}", path)


# -- what hosts put in front of a file ---------------------------------------------------------

MANAGED = (
    "# BEGIN managed\n\nUser-agent: *\nContent-Signal: search=yes\nAllow: /\n\n# END managed\n\n"
)


@pytest.mark.parametrize("mark", ["", "\ufeff", "\u200b", "\ufeff\ufeff"])
@pytest.mark.parametrize("agent", ["*", TOKEN])
def test_r2_a_block_in_front_and_a_mark_within_hide_no_group(mark: str, agent: str) -> None:
    """Groups of one name are one (RFC 9309, 2.2.1), and a byte order mark is no part of a name."""
    assert not allowed(f"{MANAGED}{mark}User-agent: {agent}\nDisallow: /x\n")


@pytest.mark.parametrize("between", ["Content-Signal: ai-train=no", "Sitemap: /s.xml", "# x", ""])
def test_r2_other_records_do_not_end_a_list_of_names(between: str) -> None:
    """RFC 9309, 2.2.4."""
    assert not allowed(f"User-agent: {TOKEN}\n{between}\nUser-agent: OtherBot\nDisallow: /\n")
