"""Callers that look alike are never taken for each other.

Method: a server with TLS and authentication in this process, signed tokens whose subjects are parts of each other, and
bare calls, whose metadata is exactly what the test says.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
from google.protobuf.message import Message

from tidelog import Retry, UnauthenticatedError
from tidelog.v1 import error_pb2
from tidelog.v1 import transaction_service_pb2 as pb
from tidelog_testing.loads.workload import detail_of
from tidelog_testing.parts.grpc_calls import running_server
from tidelog_testing.servers.certificates import Signer, write_key_set
from tidelog_testing.servers.secured import EVERYTHING, Secured, jwt_settings, secured_server, until

CHANNEL = "orders"


@pytest.fixture
def signer() -> Signer:
    return Signer()


@pytest.fixture
async def secured(tmp_path: Path, signer: Signer) -> AsyncIterator[Secured]:
    grants = tmp_path / "grants.toml"
    grants.write_text(f"[roles]\ntester = {EVERYTHING}\n")
    settings = jwt_settings(write_key_set(tmp_path / "jwks.json", signer), grants)
    async with secured_server(tmp_path, **settings) as run, run.client() as admin:
        await admin.create_channel(CHANNEL)
        yield run


async def called(secured: Secured, token: str, client_id: str, method: str, request: Message) -> bytes:
    """Return the answer to a call of TransactionService. Raises AioRpcError."""
    metadata = (("authorization", f"Bearer {token}"), ("tidelog-client-id", client_id))
    async with secured.channel() as channel:
        stub: Any = channel.unary_unary(f"/tidelog.v1.TransactionService/{method}")
        return bytes(await stub(request.SerializeToString(), metadata=metadata))


async def test_a_principal_and_a_client_id_with_spaces_name_one_caller(secured: Secured, signer: Signer) -> None:
    owner, other = signer.token(sub="a b"), signer.token(sub="a")
    begun = await called(secured, owner, "c", "BeginTxn", pb.BeginTxnRequest(vchannels=[CHANNEL]))
    request = pb.RollbackTxnRequest(txn_id=pb.BeginTxnResponse.FromString(begun).txn_id)

    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await called(secured, other, "b c", "RollbackTxn", request)

    detail = detail_of(refused.value)
    assert detail is not None
    assert detail.reason == error_pb2.REASON_TRANSACTION_NOT_EXIST
    async with secured.client() as admin:
        [open_] = await admin.list_txns()
        assert (open_.principal, open_.client_id) == ("jwt:a b", "c")
    await called(secured, owner, "c", "RollbackTxn", request)


@pytest.mark.parametrize("subject", ["a\nb", "a\0", "\x7f", "a\x85b", "a\ud800", "\\ud800\udfff"], ids=ascii)
async def test_a_subject_with_control_characters_or_lone_surrogates_is_refused(
    secured: Secured, signer: Signer, subject: str
) -> None:
    async with secured.client(signer.token(sub=subject)) as client:
        with pytest.raises(UnauthenticatedError):
            await client.wal_name()
    async with secured.client(signer.token(sub="Zoë O'Hara \\ud800 🙂")) as client:
        assert await client.wal_name() == "rocksdb"


async def test_a_fresh_token_passes_beside_a_storm_of_bad_ones_from_its_address(tmp_path: Path, signer: Signer) -> None:
    grants = tmp_path / "grants.toml"
    grants.write_text(f"[roles]\ntester = {EVERYTHING}\n")
    settings = jwt_settings(write_key_set(tmp_path / "jwks.json", signer), grants)
    forger, codes = Signer(), Counter[grpc.StatusCode]()

    async def storm(secured: Secured) -> None:
        # A connection of its own.
        credentials = grpc.ssl_channel_credentials(secured.authority.ca.read_bytes())
        options = [("grpc.use_local_subchannel_pool", 1)]
        async with grpc.aio.secure_channel(secured.server.grpc_endpoint, credentials, options) as channel:
            call: Any = channel.unary_unary("/tidelog.v1.WalService/GetWalName")
            while True:
                try:
                    await call(b"", metadata=(("authorization", f"Bearer {forger.token()}"),))
                except grpc.aio.AioRpcError as refused:
                    codes[refused.code()] += 1

    async with secured_server(tmp_path, quota__auth_failures_per_minute=10, **settings) as secured:
        storms = [asyncio.create_task(storm(secured)) for _ in range(4)]
        await until(lambda: codes[grpc.StatusCode.RESOURCE_EXHAUSTED] > 300)
        for number in range(10):
            # Without a retry of the client: the first call is answered.
            async with secured.client(signer.token(sub=f"s{number}"), retry=Retry(give_up_s=0.0)) as client:
                assert await client.wal_name() == "rocksdb"
        for task in storms:
            task.cancel()
        await asyncio.gather(*storms, return_exceptions=True)
    assert codes[grpc.StatusCode.UNAUTHENTICATED] <= 10 + 60
    assert codes.keys() == {grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.RESOURCE_EXHAUSTED}


async def answers(secured: Secured, token: str, txn_id: int) -> dict[str, tuple[object, ...]]:
    """Return what each call about a transaction is answered with, with its id taken out."""
    named = pb.PreparedTxn(txn_id=txn_id, client_id="c")
    requests: dict[str, Message] = {
        "RollbackTxn": pb.RollbackTxnRequest(txn_id=txn_id),
        "KeepaliveTxn": pb.KeepaliveTxnRequest(txn_id=txn_id),
        "PrepareTxn": pb.PrepareTxnRequest(txn_id=txn_id, app_id="app", app_version=1),
        "CommitTxn": pb.CommitTxnRequest(txn_id=txn_id),
        "CommitPreparedTxns": pb.CommitPreparedTxnsRequest(txns=[named], app_id="app", app_version=1),
        "RollbackPreparedTxns": pb.RollbackPreparedTxnsRequest(txns=[named]),
    }
    found: dict[str, tuple[object, ...]] = {}
    for method, request in requests.items():
        try:
            found[method] = (await called(secured, token, "c", method, request),)
        except grpc.aio.AioRpcError as error:
            detail = detail_of(error)
            assert detail is not None
            values = {name: value for name, value in detail.values.items() if name != "txn_id"}
            found[method] = (detail.reason, str(error.details()).replace(str(txn_id), "ID"), values)
    return found


async def test_what_another_principal_does_with_a_transaction_cannot_be_told(tmp_path: Path, signer: Signer) -> None:
    grants = tmp_path / "grants.toml"
    grants.write_text(f"[roles]\ntester = {EVERYTHING}\n")
    settings = jwt_settings(write_key_set(tmp_path / "jwks.json", signer), grants)
    owner, spy = signer.token(sub="owner"), signer.token(sub="spy")
    async with secured_server(tmp_path, **settings) as secured:
        async with secured.client() as admin:
            await admin.create_channel(CHANNEL)

        async def begin() -> int:
            begun = await called(secured, owner, "c", "BeginTxn", pb.BeginTxnRequest(keepalive_us=3_600_000_000))
            return pb.BeginTxnResponse.FromString(begun).txn_id

        open_, committed, rolled_back, aborted = [await begin() for _ in range(4)]
        await called(secured, owner, "c", "CommitTxn", pb.CommitTxnRequest(txn_id=committed))
        await called(secured, owner, "c", "RollbackTxn", pb.RollbackTxnRequest(txn_id=rolled_back))
        await called(secured, owner, "c", "AbortTxn", pb.AbortTxnRequest(txn_id=aborted, reason="a test"))
        async with secured.client(owner, client_id="c") as client:
            txn = client.txn()
            await txn.append(CHANNEL, b"x")
            handle = await txn.prepare("other app", app_version=1, keepalive_s=600.0)
            assert handle is not None
            prepared = handle.txn_id

            expected = await answers(secured, spy, open_ - 1)
            assert {found[0] for found in expected.values()} == {error_pb2.REASON_TRANSACTION_NOT_EXIST}
            for txn_id in (open_, committed, rolled_back, prepared, aborted):
                assert await answers(secured, spy, txn_id) == expected
            # The owner learns what became of each.
            assert (await answers(secured, owner, committed))["RollbackTxn"][0] == (
                error_pb2.REASON_INVALID_TRANSACTION_STATE
            )
            await client.roll_back_prepared([handle])

    again = {"auth__kind": "on", **secured.authority.server(), **settings}
    async with running_server(tmp_path / "data", **again) as server:
        later = Secured(server, secured.authority, secured.admin)
        expected = await answers(later, spy, open_ - 1)
        for txn_id in (open_, committed):
            assert await answers(later, spy, txn_id) == expected
        repeated = await called(later, owner, "c", "CommitTxn", pb.CommitTxnRequest(txn_id=committed))
        assert pb.CommitTxnResponse.FromString(repeated).result.txn_id == committed
