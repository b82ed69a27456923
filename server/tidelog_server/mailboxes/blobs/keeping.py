"""Keeps the log of the blobs short: snapshots, copies of old chunks, and trims. See ``mailboxes.housekeeping``."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from tidelog_server.core.limits import MIB
from tidelog_server.fold.rows import SNAPSHOTS
from tidelog_server.log.node import LogNode
from tidelog_server.mailboxes.blobs.events import Chunk, decode_chunk, encode_blobs
from tidelog_server.mailboxes.blobs.log import BlobLog
from tidelog_server.mailboxes.blobs.state import Copy
from tidelog_server.mailboxes.blobs.step import BlobStep
from tidelog_server.mailboxes.blobs.trimming import kept_bytes, trim_below
from tidelog_server.mailboxes.snapshot import pages_of

# A snapshot is due after this number of events, and twice as many as there are blobs.
SNAPSHOT_AFTER_CHANGES: Final = 100_000
_SNAPSHOT_RATIO: Final = 2
# The log is cleaned if it has more than twice the bytes of its blobs, and this number more.
CLEAN_ABOVE_BYTES: Final = 16 * MIB
# Chunks that one step copies.
_COPIED: Final = 4

ReadPayload = Callable[[BlobLog, int], Awaitable[bytes | None]]
"""Returns the payload of the event at a tick; None if it was trimmed."""


async def keep_short(node: LogNode, log: BlobLog, read: ReadPayload) -> None:
    """Write a snapshot if the log has grown, and trim the log if much of it is of no use.

    Raises:
        TidelogServerError: The node stops, or its log failed. What was done is consistent.
    """
    if _is_mostly_garbage(node, log):
        await write_snapshot(node, log)
        if _is_mostly_garbage(node, log):
            await copy_old_chunks(log, read)
            await write_snapshot(node, log)
    elif log.changes > max(SNAPSHOT_AFTER_CHANGES, _SNAPSHOT_RATIO * len(log.state.blobs)):
        await write_snapshot(node, log)


async def write_snapshot(node: LogNode, log: BlobLog) -> None:
    """Write a snapshot, and trim what neither it nor a chunk needs."""
    pages: list[bytes] = []
    oldest_place = 0

    def first_page(step: BlobStep) -> int:
        nonlocal oldest_place
        # In the step of the first page, no event comes between the state and its snapshot.
        pages.extend(pages_of(encode_blobs(step.state)))
        oldest_place = step.state.oldest_place(step.base)
        return step.snapshot(pages[0])

    log.changes = 0
    tick = await log.run(first_page, 1)
    for page in pages[1:]:
        await log.run(_writing(page), 1)
    vchannel = log.place.vchannel
    await log.run(lambda _: None, 0, rows=(SNAPSHOTS.row(vchannel.vchannel_id, tick),))
    log.snapshot_tick = tick
    # What lies below was of no use before the snapshot: a restore to a tick after it needs nothing below.
    tick = min(tick, oldest_place)
    if tick > vchannel.trim_tick:
        await trim_below(node, vchannel, tick)


async def copy_old_chunks(log: BlobLog, read: ReadPayload) -> None:
    """Copy every chunk that lies below the present end of the log to the end that it has then."""
    end_tick = log.place.vchannel.submitted_tick + 1
    old = sorted(place for blob in log.state.blobs.values() for place in blob.places if 0 < place < end_tick)
    for begin in range(0, len(old), _COPIED):
        payloads = [(tick, await read(log, tick)) for tick in old[begin : begin + _COPIED]]
        chunks = [(tick, decode_chunk(payload)) for tick, payload in payloads if payload is not None]
        log.state.copied(await log.run(_copying(chunks), len(chunks)))


def _is_mostly_garbage(node: LogNode, log: BlobLog) -> bool:
    return kept_bytes(node, log.place.vchannel) > 2 * log.state.stored_bytes + CLEAN_ABOVE_BYTES


def _writing(page: bytes) -> Callable[[BlobStep], None]:
    def execute(step: BlobStep) -> None:
        step.snapshot(page)

    return execute


def _copying(chunks: Sequence[tuple[int, Chunk]]) -> Callable[[BlobStep], list[Copy]]:
    return lambda step: step.relocate(chunks)
