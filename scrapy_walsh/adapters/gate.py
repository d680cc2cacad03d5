"""The one object that walks the way of a request (``policy/chain.py``), at four named moments.

- ``at_queue``: the scheduler takes the request in. If the cached documents refuse it, it does not
  wait.
- ``at_gate``: the queue has given it out. It is judged, and missing documents are fetched. Then it
  goes on, goes back to the queue, or ends.
- ``at_wire``: it has its turn. It is judged again: it may have waited, and documents change.
- ``after``: its exchange has ended. The gate tells the host, the source and the ticket the result.

The chain decides, from the documents and records in ``Documents``. The gate fetches the documents
that the chain needs, carries out its answer, and records the reason. A request's ticket has our
knowledge of it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace
from scrapy.exceptions import IgnoreRequest
from scrapy.http import Request, Response

from scrapy_walsh.adapters import compat
from scrapy_walsh.adapters.documents import faults
from scrapy_walsh.adapters.documents.fetcher import OPERATOR, Document, Fetcher
from scrapy_walsh.adapters.documents.operator_list import OperatorList
from scrapy_walsh.adapters.documents.robots_txt import RobotsTxt
from scrapy_walsh.adapters.events import logger
from scrapy_walsh.adapters.outcomes import Closing, GaveUp, Halted, NotModified, NotYet, Refused
from scrapy_walsh.adapters.plugins import NOTED
from scrapy_walsh.adapters.sources import words_of
from scrapy_walsh.adapters.ticket import TICKET, is_conditional
from scrapy_walsh.policy import chain, hosts, visits
from scrapy_walsh.policy import event as events
from scrapy_walsh.policy.addresses import NO_LEAD, PUBLIC, Led
from scrapy_walsh.policy.backoff import Answer, GiveUp, is_failure, seconds_to_reset
from scrapy_walsh.policy.chain import NeedDocument, Rules
from scrapy_walsh.policy.formats import representation as formats
from scrapy_walsh.policy.robots import usage
from scrapy_walsh.policy.robots.file import Robots
from scrapy_walsh.policy.verdict import (
    DEFERRED,
    NOT_DUE,
    PRIVATE_ADDRESS,
    UNKNOWN_PARSE_ERROR,
    UNKNOWN_UNREACHABLE,
    Verdict,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Sequence

    from scrapy_walsh.adapters.context import Context
    from scrapy_walsh.adapters.delivery import Delivery
    from scrapy_walsh.adapters.intake import Intake
    from scrapy_walsh.adapters.sources import Sources
    from scrapy_walsh.adapters.ticket import Retries, Ticket, Tickets
    from scrapy_walsh.adapters.wire.pacing import Pacing
    from scrapy_walsh.policy.host import Host
    from scrapy_walsh.policy.robots.usage import Statement
    from scrapy_walsh.policy.verdict import Unanswered


class Documents:
    """``chain.Held`` for one crawl."""

    def __init__(
        self, context: Context, fetcher: Fetcher, pacing: Pacing, sources: Sources
    ) -> None:
        self.operator = OperatorList(context, fetcher, pacing)
        #: Our name in directives about the use of an answer.
        self._token = context.config.identity.token
        #: The list, or the verdict in its place; None if it must be fetched first (R12).
        self.blocklist = self.operator.current
        self.robots_txt = RobotsTxt(context, fetcher, pacing, self)
        #: When an earlier run last sent the source *key* and was answered (R8).
        self.last_visit = sources.last_visit
        #: The rules of an origin; None if they must be fetched or refreshed first (R12).
        self.robots = self.robots_txt.current

    def basis(self, url: str) -> tuple[int, int] | None:
        """Numbers of the list and the rules that decide about *url*; None if one is missing.

        While they stay the same, the last verdict on *url* holds.
        """
        rules = self.robots_txt.serial(url)
        if rules is None or self.blocklist() is None:
            return None
        return self.operator.state.serial, rules

    def sitemaps(self, url: str) -> list[str]:
        """The sitemaps that the robots.txt of *url*'s origin names, if it is in memory."""
        rules = self.rules_of(url)
        sitemaps = rules.sitemaps if isinstance(rules, Robots) else ()
        return formats.suggested_sitemaps(sitemaps, hosts.robots_url(url))

    def rules_of(self, url: str) -> Rules | None:
        """The robots.txt of *url*'s origin, if it is in memory, fresh or not."""
        return self.robots_txt.last(hosts.origin(url))

    def bring(
        self, needed: NeedDocument, *, trial: bool = False, led: Led = NO_LEAD
    ) -> Awaitable[None]:
        """Make one step towards the document that a gate needs; *trial*: for a trial of https.

        *led*: how the crawl came to the target that needs it. Raises as ``RobotsTxt.step``.
        """
        if needed.kind == chain.BLOCKLIST:
            return self.operator.bring()
        return self.robots_txt.step(needed.origin, trial=trial, led=led)

    def read_usage(self, response: Response, rules: Rules | None) -> tuple[Statement, ...]:
        """The statements of a site about the use of *response*; *rules* let its request through."""
        url = response.url
        in_robots = () if rules is None else rules.said(url)
        fields = {
            name.decode("latin-1").lower(): [value.decode("latin-1") for value in values]
            for name, values in response.headers.items()
        }
        return (*in_robots, *usage.of_response(fields, url, self._token))


@dataclass(slots=True)
class Sent:
    """A request that has been sent, and later its end.

    ``unseen``: its host had never been requested before. ``started``, ``ended``: Unix seconds by
    the steady clock. ``response``: None without an answer. ``whole``: False if this side broke the
    exchange off. ``unsent``: as in an ``Exchange``. ``proxy``: the proxy's host, unless it is the
    sandbox.
    """

    request: Request
    ticket: Ticket
    unseen: bool
    started: float
    ended: float = 0.0
    response: Response | None = None
    whole: bool = True
    unsent: events.Unsent | None = None
    proxy: str | None = None

    @property
    def status(self) -> int | None:
        """That of the answer; None without one."""
        return None if self.response is None else self.response.status

    @property
    def is_unasked(self) -> bool:
        """Whether the answer is a 304, and the request was not conditional."""
        return self.status == visits.NOT_MODIFIED and not is_conditional(self.request)

    def reset(self, now: float) -> float | None:
        """``seconds_to_reset`` of the answer. *now*: Unix seconds."""
        if self.response is None:
            return None
        return seconds_to_reset(partial(formats.joined, self.response.headers), now)

    def fields(self, name: str) -> tuple[str, ...]:
        """The values of the answer's header fields of that name."""
        values = [] if self.response is None else self.response.headers.getlist(name)
        return tuple(value.decode("latin-1") for value in values)


@dataclass(slots=True)
class Gate:
    """The gate of one crawl, and the parts of the crawl that it needs."""

    context: Context
    tickets: Tickets
    intake: Intake
    pacing: Pacing
    documents: Documents
    sources: Sources
    delivery: Delivery
    retries: Retries
    #: Whether a command shows one page to a person, for example ``scrapy fetch``. If no page comes,
    #: it prints the reason and exits with 1.
    looks: bool = False
    #: The kinds of answers of other components that were warned about already. True: the answer
    #: says that it came from the network. False: it does not.
    warned: set[bool] = field(default_factory=set)

    # -- 1: at the queue ------------------------------------------------------------------

    def at_queue(self, ticket: Ticket, *, runs: bool = True) -> Verdict | NeedDocument:
        """The verdict on a request with the cached documents: the last one, if none has changed.

        ``NeedDocument`` if a document must be fetched first. *runs*: as for :meth:`judge`. The last
        verdict may be older than R8's record. So ``at_wire`` reads that record once more, when the
        source is locked for this process.
        """
        url = ticket.url
        verdict = ticket.verdict
        basis = self.documents.basis
        if verdict is not None and ticket.basis is not None and ticket.basis == basis(url):
            return verdict
        answer = self.judge(url, ticket.form, runs=runs, led=ticket.led)
        if ticket.late and isinstance(answer, NeedDocument) and answer.kind == chain.START:
            # It waits no longer for `Spider.start`, so what is declared by now decides.
            answer = self.context.scope.refuses(url) or answer
        if isinstance(answer, Verdict):
            if answer.allowed:
                ticket.rules = self.documents.rules_of(url)
            ticket.verdict, ticket.basis = answer, basis(url)
            if answer.name == NOT_DUE:
                visit = self.sources.last_visit(ticket.key)
                now = self.context.wall()
                ticket.hour_left = visits.hour_left(visit, now, self.context.config.revisit)
        return answer

    def judge(
        self, url: str, form: str = "", *, runs: bool = True, led: Led = NO_LEAD
    ) -> Verdict | NeedDocument:
        """The verdict on *url* with the cached documents; *form*: of ``urls.form_of``.

        If *runs* is false, R8 is left for a later look, and the store is not read for it.
        """
        context, now = self.context, self.context.wall()
        return chain.judge(
            url, context.scope, self.documents, context.gates, now, form=form, runs=runs, led=led
        )

    # -- 2: at the gate -------------------------------------------------------------------

    async def at_gate(self, request: Request, ticket: Ticket) -> Request | None:
        """None if *request* may go on; else the request to give back to the queue in its place.

        Raises Refused or GaveUp if it ends here, and Closing while the spider closes.
        """
        try:
            return await self._judge_and_admit(request, ticket)
        except Exception as error:
            faults.pass_on("a request could not be judged", error)

    async def _judge_and_admit(self, request: Request, ticket: Ticket) -> Request | None:
        """Judge *request* until there is a verdict, then admit it. Returns as ``at_gate``."""
        self._stop_if_halted()
        fetched = False
        # After a robots.txt, R8 is not read again: it has let this request pass, before R2.
        while isinstance(answer := self.at_queue(ticket, runs=not fetched), NeedDocument):
            self._end_trial(ticket)
            if (back := await self._bring_for(request, ticket, answer)) is not None:
                return back
            fetched = fetched or answer.kind == chain.ROBOTS
        # A request that came back goes first. Its decision was counted before, unless it has
        # fetched the robots.txt only now.
        if answer.requirement == "R2" and (fetched or not ticket.first):
            self.documents.robots_txt.counts["misses" if fetched else "hits"] += 1
        # A robots.txt without an answer by https may allow or refuse. Either way, try http then.
        if answer.allowed or answer.name == UNKNOWN_UNREACHABLE:
            self._end_trial(ticket)
        if not answer.allowed:
            # R8 ends within minutes, so the request waits for that in the queue.
            if ticket.popped and ticket.hour_left is not None:
                return self.tickets.again(request)
            raise self.refuse(ticket, answer)
        if self.retries.attempts.get(ticket.key, 0) > self.context.config.max_retries:
            raise GaveUp(ticket.url, "it was given up earlier in this run (R5)")
        if (back := self._admit(request, ticket, ticket.host, document=False)) is not None:
            return back
        # A queue may rank the host again before its target is sent, by its new robots.txt (D30).
        queues = self.context.queues if fetched and ticket.popped else ()
        if any(queue.gives_way(ticket.host.key) for queue in queues):
            return self.tickets.again(request)
        ticket.cleared, ticket.before = True, ""
        return None

    async def _bring_for(
        self, request: Request, ticket: Ticket, needed: NeedDocument
    ) -> Request | None:
        """Bring the document that is *needed*, or give *request* back until its host is due.

        A request that `Spider.start` may still declare goes back, too, and waits in the queue.
        """
        if needed.kind == chain.START:
            if ticket.popped:
                return self.tickets.again(request)
            await self.intake.ended()
            ticket.late = True
            return None
        if needed.kind == chain.ROBOTS:
            host = self.documents.robots_txt.next_host(needed.origin)
            if (back := self._admit(request, ticket, host, document=True)) is not None:
                return back
        try:
            await self.documents.bring(needed, trial=ticket.trial, led=ticket.led)
        except Refused as error:  # nothing was recorded of the target yet
            robots = hosts.host_or_url(error.url)
            raise self.refuse(ticket, error.verdict, error.proxy, robots_host=robots) from None
        return None

    def _admit(
        self, request: Request, ticket: Ticket, host: Host, *, document: bool
    ) -> Request | None:
        """Admit *request* to *host*. Returns None if it goes on.

        If *host* is not due, returns the request to give back to the queue. Raises Refused if
        the chain refuses or defers it. A request of ``engine.download_async`` did not come from the
        queue: it waits at the wire.
        """
        step = host.admit(self.context.monotonic(), document=document)
        if isinstance(step, Verdict):
            raise self.refuse(ticket, step, robots_host=host.key)
        if not step or not ticket.popped:
            return None
        slow = ticket.host.slow  # its requests go in the order of their deferral
        # An infinite step: a request to the host is under way. The queue looks again at its end.
        if not slow and step < math.inf:
            ticket.host.traffic.hold(self.context.monotonic() + step)
        return self.tickets.again(request, first=not slow)

    # -- 3: at the wire -------------------------------------------------------------------

    def at_wire(self, request: Request, ticket: Ticket) -> NeedDocument | None:
        """The last look at *request* when its turn comes: the document to fetch first, or None.

        It is judged again, because it may have waited: documents change (R12), a list may have come
        (R3), and its host may have used up its attempts (R5). Raises Refused. For a robots.txt it
        raises NotYet, so that the gate refuses the target that needs it. Raises IgnoreRequest if no
        gate has let the request pass.
        """
        self._stop_if_halted()
        if ticket.before:  # a middleware has changed its URL
            self._stop_elsewhere(ticket.before, ticket.url)
        self._stop_if_spent(ticket)
        if isinstance(ticket, Document) and ticket.origin:
            refusal = chain.judge_host(ticket.url, self.documents, self.context.gates)
            if refusal is not None or not self.documents.robots_txt.may_go(ticket):
                raise NotYet(ticket.host.key, 0.0)  # the gate judges its target or its hop again
        if not ticket.is_document and self.context.scope.is_source(ticket.url):
            # Another process may request the source, or may have had an answer since.
            refusal = self.sources.take(ticket.key) or chain.too_soon(
                ticket.key, self.documents, self.context.gates, self.context.wall()
            )
            if refusal is not None:
                raise self.refuse(ticket, refusal)
        document = self._judge_proxy(ticket, request.meta.get("proxy"))
        if document is not None or ticket.is_document:
            return document
        ticket.late = True  # if it is not declared by now, it is out of scope
        answer = self.at_queue(ticket)
        if isinstance(answer, NeedDocument):
            if not ticket.cleared:
                raise IgnoreRequest(f"{ticket.url} reached the download handler without a check")
            return answer
        if not answer.allowed:
            raise self.refuse(ticket, answer)
        return None

    def _stop_elsewhere(self, url: str, other: str) -> None:
        """Raise Refused if a middleware has put *other* in the place of the target *url* (R6).

        It is not recorded as a decision: by the ledger's terms, *other* may be within scope.
        """
        if url == other:
            return
        refusal = self.context.scope.refuses_in_place(url, other)
        if refusal is not None:
            logger.warning("%s is not requested: %s", url, refusal.reason)
            raise Refused(url, refusal)

    def _stop_if_spent(self, ticket: Ticket) -> None:
        """Raise if the host has used up its attempts without an answer (D13).

        Raises Refused for a target, and NotYet for a robots.txt. The blocklist is exempt: it has a
        schedule of its own (``policy/list/operator.py``).
        """
        if ticket.purpose == OPERATOR:
            return
        if not ticket.is_document:
            self._end_trial(ticket)
        verdict = ticket.host.spent(self.context.monotonic(), document=ticket.is_document)
        if verdict is None:
            return
        if ticket.is_document:
            raise NotYet(ticket.host.key, 0.0)
        raise self.refuse(ticket, verdict)

    def _stop_if_halted(self) -> None:
        """Raise Halted if the crawl was refused meanwhile, because then nothing may be sent."""
        if self.context.halted is not None:
            raise Halted(self.context.halted)

    def _end_trial(self, ticket: Ticket) -> None:
        """Raise GaveUp for a trial of https without an answer, so that its spider tries http."""
        if ticket.trial and hosts.origin(ticket.url) in self.retries.silent_by_https:
            raise GaveUp(ticket.url, "no answer by https")

    def _judge_proxy(self, ticket: Ticket, proxy: str | None) -> NeedDocument | None:
        """Judge the *proxy* that a request goes through (R3). Raises Refused.

        Returns the document that is needed first, or None.

        The proxy is known only here, because Scrapy's middleware has read the environment by now.
        The operator's own documents are let through, because R3 cannot be decided without them.
        """
        if not proxy or ticket.purpose == OPERATOR:
            return None
        host = hosts.proxy_host(proxy)
        refusal = chain.judge_proxy(host, self.documents, self.context.gates)
        if isinstance(refusal, Verdict):
            raise self.refuse(ticket, refusal, host)
        return refusal

    # -- 4: after the exchange ------------------------------------------------------------

    def after(self, sent: Sent) -> events.Exchange:
        """Do what follows from an exchange that has ended, and return its line for the ledger.

        The line is made first, because the rest changes the host that it describes.
        """
        context = self.context
        sent.started = round(sent.started, 6)
        sent.ended = round(context.steady(), 6)
        ticket = sent.ticket
        ticket.status = sent.status
        answer = self._answer_of(sent)
        concluded = chain.conclude(answer, context.gates, context.wall(), context.rand())
        exchange = self._exchange_of(sent, answer, concluded)
        server_wait = self.pacing.share(
            ticket.host, answer, concluded.wait, sent.started, sent.ended
        )
        if server_wait is not None:
            server = self.pacing.server_of(ticket.host)
            exchange = replace(exchange, server=server and server.key, server_wait=server_wait)
        if sent.response is not None and ticket.purpose == OPERATOR:
            self.documents.operator.answered()
        if concluded.failure is not None:
            ticket.failure = concluded.failure
        elif sent.whole and answer.attempt and not ticket.is_document:
            self.retries.forget(ticket.key)
        self.pacing.finished(ticket.host, answer, concluded, ended=sent.ended)
        if not ticket.is_document:
            self._end_visit(sent, concluded.visit)
        return exchange

    def _answer_of(self, sent: Sent) -> Answer:
        """The exchange, as the chain takes it."""
        ticket = sent.ticket
        attempt = ticket.attempt if ticket.is_document else self.retries.tried(ticket.key)
        retry_after = sent.fields("Retry-After")
        dates = sent.fields("Date")
        return Answer(
            ticket.purpose,
            sent.status,
            sent.request.method,
            retry_after,
            attempt,
            ticket.hops,
            unseen=sent.unseen,
            whole=sent.whole,
            last=self._no_retry(sent) if sent.whole else "",
            spacing=ticket.host.spacing(sent.started, sent.ended),
            known=ticket.host.learned,
            date=dates[-1] if dates and retry_after else "",
            unasked=sent.is_unasked,
            cut=sent.whole and sent.response is None and ticket.headed,
            reset=sent.reset(self.context.wall()),
        )

    def _exchange_of(
        self, sent: Sent, answer: Answer, concluded: chain.Conclusion
    ) -> events.Exchange:
        """The line of the exchange. None leaves a member out, so most members are never False."""
        ticket = sent.ticket
        is_target = not ticket.is_document
        is_silent = answer.whole and answer.status is None and not answer.cut
        server = self.pacing.server_of(ticket.host)
        return events.Exchange(
            started=sent.started,
            ended=sent.ended,
            octets=None if sent.response is None else len(sent.response.body),
            again=(is_target and self.sources.again(ticket)) or None,
            visit=(is_target and ticket.host.traffic.ahead) or None,
            once=(is_silent and ticket.trial) or None,
            server="" if server is None else server.key,
            server_interval=None if server is None else server.traffic.interval,
            words=words_of(sent.response) if is_target else "",
            unsent=sent.unsent,
            proxy=sent.proxy,
            **_of_request(ticket, answer),
            **_of_answer(answer, concluded),
            **_of_host(ticket.host),
            **_of_document(sent),
        )

    def _end_visit(self, sent: Sent, meaning: str) -> None:
        """Note for R8 what the exchange of a target means for its source (``Conclusion.visit``)."""
        ticket = sent.ticket
        self.delivery.link_ended(ticket.key)
        if meaning == visits.ANSWERED:
            sent_at = self.context.wall() - (sent.ended - sent.started)
            words = words_of(sent.response)
            self.sources.answered(sent.request, ticket, sent.status, sent_at, words)
        elif meaning == visits.LEADS_ON:
            self.sources.redirected(ticket)
        else:
            self.sources.let_go(ticket.key)
            if meaning == visits.FAILED:
                self.sources.visit_failed(ticket)
            elif sent.whole:  # without a meaning a retry follows, unless our side broke it off
                self.sources.retried(ticket)

    def _no_retry(self, sent: Sent) -> str | Unanswered:
        """Why no retry may follow the exchange; "" if one may, as far as R5 goes."""
        ticket = sent.ticket
        if sent.status is None:
            if ticket.headed:
                return ""
            return self.retries.unanswered(ticket, connected=sent.unsent not in events.UNCONNECTED)
        if sent.status >= 500 and isinstance(ticket, Document) and ticket.origin:
            return self.documents.robots_txt.no_retry(ticket, sent.status)
        return ""

    def over(self, request: Request, outcome: Response | Request | BaseException) -> None:
        """Note that *request* has left the downloader, and record the end of a target's way.

        *outcome*: the answer or error for its spider, or the Request that takes its place, for
        example a retry or the next hop. So each target counts once in ``fetched`` and in the stats
        of the verdicts. Raises Refused if the Request is no redirect and leads to another host:
        such a Request must not take the target's place (D24).
        """
        ticket = self.tickets.of(request)
        ticket.queue = None
        if ticket.is_document:
            return
        if isinstance(outcome, Request):
            replacement = self.tickets.known(outcome)
            if replacement is None or not replacement.hop:
                self._stop_elsewhere(ticket.url, outcome.url)
                self.delivery.link_replaced(ticket.key, self.tickets.of(outcome).key)
            self.sources.goes_on(ticket)
        else:
            request.meta.pop(TICKET, None)  # a spider's copy of the meta takes over nothing
            self._end(request, ticket, outcome)

    def _end(self, request: Request, ticket: Ticket, outcome: Response | BaseException) -> None:
        """Count and record the end of the target *request*, which no other Request replaces."""
        if ticket.cleared and ticket.verdict is not None and not isinstance(outcome, Refused):
            self.context.recorder.count(f"verdict/{ticket.verdict.name}")
        if not isinstance(outcome, (Closing, Halted, NotYet)):
            self.delivery.link_ended(ticket.key)
        if isinstance(outcome, Refused) and outcome.verdict.requirement == "R6":
            self.intake.note_refused(request)
        if isinstance(outcome, BaseException):
            if not isinstance(outcome, (NotModified, Closing)):
                self.sources.failed(request, ticket, outcome)
            if self.looks and not isinstance(outcome, Closing):
                compat.fail_command(str(outcome))
            return
        unfollowed, status = self.sources.ends(ticket) or None, outcome.status
        if ticket.status is None:  # our handler has sent nothing for it
            self._tell_answered(ticket, outcome, unfollowed=unfollowed)
        elif not is_failure(status):
            ticket.said = self.documents.read_usage(outcome, ticket.rules)
            self.tell(
                events.FETCHED,
                ticket,
                status,
                f"HTTP {status}",
                usage=tuple(map(str, ticket.said)),
                in_robots=_count_in_robots(ticket.said),
                unfollowed=unfollowed,
                hints=self.sources.hear(request, outcome),
            )

    def _tell_answered(self, ticket: Ticket, response: Response, **more: Any) -> None:
        """Record that a middleware of the project has answered in place of a site."""
        middleware = ticket.by or "a middleware"
        reason = f"answered by {middleware}, not requested"
        self.tell(events.ANSWERED, ticket, response.status, reason, **more)
        detail = "and its answer says that it came from the network: "
        is_of_network = compat.is_of_network(response)
        if not is_of_network:
            if middleware.partition(".")[0] in NOTED:  # these request nothing past the gates
                return
            detail = "not by scrapy_walsh; if it requested the page itself, "
        if is_of_network not in self.warned:
            self.warned.add(is_of_network)
            logger.warning(
                "%s was answered by %s, %sR1 to R5 do not hold for its requests: remove it",
                ticket.url,
                middleware,
                detail,
            )

    # -- what is recorded -----------------------------------------------------------------

    def refuse(
        self,
        ticket: Ticket,
        verdict: Verdict,
        proxy: str | None = None,
        robots_host: str = "",
    ) -> Refused:
        """Record that a request is refused; the exception to raise for it.

        ``proxy``: the host that it would have gone through, if that is the reason. ``robots_host``:
        the host that *verdict* is about, if a robots.txt is to be read first.
        """
        context = self.context
        url = ticket.url
        host = ticket.host
        due = self._due_again(host, verdict)
        kind: events.EventKind = events.REFUSED if due is None else events.DEFERRED
        via = ticket.led.url if verdict.name == PRIVATE_ADDRESS else ""
        next_due = verdict.due if due is None else due  # R8's verdict has its own due time
        members = {"due": next_due, "form": ticket.form, "proxy": proxy, "via": via}
        if verdict.requirement in ("R4", "R5") and robots_host != host.key:
            members["robots_host"] = robots_host
        context.recorder.record(events.Event.of(kind, url, verdict, host.key, **members))
        self.sources.refused(ticket.key, verdict, host.key, due)
        return Refused(url, verdict, due, proxy)

    def _due_again(self, host: Host, verdict: Verdict) -> float | None:
        """Unix seconds from which a later run may send it; None if *verdict* refuses it."""
        context = self.context
        if verdict.name == DEFERRED and verdict.requirement == "R4":
            return context.wall() + host.traffic.wait(context.monotonic())
        if verdict.name in (DEFERRED, UNKNOWN_PARSE_ERROR):
            return context.wall()  # by the next run
        if verdict.name == UNKNOWN_UNREACHABLE and context.config.robots_unreachable == "defer":
            return context.wall()
        return None

    def tell(
        self, kind: events.EventKind, ticket: Ticket, status: int, reason: str, **members: Any
    ) -> None:
        """Record how a request ended: with the verdict that let it pass, or by a requirement.

        *members*: others of the event: that ``requirement``, or the site's statements (``usage``).
        """
        host = ticket.host.key
        members |= {"reason": reason, "status": status}
        if "requirement" in members or ticket.verdict is None:
            event = events.Event(kind, ticket.url, host=host, **members)
        else:
            event = events.Event.of(kind, ticket.url, ticket.verdict, host, **members)
        self.context.recorder.record(event)


def _count_in_robots(statements: Sequence[Statement]) -> int | None:
    """The number of *statements* that stand in a robots.txt; None if there are no statements.

    They come first, so the number tells them from those of the answer.
    """
    if not statements:
        return None
    return sum(statement.line is not None for statement in statements)


def _of_request(ticket: Ticket, answer: Answer) -> dict[str, Any]:
    """The members of an exchange about the request that was sent."""
    verdict = ticket.verdict
    # A public host needs no permission for its address (D38), so the lead is left out.
    led_by_public = ticket.leads().kind == PUBLIC
    return {
        "url": ticket.url,
        "host": ticket.host.key,
        "method": answer.method,
        "purpose": answer.purpose,
        "form": ticket.form,
        "sent": ticket.sent,
        "attempt": answer.attempt,
        "hops": answer.hops,
        "robots_of": ticket.origin if isinstance(ticket, Document) and answer.hops else "",
        "verdict": "" if verdict is None else verdict.name,
        "digest": None if verdict is None else verdict.digest,
        "address": ticket.address or None,
        "via": "" if led_by_public else ticket.led.url,
    }


def _of_answer(answer: Answer, concluded: chain.Conclusion) -> dict[str, Any]:
    """The members of an exchange about its answer, and what R4, R5 and T1 make of that."""
    learned = concluded.learned.interval
    return {
        "status": answer.status,
        "answered": answer.whole,
        "retry_after": tuple(answer.retry_after),
        "date": answer.date,
        "cut": answer.cut or None,
        "reset": answer.reset,
        "unasked": (answer.purpose == events.TARGET and answer.unasked) or None,
        "wait": concluded.wait,
        "gives_up": isinstance(concluded.failure, GiveUp),
        "exempt": concluded.exempt,
        "learned": None if learned == answer.known.interval else learned,
    }


def _of_host(host: Host) -> dict[str, Any]:
    """The members of an exchange about its host, as it was before the exchange.

    ``newly_taken`` returns a learned pace only once, so call this once for each exchange.
    """
    return {
        "interval": host.traffic.interval,
        "taught": host.newly_taken(),
        "silent": host.silence.before or None,
        "pace": host.pace,
    }


def _of_document(sent: Sent) -> dict[str, Any]:
    """The members of an exchange about the body of a document."""
    if sent.response is None or not isinstance(sent.ticket, Document):
        return {}
    return sent.ticket.seen(sent.response)
