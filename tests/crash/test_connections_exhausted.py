"""No number of connections takes the file descriptors that the store needs, and established connections still work.

Method: a real server under a limit of files set by prlimit. An attacker opens more connections on both ports than the
limit allows files, and reopens those that the server closes, while a client appends until RocksDB has written several
tables and WAL files. Then the server is killed, and everything acknowledged must be there.

Promises of docs/reference/guarantees.md: G1, G14.
"""

import asyncio
import os
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Final

import pytest

from benchmarks.attacks.connections import is_gone
from tidelog import AsyncClient, TlsOptions
from tidelog_server.core.limits import MAX_HTTP_CONNECTIONS, STORE_FILES
from tidelog_testing.parts.soaks import soak
from tidelog_testing.parts.waiting import until
from tidelog_testing.servers.certificates import Authority
from tidelog_testing.servers.processes import ServerDiedError, ServerProcess

pytestmark = pytest.mark.crash

_PAYLOAD_BYTES: Final = 100_000
_GRANTS: Final = ("append:*", "read:*", "channel.create:*")
_WITHIN_S: Final = 60.0
_LOOK_AGAIN_S: Final = 0.05


class Stranger:
    """Holds connections on both ports: some silent, some in a TLS handshake, some with half a request."""

    def __init__(self, server: ServerProcess, count: int) -> None:
        self._server = server
        self._held: list[socket.socket | None] = [None] * count
        self.opened = 0

    async def hold(self) -> None:
        """Open them, and reopen those that the server closes, until this process ends."""
        try:
            while True:
                for place in range(len(self._held)):
                    if is_gone(self._held[place]):
                        self._held[place] = self._open(place)
                    if place % 100 == 0:
                        await asyncio.sleep(0)
                await asyncio.sleep(_LOOK_AGAIN_S)
        finally:
            for held in self._held:
                if held is not None:
                    held.close()

    def _open(self, place: int) -> socket.socket:
        host, port = (self._server.http if place % 4 == 0 else self._server.grpc).rsplit(":", 1)
        opened = socket.socket()
        opened.setblocking(False)
        self.opened += 1
        with suppress(BlockingIOError):
            opened.connect((host, int(port)))
        with suppress(OSError):
            opened.send(
                [b"GET /metrics HTTP/1.1\r\n", b"\x16\x03\x01\x02\x00\x01\x00", b"", b"PRI * HTTP/2.0\r\n"][place % 4]
            )
        return opened


def descriptors(server: ServerProcess, *, sockets_only: bool = False) -> int:
    count = 0
    for entry in os.scandir(f"/proc/{server.pid}/fd"):
        with suppress(FileNotFoundError):
            count += not sockets_only or os.readlink(entry.path).startswith("socket:")
    return count


def tables(folder: Path) -> int:
    return sum(1 for path in folder.rglob("*") if path.suffix in (".sst", ".blob"))


@asynccontextmanager
async def a_client(server: ServerProcess, authority: Authority | None, folder: Path) -> AsyncIterator[AsyncClient]:
    """Yield a client; with an authority, it is the first to use the server and creates its own token."""
    if authority is None:
        async with AsyncClient(server.grpc) as client:
            yield client
        return
    tls, stored = TlsOptions(authority.ca), folder / "token"
    if not stored.exists():
        first = (folder / "log" / "bootstrap-token").read_text().strip()
        async with AsyncClient(server.grpc, tls=tls, token=first) as administrator:
            stored.write_text((await administrator.create_token("good", _GRANTS)).token)
    async with AsyncClient(server.grpc, tls=tls, token=stored.read_text()) as client:
        yield client


async def append_until_tables(client: AsyncClient, folder: Path, wanted: int) -> list[bytes]:
    """Append until there is this number of tables; return the acknowledged appends."""
    acknowledged: list[bytes] = []
    async with asyncio.timeout(_WITHIN_S), client.vchannel("orders").producer() as producer:
        while tables(folder) < wanted:
            payloads = [b"%d " % (len(acknowledged) + place) + bytes(_PAYLOAD_BYTES) for place in range(20)]
            tickets = [await producer.send(payload) for payload in payloads]
            for ticket in tickets:
                await ticket
            acknowledged += payloads
    return acknowledged


async def names_of(client: AsyncClient) -> list[bytes]:
    async with client.scan("orders") as scan:
        return [message.payload.split(b" ")[0] async for batch in scan for message in batch]


async def hold_out(folder: Path, files: int, *, is_secured: bool, new_tables: int) -> None:
    authority = Authority.make(folder) if is_secured else None
    settings: dict[str, Any] = {}
    if authority is not None:
        settings = {name.replace("__", "."): value for name, value in authority.server().items()} | {"auth.kind": "on"}
    wrapper = ["prlimit", f"--nofile={files}:{files}"]
    with ServerProcess(folder / "log", settings, wrapper=wrapper) as server:
        async with a_client(server, authority, folder) as client:
            await client.ensure_channel("orders")
            before = tables(folder / "log")
            stranger = Stranger(server, files + 200)
            holding = asyncio.ensure_future(stranger.hold())
            await until(lambda: stranger.opened >= files + 200)
            acknowledged = await append_until_tables(client, folder / "log", before + new_tables)
            assert server.code is None, server.errors
            assert not holding.done()
            assert descriptors(server, sockets_only=True) <= files - STORE_FILES
            holding.cancel()
            await asyncio.wait((holding,))
            assert await names_of(client) == [payload.split(b" ")[0] for payload in acknowledged]
        # The attacker has ended: other clients can connect again.
        async with asyncio.timeout(_WITHIN_S), a_client(server, authority, folder) as client:
            assert len(await names_of(client)) == len(acknowledged)
        scheme = "https" if is_secured else "http"
        assert await asyncio.to_thread(alive, f"{scheme}://{server.http}/livez", authority) == b"ok\n"
        server.kill()
    with ServerProcess(folder / "log", settings, wrapper=wrapper) as server:
        async with a_client(server, authority, folder) as client:
            assert len(await names_of(client)) == len(acknowledged)


def alive(url: str, authority: Authority | None) -> bytes:
    import urllib.request

    context = None if authority is None else ssl.create_default_context(cafile=str(authority.ca))
    with urllib.request.urlopen(url, timeout=_WITHIN_S, context=context) as response:
        answer: bytes = response.read()
    return answer


@pytest.mark.parametrize("is_secured", [True, False], ids=["secured", "plaintext"])
@pytest.mark.parametrize(("files", "new_tables"), [(1_024, 2), soak(1_024, 20), soak(4_096, 20)])
async def test_connections_never_take_the_stores_descriptors(
    tmp_path: Path, files: int, new_tables: int, is_secured: bool
) -> None:
    await hold_out(tmp_path, files, is_secured=is_secured, new_tables=new_tables)


async def test_the_http_port_has_a_limit_of_its_own_and_still_answers(tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "log") as server:
        idle = descriptors(server)
        host, port = server.http.rsplit(":", 1)
        held = [socket.create_connection((host, int(port)), 5) for _ in range(4 * MAX_HTTP_CONNECTIONS)]
        try:
            # Each new connection replaces the one that has been silent for longest.
            for _ in range(5):
                assert await asyncio.to_thread(alive, f"http://{server.http}/livez", None) == b"ok\n"
            assert descriptors(server) <= idle + MAX_HTTP_CONNECTIONS + 2
            assert server.metric("tidelog_http_connections_ended_total", reason="limit") >= 2 * MAX_HTTP_CONNECTIONS
        finally:
            for each in held:
                each.close()


def test_more_connections_than_files_permit_are_refused_at_the_start(tmp_path: Path) -> None:
    with pytest.raises(ServerDiedError) as died:
        ServerProcess(tmp_path / "log", {"server.max_connections": 4_000}, wrapper=["prlimit", "--nofile=4096:4096"])
    assert died.value.code == 78
    assert "server.max_connections is 4000, but the limit of 4096 open files allows" in died.value.errors
    assert not (tmp_path / "log").exists()
