"""The metadata store that nodes share: etcd. Implements ``SharedMetadataStore``.

All keys are under a prefix, so several clusters may share one etcd. Revisions are etcd's.

A call that etcd does not answer is retried for as long as the store is open: no change is reported as failed when it
may have been applied. ``close``, which follows the loss of the node's lease, ends the retries.
"""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Any, Final

import structlog
from aetcd import rpc

from tidelog_server.core.errors import Effect, StorageFailedError
from tidelog_server.core.errors.cluster import MetadataUnavailableError, OwnershipLostError
from tidelog_server.core.limits import ETCD_CALL_TIMEOUT_S, MAX_CHANGES_PER_COMMIT
from tidelog_server.metadata.etcd_connection import EtcdAccess, EtcdCallError, EtcdConnection
from tidelog_server.metadata.store import (
    Change,
    Delete,
    Fence,
    Put,
    RevisionConflictError,
    Versioned,
    Watched,
)
from tidelog_server.runtime.clock import Clock

ETCD_PAGE_KEYS: Final = 1_000

_FIRST_PAUSE_S: Final = 0.05
_MAX_PAUSE_S: Final = 1.0
_DELETED: Final = 1
_log = structlog.get_logger()


class _CompactedError(Exception):
    """The requested revision has been compacted."""


class EtcdMetadataStore:
    """Metadata in etcd. Lives on the event loop. Does no network I/O before the first call."""

    def __init__(self, access: EtcdAccess, prefix: str, clock: Clock) -> None:
        """Prepare access to etcd; ``prefix`` is that of all keys, such as ``/tidelog/``.

        Raises:
            OSError: A certificate is unreadable.
        """
        self._access = access
        self._prefix = prefix.encode()
        self._clock = clock
        self._connection = EtcdConnection(access)
        self._fence: Fence | None = None
        self._is_closed = False
        self._silent_since_s: float | None = None
        self.last_failure = ""
        # The greatest revision in any of etcd's responses.
        self.revision = 0

    @property
    def silent_s(self) -> float:
        return 0.0 if self._silent_since_s is None else self._clock.monotonic_s() - self._silent_since_s

    # -- Reads and commits ---------------------------------------------------------------------------------

    async def get(self, key: str) -> Versioned | None:
        """See MetadataStore. Retries while the store is open."""
        answer = await self._ask("KV.Range", rpc.RangeRequest(key=self._prefix + key.encode()))
        return _versioned(answer.kvs[0]) if answer.kvs else None

    async def list(self, prefix: str) -> dict[str, Versioned]:
        """See MetadataStore. Retries while the store is open."""
        return (await self._list(prefix))[0]

    async def commit(self, changes: Sequence[Change], *, is_before_log: bool = False) -> int:
        """See MetadataStore. Retries while the store is open.

        Raises:
            OwnershipLostError: The fence does not hold.
            MetadataUnavailableError: etcd refused the commit, for example because its space quota is exhausted.
        """
        del is_before_log  # etcd's disk is not the log's.
        assert len(changes) <= MAX_CHANGES_PER_COMMIT
        assert len({change.key for change in changes}) == len(changes)
        request = self._txn(changes)
        pause_s = _FIRST_PAUSE_S
        may_be_applied = False
        while True:
            self._check_open()
            try:
                answer = await self._call("KV.Txn", request)
            except EtcdCallError as error:
                if not error.may_pass:
                    raise self._refused(error, Effect.UNKNOWN if may_be_applied else Effect.NONE) from error
                may_be_applied = True
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, _MAX_PAUSE_S)
                continue
            if answer.succeeded:
                return int(answer.header.revision)
            return self._not_applied(changes, answer, may_be_applied=may_be_applied)

    def set_fence(self, fence: Fence | None) -> None:
        self._fence = fence

    async def close(self) -> None:
        """See MetadataStore. Calls in progress raise an error."""
        self._is_closed = True
        await self._connection.close()

    # -- Leases --------------------------------------------------------------------------------------------

    async def grant_lease(self, ttl_s: int) -> tuple[int, float]:
        answer = await self._ask_once("Lease.LeaseGrant", rpc.LeaseGrantRequest(TTL=ttl_s))
        return int(answer.ID), float(answer.TTL)

    async def renew_lease(self, lease_id: int) -> float:
        self._check_open()
        request = rpc.LeaseKeepAliveRequest(ID=lease_id)
        try:
            async with asyncio.timeout(ETCD_CALL_TIMEOUT_S):
                async with aclosing(self._connection.stream("Lease.LeaseKeepAlive", request)) as answers:
                    async for answer in answers:
                        self._heard(answer)
                        return float(answer.TTL)
            raise EtcdCallError("UNAVAILABLE", "the stream ended without an answer")
        except TimeoutError:
            error = EtcdCallError("DEADLINE_EXCEEDED", f"no answer within {ETCD_CALL_TIMEOUT_S} s")
            self._unheard(error)
            raise self._refused(error, Effect.UNKNOWN) from None
        except EtcdCallError as error:
            self._unheard(error)
            raise self._refused(error, Effect.UNKNOWN) from error

    async def revoke_lease(self, lease_id: int) -> None:
        try:
            await self._call("Lease.LeaseRevoke", rpc.LeaseRevokeRequest(ID=lease_id))
        except EtcdCallError as error:
            if error.code != "NOT_FOUND":
                raise self._refused(error, Effect.UNKNOWN) from error

    # -- Watches -------------------------------------------------------------------------------------------

    async def watch(self, prefix: str) -> AsyncGenerator[Watched, None]:
        pause_s = _FIRST_PAUSE_S
        while True:
            values, revision = await self._list(prefix)
            yield Watched(revision, values, is_snapshot=True)
            position = _Position(revision + 1)
            while True:
                try:
                    async with aclosing(self._changes(prefix, position)) as changes:
                        async for changed in changes:
                            pause_s = _FIRST_PAUSE_S
                            yield changed
                except _CompactedError:
                    _log.warning("watch_fell_behind", prefix=prefix, revision=position.next_revision)
                    break
                except EtcdCallError as error:
                    self._check_open()
                    self._unheard(error)
                    await asyncio.sleep(pause_s)
                    pause_s = min(2 * pause_s, _MAX_PAUSE_S)

    async def _changes(self, prefix: str, position: "_Position") -> AsyncGenerator[Watched, None]:
        """Yield changes from ``position`` on, and advance it, until the stream breaks."""
        begin, end = self._range(prefix)
        create = rpc.WatchCreateRequest(
            key=begin, range_end=end, start_revision=position.next_revision, progress_notify=True
        )
        request = rpc.WatchRequest(create_request=create)
        async with aclosing(self._connection.stream("Watch.Watch", request)) as answers:
            async for answer in answers:
                self._heard(answer)
                if answer.compact_revision:
                    raise _CompactedError
                if answer.canceled:
                    raise EtcdCallError("UNAVAILABLE", answer.cancel_reason)
                if answer.events:
                    yield self._watched(answer)
                if not answer.created:
                    position.next_revision = answer.header.revision + 1
        raise EtcdCallError("UNAVAILABLE", "the watch ended")

    def _watched(self, answer: Any) -> Watched:
        values: dict[str, Versioned] = {}
        deleted: set[str] = set()
        for event in answer.events:
            key = self._key(event.kv)
            if event.type == _DELETED:
                values.pop(key, None)
                deleted.add(key)
            else:
                deleted.discard(key)
                values[key] = _versioned(event.kv)
        return Watched(answer.header.revision, values, frozenset(deleted))

    # -- Private -------------------------------------------------------------------------------------------

    def _txn(self, changes: Sequence[Change]) -> Any:
        compare = [
            rpc.Compare(
                result=rpc.Compare.EQUAL,
                target=rpc.Compare.MOD,
                key=self._prefix + change.key.encode(),
                mod_revision=change.expected_revision,
            )
            for change in changes
            if change.expected_revision is not None
        ]
        keys = [self._prefix + change.key.encode() for change in changes]
        if self._fence is not None:
            key = self._prefix + self._fence.key.encode()
            compare.append(
                rpc.Compare(
                    result=rpc.Compare.EQUAL,
                    target=rpc.Compare.CREATE,
                    key=key,
                    create_revision=self._fence.created_revision,
                )
            )
            keys.append(key)
        # On failure, the current values are read in the same transaction.
        failure = [rpc.RequestOp(request_range=rpc.RangeRequest(key=key)) for key in keys]
        return rpc.TxnRequest(compare=compare, success=[self._operation(change) for change in changes], failure=failure)

    def _operation(self, change: Change) -> Any:
        key = self._prefix + change.key.encode()
        if isinstance(change, Delete):
            return rpc.RequestOp(request_delete_range=rpc.DeleteRangeRequest(key=key))
        return rpc.RequestOp(request_put=rpc.PutRequest(key=key, value=change.value, lease=change.lease_id))

    def _not_applied(self, changes: Sequence[Change], answer: Any, *, may_be_applied: bool) -> int:
        """Raise why a transaction was not applied; return its revision if an earlier, unanswered attempt applied it."""
        found = [each.response_range.kvs[0] if each.response_range.kvs else None for each in answer.responses]
        if may_be_applied and (revision := _revision_of(changes, found, answer.header.revision)) is not None:
            return revision
        if self._fence is not None:
            fenced = found[len(changes)]
            if fenced is None or fenced.create_revision != self._fence.created_revision:
                if may_be_applied:
                    raise MetadataUnavailableError("this node's registration has expired", effect=Effect.UNKNOWN)
                raise OwnershipLostError(self._fence.node_id)
        for change, current in zip(changes, found, strict=False):
            actual = 0 if current is None else current.mod_revision
            if change.expected_revision is not None and change.expected_revision != actual:
                raise RevisionConflictError(
                    change.key, expected_revision=change.expected_revision, actual_revision=actual
                )
        raise AssertionError("etcd rejected a transaction whose conditions hold")

    async def _list(self, prefix: str) -> tuple[dict[str, Versioned], int]:
        """Return all keys under ``prefix`` at one revision, and that revision."""
        begin, end = self._range(prefix)
        while True:
            values: dict[str, Versioned] = {}
            revision, next_key = 0, begin
            try:
                while True:
                    request = rpc.RangeRequest(key=next_key, range_end=end, limit=ETCD_PAGE_KEYS, revision=revision)
                    answer = await self._ask("KV.Range", request)
                    revision = revision or answer.header.revision
                    values |= {self._key(pair): _versioned(pair) for pair in answer.kvs}
                    if not answer.more:
                        return values, revision
                    next_key = answer.kvs[-1].key + b"\0"
            except _CompactedError:
                continue

    async def _ask(self, method: str, request: Any) -> Any:
        """Return etcd's response; retry without a limit.

        Raises:
            MetadataUnavailableError: etcd refused the call.
            StorageFailedError: The store was closed meanwhile.
        """
        pause_s = _FIRST_PAUSE_S
        while True:
            self._check_open()
            try:
                return await self._call(method, request)
            except EtcdCallError as error:
                if error.code == "OUT_OF_RANGE":
                    raise _CompactedError from error
                if not error.may_pass:
                    raise self._refused(error, Effect.NONE) from error
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, _MAX_PAUSE_S)

    async def _ask_once(self, method: str, request: Any) -> Any:
        self._check_open()
        try:
            return await self._call(method, request)
        except EtcdCallError as error:
            raise self._refused(error, Effect.UNKNOWN) from error

    async def _call(self, method: str, request: Any) -> Any:
        try:
            answer = await self._connection.call(method, request)
        except EtcdCallError as error:
            self._unheard(error)
            raise
        self._heard(answer)
        return answer

    def _heard(self, answer: Any) -> None:
        if self._silent_since_s is not None:
            _log.info("metadata_answers_again", silent_s=round(self.silent_s, 3), etcd=self._connection.endpoint)
            self._silent_since_s = None
        self.revision = max(self.revision, answer.header.revision)

    def _unheard(self, error: EtcdCallError) -> None:
        self.last_failure = str(error)
        if self._silent_since_s is None and error.may_pass and not self._is_closed:
            self._silent_since_s = self._clock.monotonic_s()
            _log.warning("metadata_silent", etcd=self._connection.endpoint, error=str(error))

    def _refused(self, error: EtcdCallError, effect: Effect) -> MetadataUnavailableError:
        return MetadataUnavailableError(f"etcd at {', '.join(self._access.endpoints)}: {error}", effect=effect)

    def _check_open(self) -> None:
        if self._is_closed:
            raise StorageFailedError("the metadata store is closed")

    def _range(self, prefix: str) -> tuple[bytes, bytes]:
        begin = self._prefix + prefix.encode()
        return begin, _end_of(begin)

    def _key(self, pair: Any) -> str:
        key: bytes = pair.key
        return key[len(self._prefix) :].decode()


class _Position:
    """The revision from which a watch resumes."""

    def __init__(self, next_revision: int) -> None:
        self.next_revision = next_revision


def _versioned(pair: Any) -> Versioned:
    return Versioned(pair.value, pair.mod_revision)


def _end_of(prefix: bytes) -> bytes:
    """Return the smallest key greater than all keys that begin with ``prefix``."""
    stem = prefix.rstrip(b"\xff")
    return stem[:-1] + bytes([stem[-1] + 1]) if stem else b"\0"


def _revision_of(changes: Sequence[Change], found: Sequence[Any], revision: int) -> int | None:
    """Return the revision at which ``changes`` were applied together, or None if ``found`` is not their result."""
    revisions: set[int] = set()
    for change, current in zip(changes, found, strict=False):
        if isinstance(change, Put):
            if current is None or current.value != change.value:
                return None
            revisions.add(current.mod_revision)
        elif current is not None:
            return None
    if len(revisions) > 1:
        return None
    return revisions.pop() if revisions else revision
