"""What each method needs: one table, with a row for every method of every service.

A method without a row does not start the server (``check_table``), so that nobody adds one that is open by accident.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from google.protobuf.descriptor import ServiceDescriptor
from google.protobuf.message import Message

from tidelog_server.rpc.access import Access
from tidelog_server.security.grants import EVERYTHING, OF_CHANNELS, OF_GROUPS, Verb
from tidelog_server.security.tokens import is_token_id

Need = tuple[Verb, str]


@dataclass(frozen=True, slots=True)
class Row:
    """What a method needs.

    Attributes:
        is_public: Whether it needs no credentials: probes only.
        somewhere: What must be permitted on something at least; of the administrative verbs, what must be permitted.
        needs: From the request, what must be permitted where. A method with a stream of requests checks itself.
        any_of: Verbs of which one must be permitted on each of ``names``.
        names: From the request, where.
        is_audited: Whether it is written to the audit log before it is made.
        is_read: Whether it changes nothing.
        detail: From the request, what the audit log gets of it; None for all of it.
    """

    is_public: bool = False
    somewhere: Verb | None = None
    needs: Callable[[Any], Iterable[Need]] | None = None
    any_of: frozenset[Verb] = frozenset()
    names: Callable[[Any], Iterable[str]] = lambda _: ()
    is_audited: bool = False
    is_read: bool = False
    detail: Callable[[Any], dict[str, object]] | None = None

    def check(self, access: Access, request: Message | None) -> None:
        """Check that a call is permitted. Raises PermissionDeniedError."""
        if self.somewhere is not None:
            access.require_somewhere(self.somewhere)
        if request is None:
            return
        if self.needs is not None:
            for verb, name in self.needs(request):
                access.require(verb, name)
        for name in self.names(request):
            if not access.may(self.any_of, name):
                raise access.denial(sorted(self.any_of), name)


def _on(*verbs: Verb, names: Callable[[Any], Iterable[str]]) -> Callable[[Any], Iterator[Need]]:
    """Return a function from a request to its needs: each of ``verbs`` on each name."""
    return lambda request: ((verb, name) for name in names(request) for verb in verbs)


def _vchannel(request: Any) -> Sequence[str]:
    return (request.vchannel,)


def _vchannels(request: Any) -> Sequence[str]:
    return list(request.vchannels)


def _names(request: Any) -> Sequence[str]:
    return list(request.names)


def _created(request: Any) -> Sequence[str]:
    # Names that the server gives are known to nobody before.
    return list(request.names) or (EVERYTHING,)


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


def commits_need(positions: Iterable[Any]) -> Iterator[Need]:
    """Yield what it needs to move positions of groups."""
    for position in positions:
        yield Verb.GROUP_CONSUME, position.group
        yield Verb.READ, position.vchannel


def _group(verb: Verb, *fields: str) -> Callable[[Any], Iterator[Need]]:
    """Return what a request needs: ``verb`` on its group, and to read what it names in ``fields``."""

    def needs(request: Any) -> Iterator[Need]:
        yield verb, request.group
        for field in fields:
            found = getattr(request, field)
            for name in (found,) if isinstance(found, str) else found:
                yield Verb.READ, name

    return needs


def _token(request: Any) -> dict[str, object]:
    # Who confuses them gives the token itself, which belongs into no log.
    return {"token_id": request.token_id if is_token_id(request.token_id) else "(not an id)"}


_WAL: Final = "tidelog.v1.WalService/"
_CHANNELS: Final = "tidelog.v1.ChannelService/"
_TXNS: Final = "tidelog.v1.TransactionService/"
_BROADCASTS: Final = "tidelog.v1.BroadcastService/"
_GROUPS: Final = "tidelog.v1.GroupService/"
_TOKENS: Final = "tidelog.v1.TokenService/"
_CLUSTER: Final = "tidelog.v1.ClusterService/"
_BACKUPS: Final = "tidelog.v1.BackupService/"

_PUBLIC: Final = Row(is_public=True, is_read=True)
_ANYBODY: Final = Row(is_read=True)
_ADMIN_READ: Final = Row(somewhere=Verb.ADMIN_READ, is_read=True)
_ADMIN_WRITE: Final = Row(somewhere=Verb.ADMIN_WRITE, is_audited=True)

ROWS: Final[dict[str, Row]] = {
    f"{_CHANNELS}CreateChannels": Row(needs=_on(Verb.CHANNEL_CREATE, names=_created), is_audited=True),
    # Retention removes messages, so changing it needs what removing them needs.
    f"{_CHANNELS}AlterChannels": Row(needs=_on(Verb.CHANNEL_TRUNCATE, names=_names), is_audited=True),
    f"{_CHANNELS}DestroyChannels": Row(needs=_on(Verb.CHANNEL_DELETE, names=_names), is_audited=True),
    f"{_CHANNELS}DescribeChannels": Row(any_of=OF_CHANNELS, names=_names, is_read=True),
    # It lists what the caller has any permission on.
    f"{_CHANNELS}ListChannels": _ANYBODY,
    f"{_WAL}GetWalName": _ANYBODY,
    f"{_WAL}AllocateTicks": _ANYBODY,
    f"{_WAL}GetLatestMvccTick": Row(any_of=frozenset((Verb.READ, Verb.APPEND)), names=_vchannel, is_read=True),
    f"{_WAL}Append": Row(needs=_append),
    # Each batch names its vchannel: rpc.append checks it.
    f"{_WAL}AppendStream": Row(somewhere=Verb.APPEND),
    f"{_WAL}Scan": Row(
        needs=_on(Verb.READ, names=lambda request: [source.vchannel for source in request.sources]), is_read=True
    ),
    f"{_WAL}PlanScan": Row(needs=_on(Verb.READ, names=_vchannels), is_read=True),
    f"{_WAL}OpenProducer": Row(needs=_on(Verb.APPEND, names=_vchannel)),
    f"{_WAL}SetFencingToken": Row(needs=_on(Verb.APPEND, names=_vchannel), is_audited=True),
    f"{_WAL}Trim": Row(needs=_on(Verb.CHANNEL_TRUNCATE, names=_vchannel), is_audited=True),
    f"{_TXNS}BeginTxn": Row(somewhere=Verb.TXN, needs=_on(Verb.TXN, Verb.APPEND, names=_vchannels)),
    # Whose a transaction is, is known by the principal and the client's id.
    f"{_TXNS}CommitTxn": Row(somewhere=Verb.TXN, needs=_commit),
    f"{_TXNS}RollbackTxn": Row(somewhere=Verb.TXN),
    f"{_TXNS}KeepaliveTxn": Row(somewhere=Verb.TXN),
    f"{_TXNS}PrepareTxn": Row(somewhere=Verb.TXN),
    # Of the caller's principal only; of those, who knows the client of one was told so by that client.
    f"{_TXNS}CommitPreparedTxns": Row(somewhere=Verb.TXN),
    f"{_TXNS}RollbackPreparedTxns": Row(somewhere=Verb.TXN),
    f"{_TXNS}ListTxns": _ADMIN_READ,
    f"{_TXNS}DescribeTxn": _ADMIN_READ,
    f"{_TXNS}AbortTxn": _ADMIN_WRITE,
    f"{_BROADCASTS}Broadcast": Row(needs=_broadcast),
    f"{_BROADCASTS}Ack": Row(needs=_on(Verb.READ, names=_vchannels)),
    # Which broadcasts the caller may know, rpc.broadcast_service looks at.
    f"{_BROADCASTS}WaitAcked": Row(somewhere=Verb.BROADCAST, needs=_wait_acked, is_read=True),
    f"{_BROADCASTS}ListBroadcasts": _ADMIN_READ,
    f"{_BROADCASTS}DescribeBroadcast": _ADMIN_READ,
    f"{_BROADCASTS}AbortBroadcast": _ADMIN_WRITE,
    f"{_GROUPS}CreateGroup": Row(needs=_group(Verb.GROUP_MANAGE, "channels"), is_audited=True),
    f"{_GROUPS}AlterGroup": Row(needs=_group(Verb.GROUP_MANAGE, "subscribe", "unsubscribe"), is_audited=True),
    f"{_GROUPS}DestroyGroup": Row(needs=_group(Verb.GROUP_MANAGE), is_audited=True),
    f"{_GROUPS}DescribeGroup": Row(any_of=OF_GROUPS, names=lambda request: (request.group,), is_read=True),
    # It lists what the caller has any permission on.
    f"{_GROUPS}ListGroups": _ANYBODY,
    f"{_GROUPS}CommitPositions": Row(needs=lambda request: commits_need(request.positions)),
    f"{_GROUPS}SeekGroup": Row(needs=_group(Verb.GROUP_MANAGE, "vchannels"), is_audited=True),
    f"{_GROUPS}Consume": Row(needs=_group(Verb.GROUP_CONSUME, "vchannel")),
    # Its first request names the group and what is read: rpc.group_members checks it.
    f"{_GROUPS}JoinGroup": Row(somewhere=Verb.GROUP_CONSUME),
    f"{_TOKENS}CreateToken": _ADMIN_WRITE,
    f"{_TOKENS}ListTokens": _ADMIN_READ,
    f"{_TOKENS}RevokeToken": Row(somewhere=Verb.ADMIN_WRITE, is_audited=True, detail=_token),
    f"{_BACKUPS}CreateCheckpoint": Row(somewhere=Verb.BACKUP, is_audited=True),
    f"{_BACKUPS}KeepCheckpoint": Row(somewhere=Verb.BACKUP, is_read=True),
    f"{_BACKUPS}ReleaseCheckpoint": Row(somewhere=Verb.BACKUP, is_audited=True),
    f"{_BACKUPS}ListCheckpoints": Row(somewhere=Verb.BACKUP, is_read=True),
    f"{_CLUSTER}DescribeCluster": _ANYBODY,
    f"{_CLUSTER}LocateChannels": Row(any_of=OF_CHANNELS, names=_names, is_read=True),
    # It tells of what the caller has any permission on.
    f"{_CLUSTER}WatchOwners": _ANYBODY,
    f"{_CLUSTER}AllocateTickRange": Row(somewhere=Verb.CLUSTER, is_read=True),
    f"{_CLUSTER}NoteChannels": Row(somewhere=Verb.CLUSTER),
    "grpc.health.v1.Health/Check": _PUBLIC,
    "grpc.health.v1.Health/List": _PUBLIC,
    "grpc.health.v1.Health/Watch": _PUBLIC,
    "grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo": _ADMIN_READ,
}


class PermissionTableError(Exception):
    """The table and the services differ: the server must not start."""


def check_table(services: Iterable[ServiceDescriptor], rows: Iterable[str]) -> None:
    """Raise PermissionTableError unless there is one row for every method."""
    methods = {f"{service.full_name}/{method.name}" for service in services for method in service.methods}
    known = set(rows)
    if missing := sorted(methods - known):
        raise PermissionTableError(f"methods without a row in rpc/permissions.py: {', '.join(missing)}")
    if strange := sorted(known - methods):
        raise PermissionTableError(f"rows in rpc/permissions.py without a method: {', '.join(strange)}")
