"""Make text of a feed's or a sitemap's bytes that is safe for an XML parser (R9).

The text is decoded, its document type is taken off, and common mistakes of publishers are mended:
entities of HTML, bare ``&`` and ``<``, characters that XML does not have.
"""

from __future__ import annotations

import codecs
import re
from contextlib import suppress
from html.entities import html5
from typing import TYPE_CHECKING, Final
from zlib import error as zlib_error

from scrapy_walsh.exceptions import DocumentInvalid, DocumentTooCostly
from scrapy_walsh.policy.formats.representation import GZIP_MAGIC
from scrapy_walsh.policy.formats.text import declared_charset
from scrapy_walsh.policy.packing import unpack

if TYPE_CHECKING:
    from collections.abc import Iterator


#: Octets of a document, unpacked: the limit of 50 MB that the protocol of sitemaps has.
MAX_OCTETS: Final = 52_428_800


def without_gzip(body: bytes, url: str) -> bytes:
    """*body*, unpacked if it is packed with gzip (RFC 1952), up to about MAX_OCTETS.

    ``url``: of the document, for messages. Raises DocumentInvalid for gzip data that is damaged or
    cut off, DocumentTooCostly for more than MAX_OCTETS.
    """
    if not body.startswith(GZIP_MAGIC):
        return body
    try:  # RFC 1952 2.2: members follow each other
        document = unpack(body, MAX_OCTETS + 1, GZIP_MAGIC)
    except zlib_error:
        raise DocumentInvalid(f"{url}: its gzip data is damaged") from None
    if document is None:
        raise DocumentInvalid(f"{url}: its gzip data is cut off")
    if len(document) > MAX_OCTETS:
        raise DocumentTooCostly(f"{url}: over {MAX_OCTETS} bytes when unpacked; not read")
    return document


def xml_text(body: bytes, content_type: str | None, url: str) -> str:
    """The text of *body*, as the module's docstring says.

    ``content_type``: the header's value or None. ``url``: of the document, for messages. Raises
    DocumentInvalid for a document type with declarations of its own, and for elements with too many
    attributes; DocumentTooCostly for elements that are nested too deeply.
    """
    text = _without_doctype(_decode(body, content_type), url)
    _check_depth(text, url)
    return _mended(text, url)


# --- encoding -------------------------------------------------------------------------------

#: How a body begins that has a byte order mark, or (XML 1.0, appendix F) "<" without one.
_BEGINNINGS: Final = (
    (re.compile(codecs.BOM_UTF8), "utf-8"),
    (
        re.compile(rb"\xff\xfe\0\0|<\0\0\0"),
        "utf-32-le",
    ),  # before UTF-16, because it begins with that mark
    (re.compile(rb"\0\0(?:\xfe\xff|\0<)"), "utf-32-be"),
    (re.compile(rb"\xff\xfe|<\0[^\0]\0"), "utf-16-le"),
    (re.compile(rb"\xfe\xff|\0<\0[^\0]"), "utf-16-be"),
)
_HEAD: Final = 1024
_XML_ENCODING: Final = re.compile(rb"<\?xml[^>]*?encoding\s*=\s*([\"'][\w.:-]+)", re.IGNORECASE)
# Publishers who declare one of these send windows-1252 (WHATWG Encoding).
_LATIN: Final = frozenset({"iso-8859-1", "iso8859-1", "latin1", "latin-1", "us-ascii", "ascii"})
_BEYOND_ASCII: Final = re.compile("[^\x00-\x7f\ufffd]")
# Not characters of XML 1.0 (section 2.2): one of them would end the strict parser.
_NOT_XML: Final = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")


def _decode(body: bytes, content_type: str | None) -> str:
    text = _whole(body, content_type)
    if text is None:
        text = _decode_damaged(body, content_type)
    return _NOT_XML.sub("", text.removeprefix("\ufeff"))


def _whole(body: bytes, content_type: str | None) -> str | None:
    """The text of a *body* without a damaged octet; of UTF-16 and UTF-32 also with one."""
    for encoding in _encodings(body, content_type):
        try:
            return body.decode(encoding)
        except (LookupError, UnicodeError):
            if encoding.startswith(("utf-16", "utf-32")):
                return body.decode(encoding, "replace")
    return None


def _decode_damaged(body: bytes, content_type: str | None) -> str:
    """The text of a *body* that is not whole UTF-8, with U+FFFD for each damaged octet.

    One damaged octet must not turn the text into another encoding: its links would then be URLs
    that do not exist. windows-1252 is a guess, for a body that is no UTF-8 at all.
    """
    text = body.decode("utf-8", "replace")
    valid = body.count("\ufffd".encode())  # from an earlier damage, and now a character
    damages = text.count("\ufffd") - valid
    characters = len(_BEYOND_ASCII.findall(text)) + valid
    names = list(_declared(body, content_type))
    legacy_names = [name for name in names if _is_no_unicode(name)]
    if characters > damages or (damages == 1 and not legacy_names):
        return text
    for name in legacy_names:
        with suppress(UnicodeError):
            return body.decode(name)
    if legacy_names:
        return body.decode(legacy_names[0], "replace")
    if characters and names:  # it says UTF-8, and some of it is
        return text
    return body.decode("windows-1252", "replace")


def _is_no_unicode(name: str) -> bool:
    """Whether *name* is an encoding that Python knows, and not one of Unicode."""
    try:
        return not codecs.lookup(name).name.startswith("utf")
    except LookupError:
        return False


def _encodings(body: bytes, content_type: str | None) -> Iterator[str]:
    """The encodings to try first: that of the byte order mark, and UTF-8.

    UTF-8 comes before the declared one, since text in another encoding is hardly ever valid UTF-8.
    Encodings of seven bits are the exception, so a declared one of those comes first.
    """
    yield from (name for beginning, name in _BEGINNINGS if beginning.match(body))
    yield from (name for name in _declared(body, content_type) if name.startswith("iso-2022-"))
    yield "utf-8"


def _declared(body: bytes, content_type: str | None) -> Iterator[str]:
    declaration = _XML_ENCODING.search(body[:_HEAD])
    parameter = f"charset={declaration[1].decode('latin-1')}" if declaration else None
    for name in filter(None, map(declared_charset, (content_type, parameter))):
        yield "windows-1252" if name in _LATIN else name


# --- document type --------------------------------------------------------------------------

_DOCTYPE: Final = re.compile(r"<!DOCTYPE[^<>\[]*+>", re.IGNORECASE)
_DECLARATION: Final = re.compile(r"<!(?:DOCTYPE|ENTITY|ELEMENT|ATTLIST|NOTATION)", re.IGNORECASE)
# Comments and instructions, up to the end of the text if they are not closed; or the root begins.
_MARKUP: Final = re.compile(r"<!--(?:.*?-->|.*)|<\?(?:.*?\?>|.*)|<(?P<root>[A-Za-z_])", re.DOTALL)


def _without_doctype(text: str, url: str) -> str:
    """The text from its root element on. Raises DocumentInvalid for an internal subset."""
    starts = (match.start() for match in _MARKUP.finditer(text) if match["root"])
    root = next(starts, len(text))
    if _DECLARATION.search(_DOCTYPE.sub("", _MARKUP.sub("", text[:root]))):
        raise DocumentInvalid(f"{url}: it declares its own entities; refused unread")
    return text[root:]


# --- depth ----------------------------------------------------------------------------------

#: The most elements within each other. The parser resolves each one's base URL against that of its
#: parent, so its time grows with the square of the depth. Feeds with XHTML are some 30 deep.
MAX_DEPTH: Final = 500
_NODE: Final = re.compile(
    r"<!--(?:.*?-->|.*)|<!\[CDATA\[(?:.*?\]\]>|.*)"
    # "*+" gives nothing back, so a tag without an end is looked at once.
    r"|<(?P<closing>/?)(?P<name>[A-Za-z_][^\s<>/]*+)(?P<rest>[^<>]*+)>",
    re.DOTALL,
)


def _check_depth(text: str, url: str) -> None:
    """Raise DocumentTooCostly for a document with elements over MAX_DEPTH deep.

    A closing tag also closes what was left open within its element, as happens in malformed feeds.
    """
    open_names: list[str] = []
    for node in _NODE.finditer(text):
        name = node["name"]
        if name is None or node["rest"].endswith("/"):
            continue
        if not node["closing"]:
            open_names.append(name)
            if len(open_names) > MAX_DEPTH:
                raise DocumentTooCostly(f"{url}: elements nested over {MAX_DEPTH} deep; not read")
        elif name in open_names:
            while open_names.pop() != name:
                pass


# --- slips ----------------------------------------------------------------------------------

_CDATA: Final = "<![CDATA["
# Mistakes of publishers: an entity that XML does not have, a bare & or <.
_SLIP: Final = re.compile(
    r"&(?:#(?P<dec>[0-9]{1,7});|#[xX](?P<hex>[0-9a-fA-F]{1,6});|(?P<name>[A-Za-z][A-Za-z0-9]*);)?"
    r"|<(?![A-Za-z_/!?])"
)
_OF_XML: Final = frozenset({"amp", "lt", "gt", "quot", "apos"})
# The parser's time for a start tag grows with the square of the number of its attributes.
_LONG_TAG: Final = re.compile(r"<[^<>]{20000,}")
_MAX_ATTRIBUTES: Final = 1000


def _mended(text: str, url: str) -> str:
    """*text* with its slips mended, except within CDATA sections: those can have no slip."""
    head, *sections = text.split(_CDATA)
    pieces = [_mended_piece(head, url)]
    for section in sections:
        inside, end, outside = section.partition("]]>")
        pieces.append(f"{_CDATA}{inside}{end}{_mended_piece(outside, url)}")
    return "".join(pieces)


def _mended_piece(text: str, url: str) -> str:
    if any(tag[0].count("=") > _MAX_ATTRIBUTES for tag in _LONG_TAG.finditer(text)):
        raise DocumentInvalid(f"{url}: an element with over {_MAX_ATTRIBUTES} attributes; refused")
    return _SLIP.sub(_mend, text)


def _mend(slip: re.Match[str]) -> str:
    if slip[0] == "<":
        return "&lt;"
    if digits := slip["dec"] or slip["hex"]:
        number = int(digits, 10 if slip["dec"] else 16)
        return slip[0] if number <= 0x10FFFF and not _NOT_XML.match(chr(number)) else ""
    name = slip["name"]
    if name in _OF_XML:
        return slip[0]
    return html5.get(f"{name};") or f"&amp;{slip[0][1:]}"
