"""cg-1, cg-2 (D4): what is gated and fetched is the URL as declared, not the canonical one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.crawl.harness import site

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.crawl.harness import Crawl


def test_cg_the_declared_url_is_gated_and_fetched(run: Callable[..., Crawl]) -> None:
    result = run(
        "http://gated.test/private/",
        "http://asked.test/dir/",
        sites=(
            site("gated.test", robots="User-agent: *\nDisallow: /private/\n"),
            site("asked.test", robots="User-agent: *\nDisallow:\n"),
        ),
    )
    assert result.asked("gated.test") == ["/robots.txt"]  # cg-1
    assert "R2 disallowed_explicit" in result.why("http://gated.test/private/")
    assert result.asked("asked.test") == ["/robots.txt", "/dir/"]  # cg-2
