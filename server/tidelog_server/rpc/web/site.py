"""The HTTP API on the HTTP port: which requests it takes, and what holds for all of them."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from importlib.metadata import version
from typing import TYPE_CHECKING, Final

from aiohttp import web

from tidelog_server.rpc.web.access import is_from_other_site
from tidelog_server.rpc.web.api import API_PREFIX, JsonApi
from tidelog_server.rpc.web.bounds import visited
from tidelog_server.rpc.web.calls import WebCalls
from tidelog_server.rpc.web.context import CHALLENGE, HttpContext
from tidelog_server.rpc.web.openapi import openapi_document
from tidelog_server.rpc.web.pandora import PandoraEndpoints
from tidelog_server.runtime.clock import Clock

if TYPE_CHECKING:
    from tidelog_server.rpc.web.page import MailboxPage

_SECURITY_HEADERS: Final = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "same-origin",
}


@dataclass(frozen=True, slots=True)
class SiteTerms:
    """What an operator decides about the API.

    Attributes:
        has_api: True to serve the JSON API.
        prefix: Beginning of the paths of pandora's endpoints, such as ``/pandora``; empty to serve none.
        max_body_bytes: Maximum size of a message that pandora's endpoints take, in its URL-encoded form.
        needs_certificate: True if each call needs a client certificate.
        secret: Random bytes for the tokens of forms.
    """

    has_api: bool
    prefix: str
    max_body_bytes: int
    needs_certificate: bool
    secret: bytes


class Site:
    """Answers requests of the API."""

    def __init__(
        self, calls: WebCalls, clock: Clock, terms: SiteTerms, strangers_turn: Callable[[], Awaitable[None]]
    ) -> None:
        """Answer requests; ``strangers_turn`` is awaited before an answer to a caller that stayed unknown."""
        self._strangers_turn = strangers_turn
        self._terms = terms
        self._api = JsonApi(calls, openapi_document(version("tidelog")))
        self._pandora = PandoraEndpoints(calls, clock, terms.max_body_bytes)
        self._page: MailboxPage | None = None
        if terms.prefix:
            # Imported here because most servers have no page.
            from tidelog_server.rpc.web import page

            self._page = page.MailboxPage(calls, self._pandora, terms.prefix, terms.secret)

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """Return the answer to a request of the API."""
        with visited(request) as visit:
            refusal = self._refusal(request)
            answer = refusal if refusal is not None else await self._answer(request)
            if not visit.is_begun:
                await self._strangers_turn()
        for name, value in _SECURITY_HEADERS.items():
            answer.headers.setdefault(name, value)
        return answer

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        if self._terms.has_api and (request.path + "/").startswith(API_PREFIX + "/"):
            return await self._api.answer(request)
        below = request.path.removeprefix(self._terms.prefix)
        if self._page is not None and below in ("", "/"):
            return await self._page.answer(request)
        found = await self._pandora.answer(request, below)
        return found or web.Response(status=404, text="nothing is at this path\n")

    def _refusal(self, request: web.Request) -> web.Response | None:
        """Return why a request is refused regardless of its caller; None if it is not."""
        terms = self._terms
        if is_from_other_site(request):
            return web.Response(status=403, text="the request was caused by a page of another site\n")
        if terms.needs_certificate and "x509_pem_cert" not in HttpContext(request).auth_context():
            return web.Response(status=401, text="a client certificate is needed (tls.client_ca)\n", headers=CHALLENGE)
        return None
