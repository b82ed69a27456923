"""Trimming of archived messages: ``archive(..., trim=True)``, after their files were verified."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import SparkSession

from tidelog import Client, Tick, VchannelDescription
from tidelog.spark.archive.manifest import Archive, ArchivedFile
from tidelog.spark.archive.partition import ArchivePartition
from tidelog.spark.errors import ArchiveError
from tidelog.spark.names import channel_of
from tidelog.spark.options import ReadOptions
from tidelog.spark.owners import Owners
from tidelog.spark.patience import patiently
from tidelog.spark.payload_options import AS_THEY_ARE
from tidelog.spark.pipelines.digest import Digests, digest_batch
from tidelog.spark.pipelines.tasks import OnProgress, arrow_schema, over_partitions, reporting
from tidelog.spark.read.partition import Partition
from tidelog.spark.read.plan import created_ticks, describe
from tidelog.spark.ticks import END_OF_TIME


@dataclass(frozen=True, slots=True)
class Trimmed:
    """The result for one vchannel.

    Attributes:
        first_available_tick: First tick of the log after the trim.
        held_by: Holder that prevented a further trim: ``group <name>`` or ``broadcast <id>``; else empty.
    """

    first_available_tick: int
    held_by: str = ""

    def as_record(self) -> dict[str, object]:
        """Return the result as JSON values."""
        return {"first_available_tick": self.first_available_tick, "held_by": self.held_by}


def trim_archived(
    spark: SparkSession, there: Archive, read: ReadOptions, on_progress: OnProgress | None = None
) -> dict[str, Trimmed]:
    """Trim each vchannel of ``read`` up to the end of its archive, and return the results.

    Never trims past a consumer group's position or a broadcast that the vchannel has not acknowledged; the server's
    trim checks neither. First, every file whose messages are still in the log is read and compared with the manifest.

    Raises:
        ArchiveError: A file differs from the manifest. Nothing was trimmed.
    """

    def look() -> list[VchannelDescription]:
        with Owners(read.connection) as owners:
            return _archived_vchannels(owners, read, there)

    def trim_all() -> list[dict[str, Trimmed]]:
        # A trim is idempotent, so it can be retried.
        with Owners(read.connection) as owners:
            vchannels = _archived_vchannels(owners, read, there)
            return [_trim_node(client, part, there) for client, part in owners.by_node(vchannels)]

    vchannels = patiently(read.connection, look)
    files = [
        file for each in vchannels for file in there.vchannels[each.name].files if file.last_tick >= each.trim_tick
    ]
    with reporting(spark, "reading the archive again", on_progress):
        check_files(spark, there, files)
    trimmed = patiently(read.connection, trim_all)
    return {name: each for part in trimmed for name, each in part.items()}


def _archived_vchannels(owners: Owners, read: ReadOptions, there: Archive) -> list[VchannelDescription]:
    """Return the archived vchannels of ``read``, without those of re-created channels."""
    vchannels, channels = describe(owners, read)
    created = created_ticks(channels)
    return [
        each
        for each in vchannels
        if each.name in there.vchannels and there.vchannels[each.name].created_tick == created[channel_of(each.name)]
    ]


def _trim_node(client: Client, vchannels: Sequence[VchannelDescription], there: Archive) -> dict[str, Trimmed]:
    holds = _holds(client, [each.name for each in vchannels])
    trimmed = {}
    for each in vchannels:
        archived = there.vchannels[each.name]
        bound, holder = min((archived.end_tick, ""), holds.get(each.name, (END_OF_TIME, "")))
        if all(file.last_tick < bound for file in archived.files[-1:]):
            # A holder behind the last archived message holds nothing.
            holder = ""
        left = client.trim(each.name, Tick(bound)) if bound > each.trim_tick else each.trim_tick
        trimmed[each.name] = Trimmed(int(left), holder)
    return trimmed


def check_files(spark: SparkSession, there: Archive, files: Sequence[ArchivedFile]) -> None:
    """Read archived files, and compare the number and digests of their messages with the manifest.

    Raises:
        ArchiveError: A file differs, or cannot be read.
    """
    if not files:
        return
    partitions = [ArchivePartition(str(there.root), file) for file in files]
    found = {path: summary for path, *summary in over_partitions(spark, partitions, _summary).collect()}
    for file in files:
        if wrong := file.mismatch(*found[file.path]):
            raise ArchiveError(f"the archived file {wrong}. Nothing was trimmed")


def _summary(partition: Partition) -> Iterator[tuple[Any, ...]]:
    """Yield path, number of messages and digests of an archived file."""
    assert isinstance(partition, ArchivePartition)
    messages, digests = 0, Digests()
    # All columns, because each has its own checksums.
    for batch in partition.read(arrow_schema(), AS_THEY_ARE):
        messages += batch.num_rows
        digests = digests.plus(digest_batch(batch))
    yield partition.file.path, messages, str(digests.full), str(digests.content)


def _holds(client: Client, vchannels: Sequence[str]) -> Mapping[str, tuple[int, str]]:
    """Return, by vchannel, the first tick that a group or a broadcast needs, and its holder."""
    holds: dict[str, tuple[int, str]] = {}

    def hold(vchannel: str, tick: int, holder: str) -> None:
        holds[vchannel] = min(holds.get(vchannel, (END_OF_TIME, "")), (tick, holder))

    channels = dict.fromkeys(channel_of(name) for name in vchannels)
    groups = {group.name for channel in channels for group in client.list_groups(channel=channel)}
    for group in sorted(groups):
        for name, position in client.describe_group(group).positions.items():
            hold(name, int(position.next_tick), f"group {group}")
    for broadcast in client.list_broadcasts():
        if broadcast.tick:
            for name in client.describe_broadcast(broadcast.broadcast_id).missing:
                hold(name, int(broadcast.tick), f"broadcast {broadcast.broadcast_id}")
    return holds
