"""What the groups of a node know of channels: which they hold back, and that they are destroyed."""

from collections.abc import Container, Iterable, Sequence

from tidelog_server.core.groups import GroupKey
from tidelog_server.groups.positions import GroupPositions
from tidelog_server.groups.rows import POSITIONS
from tidelog_server.groups.sessions import GroupSessions
from tidelog_server.storage.log_store import LogStore
from tidelog_server.storage.rows import Row


class ChannelPositions:
    """The positions of all groups on channels. Lives on the event loop."""

    def __init__(
        self, store: LogStore, positions: GroupPositions, durable: GroupPositions, sessions: GroupSessions
    ) -> None:
        self._store = store
        self._positions = positions
        self._durable = durable
        self._sessions = sessions

    def positions_on(self, vchannels: Iterable[str]) -> list[GroupKey]:
        """Return the keys of all positions on vchannels."""
        return [GroupKey(group, vchannel) for vchannel in vchannels for group in self._positions.of_vchannel(vchannel)]

    def pinned_tick(self, vchannel_name: str) -> tuple[int, str] | None:
        """Return a vchannel's pinned tick, the smallest next tick of its groups, and that group; None without one."""
        # Both durable and submitted positions count: a group may have just subscribed, or seek back.
        tables = (self._durable, self._positions)
        pins = (table.pinned_tick(vchannel_name) for table in tables)
        return min((pin for pin in pins if pin is not None), default=None)

    def check_channels_unused(self, vchannels: Iterable[str]) -> None:
        """Raise GroupInUseError if a member of any group holds one of these vchannels."""
        for key in self.positions_on(vchannels):
            self._sessions.check_not_held(key.group, (key.vchannel,))

    def stored_on(self, vchannel_ids: Container[int]) -> list[Row]:
        """Return the changes that delete the positions on vchannels, whose removal a crash interrupted."""
        stored = self._store.rows(POSITIONS)
        return [POSITIONS.gone(key) for key, position in stored.items() if position.vchannel_id in vchannel_ids]

    def channels_left(self, vchannels: Sequence[str]) -> list[Row]:
        """Remove the positions on vchannels that are being destroyed, and return the changes that delete them.

        The caller writes them, then calls ``channels_gone``.
        """
        keys = self.positions_on(vchannels)
        changes = [self._positions.remove(key) for key in keys]
        self._sessions.channels_destroyed({vchannel.rpartition("/")[0] for vchannel in vchannels})
        for group in {key.group for key in keys}:
            self._sessions.changed(group)
        return changes

    def channels_gone(self, changes: Iterable[Row]) -> None:
        """Remove positions that the store has deleted. Ordering: after the last commit in flight to them."""
        self._durable.apply(changes)
