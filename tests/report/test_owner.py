"""The page for a site's owner: what was done to their site, nothing else, in their words."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from scrapy_walsh.commands.main import main
from scrapy_walsh.ledger.files import DOCUMENTS, HEAD, Bodies, Documents
from scrapy_walsh.proof.findings import Finding, Outcome
from scrapy_walsh.proof.report.html import owners_page
from scrapy_walsh.proof.report.owner import Extract
from scrapy_walsh.proof.report.runs import runs_of
from scrapy_walsh.proof.sandbox import hosts, requests
from scrapy_walsh.proof.verify import Report
from tests.kit import (
    LIST,
    ROBOTS,
    ROBOTS_URL,
    Forge,
    H,
    Read,
    T,
    as_file,
    asked,
    began,
    decided,
    digest,
    ended,
    honest,
    lines_of,
    robots,
    verified,
)
from tests.report.test_page import ALLOWED_TAGS, EVIL, evil_lines

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.report.conftest import World

HOST = "h.test"


def found_in(*entries: dict[str, Any], host: str = HOST, since: float = 0.0) -> Extract:
    return found_of(lines_of(*entries), host, since)


def found_of(lines: list[bytes], host: str = HOST, since: float = 0.0) -> Extract:
    with as_file(lines) as path:
        found = Extract(host, since, runs_of([path]))
    verified(lines, found.take)
    return found


def html_of(found: Extract, **said: Any) -> str:
    report = Report(lines=5, head=(5, "ab" * 32), **said)
    return owners_page(found, report, listed=False, in_force=False, now=T + 500, refresh=21_600.0)


@pytest.fixture(scope="module")
def ledger(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A whole one, which holds, with one more host that nobody else may read of."""
    directory = tmp_path_factory.mktemp("whole")
    forge = honest()
    assert forge.check(directory).holds
    return directory


def page_of(capsys: pytest.CaptureFixture[bytes], *words: str, code: int = 0) -> Read:
    assert main(["report", *words, "-o", "-"]) == code
    return Read(capsys.readouterr().out.decode())


@pytest.mark.crawl
def test_the_requests_are_those_that_the_server_saw(world: World):
    for host in hosts(world.log):
        found, seen = found_of(world.lines, host), requests(world.log, host)
        paths = [one.url.removeprefix(f"http://{host}").partition("?")[0] for one in found.requests]
        assert paths == [one.path for one in seen]
        assert found.total == len(seen)
        assert not any(one.gap and one.gap.short for one in found.requests)


# -- what is in it ------------------------------------------------------------------------


def test_each_request_is_there_with_its_time_url_and_answer(
    ledger: Path, capsysbinary: pytest.CaptureFixture[bytes]
):
    text = page_of(capsysbinary, str(ledger), "--host", HOST).text
    told = [json.loads(line) for line in (ledger / "ledger.jsonl").read_bytes().splitlines()]
    own = [each for each in told if each["kind"] == "asked" and each["host"] == HOST]
    assert f"{len(own)} requests, the first on" in text
    for each in own:
        assert each["url"] in text
    assert "2027-01-15 08:00:01 http://h.test/robots.txt your robots.txt 200 OK" in " ".join(
        text.split()
    )
    assert "429 Too Many Requests" in text
    assert "then left alone for 7 s" in text


def test_its_times_are_those_of_the_wall_clock_as_in_a_servers_log():
    """The steady clock, by which pacing goes, may be hours off."""
    late = {**asked(5), "at": T + 3605.01}
    (one,) = found_in(began(), late, ended()).requests
    assert one.at == pytest.approx(T + 3605)


def test_r2_what_robots_txt_said_is_there_with_what_came_of_each_line(
    ledger: Path, capsysbinary: pytest.CaptureFixture[bytes]
):
    text = " ".join(page_of(capsysbinary, str(ledger), "--host", HOST).text.split())
    assert "Disallow: /private/ stopped 1 request" in text
    assert "Allow: / allowed 4 requests" in text
    assert "Crawl-delay: 2 sets our pauses between two requests" in text
    assert "your robots.txt forbids it ( Disallow: /private/ ) 1 http://h.test/private/x" in text


def test_r2_robots_txt_that_changed_is_told_with_the_time_of_each():
    new = {"requirement": "R2", "url": ROBOTS_URL, "status": 200}
    lines = [
        decided("adopted", at, **new, digest=digest(body))
        for at, body in ((1.0, ROBOTS), (2.0, ROBOTS), (90.0, b"User-agent: *\nDisallow: /\n"))
    ]
    gone = decided("adopted", 95.0, requirement="R2", url=ROBOTS_URL, status=404)
    found = found_in(began(), *lines, gone, ended())
    assert [(each.since - T, each.until - T) for each in found.versions] == [
        (1.0, 90.0), (90.0, 95.0), (95.0, float("inf")),
    ]  # fmt: skip
    found.read({digest(ROBOTS): ROBOTS}.get)
    assert [bool(each.rules) for each in found.versions] == [True, False, False]
    text = Read(html_of(found)).text
    assert "We no longer have its text." in text
    assert "It was not there (404), which forbids nothing." in text
    assert [each.since - T for each in found_in(*[began(), *lines], since=T + 95).versions] == [90]


def test_r2_a_robots_txt_that_comes_back_is_told_with_what_it_stopped_at_each_time():
    new = {"requirement": "R2", "url": ROBOTS_URL, "status": 200}
    closed, opened = (b"User-agent: *\nDisallow: /\n", b"User-agent: *\nDisallow:\n")
    lines, at = [], 0.0
    for body, stopped in ((closed, 2), (opened, 0), (closed, 1)):
        at += 10
        lines.append(decided("adopted", at, **new, digest=digest(body)))
        no = {
            "requirement": "R2",
            "verdict": "disallowed_explicit",
            "line": 2,
            "rule": "Disallow: /",
        }
        refused = (at + 1 + n for n in range(stopped))
        lines += [decided("refused", each, **no, digest=digest(body)) for each in refused]
    found = found_in(began(), *lines, ended())
    found.read({digest(each): each for each in (closed, opened)}.get)
    assert [each.rules and each.rules[0][1] for each in found.versions] == [
        "stopped 2 requests", "forbids nothing", "stopped 1 request",
    ]  # fmt: skip


def test_r4_a_pause_that_was_too_short_is_said_in_the_row_and_at_the_top():
    lines = lines_of(began(), robots(0), asked(0.1), asked(0.5), asked(9), ended())
    found = found_of(lines)
    judged = verified(lines, lambda *_: None)
    text = Read(html_of(found, findings=judged.findings)).text
    assert text.index("A request came too soon after the one before (1 time).") < text.index(
        "Who we are"
    )
    assert text.count("too short: 1 s was promised") == 1
    assert text.count("at least 1 s was promised") == 1
    assert "right after robots.txt" in text


def test_a_ledger_that_does_not_hold_is_said_at_the_top_and_nothing_is_kept(
    ledger: Path, tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]
):
    line = (ledger / "ledger.jsonl").read_bytes().replace(b'"status":302', b'"status":200')
    (tmp_path / "ledger.jsonl").write_bytes(line)
    read = page_of(capsysbinary, str(tmp_path), "--host", HOST, code=1)
    assert "This record did not pass its own check" in read.text.split("Who we are")[0]
    assert "✓ kept" not in read.text


def _altered(forge: Forge) -> None:
    forge.only("asked", f"{H}/own")["status"] = 204


def _adopts(body: bytes) -> Callable[[Forge], None]:
    return lambda forge: forge.operator_list(200, body) and None


@pytest.mark.parametrize(
    ("forged", "octets", "body"),
    [
        (_altered, 0, b""),
        (lambda _: None, -40, b""),  # the last line is cut
        (lambda _: None, -900, b""),  # and more of them
        (lambda forge: forge.add(300, "adopted", url=5, requirement=["R3"], digest={}), 0, b""),
        (_adopts(b"no list"), 0, b"no list"),
        (_adopts(b"[" * 100_000), 0, b"[" * 100_000),
        (
            _adopts(b'{"blocked": [{"domain": "h.test"}]}'),
            0,
            b'{"blocked": [{"domain": "h.test"}]}',
        ),
    ],
)
def test_a_forged_ledger_has_a_page_which_says_so_and_calls_nothing_kept(
    forged: Callable[[Forge], Any],
    octets: int,
    body: bytes,
    tmp_path: Path,
    capsysbinary: pytest.CaptureFixture[bytes],
):
    forge = honest()
    forge.check(tmp_path, body)  # its documents, and its head
    head = (tmp_path / HEAD).read_bytes()
    forged(forge)
    forge.check(tmp_path, body)
    if forged is _altered:
        (tmp_path / HEAD).write_bytes(head)
    if octets:
        path = tmp_path / "ledger.jsonl"
        path.write_bytes(path.read_bytes()[:octets])
    read = page_of(capsysbinary, str(tmp_path), "--host", HOST, code=1)
    assert "This record did not pass its own check" in read.text.split("Who we are")[0]
    assert "✓ kept" not in read.text
    assert "and it did not hold" in " ".join(read.text.split())


def test_r2_what_verify_could_not_derive_is_not_said_to_be_kept(
    ledger: Path, tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]
):
    """Nothing is wrong with a ledger alone, and its documents and its head are not here."""
    (tmp_path / "ledger.jsonl").write_bytes((ledger / "ledger.jsonl").read_bytes())
    text = " ".join(page_of(capsysbinary, str(tmp_path), "--host", HOST).text.split())
    assert "? not shown We requested no page that your robots.txt forbids." in text
    assert "✓ kept Every pause" in text
    assert "Lines that were cut off at its end would not show." in text
    whole = page_of(capsysbinary, str(ledger), "--host", HOST).text
    assert "✓ kept We requested no page" in " ".join(whole.split())
    assert "cut off at its end" not in whole


def test_r4_a_pause_over_missing_lines_is_not_said_to_be_kept():
    gap = {"at": T, "run": "r1", "kind": "gap", "reason": "2 lines could not be written", "lost": 2}
    lines = lines_of(began(), asked(0), gap, asked(2), asked(4), ended())
    judged = verified(lines, lambda *_: None)
    text = Read(html_of(found_of(lines), findings=judged.findings)).text
    assert "? not shown Every pause" in " ".join(text.split())


def test_what_verify_finds_about_the_host_is_counted_and_of_others_is_not():
    found = found_in(began(), asked(0), asked(2, host="x.test"), asked(4), ended())
    wrong = [Finding(Outcome.BROKEN, rule, line=n) for n, rule in ((2, "R2"), (3, "R2"), (4, "R9"))]
    text = Read(html_of(found, findings=wrong)).text
    assert "We did not obey your robots.txt (1 time)." in text
    assert "Something else about your site is wrong in our record (1 time)." in text


def test_days_bound_what_is_told(ledger: Path, capsysbinary: pytest.CaptureFixture[bytes]):
    text = page_of(capsysbinary, str(ledger), "--host", HOST, "--days", "1").text
    assert f"No request to  {HOST}" not in text  # the ledger's own time lies ahead
    assert main(["report", str(ledger), "--host", HOST, "--days", "0"]) == 2
    some = found_in(began(), asked(0), asked(50), ended(), since=T + 20)
    assert some.total == 1


# -- what is not in it --------------------------------------------------------------------


def test_nothing_of_another_host_is_in_it(ledger: Path, capsysbinary: pytest.CaptureFixture[bytes]):
    """Not through redirects, lists, documents, reasons, or lines that name the host falsely."""
    other = "secret.example"
    elsewhere = {"requirement": "R2", "status": 200, "document": f"http://{other}/robots.txt"}
    found = found_in(
        began(spider=other, process=other, blocklist_url=f"http://{other}/list"),
        {"at": T, "run": "r1", "kind": "declared", "url": f"{H}/b", "via": f"http://{other}/a"},
        robots(0),
        decided("adopted", 0.1, url=ROBOTS_URL, digest=digest(ROBOTS), **elsewhere),
        asked(1.5),
        asked(2.5, url=f"http://{other}/x"),
        asked(4, host=other),
        decided("refused", 5, requirement="R3", verdict="blocked_operator", rule=other,
                reason=other),
        decided("refused", 5, requirement="R6", verdict="out_of_scope", reason=other),
        decided("given_up", 5, reason=f"redirects to {other}", document=f"http://{other}/"),
        decided("fetched", 5, usage=[other], document=f"http://{other}/robots.txt"),
        ended(),
    )  # fmt: skip
    found.read({digest(ROBOTS): ROBOTS + other.encode()}.get)
    html = html_of(found)
    assert found.total == 2
    assert other not in html
    assert "redirected to another site" in html
    whole = page_of(capsysbinary, str(ledger), "--host", HOST)
    assert "blocked.test" not in whole.text
    assert str(ledger) not in whole.text


def test_www_is_another_host_and_the_page_says_that_it_was_requested():
    lines = began(), asked(0), asked(2, host=f"www.{HOST}"), asked(3, host=f"www.{HOST}"), ended()
    for host, said in (
        (HOST, "2 requests to  www.h.test"),
        (f"www.{HOST}", "1 request to  h.test"),
    ):
        found = found_in(*lines, host=host)
        assert said in Read(html_of(found)).text
        assert {one.url.split("/")[2] for one in found.requests} == {host}
    port = found_in(began(), asked(0, host=f"{HOST}:8080"), ended())
    assert (port.total, port.twin_requests) == (0, 0)


def test_a_host_that_was_never_requested_has_a_page_that_says_so():
    text = Read(html_of(found_in(began(user_agent="Bot/1 (+https://b.test/)"), ended()))).text
    assert "No request to  h.test  is in our record." in text
    assert "Bot/1 (+https://b.test/)" in text
    assert "Each request" not in text


def test_an_owner_reads_none_of_our_words(ledger: Path, capsysbinary: pytest.CaptureFixture[bytes]):
    text = page_of(capsysbinary, str(ledger), "--host", HOST).text
    words = ("R4", "throttle", "ledger", "verdict", "crawl ", "gate", "deferred", "D8")
    assert not [word for word in words if word in text]


# -- what strangers wrote, and how much ---------------------------------------------------


def test_hostile_text_stays_text_on_the_owners_page_too():
    lines = evil_lines()
    found = found_of(lines, host=EVIL)
    found.names[f"{EVIL} (+https://x.test/{EVIL})"] = None
    found.names["javascript:alert(1) +javascript:alert(1)"] = None
    read = Read(html_of(found))
    assert found.total
    assert set(read.tags) <= ALLOWED_TAGS | {"pre"}
    assert not [name for _, name, _ in read.attributes if name.startswith("on")]
    links = [value for _, name, value in read.attributes if name == "href"]
    assert all(value.startswith(("#", "https://x.test/")) for value in links)
    acting = [each for each in html_of(found) if not each.isprintable() and each != "\n"]
    assert not acting


def test_the_owners_page_is_bounded_and_says_what_is_left_out():
    long = f"{H}/?" + "&'<" * 400
    many = [asked(n * 1.1, url=f"{long}{n}") for n in range(1500)]
    rules = [
        decided("refused", n, requirement="R2", verdict="disallowed_explicit", rule=f"{n}{long}")
        for n in range(300)
    ]
    found = found_in(began(), *many, *rules, ended())
    assert (found.total, len(found.requests), len(found.left)) == (1500, 1000, 101)
    html = html_of(found)
    assert len(html.encode()) < 5_000_000
    text = Read(html).text
    assert "of 1,500 requests. Ask us for the earlier ones." in text
    assert found.left.total() == 300


# -- the end of the correspondence --------------------------------------------------------


def test_r3_the_page_says_that_a_host_was_put_on_the_list(
    ledger: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsysbinary: pytest.CaptureFixture[bytes],
):
    monkeypatch.chdir(tmp_path)
    Path("blocklist.json").write_bytes(LIST)
    assert "is on our list" not in page_of(capsysbinary, str(ledger), "--host", HOST).text
    assert main(["blocklist", "add", HOST, "--reason", "he complained"]) == 0
    capsysbinary.readouterr()
    text = page_of(capsysbinary, str(ledger), "--host", HOST).text
    assert f"{HOST}  is on our list of sites that we do not visit." in text
    assert "6 hours after it read it before" in text
    assert "Our mail address:  opt-out@operator.test" in text  # of the list
    own = {**json.loads(LIST), "contact": "optout@bot.example"}
    Path("blocklist.json").write_text(json.dumps(own))
    read = page_of(capsysbinary, str(ledger), "--host", "h2.test")
    assert "Write to us, to optout@bot.example : we put" in " ".join(read.text.split())
    assert ("a", "href", "mailto:optout@bot.example") in read.attributes
    Path("blocklist.json").write_text(json.dumps({**own, "contact": "javascript:alert(1)"}))
    assert "javascript" not in page_of(capsysbinary, str(ledger), "--host", "h2.test").text
    Path("blocklist.json").write_bytes(LIST)
    assert main(["blocklist", "add", HOST, "--reason", "he complained"]) == 0
    capsysbinary.readouterr()
    assert "pip install" not in text
    assert "complained" not in text
    assert "blocked.test" not in text
    held = page_of(capsysbinary, str(ledger), "--host", "www.blocked.test").text
    assert "The list that our bot uses contains your site" in held


def test_the_documents_of_a_forged_ledger_are_not_believed(tmp_path: Path):
    documents = Documents(tmp_path / DOCUMENTS)
    documents.put("robots", b"other", digest(ROBOTS), 1)
    new = {"requirement": "R2", "url": ROBOTS_URL, "status": 200, "digest": digest(ROBOTS)}
    found = found_in(began(), decided("adopted", **new), ended())
    found.read(Bodies(tmp_path / DOCUMENTS).get)
    assert found.versions[0].rules is None
