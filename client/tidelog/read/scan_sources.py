"""The vchannels of a scan: begin, progress and resume position of each."""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Self

from tidelog.errors import InvalidRequestError
from tidelog.read import protocol as _requests
from tidelog.read.positions import EARLIEST, At
from tidelog.read.scan_plan import ScanArguments, floor_tick
from tidelog.tick import Tick
from tidelog.v1 import wal_service_pb2

_AFTER: tuple[str, ...] = ("after", "after_message_id")


@dataclass(frozen=True, slots=True)
class Begin:
    """The begin of a scan on one vchannel.

    Attributes:
        start: The start to request for this vchannel; None to use the policy of the whole request.
        floor_tick: The greatest tick that is known to be excluded; 0 if only the server knows.
        is_latest: Whether the scan begins at the end of the log, whose tick is unknown until the server answers.
    """

    start: At | None
    floor_tick: int
    is_latest: bool = False

    @classmethod
    def after(cls, tick: int) -> Self:
        """Return the begin after a position; 0 means the first message that was not trimmed."""
        return cls(At.after(tick) if tick else EARLIEST, tick)

    @classmethod
    def tick(cls, tick: int) -> Self:
        """Return the begin at a tick, inclusive."""
        return cls(At.tick(tick), max(0, tick - 1))


@dataclass(slots=True)
class Source:
    """One vchannel of a scan: what was received from the server, and what was delivered to the caller."""

    vchannel: str
    begin: Begin
    received_tick: int = 0
    delivered_tick: int = 0
    # Creation tick of the channel; 0 until the server has answered. The scan never continues in another channel.
    created_tick: int = 0
    # Whether its batches are not wanted any more.
    is_dropped: bool = False

    def resume_tick(self, received_watermark: int) -> int:
        """Return the tick up to which everything was received; 0 while it is not beyond the begin."""
        resume_tick = max(self.received_tick, received_watermark)
        # A scan may start in the future, which the watermark has not reached.
        return resume_tick if resume_tick > self.begin.floor_tick else 0

    def position(self, watermark: int) -> Tick | None:
        """Return the tick up to which everything was delivered; None if it is unknown."""
        tick = Tick(max(self.delivered_tick, self.begin.floor_tick, watermark))
        return None if not tick and self.begin.is_latest else tick

    def to_wire(self, received_watermark: int) -> wal_service_pb2.ScanSource:
        """Return the source as the protocol message of a request."""
        resume_tick = self.resume_tick(received_watermark)
        start = At.after(resume_tick) if resume_tick else self.begin.start
        policy = None if start is None else _requests.deliver_policy(start)
        return wal_service_pb2.ScanSource(vchannel=self.vchannel, policy=policy, created_tick=self.created_tick)


@dataclass(frozen=True, slots=True)
class Targets:
    """What a scan reads.

    Attributes:
        vchannels: Full names of its vchannels.
        whole: Channels of which these are all vchannels, each with the numbers of vchannels that it had before; the
            scan also reads those that are added later.
    """

    vchannels: Sequence[str]
    whole: Mapping[str, Collection[int]] = field(default_factory=dict)

    def of(self, vchannels: Sequence[str]) -> Self:
        """Return those of some of the vchannels, with their channels."""
        channels = {name.partition("/")[0] for name in vchannels}
        return type(self)(vchannels, {name: sizes for name, sizes in self.whole.items() if name in channels})

    async def resolved(self) -> Self:
        """Return itself: nothing is left to look up."""
        return self


def sources_of(plan: ScanArguments, targets: Targets) -> list[Source]:
    """Return the sources of a new scan.

    Raises:
        InvalidRequestError: The plan's positions lack a vchannel, or it starts after one tick on several vchannels.
    """
    created, vchannels = plan.created_ticks, targets.vchannels
    if plan.positions is not None:
        return [
            Source(name, Begin.after(tick), created_tick=created.get(name, 0))
            for name, tick in _complete(plan, plan.positions, targets)
        ]
    if len(vchannels) > 1 and plan.start.kind in _AFTER:
        raise InvalidRequestError(
            f"the scan starts after one tick on {len(vchannels)} vchannels, expected one vchannel: the copies of a "
            "broadcast have the same tick, so some of them could be skipped. Resume with start=scan.positions, or use "
            "At.tick(tick + 1) to skip everything up to the tick",
            values={"field": "start"},
        )
    begin = Begin(None, floor_tick(plan.start), is_latest=plan.start.kind == "latest")
    return [Source(name, begin, created_tick=created.get(name, 0)) for name in vchannels]


def added_sources(
    plan: ScanArguments, sources: Sequence[Source], grown: Iterable[wal_service_pb2.ChannelSize]
) -> list[Source]:
    """Return the sources for the vchannels that were added to channels since a scan of ``sources`` was opened.

    They begin at their first message, or at the plan's start if that is a tick or a time.
    """
    known = {source.vchannel: source for source in sources}
    floor = floor_tick(plan.start)
    if plan.positions is not None or plan.start.kind in ("earliest", "latest"):
        begin = Begin.after(0)
    else:
        # Inclusive: the copies of a broadcast have one tick, and the one that was read is on another vchannel.
        begin = Begin.tick(floor) if plan.start.kind in _AFTER else Begin(plan.start, floor)
    return [
        Source(name, begin, created_tick=known[f"{size.name}/0"].created_tick)
        for size in grown
        for index in range(size.vchannels)
        if (name := f"{size.name}/{index}") not in known
    ]


def sizes_of(sources: Iterable[Source], whole: Collection[str]) -> Iterator[wal_service_pb2.ChannelSize]:
    """Yield the number of vchannels of each whole channel, as the sources have it."""
    counts = Counter(channel for source in sources if (channel := source.vchannel.partition("/")[0]) in whole)
    for name, vchannels in counts.items():
        yield wal_service_pb2.ChannelSize(name=name, vchannels=vchannels)


def _complete(plan: ScanArguments, positions: Mapping[str, int], targets: Targets) -> list[tuple[str, int]]:
    """Return each vchannel with its position: 0 for those that were added to a whole channel since.

    The positions are then those of all vchannels that the channel had before.
    """
    counts = Counter(name.partition("/")[0] for name in positions)

    def is_new(name: str) -> bool:
        channel, _, index = name.partition("/")
        if counts[channel] in targets.whole.get(channel, ()) and counts[channel] <= int(index):
            return True
        # A channel that matches a pattern may have been created after the scan that had these positions.
        return any(each.covers(channel) for each in plan.patterns)

    missing = [name for name in targets.vchannels if name not in positions and not is_new(name)]
    if missing:
        shown = ", ".join(missing[:3]) + (" and more" if len(missing) > 3 else "")
        raise InvalidRequestError(
            f"the start has no position for {shown}, expected one for each vchannel of the scan: add it, 0 for the "
            "first available message",
            values={"field": "start", "names": " ".join(missing)},
        )
    return [(name, positions.get(name, 0)) for name in targets.vchannels]
