"""A server that requires credentials, and clients with credentials."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import grpc
import grpc.aio

from tidelog import AsyncClient, Retry, TlsOptions
from tidelog_server.app import Server
from tidelog_server.security.grants import NAMELESS, Verb
from tidelog_testing.parts.grpc_calls import running_server
from tidelog_testing.servers.certificates import AUDIENCE, ISSUER, Authority

EVERYTHING: Final = [verb.value if verb in NAMELESS else f"{verb.value}:*" for verb in Verb]
ONCE: Final = Retry(base_s=60.0, cap_s=60.0)
"""A call ends with its first refusal: repeated ones may reach the deadline, whose error does not name the refusal."""
_WITHIN_S: Final = 20.0


@dataclass(frozen=True)
class Secured:
    """A server with TLS and authentication.

    Attributes:
        admin: A token with all permissions.
    """

    server: Server
    authority: Authority
    admin: str

    @property
    def tls(self) -> TlsOptions:
        return TlsOptions(self.authority.ca)

    def client(self, token: Any = None, **options: Any) -> AsyncClient:
        """Return a client with ``token``; with the administrator's if None."""
        options.setdefault("tls", self.tls)
        return AsyncClient(self.server.grpc_endpoint, token=token or self.admin, **options)

    def channel(self) -> grpc.aio.Channel:
        """Return a bare channel with TLS."""
        credentials = grpc.ssl_channel_credentials(self.authority.ca.read_bytes())
        return grpc.aio.secure_channel(self.server.grpc_endpoint, credentials)

    async def token(self, *grants: str, lifetime_s: float = 600) -> str:
        """Return a new token."""
        async with self.client() as client:
            return (await client.create_token("a test", grants, lifetime_s=lifetime_s)).token


@asynccontextmanager
async def secured_server(folder: Path, **settings: object) -> AsyncIterator[Secured]:
    """Run a server with TLS and authentication, its log on disk below ``folder``, with an administrator's token."""
    authority = Authority.make(folder)
    terms: dict[str, Any] = {"auth__kind": "on", "quota__auth_failures_per_minute": 1_000_000, **authority.server()}
    async with running_server(folder / "data", **{**terms, **settings}) as server:
        first = (folder / "data" / "bootstrap-token").read_text().strip()
        async with AsyncClient(server.grpc_endpoint, tls=TlsOptions(authority.ca), token=first) as client:
            admin = await client.create_token("the administrator", EVERYTHING)
        yield Secured(server, authority, admin.token)


def jwt_settings(key_set: Path, grants: Path) -> dict[str, object]:
    """Return settings with which a server accepts signed tokens."""
    return {
        "auth__jwt_jwks": key_set, "auth__jwt_issuer": ISSUER, "auth__jwt_audience": AUDIENCE, "auth__grants": grants,
    }  # fmt: skip


async def until(happened: Callable[[], bool]) -> None:
    """Wait until a condition holds. Raises TimeoutError."""
    async with asyncio.timeout(_WITHIN_S):
        while not happened():
            await asyncio.sleep(0.02)
