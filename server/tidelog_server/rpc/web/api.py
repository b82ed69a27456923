"""The JSON API under ``/api/v1``: one table of routes, which dispatches requests and makes the OpenAPI document."""

import asyncio
import json
from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import unquote

from aiohttp import web
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from tidelog.v1 import mailbox_service_pb2 as pb
from tidelog_server.core.errors import InvalidRequestError, RateLimitRejectedError
from tidelog_server.core.limits import KIB, MAX_API_READS, MAX_API_REQUEST_BYTES, MAX_API_WAITS
from tidelog_server.rpc.web.access import read_body
from tidelog_server.rpc.web.answers import http_status_of
from tidelog_server.rpc.web.calls import SERVICE, Pending, WebCalls
from tidelog_server.rpc.web.context import RefusedCallError
from tidelog_server.rpc.web.json_form import fill, fill_from_texts, to_json

API_PREFIX: Final = "/api/v1"
DOCUMENT_PATH: Final = f"{API_PREFIX}/openapi.json"
MAILBOXES: Final = f"{API_PREFIX}/mailboxes"
_NAME: Final = "{name}"
_RETRY_AFTER_MS: Final = 1_000
# Requests up to this size are read without a turn.
_SMALL_BYTES: Final = 64 * KIB


@dataclass(frozen=True, slots=True)
class Route:
    """A method and a path, and the call of MailboxService that they are.

    Attributes:
        verb: Method of HTTP. The fields of the request are in the query of GET and DELETE, otherwise in the content.
        path: The path; ``{name}`` is the name of the mailbox, percent-encoded.
        call: Name of the call.
        summary: What it does, for the document.
        name_field: Field of the request with the name of the mailbox; empty without one in the path.
        created_field: Field of the answer that is true if something was created: then the status is 201.
    """

    verb: str
    path: str
    call: str
    summary: str
    name_field: str = ""
    created_field: str = ""
    segments: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "segments", tuple(self.path.split("/")))

    @property
    def has_content(self) -> bool:
        """True if the fields of the request are in the content."""
        return self.verb not in ("GET", "DELETE")

    def name_in(self, segments: tuple[str, ...]) -> str | None:
        """Return the name in a path, empty if the route has no name; None if the path is another one."""
        if len(segments) != len(self.segments):
            return None
        pairs = list(zip(self.segments, segments, strict=True))
        if any(own not in (_NAME, given) for own, given in pairs):
            return None
        return next((unquote(given) for own, given in pairs if own == _NAME), "")


def _of_mailbox(verb: str, action: str, call: str, summary: str) -> Route:
    return Route(verb, f"{MAILBOXES}/{_NAME}/{action}", call, summary, "mailbox")


def _of_name(verb: str, action: str, call: str, summary: str) -> Route:
    return Route(verb, f"{MAILBOXES}/{_NAME}{action}", call, summary, "name")


ROUTES: Final = (
    Route("GET", MAILBOXES, "ListMailboxes", "List mailboxes in order of name, in pages."),
    Route("POST", MAILBOXES, "CreateMailbox", "Create a mailbox, durably.", created_field="is_created"),
    _of_name("GET", "", "DescribeMailbox", "Return the settings and the counts of a mailbox."),
    _of_name("PATCH", "", "ConfigureMailbox", "Change settings of a mailbox, durably."),
    _of_name("DELETE", "", "DeleteMailbox", "Delete a mailbox with its messages, durably."),
    _of_mailbox("POST", "messages", "Send", "Add messages to a mailbox, all or none, durably."),
    _of_mailbox("GET", "messages", "Peek", "List messages with their bodies, in any state, without a lease."),
    _of_mailbox("GET", "headers", "FetchHeaders", "List messages that could be fetched now, without bodies."),
    _of_mailbox("POST", "fetch", "Fetch", "Lease messages, and wait for the first one if asked to."),
    _of_mailbox("POST", "ack", "AckDeliveries", "Confirm or reject deliveries, each by the id of its lock."),
    _of_mailbox("POST", "extend", "Extend", "Replace the end of leases: their duration begins now."),
    _of_mailbox("POST", "reenqueue", "Reenqueue", "End leases, so that their messages can be fetched again."),
    _of_mailbox("POST", "redrive", "Redrive", "Return dead messages to delivery; answered when all are moved."),
    _of_name("POST", "/purge", "PurgeMailbox", "Delete all messages of a mailbox, leased ones too, durably."),
    _of_name("POST", "/pause", "PauseMailbox", "Stop deliveries."),
    _of_name("POST", "/resume", "ResumeMailbox", "Resume deliveries."),
)


class JsonApi:
    """Answers requests of the JSON API."""

    def __init__(self, calls: WebCalls, document: Mapping[str, Any]) -> None:
        """Serve ``document`` as the OpenAPI document."""
        self._calls = calls
        self._document = json.dumps(document, ensure_ascii=False).encode()
        self._reads = asyncio.Semaphore(MAX_API_READS)
        self._waits = 0

    async def answer(self, request: web.Request) -> web.Response:
        """Return the answer to a request."""
        path = request.rel_url.raw_path
        if path == DOCUMENT_PATH and request.method == "GET":
            return web.Response(body=self._document, content_type="application/json")
        segments = tuple(path.split("/"))
        found = [(route, name) for route in ROUTES if (name := route.name_in(segments)) is not None]
        for route, name in found:
            if route.verb == request.method:
                return await self._call(request, route, name)
        if found:
            allowed = ", ".join(route.verb for route, _ in found)
            return problem(405, "METHOD_NOT_ALLOWED", f"the method is not allowed: use {allowed}", {"Allow": allowed})
        return problem(404, "PATH_UNKNOWN", f"nothing is at this path: see {DOCUMENT_PATH}")

    async def _call(self, request: web.Request, route: Route, name: str) -> web.Response:
        try:
            content = await self._read(request) if route.has_content else b""
        except web.HTTPException as error:
            return problem(error.status, "REQUEST_NOT_READ", f"the request was not read: {error.text}")
        async with AsyncExitStack() as held:
            pending = Pending(lambda: self._message(request, route, name, content, held), len(content))
            try:
                response = await self._calls.call(request, route.call, pending)
            except RefusedCallError as error:
                return refused(error)
        is_created = bool(route.created_field) and getattr(response, route.created_field)
        return _json(to_json(response), 201 if is_created else 200)

    async def _read(self, request: web.Request) -> bytes:
        """Return the content of a request. Raises HTTPException."""
        size_bytes = request.content_length
        if size_bytes is not None and size_bytes <= _SMALL_BYTES:
            return await read_body(request, _SMALL_BYTES)
        async with self._reads:
            return await read_body(request, MAX_API_REQUEST_BYTES)

    def _message(self, request: web.Request, route: Route, name: str, content: bytes, held: AsyncExitStack) -> Message:
        """Return the request of a call whose caller is known. Raises InvalidRequestError, RateLimitRejectedError."""
        message: Any = GetMessageClass(SERVICE.methods_by_name[route.call].input_type)()
        if route.has_content:
            value = _loaded(content)
            if route.name_field and isinstance(value, dict) and route.name_field in value:
                raise InvalidRequestError(
                    f"the field '{route.name_field}' is part of the path: leave it out", field=route.name_field
                )
            fill(message, value)
        else:
            fill_from_texts(message, request.query)
        if route.name_field:
            setattr(message, route.name_field, _utf8(name))
        if isinstance(message, pb.FetchRequest) and message.wait_ms > 0:
            self._count_wait(held)
        return message  # type: ignore[no-any-return]

    def _count_wait(self, held: AsyncExitStack) -> None:
        if self._waits >= MAX_API_WAITS:
            raise RateLimitRejectedError(
                f"{self._waits} fetches wait for messages by HTTP, which is the maximum: retry, or use gRPC",
                limit="api_waits", retry_after_ms=_RETRY_AFTER_MS,
            )  # fmt: skip
        self._waits += 1
        held.callback(self._end_wait)

    def _end_wait(self) -> None:
        self._waits -= 1


def problem(status: int, reason: str, message: str, headers: Mapping[str, str] | None = None) -> web.Response:
    """Return an answer for a request that is not a call."""
    error = {"reason": reason, "message": message, "effect": "none", "values": {}}
    return _json({"error": error}, status, headers)


def refused(error: RefusedCallError) -> web.Response:
    """Return the answer to a refused call."""
    status, headers = http_status_of(error)
    fields = {"reason": error.reason, "message": error.text, "effect": error.effect, "values": error.values}
    return _json({"error": fields}, status, headers)


def _json(value: Mapping[str, Any], status: int, headers: Mapping[str, str] | None = None) -> web.Response:
    content = json.dumps(value, ensure_ascii=False).encode()
    return web.Response(body=content, status=status, content_type="application/json", headers=headers)


def _loaded(content: bytes) -> Any:
    """Return the value of JSON; an empty object for no content. Raises InvalidRequestError."""
    if not content:
        return {}
    try:
        return json.loads(content)
    except (ValueError, RecursionError) as error:
        raise InvalidRequestError(f"the request is not valid JSON: {error}", field="request") from error


def _utf8(name: str) -> str:
    try:
        name.encode()
    except UnicodeEncodeError as error:
        raise InvalidRequestError("the name in the path is not UTF-8", field="name") from error
    return name
