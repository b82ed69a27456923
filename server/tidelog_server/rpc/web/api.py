"""The JSON API under ``/api/v1``: one table of routes, which dispatches requests and makes the OpenAPI document."""

import asyncio
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar
from urllib.parse import unquote

from aiohttp import web
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from tidelog.v1 import mailbox_service_pb2 as pb
from tidelog_server.core.errors import InvalidRequestError
from tidelog_server.core.limits import API_INLINE_BYTES, MIB
from tidelog_server.rpc.web.access import NotReadError, read_body
from tidelog_server.rpc.web.calls import SERVICE, Pending, WebCalls
from tidelog_server.rpc.web.context import RefusedCallError, http_status_of
from tidelog_server.rpc.web.json_form import error_json, fill, fill_from_texts, to_json
from tidelog_server.rpc.web.json_reader import read_json

MAX_API_REQUEST_BYTES: Final = 2 * MIB

API_PREFIX: Final = "/api/v1"
DOCUMENT_PATH: Final = f"{API_PREFIX}/openapi.json"
MAILBOXES: Final = f"{API_PREFIX}/mailboxes"
_NAME: Final = "{name}"
_Result = TypeVar("_Result")


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

    @property
    def has_content(self) -> bool:
        """True if the fields of the request are in the content."""
        return self.verb not in ("GET", "DELETE")


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
        self._routes = [(re.compile(route.path.replace(_NAME, "([^/]*)")), route) for route in ROUTES]
        self._document = json.dumps(document, ensure_ascii=False).encode()
        # One large content is parsed at a time: threads share the interpreter lock.
        self._parsing = asyncio.Semaphore(1)

    async def answer(self, request: web.Request) -> web.Response:
        """Return the answer to a request."""
        path = request.rel_url.raw_path
        if path == DOCUMENT_PATH and request.method == "GET":
            return web.Response(body=self._document, content_type="application/json")
        found = [(route, match) for pattern, route in self._routes if (match := pattern.fullmatch(path))]
        for route, match in found:
            if route.verb == request.method:
                return await self._call(request, route, unquote("".join(match.groups())))
        if found:
            allowed = ", ".join(route.verb for route, _ in found)
            return problem(405, "METHOD_NOT_ALLOWED", f"the method is not allowed: use {allowed}", {"Allow": allowed})
        return problem(404, "PATH_UNKNOWN", f"nothing is at this path: see {DOCUMENT_PATH}")

    async def _call(self, request: web.Request, route: Route, name: str) -> web.Response:
        try:
            response = await self._calls.call(request, route.call, self._pending(request, route, name))
        except RefusedCallError as error:
            return refused(error)
        except NotReadError as error:
            return problem(error.status, "REQUEST_NOT_READ", f"the request was not read: {error}")
        is_created = bool(route.created_field) and getattr(response, route.created_field)
        content = await self._worked(response.ByteSize(), lambda: _encoded(to_json(response)))
        return _answer(content, 201 if is_created else 200)

    def _pending(self, request: web.Request, route: Route, name: str) -> Pending:
        """Return the call that a request asks for, whose content is read later."""

        async def make(content: bytes) -> Message:
            message = await self._worked(len(content), lambda: _message(request, route, name, content))
            if isinstance(message, pb.FetchRequest) and message.wait_ms > 0:
                self._calls.bounds.wait(request)
            return message

        if not route.has_content:
            return Pending(make)

        async def read() -> bytes:
            return await read_body(request, MAX_API_REQUEST_BYTES, self._calls.bounds)

        named = _empty(route)
        if route.name_field and is_utf8(name):
            setattr(named, route.name_field, name)
        return Pending(make, read, request.content_length, named if route.name_field else None)

    async def _worked(self, size_bytes: int, work: Callable[[], _Result]) -> _Result:
        """Return the result of work on ``size_bytes``, on a thread if they are many."""
        if size_bytes <= API_INLINE_BYTES:
            return work()
        async with self._parsing:
            return await asyncio.to_thread(work)


def _message(request: web.Request, route: Route, name: str, content: bytes) -> Message:
    """Return the request of a call. Raises InvalidRequestError."""
    message: Message = _empty(route)
    if route.has_content:
        value = read_json(content)
        if route.name_field and isinstance(value, dict) and route.name_field in value:
            raise InvalidRequestError(
                f"the field '{route.name_field}' is part of the path: leave it out", field=route.name_field
            )
        fill(message, value)
    else:
        fill_from_texts(message, request.query)
    if route.name_field:
        if not is_utf8(name):
            raise InvalidRequestError("the name in the path is not UTF-8", field="name")
        setattr(message, route.name_field, name)
    return message


def _empty(route: Route) -> Any:
    return GetMessageClass(SERVICE.methods_by_name[route.call].input_type)()


def is_utf8(text: str) -> bool:
    """Return whether UTF-8 can encode a text: it has no lone surrogates."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def problem(status: int, reason: str, message: str, headers: Mapping[str, str] | None = None) -> web.Response:
    """Return an answer for a request that is not a call."""
    error = {"reason": reason, "message": message, "effect": "none", "values": {}}
    return _answer(_encoded({"error": error}), status, headers)


def refused(error: RefusedCallError) -> web.Response:
    """Return the answer to a refused call."""
    status, headers = http_status_of(error)
    return _answer(_encoded({"error": error_json(error.text, error.detail)}), status, headers)


def _answer(content: bytes, status: int, headers: Mapping[str, str] | None = None) -> web.Response:
    return web.Response(body=content, status=status, content_type="application/json", headers=headers)


def _encoded(value: Mapping[str, Any]) -> bytes:
    # The text of an error may repeat lone surrogates of the request: JSON has the same escape for them as Python.
    return json.dumps(value, ensure_ascii=False).encode(errors="backslashreplace")
