"""The page below pandora's prefix: lists messages that could be fetched, ends leases, and sends messages.

It is made on the server, without scripts and without anything from another place. A browser may be made to send a form
by another site, so a form has a token that only this page knows; see also ``access``.
"""

import base64
import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from typing import Final
from urllib.parse import quote, urlencode

import jinja2
from aiohttp import web
from markupsafe import Markup

from tidelog.pandora_formats.go_times import parse_duration
from tidelog.pandora_formats.url_values import Values
from tidelog.v1 import mailbox_service_pb2 as pb
from tidelog_server.rpc.web.access import UnmadeCallError
from tidelog_server.rpc.web.calls import WebCalls
from tidelog_server.rpc.web.context import BROWSER_CHALLENGE, HttpContext, RefusedCallError, http_status_of
from tidelog_server.rpc.web.pandora import HEADERS_LIMIT, ApiError, ListedMail, PandoraEndpoints

DEFAULT_RECEIVED_AT: Final = "-24h"
MAX_FIELDS: Final = 32
_SUGGESTED_NAMES: Final = 100
_TEMPLATES: Final = files("tidelog_server.rpc.web") / "templates"
_RESERVED: Final = frozenset(("sender", "receiver", "clientTime", "delay"))
_MID_CHARACTERS: Final = frozenset("0123456789abcdef")


@dataclass(frozen=True, slots=True)
class _Mail:
    """What the form for sending shows."""

    to: str = ""
    sender: str = ""
    delay: str = ""
    topic: str = ""
    fields: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class _Shown:
    """What a page shows.

    Attributes:
        receiver, received_at: What the messages are listed for; no list without a receiver.
        mail: The form for sending.
        error, done: What went wrong; what was done.
        status: Status of the answer.
    """

    receiver: str = ""
    received_at: str = DEFAULT_RECEIVED_AT
    mail: _Mail = _Mail()
    error: str = ""
    done: str = ""
    status: int = 200


class MailboxPage:
    """Answers requests for the page."""

    def __init__(self, calls: WebCalls, endpoints: PandoraEndpoints, path: str, secret: bytes) -> None:
        """Serve the page.

        Args:
            calls: Makes calls.
            endpoints: Pandora's endpoints, which send and list messages.
            path: Path of the page, and beginning of those of the endpoints.
            secret: Random bytes for the tokens of forms.
        """
        self._calls = calls
        self._endpoints = endpoints
        self._path = path
        self._secret = secret
        environment = jinja2.Environment(
            autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
        )
        self._template = environment.from_string((_TEMPLATES / "mailboxes.html").read_text())
        self._style = (_TEMPLATES / "mailboxes.css").read_text()
        digest = base64.b64encode(hashlib.sha256(self._style.encode()).digest()).decode()
        self._policy = (
            f"default-src 'none'; style-src 'sha256-{digest}'; form-action 'self'; base-uri 'none'; "
            "frame-ancestors 'none'"
        )

    async def answer(self, request: web.Request) -> web.Response:
        """Return the answer to a request for the page."""
        if request.method not in ("GET", "POST"):
            return web.Response(status=405, headers={"Allow": "GET, POST"})
        try:
            # First of all, so that a browser asks for credentials before it shows a form.
            names, form = await self._names_and_form(request)
            if request.method == "POST":
                shown = await self._do(request, form)
                if isinstance(shown, web.Response):
                    return shown
            else:
                shown = _asked(form)
            rows = None
            if shown.receiver:
                after_ns = self._endpoints.received_after(shown.received_at)
                rows = await self._endpoints.list(request, shown.receiver, after_ns)
            return self._rendered(request, shown, names, rows)
        except UnmadeCallError as error:
            return self._rendered(request, _Shown(error=str(error), status=error.status), [], None)
        except RefusedCallError as error:
            status, headers = http_status_of(error)
            headers = BROWSER_CHALLENGE if status == 401 else headers
            return self._rendered(request, _Shown(error=error.text, status=status), [], None, headers)

    # -- Actions -------------------------------------------------------------------------------------------

    async def _do(self, request: web.Request, form: Values) -> "_Shown | web.Response":
        """Do what a form asks for; return the page with an error, or where to go next."""
        action, mail = _first(form, "action"), _mail_of(form)
        if not hmac.compare_digest(_first(form, "csrf").encode(), self._token(request).encode()):
            error = "the form is not valid any more, nothing was done: check the fields, and repeat it"
            return _Shown(mail=mail, error=error, status=403)
        if action == "add_field":
            fields = (*mail.fields, ("", ""))[:MAX_FIELDS]
            return _Shown(mail=_Mail(mail.to, mail.sender, mail.delay, mail.topic, fields))
        try:
            if action == "reenqueue":
                receiver = _first(form, "receiver")
                done = await self._calls.call(request, "Reenqueue", pb.ReenqueueRequest(mailbox=receiver))
                return self._see(receiver, reenqueued=str(done.messages))
            mid = await self._send(request, mail)
            return self._see(mail.to, sent=mid)
        except ApiError as error:
            return _Shown(mail=mail, error=str(error), status=error.status)
        except RefusedCallError as error:
            status, _ = http_status_of(error)
            if status == 401:
                raise
            return _Shown(mail=mail, error=error.text, status=status)

    async def _send(self, request: web.Request, mail: _Mail) -> str:
        fields: Values = {"topic": [mail.topic]}
        for name, value in mail.fields:
            if name in _RESERVED:
                raise ApiError(400, f"the name of a field is {name!r}, which the form has already: choose another one")
            if name:
                fields.setdefault(name, []).append(value)
        try:
            delay_ns = parse_duration(mail.delay) if mail.delay else 0
        except ValueError as error:
            raise ApiError(400, str(error)) from error
        made = self._endpoints.mail(mail.sender, mail.to, delay_ns, "", fields)
        await self._endpoints.send(request, made)
        return made.mid

    def _see(self, receiver: str, **done: str) -> web.Response:
        """Return where a browser goes next, so that a reload does not repeat what was done."""
        query = urlencode({"receiver": receiver, "receivedat": DEFAULT_RECEIVED_AT, **done})
        return web.Response(status=303, headers={"Location": f"{self._path}/?{query}"})

    # -- The page ------------------------------------------------------------------------------------------

    async def _names_and_form(self, request: web.Request) -> tuple[list[str], Values]:
        """Return names to suggest, of the first mailboxes on which the caller has a permission, and the form."""
        forms: list[Values] = []

        async def make(form: Values) -> pb.ListMailboxesRequest:
            forms.append(form)
            return pb.ListMailboxesRequest(page_size=_SUGGESTED_NAMES)

        listed = await self._calls.call(request, "ListMailboxes", self._endpoints.pending(request, make))
        return [mailbox.name for mailbox in listed.mailboxes], forms[0]

    def _rendered(
        self,
        request: web.Request,
        shown: _Shown,
        names: list[str],
        rows: list[ListedMail] | None,
        headers: Mapping[str, str] | None = None,
    ) -> web.Response:
        next_link = ""
        if rows is not None and len(rows) == HEADERS_LIMIT:
            after = rows[-1].header["receivedAt"][0]
            next_link = f"{self._path}/?{urlencode({'receiver': shown.receiver, 'receivedat': after})}"
        text = self._template.render(
            # The style is a file of this package.
            style=Markup(self._style),
            path=f"{self._path}/",
            csrf=self._token(request),
            receiver=shown.receiver,
            received_at=shown.received_at,
            mail=shown.mail,
            error=shown.error,
            done=shown.done,
            names=names,
            rows=None if rows is None else [self._row(shown.receiver, row) for row in rows],
            next_link=next_link,
            limit=HEADERS_LIMIT,
        )
        answer = web.Response(text=text, status=shown.status, content_type="text/html", headers=headers)
        answer.headers["Content-Security-Policy"] = self._policy
        return answer

    def _row(self, receiver: str, row: ListedMail) -> Mapping[str, str]:
        header = row.header
        mid = header["mid"][0]
        query = urlencode({"mid": mid, "receiver": receiver, "id": row.message_id}, quote_via=quote)
        return {
            "received_at": header["receivedAt"][0],
            "send_when": header["sendWhen"][0],
            "status": header["status"][0],
            "deliveries": header["deliveryCount"][0],
            "sender": _first(row.fields, "sender"),
            "topic": _first(row.fields, "topic"),
            "mid": mid,
            "link": f"{self._path}/admin/fetchBlob?{query}",
        }

    def _token(self, request: web.Request) -> str:
        """Return the token of forms for a caller, which depends on what it shows."""
        context = HttpContext(request)
        tokens = [value for name, value in context.invocation_metadata() if name == "authorization"]
        shown = repr((tokens, context.auth_context().get("x509_pem_cert", ())))
        return hmac.new(self._secret, shown.encode("utf-8", "surrogateescape"), hashlib.sha256).hexdigest()


def _asked(form: Values) -> _Shown:
    sent, reenqueued, receiver = _first(form, "sent"), _first(form, "reenqueued"), _first(form, "receiver")
    done = ""
    if sent and set(sent) <= _MID_CHARACTERS:
        done = f"Sent: {sent}"
    elif reenqueued.isdecimal():
        done = f"Re-enqueued: {reenqueued[:20]} leases ended"
    return _Shown(receiver, _first(form, "receivedat") or DEFAULT_RECEIVED_AT, _Mail(to=receiver), done=done)


def _mail_of(form: Values) -> _Mail:
    pairs = tuple(zip(form.get("name", ()), form.get("value", ()), strict=False))[:MAX_FIELDS]
    return _Mail(_first(form, "to"), _first(form, "from"), _first(form, "delay"), _first(form, "topic"), pairs)


def _first(form: Mapping[str, list[str]], name: str) -> str:
    """Return the first value of a field, as text that can be shown."""
    value = next(iter(form.get(name, ())), "")
    return value.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
