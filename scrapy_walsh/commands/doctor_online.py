"""``walsh doctor --online``: requests the operator's policy page (R1.4) and blocklist once each.

Where requests are signed (D25), also the key directory, to verify a signature of ours by it.
"""

from __future__ import annotations

import logging
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from scrapy_walsh.adapters.crawl import Crawl
from scrapy_walsh.adapters.events import logger
from scrapy_walsh.commands.operator_pages import PagesSpider, ask, is_up
from scrapy_walsh.exceptions import DocumentInvalid
from scrapy_walsh.findings import Finding, Outcome
from scrapy_walsh.keys.files import DIRECTORY
from scrapy_walsh.policy import event as events
from scrapy_walsh.policy.event import Event
from scrapy_walsh.policy.signing import DIRECTORY_TYPE, Target
from scrapy_walsh.proof.signatures import Seen, directory_keys, judge
from scrapy_walsh.state.records import BLOCKLIST, StoredDocument

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Mapping

    from scrapy.settings import Settings

    from scrapy_walsh.commands.operator_pages import Answers
    from scrapy_walsh.config import WalshConfig

_REASON: Final = "walsh doctor --online looks whether the operator's URLs answer"
#: Seconds by which our clock and a server's may differ: the answer takes some, and Date is whole.
_CLOCKS_DIFFER: Final = 30.0
#: Nothing is retried, and no wait is long.
_HASTE: Final[Mapping[str, Any]] = {"WALSH_MAX_RETRIES": 0, "WALSH_PATIENCE": 30}


class DoctorSpider(PagesSpider):
    """Requests the operator's URLs."""

    name = "walsh_doctor"

    async def start(self) -> AsyncIterator[Any]:
        """The blocklist comes as in any crawl; it is a target only where it was not yet due."""
        core = Crawl.of(self.crawler)
        core.sources.account.due = False
        url, since = core.config.blocklist_url, time.time()
        with _rejections(url) as reasons:
            await core.documents.operator.bring()
        held = core.store.get(StoredDocument, BLOCKLIST, url)
        if reasons:
            self.answers[url] = reasons[0]
        elif held is not None and held.fetched_at >= since and held.status is not None:
            self.answers[url] = held.status
        else:
            yield self.page(url)
        yield self.page(core.config.identity.policy_url)
        if core.signer is not None:  # whoever verifies follows no redirect
            yield self.page(core.signer.directory, redirects=False)


@contextmanager
def _rejections(url: str) -> Iterator[list[str]]:
    """Why the document *url* was not adopted meanwhile, as the log has it."""
    reasons: list[str] = []

    class Keep(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            event = getattr(record, "walsh_event", None)  # the text of a record is escaped
            if isinstance(event, Event) and (event.kind, event.url) == (events.REJECTED, url):
                reasons.append(event.reason)

    handler = Keep()
    logger.addHandler(handler)
    try:
        yield reasons
    finally:
        logger.removeHandler(handler)


def findings(config: WalshConfig, settings: Settings) -> list[Finding]:
    """A finding for each of the operator's URLs. StateError when no crawl can start."""
    answers = ask(settings, _REASON, DoctorSpider, **_HASTE)
    found = [
        _finding("R1.4", "policy", config.identity.policy_url, answers),
        _finding("R3", "blocklist", config.blocklist_url, answers),
    ]
    if config.sign_requests:
        found.append(_directory(config, answers))
    return [*found, *_clock(answers, signed=config.sign_requests)]


def _directory(config: WalshConfig, answers: Answers) -> Finding:
    """Whether a signature of ours holds by the key directory, as whoever verifies one has it."""
    url = config.key_directory
    why = _unusable(answers, url)
    if why is None:
        from scrapy_walsh.adapters.signing import signer_of  # noqa: PLC0415  an extra

        signer = signer_of(config)
        assert signer is not None  # noqa: S101  requests are signed
        now = time.time()
        sent = Target("GET", "site.example", "/")
        fields = {name.lower(): [each] for name, each in signer.fields(sent, now).items()}
        seen = Seen(sent.method, (sent.authority,), sent.path, now, fields)
        try:
            why = judge(seen, directory_keys(answers.bodies[url])).why
        except DocumentInvalid as error:
            why = str(error)
        if not why:
            text = f"{url} lists key {signer.keyid}, and a signature of ours holds by it"
            return Finding(Outcome.HELD, "R1", "signing", text)
    what = (
        f"{url}: {why}: serve the file {DIRECTORY} that attest --keygen wrote, as {DIRECTORY_TYPE}"
    )
    return Finding(Outcome.BROKEN, "R1", "signing", what)


def _unusable(answers: Answers, url: str) -> str | None:
    """Why the key directory at *url* cannot be read; None where it can."""
    answer = answers.of(url)
    if answer != 200:
        return f"it answers {answer}, not 200" if isinstance(answer, int) else answer
    kind = answers.types.get(url, "").partition(";")[0].strip().lower()
    return None if kind == DIRECTORY_TYPE else f"it is served as {kind or 'no type at all'}"


def _clock(answers: Answers, *, signed: bool) -> Iterator[Finding]:
    """Whether the clock agrees with the Date of the answers: a signature holds for minutes."""
    if not answers.ahead:
        if signed:
            yield Finding(Outcome.UNSEEN, "R1", "clock", "no answer had a Date to compare it with")
        return
    url, ahead = min(answers.ahead.items(), key=lambda each: abs(each[1]))
    if abs(ahead) <= _CLOCKS_DIFFER:
        if signed:
            text = f"it agrees with the Date of {url}, to {abs(ahead):.0f} s"
            yield Finding(Outcome.HELD, "R1", "clock", text)
        return
    where = "ahead of" if ahead > 0 else "behind"
    text = f"it is {abs(ahead):.0f} s {where} the Date of {url}: set it"
    if signed:
        text += "; servers refuse signatures from another time"
    yield Finding(Outcome.BROKEN if signed else Outcome.WARNING, "R1", "clock", text)


def _finding(requirement: str, about: str, url: str, answers: Answers) -> Finding:
    answer = answers.of(url)
    if is_up(answer):
        return Finding(Outcome.HELD, requirement, about, f"{url} answers {answer}")
    if isinstance(answer, int):
        what = f"{url} answers {answer}: put it up, or correct its URL"
    else:  # why it was not adopted, or what came in place of an answer
        what = f"{url}: {answer}: put it right, or correct its URL"
    return Finding(Outcome.BROKEN, requirement, about, what)
