"""The permissions that methods need: one table with a row for every method of every service.

The server does not start if a method has no row (``check_table``), so that no method is unprotected by accident.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from operator import attrgetter
from typing import Any, Final, TypeVar

from tidelog_server.core.errors import InvalidRequestError
from tidelog_server.core.limits import KIB, MAX_CHANNELS_PER_REQUEST, MAX_DENSE_REQUEST_BYTES
from tidelog_server.security.access import Access
from tidelog_server.security.grants import EVERYTHING, OF_CHANNELS, OF_GROUPS, OF_MAILBOXES, Verb
from tidelog_server.security.tokens import is_token_id

# Cost of a call: 1 by default, more where it writes metadata.
AUDITED_CALL_COST: Final = 5
BROADCAST_EXTRA_COST: Final = 2
# Requests of calls that are written to the audit log as a whole.
MAX_ADMIN_REQUEST_BYTES: Final = 128 * KIB
# Names of one request whose permissions are checked, before its other limits are.
MAX_CHECKED_NAMES: Final = 16_384
MAX_BLOB_KEY_BYTES: Final = 32

Need = tuple[Verb, str]
_Named = TypeVar("_Named")


@dataclass(frozen=True, slots=True)
class Row:
    """The permissions that a method needs.

    Attributes:
        is_public: True if it needs no credentials: probes only.
        somewhere: Verb that must be permitted on at least one name, or the administrative verb that is needed.
        somewhere_any: Verbs of which one must be permitted on at least one name.
        needs: Function from the request to the needed verbs and names. Methods with request streams check themselves.
        any_of: Verbs of which one must be permitted on each of ``names``.
        names: Function from the request to the names for ``any_of``.
        is_locating: True if ``names`` are channels, for which a permission on their mailbox suffices.
        is_audited: True if the call is written to the audit log before it is executed.
        is_read: True if it changes nothing.
        detail: Function from the request to the fields for the audit log; None to write the whole request.
        extra_cost: Cost of a call beyond that of a plain or an audited one.
        has_long_list: True if requests have more than MAX_ADMIN_REQUEST_BYTES although they are audited.
        large: Verbs of which one must be permitted on at least one name for a request above MAX_DENSE_REQUEST_BYTES;
            empty if no request is as large.
    """

    is_public: bool = False
    somewhere: Verb | None = None
    somewhere_any: tuple[Verb, ...] = ()
    needs: Callable[[Any], Iterable[Need]] | None = None
    any_of: frozenset[Verb] = frozenset()
    names: Callable[[Any], Iterable[str]] = lambda _: ()
    is_locating: bool = False
    is_audited: bool = False
    is_read: bool = False
    detail: Callable[[Any], dict[str, object]] | None = None
    extra_cost: int = 0
    has_long_list: bool = False
    large: tuple[Verb, ...] = ()

    @property
    def max_request_bytes(self) -> int:
        """Greatest size of a request, which is checked before it is parsed; without meaning for ``large``."""
        return MAX_ADMIN_REQUEST_BYTES if self.is_audited and not self.has_long_list else MAX_DENSE_REQUEST_BYTES

    @property
    def cost(self) -> int:
        """Cost of a call, as the quotas of principals count it."""
        return (AUDITED_CALL_COST if self.is_audited else 1) + self.extra_cost

    def check(self, access: Access, request: Any) -> None:
        """Check that a call is permitted.

        Raises:
            PermissionDeniedError: It is not.
            InvalidRequestError: It names more than is checked: a permission may be looked up for each.
        """
        if self.somewhere is not None:
            access.require_somewhere(self.somewhere)
        if self.somewhere_any:
            access.require_somewhere(*self.somewhere_any)
        if request is None:
            return
        if self.needs is not None:
            for verb, name in _bounded(self.needs(request), MAX_CHECKED_NAMES):
                access.require(verb, name)
        for name in _bounded(self.names(request), MAX_CHANNELS_PER_REQUEST):
            if not (access.may_locate(name) if self.is_locating else access.may(self.any_of, name)):
                raise access.denial(sorted(self.any_of), name)


def _bounded(several: Iterable[_Named], maximum: int) -> list[_Named]:
    """Return at most ``maximum`` elements. Raises InvalidRequestError if there are more."""
    found = list(islice(several, maximum + 1))
    if len(found) > maximum:
        raise InvalidRequestError(f"the request has more than {maximum} names: use several requests", field="names")
    return found


def _on(*verbs: Verb, names: Callable[[Any], Iterable[str]]) -> Callable[[Any], Iterator[Need]]:
    """Return a function from a request to its needs: each of ``verbs`` on each name."""
    return lambda request: ((verb, name) for name in names(request) for verb in verbs)


def _only(field: str) -> Callable[[Any], Sequence[str]]:
    """Return a function from a request to the name in ``field``, as the only one."""
    return lambda request: (getattr(request, field),)


_vchannel: Final = _only("vchannel")
_mailbox: Final = _only("mailbox")
_name: Final = _only("name")
_vchannels: Final[Callable[[Any], Sequence[str]]] = attrgetter("vchannels")
_names: Final[Callable[[Any], Sequence[str]]] = attrgetter("names")


def _created(request: Any) -> Sequence[str]:
    # Names that the server generates are not known in advance, so they need the pattern `*`.
    return request.names or (EVERYTHING,)


def _altered(request: Any) -> Iterator[Need]:
    for name in request.names:
        if request.vchannels:
            yield Verb.CHANNEL_CREATE, name
        if request.retention.ListFields() or not request.vchannels:
            yield Verb.CHANNEL_TRUNCATE, name


def _append(request: Any) -> Iterator[Need]:
    yield Verb.APPEND, request.vchannel
    if request.options.txn_id:
        yield Verb.TXN, request.vchannel


def _broadcast(request: Any) -> Iterator[Need]:
    for vchannel in request.vchannels:
        yield Verb.BROADCAST, vchannel
        yield Verb.APPEND, vchannel
    for key in request.resource_keys:
        yield Verb.BROADCAST_KEY, key.domain


def _wait_acked(request: Any) -> Iterator[Need]:
    if request.HasField("resource_key"):
        yield Verb.BROADCAST_KEY, request.resource_key.domain


def _commit(request: Any) -> Iterator[Need]:
    for condition in request.conditions:
        yield Verb.APPEND, condition.vchannel
    yield from commits_need(request.positions)
    yield from mailboxes_need(request)


def mailboxes_need(transaction: Any) -> Iterator[Need]:
    """Yield the permissions for what a transaction sends to mailboxes, and acknowledges."""
    for send in transaction.sends:
        yield Verb.MAILBOX_SEND, send.mailbox
    for ack in transaction.acks:
        yield Verb.MAILBOX_RECEIVE, ack.mailbox


def commits_need(positions: Iterable[Any]) -> Iterator[Need]:
    """Yield the permissions for committing positions of groups."""
    for position in positions:
        yield Verb.GROUP_CONSUME, position.group
        yield Verb.READ, position.vchannel


def _applied(request: Any) -> Iterator[Need]:
    for change in request.changes:
        yield Verb.JOURNAL_APPLY, change.delete or change.upsert.name


def _mailbox_ids(request: Any) -> dict[str, object]:
    # Up to a thousand ids would make an event of tens of kilobytes.
    others = {field.name: value for field, value in request.ListFields() if field.name != "ids"}
    return others | {"ids": len(request.ids)}


def _redriven(request: Any) -> Iterator[Need]:
    yield Verb.MAILBOX_MANAGE, request.mailbox
    if request.destination:
        yield Verb.MAILBOX_SEND, request.destination


def _with_dead_letter(request: Any) -> Iterator[Need]:
    yield Verb.MAILBOX_MANAGE, request.name
    if request.settings.dead_letter:
        # Messages of the one reach the other.
        yield Verb.MAILBOX_SEND, request.settings.dead_letter


def _group(verb: Verb, *fields: str) -> Callable[[Any], Iterator[Need]]:
    """Return a function from a request to its needs: ``verb`` on its group, and READ on the names in ``fields``."""

    def needs(request: Any) -> Iterator[Need]:
        yield verb, request.group
        for field in fields:
            found = getattr(request, field)
            for name in (found,) if isinstance(found, str) else found:
                yield Verb.READ, name

    return needs


def _token(request: Any) -> dict[str, object]:
    # A caller may pass the token itself by mistake, which must not appear in a log.
    return {"token_id": request.token_id if is_token_id(request.token_id) else "(not an id)"}


def _blob_read(request: Any) -> Iterator[Need]:
    if request.mailbox:
        # The handler checks that a message of the mailbox, which the request names or locks, refers to the blob.
        yield Verb.MAILBOX_READ if request.message_id else Verb.MAILBOX_RECEIVE, request.mailbox
    else:
        yield Verb.BLOB_GET, EVERYTHING


def _blob(request: Any) -> dict[str, object]:
    return {"key": request.key[:MAX_BLOB_KEY_BYTES].hex(), "delta": request.delta}


_WAL: Final = "tidelog.v1.WalService/"
_CHANNELS: Final = "tidelog.v1.ChannelService/"
_TXNS: Final = "tidelog.v1.TransactionService/"
_BROADCASTS: Final = "tidelog.v1.BroadcastService/"
_GROUPS: Final = "tidelog.v1.GroupService/"
_TOKENS: Final = "tidelog.v1.TokenService/"
_CLUSTER: Final = "tidelog.v1.ClusterService/"
_BACKUPS: Final = "tidelog.v1.BackupService/"
_JOURNALS: Final = "tidelog.v1.JournalService/"
_MAILBOXES: Final = "tidelog.v1.MailboxService/"

_BLOBS: Final = "tidelog.v1.BlobService/"

_PUBLIC: Final = Row(is_public=True, is_read=True)
_ANYBODY: Final = Row(is_read=True)
_ADMIN_READ: Final = Row(somewhere=Verb.ADMIN_READ, is_read=True)
_ADMIN_WRITE: Final = Row(somewhere=Verb.ADMIN_WRITE, is_audited=True)

ROWS: Final[dict[str, Row]] = {
    f"{_CHANNELS}CreateChannels": Row(needs=_on(Verb.CHANNEL_CREATE, names=_created), is_audited=True),
    # Retention removes messages, so changing it needs the permission to truncate; adding vchannels, that to create.
    f"{_CHANNELS}AlterChannels": Row(needs=_altered, is_audited=True),
    f"{_CHANNELS}DestroyChannels": Row(needs=_on(Verb.CHANNEL_DELETE, names=_names), is_audited=True),
    f"{_CHANNELS}DescribeChannels": Row(any_of=OF_CHANNELS, names=_names, is_read=True),
    # Lists only channels on which the caller has a permission.
    f"{_CHANNELS}ListChannels": _ANYBODY,
    f"{_WAL}GetWalName": _ANYBODY,
    f"{_WAL}AllocateTicks": _ANYBODY,
    f"{_WAL}GetLatestMvccTick": Row(any_of=frozenset((Verb.READ, Verb.APPEND)), names=_vchannel, is_read=True),
    f"{_WAL}Append": Row(needs=_append, large=(Verb.APPEND,)),
    # Each batch names its vchannel: rpc.append checks it.
    f"{_WAL}AppendStream": Row(somewhere=Verb.APPEND),
    f"{_WAL}Scan": Row(
        needs=_on(Verb.READ, names=lambda request: (source.vchannel for source in request.sources)), is_read=True
    ),
    f"{_WAL}PlanScan": Row(needs=_on(Verb.READ, names=_vchannels), is_read=True),
    f"{_WAL}OpenProducer": Row(needs=_on(Verb.APPEND, names=_vchannel)),
    f"{_WAL}SetFencingToken": Row(needs=_on(Verb.APPEND, names=_vchannel), is_audited=True),
    f"{_WAL}Trim": Row(needs=_on(Verb.CHANNEL_TRUNCATE, names=_vchannel), is_audited=True),
    f"{_TXNS}BeginTxn": Row(somewhere=Verb.TXN, needs=_on(Verb.TXN, Verb.APPEND, names=_vchannels)),
    # The owner of a transaction is identified by the principal and the client id.
    f"{_TXNS}CommitTxn": Row(somewhere=Verb.TXN, needs=_commit, large=(Verb.TXN,)),
    f"{_TXNS}RollbackTxn": Row(somewhere=Verb.TXN),
    f"{_TXNS}KeepaliveTxn": Row(somewhere=Verb.TXN),
    f"{_TXNS}PrepareTxn": Row(somewhere=Verb.TXN),
    # For transactions of the caller's principal only, and the request must name the client id of each.
    f"{_TXNS}CommitPreparedTxns": Row(somewhere=Verb.TXN),
    f"{_TXNS}RollbackPreparedTxns": Row(somewhere=Verb.TXN),
    f"{_TXNS}ListTxns": _ADMIN_READ,
    f"{_TXNS}DescribeTxn": _ADMIN_READ,
    f"{_TXNS}AbortTxn": _ADMIN_WRITE,
    f"{_BROADCASTS}Broadcast": Row(needs=_broadcast, extra_cost=BROADCAST_EXTRA_COST, large=(Verb.BROADCAST,)),
    # For broadcasts of the caller's principal only.
    f"{_BROADCASTS}WithdrawBroadcast": Row(somewhere=Verb.BROADCAST),
    f"{_BROADCASTS}Ack": Row(needs=_on(Verb.READ, names=_vchannels)),
    # rpc.broadcast_service checks which broadcasts the caller may see.
    f"{_BROADCASTS}WaitAcked": Row(somewhere=Verb.BROADCAST, needs=_wait_acked, is_read=True),
    f"{_BROADCASTS}ListBroadcasts": _ADMIN_READ,
    f"{_BROADCASTS}DescribeBroadcast": _ADMIN_READ,
    f"{_BROADCASTS}AbortBroadcast": _ADMIN_WRITE,
    f"{_GROUPS}CreateGroup": Row(needs=_group(Verb.GROUP_MANAGE, "channels"), is_audited=True),
    f"{_GROUPS}AlterGroup": Row(needs=_group(Verb.GROUP_MANAGE, "subscribe", "unsubscribe"), is_audited=True),
    f"{_GROUPS}DestroyGroup": Row(needs=_group(Verb.GROUP_MANAGE), is_audited=True),
    f"{_GROUPS}DescribeGroup": Row(any_of=OF_GROUPS, names=_only("group"), is_read=True),
    # Lists only groups on which the caller has a permission.
    f"{_GROUPS}ListGroups": _ANYBODY,
    f"{_GROUPS}CommitPositions": Row(needs=lambda request: commits_need(request.positions)),
    f"{_GROUPS}SeekGroup": Row(needs=_group(Verb.GROUP_MANAGE, "vchannels"), is_audited=True, has_long_list=True),
    f"{_GROUPS}Consume": Row(needs=_group(Verb.GROUP_CONSUME, "vchannel")),
    # The first request names the group and the channels: rpc.group_members checks it.
    f"{_GROUPS}JoinGroup": Row(somewhere=Verb.GROUP_CONSUME),
    f"{_TOKENS}CreateToken": _ADMIN_WRITE,
    f"{_TOKENS}ListTokens": _ADMIN_READ,
    f"{_TOKENS}RevokeToken": Row(somewhere=Verb.ADMIN_WRITE, is_audited=True, detail=_token),
    f"{_BACKUPS}CreateCheckpoint": Row(somewhere=Verb.BACKUP, is_audited=True),
    f"{_BACKUPS}KeepCheckpoint": Row(somewhere=Verb.BACKUP, is_read=True),
    f"{_BACKUPS}ReleaseCheckpoint": Row(somewhere=Verb.BACKUP, is_audited=True),
    f"{_BACKUPS}ListCheckpoints": Row(somewhere=Verb.BACKUP, is_read=True),
    f"{_JOURNALS}ApplyJournals": Row(needs=_applied, is_audited=True, large=(Verb.JOURNAL_APPLY,)),
    # List and watch show only journals on which the caller has a permission.
    f"{_JOURNALS}ListJournals": _ANYBODY,
    f"{_JOURNALS}WatchJournals": _ANYBODY,
    f"{_MAILBOXES}CreateMailbox": Row(needs=_with_dead_letter, is_audited=True),
    f"{_MAILBOXES}ConfigureMailbox": Row(needs=_with_dead_letter, is_audited=True),
    f"{_MAILBOXES}DescribeMailbox": Row(any_of=OF_MAILBOXES, names=_name, is_read=True),
    # Lists only mailboxes on which the caller has a permission.
    f"{_MAILBOXES}ListMailboxes": _ANYBODY,
    f"{_MAILBOXES}DeleteMailbox": Row(needs=_on(Verb.MAILBOX_MANAGE, names=_name), is_audited=True),
    f"{_MAILBOXES}PurgeMailbox": Row(needs=_on(Verb.MAILBOX_MANAGE, names=_name), is_audited=True),
    f"{_MAILBOXES}PauseMailbox": Row(needs=_on(Verb.MAILBOX_MANAGE, names=_name), is_audited=True),
    f"{_MAILBOXES}ResumeMailbox": Row(needs=_on(Verb.MAILBOX_MANAGE, names=_name), is_audited=True),
    f"{_MAILBOXES}Send": Row(needs=_on(Verb.MAILBOX_SEND, names=_mailbox), large=(Verb.MAILBOX_SEND,)),
    f"{_MAILBOXES}Fetch": Row(needs=_on(Verb.MAILBOX_RECEIVE, names=_mailbox)),
    f"{_MAILBOXES}StreamDeliveries": Row(needs=_on(Verb.MAILBOX_RECEIVE, names=_mailbox)),
    f"{_MAILBOXES}AckDeliveries": Row(needs=_on(Verb.MAILBOX_RECEIVE, names=_mailbox)),
    f"{_MAILBOXES}Extend": Row(needs=_on(Verb.MAILBOX_RECEIVE, names=_mailbox)),
    # Each operation names its mailbox: the handler checks it.
    f"{_MAILBOXES}Operate": Row(somewhere_any=(Verb.MAILBOX_SEND, Verb.MAILBOX_RECEIVE)),
    f"{_MAILBOXES}FetchHeaders": Row(needs=_on(Verb.MAILBOX_READ, names=_mailbox), is_read=True),
    f"{_MAILBOXES}Peek": Row(needs=_on(Verb.MAILBOX_READ, names=_mailbox), is_read=True),
    f"{_MAILBOXES}Reenqueue": Row(needs=_on(Verb.MAILBOX_MANAGE, names=_mailbox), is_audited=True, detail=_mailbox_ids),
    f"{_MAILBOXES}Redrive": Row(needs=_redriven, is_audited=True, detail=_mailbox_ids),
    # The first request names the mailbox, if any: the handler checks it.
    f"{_BLOBS}PutBlob": Row(somewhere_any=(Verb.BLOB_PUT, Verb.MAILBOX_SEND)),
    f"{_BLOBS}GetBlob": Row(needs=_blob_read, is_read=True),
    f"{_BLOBS}UpdateBlobRefCount": Row(somewhere=Verb.BLOB_PUT, is_audited=True, detail=_blob),
    f"{_BLOBS}DescribeBlob": Row(somewhere=Verb.BLOB_GET, is_read=True),
    f"{_CLUSTER}DescribeCluster": _ANYBODY,
    f"{_CLUSTER}LocateChannels": Row(any_of=OF_CHANNELS, names=_names, is_locating=True, is_read=True),
    # Reports only channels on which the caller has a permission.
    f"{_CLUSTER}WatchOwners": _ANYBODY,
    f"{_CLUSTER}AllocateTickRange": Row(somewhere=Verb.CLUSTER, is_read=True),
    f"{_CLUSTER}NoteChannels": Row(somewhere=Verb.CLUSTER),
    f"{_CLUSTER}ReadMetrics": _ADMIN_READ,
    "grpc.health.v1.Health/Check": _PUBLIC,
    "grpc.health.v1.Health/List": _PUBLIC,
    "grpc.health.v1.Health/Watch": _PUBLIC,
    "grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo": _ADMIN_READ,
    "grpc.channelz.v1.Channelz/GetTopChannels": _ADMIN_READ,
    "grpc.channelz.v1.Channelz/GetServers": _ADMIN_READ,
    "grpc.channelz.v1.Channelz/GetServer": _ADMIN_READ,
    "grpc.channelz.v1.Channelz/GetServerSockets": _ADMIN_READ,
    "grpc.channelz.v1.Channelz/GetChannel": _ADMIN_READ,
    "grpc.channelz.v1.Channelz/GetSubchannel": _ADMIN_READ,
    "grpc.channelz.v1.Channelz/GetSocket": _ADMIN_READ,
}


class PermissionTableError(Exception):
    """The table does not match the services; the server must not start."""


def check_table(services: Iterable[Any], rows: Iterable[str]) -> None:
    """Check that each method of ``services``, given by their descriptors, has a row, and each row a method.

    Raises:
        PermissionTableError: They differ.
    """
    methods = {f"{service.full_name}/{method.name}" for service in services for method in service.methods}
    known = set(rows)
    if missing := sorted(methods - known):
        raise PermissionTableError(f"methods without a row in security/permissions.py: {', '.join(missing)}")
    if strange := sorted(known - methods):
        raise PermissionTableError(f"rows in security/permissions.py without a method: {', '.join(strange)}")
