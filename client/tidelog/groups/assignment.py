"""A vchannel that a consumer holds: how far it is delivered, processed and committed."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tidelog.errors import GroupFencedError


@dataclass(slots=True)
class Assignment:
    """A vchannel that the consumer holds.

    Attributes:
        epoch: Epoch under which it holds the vchannel.
        delivered_tick: Everything below was delivered to the caller.
        processed_tick: Everything below counts as processed.
        committed_tick: Everything below is committed, or its commit is in flight.
        claimed_tick: Everything below is committed, or claimed by a transaction; the next transaction expects it.
    """

    epoch: int
    delivered_tick: int
    processed_tick: int
    committed_tick: int
    claimed_tick: int


def undo_commit(
    ended: "asyncio.Future[None]", assignments: Mapping[str, Assignment], before: Mapping[str, int]
) -> None:
    """If a commit failed, restore its positions so that the next one includes them."""
    if not ended.cancelled() and ended.exception() is not None:
        for vchannel, assignment in assignments.items():
            assignment.committed_tick = min(assignment.committed_tick, before[vchannel])


def lost_error(group: str, vchannels: Sequence[str]) -> GroupFencedError:
    """Return why a consumer receives no more of ``vchannels``."""
    return GroupFencedError(
        f"group {group} reassigned {', '.join(vchannels)}, or its position was changed there: uncommitted messages "
        "are delivered again, to this consumer or another",
        values={"group": group},
    )
