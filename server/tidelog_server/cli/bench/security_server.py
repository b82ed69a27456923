"""The servers of ``bench security``: with TLS and tokens, or open to every client on loopback."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tidelog import AsyncClient, Retry, TlsOptions
from tidelog_server.cli.bench.security_keys import write_certificate
from tidelog_server.cli.bench.server_process import ServerProcess

_GRANTS: Final = [
    f"{verb}:*" for verb in ("append", "read", "txn", "broadcast", "channel.create", "group.consume", "group.manage")
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class BenchServer:
    """A server that a benchmark of security started, and what a client needs to use it.

    Attributes:
        process: The server.
        tls: How to reach it; None for plaintext.
        token: A token that may use every channel, group, transaction and broadcast; None for a server without tokens.
        admin: The server's first token, for administration only; valid for 15 minutes.
    """

    process: ServerProcess
    tls: TlsOptions | None = None
    token: str | None = None
    admin: str | None = None

    @property
    def ca(self) -> str | None:
        """The file of the authority that vouches for the server; None for plaintext."""
        return None if self.tls is None else str(self.tls.ca)

    def client(self, token: str | None = None, *, retry: Retry | None = None) -> AsyncClient:
        """Return a client that shows ``token``, by default the one that may use everything."""
        return AsyncClient(self.process.grpc, tls=self.tls, token=token or self.token, retry=retry or Retry())

    async def new_token(self, description: str, grants: Sequence[str]) -> str:
        """Return a new token, of a principal of its own."""
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
    """Run a server with TLS and tokens, and with certificates of clients if asked for."""
    cert, key = await asyncio.to_thread(write_certificate, folder)
    flags = {"tls.cert": str(cert), "tls.key": str(key), "auth.kind": "on", **(settings or {})}
    tls = TlsOptions(cert)
    if asks_for_certificates:
        flags["tls.client_ca"] = str(cert)
        # The certificate of the server is self-signed, so it also serves as that of a client.
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
    """Run a server without TLS and tokens, as one on loopback is by default."""
    async with _running(folder / "open", settings or {}, max_files, log) as process:
        yield BenchServer(process)


@asynccontextmanager
async def _running(
    data: Path, settings: Mapping[str, str], max_files: int | None, log: Path | None
) -> AsyncIterator[ServerProcess]:
    # A stop does not wait for what a hostile client has left open.
    flags = {"server.shutdown_grace_s": "1", **settings}
    process = await asyncio.to_thread(ServerProcess, data, flags, max_files, log)
    try:
        yield process
    except BaseException:
        # The first failure is the one that the caller must see.
        await asyncio.to_thread(process.kill)
        raise
    await asyncio.to_thread(process.stop)
