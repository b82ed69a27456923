"""What ``verify`` compares its rows with: what the server, a manifest and the caller say of them."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from pyspark.sql.datasource import InputPartition

from tidelog import Client, VchannelDescription
from tidelog.spark import manifest
from tidelog.spark.archive_plan import ArchivePartition
from tidelog.spark.manifest import ArchivedLane
from tidelog.spark.options import ReadOptions
from tidelog.spark.owners import Owners
from tidelog.spark.pipelines.digest import Digest
from tidelog.spark.pipelines.reports import LaneReport, VerifyReport
from tidelog.spark.pipelines.together import Finding, OpenBroadcast
from tidelog.spark.plan import describe

_EVERYTHING: Final = "*"


@dataclass(frozen=True, slots=True)
class Scope:
    """What is known of the audit from the outside.

    Attributes:
        is_whole: Whether all channels are read whole, so that each transaction is.
        floor: From this tick on no vchannel was trimmed.
        before: The vchannels as the server described them; empty without a server.
        expected: Digests that the manifest has of vchannels, if the archive alone is read.
        broadcasts: Those that have not been acknowledged by all.
    """

    is_whole: bool
    floor: int = 0
    before: Mapping[str, VchannelDescription] = field(default_factory=dict)
    expected: Mapping[str, Digest] = field(default_factory=dict)
    broadcasts: Sequence[OpenBroadcast] = ()


def scope_of(read: ReadOptions) -> Scope:
    """Ask the server, and the manifest if there is one, before the rows are read. Raises as ``verify``."""
    before: dict[str, VchannelDescription] = {}
    broadcasts: list[OpenBroadcast] = []
    if not read.archive_only:
        with Owners(read.connection) as owners:
            described = describe(owners, read)[0]
            for client, part in owners.by_node(described):
                broadcasts += _open_broadcasts(client, {lane.name: lane for lane in part}, read)
            before = {lane.name: lane for lane in described}
    floor = read.begin_tick
    expected: dict[str, Digest] = {}
    if read.archive:
        lanes = manifest.load(read.archive).lanes
        floor = max([floor, *(lane.begin_tick for lane in lanes.values() if lane.begin_tick > lane.created_tick)])
        if read.archive_only and not (read.begin_tick or read.end_tick):
            expected = _archived_digests(lanes)
    else:
        floor = max([floor, *(int(lane.trim_tick) for lane in before.values())])
    is_whole = read.pattern is not None and read.pattern.text == _EVERYTHING
    return Scope(is_whole, floor, before, expected, broadcasts)


def _archived_digests(lanes: Mapping[str, ArchivedLane]) -> dict[str, Digest]:
    """Return what the manifest says of each vchannel of which all lies before the cut of any read."""
    cut = min((lane.end_tick for lane in lanes.values()), default=0)
    return {
        name: Digest.total(Digest.parse(file.digest) for file in lane.files)
        for name, lane in lanes.items()
        if all(file.last_tick < cut for file in lane.files[-1:])
    }


def _open_broadcasts(
    client: Client, lanes: Mapping[str, VchannelDescription], read: ReadOptions
) -> Iterator[OpenBroadcast]:
    """Yield what the server still knows the vchannels of, as far as it must be among what is read."""
    for summary in client.list_broadcasts():
        tick = int(summary.tick)
        if not tick or tick < read.begin_tick or (read.end_tick and tick >= read.end_tick):
            continue
        described = client.describe_broadcast(summary.broadcast_id)
        there = [name for name in (*described.acked, *described.missing) if name in lanes]
        wanted = [name for name in there if read.archive or lanes[name].trim_tick <= tick]
        yield OpenBroadcast(summary.broadcast_id, tick, frozenset(wanted))


def digest_findings(report: VerifyReport, wanted: Sequence[tuple[Digest, str]]) -> Iterator[Finding]:
    """Yield a finding for each digest, called ``digest`` or ``content``, that is not the one expected."""
    for expected, name in wanted:
        found = report.digests.full if name == "digest" else report.digests.content
        if found != expected:
            yield Finding("digest", "", 0, f"the {name} digest is {found}, and {expected} was expected")


def archive_findings(report: VerifyReport, scope: Scope, partitions: Sequence[InputPartition]) -> Iterator[Finding]:
    """Yield a finding for each vchannel that is not what the manifest says, if the archive alone was read."""
    found = {lane.vchannel: lane.digest for lane in report.lanes}
    for name in sorted({each.vchannel for each in partitions if isinstance(each, ArchivePartition)}):
        expected, there = scope.expected.get(name), found.get(name, str(Digest()))
        if expected is not None and there != str(expected):
            text = f"the digest of what the archive has is {there}, and its manifest says {expected}"
            yield Finding("archive", name, 0, text)


def compared(
    report: VerifyReport, scope: Scope, read: ReadOptions
) -> tuple[list[LaneReport], list[Finding], list[str]]:
    """Return the lanes with what the server says of them, what differs, and what changed meanwhile."""
    if read.begin_tick or read.end_tick:
        return list(report.lanes), [], ["the server's counts: only a part was read"]
    with Owners(read.connection) as owners:
        after = {lane.name: lane for lane in describe(owners, read)[0]}
    counted = {lane.vchannel: lane for lane in report.lanes}
    lanes, findings, moved = [], [], []
    for name, before in sorted(scope.before.items()):
        lane = counted.get(name) or LaneReport(name, 0, 0, 0, 0, str(Digest()), str(Digest()))
        if after.get(name) != before:
            moved.append(name)
            lanes.append(lane)
            continue
        lanes.append(replace(lane, described=before.messages))
        if lane.messages != before.messages:
            text = f"{lane.messages} messages were read, and the server says that there are {before.messages}"
            findings.append(Finding("count", name, lane.first_tick, text))
    undecided = [f"the server's counts: written or trimmed meanwhile: {', '.join(moved[:10])}"] if moved else []
    return lanes, findings, undecided
