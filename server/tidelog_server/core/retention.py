"""What a channel may forget by itself, and what it tells of what it had to."""

from dataclasses import dataclass
from typing import Final

from tidelog_server.core.errors import InvalidRequestError
from tidelog_server.core.limits import MAX_CUT_GROUPS, MAX_RETENTION_AGE_MS, MAX_RETENTION_BYTES
from tidelog_server.core.ticks import NO_TICK, Tick


@dataclass(frozen=True, slots=True)
class Retention:
    """Bounds of what a channel keeps, over all its vchannels; 0 means without bound.

    Attributes:
        age_ms: Messages that are older may go.
        bytes: The newest so many bytes of columns stay; what is older may go.
        hard_bytes: More than so many never stay, whoever has not read them.
    """

    age_ms: int = 0
    bytes: int = 0
    hard_bytes: int = 0

    def check(self, channel: str = "") -> None:
        """Raise InvalidRequestError if these cannot be the settings of a channel; ``channel`` says of which."""
        whose, values = (f" of channel '{channel}'", {"name": channel}) if channel else ("", {})
        for field, maximum in (
            ("age_ms", MAX_RETENTION_AGE_MS), ("bytes", MAX_RETENTION_BYTES), ("hard_bytes", MAX_RETENTION_BYTES),
        ):  # fmt: skip
            if getattr(self, field) > maximum:
                raise InvalidRequestError(
                    f"retention.{field}{whose} is {getattr(self, field)}, at most {maximum} is allowed, or 0 for none",
                    field=f"retention.{field}", **values,
                )  # fmt: skip
        if 0 < self.hard_bytes < self.bytes:
            raise InvalidRequestError(
                f"retention.hard_bytes{whose} is {self.hard_bytes}, below retention.bytes, which is {self.bytes}: "
                "the hard cap cuts what the softer bound would still keep, so raise it, or lower the other",
                field="retention.hard_bytes", **values,
            )  # fmt: skip


KEEP_FOR_EVER: Final = Retention()


@dataclass(frozen=True, slots=True)
class RetentionChange:
    """Settings to change; those that are None stay as they are. See Retention."""

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
    """What the hard cap has removed from a vchannel before consumer groups had committed it, since its creation.

    Attributes:
        messages, bytes: Counted by whole chunks, so some of them may have been committed.
        until_tick: Every one of them has a smaller tick.
        groups: Those that were behind most at each cut, without repetition, the last ones.
    """

    messages: int = 0
    bytes: int = 0
    until_tick: Tick = NO_TICK
    groups: tuple[str, ...] = ()

    def and_then(self, *, messages: int, size_bytes: int, until_tick: int, group: str) -> "GroupCut":
        """Return this with one more cut."""
        groups = (*(name for name in self.groups if name != group), group)
        return GroupCut(
            self.messages + messages, self.bytes + size_bytes, Tick(max(self.until_tick, until_tick)),
            groups[-MAX_CUT_GROUPS:],
        )  # fmt: skip
