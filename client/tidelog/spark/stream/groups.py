"""Commits the position of a query to a consumer group, so that its lag is visible like that of consumers.

For monitoring only: a query resumes from its checkpoint.
"""

import logging
from collections.abc import Sequence
from typing import Final

from tidelog import Client, GroupNotFoundError, GroupNotSubscribedError, PositionCommit, TidelogError
from tidelog.spark.names import channel_of
from tidelog.spark.owners import Owners
from tidelog.spark.stream.offsets import Offset

_log = logging.getLogger("tidelog.spark")

_NAMES_PER_CALL: Final = 100


class GroupProgress:
    """Commits positions to a group without being a member. Never raises: logs one warning per batch on failure."""

    def __init__(self, owners: Owners, group: str, vchannels: Sequence[str]) -> None:
        """Store the names. Does no I/O.

        Args:
            owners: Owners of the channels; each node has a group of this name, for its own channels.
            group: Name of the group; created if it does not exist, and subscribed to what the query reads.
            vchannels: Vchannels that the options name; empty if the query reads whole channels.
        """
        self._owners = owners
        self._group = group
        self._vchannels = vchannels
        self._committed: Offset | None = None

    def commit(self, offset: Offset) -> None:
        """Commit ``offset``: everything before it was processed."""
        if offset == self._committed or not any(offset.positions.values()):
            return
        self._committed = offset
        try:
            for client, vchannels in self._owners.of(offset.positions):
                self._commit_at(client, [name for name in vchannels if offset.positions[name]], offset)
        except TidelogError as error:
            _log.warning(
                "the position of consumer group '%s' was not committed at tick %d, so its lag is wrong until the next "
                "commit (the query continues): %s",
                self._group,
                offset.tick,
                error,
            )

    def _commit_at(self, client: Client, vchannels: Sequence[str], offset: Offset) -> None:
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
