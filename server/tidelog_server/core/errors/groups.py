"""Errors of consumer groups."""

from tidelog_server.core.errors import TidelogServerError


class GroupNotExistError(TidelogServerError, reason="GROUP_NOT_EXIST"):
    """The consumer group does not exist."""

    def __init__(self, group: str) -> None:
        super().__init__(
            f"group '{group}' does not exist: create it with `tidelog group create {group}`, or correct the name",
            group=group,
        )


class GroupAlreadyExistsError(TidelogServerError, reason="GROUP_ALREADY_EXISTS"):
    """The consumer group already exists."""

    def __init__(self, group: str) -> None:
        super().__init__(f"group '{group}' already exists: use it, or choose another name", group=group)


class GroupInUseError(TidelogServerError, reason="GROUP_IN_USE"):
    """Members of the group consume the channels to be changed."""

    def __init__(self, group: str, members: int, problem: str) -> None:
        super().__init__(f"group '{group}' has {members} members that {problem}", group=group, members=members)


class GroupNotSubscribedError(TidelogServerError, reason="GROUP_NOT_SUBSCRIBED"):
    """The group is not subscribed to the channel."""

    def __init__(self, group: str, vchannel: str) -> None:
        super().__init__(
            f"group '{group}' is not subscribed to {vchannel}: subscribe it first with "
            f"`tidelog group create {group} {vchannel.partition('/')[0]} --if-not-exists`",
            group=group, vchannel=vchannel,
        )  # fmt: skip


class GroupMemberFencedError(TidelogServerError, reason="GROUP_MEMBER_FENCED"):
    """The member does not hold the vchannel; with an empty ``vchannel``, it is no longer a member of the group."""

    def __init__(self, *, group: str, vchannel: str, member_id: str, epoch: int) -> None:
        problem = (
            f"member '{member_id}' of group '{group}' does not hold {vchannel} under epoch {epoch}: another member may "
            "process it now, so stop processing it"
            if vchannel
            else f"'{member_id}' is no longer a member of group '{group}': its lease expired, the group was destroyed, "
            "or another call joined as this member; join again"
        )
        super().__init__(
            problem,
            group=group, vchannel=vchannel, member_id=member_id, epoch=epoch,
        )  # fmt: skip


class GroupPositionMovedError(TidelogServerError, reason="GROUP_POSITION_MOVED"):
    """The group's position is not the one that a commit expects."""

    def __init__(self, *, group: str, vchannel: str, expected_tick: int, next_tick: int) -> None:
        super().__init__(
            f"group '{group}' is at tick {next_tick} of {vchannel}, not at {expected_tick}: the messages in between "
            "were skipped, or processed by another consumer; resume at the group's position",
            group=group, vchannel=vchannel, expected_tick=expected_tick, next_tick=next_tick,
        )  # fmt: skip
