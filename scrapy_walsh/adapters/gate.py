"""The one object that walks the way of a request (``policy/chain.py``), at four named moments.

- ``at_queue``: the scheduler takes the request in. What the cached documents refuse waits for
  nothing.
- ``at_gate``: the queue has given it out. It is judged, the documents that this needs are fetched,
  and it goes on, goes back to the queue, or ends.
- ``at_wire``: it has its turn. It may have waited, and documents change: it is looked at again.
- ``after``: its exchange has ended. What follows for its host, its source and itself is done.

The chain decides. This module brings it the documents that it needs, does what it answers, and
records why.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, assert_never
from weakref import WeakKeyDictionary, WeakSet

from msgspec import structs
from scrapy.exceptions import IgnoreRequest

from scrapy_walsh.adapters.events import logger
from scrapy_walsh.adapters.fetcher import OPERATOR
from scrapy_walsh.adapters.outcomes import Closing, GaveUp, NotYet, Refused
from scrapy_walsh.adapters.retries import retry_after
from scrapy_walsh.adapters.sources import form_of
from scrapy_walsh.policy import chain, hosts
from scrapy_walsh.policy import event as events
from scrapy_walsh.policy.backoff import GiveUp, reaches_spider
from scrapy_walsh.policy.chain import NeedDocument
from scrapy_walsh.policy.event import TARGET, Event, EventKind, Exchange
from scrapy_walsh.policy.verdict import (
    DEFERRED,
    UNKNOWN_PARSE_ERROR,
    UNKNOWN_UNREACHABLE,
    Verdict,
)

if TYPE_CHECKING:
    from scrapy import Request
    from scrapy.http import Response

    from scrapy_walsh.adapters.context import Context
    from scrapy_walsh.adapters.documents.held import Documents
    from scrapy_walsh.adapters.fetcher import Fetcher, Mark
    from scrapy_walsh.adapters.intake import Intake
    from scrapy_walsh.adapters.pacing import Pacing
    from scrapy_walsh.adapters.retries import Retries
    from scrapy_walsh.adapters.scraping import Scraping
    from scrapy_walsh.adapters.sources import Sources
    from scrapy_walsh.adapters.tags import Tags
    from scrapy_walsh.policy.chain import Rules
    from scrapy_walsh.policy.host import Host
    from scrapy_walsh.policy.learned import Spacing

#: Seconds for which a request that the gate let through is not judged again.
_CLEARANCE: Final = 1.0


@dataclass(slots=True)
class _Standing:
    """The last verdict on a request, and the documents it was made from (``basis``).

    ``cleared_at``: when the gate let it through, monotonic seconds; None before that. ``rules``:
    the robots.txt by which it was let through.
    """

    url: str
    verdict: Verdict
    basis: tuple[int, int] | None
    cleared_at: float | None = None
    rules: Rules | None = None


class Gate:
    """The gate of one crawl."""

    def __init__(
        self,
        context: Context,
        *,
        intake: Intake,
        pacing: Pacing,
        fetcher: Fetcher,
        documents: Documents,
        sources: Sources,
        retries: Retries,
        scraping: Scraping,
        tags: Tags,
    ) -> None:
        self._context = context
        self._intake = intake
        self._pacing = pacing
        self._fetcher = fetcher
        self._documents = documents
        self._sources = sources
        self._retries = retries
        self._scraping = scraping
        self._tags = tags
        self._standing: WeakKeyDictionary[Request, _Standing] = WeakKeyDictionary()
        #: Requests that wait no longer for what `Spider.start` may still declare (R6).
        self._undeclared: WeakSet[Request] = WeakSet()
        #: Hosts that a middleware would have had fetch pages; each is named once in a warning.
        self._elsewhere: set[str] = set()

    # -- 1: at the queue ------------------------------------------------------------------

    def at_queue(self, request: Request) -> Verdict | NeedDocument:
        """The verdict on *request* with the cached documents: the last one, if none has changed.

        ``NeedDocument`` where a document must be fetched before there can be one. R8's record is
        read once here and once more at the wire, where no other process can send the source any
        more.
        """
        standing = self._judged(request)
        return standing.verdict if isinstance(standing, _Standing) else standing

    def _judged(self, request: Request) -> _Standing | NeedDocument:
        url, known, documents = request.url, self._standing.get(request), self._documents
        if (
            known is not None
            and known.basis is not None
            and known.url == url
            and known.basis == documents.basis(url)
        ):
            return known
        answer = self._judge(request)
        if isinstance(answer, NeedDocument):
            return answer
        standing = _Standing(url, answer, documents.basis(url))
        self._standing[request] = standing
        return standing

    def _judge(self, request: Request, *, last: bool = False) -> Verdict | NeedDocument:
        """As :meth:`judge`; *last*: what is not declared by now is out of scope."""
        answer = self.judge(request.url, form_of(request))
        if isinstance(answer, NeedDocument) and answer.kind == chain.START:
            refused = self._context.scope.refuses(request.url)
            if refused is not None and (last or request in self._undeclared):
                return refused
        return answer

    def wait_no_longer(self, request: Request) -> None:
        """Judge *request* by what has been declared, though `Spider.start` has not ended (R6)."""
        self._undeclared.add(request)

    def judge(self, url: str, form: str = "", *, runs: bool = True) -> Verdict | NeedDocument:
        """The verdict on *url* with the cached documents; *form*: of ``recrawl.form_of``.

        Where *runs* is false, R8 is left for a later look: nothing is read from the store for it.
        """
        context = self._context
        return chain.judge(
            url,
            context.scope,
            self._documents,
            context.gates,
            context.wall(),
            form=form,
            runs=runs,
        )

    # -- 2: at the gate -------------------------------------------------------------------

    async def at_gate(self, request: Request) -> Request | None:
        """Let *request* go on (None), or what to give back to the queue in its place.

        Raises Refused, or GaveUp, where it ends here.
        """
        context = self._context
        fetched = False
        try:
            while isinstance(standing := self._judged(request), NeedDocument):
                self._retries.end_trial(request, decided=False)
                if (back := await self._bring_for(request, standing)) is not None:
                    return back
                fetched = fetched or standing.kind == chain.ROBOTS
        except Closing:
            return self._pacing.keep(request)
        answer = standing.verdict
        if answer.requirement == "R2" and (fetched or request not in self._pacing.first):
            self._documents.robots_txt.counts.used(fetched=fetched)
        if not answer.allowed:
            if answer.name == UNKNOWN_UNREACHABLE:
                self._retries.end_trial(request, decided=False)
            raise self.refuse(request, answer)
        self._retries.end_trial(request, decided=True)
        host, ended = self._pacing.host_of(request.url), self._retries.ended(request.url)
        if (back := self._admitted(request, host, document=False, ended=ended)) is not None:
            return back
        if fetched and request in self._pacing.popped and self._gives_way(host.key):
            return self._pacing.again(request)
        standing.cleared_at = context.monotonic()
        standing.rules = self._documents.rules_of(request.url)
        self._scraping.watch(request)
        return None

    def _gives_way(self, host: str) -> bool:
        """Whether a queue ranks *host* again before its target is sent, by its new robots.txt."""
        return any(queue.gives_way(host) for queue in self._context.queues)

    async def _bring_for(self, request: Request, needed: NeedDocument) -> Request | None:
        """Bring the document that is *needed*, or give *request* back until its host is due.

        What `Spider.start` may still declare goes back, too, and stays in the queue until then.
        """
        if needed.kind == chain.START:
            if request in self._pacing.popped:
                return self._pacing.again(request)
            await self._intake.ended()
            self.wait_no_longer(request)
            return None
        if needed.kind == chain.ROBOTS:
            host = self._pacing.host(self._documents.robots_txt.next_host(needed.origin))
            if (back := self._admitted(request, host, document=True)) is not None:
                return back
        await self.bring(needed, trial=self._retries.tries_https(request))
        return None

    async def bring(self, needed: NeedDocument, *, trial: bool = False) -> None:
        """Make one step towards the document that a gate needs; *trial*: of https alone."""
        if needed.kind == chain.BLOCKLIST:
            await self._documents.operator.bring()
        else:
            await self._documents.robots_txt.step(needed.origin, trial=trial)

    def _admitted(
        self, request: Request, host: Host, *, document: bool, ended: str = ""
    ) -> Request | None:
        """The request to give back to the queue while *host* is not due; None to go on.

        A request of ``engine.download_async`` did not come from the queue: it waits at the wire.
        """
        match step := host.admit(self._context.monotonic(), document=document, ended=ended):
            case chain.Ended(why):
                raise GaveUp(request.url, why)
            case chain.Refuse(verdict):
                raise self.refuse(request, verdict)
            case chain.Wait(seconds):
                popped = request in self._pacing.popped
                return self._pacing.give_back(request, seconds) if popped else None
            case chain.Go():
                return None
            case _:
                assert_never(step)

    # -- 3: at the wire -------------------------------------------------------------------

    def at_wire(self, request: Request, host: Host) -> NeedDocument | None:
        """The last look at *request*, whose turn it is: the document that must come first, or None.

        What waited here for its host's time is judged again: documents change (R12), a list may
        have come that nobody has read yet (R3), its host may have used up its attempts (R5).
        Raises Refused; for a robots.txt NotYet, so that the gate refuses the target that needs it.
        """
        if self._documents.operator.state.arrived and not self._fetcher.is_operators(request):
            return NeedDocument(chain.BLOCKLIST)
        self._stop_if_spent(request, host)
        if not self._fetcher.owns(request):
            against = self._sources.take(request) or self._too_soon(request)
            if against is not None:
                raise self.refuse(request, against)
        return self.before_wire(request)

    def _too_soon(self, request: Request) -> Verdict | None:
        """R8's verdict against *request* by now: another process may have sent the source."""
        context = self._context
        return chain.too_soon(
            request.url,
            context.scope,
            self._documents,
            context.gates,
            context.wall(),
            form=form_of(request),
        )

    def before_wire(self, request: Request) -> NeedDocument | None:
        """As :meth:`at_wire`, for *request* alone; IgnoreRequest for what no gate has let pass."""
        context = self._context
        context.stop_if_halted()
        standing = self._standing.get(request)
        if standing is not None:
            self.stop_elsewhere(standing.url, request.url)
        if (needed := self._judge_proxy(request)) is not None or self._fetcher.owns(request):
            return needed
        cleared_at = self._cleared_at(request)
        if cleared_at is not None and self._still_clear(request, cleared_at):
            return None
        answer = self._judge(request, last=True)
        if isinstance(answer, NeedDocument):
            if cleared_at is None:
                raise IgnoreRequest(f"{request.url} came to the wire past the gates")
            return answer
        if not answer.allowed:
            raise self.refuse(request, answer)
        if cleared_at is not None:
            basis, rules = self._documents.basis(request.url), self._documents.rules_of(request.url)
            cleared = context.monotonic()
            self._standing[request] = _Standing(request.url, answer, basis, cleared, rules)
        return None

    def stop_elsewhere(self, url: str, other: str) -> None:
        """Raise Refused where a middleware has put *other* in the place of the target *url* (R6).

        It is not recorded as a decision: by the ledger's terms, *other* may be within scope.
        """
        against = None if url == other else self._context.scope.refuses_in_place(url, other)
        if against is None:
            return
        if (host := self._pacing.look_up(other)) not in self._elsewhere:
            self._elsewhere.add(host)
            logger.warning(
                "%s is not requested, nor is anything else by way of %s: %s",
                url,
                host,
                against.reason,
            )
        raise Refused(url, against)

    def _stop_if_spent(self, request: Request, host: Host) -> None:
        if self._fetcher.is_operators(request):
            return
        document = self._fetcher.owns(request)
        if not document:
            self._retries.end_trial(request, decided=True)
        verdict = host.spent(self._context.monotonic(), document=document)
        if verdict is not None:
            raise NotYet(host.key, 0.0) if document else self.refuse(request, verdict)

    def _cleared_at(self, request: Request) -> float | None:
        """When *request*, with the URL that it has now, passed the gate; monotonic seconds."""
        standing = self._standing.get(request)
        return standing.cleared_at if standing and standing.url == request.url else None

    def _still_clear(self, request: Request, cleared_at: float) -> bool:
        standing = self._standing[request]
        return (
            self._context.monotonic() - cleared_at < _CLEARANCE
            and standing.basis is not None
            and standing.basis[0] == self._documents.operator.state.serial
        )

    def _judge_proxy(self, request: Request) -> NeedDocument | None:
        """R3 for the proxy that *request* goes through; raises ``Refused``.

        The proxy is known only here: Scrapy's middleware has read the environment by now. The
        operator's own documents are let through, since R3 cannot be decided without them.
        """
        context, proxy = self._context, request.meta.get("proxy")
        if not proxy or self._fetcher.is_operators(request):
            return None
        host = hosts.proxy_host(proxy)
        against = chain.judge_proxy(host, self._documents, context.gates)
        if isinstance(against, Verdict):
            raise self.refuse(request, against, host)
        return against

    # -- 4: after the exchange ------------------------------------------------------------

    def after(
        self,
        request: Request,
        host: Host,
        response: Response | None,
        *,
        started: float,
        unseen: bool,
        whole: bool,
    ) -> Exchange:
        """Do what follows from one exchange, and return it for the ledger.

        ``started``: by the steady clock. ``unseen``: the host had never been requested before.
        ``whole``: False for an exchange that this side broke off.
        """
        context, steady = self._context, self._context.steady()
        started, steady = round(started, 6), round(steady, 6)
        spacing = host.spacing(started, steady)
        mark = self._fetcher.mark(request)
        answer = self._answer(request, mark, host, response, spacing, unseen=unseen, whole=whole)
        concluded = chain.conclude(answer, context.gates, context.wall(), context.rand())
        exchange = self._exchange(request, host, answer, concluded, started=started, ended=steady)
        if mark is not None and response is not None:
            exchange = structs.replace(exchange, **mark.seen(response))
            if mark.kind == OPERATOR:
                self._documents.operator.answered()
        if concluded.failure is not None:
            self._retries.failed(request, concluded.failure)
        elif whole and mark is None:
            self._retries.succeeded(request.url)
        self._pacing.finished(host, answer, concluded, ended=steady)
        sent_at = context.wall() - (steady - started)
        if concluded.answered:
            self._sources.answered(request, str(answer.status), sent_at)
        elif concluded.redirected:
            self._sources.redirected(request)
        else:
            self._sources.let_go(request)
        return exchange

    def _answer(
        self,
        request: Request,
        mark: Mark | None,
        host: Host,
        response: Response | None,
        spacing: Spacing,
        *,
        unseen: bool,
        whole: bool,
    ) -> chain.Answer:
        silent = response is None and whole
        return chain.Answer(
            TARGET if mark is None else mark.kind,
            None if response is None else response.status,
            request.method,
            () if response is None else tuple(retry_after(response)),
            self._retries.tried(request.url) if mark is None else mark.attempt,
            0 if mark is None else mark.hops,
            unseen,
            whole,
            self._retries.unanswered(request) if silent else "",
            spacing,
            host.learned,
        )

    def _exchange(
        self,
        request: Request,
        host: Host,
        answer: chain.Answer,
        concluded: chain.Conclusion,
        *,
        started: float,
        ended: float,
    ) -> Exchange:
        """One exchange as the ledger has it."""
        target, failure = answer.purpose == TARGET, concluded.failure
        silent = answer.whole and answer.status is None
        passed = self.passed(request) if target else None
        before, learned = answer.known.interval, concluded.learned.interval
        return Exchange(
            url=request.url,
            host=host.key,
            method=request.method,
            purpose=answer.purpose,
            started=started,
            ended=ended,
            status=answer.status,
            answered=answer.whole,
            interval=host.traffic.interval,
            exempt=concluded.exempt,
            verdict="" if passed is None else passed.name,
            digest=None if passed is None else passed.digest,
            attempt=answer.attempt,
            retry_after=tuple(answer.retry_after),
            wait=None if failure is None else concluded.hold,
            gives_up=isinstance(failure, GiveUp),
            sent=self._tags.sent.get(request),
            hops=answer.hops,
            form=form_of(request) if target else "",
            again=(target and self._sources.again(request)) or None,
            visit=(target and host.traffic.ahead) or None,
            once=True if silent and self._retries.tries_https(request) else None,
            learned=None if learned == before else learned,
            taught=host.newly_taken(),
            silent=host.silence.before or None,
        )

    def over(self, request: Request, outcome: Response | BaseException) -> None:
        """Record that the way of *request* has ended, with what its spider gets.

        It is not called for a retry, a redirect that is followed, or what goes back to the queue.
        So each target counts once: in ``fetched``, and in the stats of the verdicts.
        """
        standing = self._standing.get(request)
        cleared = standing is not None and standing.cleared_at is not None
        if standing is not None and cleared and not isinstance(outcome, Refused):
            self._context.recorder.verdict(standing.verdict)
        if not isinstance(outcome, BaseException) and reaches_spider(outcome.status):
            rules = None if standing is None else standing.rules
            usage = tuple(map(str, self._documents.read_usage(request, outcome, rules)))
            self.tell(
                events.FETCHED, request, outcome.status, f"HTTP {outcome.status}", usage=usage
            )

    # -- what is recorded -----------------------------------------------------------------

    def refuse(self, request: Request, verdict: Verdict, proxy: str | None = None) -> Refused:
        """Record that *request* is refused; the exception to raise for it.

        ``proxy``: the host that it would have gone through, where that is why.
        """
        context = self._context
        host = self._pacing.host_of(request.url)
        due = self._due_again(host, verdict)
        context.recorder.record(
            Event.of(
                events.REFUSED if due is None else events.DEFERRED,
                request.url,
                verdict,
                host.key,
                due=due,
                form=form_of(request),
                proxy=proxy,
            )
        )
        self._sources.refused(request, verdict, host.key, due)
        return Refused(request.url, verdict, due)

    def _due_again(self, host: Host, verdict: Verdict) -> float | None:
        """Unix seconds from which a later run may send it; None where *verdict* refuses it."""
        context = self._context
        if verdict.name == DEFERRED and verdict.requirement == "R4":
            return context.wall() + host.traffic.wait(context.monotonic())
        if verdict.name in (DEFERRED, UNKNOWN_PARSE_ERROR):
            return context.wall()  # by the next run
        if verdict.name == UNKNOWN_UNREACHABLE and context.config.robots_unreachable == "defer":
            return context.wall()
        return None

    def passed(self, request: Request) -> Verdict | None:
        """The last verdict on *request*, with which it passed the gates if it was sent."""
        standing = self._standing.get(request)
        return None if standing is None else standing.verdict

    def tell(
        self,
        kind: EventKind,
        request: Request,
        status: int,
        why: str,
        requirement: str = "",
        *,
        usage: tuple[str, ...] = (),
    ) -> None:
        """Record how *request* ended: with the verdict that let it pass, or by *requirement*.

        *usage*: what the site said about use.
        """
        host, passed = self._pacing.look_up(request.url), self.passed(request)
        if requirement or passed is None:
            event = Event(kind, request.url, requirement, reason=why, host=host, status=status)
        else:
            more = {"reason": why, "status": status, "usage": usage}
            event = Event.of(kind, request.url, passed, host, **more)
        self._context.recorder.record(event)
