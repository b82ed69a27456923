"""Retention settings of a channel, and the record of data that the hard cap removed."""

from dataclasses import dataclass
from typing import Final

from tidelog_server.core.errors import InvalidRequestError
from tidelog_server.core.ticks import NO_TICK, Tick

# Sums of ages or sizes stay far below 64 bits; an age of 2^43 ms is 278 years.
MAX_RETENTION_AGE_MS: Final = 1 << 43
MAX_RETENTION_BYTES: Final = 1 << 60
# Groups that a vchannel remembers whose unconsumed data the hard cap removed.
MAX_CUT_GROUPS: Final = 16


@dataclass(frozen=True, slots=True)
class Retention:
    """Retention of a channel, over all its vchannels; 0 means unlimited.

    Attributes:
        age_ms: Age from which messages may be removed.
        bytes: Bytes of columns to retain; older data may be removed.
        hard_bytes: Hard cap in bytes: beyond this, the oldest data is removed even if a group has not consumed it.
    """

    age_ms: int = 0
    bytes: int = 0
    hard_bytes: int = 0

    def check(self, channel: str = "") -> None:
        """Raise InvalidRequestError if a setting is invalid; the error names ``channel`` unless it is empty."""
        whose, values = (f" of channel '{channel}'", {"name": channel}) if channel else ("", {})
        for field, maximum in (
            ("age_ms", MAX_RETENTION_AGE_MS), ("bytes", MAX_RETENTION_BYTES), ("hard_bytes", MAX_RETENTION_BYTES),
        ):  # fmt: skip
            if getattr(self, field) > maximum:
                raise InvalidRequestError(
                    f"retention.{field}{whose} is {getattr(self, field)}, at most {maximum} is allowed, or 0 to unset",
                    field=f"retention.{field}", **values,
                )  # fmt: skip
        if 0 < self.hard_bytes < self.bytes:
            raise InvalidRequestError(
                f"retention.hard_bytes{whose} is {self.hard_bytes}, below retention.bytes, which is {self.bytes}: "
                "the hard cap would remove what retention.bytes keeps; raise it, or lower the other",
                field="retention.hard_bytes", **values,
            )  # fmt: skip


KEEP_FOR_EVER: Final = Retention()


@dataclass(frozen=True, slots=True)
class RetentionChange:
    """Settings to change; None leaves a setting unchanged. See Retention."""

    age_ms: int | None = None
    bytes: int | None = None
    hard_bytes: int | None = None

    def applied_to(self, old: Retention) -> Retention:
        """Return the settings after the change."""
        return Retention(
            old.age_ms if self.age_ms is None else self.age_ms,
            old.bytes if self.bytes is None else self.bytes,
            old.hard_bytes if self.hard_bytes is None else self.hard_bytes,
        )


@dataclass(frozen=True, slots=True)
class GroupCut:
    """Data that the hard cap removed from a vchannel before all consumer groups had committed it, since its creation.

    Attributes:
        messages, bytes: Counted in whole chunks, so part of it may have been committed.
        until_tick: Exclusive upper bound of the removed ticks.
        groups: The last MAX_CUT_GROUPS distinct groups that lagged most at a cut.
    """

    messages: int = 0
    bytes: int = 0
    until_tick: Tick = NO_TICK
    groups: tuple[str, ...] = ()

    def and_then(self, *, messages: int, size_bytes: int, until_tick: int, group: str) -> "GroupCut":
        """Return the record with one more cut added."""
        groups = (*(name for name in self.groups if name != group), group)
        return GroupCut(
            self.messages + messages, self.bytes + size_bytes, Tick(max(self.until_tick, until_tick)),
            groups[-MAX_CUT_GROUPS:],
        )  # fmt: skip
