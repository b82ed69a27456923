"""Pandora's endpoints: status codes, texts and forms as in pandora, over real HTTP.

Method: a real server with a log on disk. Times are the server's, except where a test restarts it with another clock.
"""

import asyncio
import json
import ssl
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import grpc.aio
import pytest

from tidelog import pandora
from tidelog.pandora import AckStatus, AsyncHttpClient, InvalidStatusCodeError, NoDataAvailableError
from tidelog.v1 import mailbox_service_pb2 as pb
from tidelog_server.app import Server
from tidelog_server.core.limits import MAX_HTTP_CONNECTIONS
from tidelog_testing.parts.fixtures import secured_with
from tidelog_testing.parts.grpc_calls import Client, running_server
from tidelog_testing.parts.http_calls import Answer, requested
from tidelog_testing.servers.secured import Secured

FIRST = {"sender": "a@local", "receiver": "b@remote", "topic": "text", "clientTime": "2014-06-30T12:00:00Z"}
FIRST_MID = "995e5df1ea6c7a2b84fc92a83a0dc400ce0ffa54"
VECTORS = [
    (FIRST, FIRST_MID),
    ({**FIRST, "clientTime": "2014-06-30T12:00:00.123456789Z"}, "6cfa1763c6ea925de1ff181de05f887e54c10187"),
    (
        {**FIRST, "info": ["testing....", "second value & more~*()"]},
        "081d6dddeea6e9244b07bbba843d20db7a80c48d",
    ),
    ({**FIRST, "p-server": "Pandora-Default-Server"}, "12d2b0c57d1f9ba7967f3f6e5aeda7511a784816"),
    ({**FIRST, "topic": "olá mundo"}, "5dd97e06848acd9b395f10d56a041b61f3d64c30"),
]
secured = secured_with(mailboxes__http_prefix="/pandora")


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    async with running_server(tmp_path / "data", mailboxes__http_prefix="/pandora") as running:
        yield running


async def post(server: Server, path: str, form: Any = None, method: str = "POST") -> Answer:
    return await requested(server.http_endpoint, method, f"/pandora{path}", form or {})


async def fetched(server: Server, receiver: str = "b@remote", **form: str) -> dict[str, str]:
    """Return the single values of a fetched message."""
    answer = await post(server, "/fetch", {"receiver": receiver, **form})
    assert answer.status == 200, answer
    return {name: values[-1] for name, values in answer.form.items()}


def client(server: Server) -> AsyncHttpClient:
    return AsyncHttpClient(f"http://{server.http_endpoint}/pandora")


@pytest.mark.parametrize(("form", "mid"), VECTORS)
async def test_the_mid_is_that_of_pandora(server: Server, form: dict[str, Any], mid: str) -> None:
    answer = await post(server, "/send", {**form, "delay": "0s"})
    assert (answer.status, answer.content) == (200, f"mid={mid}".encode())
    assert (await fetched(server))["mid"] == mid
    blob = await post(server, f"/admin/fetchBlob?mid={mid}", method="GET")
    assert blob.status == 200
    assert pandora.parse_values(blob.content)["sender"] == ["a@local"]
    if mid == FIRST_MID:
        assert blob.content == (
            b"clientTime=2014-06-30T12%3A00%3A00Z&p-server=Pandora-Default-Server&receiver=b%40remote&sender=a%40local"
            b"&topic=text"
        )


async def test_a_message_is_sent_listed_fetched_and_acknowledged(server: Server) -> None:
    before = datetime.now(UTC) - timedelta(seconds=1)
    assert (await post(server, "/api/send", {**FIRST, "mid": "overwritten"})).status == 200
    [listed] = json.loads((await post(server, "/admin/headers", {"receiver": "b@remote", "receivedat": "-1m"})).content)
    assert listed["deliveryCount"] == ["0"]
    assert listed["status"] == ["notDelivered"]
    assert (listed["lid"], listed["leasedUntil"]) == ([""], ["0001-01-01T00:00:00Z"])

    message = await fetched(server)
    assert message["mid"] == listed["mid"][0] != "overwritten"
    assert message["topic"] == "text"
    assert message["p-server"] == "Pandora-Default-Server"
    assert (message["statusCode"], message["status"], message["deliveryCount"]) == ("8", "notDelivered", "0")
    assert message["validBody"] == "true"
    assert message["receivedAt"] == message["sendWhen"] == listed["receivedAt"][0]
    assert before < pandora.parse_time(message["receivedAt"]) < datetime.now(UTC) + timedelta(seconds=1)
    lease = pandora.parse_time(message["leasedUntil"]) - datetime.now(UTC)
    assert timedelta(minutes=4) < lease < timedelta(minutes=6), "the default is 5 minutes"

    assert (await post(server, "/fetch", {"receiver": "b@remote"})).status == 204
    assert (await post(server, "/admin/headers", {"receiver": "b@remote"})).status == 204, "it is leased"
    ack = {"mid": message["mid"], "lid": message["lid"], "statusCode": "2"}
    assert (await post(server, "/ack", ack))[::2] == (200, b"")
    again = await fetched(server, leaseTime="1h")
    assert (again["status"], again["deliveryCount"]) == ("rejected", "1")
    assert again["lid"] != message["lid"]
    assert again["sendWhen"] == message["sendWhen"]
    stale = await post(server, "/ack", ack)
    assert stale.status == 500
    confirm = {"mid": again["mid"], "lid": again["lid"], "statusCode": "1"}
    assert (await post(server, "/ack", confirm)).status == 200
    assert (await post(server, "/ack", confirm)).status == 500
    assert (await post(server, "/fetch", {"receiver": "b@remote"})).status == 204
    assert (await post(server, "/admin/fetchBlob", {"mid": message["mid"]})).status == 404


async def test_an_equal_body_is_refused_even_after_it_was_confirmed(server: Server) -> None:
    assert (await post(server, "/send", FIRST)).status == 200
    assert (await post(server, "/send", FIRST)).status == 500
    message = await fetched(server)
    confirm = {"mid": message["mid"], "lid": message["lid"], "statusCode": "1"}
    assert (await post(server, "/ack", confirm)).status == 200
    refused = await post(server, "/send", FIRST)
    assert refused.status == 500
    assert FIRST_MID in refused.form["error"][0]
    assert (await post(server, "/send", {**FIRST, "clientTime": "bad"})).status == 200
    assert (await post(server, "/send", {**FIRST, "clientTime": "bad"})).status == 200, "two times of the server"


async def test_who_is_only_a_sender_has_no_messages_and_who_is_unknown_is_not_found(server: Server) -> None:
    unknown = await post(server, "/fetch", {"receiver": "a@local"})
    assert (unknown.status, unknown.content) == (400, b"error=sender+not+found")
    assert (await post(server, "/send", FIRST)).status == 200
    assert (await post(server, "/fetch", {"receiver": "a@local"})).status == 204
    assert (await post(server, "/admin/headers", {"receiver": "unknown"})).content == b"error=sender+not+found"


async def test_delays_are_those_of_go(server: Server) -> None:
    for number, (delay, is_due) in enumerate([("-5m", True), ("bad", True), ("1h0m0.5s", False), ("", True)]):
        assert (await post(server, "/send", {**FIRST, "number": number, "delay": delay})).status == 200
        answer = await post(server, "/fetch", {"receiver": "b@remote", "leaseTime": "bad"})
        assert answer.status == (200 if is_due else 204)
        if delay == "-5m":
            assert "delay" not in answer.form
            times = [pandora.parse_time(answer.form[name][0]) for name in ("receivedAt", "sendWhen")]
            assert times[0] - times[1] == timedelta(minutes=5)
    too_long = await post(server, "/send", {**FIRST, "delay": "20000h"})
    assert (too_long.status, "delay_ms" in too_long.form["error"][0]) == (400, True)


async def test_the_message_with_the_smallest_send_when_is_fetched_first(server: Server) -> None:
    for number, delay in enumerate(["0", "-60s", "-30s", "-2000000h"]):
        assert (await post(server, "/send", {**FIRST, "number": number, "delay": delay})).status == 200
    order = []
    for is_rejected in (True, False, False, True, False, False):
        answer = (await post(server, "/fetch", {"receiver": "b@remote"})).form
        order.append(answer["number"][0])
        if is_rejected:
            # It keeps its place.
            rejected = {"mid": answer["mid"][0], "lid": answer["lid"][0], "statusCode": "2"}
            assert (await post(server, "/ack", rejected)).status == 200
    assert order == ["3", "3", "1", "2", "2", "0"]


@pytest.mark.parametrize(
    ("path", "form", "status", "text"),
    [
        ("/send", {**FIRST, "sender": ""}, 400, "invalid mailbox"),
        ("/send", {**FIRST, "receiver": "\n"}, 400, "invalid mailbox"),
        ("/send", {**FIRST, "topic": "x" * 4096}, 400, "message is too big. max size is 4096"),
        ("/fetch", {}, 400, "invalid mailbox"),
        ("/fetch", {"receiver": "b@remote", "leaseTime": "2000h"}, 400, "lease_ms"),
        ("/ack", {"mid": FIRST_MID, "lid": FIRST_MID, "statusCode": "4"}, 400, "unable to change status"),
        ("/ack", {"mid": FIRST_MID, "lid": FIRST_MID, "statusCode": "vvvvv"}, 400, "unable to change status"),
        ("/ack", {"mid": FIRST_MID + "0", "lid": FIRST_MID, "statusCode": "1"}, 400, "key is too short"),
        ("/ack", {"mid": FIRST_MID, "lid": "ab", "statusCode": "1"}, 400, "input is to short to process"),
        ("/ack", {"mid": FIRST_MID, "lid": "x" * 40, "statusCode": "1"}, 500, "expected 40 hexadecimal digits"),
        ("/ack", {"mid": FIRST_MID, "lid": FIRST_MID, "statusCode": "1"}, 500, "no message has a valid lease"),
        ("/admin/fetchBlob", {"mid": FIRST_MID}, 404, "key not found"),
        ("/admin/headers", {"receiver": "b@remote", "receivedat": "yesterday"}, 400, "receivedat"),
    ],
)
async def test_a_bad_request_is_refused_with_its_own_reason(
    server: Server, path: str, form: dict[str, str], status: int, text: str
) -> None:
    await post(server, "/send", {**FIRST, "number": "0"})
    answer = await post(server, path, form)
    assert answer.status == status
    assert text in answer.form["error"][0]
    assert answer.headers["content-type"] == "application/x-www-form-urlencoded"


async def test_other_methods_and_paths_are_refused(server: Server) -> None:
    for path in ("/send", "/fetch", "/ack", "/admin/reenqueue"):
        refused = await post(server, path, method="GET")
        assert (refused.status, refused.headers["allow"]) == (405, "POST")
    assert (await post(server, "/nothing")).status == 404
    assert (await requested(server.http_endpoint, "POST", "/send", FIRST)).status == 404, "not below the prefix"
    malformed = await requested(
        server.http_endpoint, "POST", "/pandora/send", b"a=%zz",
        headers={"Content-Type": "application/x-www-form-urlencoded"},
    )  # fmt: skip
    assert malformed.status == 400
    too_large = await post(server, "/send", {**FIRST, "topic": "x" * 40_000})
    assert too_large.status == 413


async def test_ten_headers_at_a_time_in_the_order_of_arrival(server: Server) -> None:
    for number in range(25):
        assert (await post(server, "/send", {**FIRST, "number": number})).status == 200
    mids: list[str] = []
    after = "-24h"
    while True:
        answer = await post(server, "/admin/headers", {"receiver": "b@remote", "receivedat": after})
        if answer.status == 204:
            break
        rows = json.loads(answer.content)
        assert len(rows) <= 10
        mids += [row["mid"][0] for row in rows]
        after = rows[-1]["receivedAt"][0]
    assert len(mids) == len(set(mids)) == 25


async def test_reenqueue_answers_ok_and_keeps_valid_leases(server: Server) -> None:
    await post(server, "/send", FIRST)
    message = await fetched(server)
    for form in ({}, {"receiver": "b@remote"}):
        assert (await post(server, "/admin/reenqueue", form))[::2] == (200, b"OK")
    assert (await post(server, "/fetch", {"receiver": "b@remote"})).status == 204
    confirm = {"mid": message["mid"], "lid": message["lid"], "statusCode": "1"}
    assert (await post(server, "/ack", confirm)).status == 200


async def test_a_lock_is_valid_for_its_own_message_only_and_survives_a_restart(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    async with running_server(folder, mailboxes__http_prefix="/pandora") as server:
        for number in (1, 2):
            await post(server, "/send", {**FIRST, "number": number, "receiver": f"b{number}"})
        one, two = await fetched(server, "b1"), await fetched(server, "b2")
    async with running_server(folder, mailboxes__http_prefix="/pandora") as server:
        crossed = {"mid": one["mid"], "lid": two["lid"], "statusCode": "1"}
        assert (await post(server, "/ack", crossed)).status == 500
        for message in (one, two):
            confirm = {"mid": message["mid"], "lid": message["lid"], "statusCode": "1"}
            assert (await post(server, "/ack", confirm)).status == 200


async def test_messages_of_grpc_are_delivered_too(server: Server) -> None:
    async with grpc.aio.insecure_channel(server.grpc_endpoint) as channel:
        stub = Client(channel).mailboxes
        await stub.CreateMailbox(pb.CreateMailboxRequest(name="jobs"))
        await stub.Send(pb.SendRequest(mailbox="jobs", bodies=[b"topic=x", b"\xff;not a form"]))
        await post(server, "/send", {**FIRST, "receiver": "jobs"})
        valid, invalid = await fetched(server, "jobs"), await fetched(server, "jobs")
        assert (valid["topic"], valid["validBody"], invalid["validBody"]) == ("x", "true", "false")
        fetch = await stub.Fetch(pb.FetchRequest(mailbox="jobs"))
        [delivery] = fetch.deliveries
        assert delivery.headers["mid"] == pandora.print_key_string(_sha1(delivery.body))
        assert (delivery.headers["sender"], delivery.headers["receiver"]) == ("a@local", "jobs")


async def test_bodies_that_are_blobs_are_delivered_and_acknowledged(server: Server) -> None:
    async with grpc.aio.insecure_channel(server.grpc_endpoint) as channel:
        stub = Client(channel).mailboxes
        await stub.CreateMailbox(pb.CreateMailboxRequest(name="jobs"))
        body = b"topic=" + b"x" * 100_000
        await stub.Send(pb.SendRequest(mailbox="jobs", bodies=[body]))
        [listed] = json.loads((await post(server, "/admin/headers", {"receiver": "jobs"})).content)
        message = await fetched(server, "jobs")
        assert (message["topic"], message["validBody"]) == ("x" * 100_000, "true")
        assert message["mid"] == listed["mid"][0] == pandora.print_key_string(_sha1(body))
        confirm = {"mid": message["mid"], "lid": message["lid"], "statusCode": "1"}
        assert (await post(server, "/ack", confirm)).status == 200


def _sha1(data: bytes) -> pandora.SHA1Key:
    writer = pandora.SHA1KeyWriter()
    writer.write(data)
    return writer.key()


async def test_the_reference_client(server: Server) -> None:
    mail = client(server)
    with pytest.raises(InvalidStatusCodeError, match="invalid status code: 400") as unknown:
        await mail.fetch("b", timedelta(minutes=1))
    assert (unknown.value.status_code, unknown.value.text) == (400, "sender not found")
    assert unknown.value.effect == "none"
    body: dict[str, Any] = {"topic": "text", "to": ["ann", "bob"]}
    mid = await mail.send("a", "b", timedelta(seconds=-90), body)
    assert (body["delay"], body["sender"], body["receiver"]) == ("-1m30s", "a", "b")
    pandora.parse_time(body["clientTime"])
    with pytest.raises(NoDataAvailableError, match="no data available"):
        await mail.fetch("a", timedelta(minutes=1))
    message = await mail.fetch("b", timedelta(minutes=1))
    assert (message["mid"], message["to"], message["clientTime"]) == ([mid], ["ann", "bob"], [body["clientTime"]])
    with pytest.raises(InvalidStatusCodeError, match="invalid status code: 400"):
        await mail.ack(mid, message["lid"][0], AckStatus.TIMEOUT)
    await mail.ack(mid, message["lid"][0], AckStatus.REJECTED)
    with pytest.raises(InvalidStatusCodeError, match="invalid status code: 500") as stale:
        await mail.ack(mid, message["lid"][0], AckStatus.CONFIRMED)
    assert stale.value.effect == "unknown"
    again = await mail.fetch("b", timedelta())
    await mail.ack(mid, again["lid"][0], AckStatus.CONFIRMED)
    with pytest.raises(ValueError, match="expected one such as"):
        AsyncHttpClient("ftp://host")


async def test_the_client_uses_a_connection_again_until_the_server_closes_it(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    async with running_server(folder, mailboxes__http_prefix="/pandora") as server:
        mail = client(server)
        for _ in range(5):
            await mail.send("a", "b", timedelta(), {"topic": "text"})
        listener = server._http._listener
        assert listener is not None
        assert len(listener._by_protocol) == 1
        port = server.http_endpoint.rpartition(":")[2]
    with pytest.raises(ConnectionRefusedError):
        await mail.fetch("b", timedelta())
    async with running_server(folder, mailboxes__http_prefix="/pandora", server__http_port=port):
        async with mail:
            assert (await mail.fetch("b", timedelta()))["topic"] == ["text"]
        assert (await mail.fetch("b", timedelta()))["topic"] == ["text"], "with a new connection"


async def test_the_endpoints_are_off_by_default() -> None:
    async with running_server() as running:
        answer = await requested(running.http_endpoint, "POST", "/pandora/send", FIRST)
        assert answer.status == 404


async def test_the_maximum_size_can_be_configured() -> None:
    async with running_server(mailboxes__http_prefix="/p", mailboxes__http_max_body_bytes="64KiB") as running:
        form = {**FIRST, "topic": "x" * 60_000}
        assert (await requested(running.http_endpoint, "POST", "/p/send", form)).status == 200
        form["topic"] = "x" * 66_000
        answer = await requested(running.http_endpoint, "POST", "/p/send", form)
        assert answer.form["error"] == ["message is too big. max size is 65536"]


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://attacker.example"},
        {"Origin": "null"},
        {"Origin": "http://["},
        {"Host": "["},
        {"Sec-Fetch-Site": "cross-site"},
        {"Host": "attacker.example"},
    ],
)
async def test_pages_of_other_sites_are_refused(server: Server, headers: dict[str, str]) -> None:
    answer = await requested(server.http_endpoint, "POST", "/pandora/send", FIRST, headers)
    assert answer.status == 403
    assert (await post(server, "/fetch", {"receiver": "b@remote"})).content == b"error=sender+not+found"


async def test_probes_are_answered_while_calls_hold_connections(server: Server) -> None:
    """Calls in progress do not count to the connections of probes, and are not ended by new ones."""
    await post(server, "/send", FIRST)
    host, port = server.http_endpoint.split(":")
    head = b"POST /pandora/fetch HTTP/1.1\r\nHost: localhost\r\nContent-Length: 17\r\n"
    head += b"Content-Type: application/x-www-form-urlencoded\r\n\r\nreceiver="
    streams = [await asyncio.open_connection(host, int(port)) for _ in range(2)]
    for _, writer in streams:
        writer.write(head)
        await writer.drain()
    probes = [await asyncio.open_connection(host, int(port)) for _ in range(MAX_HTTP_CONNECTIONS + 8)]
    assert (await requested(server.http_endpoint, "GET", "/livez")).status == 200
    statuses = []
    for reader, writer in streams:
        writer.write(b"b@remote")
        await writer.drain()
        statuses.append((await reader.readline()).split()[1])
        writer.close()
    assert statuses == [b"200", b"204"]
    for _, writer in probes:
        writer.close()


# -- Authentication ------------------------------------------------------------------------------------------


async def call(secured: Secured, token: str, path: str, form: Any) -> Answer:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    return await requested(
        secured.server.http_endpoint, "POST", f"/pandora{path}", form, headers,
        tls=ssl.create_default_context(cafile=str(secured.authority.ca)),
    )  # fmt: skip


async def test_calls_need_the_grants_of_grpc(secured: Secured) -> None:
    none = await call(secured, "", "/send", FIRST)
    assert none.status == 401
    assert "Bearer" in none.headers["www-authenticate"]
    assert (await call(secured, "wrong", "/send", FIRST)).status == 401
    sender = await secured.token("mailbox.send:b@remote")
    assert (await call(secured, sender, "/send", FIRST)).status == 403, "creating mailboxes needs mailbox.manage"
    manager = await secured.token("mailbox.manage:*", "mailbox.send:*")
    assert (await call(secured, manager, "/send", FIRST)).status == 200
    assert (await call(secured, sender, "/send", {**FIRST, "number": 2})).status == 403, "in the name of another's"
    both = await secured.token("mailbox.send:b@remote", "mailbox.send:a@local")
    assert (await call(secured, both, "/send", {**FIRST, "number": 2})).status == 200
    assert (await call(secured, sender, "/send", {**FIRST, "receiver": "a@local"})).status == 403
    for path, form in (
        ("/fetch", {"receiver": "b@remote"}),
        ("/admin/headers", {"receiver": "b@remote"}),
        ("/admin/reenqueue", {}),
    ):
        assert (await call(secured, sender, path, form)).status == 403
    receiver = await secured.token("mailbox.receive:b@remote")
    message = (await call(secured, receiver, "/fetch", {"receiver": "b@remote"})).form
    ack = {"mid": message["mid"], "lid": message["lid"], "statusCode": "1"}
    assert (await call(secured, sender, "/ack", ack)).status == 403
    stranger = await secured.token("mailbox.receive:other")
    assert (await call(secured, stranger, "/ack", ack)).status == 500, "the lock is not known to it"
    assert (await call(secured, receiver, "/ack", ack)).status == 200
    reader = await secured.token("mailbox.read:b@remote")
    assert (await call(secured, reader, "/admin/headers", {"receiver": "b@remote"})).status == 200
    assert (await call(secured, manager, "/admin/reenqueue", {"receiver": "b@remote"})).status == 200


async def test_a_search_opens_only_mailboxes_on_which_the_caller_has_a_permission(secured: Secured) -> None:
    """A lock or an id that no mailbox has is looked for in closed mailboxes, but not in those of others."""
    async with secured.client() as client:
        for name in ("mine/one", "mine/two", "others/one"):
            await client.mailboxes.create(name)
    opened = secured.server._node.opened_mailboxes
    assert opened is not None
    unknown = {"mid": "0" * 40, "lid": "1" * 40, "statusCode": "1"}
    stranger = await secured.token("mailbox.receive:zzz")
    assert (await call(secured, stranger, "/ack", unknown)).status == 500
    assert (await call(secured, stranger, "/admin/fetchBlob", {"mid": "0" * 40})).status != 200
    assert opened.all_opened() == []
    mine = await secured.token("mailbox.receive:mine/*")
    assert (await call(secured, mine, "/ack", unknown)).status == 500
    assert sorted(log.name for log in opened.all_opened()) == ["mine/one", "mine/two"]
