"""The expectations that ``verify`` compares its rows with: those of the server, of a manifest and of the caller."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from tidelog import Client, VchannelDescription
from tidelog.spark.archive import manifest
from tidelog.spark.archive.partition import ArchivePartition
from tidelog.spark.archive.plan import archived_end, begin_behind, vchannels_of
from tidelog.spark.options import ReadOptions
from tidelog.spark.owners import Owners
from tidelog.spark.pipelines.cross_checks import Finding, OpenBroadcast
from tidelog.spark.pipelines.digest import Digest
from tidelog.spark.pipelines.reports import VchannelReport, VerifyReport
from tidelog.spark.read.partition import Partition
from tidelog.spark.read.plan import describe

_EVERYTHING: Final = "*"
_SHOWN: Final = 3


@dataclass(frozen=True, slots=True)
class Scope:
    """The scope of an audit.

    Attributes:
        is_whole: True if all channels are read whole, so that each transaction is complete.
        floor: Smallest tick from which nothing was trimmed.
        before: The vchannels as the server described them; empty without a server.
        broadcasts: Broadcasts that not all of their vchannels have acknowledged.
        undecided: Parts that are not read, with the reason.
    """

    is_whole: bool
    floor: int = 0
    before: Mapping[str, VchannelDescription] = field(default_factory=dict)
    broadcasts: Sequence[OpenBroadcast] = ()
    undecided: Sequence[str] = ()


def scope_of(read: ReadOptions) -> Scope:
    """Query the server, and the manifest of the archive if set, before the rows are read. Raises as ``verify``."""
    before: dict[str, VchannelDescription] = {}
    broadcasts: list[OpenBroadcast] = []
    if not read.archive_only:
        with Owners(read.connection) as owners:
            described = describe(owners, read)[0]
            for client, part in owners.by_node(described):
                broadcasts += _open_broadcasts(client, {each.name: each for each in part}, read)
            before = {each.name: each for each in described}
    undecided: list[str] = []
    if read.archive:
        floor, undecided = _of_archive(read, before)
    else:
        floor = max((int(each.trim_tick) for each in before.values()), default=0)
    is_whole = read.pattern is not None and read.pattern.text == _EVERYTHING
    return Scope(is_whole, max(floor, read.begin_tick), before, broadcasts, undecided)


def _of_archive(read: ReadOptions, before: Mapping[str, VchannelDescription]) -> tuple[int, list[str]]:
    """Return the smallest tick from which archive and log together are complete, and the parts that are not read."""
    archive = manifest.load(read.archive)
    names = vchannels_of(archive, read) if read.archive_only else [name for name in before if name in archive.vchannels]
    vchannels = {name: archive.vchannels[name] for name in names}
    begins = [each.begin_tick for each in vchannels.values() if each.begin_tick > each.created_tick]
    losses = [end for each in vchannels.values() for _, end in each.lost]
    trims = [
        int(vchannel.trim_tick)
        for name, vchannel in before.items()
        if name not in vchannels or int(vchannel.trim_tick) > begin_behind(vchannel, vchannels[name].end_tick)
    ]
    undecided = []
    if read.archive_only and not read.end_tick:
        end_tick = archived_end(read, [each.end_tick for each in vchannels.values()])
        files = [file.path for each in vchannels.values() for file in each.files if file.first_tick >= end_tick]
        if files:
            text = f"{_some(files, 'archived file')}: after tick {end_tick}, the smallest end of a vchannel's archive"
            undecided.append(text)
    return max([0, *begins, *losses, *trims]), undecided


def _some(names: Sequence[str], what: str) -> str:
    """Return the number of names and the first of them, such as ``2 archived files (a, b)``."""
    more = ", ..." if len(names) > _SHOWN else ""
    return f"{len(names)} {what}{'s' if len(names) > 1 else ''} ({', '.join(names[:_SHOWN])}{more})"


def _open_broadcasts(
    client: Client, vchannels: Mapping[str, VchannelDescription], read: ReadOptions
) -> Iterator[OpenBroadcast]:
    """Yield the unacknowledged broadcasts in the range that is read, with the vchannels on which they must be."""
    for summary in client.list_broadcasts():
        tick = int(summary.tick)
        if not tick or tick < read.begin_tick or (read.end_tick and tick >= read.end_tick):
            continue
        described = client.describe_broadcast(summary.broadcast_id)
        there = [name for name in (*described.acked, *described.missing) if name in vchannels]
        wanted = [name for name in there if read.archive or vchannels[name].trim_tick <= tick]
        yield OpenBroadcast(summary.broadcast_id, tick, frozenset(wanted))


def digest_findings(report: VerifyReport, wanted: Sequence[tuple[Digest, str]]) -> Iterator[Finding]:
    """Yield a finding for each digest, named ``digest`` or ``content``, that differs from the expected one."""
    for expected, name in wanted:
        found = report.digests.full if name == "digest" else report.digests.content
        if found != expected:
            kind = "full" if name == "digest" else name
            yield Finding("digest", "", 0, f"the {kind} digest is {found}, expected {expected}")


def not_compared(partitions: Sequence[Partition]) -> list[str]:
    """Return the archived files that are read in part, so that their digests cannot be compared."""
    files = [each.file.path for each in partitions if isinstance(each, ArchivePartition) and not each.is_whole]
    return [f"digests of {_some(files, 'archived file')}: only a part was read"] if files else []


def compared(
    report: VerifyReport, scope: Scope, read: ReadOptions
) -> tuple[list[VchannelReport], list[Finding], list[str]]:
    """Return the vchannel reports with the server's counts, the differences, and the concurrently changed vchannels."""
    if read.begin_tick or read.end_tick:
        return list(report.vchannels), [], ["the server's counts: only a part was read"]
    with Owners(read.connection) as owners:
        after = {each.name: each for each in describe(owners, read)[0]}
    counted = {each.vchannel: each for each in report.vchannels}
    vchannels, findings, moved = [], [], []
    for name, before in sorted(scope.before.items()):
        vchannel = counted.get(name) or VchannelReport(name, 0, 0, 0, 0, str(Digest()), str(Digest()))
        if after.get(name) != before:
            moved.append(name)
            vchannels.append(vchannel)
            continue
        vchannels.append(replace(vchannel, described=before.messages))
        if vchannel.messages != before.messages:
            text = f"{vchannel.messages} messages were read, but the server reports {before.messages}"
            findings.append(Finding("count", name, vchannel.first_tick, text))
    undecided = [f"the server's counts: written or trimmed meanwhile: {', '.join(moved[:10])}"] if moved else []
    return vchannels, findings, undecided
