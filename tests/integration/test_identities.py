"""Callers that look alike are never taken for each other.

Method: a server with TLS and authentication in this process, signed tokens whose subjects are parts of each other, and
bare calls, whose metadata is exactly what the test says.
"""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
from google.protobuf.message import Message

from tidelog import UnauthenticatedError
from tidelog.v1 import error_pb2
from tidelog.v1 import transaction_service_pb2 as pb
from tidelog_testing.certificates import Signer, write_key_set
from tidelog_testing.secured import EVERYTHING, Secured, jwt_settings, secured_server
from tidelog_testing.workload import detail_of

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
