"""Backend of streams on a Tidelog server."""

from collections.abc import Iterable, Mapping, Sequence

from tidelog.admin.channel_types import VchannelDescription
from tidelog.append.sizes import measure_all
from tidelog.client import AsyncClient
from tidelog.errors import ChannelNotFoundError, InvalidRequestError
from tidelog.message import Message
from tidelog.msgstream._backends.log import Place, ids_of
from tidelog.msgstream._settings import MAX_APPEND_BYTES
from tidelog.read.positions import EARLIEST, FOLLOW
from tidelog.read.reader_events import OnEvent
from tidelog.read.scan import ScanCore
from tidelog.read.scan_plan import scan_arguments
from tidelog.read.scan_sources import Begin
from tidelog.tick import Tick
from tidelog.txn.together import append_together
from tidelog.types import AppendResult
from tidelog.wire.batch import Batch

_MAX_APPEND_MESSAGES = 10_000


class ScanReader(ScanCore):
    """A following scan with its own start per vchannel, which returns each watermark."""

    @property
    def created_ticks(self) -> Mapping[str, int]:
        """See ``Reader``."""
        return {source.vchannel: source.created_tick for source in self._sources or ()}

    async def step(self) -> Sequence[Batch]:
        """Return the batches of the next response; empty if it has a watermark only. See ``Reader``."""
        if self._received is None:
            await self._receive()
        batches: list[Batch] = []
        while self.has_batch:
            batches.append(self.take())
        if self._received is not None:
            self._finish(self._received)
        return batches


class RmqBackend:
    """Backend on a Tidelog server, through its client."""

    def __init__(self, client: AsyncClient, on_event: OnEvent | None = None) -> None:
        self._client = client
        self._on_event = on_event

    async def resolve(self, channels: Iterable[str]) -> list[str]:
        names = list(channels)
        described = await self._vchannels(names)
        return [described[name].name for name in names]

    async def present(self) -> Tick:
        return Tick((await self._client.allocate_ticks())[0])

    async def last_id(self, channel: str) -> bytes:
        return (await self._vchannels([channel]))[channel].last_tick.message_id

    async def append(self, parts: Mapping[str, Sequence[Message]]) -> Mapping[str, Sequence[bytes]]:
        """Append to all channels or to none.

        A small pack for one channel is one batch, another one a transaction. Retries until the outcome is known.
        """
        if len(parts) == 1:
            [(channel, messages)] = parts.items()
            _, size_bytes = measure_all(messages)
            if size_bytes <= MAX_APPEND_BYTES and len(messages) <= _MAX_APPEND_MESSAGES:
                # Why no transaction: a time-tick stream could not divide it among packs.
                return ids_of({channel: _ticks(await self._client.append_numbered(channel, messages))})
        result = await append_together(self._client, parts)
        return ids_of({channel: _ticks(each) for channel, each in result.results.items()})

    def reader(self, places: Mapping[str, Place], watermark_interval_s: float) -> ScanReader:
        plan = scan_arguments(EARLIEST, FOLLOW, watermark_interval_s=watermark_interval_s, on_event=self._on_event)
        begins = {name: Begin(place.start, place.after_tick) for name, place in places.items()}
        return ScanReader.at(self._client._transport, begins, plan)  # noqa: SLF001 - the streams are a part of the client

    async def destroy(self, channels: Iterable[str]) -> None:
        """Delete channels with all their messages; missing channels are skipped.

        Raises:
            InvalidRequestError: ``channels`` lacks some vchannels of a channel. Nothing was deleted.
        """
        names = set(channels)
        owners = {name.partition("/")[0] for name in names}
        partial = owners - names
        for described in await self._client.describe_channels(partial, ignore_missing=True) if partial else ():
            remaining = [each.name for each in described.vchannels if each.name not in names]
            if remaining:
                raise InvalidRequestError(
                    f"{described.name} has other vchannels, such as {remaining[0]}, and can only be destroyed as a "
                    f"whole: name all of them, or {described.name}",
                    values={"name": described.name},
                )
        await self._client.destroy_channels(sorted(owners), ignore_missing=True)

    async def _vchannels(self, names: Sequence[str]) -> Mapping[str, VchannelDescription]:
        owners = dict.fromkeys(name.partition("/")[0] for name in names)
        described = {each.name: each.vchannels for each in await self._client.describe_channels(owners)}
        return {name: _vchannel(name, described[name.partition("/")[0]]) for name in names}


def _vchannel(name: str, vchannels: Sequence[VchannelDescription]) -> VchannelDescription:
    """Return the vchannel named ``name``. Raises ChannelNotFoundError, InvalidRequestError."""
    if "/" not in name:
        if len(vchannels) == 1:
            return vchannels[0]
        raise InvalidRequestError(
            f"{name} has {len(vchannels)} vchannels: name one, such as {name}/0", values={"name": name}
        )
    for vchannel in vchannels:
        if vchannel.name == name:
            return vchannel
    raise ChannelNotFoundError(
        f"vchannel {name} does not exist: expected one of {vchannels[0].name} to {vchannels[-1].name}",
        values={"name": name},
    )


def _ticks(result: AppendResult) -> Sequence[int]:
    return range(result.first_tick, result.last_tick + 1)
