"""The catalog: what the metadata store knows about channels.

Keys under the root (see FORMAT.md)::

    <root>/timestamp              the oracle's bound, written by log.oracle
    <root>/next_vchannel_id       the next free vchannel id, decimal
    <root>/next_channel_number    the next number for a channel that the server names, decimal
    <root>/channel/<name>         one record, JSON
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Final

from tidelog_server.core.errors import ChannelAlreadyExistsError, DataLossError, RateLimitRejectedError
from tidelog_server.core.limits import MAX_CHANGES_PER_COMMIT, MAX_CHANNELS, MAX_CHANNELS_PER_REQUEST, MAX_VCHANNELS
from tidelog_server.core.ticks import Tick
from tidelog_server.metadata.store import Change, Delete, MetadataStore, Put, Versioned

# In the metadata since format 1.
_RECORD_VERSION: Final = 1
assert MAX_CHANNELS_PER_REQUEST + 2 <= MAX_CHANGES_PER_COMMIT


@dataclass(frozen=True, slots=True)
class Owner:
    """Who created a channel, for people who find it later."""

    role: str = ""
    address: str = ""
    description_text: str = ""


@dataclass(frozen=True, slots=True)
class ChannelRecord:
    """What is remembered about a channel.

    Attributes:
        name: Its name.
        vchannel_ids: Numbers of its vchannels in the log store, by index; never used again.
        owner: Who created it.
        created_tick: When.
        is_destroying: Set before its entries are removed; a restart goes on with the removal.
    """

    name: str
    vchannel_ids: tuple[int, ...]
    owner: Owner
    created_tick: Tick
    is_destroying: bool = False

    def encode(self) -> bytes:
        """Return the record as it is stored."""
        return json.dumps({"version": _RECORD_VERSION, **asdict(self)}, separators=(",", ":")).encode()

    @classmethod
    def decode(cls, key: str, value: bytes) -> "ChannelRecord":
        """Return the record that ``encode`` made. Raises DataLossError if it is none."""
        try:
            fields = json.loads(value)
            version = fields.pop("version")
            fields["owner"] = Owner(**fields["owner"])
            fields["vchannel_ids"] = tuple(fields["vchannel_ids"])
            record = cls(**fields)
        except (ValueError, TypeError, KeyError) as error:
            raise DataLossError(f"the metadata record {key} cannot be read ({error})", key=key) from error
        if version != _RECORD_VERSION:
            raise DataLossError(f"the metadata record {key} has the unknown version {version}", key=key)
        return record


class Catalog:
    """Channel records, with the two counters that new ones draw from. Changes are serialised by the caller."""

    def __init__(self, metadata: MetadataStore, root: str) -> None:
        self._metadata = metadata
        self._root = root
        self._records: dict[str, ChannelRecord] = {}
        self._revisions: dict[str, int] = {}
        self._next_vchannel_id = 1
        self._next_channel_number = 1

    @property
    def oracle_key(self) -> str:
        """Where the tick oracle keeps its bound."""
        return f"{self._root}/timestamp"

    async def open(self) -> None:
        """Load everything. Raises DataLossError for a record that cannot be read."""
        prefix = self._channel_key("")
        for key, found in (await self._metadata.list(prefix)).items():
            record = ChannelRecord.decode(key, found.value)
            self._records[record.name] = record
            self._revisions[record.name] = found.revision
        self._next_vchannel_id = self._number(await self._metadata.get(self._vchannel_id_key))
        self._next_channel_number = self._number(await self._metadata.get(self._channel_number_key))

    def records(self) -> dict[str, ChannelRecord]:
        """Return all records by name, those being destroyed included."""
        return self._records

    async def create(
        self, names: Sequence[str], number: int, vchannels: int, owner: Owner, created_tick: Tick
    ) -> list[ChannelRecord]:
        """Add channels under ``names``, or ``number`` of them under free names; durable, all or none.

        Raises:
            ChannelAlreadyExistsError: A name is taken. Nothing happened.
            RateLimitRejectedError: The node has too many channels or vchannels. Nothing happened.
        """
        for name in names:
            if name in self._records:
                raise ChannelAlreadyExistsError(name)
        wanted = list(names) or self._free_names(number)
        self._check_room(len(wanted), vchannels)
        first_id = self._next_vchannel_id
        records = [
            ChannelRecord(name, tuple(range(begin, begin + vchannels)), owner, created_tick)
            for name, begin in zip(wanted, range(first_id, first_id + vchannels * len(wanted), vchannels), strict=True)
        ]
        next_id = first_id + vchannels * len(wanted)
        changes: list[Change] = [Put(self._channel_key(record.name), record.encode(), 0) for record in records]
        changes.append(Put(self._vchannel_id_key, str(next_id).encode(), None))
        if not names:
            changes.append(Put(self._channel_number_key, str(self._next_channel_number).encode(), None))
        self._apply(records, await self._metadata.commit(changes))
        self._next_vchannel_id = next_id
        return records

    async def mark_destroying(self, names: Sequence[str]) -> list[ChannelRecord]:
        """Note that the removal of channels has begun; durable, all or none."""
        records = [replace(self._records[name], is_destroying=True) for name in names]
        changes = [
            Put(self._channel_key(record.name), record.encode(), self._revisions[record.name]) for record in records
        ]
        self._apply(records, await self._metadata.commit(changes))
        return records

    async def remove(self, names: Sequence[str]) -> None:
        """Forget channels whose entries are gone; durable, all or none."""
        await self._metadata.commit([Delete(self._channel_key(name), self._revisions[name]) for name in names])
        for name in names:
            del self._records[name], self._revisions[name]

    def _apply(self, records: Sequence[ChannelRecord], revision: int) -> None:
        for record in records:
            self._records[record.name] = record
            self._revisions[record.name] = revision

    def _free_names(self, number: int) -> list[str]:
        names: list[str] = []
        while len(names) < number:
            name = f"channel-{self._next_channel_number}"
            self._next_channel_number += 1
            if name not in self._records:
                names.append(name)
        return names

    def _check_room(self, channels: int, vchannels: int) -> None:
        present = sum(len(record.vchannel_ids) for record in self._records.values())
        for unit, total, maximum in (
            ("channels", len(self._records) + channels, MAX_CHANNELS),
            ("vchannels", present + channels * vchannels, MAX_VCHANNELS),
        ):
            if total > maximum:
                raise RateLimitRejectedError(
                    f"the node would have {total} {unit}, at most {maximum} are allowed: destroy some first",
                    **{unit: total, f"max_{unit}": maximum},
                )

    @staticmethod
    def _number(found: Versioned | None) -> int:
        return int(found.value) if found else 1

    def _channel_key(self, name: str) -> str:
        return f"{self._root}/channel/{name}"

    @property
    def _vchannel_id_key(self) -> str:
        return f"{self._root}/next_vchannel_id"

    @property
    def _channel_number_key(self) -> str:
        return f"{self._root}/next_channel_number"
