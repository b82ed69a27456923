"""A large request is refused before it is parsed: of callers without a permission, and of others what is too large.

Method: bare calls over TLS to a server in this process, with requests as large as the transport takes.
"""

from collections.abc import Callable
from typing import Any

import grpc
import grpc.aio
import pytest
from google.protobuf.message import Message

from tidelog.v1 import channel_service_pb2 as channels
from tidelog.v1 import mailbox_service_pb2 as mailboxes
from tidelog.v1 import transaction_service_pb2 as transactions
from tidelog_testing.parts.fixtures import secured_with
from tidelog_testing.servers.secured import Secured

DENIED, INVALID = grpc.StatusCode.PERMISSION_DENIED, grpc.StatusCode.INVALID_ARGUMENT
secured = secured_with()


# Functions: a worker that runs other tests does not make them.
def names() -> Message:
    return channels.DescribeChannelsRequest(names=["zzz"] * 900_000)


def delays() -> Message:
    return mailboxes.ConfigureMailboxRequest(name="zzz", settings={"backoff": {"delays_ms": [1] * 900_000}})


def sends() -> Message:
    return transactions.CommitTxnRequest(txn_id=1, sends=[mailboxes.SendRequest(mailbox="zzz")] * 600_000)


@pytest.mark.parametrize(
    ("method", "request_of", "grants", "code", "text"),
    [
        ("ChannelService/DescribeChannels", names, ["read:zzz"], INVALID, "at most 1572864 are allowed"),
        ("MailboxService/ConfigureMailbox", delays, ["mailbox.manage:zzz"], INVALID, "at most 131072 are allowed"),
        ("TransactionService/CommitTxn", sends, ["read:zzz"], DENIED, "'txn'"),
        ("TransactionService/CommitTxn", sends, ["txn:zzz"], INVALID, "more than 4096 fields"),
    ],
)
async def test_large_requests_are_refused(
    secured: Secured,
    method: str,
    request_of: Callable[[], Message],
    grants: list[str],
    code: grpc.StatusCode,
    text: str,
) -> None:
    token = await secured.token(*grants)
    async with secured.channel() as channel:
        call: Any = channel.unary_unary(f"/tidelog.v1.{method}")
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await call(request_of().SerializeToString(), metadata=(("authorization", f"Bearer {token}"),))
    assert refused.value.code() is code
    assert text in str(refused.value.details())
