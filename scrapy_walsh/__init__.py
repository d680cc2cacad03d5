"""Makes a Scrapy project conform to the Walsh-Research Bot Compliance Specification v1.3."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from scrapy_walsh.adapters.addon import Addon

__all__ = ["SPEC_VERSION", "Addon", "__version__"]

__version__ = "0.2.0"

#: The version of the specification that this package targets (spec section 4).
SPEC_VERSION: Final = "walsh-research-compliance/v1.3"


def __getattr__(name: str) -> object:
    """Import the add-on on first use, so that ``policy`` loads without Scrapy."""
    if name == "Addon":
        from scrapy_walsh.adapters.addon import Addon  # noqa: PLC0415

        return Addon
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
