"""Every method of every service refuses every kind of bad credentials, and lets good ones in.

Method: the services' own descriptors, so that a new method cannot be forgotten; bare calls with empty requests over
TLS, for what is wrong with a request must not be reported to a caller without credentials.
"""

import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
from google.protobuf import descriptor_pool

from tidelog.v1 import error_pb2
from tidelog_server.security.permissions import ROWS
from tidelog_testing.loads.workload import detail_of
from tidelog_testing.servers.certificates import Signer, forged, write_key_set
from tidelog_testing.servers.secured import EVERYTHING, Secured, jwt_settings, secured_server

SERVICES = sorted({name.partition("/")[0] for name in ROWS})
METHODS = [
    method
    for service in SERVICES
    for method in descriptor_pool.Default().FindServiceByName(service).methods
]  # fmt: skip
DENIED = (grpc.StatusCode.UNAUTHENTICATED, error_pb2.REASON_UNAUTHENTICATED)
FORBIDDEN = (grpc.StatusCode.PERMISSION_DENIED, error_pb2.REASON_PERMISSION_DENIED)
Metadata = tuple[tuple[str, str], ...]


@pytest.fixture
async def secured(tmp_path: Path, signer: Signer) -> AsyncIterator[Secured]:
    grants = tmp_path / "grants.toml"
    grants.write_text(f"[roles]\ntester = {EVERYTHING}\n")
    async with secured_server(
        tmp_path, server__channelz=True, **jwt_settings(write_key_set(tmp_path / "jwks.json", signer), grants)
    ) as run:
        yield run


@pytest.fixture
def signer() -> Signer:
    return Signer()


async def outcome(channel: grpc.aio.Channel, method: Any, metadata: Metadata) -> tuple[grpc.StatusCode, int]:
    """Return code and reason of a call with an empty request; a stream that begins well is cancelled."""
    path = f"/{method.containing_service.full_name}/{method.name}"
    try:
        if method.client_streaming:
            stream: Any = channel.stream_stream(path)(iter(()), metadata=metadata, timeout=10)
            await stream.read()
        elif method.server_streaming:
            server_stream: Any = channel.unary_stream(path)
            following = server_stream(b"", metadata=metadata, timeout=10)
            await following.read()
            following.cancel()
        else:
            unary: Any = channel.unary_unary(path)
            await unary(b"", metadata=metadata, timeout=10)
    except grpc.aio.AioRpcError as error:
        detail = detail_of(error)
        return error.code(), 0 if detail is None else detail.reason
    return grpc.StatusCode.OK, 0


def bearer(token: str) -> Metadata:
    return (("authorization", f"Bearer {token}"),)


def bad_credentials(secured: Secured, signer: Signer, revoked: str) -> dict[str, Metadata]:
    now_s = int(time.time())
    claims = signer.claims()
    good, header = signer.token().split("."), {"typ": "JWT", "kid": signer.kid}
    return {
        "none": (),
        "no token": bearer("secret"),
        "an unknown token": bearer("tdl_" + "0" * 12 + "_" + "A" * 43),
        "a token with another secret": bearer(secured.admin[:-1] + ("A" if secured.admin[-1] != "A" else "B")),
        "a revoked token": bearer(revoked),
        "another scheme": (("authorization", f"Basic {secured.admin}"),),
        "two headers": (*bearer(secured.admin), *bearer(secured.admin)),
        "a token of 5 KiB": bearer(signer.token(padding="x" * 5_000)),
        "expired": bearer(signer.token(iat=now_s - 600, exp=now_s - 60)),
        "too long a lifetime": bearer(signer.token(exp=now_s + 86_400)),
        "another audience": bearer(signer.token(aud="other")),
        "another issuer": bearer(signer.token(iss="https://other.example")),
        "no subject": bearer(signer.token(sub=None)),
        "an unknown key": bearer(Signer("other").token()),
        "another key under the id": bearer(Signer(signer.kid).token()),
        "algorithm none": bearer(forged({"alg": "none", **header}, claims)),
        "algorithm none with a signature": bearer(forged({"alg": "none", **header}, claims, b"x" * 64)),
        "a critical header": bearer(signer.token({"crit": ["exp"]})),
        "a kid with a path": bearer(signer.token({"kid": "../../../etc/passwd"})),
        "a changed body": bearer(".".join([good[0], signer.token(sub="eve").split(".")[1], good[2]])),
    }  # fmt: skip


async def test_no_method_takes_bad_credentials_and_all_take_good_ones(secured: Secured, signer: Signer) -> None:
    async with secured.client() as client:
        revoked = await client.create_token("revoked", EVERYTHING)
        await client.revoke_token(revoked.description.token_id)
    async with secured.channel() as channel:
        for method in METHODS:
            full_name = f"{method.containing_service.full_name}/{method.name}"
            is_public = ROWS[full_name].is_public
            for what, metadata in bad_credentials(secured, signer, revoked.token).items():
                found = await outcome(channel, method, metadata)
                assert (found == DENIED) != is_public, (full_name, what, found)
            for token in (secured.admin, signer.token()):
                code, reason = await outcome(channel, method, bearer(token))
                assert reason not in (DENIED[1], FORBIDDEN[1]), (full_name, code)
    async with secured.client() as client:
        assert await client.wal_name() == "rocksdb"


async def test_credentials_without_permissions_may_do_nothing(secured: Secured, signer: Signer) -> None:
    token = signer.token(roles=[])
    async with secured.channel() as channel:
        for method in METHODS:
            full_name = f"{method.containing_service.full_name}/{method.name}"
            row = ROWS[full_name]
            is_somewhere = row.somewhere is not None or bool(row.somewhere_any)
            if row.is_public or not (is_somewhere or row.needs or row.any_of):
                continue
            found = await outcome(channel, method, bearer(token))
            # An empty request names nothing, so methods that look at names only have nothing to forbid.
            expected = [FORBIDDEN] if is_somewhere else [FORBIDDEN, (grpc.StatusCode.INVALID_ARGUMENT, found[1])]
            assert found in expected or (not is_somewhere and found[0] is grpc.StatusCode.NOT_FOUND), (full_name, found)


async def test_a_token_of_64_kib_and_plaintext_are_refused_by_the_transport(secured: Secured, signer: Signer) -> None:
    method = next(method for method in METHODS if method.name == "GetWalName")
    async with secured.channel() as channel:
        code, _ = await outcome(channel, method, bearer("x" * 65_536))
        assert code in (grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.INTERNAL, grpc.StatusCode.UNAVAILABLE)
    async with grpc.aio.insecure_channel(secured.server.grpc_endpoint) as channel:
        code, _ = await outcome(channel, method, bearer(secured.admin))
        assert code is grpc.StatusCode.UNAVAILABLE
