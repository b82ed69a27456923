"""The servers of ``benchmarks security``: with TLS and tokens, or without authentication on loopback."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tidelog import AsyncClient, Retry, TlsOptions
from tidelog_server.commands.bench.server_process import ServerProcess
from tidelog_testing.servers.certificates import self_signed

_GRANTS: Final = [
    f"{verb}:*" for verb in ("append", "read", "txn", "broadcast", "channel.create", "group.consume", "group.manage")
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class BenchServer:
    """A server that a security benchmark started, with the credentials for it.

    Attributes:
        process: Process of the server.
        tls: TLS options of clients; None for plaintext.
        token: Token that may use all channels, groups, transactions and broadcasts; None for a server without tokens.
        admin: Bootstrap token of the server, for administration only; valid for 15 minutes.
    """

    process: ServerProcess
    tls: TlsOptions | None = None
    token: str | None = None
    admin: str | None = None

    @property
    def ca(self) -> str | None:
        """The CA file for the server's certificate; None for plaintext."""
        return None if self.tls is None else str(self.tls.ca)

    def client(self, token: str | None = None, *, retry: Retry | None = None) -> AsyncClient:
        """Return a client with ``token``, by default the token of this server."""
        return AsyncClient(self.process.grpc, tls=self.tls, token=token or self.token, retry=retry or Retry())

    async def new_token(self, description: str, grants: Sequence[str]) -> str:
        """Return a new token, which is a principal of its own."""
        async with self.client(self.admin) as client:
            return (await client.create_token(description, grants)).token


@asynccontextmanager
async def secured_server(
    folder: Path,
    settings: Mapping[str, str] | None = None,
    *,
    asks_for_certificates: bool = False,
    max_files: int | None = None,
    log: Path | None = None,
) -> AsyncIterator[BenchServer]:
    """Run a server with TLS and tokens, which requires client certificates if ``asks_for_certificates``."""
    cert, key = self_signed(folder)
    flags = {"tls.cert": str(cert), "tls.key": str(key), "auth.kind": "on", **(settings or {})}
    tls = TlsOptions(cert)
    if asks_for_certificates:
        flags["tls.client_ca"] = str(cert)
        # The server's certificate is self-signed, so it also works as a client certificate.
        tls = TlsOptions(cert, cert, key)
    data = folder / "secured"
    async with _running(data, flags, max_files, log) as process:
        first = BenchServer(process, tls, admin=(data / "bootstrap-token").read_text().strip())
        token = await first.new_token("bench", _GRANTS)
        yield BenchServer(process, tls, token, first.admin)


@asynccontextmanager
async def open_server(
    folder: Path,
    settings: Mapping[str, str] | None = None,
    *,
    max_files: int | None = None,
    log: Path | None = None,
) -> AsyncIterator[BenchServer]:
    """Run a server without TLS and tokens, as is the default on loopback."""
    async with _running(folder / "open", settings or {}, max_files, log) as process:
        yield BenchServer(process)


@asynccontextmanager
async def _running(
    data: Path, settings: Mapping[str, str], max_files: int | None, log: Path | None
) -> AsyncIterator[ServerProcess]:
    # Do not wait at shutdown for streams that a hostile client has left open.
    flags = {"server.shutdown_grace_s": "1", **settings}
    starting = asyncio.create_task(asyncio.to_thread(ServerProcess, data, flags, max_files, log))
    try:
        process = await asyncio.shield(starting)
    except asyncio.CancelledError:
        # The thread continues, and its server would outlive this process.
        await asyncio.to_thread((await starting).kill)
        raise
    try:
        yield process
    except BaseException:
        # The caller must see the first failure.
        await asyncio.to_thread(process.kill)
        raise
    await asyncio.to_thread(process.stop)
