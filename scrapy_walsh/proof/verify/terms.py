"""The terms of a run, from its line ``started``: typed, and compared with what the spec allows."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Any, Final, TypedDict

from msgspec import Meta, Struct
from msgspec.structs import fields

from scrapy_walsh.config import SETTINGS, SLOW_SKIP, Setting, gates_of
from scrapy_walsh.exceptions import StateError
from scrapy_walsh.policy.addresses import ALLOW
from scrapy_walsh.policy.backoff import silent_attempts
from scrapy_walsh.policy.event import Seconds  # noqa: TC001  msgspec reads it
from scrapy_walsh.policy.gates import BACKOFF_BASE, BACKOFF_CAP, MAX_RETRIES
from scrapy_walsh.policy.identity import WALSH_RESEARCH, is_walsh
from scrapy_walsh.policy.robots.fetch import ROBOTS_TTL
from scrapy_walsh.policy.signing import directory_url
from scrapy_walsh.policy.throttle import LONGEST, MIN_REQUEST_INTERVAL
from scrapy_walsh.policy.visits import REVISIT_FLOOR
from scrapy_walsh.proof.ledger import Malformed, typed
from scrapy_walsh.spec import SPEC_VERSION
from scrapy_walsh.state.forms import FORM, refusal

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from scrapy_walsh.policy.gates import Gates

_NOT_JUDGED: Final = "no run of this ledger is judged by this version"
#: The reason of a shell in lines of before, which have no member ``look``.
_SHELL: Final = "asked from a shell"
_AGENT: Final = re.compile(r"Mozilla/5\.0 \(compatible; ([A-Za-z_-]+)/[0-9]+\.[0-9]+; \+[^ ;)]+\)")
_Count = Annotated[int, Meta(ge=0)]
#: No version has named the form 1.
_Form = Annotated[int, Meta(ge=2)]


#: Its line ``started`` names each setting that the run's decisions use.
ALL_TERMS: Final = "its first line names all of its terms"
#: The line of what a robots.txt redirects to names the origin of that robots.txt (D37).
REDIRECTS_NAMED: Final = "a redirect of a robots.txt passes the rules of where it leads"
#: Whatever came from the wire is a visit, and those that fail keep a source waiting longer.
ANY_ANSWER: Final = "any answer is a visit of its source (R8)"
#: The line of an exchange has the facts of *admit* when the request had its turn (``Pace``).
ADMITTED: Final = "the line of each request has its pace, by which it may go"
#: Retries of one request are counted together, however its URL was written.
ONE_KEY: Final = "spellings of one URL share their retries (R5)"
#: A Retry-After of any answer holds its host; it may also be a time of ISO 8601 (D40).
RETRY_AFTER: Final = "a Retry-After counts with any answer, and in more forms (R5)"
#: What was given up after a 5xx ends as a GaveUp, and not as an answer.
GIVES_UP: Final = "an answer 5xx is not given to a spider (R5)"
#: Rules are lifted by a robots.txt, and by a page only if one comes three times (D44).
NO_PAGE: Final = "a page does not lift known rules (R2)"
#: A list binds under its product token, until one is adopted from the address of now (D39).
MOVED_LIST: Final = "a list stays in force when its address changes (R3)"
#: A source is left alone for 30 days if its door is closed: 402, 451, or 401 for a licence (R8).
DOORS: Final = "a closed door is left alone for 30 days (R8)"
LICENSES: Final = "the line of an answer has each License of its robots.txt (D27)"
#: The rules that :func:`verify` does not hold every run to, in the words of its report, and the
#: stored form (``state.forms``) since which a run is held to each. Every other rule holds for all.
SINCE: Final[Mapping[str, int]] = {
    ALL_TERMS: 2,
    REDIRECTS_NAMED: 2,
    ANY_ANSWER: 2,
    ADMITTED: 2,
    ONE_KEY: 2,
    RETRY_AFTER: 2,
    GIVES_UP: 2,
    NO_PAGE: 2,
    MOVED_LIST: 2,
    DOORS: 2,
    LICENSES: 2,
}


class _Key(TypedDict):
    """The key of signed requests, and the URL that lists it."""

    keyid: str
    directory: str


class Terms(Struct, frozen=True):
    """Durations in seconds. The defaults stand for a run that has no start in the ledger, and for
    an older version that had no such setting.

    ``look``: the command that a person looked at pages with; then no request of the run is a visit
    (R8). ``stored_form``: the form of the run's lines; 1 if none is named, as 0.2.0 wrote them.
    ``silent_attempts``: requests that a run grants a host that gives no answer.
    ``longest_learned``: the longest interval that a run learns (D28). ``pace_by``: None if the
    version did not pace hosts of one server together (T43).
    """

    spider: str | None = None
    version: str = ""
    user_agent: str = ""
    token: str = ""
    spec: str = SPEC_VERSION
    blocklist_url: str = ""
    schema_url: str | None = None
    look: str | None = None
    signed: _Key | None = None
    stored_form: _Form = 1
    min_interval: Seconds = MIN_REQUEST_INTERVAL
    max_retries: _Count = MAX_RETRIES
    backoff_base: Seconds = BACKOFF_BASE
    backoff_cap: Seconds = BACKOFF_CAP
    patience: Seconds = 0.0
    robots_ttl: Seconds = ROBOTS_TTL
    robots_unreachable: str = "allow"
    blocklist_unreachable: str = "allow"
    pace_robots: bool = False
    excluded_tlds: tuple[str, ...] = ()
    revisit: Seconds = REVISIT_FLOOR
    revisit_reason: str | None = None
    hints: Seconds = 0.0
    auto_revisit: bool = False
    follow_links: bool = False
    scraping: bool = False
    slow_hosts: str = SLOW_SKIP
    shared: bool = False
    tag_requests: bool = False
    silent_attempts: _Count = 0
    longest_learned: Seconds = 0.0
    usage: dict[str, str] = {}
    private_addresses: str = ALLOW
    pace_by: str | dict[str, str] | None = None

    def is_held_to(self, rule: str) -> bool:
        """Whether the run's lines are of a form that *rule*, one of ``SINCE``, holds for."""
        return self.stored_form >= SINCE[rule]

    @property
    def in_shell(self) -> bool:
        """Whether a person types the requests: what they type is declared (spec section 1.1)."""
        return self.look == "shell" or self.revisit_reason == _SHELL

    @property
    def operator_urls(self) -> tuple[str, ...]:
        """The URLs on the operator's own origins."""
        policy = self.user_agent.rpartition("+")[2].removesuffix(")")
        return tuple(filter(None, (self.blocklist_url, self.schema_url, policy)))

    @property
    def gates(self) -> Gates:
        """The settings as the chain takes them."""
        return gates_of(self)


#: Members of the line itself, beside its settings: the first ones.
_TOP: Final = fields(Terms)[:10]


def terms_of(members: Mapping[str, Any]) -> Terms:
    """The terms in a line ``started``; Malformed if one is missing, or of another type.

    StateError if a later version wrote it, because its rules are not known here.
    """
    settings = members.get("settings")
    if not isinstance(settings, dict):
        raise Malformed("has no settings")
    top = {field.name: members[field.name] for field in _TOP if field.name in members}
    terms = typed(top, Terms)
    if terms.stored_form > FORM:
        subject = f"the lines of run {members.get('run')} have the stored form"
        raise StateError(refusal(subject, terms.stored_form, terms.version, _NOT_JUDGED))
    values = {**settings, **top}
    if terms.is_held_to(ALL_TERMS):
        values = {field.name: values.get(field.name) for field in fields(Terms)}
    return typed(values, Terms)


def broken_terms(terms: Terms) -> Iterator[tuple[str, str]]:
    """The requirement and one line for each of *terms* that the spec does not allow."""
    walsh = is_walsh(terms.token)
    agent = _AGENT.fullmatch(terms.user_agent)
    if agent is None or agent[1] != terms.token:
        yield (
            "R1",
            f"the User-Agent {terms.user_agent[:100]!r} is not of the token {terms.token!r}",
        )
    elif walsh and terms.user_agent != WALSH_RESEARCH.user_agent:
        yield (
            "R1",
            f"the User-Agent {terms.user_agent[:100]!r} is not {WALSH_RESEARCH.user_agent}",
        )
    if terms.signed is not None and _is_foreign(terms.signed["directory"], terms.user_agent):
        directory = terms.signed["directory"][:100]
        yield (
            "R1",
            f"the key directory {directory!r} is not on the policy page's host",
        )
    if walsh and terms.follow_links and not terms.in_shell:
        yield "R6", f"follow_links is on for {WALSH_RESEARCH.token}"
    if walsh and terms.scraping:
        yield "R9", f"scraping is on for {WALSH_RESEARCH.token}"
    yield from _out_of_bounds(terms)
    for setting in SETTINGS:
        value = getattr(terms, setting.field, None)
        choices = setting.row.choices
        if setting.row.terms and choices and value not in choices:
            yield (
                setting.row.requirement,
                f"{setting.field} is {str(value)[:40]!r}",
            )


def _is_foreign(directory: str, user_agent: str) -> bool:
    """Whether the key directory of signed requests is elsewhere than the User-Agent says (D25)."""
    try:
        return directory != directory_url(user_agent.rpartition("+")[2].removesuffix(")"))
    except ValueError:
        return True


def out_of_bounds(values: object) -> Iterator[tuple[Setting, str]]:
    """The settings that break their requirement, and how: ``is 0.5 s, below 1 s``.

    *values*: a WalshConfig, or any object that has their fields, such as the terms of a run.
    """
    for setting in SETTINGS:
        value = getattr(values, setting.field, None)
        minimum = setting.row.least
        maximum = setting.row.most
        unit = "" if isinstance(setting.row.default, int) else " s"
        if value is not None and minimum is not None and value < minimum:
            yield setting, f"is {value:g}{unit}, below {minimum:g}{unit}"
        if value is not None and maximum is not None and value > maximum:
            yield setting, f"is {value:g}{unit}, above {maximum:g}{unit}"


def _out_of_bounds(terms: Terms) -> Iterator[tuple[str, str]]:
    for setting, how in out_of_bounds(terms):
        yield setting.row.requirement, f"{setting.field} {how}"
    grant = silent_attempts(min(terms.max_retries, MAX_RETRIES), terms.robots_unreachable)
    if terms.silent_attempts != grant:
        yield (
            "R5",
            f"silent_attempts is {terms.silent_attempts}, by its settings it is {grant}",
        )
    longest = min(terms.patience, LONGEST)
    if terms.longest_learned != longest:
        yield (
            "R4",
            f"longest_learned is {terms.longest_learned:g} s, not {longest:g} s",
        )
