"""The JSON API: every route does what its call by gRPC does, and the OpenAPI document describes exactly the routes.

Method: a real server; each answer is validated against the schema that the served document has for it.
"""

import asyncio
import base64
import json
import ssl
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from openapi_spec_validator import validate

from tidelog.v1 import mailbox_service_pb2 as pb
from tidelog_server.app import Server
from tidelog_server.core.errors import InvalidRequestError
from tidelog_server.rpc.web import api
from tidelog_server.rpc.web.api import MAX_API_REQUEST_BYTES
from tidelog_server.rpc.web.calls import SERVICE
from tidelog_server.rpc.web.json_form import fill, to_json
from tidelog_testing.oracles.reads import payloads
from tidelog_testing.parts.grpc_calls import running_server
from tidelog_testing.parts.http_calls import Answer, requested
from tidelog_testing.parts.waiting import eventually
from tidelog_testing.servers.certificates import Authority
from tidelog_testing.servers.secured import Secured, secured_server

ODD_NAME = "orders/eu b@remote%2F?ü"


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    async with running_server(tmp_path / "data") as running:
        yield running


class Api:
    """Calls of the API whose answers are checked against the document."""

    def __init__(self, server: Server, document: dict[str, Any]) -> None:
        self._endpoint = server.http_endpoint
        self.document = document
        self.called: set[str] = set()

    async def call(self, name: str, mailbox: str = "", /, query: str = "", **content: Any) -> Any:
        """Make a call, which must succeed, by its operation id."""
        answer = await self.answer(name, mailbox, query=query, **content)
        assert answer.status in (200, 201), answer
        self.called.add(name)
        return json.loads(answer.content)

    async def answer(self, name: str, mailbox: str = "", /, query: str = "", **content: Any) -> Answer:
        [(path, verb, operation)] = [
            (path, verb, operation)
            for path, verbs in self.document["paths"].items()
            for verb, operation in verbs.items()
            if operation["operationId"] == name
        ]
        path = path.replace("{name}", quote(mailbox, safe=""))
        sent = json.dumps(content).encode() if "requestBody" in operation else None
        answer = await requested(self._endpoint, verb.upper(), path + query, sent)
        responses = operation["responses"]
        response = responses.get(str(answer.status), responses["default"])
        schema = response["content"]["application/json"]["schema"]
        whole = {**schema, "components": self.document["components"]}
        Draft202012Validator(whole).validate(json.loads(answer.content))
        assert answer.headers["content-type"].startswith("application/json")
        return answer


async def document_of(server: Server) -> dict[str, Any]:
    answer = await requested(server.http_endpoint, "GET", "/api/v1/openapi.json")
    assert answer.status == 200
    found: dict[str, Any] = json.loads(answer.content)
    return found


async def test_every_route_is_documented_and_answers_as_documented(server: Server) -> None:
    document = await document_of(server)
    validate(document)
    calls = Api(server, document)
    await calls.call("CreateMailbox", name="dead")
    created = await calls.answer(
        "CreateMailbox", name=ODD_NAME, settings={"dead_letter": "dead", "backoff": {"delays_ms": [5]}}
    )
    assert created.status == 201
    again = await calls.answer("CreateMailbox", name=ODD_NAME, if_not_exists=True)
    assert (again.status, json.loads(again.content)["is_created"]) == (200, False)
    listed = await calls.call("ListMailboxes", query="?page_size=1")
    assert [each["name"] for each in listed["mailboxes"]] == ["dead"]
    assert listed["next_page_token"] == "dead"
    await calls.call("ConfigureMailbox", ODD_NAME, settings={"max_deliveries": 1, "lease_ms": 60_000})

    messages = [
        {"body": "olá", "priority": 3, "headers": {"a": "b"}},
        {"body_base64": base64.b64encode(b"\xff").decode()},
    ]
    sent = await calls.call("Send", ODD_NAME, messages=messages)
    assert all(isinstance(each, str) and each.isdecimal() for each in sent["ids"])
    described = await calls.call("DescribeMailbox", ODD_NAME)
    assert described["mailbox"]["settings"]["backoff"] == {"delays_ms": [5]}
    assert described["counts"]["available"] == 2
    headers = (await calls.call("FetchHeaders", ODD_NAME, query="?max_messages=1"))["headers"]
    assert [header["id"] for header in headers] == sent["ids"][:1]
    peeked = (await calls.call("Peek", ODD_NAME, query="?state=available"))["messages"]
    assert [each.get("body", each.get("body_base64")) for each in peeked] == ["olá", "/w=="]

    fetched = await calls.call("Fetch", ODD_NAME, max_messages=2)
    [one, two] = fetched["deliveries"]
    assert (one["body"], one["status"], one["delivery_count"]) == ("olá", "not_delivered", 1)
    extended = await calls.call("Extend", ODD_NAME, lock_ids=[one["lock_id"], "00" * 20], lease_ms=90_000)
    assert extended["leased_until_ms"] > fetched["leased_until_ms"]
    [failure] = extended["failures"]
    assert (failure["lock_id"], failure["error"]["reason"]) == ("00" * 20, "LOCK_UNKNOWN")
    acked = await calls.call(
        "AckDeliveries", ODD_NAME, confirmed=[one["lock_id"]], rejected=[{"lock_id": two["lock_id"]}]
    )
    assert acked == {"failures": []}
    await eventually(lambda: calls.call("DescribeMailbox", "dead"), lambda found: found["counts"]["available"] != 0)
    [letter] = (await calls.call("Peek", "dead"))["messages"]
    assert letter["dead_letter"]["mailbox"] == ODD_NAME
    assert (await calls.call("Redrive", "dead")) == {"moved": 1, "total": 1}
    await calls.call("PauseMailbox", ODD_NAME)
    assert (await calls.call("Fetch", ODD_NAME))["deliveries"] == []
    await calls.call("ResumeMailbox", ODD_NAME)
    [delivery] = (await calls.call("Fetch", ODD_NAME))["deliveries"]
    assert (await calls.call("Reenqueue", ODD_NAME, ids=[delivery["id"]])) == {"messages": 1}
    assert (await calls.call("PurgeMailbox", ODD_NAME))["messages"] in (0, 1)
    assert (await calls.call("DeleteMailbox", ODD_NAME)) == {"existed": True}
    assert (await calls.call("DeleteMailbox", ODD_NAME, query="?ignore_missing=true")) == {"existed": False}

    documented = {operation["operationId"] for verbs in document["paths"].values() for operation in verbs.values()}
    assert calls.called == documented
    streams = {"Operate", "StreamDeliveries"}
    assert documented == set(SERVICE.methods_by_name) - streams
    assert documented == {route.call for route in api.ROUTES}


async def test_a_fetch_waits_and_ends_with_its_client(server: Server) -> None:
    calls = Api(server, await document_of(server))
    await calls.call("CreateMailbox", name="jobs")
    waiting = asyncio.create_task(calls.call("Fetch", "jobs", wait_ms=30_000))
    host, port = server.http_endpoint.split(":")
    _, writer = await asyncio.open_connection(host, int(port))
    content = b'{"wait_ms": 60000}'
    head = f"POST /api/v1/mailboxes/jobs/fetch HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(content)}"
    writer.write(head.encode() + b"\r\n\r\n" + content)
    await writer.drain()
    site: Any = server._http._api.__self__  # type: ignore[union-attr]  # it serves
    async with asyncio.timeout(20):
        while site._api._calls.bounds.waits.total < 2:
            await asyncio.sleep(0.01)
        writer.close()
        while site._api._calls.bounds.waits.total > 1:
            await asyncio.sleep(0.01)
    await calls.call("Send", "jobs", messages=[{"body": "one"}])
    assert [each["body"] for each in (await waiting)["deliveries"]] == ["one"]
    assert site._api._calls.bounds.waits.total == 0


@pytest.mark.parametrize(
    ("call", "content", "status", "reason"),
    [
        ("Send", {"messages": [{"body": "x", "delay_ms": -1}]}, 400, "INVALID_DELAY"),
        ("Send", {"messages": [{"body": "x" * 11}]}, 413, "BODY_TOO_LARGE"),
        ("Send", {"messages": [{"body": "x", "body_base64": "eA=="}]}, 400, "INVALID_ARGUMENT"),
        ("Send", {"messages": [{"body_base64": "x"}]}, 400, "INVALID_ARGUMENT"),
        ("Send", {"messages": [{"body": 1}]}, 400, "INVALID_ARGUMENT"),
        ("Send", {"messages": [{"body": "\ud800"}]}, 400, "INVALID_ARGUMENT"),
        ("Send", {"messages": [{"body": "x", "priority": -1}]}, 400, "INVALID_ARGUMENT"),
        ("Send", {"messages": [{"body": "x", "headers": {"a": 1}}]}, 400, "INVALID_ARGUMENT"),
        ("Send", {"messages": {}}, 400, "INVALID_ARGUMENT"),
        ("Send", {"bodies": ["x"]}, 400, "INVALID_ARGUMENT"),
        ("Send", {"mailbox": "other"}, 400, "INVALID_ARGUMENT"),
        ("Fetch", {"lease_ms": 10**12}, 400, "LEASE_TOO_LONG"),
        ("Fetch", {"lease_ms": True}, 400, "INVALID_ARGUMENT"),
        ("Fetch", {"wait_ms": 60_001}, 400, "INVALID_ARGUMENT"),
        ("Extend", {"lock_ids": ["xx"]}, 400, "INVALID_ARGUMENT"),
        ("Reenqueue", {"ids": [5]}, 400, "INVALID_ARGUMENT"),
        ("ConfigureMailbox", {"settings": {"dead_letter": "jobs"}}, 409, "DEAD_LETTER_CYCLE"),
        ("Send", {"messages": [{}]}, 400, "INVALID_ARGUMENT"),
        ("Send", {"messages": [{"body": "a", "delay_ms": 1, "due_ms": 1}]}, 400, "INVALID_ARGUMENT"),
        ("CreateMailbox", {"name": "jobs"}, 409, "MAILBOX_ALREADY_EXISTS"),
        ("CreateMailbox", {"name": "\n"}, 400, "INVALID_NAME"),
    ],
)
async def test_a_bad_request_has_its_own_reason(
    server: Server, call: str, content: dict[str, Any], status: int, reason: str
) -> None:
    calls = Api(server, await document_of(server))
    await calls.call("CreateMailbox", name="jobs", settings={"max_body_bytes": 10})
    answer = await calls.answer(call, "" if call == "CreateMailbox" else "jobs", **content)
    error = json.loads(answer.content)["error"]
    assert (answer.status, error["reason"], error["effect"]) == (status, reason, "none")
    assert error["message"]
    if call not in ("ConfigureMailbox", "CreateMailbox"):
        assert (await calls.answer(call, "missing", **content)).status in (400, 404)


async def test_other_requests_are_refused(server: Server) -> None:
    async def status(method: str, path: str, content: bytes | None = None, **headers: str) -> tuple[int, Any]:
        answer = await requested(server.http_endpoint, method, path, content, headers)
        return answer.status, json.loads(answer.content)["error"]["reason"]

    base = "/api/v1/mailboxes"
    assert await status("GET", base + "/missing") == (404, "MAILBOX_NOT_EXIST")
    assert await status("PUT", base) == (405, "METHOD_NOT_ALLOWED")
    assert await status("GET", "/api/v1/nothing") == (404, "PATH_UNKNOWN")
    assert await status("GET", base + "/a/b") == (404, "PATH_UNKNOWN")
    assert await status("GET", base + "?page_size=x") == (400, "INVALID_ARGUMENT")
    assert await status("GET", base + "?page=1") == (400, "INVALID_ARGUMENT")
    assert await status("GET", base + "/%FF") == (404, "MAILBOX_NOT_EXIST")
    assert await status("POST", base, b"{") == (400, "INVALID_ARGUMENT")
    assert await status("POST", base, b"[" * 100_000) == (400, "INVALID_ARGUMENT")
    assert await status("POST", base, b'{"name": NaN}') == (400, "INVALID_ARGUMENT")
    large = b" " * (MAX_API_REQUEST_BYTES + 1)
    assert await status("POST", base, large) == (413, "REQUEST_NOT_READ")
    cross = await requested(server.http_endpoint, "POST", base, b"{}", {"Origin": "http://attacker.example"})
    assert cross.status == 403


async def test_the_api_can_be_turned_off() -> None:
    async with running_server(mailboxes__http_api="false") as server:
        assert (await requested(server.http_endpoint, "GET", "/api/v1/openapi.json")).status == 404


async def test_calls_need_the_grants_of_grpc_and_are_audited(tmp_path: Path) -> None:
    async with secured_server(tmp_path) as secured:
        reader = await secured.token("mailbox.read:jobs")
        for token, verb, path, status in (
            ("", "GET", "/jobs", 401),
            (reader, "POST", "", 403),
            (secured.admin, "POST", "", 201),
            (reader, "GET", "/jobs/messages", 200),
            (reader, "POST", "/jobs/purge", 403),
            (secured.admin, "POST", "/jobs/purge", 200),
        ):
            answer = await call(secured, token, verb, path, b'{"name": "jobs"}' if not path else b"")
            assert answer.status == status, (verb, path, answer)
            assert answer.headers["x-content-type-options"] == "nosniff"
        async with secured.client() as client:
            events = [json.loads(each) for each in await payloads(client, "_audit/0")]
        audited = [(event["event"], event["method"].rpartition("/")[2]) for event in events if "method" in event]
        assert ("admin", "CreateMailbox") in audited
        assert ("admin", "PurgeMailbox") in audited
        assert ("denied", "PurgeMailbox") in audited


async def test_a_client_certificate_identifies_a_caller(tmp_path: Path) -> None:
    authority = Authority.make(tmp_path)
    grants = tmp_path / "grants.toml"
    grants.write_text('[principals]\n"mtls:worker.example.org" = ["mailbox.manage:*"]\n')
    authority.client("worker", dns=("worker.example.org",))
    files = {**authority.server(), "tls__client_ca": authority.ca, "auth__kind": "on", "auth__grants": grants}
    async with running_server(tmp_path / "data", **files) as server:

        async def created(context: ssl.SSLContext) -> int:
            path, content = "/api/v1/mailboxes", b'{"name": "jobs"}'
            return (await requested(server.http_endpoint, "POST", path, content, tls=context)).status

        context = ssl.create_default_context(cafile=str(authority.ca))
        assert await created(context) == 401
        assert (await requested(server.http_endpoint, "GET", "/livez", tls=context)).status == 200
        context.load_cert_chain(tmp_path / "worker.pem", tmp_path / "worker.key")
        assert await created(context) == 201


async def call(secured: Secured, token: str, verb: str, path: str, content: bytes) -> Answer:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    tls = ssl.create_default_context(cafile=str(secured.authority.ca))
    return await requested(secured.server.http_endpoint, verb, f"/api/v1/mailboxes{path}", content, headers, tls=tls)


MESSAGES = st.builds(
    pb.OutgoingMessage,
    body=st.binary(max_size=20),
    headers=st.dictionaries(st.text(max_size=5), st.text(max_size=5), max_size=3),
    priority=st.integers(0, 255),
    group=st.text(max_size=5),
    ttl_ms=st.none() | st.integers(-(1 << 63), (1 << 63) - 1),
)


@given(st.builds(pb.SendRequest, mailbox=st.text(max_size=5), messages=st.lists(MESSAGES, max_size=3)))
def test_a_message_is_the_same_after_json(request: pb.SendRequest) -> None:
    value = json.loads(json.dumps(to_json(request)))
    del value["bodies"]
    parsed = pb.SendRequest()
    fill(parsed, value)
    assert parsed == request


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(
        ["messages", "body", "body_base64", "headers", "delay_ms", "due_ms", "priority", "bodies", "x"]
    ), inner, max_size=3),
)  # fmt: skip


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(JSON)
def test_any_json_is_parsed_or_refused(value: Any) -> None:
    with suppress(InvalidRequestError):
        fill(pb.SendRequest(), value)
