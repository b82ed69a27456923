"""Destroys channels whose journal or mailbox was deleted.

A delete commits only the removal of the record of the journal or mailbox, which alone decides whether it exists. The
owner of the channel then destroys the channel: at once if the delete ran on this node, when it learns of it in a
cluster, and at its start after a crash in between.
"""

import asyncio
from collections.abc import Sequence
from typing import Protocol

import structlog

from tidelog_server.channels.catalog import Catalog, ChannelRecord
from tidelog_server.channels.contents import ContentKind
from tidelog_server.channels.directory import Directory
from tidelog_server.channels.lifecycle import Lifecycle
from tidelog_server.core.errors import TidelogServerError

_log = structlog.get_logger()


class ContentRecords(Protocol):
    """The records of all journals, or of all mailboxes."""

    def channel_of(self, name: str) -> str | None:
        """Return the channel of a journal or mailbox; None if it does not exist."""
        ...

    async def refresh(self, names: Sequence[str]) -> None:
        """Reload records from the metadata store."""
        ...


class Orphans:
    """The channels of this node, with contents of one kind, whose contents were deleted. Lives on the event loop.

    Attributes:
        may_exist: Set to make ``run`` look for orphans, because a record was deleted.
    """

    def __init__(
        self, kind: ContentKind, records: ContentRecords, channels: Catalog, directory: Directory, lifecycle: Lifecycle
    ) -> None:
        self._kind = kind
        self._records = records
        self._channels = channels
        self._directory = directory
        self._lifecycle = lifecycle
        self.may_exist = asyncio.Event()
        lifecycle.on_opened[kind] = self.may_exist.set

    async def run(self) -> None:
        """Destroy channels whose contents other nodes delete. Never returns."""
        while True:
            await self.may_exist.wait()
            self.may_exist.clear()
            await self.try_to_destroy()

    async def try_to_destroy(self) -> None:
        """As ``destroy``; an error is logged."""
        try:
            await self.destroy()
        except TidelogServerError as error:
            # The channels cannot be found by name any more; they are destroyed at the next delete, or the next change
            # in a cluster, or the next start.
            _log.warning("channels_not_collected", kind=self._kind.value, error=str(error))

    async def destroy(self) -> None:
        """Destroy all orphans of this node."""
        async with self._directory.changes:
            suspects = [
                record
                for record in self._channels.own.values()
                if record.holds(self._kind) and not record.is_destroying and not self._has_content(record)
            ]
            # In a cluster, this node may know the channel before it knows the content. One commit wrote both, so the
            # metadata store decides.
            await self._records.refresh([record.content_name for record in suspects])
            orphans = [record.name for record in suspects if not self._has_content(record)]
        if orphans:
            await self._lifecycle.destroy(orphans, ignore_missing=True, force=True)

    def _has_content(self, record: ChannelRecord) -> bool:
        return self._records.channel_of(record.content_name) == record.name
