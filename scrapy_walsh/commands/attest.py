"""``walsh attest``: states what a conformance run showed of this build, and signs that."""

from __future__ import annotations

import importlib.util
import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scrapy_walsh.commands.check_answer import Misuse, printable, read_file
from scrapy_walsh.commands.project import add_settings, settings_to_send
from scrapy_walsh.config import WalshConfig
from scrapy_walsh.exceptions import DocumentInvalid
from scrapy_walsh.files import replace_file
from scrapy_walsh.policy.signing import DIRECTORY_PATH, DIRECTORY_TYPE
from scrapy_walsh.policy.times import iso

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Mapping, Sequence

    from scrapy_walsh.proof.attest.document import Attested, Evidence, PolicyPage


def add_options(parser: argparse.ArgumentParser) -> None:
    """What ``walsh attest`` takes."""
    add = parser.add_argument
    add("--record", type=Path, metavar="FILE", help="default: conformance.json of the state")
    add("--online", action="store_true", help="request the policy page, through the gates (R1.4)")
    add("--sign", type=Path, metavar="KEY.pem", help="sign the document with this Ed25519 key")
    add("-o", "--output", type=Path, metavar="FILE", help="where to write (default: stdout)")
    add_settings(parser)
    add("--keygen", type=Path, metavar="DIR", help="make a key and its JWKS there, or rotate them")
    add("--verify", metavar="FILE", help="does the signature of this document hold?")
    add("--jwks", metavar="FILE|URL", help="with --verify: the signer's public keys")


def run(args: argparse.Namespace) -> int:
    """Attest, make keys, or verify."""
    _check_options(args)
    if args.keygen is not None:
        return _keygen(args.keygen)
    return _attest(args) if args.verify is None else _verify(args.verify, args.jwks)


_OF_A_DOCUMENT = ("record", "online", "sign", "output", "identity", "set")


def _check_options(args: argparse.Namespace) -> None:
    """Misuse for options that are not of one action."""
    other = "--keygen" if args.keygen is not None else "--verify"
    if args.keygen is not None and (args.verify is not None or args.jwks is not None):
        raise Misuse("--keygen goes alone")
    if args.keygen is not None or args.verify is not None:
        for name in _OF_A_DOCUMENT:
            if getattr(args, name):
                raise Misuse(f"--{name} does not go with {other}")
    if (args.verify is None) != (args.jwks is None):
        raise Misuse("--verify FILE and --jwks FILE|URL go together")
    signed = args.sign is not None or args.verify is not None
    if signed and importlib.util.find_spec("rfc8785") is None:
        raise Misuse("signatures need a package: pip install 'scrapy-walsh[attest]'")


def _tell(line: str) -> None:
    print(f"walsh attest: {printable(' '.join(line.split()))}", file=sys.stderr)


# -- the document -------------------------------------------------------------------------


def _attest(args: argparse.Namespace) -> int:
    from scrapy_walsh.adapters.context import default_state_dir  # noqa: PLC0415  slow
    from scrapy_walsh.proof.attest.document import document, judge  # noqa: PLC0415
    from scrapy_walsh.proof.attest.evidence import indexes_in  # noqa: PLC0415

    settings = settings_to_send(args)
    config = WalshConfig.from_settings(settings, default_state_dir)
    out = _Output(args, config)
    evidence = _evidence(args.record, config)
    page = _policy_page(config, settings if args.online else None)
    indexes, now = indexes_in(config.state_dir, time.time()), iso(time.time())
    found = judge(evidence, config, page, indexes)
    out.write(document(evidence, config, page, found, now, indexes=indexes))
    for line in _lines(evidence, found):
        _tell(line)
    return 0 if all(each.value is True for each in found.values()) else 1


class _Output:
    """Where the document goes; the key is read before anything is requested or written."""

    def __init__(self, args: argparse.Namespace, config: WalshConfig) -> None:
        self.key = None
        self.output: Path | None = args.output
        if args.sign is not None:
            from scrapy_walsh.keys.files import load_private_key  # noqa: PLC0415  an extra

            self.key = load_private_key(args.sign)
        inputs = (args.sign, args.record or _record_of(config))
        if self.output is not None:
            _check_output(self.output, inputs)

    def write(self, document: Mapping[str, Any]) -> None:
        """Print or write *document*; a signed one in its canonical form, so that it stays so."""
        if self.key is None:
            octets = json.dumps(document, indent=2).encode("ascii")
        else:
            from scrapy_walsh.proof.attest.signature import canonical, sign  # noqa: PLC0415  an extra

            octets = canonical(sign(document, self.key))
        if self.output is None:
            sys.stdout.buffer.write(octets + b"\n")
            sys.stdout.buffer.flush()
        else:
            replace_file(self.output, octets + b"\n")


def _check_output(output: Path, inputs: Sequence[Path | None]) -> None:
    if output.exists() and not output.is_file():
        raise Misuse(f"--output {output} is not a file")
    for path in inputs:
        if path is not None and path.exists() and output.exists() and output.samefile(path):
            raise Misuse(f"--output {output} would replace what is read")


def _record_of(config: WalshConfig) -> Path | None:
    """Where ``walsh conformance`` leaves its record, if anywhere."""
    from scrapy_walsh.proof.conformance.record import FILE  # noqa: PLC0415

    return None if config.state_dir is None else config.state_dir / FILE


def _evidence(given: Path | None, config: WalshConfig) -> Evidence:
    from scrapy_walsh.proof.attest.document import Evidence  # noqa: PLC0415
    from scrapy_walsh.proof.attest.evidence import evidence_in  # noqa: PLC0415

    path = given or _record_of(config)
    if path is None:
        return Evidence(None, "WALSH_STATE_DIR is memory, which keeps no conformance record")
    return evidence_in(path, config)


def _policy_page(config: WalshConfig, settings: Any) -> PolicyPage:
    from scrapy_walsh.proof.attest.document import PolicyPage  # noqa: PLC0415

    url = config.identity.policy_url
    if settings is None:
        return PolicyPage(url)
    from scrapy_walsh.commands.attest_online import look  # noqa: PLC0415  slow

    return look(url, settings, iso(time.time()))


def _lines(evidence: Evidence, found: Mapping[str, Attested]) -> Iterator[str]:
    """Why not all is true, a line for each reason; and where the run was less strict."""
    if evidence.problem:
        yield f"no requirement is attested: {evidence.problem}"
    for id_, each in found.items():
        yield from (f"{id_} is not attested: {why.text}" for why in each.against if why.text)
    if evidence.note:
        yield evidence.note


# -- keys ---------------------------------------------------------------------------------


def _keygen(directory: Path) -> int:
    from scrapy_walsh.keys.files import make_keys  # noqa: PLC0415  slow

    made = make_keys(directory)
    print(f"key {made.kid}")
    print(f"sign with {printable(str(made.key))} (owner-only), publish {printable(str(made.jwks))}")
    print(
        f"to sign requests: WALSH_SIGNING_KEY = {str(made.key.absolute())!r}, and serve "
        f"{printable(str(made.directory))} at {DIRECTORY_PATH} as {DIRECTORY_TYPE}"
    )
    if made.former is not None:
        print(f"the key before is {printable(str(made.former))}; its public half stays published")
    return 0


# -- verify -------------------------------------------------------------------------------


def _verify(path: str, jwks: str) -> int:
    from scrapy_walsh.keys.jwks import parse  # noqa: PLC0415
    from scrapy_walsh.proof.attest.document import check_shape, in_words  # noqa: PLC0415
    from scrapy_walsh.proof.attest.signature import verify  # noqa: PLC0415  an extra

    body = _read(path)
    keys = _keys(jwks)
    try:
        found = parse(body)
        kid = verify(found, keys)
        check_shape(found)
    except DocumentInvalid as error:
        _tell(f"{path}: {error}")
        return 1
    print(f"the signature holds: key {printable(kid)}")
    for line in in_words(found):
        print(printable(line))
    return 0


def _keys(jwks: str) -> list[dict[str, Any]]:
    from scrapy_walsh.keys.jwks import keys_of  # noqa: PLC0415
    from scrapy_walsh.proof.attest.fetch import fetch, is_url  # noqa: PLC0415

    try:
        return keys_of(fetch(jwks) if is_url(jwks) else _read(jwks))
    except DocumentInvalid as error:
        raise Misuse(f"--jwks {jwks}: {error}") from None


def _read(path: str) -> bytes:
    """The octets of *path*, up to one more than the limit, which its reader refuses. Misuse."""
    from scrapy_walsh.keys.jwks import LIMIT  # noqa: PLC0415

    return read_file(path, LIMIT + 1)
