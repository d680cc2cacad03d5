"""Reads the key directory that ``audit`` and ``conformance`` verify signed requests by (D25)."""

from __future__ import annotations

from typing import Any

from scrapy_walsh.commands.check_answer import Misuse, read_file
from scrapy_walsh.exceptions import DocumentInvalid
from scrapy_walsh.keys.jwks import LIMIT
from scrapy_walsh.proof.signatures import directory_keys, have_library


def read_directory(option: str, path: str) -> list[dict[str, Any]]:
    """The keys of the directory in the file *path*, which *option* names. Misuse."""
    if not have_library():
        raise Misuse(f"{option} needs a package: pip install 'scrapy-walsh[sign]'")
    try:
        return directory_keys(read_file(path, LIMIT + 1))
    except DocumentInvalid as error:
        raise Misuse(f"{option} {path}: {error}") from None
