"""TLS: who is let in, what happens when files change, and which files do not start a server.

Method: authorities and certificates made here; real handshakes on both ports; files replaced while clients call.
"""

import asyncio
import datetime
import socket
import ssl
import urllib.request
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import structlog.testing
from multidict import CIMultiDict

import tidelog
from tidelog import AsyncClient, PermissionDeniedError, TlsOptions, UnauthenticatedError, UnavailableError
from tidelog_server.config import ConfigError, load_config
from tidelog_server.runtime.clock import SystemClock
from tidelog_server.runtime.metrics import Metrics
from tidelog_server.security import service
from tidelog_server.security.certificates import CertificateError, CertificateFiles, parse_deny_list
from tidelog_server.security.service import Security, SecurityError, SecuritySettings
from tidelog_testing.parts.grpc_calls import running_server
from tidelog_testing.servers.certificates import Authority, make_pair
from tidelog_testing.servers.processes import ServerDiedError, ServerProcess
from tidelog_testing.servers.secured import secured_server, until

DAY = datetime.timedelta(days=1)
ROTATIONS = 20


def of_client(authority: Authority, name: str) -> TlsOptions:
    return TlsOptions(authority.ca, authority.folder / f"{name}.pem", authority.folder / f"{name}.key")


def _exceeds(count: Callable[[], int], before: int) -> bool:
    return count() > before


async def is_let_in(endpoint: str, tls: TlsOptions | None) -> bool:
    async with AsyncClient(endpoint, tls=tls, connect_timeout_s=0.7, timeout_s=1.5) as client:
        try:
            return await client.wal_name() != ""
        except (UnavailableError, UnauthenticatedError):
            return False


async def test_only_who_is_vouched_for_gets_in_where_clients_need_certificates(tmp_path: Path) -> None:
    authority, stranger = Authority.make(tmp_path), Authority.make(tmp_path, "stranger")
    authority.client("good", uris=("spiffe://example.org/good",))
    authority.client("expired", begins_in=-2 * DAY, ends_in=-DAY)
    authority.client("early", begins_in=DAY, ends_in=2 * DAY)
    denied = authority.client("denied", uris=("spiffe://example.org/denied",))
    by_name = authority.client("by-name", uris=("spiffe://example.org/by-name",))
    stranger.client("other")
    assert by_name.serial != denied.serial
    deny_list = tmp_path / "deny"
    deny_list.write_text(f"# left us\n{denied.serial.upper()}\nspiffe://example.org/by-name  # and this\n")
    settings = {**authority.server(), "tls__client_ca": authority.ca, "tls__deny_list": deny_list}
    async with running_server(**settings) as server:
        endpoint = server.grpc_endpoint
        assert await is_let_in(endpoint, of_client(authority, "good"))
        other = TlsOptions(authority.ca, tmp_path / "other.pem", tmp_path / "other.key")
        for tls in (
            None, TlsOptions(authority.ca), other, TlsOptions(stranger.ca),
            *(of_client(authority, name) for name in ("expired", "early", "denied", "by-name")),
        ):  # fmt: skip
            assert not await is_let_in(endpoint, tls), tls


async def test_a_client_refuses_a_server_of_another_name(tmp_path: Path) -> None:
    authority = Authority.make(tmp_path)
    cert, key = make_pair("other", authority.pair, dns=("other.example.org",)).write(tmp_path, "other")
    async with running_server(tls__cert=cert, tls__key=key) as server:
        assert not await is_let_in(server.grpc_endpoint, TlsOptions(authority.ca))


async def test_a_certificate_names_a_principal_by_its_alternative_names_and_never_by_its_common_name(
    tmp_path: Path,
) -> None:
    authority = Authority.make(tmp_path)
    grants = tmp_path / "grants.toml"
    grants.write_text(
        '[principals]\n"mtls:spiffe://example.org/ingest" = ["append:orders"]\n'
        '"mtls:reader.example.org" = ["read:orders"]\n"mtls:admin" = ["admin.write"]\n'
    )
    authority.client("ingest", uris=("spiffe://example.org/ingest",), dns=("reader.example.org",))
    authority.client("reader", dns=("reader.example.org",))
    authority.client("two", uris=("spiffe://example.org/ingest", "spiffe://example.org/other"))
    authority.client("admin")
    settings = {**authority.server(), "tls__client_ca": authority.ca, "auth__kind": "on", "auth__grants": grants}
    async with running_server(tmp_path / "data", **settings) as server:
        first = (tmp_path / "data" / "bootstrap-token").read_text().strip()
        endpoint = server.grpc_endpoint
        async with AsyncClient(endpoint, tls=of_client(authority, "admin"), token=first) as boot:
            made = await boot.create_token("administrator", ["channel.create:*", "admin.write"])
        async with AsyncClient(endpoint, tls=of_client(authority, "reader"), token=made.token) as admin:
            await admin.create_channel("orders")
        async with AsyncClient(endpoint, tls=of_client(authority, "ingest")) as client:
            await client.append("orders", b"x")
            with pytest.raises(PermissionDeniedError):
                await client.latest_mvcc_tick("other")
            assert [found.name async for found in client.list_channels()] == ["orders"]
        async with AsyncClient(endpoint, tls=of_client(authority, "reader")) as client:
            assert len([batch async for batch in client.scan("orders")]) == 1
            with pytest.raises(PermissionDeniedError):
                await client.append("orders", b"x")
        for name in ("admin", "two"):
            async with AsyncClient(endpoint, tls=of_client(authority, name)) as client:
                with pytest.raises(UnauthenticatedError):
                    await client.wal_name()


async def test_certificates_are_renewed_under_load_without_a_failed_call(tmp_path: Path) -> None:
    async with secured_server(tmp_path) as secured:
        security, authority = secured.server._security, secured.authority
        async with secured.client() as client:
            await client.create_channel("orders")
            is_over, calls = False, 0

            async def load() -> None:
                nonlocal calls
                while not is_over:
                    await client.append("orders", b"x")
                    # A connection of its own each time, so that handshakes meet the renewals.
                    async with secured.client() as fresh:
                        await fresh.wal_name()
                    calls += 1

            loading = asyncio.create_task(load())
            for _ in range(ROTATIONS):
                before, called = security.certificate, calls
                authority.server()
                # Sooner than the poll of each second, and by the same way.
                await security._poll_files()
                assert security.certificate is not before
                await until(partial(_exceeds, lambda: calls, called))
            is_over = True
            await loading
        # From another authority: who trusts the old one only is not let in any more, who trusts the new one is.
        other = Authority.make(tmp_path, "other")
        other.server()
        await security._poll_files()
        assert not await is_let_in(secured.server.grpc_endpoint, TlsOptions(authority.ca))
        async with secured.client(tls=TlsOptions(other.ca)) as client:
            assert await client.wal_name() == "rocksdb"


async def test_a_bad_new_pair_is_told_and_the_old_one_stays(tmp_path: Path) -> None:
    async with secured_server(tmp_path) as secured:
        security = secured.server._security
        before = security.certificate
        (tmp_path / "server.pem").write_bytes(secured.authority.client("unrelated").pem)
        await until(lambda: security._certificate is not None and security._certificate.failures == 1)
        assert security.certificate is before
        async with secured.client() as client:
            assert await client.wal_name() == "rocksdb"
        assert b"tidelog_tls_reload_failures_total 1.0" in await secured.server._render_metrics()


async def test_the_http_port_is_encrypted_too_and_follows_renewals(tmp_path: Path) -> None:
    async with secured_server(tmp_path) as secured:
        context = ssl.create_default_context(cafile=str(secured.authority.ca))
        url = f"https://{secured.server.http_endpoint}"

        def get(path: str) -> str:
            with urllib.request.urlopen(f"{url}{path}", context=context, timeout=5) as response:
                return str(response.read().decode())

        assert await asyncio.to_thread(get, "/livez") == "ok\n"
        assert "tidelog_tls_certificate_expiry_timestamp_seconds" in await asyncio.to_thread(get, "/metrics")
        # No plaintext: what is no handshake gets no answer of ours.
        reader, writer = await asyncio.open_connection(*secured.server.http_endpoint.split(":"))
        writer.write(b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n")
        assert b"ok" not in await asyncio.wait_for(reader.read(), 15)
        writer.close()


async def test_metrics_need_a_token_from_elsewhere(tmp_path: Path) -> None:
    async with secured_server(tmp_path) as secured:
        reader = await secured.token("read:*")

        def may(remote: str, token: str | None, *, secure: bool = True) -> bool:
            headers = CIMultiDict({} if token is None else {"Authorization": f"Bearer {token}"})
            request: Any = SimpleNamespace(remote=remote, headers=headers, secure=secure)
            return secured.server._may_read_metrics(request)

        assert may("127.0.0.1", None)
        assert may("10.0.0.1", secured.admin)
        for denied in (may("10.0.0.1", None), may("10.0.0.1", reader), may("10.0.0.1", secured.admin, secure=False)):
            assert not denied


def security_of(files: CertificateFiles, clock: SystemClock | None = None) -> Security:
    settings = SecuritySettings(False, files, None, None, None, None, 10, False)
    return Security(settings, clock or SystemClock(), Metrics())


def test_what_cannot_be_served_does_not_start(tmp_path: Path) -> None:
    authority = Authority.make(tmp_path)
    good = authority.client("good")
    expired = authority.client("expired", begins_in=-2 * DAY, ends_in=-DAY)
    early = authority.client("early", begins_in=DAY, ends_in=2 * DAY)
    assert {good.serial, expired.serial, early.serial}
    (tmp_path / "empty").write_bytes(b"")
    for cert, key, told in (
        ("expired.pem", "expired.key", "expired on"), ("early.pem", "early.key", "not valid before"),
        ("good.pem", "expired.key", "does not belong"), ("empty", "good.key", "contains no certificates"),
        ("good.pem", "empty", "contains no private key"), ("missing", "good.key", "cannot be read"),
        ("good.pem", "good.pem", "contains no private key"),
    ):  # fmt: skip
        with pytest.raises(SecurityError, match=told):
            security_of(CertificateFiles(tmp_path / cert, tmp_path / key))
    with pytest.raises(SecurityError, match="empty"):
        security_of(CertificateFiles(tmp_path / "good.pem", tmp_path / "good.key", tmp_path / "empty"))
    with pytest.raises(CertificateError, match="deny:2"):
        parse_deny_list(b"ab:cd\nnot a serial\n", Path("deny"))


@pytest.mark.parametrize(("days", "warnings"), [(31, 0), (29, 1), (6, 1)])
def test_the_end_of_a_certificate_is_told_in_time(
    tmp_path: Path, days: int, warnings: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair, log = make_pair("server", ends_in=days * DAY), structlog.testing.CapturingLogger()
    monkeypatch.setattr(service, "_log", log)
    security = security_of(CertificateFiles(*pair.write(tmp_path, "server")))
    assert security.certificate is not None
    # Looked at each second, told once.
    security._tell_expiry(security.certificate)
    assert [call.args[0] for call in log.calls] == ["tls_certificate_expires"] * warnings


def test_an_open_address_needs_tls_and_authentication(tmp_path: Path) -> None:
    exposed = {"server.host": "0.0.0.0"}
    tls = {"tls.cert": "a.pem", "tls.key": "a.key"}
    for settings in (exposed, {**exposed, **tls}, {**exposed, "auth.kind": "on"}, {"server.http_host": "0.0.0.0"}):
        with pytest.raises(ConfigError, match="loopback"):
            load_config(None, {}, settings)
    assert load_config(None, {}, {**exposed, **tls, "auth.kind": "on"}).server.host == "0.0.0.0"
    assert load_config(None, {}, {**exposed, "server.insecure": "true"}).server.insecure
    for settings in (
        {"tls.cert": "a.pem"}, {"tls.key": "a.key"}, {"tls.client_ca": "ca.pem"}, {**tls, "tls.deny_list": "deny"},
        {"auth.kind": "on", "auth.jwt_jwks": "keys.json"}, {"auth.grants": "grants.toml"},
        {"auth.kind": "on", "auth.jwt_jwks": "http://example.org/k", "auth.jwt_issuer": "i", "auth.jwt_audience": "a"},
    ):  # fmt: skip
        with pytest.raises(ConfigError):
            load_config(None, {}, settings)


def test_a_refused_start_exits_with_78_and_says_what_to_set(tmp_path: Path) -> None:
    for settings, told in (
        ({"server.host": "0.0.0.0"}, "auth.kind = on"),
        ({"tls.cert": tmp_path / "none.pem", "tls.key": tmp_path / "none.key"}, "cannot be read"),
    ):
        with pytest.raises(ServerDiedError) as died:
            ServerProcess(tmp_path / "data", settings)
        assert died.value.code == 78
        assert told in died.value.errors


def test_an_insecure_server_says_so(tmp_path: Path) -> None:
    # Port numbers of loopback only: the address is open, the test's client is not elsewhere.
    settings = {"server.http_host": "::1", "server.insecure": "true"}
    with ServerProcess(tmp_path / "data", settings) as server:
        assert "tidelog_insecure 0.0" in server.get("/metrics")[1], "both addresses are of loopback"
    config = load_config(None, {}, {"server.host": "0.0.0.0", "server.insecure": "true"})
    assert config.server.insecure


def test_failed_handshakes_are_no_lines_of_the_log(tmp_path: Path) -> None:
    authority = Authority.make(tmp_path)
    files = {name.replace("__", "."): value for name, value in authority.server().items()}
    with ServerProcess(
        tmp_path / "log", {**files, "tls.client_ca": authority.ca}, program=("-m", "tidelog_server")
    ) as server:
        before = server.errors
        host, port = server.grpc.rsplit(":", 1)
        context = ssl.create_default_context(cafile=str(authority.ca))
        context.set_alpn_protocols(["h2"])
        for _ in range(10):
            with suppress(ConnectionError), socket.create_connection((host, int(port)), 5) as plain:
                plain.sendall(b"no handshake of TLS" * 10)
                plain.recv(100)
            with (
                suppress(OSError),
                socket.create_connection((host, int(port)), 5) as plain,
                context.wrap_socket(plain, server_hostname="localhost") as encrypted,
            ):
                # Without a certificate: with TLS 1.3 the refusal comes with the first read.
                encrypted.recv(100)
        assert server.errors == before


async def test_a_client_never_sends_a_token_unencrypted_to_another_machine() -> None:
    for endpoint in ("example.org:7420", "10.0.0.1:7420", "127.0.0.1.example.org:1", "[2001:db8::1]:7420"):
        with pytest.raises(ValueError, match="refusing to send a token unencrypted"):
            AsyncClient(endpoint, token="tdl_x")
        AsyncClient(endpoint, token="tdl_x", tls=TlsOptions())
    for endpoint in ("127.0.0.1:1", "localhost:1", "[::1]:1", "unix:/run/x"):
        AsyncClient(endpoint, token="tdl_x")
    with pytest.raises(ValueError, match="both"):
        TlsOptions(cert="a")
    assert tidelog.TlsOptions(ca="x").ca == "x"
