"""A slow, literal answer to "may this URL be fetched", straight from the spec's section 9.1.

Shares no code with the package. It says what every reading of the text answers; the package
may allow only what all of them allow.
"""

from __future__ import annotations

import itertools
import re

UNRESERVED = re.compile(rb"[A-Za-z0-9._~-]")
RESERVED = b":/?#[]@!&'()+,;="
#: What Unicode calls white space, signs without a width, and 0xA0 as Latin-1 has it.
BLANKS = "".join(filter(str.isspace, map(chr, range(0x10000))))
BLANKS += "\0\u200b\u200c\u200d\u200e\u200f\u2060\ufeff\udca0"


def octets(text: str) -> list[str]:
    """One entry per octet: the character itself, or ``%XX`` where it must stay escaped."""
    found: list[str] = []
    data = text.encode("utf-8", "surrogatepass")
    while data:
        escape = re.match(rb"%([0-9A-Fa-f]{2})", data)
        if escape:
            octet = bytes.fromhex(escape[1].decode())
            found.append(octet.decode() if UNRESERVED.match(octet) else f"%{octet.hex().upper()}")
            data = data[3:]
            continue
        octet, data = data[:1], data[1:]
        plain = UNRESERVED.match(octet) or octet in RESERVED or octet == b"%"
        found.append(octet.decode() if plain else f"%{octet.hex().upper()}")
    return found


def pattern_items(value: str) -> list[str | None]:
    """Octets of a value; None is a wildcard."""
    items: list[str | None] = []
    for number, piece in enumerate(value.split("*")):
        items += [None] * (number > 0)
        items += octets(piece)
    return items


def spell(items: list[str], escapes: str) -> list[str]:
    if escapes == "text":
        return list("".join(items))
    return [{"%": "%25", "%5B": "[", "%5D": "]"}.get(item, item) for item in items]


def spell_pattern(items: list[str | None], escapes: str) -> list[str | None]:
    spelled: list[str | None] = []
    for item in items:
        spelled += [None] if item is None else spell([item], escapes)
    return spelled


def ends(pattern: list[str | None], path: list[str]) -> set[int]:
    """Every place where a match of the pattern can end."""
    places = {0}
    for item in pattern:
        if item is None:
            places = {end for place in places for end in range(place, len(path) + 1)}
        else:
            places = {place + 1 for place in places if path[place : place + 1] == [item]}
    return places


def lengths(value: str, path: list[str], escapes: str) -> dict[str, int] | None:
    anchored = value.endswith("$")
    pattern = spell_pattern(pattern_items(value.removesuffix("$")), escapes)
    places = ends(pattern, path)
    places &= {len(path)} if anchored else places
    if not places:
        return None
    most, least, own = max(places), min(places), len(pattern)
    return {"most": most + anchored, "least": least + anchored, "own": own + anchored}


def resolve(path: str) -> str:
    """RFC 3986 5.2.4, letter by letter."""
    path, mark, query = path.partition("?")
    output = ""
    while path:
        if path.startswith("/../") or path == "/..":
            path = "/" + path[4:]
            output = output.rpartition("/")[0]
        elif path.startswith("/./") or path == "/.":
            path = "/" + path[3:]
        else:
            segment = re.match(r"/?[^/]*", path)
            assert segment
            output += segment[0]
            path = path[segment.end() :]
    return output + mark + query


def paths(target: str) -> set[str]:
    path, mark, query = target.partition("#")[0].partition("?")
    found = {path + mark + query, path.replace("\\", "/") + mark + query}
    found = {"".join(octets(each if each.startswith("/") else "/" + each)) for each in found}
    found |= set(map(resolve, found))
    return found | {each[:-1] for each in found if each.endswith("?") and each.count("?") == 1}


def groups(text: str) -> list[tuple[list[str], list[tuple[str, str]]]]:
    found: list[tuple[list[str], list[tuple[str, str]]]] = []
    after_rule = True
    for line in re.split("\r\n|\r|\n", text):
        field, colon, value = line.partition("#")[0].partition(":")
        field, value = field.strip(BLANKS).lower(), value.strip(BLANKS)
        if not colon:
            continue
        if field == "user-agent" and value:
            if after_rule:
                found.append(([], []))
            after_rule = False
            found[-1][0].append(value.lower())
        elif field in ("allow", "disallow", "crawl-delay") and found:
            after_rule = True
            found[-1][1].append((field, value))
    return found


def selected(text: str, token: str, names: str) -> list[tuple[str, str]]:
    token = token.lower()

    def cut(name: str) -> str:
        if names == "version":
            return name.partition("/")[0].strip(BLANKS)
        product = re.match(r"\*(?=\s)|[a-z_-]*", name)
        assert product
        return product[0] if names == "product" and product[0] in (token, "*") else name

    named = [([cut(name) for name in who], rules) for who, rules in groups(text)]
    every = {name for who, _ in named for name in who}
    matching = [name for name in every if name and name != "*" and token.startswith(name)]
    best = max(matching, key=len) if matching else "*"
    return [rule for who, rules in named if best in who for rule in rules]


def reading_allows(
    rules: list[tuple[str, str]], path: str, values: str, escapes: str, length: str
) -> bool:
    best: tuple[int, bool] = (-1, True)
    for field, value in rules:
        if field not in ("allow", "disallow") or not value:
            continue
        slashed = "/" + value if values == "slash" and not value.startswith("/") else value
        found = lengths(slashed, spell(octets(path), escapes), escapes)
        if found:
            best = max(best, (found[length], field == "allow"))
    return best[1]


def oracle(text: str, token: str, target: str) -> dict[str, bool]:
    """The answer of each reading; ``target`` is a path with its query, not ``/robots.txt``."""
    answers = {}
    for names in ("literal", "version", "product"):
        rules = selected(text, token, names)
        for path, values, escapes, length in itertools.product(
            sorted(paths(target)),
            ("as is", "slash"),
            ("text", "octets"),
            ("most", "least", "own"),
        ):
            label = " / ".join((names, path, values, escapes, length))
            answers[label] = reading_allows(rules, path, values, escapes, length)
    return answers
