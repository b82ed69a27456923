"""Tells a consumer group how far a query is, so that its lag is seen where that of consumers is.

For people only: where a query goes on is in its checkpoint.
"""

import logging
from collections.abc import Sequence
from typing import Final

from tidelog import Client, GroupNotFoundError, GroupNotSubscribedError, PositionCommit, TidelogError
from tidelog.spark.names import channel_of
from tidelog.spark.owners import Owners
from tidelog.spark.stream_offsets import Offset

_log = logging.getLogger("tidelog.spark")

_NAMES_PER_CALL: Final = 100


class GroupProgress:
    """Commits positions to a group, as nobody's member. Never fails: what it cannot do it warns of, once a batch."""

    def __init__(self, owners: Owners, group: str, vchannels: Sequence[str]) -> None:
        """Name the group.

        Args:
            owners: Who has the channels; each node has a group of this name, for its own.
            group: Made if it is missing, and subscribed to what the query reads.
            vchannels: What the query chose to read; empty if it reads whole channels.
        """
        self._owners = owners
        self._group = group
        self._vchannels = vchannels
        self._told: Offset | None = None

    def tell(self, offset: Offset) -> None:
        """Commit that everything before ``offset`` was processed."""
        if offset == self._told or not any(offset.positions.values()):
            return
        self._told = offset
        try:
            for client, vchannels in self._owners.of(offset.positions):
                self._commit(client, [name for name in vchannels if offset.positions[name]], offset)
        except TidelogError as error:
            _log.warning(
                "the consumer group '%s' was not told that the query is at tick %d, so its lag is wrong until it is "
                "(the query goes on): %s",
                self._group,
                offset.tick,
                error,
            )

    def _commit(self, client: Client, vchannels: Sequence[str], offset: Offset) -> None:
        commits = [PositionCommit(self._group, name, offset.positions[name]) for name in vchannels]
        if not commits:
            return
        try:
            client.commit_positions(commits)
        except (GroupNotFoundError, GroupNotSubscribedError):
            names = vchannels if self._vchannels else sorted(set(map(channel_of, vchannels)))
            client.create_group(self._group, if_not_exists=True)
            for begin in range(0, len(names), _NAMES_PER_CALL):
                client.subscribe_group(self._group, names[begin : begin + _NAMES_PER_CALL])
            client.commit_positions(commits)
