"""A large request is refused before it is parsed: of callers without a permission, and of others what is too large.

Method: bare calls over TLS to a server in this process, with requests as large as the transport takes.
"""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest

from tidelog.v1 import channel_service_pb2 as channels
from tidelog.v1 import mailbox_service_pb2 as mailboxes
from tidelog.v1 import transaction_service_pb2 as transactions
from tidelog_testing.servers.secured import Secured, secured_server

NAMES = channels.DescribeChannelsRequest(names=["zzz"] * 900_000)
DELAYS = mailboxes.ConfigureMailboxRequest(name="zzz", settings={"backoff": {"delays_ms": [1] * 900_000}})
SENDS = transactions.CommitTxnRequest(txn_id=1, sends=[mailboxes.SendRequest(mailbox="zzz")] * 600_000)
DENIED, INVALID = grpc.StatusCode.PERMISSION_DENIED, grpc.StatusCode.INVALID_ARGUMENT


@pytest.fixture
async def secured(tmp_path: Path) -> AsyncIterator[Secured]:
    async with secured_server(tmp_path) as running:
        yield running


@pytest.mark.parametrize(
    ("method", "request_", "grants", "code", "text"),
    [
        ("ChannelService/DescribeChannels", NAMES, ["read:zzz"], INVALID, "at most 1572864 are allowed"),
        ("MailboxService/ConfigureMailbox", DELAYS, ["mailbox.manage:zzz"], INVALID, "at most 131072 are allowed"),
        ("TransactionService/CommitTxn", SENDS, ["read:zzz"], DENIED, "'txn'"),
        ("TransactionService/CommitTxn", SENDS, ["txn:zzz"], INVALID, "more than 4096 fields"),
    ],
)
async def test_large_requests_are_refused(
    secured: Secured, method: str, request_: Any, grants: list[str], code: grpc.StatusCode, text: str
) -> None:
    token = await secured.token(*grants)
    async with secured.channel() as channel:
        call: Any = channel.unary_unary(f"/tidelog.v1.{method}")
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await call(request_.SerializeToString(), metadata=(("authorization", f"Bearer {token}"),))
    assert refused.value.code() is code
    assert text in str(refused.value.details())
