"""The blob store of a node: stores, reads and counts blobs, and deletes those that nothing refers to."""

import asyncio
import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import Executor
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import Final

import structlog

from tidelog_server.blobs.events import BLOBS, decode_chunk
from tidelog_server.blobs.live import LiveReferences
from tidelog_server.blobs.log import BlobKeeper, BlobLog
from tidelog_server.blobs.state import Blob, BlobState, Charge, chunks_of
from tidelog_server.blobs.step import NOBODY, BlobStep, CheckMemory, Storer
from tidelog_server.core.callers import NO_TENANT, Tenant
from tidelog_server.core.errors import DataLossError, TidelogServerError
from tidelog_server.core.errors.mailboxes import BlobNotExistError
from tidelog_server.core.limits import BLOB_CHUNK_BYTES, KIB
from tidelog_server.core.ticks import LOGICAL_BITS
from tidelog_server.fold.calls import SMALL_BYTES, Call
from tidelog_server.fold.events import EventCodec, read_event
from tidelog_server.fold.loading import load
from tidelog_server.log.node import LogNode
from tidelog_server.log.protocols import Place
from tidelog_server.runtime.failpoints import Failpoint, hit
from tidelog_server.runtime.tasks import TaskOwner

# Chunks that one step stores: a larger one would hold the event loop for longer.
_STEP_CHUNKS: Final = 4
# Blobs that one step collects, and about the size of a key in its event.
_COLLECTED: Final = 1_000
_KEY_BYTES: Final = 33
# A blob of this size or more is hashed on a thread.
_HASH_BYTES: Final = 256 * KIB
# How often idle blobs are looked for: a part of the grace period, within bounds.
_PERIOD_PART: Final = 0.25
_MIN_PERIOD_S: Final = 0.05
_MAX_PERIOD_S: Final = 60.0
_log = structlog.get_logger()


class KeyAlgorithm(Enum):
    """Algorithm of keys: its name in hashlib."""

    SHA256 = "sha256"
    SHA1 = "sha1"

    def key_of(self, data: bytes) -> bytes:
        """Return the key of a blob."""
        # For compatibility, not for security.
        return hashlib.new(self.value, data, usedforsecurity=False).digest()


@dataclass(frozen=True, slots=True)
class BlobChannel:
    """The channel with the events of the blobs, which is created with the first blob.

    Attributes:
        find: Returns its vchannel; None if it does not exist.
        create: Creates it, durably, if it does not exist.
    """

    find: Callable[[], Place | None]
    create: Callable[[], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class BlobDescription:
    """A blob.

    Attributes:
        size_bytes: Its size.
        references: References that the caller sees, see ``Blob.references_of``.
        messages: Number of messages that refer to it.
    """

    size_bytes: int
    references: int
    messages: int


class Blobs:
    """The blobs of this node. Lives on the event loop.

    Attributes:
        live: References of messages.
        keeper: Keeps the log short.
        are_references_known: Returns whether ``live`` counts the messages of all mailboxes; no blob is deleted before.
    """

    def __init__(
        self, node: LogNode, tasks: TaskOwner, readers: Executor, codec: EventCodec, channel: BlobChannel,
        *, check_memory: CheckMemory, charge: Charge, snapshot_of: Callable[[int], int], grace_s: float,
    ) -> None:  # fmt: skip
        """``snapshot_of`` returns the tick of the last complete snapshot in a vchannel, as of the start."""
        self._check_memory = check_memory
        self._charge = charge
        self.live = LiveReferences()
        self.live.on_released = self._released
        self.are_references_known: Callable[[], bool] = lambda: True
        self._node = node
        self._tasks = tasks
        self._readers = readers
        self._codec = codec
        self._channel = channel
        self._snapshot_of = snapshot_of
        self._grace_ticks = int(grace_s * 1_000) << LOGICAL_BITS
        self._period_s = min(max(grace_s * _PERIOD_PART, _MIN_PERIOD_S), _MAX_PERIOD_S)
        self.keeper = BlobKeeper(node, self._read_payload)
        self._opening = asyncio.Lock()
        self._no_blobs = BlobState()
        # Set once it is known that the channel does not exist: only ``create`` changes that.
        self._is_absent = False
        self.log: BlobLog | None = None

    def start(self) -> None:
        """Begin to delete idle blobs in the background."""
        self._tasks.keep("blobs", self._run())

    async def open(self, *, creates: bool = False) -> BlobLog | None:
        """Load the blobs at the first use; None if nothing was stored yet, unless ``creates``. Raises DataLossError."""
        if self.log is None and (creates or not self._is_absent):
            async with self._opening:
                await self._open(creates=creates)
        return self.log

    async def _open(self, *, creates: bool) -> None:
        # Another caller may have opened it meanwhile.
        if self.log is not None:
            return
        place = self._channel.find()
        if place is None and creates:
            await self._channel.create()
            place = self._channel.find()
        self._is_absent = place is None
        if place is not None:
            self.log = await self._load(place)

    async def create(self) -> BlobLog:
        """Return the log of the blobs, and create it if it is missing. Raises TidelogServerError."""
        log = await self.open(creates=True)
        assert log is not None
        return log

    async def _load(self, place: Place) -> BlobLog:
        vchannel_id = place.vchannel.vchannel_id
        loaded = await asyncio.get_running_loop().run_in_executor(
            self._readers, load, self._node.store, self._codec, vchannel_id, self._snapshot_of(vchannel_id), BLOBS
        )
        log = BlobLog(self._node, self._tasks, self._codec, place, loaded)
        log.state.attach(self._charge)
        return log

    # -- Steps of mailboxes ----------------------------------------------------------------------------------

    @property
    def state(self) -> BlobState:
        """The blobs. A step may store one after ``create`` has succeeded."""
        return self._no_blobs if self.log is None else self.log.state

    def storer(self, tenant: Tenant, *, may_lower_old: bool = False) -> Storer:
        """Return who stores or counts a blob, with what it may use now."""
        admission = self._node.admission
        free_bytes = admission.free_disk_bytes
        if free_bytes is not None:
            free_bytes = max(0, free_bytes - admission.limits.min_free_disk_bytes)
        percent = admission.limits.max_principal_percent
        return Storer(tenant, percent, free_bytes, may_lower_old, self._check_memory)

    # -- Calls ---------------------------------------------------------------------------------------------

    async def put(
        self, data: bytes, algorithm: KeyAlgorithm = KeyAlgorithm.SHA256, tenant: Tenant = NO_TENANT
    ) -> tuple[bytes, bool]:
        """Store a blob, durably; return its key, and whether ``tenant`` had not stored it before.

        Raises:
            TidelogServerError: It was not stored, or only in part, which has no effect.
        """
        key = await self.key_of(data, algorithm)
        log = await self.create()
        stored = log.state.find(key)
        is_stored, is_created = stored is not None, stored is None or (tenant and tenant not in stored.counts)
        while True:
            for first in range(0, chunks_of(len(data)), _STEP_CHUNKS):
                rest_bytes = 0 if is_stored else len(data) - first * BLOB_CHUNK_BYTES
                size_bytes = SMALL_BYTES + min(_STEP_CHUNKS * BLOB_CHUNK_BYTES, rest_bytes)
                # What the storer may use is decided in the step, after those before it.
                storing = _putting(key, data, first, partial(self.storer, tenant))
                # An event for each chunk, and one for the tenant.
                await log.run(Call(storing, _STEP_CHUNKS + 1, size_bytes, needs_disk=True))
                hit(Failpoint.BLOB_MID_PUT)
                if is_stored:
                    break
            # With a very short grace period its first chunks may be gone already.
            if log.state.find(key) is not None:
                return key, bool(is_created)
            is_stored, is_created = False, True

    async def key_of(self, data: bytes, algorithm: KeyAlgorithm = KeyAlgorithm.SHA256) -> bytes:
        """Return the key of a blob."""
        if len(data) < _HASH_BYTES:
            return algorithm.key_of(data)
        return await asyncio.get_running_loop().run_in_executor(self._readers, algorithm.key_of, data)

    async def update_references(self, key: bytes, delta: int, storer: Storer = NOBODY) -> int:
        """Change the references of a storer, durably; return those that it sees.

        Raises:
            BlobNotExistError: No blob has this key.
            RateLimitRejectedError: Too many tenants count it, or the node has no memory for one more.
        """
        log, _ = await self._find(key)

        def count(step: BlobStep) -> int:
            step.storer = storer
            return step.count(key, delta)

        # An event for its own references, and one for those of no tenant.
        return await log.run(Call(count, 2))

    async def describe(self, key: bytes, tenant: Tenant = NO_TENANT) -> BlobDescription:
        """Return what a tenant knows of a blob. Raises BlobNotExistError."""
        _, blob = await self._find(key)
        return BlobDescription(blob.size_bytes, blob.references_of(tenant), self.live.messages_of(key))

    async def read(self, key: bytes) -> AsyncIterator[tuple[bytes, int]]:
        """Yield the chunks of a blob, each with the size of the blob.

        Raises:
            BlobNotExistError: It is not stored, or was deleted meanwhile.
            DataLossError: A chunk is damaged or missing.
        """
        log, blob = await self._find(key)
        for index in range(len(blob.places)):
            yield await self._chunk(log, key, index), blob.size_bytes

    async def bytes_of(self, key: bytes) -> bytes | None:
        """Return a whole blob; None if it is not stored. Raises DataLossError."""
        try:
            return b"".join([data async for data, _ in self.read(key)])
        except BlobNotExistError:
            return None

    async def _find(self, key: bytes) -> tuple[BlobLog, Blob]:
        """Return the log, and a blob once it is durable. Raises BlobNotExistError."""
        log = await self.open()
        while log is not None and (blob := log.state.find(key)) is not None:
            if (last_tick := max(blob.places)) <= log.place.vchannel.durable_tick:
                return log, blob
            await log.until_durable(last_tick)
        raise BlobNotExistError(key)

    async def _chunk(self, log: BlobLog, key: bytes, index: int) -> bytes:
        while (blob := log.state.find(key)) is not None:
            place = blob.places[index]
            # It may have been deleted, and stored again, since the read began.
            await log.until_durable(place)
            payload = await self._read_payload(log, place)
            if payload is not None:
                return decode_chunk(payload).data
            # A chunk that was copied and trimmed meanwhile is at another place now.
            if log.state.blobs.get(key) is blob and blob.places[index] == place:
                raise DataLossError(
                    f"chunk {index} of blob {key.hex()} is not in the log at tick {place}: restore the server from a "
                    "backup",
                    key=key.hex(), tick=place,
                )  # fmt: skip
        raise BlobNotExistError(key)

    # -- Collection ----------------------------------------------------------------------------------------

    async def _run(self) -> None:
        """Delete idle blobs, and keep the log short. Never returns."""
        while True:
            await asyncio.sleep(self._period_s)
            try:
                await self.keep()
            except TidelogServerError as error:
                # The node stops, or its log has failed: its calls report that.
                _log.warning("blobs_not_kept", problem=error.message)

    async def keep(self) -> None:
        """Delete the blobs that nothing has referred to for the grace period, and keep the log short.

        Raises:
            TidelogServerError: The node stops, or its log failed. What was done is consistent.
        """
        log = await self.open()
        if log is None:
            return
        while self.are_references_known() and await self._collect(log) == _COLLECTED:
            pass
        if self.keeper.is_due(log) or self.keeper.is_mostly_garbage(log):
            await self.keeper.keep(log)

    async def _collect(self, log: BlobLog) -> int:
        """Delete some idle blobs; return their number."""

        def collect(step: BlobStep) -> int:
            until = self._node.shared.oracle.now() - self._grace_ticks
            keys = step.state.take_idle(until, self.live.is_live, _COLLECTED)
            if keys:
                step.collect(keys)
            return len(keys)

        return await log.run(Call(collect, 1, _COLLECTED * _KEY_BYTES))

    async def _read_payload(self, log: BlobLog, tick: int) -> bytes | None:
        return await asyncio.get_running_loop().run_in_executor(
            self._readers, read_event, self._node.store.read, self._codec, log.place.vchannel.vchannel_id, tick
        )

    def _released(self, key: bytes) -> None:
        if self.log is not None:
            self.log.state.released(key, self._node.shared.oracle.now())


def _putting(key: bytes, data: bytes, first: int, storer: Callable[[], Storer]) -> Callable[[BlobStep], None]:
    def execute(step: BlobStep) -> None:
        step.storer = storer()
        step.check_memory(step.new_memory_bytes(key, len(data)))
        step.check_room(key, len(data))
        step.put(key, data, first, _STEP_CHUNKS)

    return execute
