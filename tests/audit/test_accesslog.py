"""Reading lines and files: the servers' formats, their escapes and clocks, and what is no log."""

from __future__ import annotations

import gzip
import ipaddress
import json
import random
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from scrapy_walsh.commands.main import main
from scrapy_walsh.proof.audit.reading import (
    LONGEST_LINE,
    Bot,
    Entry,
    Unreadable,
    read_logs,
)
from tests.crawl.harness import USER_AGENT
from tests.kit import BOT, T0, line, written

DATA = Path(__file__).parent.parent / "data" / "audit"
PLAIN = b'192.0.2.7 - - [23/May/2026:10:00:00 +0000] "GET /a HTTP/1.1" 200 5'
COMBINED = PLAIN + b' "-" "Agent/1.0"'


def read(tmp_path: Path, octets: bytes) -> Entry | None:
    """The request in one line of a log; None where the line cannot be read."""
    (tmp_path / "log").write_bytes(octets + b"\n")
    bot = Bot(b"", (ipaddress.ip_network("0.0.0.0/0"),))
    try:
        (entry,) = read_logs([str(tmp_path / "log")], bot).entries
    except Unreadable:
        return None
    return entry


def test_nginx_default_format() -> None:
    log = read_logs([str(DATA / "nginx.log")], BOT)
    assert [entry.line for entry in log.entries] == [2, 3, 5, 7, 8, 9, 10]
    assert {(entry.site, entry.host) for entry in log.entries} == {("site.example",) * 2}
    assert {entry.agent for entry in log.entries} == {USER_AGENT}
    assert log.entries[2].target == '/notes?q="caf\xc3\xa9"'  # octets, one by one
    assert log.entries[0].time == T0
    assert (log.lines, log.damaged, log.first) == (11, 0, T0 - 109)


def test_apache_vhost_combined() -> None:
    log = read_logs([str(DATA / "apache_vhost.log")], Bot(b"walsh-research"))
    assert [(entry.site, entry.host) for entry in log.entries] == [
        ("site.example:443", "site.example"),
        ("other.example:443", "other.example"),
        ("site.example:443", "site.example"),
        ("other.example:443", "other.example"),
        ("site.example:80", "site.example"),  # one host, another robots.txt
    ]
    assert {entry.time for entry in log.entries} == {T0, T0 + 30}


def test_apache_escapes(tmp_path: Path) -> None:
    found = read(tmp_path, (DATA / "apache_vhost.log").read_bytes().splitlines()[-1])
    assert found is not None
    assert (found.site, found.address) == ("site.example:443", "203.0.113.9")
    assert (found.method, found.target) == ("GET", '/say?"quoted"')
    assert found.agent == 'A "quoted" browser \\ tab\there'


def test_apache_common_by_address() -> None:
    bot = Bot(b"walsh-research", (ipaddress.ip_network("192.0.2.7"),), host="site.example")
    log = read_logs([str(DATA / "apache_common.log")], bot)
    assert [entry.target for entry in log.entries] == ["/robots.txt", "/a?b=c", "/b"]
    assert {entry.site for entry in log.entries} == {"site.example"}
    assert {entry.agent for entry in log.entries} == {None}


@pytest.mark.parametrize(
    ("written_line", "vhost"),
    [
        (COMBINED, ""),
        (b"site.example " + COMBINED, "site.example"),
        (b"site.example:8443 " + COMBINED, "site.example:8443"),
        (b"localhost " + COMBINED, "localhost"),
        (COMBINED.replace(b" - - ", b" site.example - "), "site.example"),  # lighttpd
        (COMBINED.replace(b" - - ", b" localhost - "), ""),  # by identd
        (COMBINED + b" site.example", "site.example"),
        (PLAIN + b" site.example:80", "site.example:80"),
        (COMBINED + b' "203.0.113.9" 0.005 HIT', ""),
        (COMBINED + b" TLSv1.3", ""),
        (COMBINED + b' "mine.example"', ""),  # X-Forwarded-For: the client's own word
        (COMBINED.replace(b"- - [", b"- mary ann [", 1), ""),
    ],
)
def test_vhost_fields(written_line: bytes, vhost: str | None, tmp_path: Path) -> None:
    found = read(tmp_path, written_line)
    assert (found and found.site) == vhost
    if found:
        assert found.address == "192.0.2.7"


def test_where_the_host_is_stands_in_the_first_lines_of_a_file(tmp_path: Path) -> None:
    lighttpd = line(T0).replace(" - - ", " site.example - ")
    with_more = f"{line(T0 + 1)} other.example".replace(" - - ", " 192.0.2.9 - ")
    path = written(tmp_path / "a.log", [line(T0), lighttpd, with_more])
    log = read_logs([path], Bot(b"walsh-research"))
    assert [entry.host for entry in log.entries] == ["", "site.example", "192.0.2.9"]


@pytest.mark.parametrize(
    "damaged",
    [
        b"",
        b"garbage",
        COMBINED[:60],
        COMBINED[:-1],
        COMBINED.replace(b"May", b"Mai"),
        COMBINED.replace(b"23/May", b"31/Feb"),
        COMBINED.replace(b":10:00:00", b":25:00:00"),
        COMBINED.replace(b"+0000", b"UTC"),
        COMBINED.replace(b" 200 ", b" ok "),
        COMBINED + b"x",
        b'{"time": "2026-05-23T10:00:00Z", "status": 200}',
        b"2026-05-23 10:00:00 192.0.2.7 GET /a - 200 Agent",
    ],
)
def test_foreign_lines_are_not_read(damaged: bytes, tmp_path: Path) -> None:
    assert read(tmp_path, damaged) is None


ISO = b"2026-05-23T10:00:00.123456789Z"


@pytest.mark.parametrize(
    "front",
    [
        b"May 23 10:00:00 web1 nginx: ",
        b"<190>May  3 10:00:00 web1 nginx[77]: ",
        ISO + b" web1 nginx: ",
        b"2026-05-23T10:00:00.123456+02:00 web1 haproxy[12]: ",
        b"<190>1 " + ISO + b" web1 nginx 77 - - ",
        b'<190>1 2026-05-23T10:00:00Z web1 nginx - access [a b="c"] \xef\xbb\xbf',
        ISO + b" ",
        ISO + b" stdout F ",
        b"web-1  | ",
        b"web-1  | " + ISO + b" ",
        b"0|site  | ",
        b"[pod/web-7d9c/nginx] ",
        b"[" + ISO + b"] ",
        b"[2026-05-23 10:00:00] ",
        b"2026-05-23 10:00:00,123 ",
        b"2026/05/23 10:00:00 ",
        b"May 23 10:00:00.123456 web1 nginx[77]: ",
        b"\xef\xbb\xbf",
    ],
)
def test_the_front_of_syslog_or_of_a_container_is_no_host(front: bytes, tmp_path: Path) -> None:
    entry = read(tmp_path, front + COMBINED)
    assert entry is not None
    assert (entry.site, entry.address, entry.time) == ("", "192.0.2.7", T0)
    entry = read(tmp_path, front + b"site.example:443 " + COMBINED)
    assert entry is not None
    assert (entry.site, entry.address) == ("site.example:443", "192.0.2.7")


@pytest.mark.parametrize("address", [b"192.0.2.7", b"2001:db8::7"])
def test_the_front_of_syslog_may_have_no_tag(address: bytes, tmp_path: Path) -> None:
    octets = b"May 23 10:00:00 web1 " + COMBINED.replace(b"192.0.2.7", address, 1)
    log = read_logs([written(tmp_path / "a.log", [octets.decode()])], Bot(b"agent"))
    assert [(entry.site, entry.address) for entry in log.entries] == [("", address.decode())]


@pytest.mark.parametrize(
    "front", [b"12345 ", b"12345:80 ", b"2026-05-23 ", b"2026-05-23T10:00:00 ", b"10:00:00 ", b"# "]
)
def test_a_number_or_a_time_is_no_host(front: bytes, tmp_path: Path) -> None:
    assert read(tmp_path, front + COMBINED) is None


@pytest.mark.parametrize("member", ["log", "MESSAGE", "message"])
def test_a_line_may_stand_in_an_object(member: str, tmp_path: Path) -> None:
    wrapped = json.dumps({member: COMBINED.decode() + "\n", "stream": "stdout"})
    entry = read(tmp_path, wrapped.encode())
    assert entry is not None
    assert (entry.target, entry.agent) == ("/a", "Agent/1.0")


@pytest.mark.parametrize(
    "front",
    [b"198.51.100.9, 10.0.0.1 ", b"198.51.100.9, 10.0.0.1, 10.0.0.2 ", b"2001:db8::1, 10.0.0.1 "],
)
def test_a_list_of_forwarded_addresses_is_no_host(front: bytes, tmp_path: Path) -> None:
    octets = front + COMBINED.partition(b" ")[2]
    log = read_logs([written(tmp_path / "a.log", [octets.decode()])], Bot(b"agent"))
    assert [entry.site for entry in log.entries] == [""]
    assert [entry.address for entry in log.entries] == [front.partition(b",")[0].decode()]


@pytest.mark.parametrize("name", ["10:00:00", "a,b", "(none)", "a/b", '"x"', "[::1"])
def test_what_cannot_be_a_host_name_is_no_host(name: str, tmp_path: Path) -> None:
    lines = [f"{name} {COMBINED.decode()}", json.dumps({**NGINX, "host": name})]
    for line_of_log in lines:
        entry = read(tmp_path, line_of_log.encode())
        assert entry is None or not entry.site


AGENT = "Mozilla/5.0 (compatible; ExampleBot/1.0; +https://bot.example/)"
NGINX = {
    "time_iso8601": "2026-05-23T10:00:00+00:00",
    "remote_addr": "192.0.2.7",
    "host": "site.example",
    "request": "GET /a?b=c HTTP/1.1",
    "status": "200",
    "http_user_agent": AGENT,
}
CADDY = {
    "ts": T0 + 0.25,
    "request": {
        "remote_ip": "192.0.2.7",
        "client_ip": "192.0.2.7",
        "method": "GET",
        "host": "site.example",
        "uri": "/a?b=c",
        "headers": {"User-Agent": [AGENT]},
    },
    "status": 200,
}
TRAEFIK = {
    "ClientHost": "192.0.2.7",
    "RequestHost": "site.example",
    "RequestMethod": "GET",
    "RequestPath": "/a?b=c",
    "DownstreamStatus": 200,
    "StartUTC": "2026-05-23T10:00:00.25Z",
    "request_User-Agent": AGENT,
    "time": "2026-05-23T10:00:09Z",
}
CLOUDFLARE = {
    "ClientIP": "192.0.2.7",
    "ClientRequestHost": "site.example",
    "ClientRequestMethod": "GET",
    "ClientRequestURI": "/a?b=c",
    "ClientRequestUserAgent": AGENT,
    "EdgeResponseStatus": 200,
    "EdgeStartTimestamp": T0 * 10**9,
}
GOOGLE = {
    "httpRequest": {
        "remoteIp": "192.0.2.7",
        "requestMethod": "GET",
        "requestUrl": "https://site.example/a?b=c",
        "status": 200,
        "userAgent": AGENT,
    },
    "timestamp": "2026-05-23T10:00:00.25Z",
}
ELASTIC = {
    "@timestamp": "2026-05-23T10:00:00.250Z",
    "source": {"ip": "192.0.2.7"},
    "url": {"domain": "site.example", "original": "/a?b=c"},
    "http": {"request": {"method": "GET"}, "response": {"status_code": 200}},
    "user_agent": {"original": AGENT},
}
FLAT = {
    "msec": str(T0 + 0.25),
    "server_name": "site.example",
    "client_ip": "192.0.2.7",
    "method": "GET",
    "uri": "/a?b=c",
    "status": 200,
    "user_agent": AGENT,
}
LOCAL = {**NGINX, "time_local": "23/May/2026:12:00:00 +0200"} | {"time_iso8601": ""}


@pytest.mark.parametrize(
    "members", [NGINX, CADDY, TRAEFIK, CLOUDFLARE, GOOGLE, ELASTIC, FLAT, LOCAL]
)
@pytest.mark.parametrize("front", [b"", b"May 23 10:00:00 web1 caddy: ", ISO + b" stdout F "])
def test_json_is_read_by_a_table_of_names(
    members: dict[str, Any], front: bytes, tmp_path: Path
) -> None:
    entry = read(tmp_path, front + json.dumps(members).encode())
    assert entry is not None
    site = "" if members is GOOGLE else "site.example"
    assert entry[0] == T0
    assert (entry.site, entry.target, entry.address) == (site, "/a?b=c", "192.0.2.7")
    assert (entry.method, entry.status, entry.agent) == ("GET", 200, AGENT)


def test_a_line_of_json_without_a_request_is_counted(tmp_path: Path) -> None:
    lines = [
        json.dumps({"level": "info", "ts": T0, "msg": "started"}),
        json.dumps(NGINX),
        "{",
        "[1]",
    ]
    log = read_logs([written(tmp_path / "a.log", lines)], Bot(b"examplebot"))
    assert (len(log.entries), log.damaged) == (1, 3)


IIS = (
    "#Software: Microsoft Internet Information Services 10.0",
    "#Fields: date time cs-method cs-uri-stem cs-uri-query c-ip cs(User-Agent) cs-host sc-status",
    f"2026-05-23 10:00:00 GET /a b=c 192.0.2.7 {AGENT.replace(' ', '+')} site.example 200",
    "#Fields: date time c-ip cs-method cs-uri-stem sc-status cs(User-Agent)",
    f"2026-05-23 10:00:05 192.0.2.7 GET /d 404 {AGENT.replace(' ', '+')}",
    "2026-05-23 10:00:06 192.0.2.7 GET /e 404",
)  # fmt: skip
CLOUDFRONT = (
    "#Version: 1.0",
    "#Fields: date time x-edge-location c-ip cs-method cs(Host) cs-uri-stem sc-status "  # noqa: ISC004
    "cs(User-Agent) cs-uri-query x-host-header",
    "\t".join(
        ("2026-05-23", "10:00:00", "FRA2", "192.0.2.7", "GET", "d1.cloudfront.example", "/a", "200",
         AGENT.replace(" ", "%2520"), "b=c", "site.example")
    ),
)  # fmt: skip


def test_w3c_extended_is_read_by_its_fields(tmp_path: Path) -> None:
    log = read_logs([written(tmp_path / "iis.log", list(IIS))], Bot(b"examplebot"))
    assert [(entry.time, entry.site, entry.target, entry.agent) for entry in log.entries] == [
        (T0, "site.example", "/a?b=c", AGENT),
        (T0 + 5, "", "/d", AGENT),
    ]
    assert (log.lines, log.damaged) == (6, 1)  # a comment is no damage
    log = read_logs([written(tmp_path / "cf.log", list(CLOUDFRONT))], Bot(b"examplebot"))
    assert [(entry.time, entry.site, entry.target, entry.agent) for entry in log.entries] == [
        (T0, "site.example", "/a?b=c", AGENT)
    ]


@pytest.mark.parametrize(
    "agent",
    [
        "ExampleBot/1.0 (+https://bot.example/)",
        "Mozilla/5.0 (compatible; ExampleBot/1; +https://b/)",
    ],
)
def test_a_plus_of_a_user_agent_stays_in_w3c_extended(agent: str, tmp_path: Path) -> None:
    row = f"2026-05-23 10:00:00 192.0.2.7 GET /a 200 {agent.replace(' ', '+')}"
    fields = "#Fields: date time c-ip cs-method cs-uri-stem sc-status cs(User-Agent)"
    (entry,) = read_logs([written(tmp_path / "iis.log", [fields, row])], Bot(b"examplebot")).entries
    assert entry.agent == agent


def test_a_hostile_line_costs_linear_time(tmp_path: Path) -> None:
    hostile = b'1 - - [23/May/2026:10:00:00 +0000] "' + b'\\"' * 100_000
    assert read(tmp_path, hostile) is None
    assert read(tmp_path, b" " * 200_000) is None


def test_damaged_lines_are_counted_and_named(tmp_path: Path) -> None:
    lines = ["garbage", line(T0), *["\x00"] * 9, line(T0 + 5), "x" * (2 * LONGEST_LINE + 1)]
    path = written(tmp_path / "a.log", [*lines, line(T0 + 9)])
    log = read_logs([path], BOT)
    assert [entry.line for entry in log.entries] == [2, 12, 14]
    assert log.damaged == 11
    assert log.named == [f"{path}:{number}" for number in (1, 3, 4, 5, 6)]


def test_a_file_of_something_else_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path / "a.log", ["no", "log"])
    with pytest.raises(Unreadable, match="of 2 lines none"):
        read_logs([written(tmp_path / "b.log", [line(T0)]), path], BOT)
    empty = written(tmp_path / "empty.log", [])
    with pytest.raises(Unreadable, match="nothing to read"):
        read_logs([empty], BOT)
    assert len(read_logs([empty, str(tmp_path / "b.log")], BOT).entries) == 1  # just rotated


def test_rotated_logs_in_any_order_and_gzip(tmp_path: Path) -> None:
    """Two requests of one second, at the seam of two files, stay in the order they came in."""
    old = [line(T0, "/1"), line(T0 + 7, "/2")]
    packed = tmp_path / "access.log.2"  # no .gz in its name
    packed.write_bytes(gzip.compress("\n".join(old).encode()))
    middle = written(tmp_path / "access.log.1", [line(T0 + 7, "/3"), line(T0 + 9, "/4")])
    newest = written(tmp_path / "access.log", [line(T0 + 9, "/5"), line(T0 + 8, "/late")])
    expected = ["/1", "/2", "/3", "/late", "/4", "/5"]
    files = [newest, middle, str(packed)]
    for _ in range(6):
        random.shuffle(files)
        log = read_logs(files, BOT)
        got = [entry.target for entry in log.entries]
        assert got == expected, files
    assert (log.first, log.last) == (T0, T0 + 9)


def test_a_gzip_that_breaks_off_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.gz"
    path.write_bytes(gzip.compress(f"{line(T0)}\n".encode() * 2000)[:-10])
    with pytest.raises(Unreadable, match=r"a\.gz is damaged or ends too early: unpack what there"):
        read_logs([str(path)], BOT)


def test_zones_are_mixed_and_clocks_are_put_back(tmp_path: Path) -> None:
    """The hour from 2 to 3 comes twice; in between the server moves to another zone."""
    autumn = 1792889999  # 2026-10-25T00:59:59Z, the last second of summer time in Paris
    lines = [
        line(autumn, "/summer", zone=2),
        line(autumn + 1, "/winter", zone=1),
        line(autumn + 3, "/india", zone=5.5),
        line(autumn + 2, "/newfoundland", zone=-3.5),
    ]
    assert "02:59:59 +0200" in lines[0]
    assert "02:00:00 +0100" in lines[1]
    log = read_logs([written(tmp_path / "a", lines)], BOT)
    assert [(entry.time - autumn, entry.target) for entry in log.entries] == [
        (0, "/summer"),
        (1, "/winter"),
        (2, "/newfoundland"),
        (3, "/india"),
    ]


@pytest.mark.slow
def test_a_long_log_is_not_held_in_memory(tmp_path: Path) -> None:
    others = line(T0, "/x" * 100, agent="Mozilla/5.0 Firefox/139.0")
    path = written(tmp_path / "a", [line(T0), *[others] * 20_000, line(T0 + 9)])
    read_logs([path], BOT)
    tracemalloc.start()
    log = read_logs([path], BOT)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert (len(log.entries), log.lines) == (2, 20_002)
    assert peak < Path(path).stat().st_size / 10


def test_who_is_the_bot(tmp_path: Path) -> None:
    lines = [
        line(T0, "/exact"),
        line(T0, "/shouted", agent="WALSH-RESEARCH/9.9"),
        line(T0, "/disguised", agent="Mozilla/5.0 Firefox/139.0"),
        line(T0, "/elsewhere", address="2001:db8::7"),
        line(T0, "/CONNECT", method="CONNECT"),
    ]
    path = written(tmp_path / "a", lines)

    def targets(*networks: str) -> tuple[list[str], int]:
        log = read_logs([path], Bot(b"walsh-research", tuple(map(ipaddress.ip_network, networks))))
        return [entry.target for entry in log.entries], log.elsewhere

    assert targets() == (["/exact", "/shouted", "/elsewhere"], 0)
    assert targets("192.0.2.0/24") == (["/exact", "/shouted", "/disguised"], 1)
    assert targets("2001:db8::/32", "192.0.2.8/32") == (["/elsewhere"], 3)


def test_a_target_in_absolute_form_is_one_of_the_host_that_the_server_names(
    tmp_path: Path,
) -> None:
    lines = [
        line(T0, "http://Other.Example:80/x?y"),
        line(T0, "http://site.example?q", host="site.example:443"),
        line(T0, "HTTP://site.example"),
        line(T0, "/z?u=http://nowhere.example/"),
    ]
    found = read_logs([written(tmp_path / "a", lines)], BOT).entries
    assert [(entry.site, entry.target) for entry in found] == [
        ("site.example", "/x?y"),
        ("site.example:443", "/?q"),
        ("site.example", "/"),
        ("site.example", "/z?u=http://nowhere.example/"),
    ]


IMPOSSIBLE = [
    "31/Feb/2026:10:00:00 +0000",
    "00/Feb/2026:10:00:00 +0000",
    "10/Feb/2026:25:00:00 +0000",
    "10/Feb/2026:10:60:00 +0000",
    "10/Feb/0000:10:00:00 +0000",
    "01/Jan/0001:00:00:00 +1400",
    "31/Dec/1969:23:59:59 +0000",
    "31/Dec/9999:23:59:59 -1200",
    "10/Feb/2026:10:00:00 +9999",
]


@pytest.mark.parametrize("when", IMPOSSIBLE)
def test_a_time_that_cannot_be_is_a_line_that_cannot_be_read(when: str, tmp_path: Path) -> None:
    assert read(tmp_path, COMBINED.replace(b"23/May/2026:10:00:00 +0000", when.encode())) is None


def test_the_farthest_zones_are_read(tmp_path: Path) -> None:
    for zone, seconds in ((b"+1400", -50400), (b"-1200", 43200)):
        found = read(tmp_path, COMBINED.replace(b"+0000", zone))
        assert found is not None
        assert found.time == T0 + seconds


def test_an_audit_skips_and_counts_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good = COMBINED.replace(b"Agent/1.0", USER_AGENT.encode())
    bad = [good.replace(b"23/May/2026:10:00:00 +0000", when.encode()) for when in IMPOSSIBLE]
    (tmp_path / "log").write_bytes(b"\n".join([good, *bad, b""]))
    assert main(["audit", str(tmp_path / "log"), "--host", "site.example"]) in (0, 1)
    assert f"unreadable lines: {len(bad)}\n" in capsys.readouterr().out
