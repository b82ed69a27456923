"""Pandora's endpoints: form-encoded requests and answers, routed by the end of the path.

A message is the URL-encoded body. Its deduplication key is its id, the SHA-1 of that body, so that an equal body is
refused as long as the mailbox remembers it. Source: pandora's HTTP interface, version of January 2020.
"""

import asyncio
import hashlib
import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, NamedTuple

from aiohttp import web

from tidelog.pandora_formats.go_times import (
    ZERO_TIME,
    epoch_ns_of,
    exact_time,
    exact_time_of_ns,
    parse_duration,
)
from tidelog.pandora_formats.url_values import SERVER_FIELD, MailHeader, Values, encode_values, parse_values
from tidelog.v1 import mailbox_service_pb2 as pb
from tidelog_server.core.errors import InvalidNameError
from tidelog_server.core.limits import API_INLINE_BYTES, KIB, MAX_DEDUP_WINDOW_MS, MAX_MAILBOX_LEASE_MS
from tidelog_server.core.names import check_mailbox_name
from tidelog_server.core.ticks import LOGICAL_BITS
from tidelog_server.rpc.web.access import UnmadeCallError, read_body
from tidelog_server.rpc.web.calls import SEARCH, Pending, WebCalls, mid_of
from tidelog_server.rpc.web.context import RefusedCallError, http_status_of
from tidelog_server.runtime.clock import Clock
from tidelog_server.security.access import current_access
from tidelog_server.security.grants import Verb

MAX_FORM_FIELDS: Final = 4_096

DEFAULT_LEASE_MS: Final = 5 * 60 * 1_000
HEADERS_LIMIT: Final = 10
_FORM: Final = "application/x-www-form-urlencoded"
_NS_PER_MS: Final = 1_000_000
_MAX_STATUS_CODE: Final = 1_023
# A character of a field takes at most three bytes in a form; the rest is for parameters that are not in the body.
_FORM_GROWTH: Final = 3
_PARAMETER_BYTES: Final = 16 * KIB
_ID_BYTES: Final = 20
_NO_KEY: Final = "key not found"


class ApiError(UnmadeCallError):
    """A refusal with a text of pandora's API."""


class Mail(NamedTuple):
    """A message to send.

    Attributes:
        sender, receiver: The mailboxes.
        delay_ns: Time until it is due; one below 0 orders it before messages that became due later.
        body: The URL-encoded body.
    """

    sender: str
    receiver: str
    delay_ns: int
    body: bytes

    @property
    def mid(self) -> str:
        """Its id: the SHA-1 of the body, in hexadecimal digits."""
        return hashlib.sha1(self.body, usedforsecurity=False).hexdigest()


class ListedMail(NamedTuple):
    """A message that could be fetched: its id in the mailbox, its header, and the fields of its body."""

    message_id: int
    header: Values
    fields: Values


_Endpoint = Callable[[web.Request], Awaitable[web.Response]]
_Make = Callable[[Values], Awaitable[Any]]
"""Makes the request of a call from a form."""


class PandoraEndpoints:
    """Answers requests for pandora's endpoints."""

    def __init__(self, calls: WebCalls, clock: Clock, max_body_bytes: int) -> None:
        self._calls = calls
        self._clock = clock
        self._max_body_bytes = max_body_bytes
        self._last_ns = 0
        # By the end of the path, and whether requests must be POST: those that change something must.
        self._endpoints: Mapping[str, tuple[_Endpoint, bool]] = {
            "/admin/headers": (self._headers, False),
            "/admin/fetchBlob": (self._fetch_blob, False),
            "/admin/reenqueue": (self._reenqueue, True),
            "/send": (self._send, True),
            "/fetch": (self._fetch, True),
            "/ack": (self._ack, True),
        }

    async def answer(self, request: web.Request, path: str) -> web.Response | None:
        """Return the answer to a request; None if no endpoint has the path."""
        found = next((each for end, each in self._endpoints.items() if path.endswith(end)), None)
        if found is None:
            return None
        endpoint, is_post = found
        if is_post and request.method != "POST":
            return _error(405, "the method is not allowed: send a POST request", {"Allow": "POST"})
        try:
            return await endpoint(request)
        except UnmadeCallError as error:
            return _error(error.status, str(error))
        except RefusedCallError as error:
            status, headers = http_status_of(error)
            return _error(status, error.text, headers)

    # -- Endpoints -----------------------------------------------------------------------------------------

    async def _send(self, request: web.Request) -> web.Response:
        mids: list[str] = []

        async def make(form: Values) -> pb.SendRequest:
            delay_ns = _duration_or(form.pop("delay", []), 0)
            sender, receiver = _first(form, "sender"), _first(form, "receiver")
            mail = self.mail(sender, receiver, delay_ns, _first(form, "clientTime"), form)
            mids.append(mail.mid)
            return await self._prepared(request, mail)

        sent = await self._calls.call(request, "Send", self.pending(request, make))
        _check_new(sent, mids[0])
        return _form_answer({"mid": mids})

    async def _fetch(self, request: web.Request) -> web.Response:
        receivers: list[str] = []

        async def make(form: Values) -> pb.FetchRequest:
            receiver = _mailbox(_first(form, "receiver"))
            receivers.append(receiver)
            lease_ms = -(-_duration_or(form.get("leaseTime", []), 0) // _NS_PER_MS)
            if lease_ms <= 0:
                # A mailbox may have been made with a lower limit.
                lease_ms = min(DEFAULT_LEASE_MS, self._calls.max_lease_ms(receiver) or DEFAULT_LEASE_MS)
            return pb.FetchRequest(mailbox=receiver, max_messages=1, lease_ms=lease_ms)

        fetched = await self._of_mailbox(request, "Fetch", self.pending(request, make))
        if not fetched.deliveries:
            return web.Response(status=204)
        [delivery] = fetched.deliveries
        self._calls.remember_lock(delivery.lock_id, receivers[0])
        values, is_valid = _body_of(delivery)
        header = MailHeader(
            mid_of(delivery.body, delivery.headers, delivery.blob_key),
            delivery.lock_id.hex(), delivery.status, _time_of_ms(fetched.leased_until_ms),
            received_at(delivery.id), delivery.delivery_count - 1,
            _send_when(delivery.id, delivery.headers, delivery.due_ms), is_valid,
        )  # fmt: skip
        return _form_answer(values | header.values())

    async def _ack(self, request: web.Request) -> web.Response:
        async def make(form: Values) -> pb.AckDeliveriesRequest:
            mid, lid = _key(_first(form, "mid")), _key(_first(form, "lid"))
            status = _status_of(_first(form, "statusCode"))
            if status not in (pb.DELIVERY_STATUS_CONFIRMED, pb.DELIVERY_STATUS_REJECTED):
                raise ApiError(400, "unable to change status")
            holder = await self._calls.holder_of_lock(request, lid)
            if holder is None or holder.mid != mid.hex():
                raise ApiError(500, "no message has a valid lease with this mid and lid: fetch it again")
            wanted = pb.AckDeliveriesRequest(mailbox=holder.mailbox)
            if status == pb.DELIVERY_STATUS_CONFIRMED:
                wanted.confirmed.append(lid)
            else:
                wanted.rejected.add(lock_id=lid)
            return wanted

        acked = await self._calls.call(request, "AckDeliveries", self.pending(request, make))
        for failure in acked.failures:
            raise ApiError(500, failure.error.message)
        return web.Response()

    async def _headers(self, request: web.Request) -> web.Response:
        async def make(form: Values) -> pb.PeekRequest:
            return _listing(_first(form, "receiver"), self.received_after(_first(form, "receivedat")))

        peeked = await self._of_mailbox(request, "Peek", self.pending(request, make))
        if not peeked.messages:
            return web.Response(status=204)
        text = json.dumps([_listed(message).header for message in peeked.messages], ensure_ascii=False)
        return web.Response(body=text.encode(errors="backslashreplace"), content_type="application/json")

    async def _fetch_blob(self, request: web.Request) -> web.Response:
        mids: list[str] = []

        async def make(form: Values) -> pb.PeekRequest:
            mid, receiver, number = _key(_first(form, "mid")).hex(), _first(form, "receiver"), _first(form, "id")
            mids.append(mid)
            if not _is_number(number):
                holder = await self._calls.holder_of_key(request, mid)
                receiver, number = ("", "0") if holder is None else (holder.mailbox, str(holder.message_id))
            if not receiver:
                raise ApiError(404, _NO_KEY)
            return pb.PeekRequest(mailbox=_mailbox(receiver), id=int(number))

        peeked = await self._of_mailbox(request, "Peek", self.pending(request, make))
        for message in peeked.messages:
            if message.body and mid_of(message.body, {}, b"") == mids[0]:
                return web.Response(body=message.body, content_type="text/plain", charset="utf-8")
        raise ApiError(404, _NO_KEY)

    async def _reenqueue(self, request: web.Request) -> web.Response:
        names: list[str] = []

        async def make(form: Values) -> pb.ListMailboxesRequest:
            receiver = _first(form, "receiver")
            names.extend([receiver] if receiver else await self._calls.leasing(request))
            return pb.ListMailboxesRequest()

        await self._calls.call(request, SEARCH, self.pending(request, make))
        for name in names:
            await self._of_mailbox(request, "Reenqueue", pb.ReenqueueRequest(mailbox=_mailbox(name)))
        return web.Response(text="OK")

    # -- What the page uses too ----------------------------------------------------------------------------

    def pending(self, request: web.Request, make: _Make) -> Pending:
        """Return a call whose form is read once the caller is known; ``make`` makes the request of the form.

        The form has the fields of the content, then those of the query.
        """

        async def read() -> bytes:
            if request.content_type != _FORM:
                return b""
            max_bytes = _FORM_GROWTH * self._max_body_bytes + _PARAMETER_BYTES
            return await read_body(request, max_bytes, self._calls.bounds)

        async def make_of(content: bytes) -> Any:
            query = request.rel_url.raw_query_string.encode(errors="surrogateescape")
            if len(content) <= API_INLINE_BYTES:
                return await make(_form_of(content, query))
            return await make(await asyncio.to_thread(_form_of, content, query))

        return Pending(make_of, read, request.content_length if request.content_type == _FORM else 0)

    def mail(self, sender: str, receiver: str, delay_ns: int, client_time: str, fields: Values) -> Mail:
        """Return a message with the fields that a server adds. Raises ApiError."""
        body = {**fields, "sender": [_mailbox(sender)], "receiver": [_mailbox(receiver)]}
        name, value = SERVER_FIELD
        body[name] = [*fields.get(name, []), value]
        body["clientTime"] = [self._time_or_now(client_time)]
        encoded = encode_values(body)
        if len(encoded) > self._max_body_bytes:
            raise ApiError(400, f"message is too big. max size is {self._max_body_bytes}")
        return Mail(sender, receiver, delay_ns, encoded)

    async def send(self, request: web.Request, mail: Mail) -> int:
        """Send a message, and create both mailboxes if they do not exist; return its id in the mailbox.

        Raises:
            ApiError: The mailbox remembers an equal message.
            RefusedCallError: The call was refused.
        """

        async def make(_: bytes) -> pb.SendRequest:
            return await self._prepared(request, mail)

        sent = await self._calls.call(request, "Send", Pending(make))
        _check_new(sent, mail.mid)
        return int(sent.ids[0])

    async def _prepared(self, request: web.Request, mail: Mail) -> pb.SendRequest:
        """Return what sends a message, once both mailboxes exist. Call it within the call that sends.

        A sender that the caller may neither send to nor manage is treated as one that does not exist: no caller learns
        which mailboxes exist, or sends in the name of another's.

        Raises:
            PermissionDeniedError: The caller may not send to the receiver.
            RefusedCallError: A mailbox could not be created.
        """
        access = current_access()
        if access is not None:
            access.require(Verb.MAILBOX_SEND, mail.receiver)
        is_own = access is None or access.may((Verb.MAILBOX_SEND, Verb.MAILBOX_MANAGE), mail.sender)
        for name, is_seen in ((mail.sender, is_own), (mail.receiver, True)):
            if not (is_seen and self._calls.exists(name)):
                settings = pb.MailboxSettings(
                    lease_ms=DEFAULT_LEASE_MS, max_lease_ms=MAX_MAILBOX_LEASE_MS,
                    dedup_window_ms=MAX_DEDUP_WINDOW_MS,
                )  # fmt: skip
                wanted = pb.CreateMailboxRequest(name=name, settings=settings, if_not_exists=True)
                await self._calls.call(request, "CreateMailbox", wanted)
        headers = {"mid": mail.mid, "sender": mail.sender, "receiver": mail.receiver}
        if mail.delay_ns:
            headers["delay"] = str(mail.delay_ns)
        # Rounded up: not due before its time.
        delay_ms = -(-mail.delay_ns // _NS_PER_MS)
        message = pb.OutgoingMessage(body=mail.body, headers=headers, dedup_key=mail.mid)
        if delay_ms < 0:
            message.overdue_ms = -delay_ms
        else:
            message.delay_ms = delay_ms
        return pb.SendRequest(mailbox=mail.receiver, messages=[message])

    def received_after(self, text: str) -> int:
        """Return the nanoseconds since the epoch of a time, or of a duration from now; 0 for an empty text.

        Raises:
            ApiError: It is neither.
        """
        if not text:
            return 0
        try:
            return self._clock.wall_ms() * _NS_PER_MS + parse_duration(text)
        except ValueError:
            try:
                return epoch_ns_of(exact_time(text))
            except ValueError as error:
                raise ApiError(400, f"receivedat is {text!r}, expected a time or a duration such as -24h") from error

    async def list(self, request: web.Request, receiver: str, after_ns: int) -> list[ListedMail]:
        """Return the first messages that could be fetched and were received after a time. Raises as ``send`` does."""
        peeked = await self._of_mailbox(request, "Peek", _listing(receiver, after_ns))
        return [_listed(message) for message in peeked.messages]

    # -- Parts ---------------------------------------------------------------------------------------------

    async def _of_mailbox(self, request: web.Request, name: str, wanted: Any) -> Any:
        """Make a call on a mailbox. Raises ApiError if it does not exist."""
        try:
            return await self._calls.call(request, name, wanted)
        except RefusedCallError as error:
            if error.reason == "MAILBOX_NOT_EXIST":
                # As in pandora, also for receivers.
                raise ApiError(400, "sender not found") from error
            raise

    def _time_or_now(self, text: str) -> str:
        try:
            return str(exact_time(text))
        except ValueError:
            # The clock has milliseconds; the rest distinguishes messages that were sent within one.
            self._last_ns = max(self._last_ns + 1, self._clock.wall_ms() * _NS_PER_MS)
            return str(exact_time_of_ns(self._last_ns))


def received_at(message_id: int) -> str:
    """Return when a message was received. The digits below a millisecond are those of its id: no two are equal."""
    ms, logical = divmod(message_id, 1 << LOGICAL_BITS)
    return str(exact_time_of_ns(ms * _NS_PER_MS + (logical * _NS_PER_MS >> LOGICAL_BITS)))


def last_id_until(epoch_ns: int) -> int:
    """Return the greatest id of a message whose ``received_at`` is not after a time."""
    ms, fraction = divmod(max(0, epoch_ns), _NS_PER_MS)
    # The greatest number whose quotient, rounded down, is the fraction.
    logical = -(-((fraction + 1) << LOGICAL_BITS) // _NS_PER_MS) - 1
    return min(ms << LOGICAL_BITS | logical, (1 << 64) - 1) if epoch_ns > 0 else 0


def _listing(receiver: str, after_ns: int) -> pb.PeekRequest:
    return pb.PeekRequest(
        mailbox=_mailbox(receiver), state=pb.MESSAGE_STATE_AVAILABLE, max_messages=HEADERS_LIMIT,
        after_id=last_id_until(after_ns),
    )  # fmt: skip


def _check_new(sent: pb.SendResponse, mid: str) -> None:
    """Check that a message was not sent before. Raises ApiError."""
    if sent.duplicates:
        raise ApiError(500, f"the message {mid} was sent before: treat it as sent, or change its body")


def _form_of(content: bytes, query: bytes) -> Values:
    """Return the fields of a content, then those of a query. Raises ApiError."""
    if content.count(b"&") + query.count(b"&") >= MAX_FORM_FIELDS:
        raise ApiError(400, f"the form has more than {MAX_FORM_FIELDS} fields, which is the maximum")
    try:
        form = parse_values(content)
        for name, values in parse_values(query).items():
            form.setdefault(name, []).extend(values)
    except ValueError as error:
        raise ApiError(400, str(error)) from error
    return form


def _is_number(text: str) -> bool:
    return text.isdecimal() and text.isascii() and len(text) <= len(str(1 << 64)) and int(text) < 1 << 64


def _listed(message: Any) -> ListedMail:
    header, (fields, is_valid) = message.header, _body_of(message)
    mail = MailHeader(
        mid_of(message.body, message.headers, message.blob_key),
        "", header.status, ZERO_TIME, received_at(header.id), header.delivery_count,
        _send_when(header.id, message.headers, header.due_ms), is_valid,
    )  # fmt: skip
    return ListedMail(header.id, mail.values(), fields)


def _send_when(message_id: int, headers: Mapping[str, str], due_ms: int) -> str:
    """Return when a message was to be sent: its delay counts, which may be negative, not a later rejection."""
    if "mid" not in headers:
        return _time_of_ms(due_ms)
    try:
        delay_ns = int(headers.get("delay", "0"))
        return str(exact_time_of_ns(epoch_ns_of(exact_time(received_at(message_id))) + delay_ns))
    except (ValueError, OverflowError):
        return _time_of_ms(due_ms)


def _time_of_ms(ms: int) -> str:
    return str(exact_time_of_ns(ms * _NS_PER_MS))


def _body_of(message: Any) -> tuple[Values, bool]:
    """Return the fields of a body and True; no fields and False if it is missing or not URL-encoded."""
    if message.blob_key and not message.body:
        return {}, False
    try:
        return parse_values(message.body), True
    except ValueError:
        return {}, False


def _first(form: Values, name: str) -> str:
    return next(iter(form.get(name, ())), "")


def _mailbox(name: str) -> str:
    try:
        return check_mailbox_name(name)
    except InvalidNameError as error:
        raise ApiError(400, "invalid mailbox") from error


def _duration_or(values: list[str], default_ns: int) -> int:
    try:
        return parse_duration(values[0] if values else "")
    except ValueError:
        return default_ns


def _status_of(text: str) -> int:
    """Return a status code, which pandora reads to the base 32; 0 if it is invalid."""
    try:
        code = int(text, 32) if text.isascii() and text.isalnum() else 0
    except ValueError:
        return 0
    return code if code <= _MAX_STATUS_CODE else 0


def _key(text: str) -> bytes:
    """Return the bytes of a printed key. Raises ApiError."""
    if len(text) > 2 * _ID_BYTES:
        raise ApiError(400, "key is too short")
    if len(text) < 2 * _ID_BYTES:
        raise ApiError(400, "input is to short to process")
    try:
        return bytes.fromhex(text)
    except ValueError as error:
        raise ApiError(500, f"the key {text!r} is invalid, expected {2 * _ID_BYTES} hexadecimal digits") from error


def _form_answer(values: Values, status: int = 200, headers: Mapping[str, str] | None = None) -> web.Response:
    return web.Response(body=encode_values(values), status=status, content_type=_FORM, headers=headers)


def _error(status: int, text: str, headers: Mapping[str, str] | None = None) -> web.Response:
    return _form_answer({"error": [text]}, status, headers)
