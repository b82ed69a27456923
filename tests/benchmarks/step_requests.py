"""Requests for ``benchmarks steps``: the largest of each RPC and HTTP route, and those at the documented limits."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeVar

from google.protobuf.descriptor import FieldDescriptor, MethodDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from tidelog.v1 import broadcast_service_pb2 as broadcasts
from tidelog.v1 import channel_service_pb2 as channels
from tidelog.v1 import cluster_service_pb2 as cluster
from tidelog.v1 import group_service_pb2 as groups
from tidelog.v1 import journal_service_pb2 as journals
from tidelog.v1 import mailbox_service_pb2 as mailboxes
from tidelog.v1 import message_pb2
from tidelog.v1 import token_service_pb2 as tokens
from tidelog.v1 import wal_service_pb2 as wal
from tidelog.wire import protowire
from tidelog_server.core.limits import MAX_CHANNELS_PER_REQUEST, MAX_MAILBOX_BATCH, MAX_OPEN_BROADCASTS
from tidelog_server.core.message_checks import MAX_MESSAGE_HEADERS
from tidelog_server.journals.labels import MAX_JOURNAL_LABELS_BYTES
from tidelog_server.rpc.services.journals import MAX_JOURNALS_PER_REQUEST, MAX_SELECTOR_TERMS
from tidelog_server.rpc.web.api import MAX_API_REQUEST_BYTES, ROUTES

LARGEST_BYTES: Final = (5 << 20) - 4_096
"""The transport refuses more: ``limits.max_batch_bytes`` and 1 MiB."""
NAME: Final = "zzz"
"""The only name on which the weak caller has a permission, and names of that which the strong one made."""
GROUP, BUSY_GROUP, WIDE_GROUP, MAILBOX, JOURNAL = NAME, "zzz-busy", "zzz-wide", NAME, "zzz/journal"
WIDE_CHANNELS: Final = [f"{NAME}.wide.{number}" for number in range(2)]
"""Channels of the group that gets many members."""
_NAMES: Final = {"journal": JOURNAL, "upsert": JOURNAL, "delete": JOURNAL}


_LATER_FIELD: Final = 1_000
_Message = TypeVar("_Message", bound=Message)


class StepRequest(NamedTuple):
    """A request of one RPC.

    Attributes:
        what: What is large in it.
        method: The RPC.
        encoded: The request.
    """

    what: str
    method: MethodDescriptor
    encoded: bytes


def _value(field: Any) -> Any:
    """Return a small value that passes the first checks."""
    if field.cpp_type == FieldDescriptor.CPPTYPE_STRING:
        return b"" if field.type == FieldDescriptor.TYPE_BYTES else _NAMES.get(field.name, NAME)
    return 1


def _named(message: Message) -> Message:
    """Set the texts of a message, and of those that it has once."""
    for field in message.DESCRIPTOR.fields:
        if field.is_repeated or (field.containing_oneof and message.WhichOneof(field.containing_oneof.name)):
            continue
        if field.message_type is None:
            if field.cpp_type == FieldDescriptor.CPPTYPE_STRING:
                setattr(message, field.name, _value(field))
        elif field.containing_oneof:
            getattr(message, field.name).SetInParent()
    return message


def _holders(message: Message, depth: int = 2) -> Iterator[tuple[str, Message, Any]]:
    """Yield the repeated fields of a message and of those in it, each in a message that has it."""
    for field in message.DESCRIPTOR.fields:
        is_map = field.message_type is not None and field.message_type.GetOptions().map_entry
        if field.is_repeated and not is_map:
            yield field.name, message, field
        elif field.message_type is not None and not field.is_repeated and depth:
            for name, inner, found in _holders(getattr(message, field.name), depth - 1):
                yield f"{field.name}.{name}", inner, found


def largest(method: MethodDescriptor) -> Iterator[StepRequest]:
    """Yield requests with as many elements in one list as the transport takes, and one without any."""
    request_class = GetMessageClass(method.input_type)
    yield StepRequest("texts only", method, _named(request_class()).SerializeToString())
    for path in [path for path, _, _ in _holders(request_class())]:
        request = _named(request_class())
        inner, field = next((inner, field) for each, inner, field in _holders(request) if each == path)
        single = _named(GetMessageClass(field.message_type)()) if field.message_type else _value(field)
        elements, before_bytes = getattr(inner, field.name), request.ByteSize()
        elements.append(single)
        # Lengths of messages around the list may take a few bytes more.
        step_bytes = max(1, request.ByteSize() - before_bytes)
        elements.extend([single] * ((LARGEST_BYTES - request.ByteSize()) // step_bytes - 1))
        yield StepRequest(f"{len(elements):,} {path}", method, request.SerializeToString())


def operations(count: int, messages: int) -> mailboxes.OperateRequest:
    """Return an Operate request that sends ``messages`` empty messages in each operation."""
    send = mailboxes.SendRequest(mailbox=MAILBOX, messages=[mailboxes.OutgoingMessage()] * messages)
    return mailboxes.OperateRequest(
        operations=[mailboxes.Operation(number=number, send=send) for number in range(count)]
    )


def transaction(messages: int, headers: int) -> wal.AppendStreamRequest:
    """Return a transaction that sends messages with empty headers to a mailbox."""
    message = mailboxes.OutgoingMessage(headers={str(number): "" for number in range(headers)})
    send = mailboxes.SendRequest(mailbox=MAILBOX, messages=[message] * messages)
    return wal.AppendStreamRequest(transaction=wal.Transaction(sends=[send]))


def _unknown(message_class: type[_Message]) -> _Message:
    """Return a message that has nothing but fields of a later version, as many as the transport takes."""
    field = protowire.key_of(_LATER_FIELD, protowire.LENGTH) + protowire.varint(0)
    return message_class.FromString(field * ((LARGEST_BYTES - 64) // len(field)))


def _labels(count: int) -> list[journals.JournalLabel]:
    return [journals.JournalLabel(name=f"label-{number:05}", value="1") for number in range(count)]


def journal_changes(first: int, count: int, labels: int) -> journals.ApplyJournalsRequest:
    """Return a request that creates or changes journals below ``zzz/``."""
    changes = [
        journals.JournalChange(
            upsert=journals.JournalSpec(name=f"{NAME}/{number:05}", labels=_labels(labels)), expected_revision=-1
        )
        for number in range(first, first + count)
    ]
    return journals.ApplyJournalsRequest(changes=changes)


SELECTOR: Final = journals.JournalSelector(
    exclude=[journals.JournalLabelTerm(name=f"other-{number}", value="x") for number in range(MAX_SELECTOR_TERMS)]
)

AT_LIMITS: Final[Mapping[str, Callable[[], Message]]] = {
    "ListJournals": lambda: journals.ListJournalsRequest(selector=SELECTOR),
    "WatchJournals": lambda: journals.WatchJournalsRequest(selector=SELECTOR),
    "ApplyJournals": lambda: journal_changes(90_000, MAX_JOURNALS_PER_REQUEST, MAX_JOURNAL_LABELS_BYTES // 64),
    "ListChannels": lambda: channels.ListChannelsRequest(include_system=True),
    "DescribeChannels": lambda: channels.DescribeChannelsRequest(
        names=[f"{NAME}.{number:05}" for number in range(MAX_CHANNELS_PER_REQUEST)], ignore_missing=True
    ),
    "LocateChannels": lambda: cluster.LocateChannelsRequest(
        names=[f"{NAME}.{number:05}" for number in range(MAX_CHANNELS_PER_REQUEST)]
    ),
    "WatchOwners": cluster.WatchOwnersRequest,
    "DescribeCluster": cluster.DescribeClusterRequest,
    "ListGroups": groups.ListGroupsRequest,
    "DescribeGroup": lambda: groups.DescribeGroupRequest(group=BUSY_GROUP),
    "ListMailboxes": mailboxes.ListMailboxesRequest,
    "ListTokens": lambda: tokens.ListTokensRequest(all=True),
    "ListBroadcasts": lambda: broadcasts.ListBroadcastsRequest(
        states=[
            broadcasts.BROADCAST_STATE_PENDING,
            broadcasts.BROADCAST_STATE_WAIT_ACK,
            broadcasts.BROADCAST_STATE_DONE,
            broadcasts.BROADCAST_STATE_ABORTED,
        ]
    ),
    "WaitAcked": lambda: broadcasts.WaitAckedRequest(
        broadcast_ids=range(1, MAX_OPEN_BROADCASTS + 1), mode=broadcasts.ACK_MODE_ALL
    ),
    "Send": lambda: mailboxes.SendRequest(
        mailbox=MAILBOX,
        messages=[
            mailboxes.OutgoingMessage(body=b"x", group=f"g{number}", dedup_key=f"k{number}")
            for number in range(MAX_MAILBOX_BATCH)
        ],
    ),
    "AppendStream": lambda: transaction(MAX_MAILBOX_BATCH, MAX_MESSAGE_HEADERS),
    "Operate": lambda: operations(700, MAX_MAILBOX_BATCH),
    "Fetch": lambda: mailboxes.FetchRequest(mailbox=MAILBOX, max_messages=MAX_MAILBOX_BATCH),
    "FetchHeaders": lambda: mailboxes.FetchHeadersRequest(mailbox=MAILBOX, max_messages=MAX_MAILBOX_BATCH),
    "Peek": lambda: mailboxes.PeekRequest(mailbox=MAILBOX, max_messages=100),
    "DescribeMailbox": lambda: mailboxes.DescribeMailboxRequest(name=MAILBOX),
    "PurgeMailbox": lambda: mailboxes.PurgeMailboxRequest(name=MAILBOX),
}

"""Requests at the documented limits, by the name of their RPC, in the order in which they are made."""

BEYOND_LIMITS: Final[Sequence[tuple[str, str, Callable[[], Message]]]] = (
    # 4.9 MB. Each operation is refused, for its number of messages.
    ("Operate", "operations beyond the limits", lambda: operations(MAX_MAILBOX_BATCH, 2_400)),
    # 4.9 MB.
    ("AppendStream", "headers of a transaction beyond the limits", lambda: transaction(930, 600)),
    ("AppendStream", "unknown fields", lambda: _unknown(wal.AppendStreamRequest)),
    ("AppendStream", "unknown fields of a batch",
     lambda: wal.AppendStreamRequest(vchannel=f"{NAME}/0", columns=_unknown(message_pb2.Columns))),
    ("AppendStream", "unknown fields of a transaction",
     lambda: wal.AppendStreamRequest(transaction=_unknown(wal.Transaction))),
    ("AppendStream", "unknown fields of a part of a transaction",
     lambda: wal.AppendStreamRequest(transaction=wal.Transaction(parts=[_unknown(wal.TransactionPart)]))),
)  # fmt: skip
"""Requests that are refused late: the name of their RPC, and what is large in them."""


def http_requests() -> Iterator[tuple[str, str, str, bytes, str]]:
    """Yield verb, path, what is large, content and its type, for each route of the HTTP port."""
    arrays = {
        "messages": {"messages": [{"body": ""}] * 170_000},
        "confirmed": {"confirmed": [""] * 690_000},
        "ids": {"ids": [1] * 900_000},
        "unknown": {"a": [[]] * 650_000},
        "nested": {"settings": {"backoff": {"delays_ms": [1] * 900_000}}},
    }
    contents = {
        what: json.dumps(each, separators=(",", ":")).encode()[:MAX_API_REQUEST_BYTES] for what, each in arrays.items()
    }
    for route in ROUTES:
        path = "/".join(NAME if "{" in each else each for each in route.path.split("/"))
        for what, content in contents.items() if route.has_content else [("no content", b"")]:
            yield route.verb, path, what, content, "application/json"
    form = b"&".join([b"a="] * 1_300)
    for path in ("send", "fetch", "ack", "admin/headers", "admin/fetchBlob", "admin/reenqueue"):
        yield "POST", f"/pandora/{path}", "1,300 fields", form, "application/x-www-form-urlencoded"
    for path in ("/metrics", "/livez", "/readyz", "/api/v1/openapi.json", "/pandora/"):
        yield "GET", path, "no content", b"", ""
