"""``walsh attest``: states what a conformance run showed of this build, and signs that."""

from __future__ import annotations

import importlib.util
import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from scrapy_walsh.commands import common
from scrapy_walsh.commands.common import Misuse, printable
from scrapy_walsh.config import WalshConfig
from scrapy_walsh.exceptions import DocumentInvalid
from scrapy_walsh.keys import LIMIT
from scrapy_walsh.policy.signing import DIRECTORY_PATH, DIRECTORY_TYPE
from scrapy_walsh.policy.times import iso
from scrapy_walsh.proof.attest.document import (
    PolicyPage,
    check_contract,
    document,
    evidence_in,
    judge,
)
from scrapy_walsh.proof.conformance import check
from scrapy_walsh.proof.files import replace_file
from scrapy_walsh.proof.keys import keys_of, parse
from scrapy_walsh.proof.ledger import lifted_holds

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping

    from cryptography.hazmat.primitives.asymmetric.ed25519 import (
        Ed25519PrivateKey,
    )
    from scrapy.settings import Settings


#: Why ``--online`` sends.
_REASON: Final = "walsh attest looks at the policy page"


def add_options(parser: argparse.ArgumentParser) -> None:
    """What ``walsh attest`` takes."""
    add = parser.add_argument
    add(
        "--record",
        type=Path,
        metavar="FILE",
        help="default: conformance.json of the state",
    )
    add(
        "--online",
        action="store_true",
        help="request the policy page, through the gates (R1.4)",
    )
    add(
        "-o",
        "--output",
        type=Path,
        metavar="FILE",
        help="where to write (default: stdout)",
    )
    common.add_settings(parser)
    add = parser.add_mutually_exclusive_group().add_argument
    add(
        "--sign",
        type=Path,
        metavar="KEY.pem",
        help="sign the document with this Ed25519 key",
    )
    add(
        "--keygen",
        type=Path,
        metavar="DIR",
        help="make a key and its JWKS there, or rotate them",
    )
    add(
        "--verify",
        metavar="FILE",
        help="does the signature of this document hold?",
    )
    add = parser.add_argument
    add("--jwks", metavar="FILE", help="with --verify: the signer's public keys")


def run(args: argparse.Namespace) -> int:
    """Attest, make keys, or verify."""
    if (args.verify is None) != (args.jwks is None):
        raise Misuse("--verify FILE and --jwks FILE go together")
    signed = args.sign is not None or args.verify is not None
    if signed and importlib.util.find_spec("rfc8785") is None:
        raise Misuse("signatures need a package: pip install 'scrapy-walsh[attest]'")
    if args.keygen is not None:
        return _keygen(args.keygen)
    if args.verify is None:
        return _attest(args)
    return _verify(args.verify, args.jwks)


# -- the document -------------------------------------------------------------------------


def _attest(args: argparse.Namespace) -> int:
    settings = common.settings_to_send(args, to_others=False)
    config = WalshConfig.from_settings(settings, common.default_state_dir)
    # Where `walsh conformance` leaves it.
    path = args.record or (config.state_dir and config.state_dir / check.FILE)
    if path is None:
        raise Misuse("WALSH_STATE_DIR is memory, which keeps no conformance record: give --record")
    files_read = {file.resolve() for file in (args.sign, path) if file is not None}
    if args.output is not None and args.output.resolve() in files_read:
        raise Misuse(f"--output {args.output} would replace what is read")
    key = None
    if args.sign is not None:  # read before anything is requested or written
        from scrapy_walsh.keys import load_private_key  # noqa: PLC0415  slow

        key = load_private_key(args.sign)
    record = None
    problems = []
    try:
        record = evidence_in(path, config)
    except DocumentInvalid as error:
        problems = [f"no requirement is attested: {error}"]
    url = config.identity.policy_url
    now = iso(time.time())
    page = look(url, settings, now) if args.online else PolicyPage(url)
    findings = judge(record, config, page)
    lifted = [] if config.state_dir is None else [*lifted_holds(config.state_dir)]
    attestation = document(record, config, page, findings, iso(time.time()), lifted=lifted)
    _write(args.output, attestation, key)
    for id_, findings_of in findings.items():
        problems += [
            f"{id_} is not attested: {finding.text}" for finding in findings_of if finding.text
        ]
    common.tell("attest", *(" ".join(line.split()) for line in problems))
    if not any(findings.values()):
        return 0
    return 1


def _write(
    output: Path | None, attestation: Mapping[str, Any], key: Ed25519PrivateKey | None
) -> None:
    """Print or write *attestation*; if it is signed, in its canonical form, so that it holds."""
    octets = json.dumps(attestation, indent=2).encode("ascii")
    if key is not None:
        from scrapy_walsh.proof.attest.signature import canonical, sign  # noqa: PLC0415  an extra

        octets = canonical(sign(attestation, key))
    if output is None:
        sys.stdout.buffer.write(octets + b"\n")
        sys.stdout.buffer.flush()
    else:
        replace_file(output, octets + b"\n")


def look(url: str, settings: Settings, now: str) -> PolicyPage:
    """The policy page at *url*, as its server has it *now* (ISO). ConfigError, StateError."""
    from scrapy_walsh.commands.own_crawl import request_pages  # noqa: PLC0415  slow

    page = request_pages(settings, _REASON, url)[url]
    if isinstance(page.answer, str):
        return PolicyPage(url, now, None, page.answer)
    return PolicyPage(url, now, page.answer, None if page.is_up else f"HTTP {page.answer}")


# -- keys ---------------------------------------------------------------------------------


def _keygen(directory: Path) -> int:
    from scrapy_walsh.proof.keys import make_keys  # noqa: PLC0415  slow

    keys_made = make_keys(directory)
    key = printable(str(keys_made.key))
    jwks = printable(str(keys_made.jwks))
    print(f"key {keys_made.kid}: sign with {key} (owner-only), publish {jwks}")
    print(
        f"to sign requests: WALSH_SIGNING_KEY = {str(keys_made.key.absolute())!r}, and serve "
        f"{printable(str(keys_made.directory))} at {DIRECTORY_PATH} as {DIRECTORY_TYPE}"
    )
    return 0


# -- verify -------------------------------------------------------------------------------


def _verify(path: str, jwks: str) -> int:
    from scrapy_walsh.proof.attest.signature import verify  # noqa: PLC0415  an extra

    body = common.read_file(path, LIMIT + 1)
    keys = _keys(jwks)
    try:
        attestation = parse(body)
        kid = verify(attestation, keys)
        check_contract(attestation)
    except DocumentInvalid as error:
        common.tell("attest", " ".join(f"{path}: {error}".split()))
        return 1
    print(f"the signature holds: key {printable(kid)}")
    print(json.dumps(attestation, indent=2))
    return 0


def _keys(jwks: str) -> list[dict[str, Any]]:
    """The keys of the file *jwks*; its reader refuses a file that is longer than the limit."""
    try:
        return keys_of(common.read_file(jwks, LIMIT + 1))
    except DocumentInvalid as error:
        raise Misuse(f"--jwks {jwks}: {error}") from None
