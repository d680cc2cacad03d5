"""R13: is the URL that was sent the one that was judged, with the tags and nothing else added?"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

from scrapy_walsh.ledger.lines import REDACTED
from scrapy_walsh.policy.tagging import is_operator_url, tag_url

if TYPE_CHECKING:
    from scrapy_walsh.ledger.reading import Line
    from scrapy_walsh.proof.verify.terms import Terms

_TAGS: Final = re.compile(r"[?&]impl=([^&#]+)(?:&sha=([^&#]+))?&spec=[^&#]+(?:#|\Z)")


def sent_fault(line: Line, terms: Terms) -> str | None:
    """What is wrong with the tagged URL that was sent; None where nothing is, or it had no tags."""
    if line.sent is None or REDACTED in line.sent:
        return None
    found = _TAGS.search(line.sent)
    impl, sha = (None, None) if found is None else found.groups()
    tagged = tag_url(line.url, unquote(impl or ""), sha and unquote(sha), terms.spec)
    if not impl or tagged != line.sent:
        return f"{line.sent} was sent, which is not {line.url} with its tags"
    if not (terms.tag_requests or terms.in_shell):
        return f"{line.sent} carries tags, and this run sends none"
    if not is_operator_url(line.url, terms.operator_urls):
        return f"{line.sent} carries tags, and is not of the operator"
    return None
