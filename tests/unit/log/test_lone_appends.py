"""When the event loop syncs a group itself. Method: sequences of groups with chosen times."""

import pytest

from tidelog_server.log.lone_appends import (
    AFTER_GROUPS,
    FAST_SYNC_S,
    LOOK_AROUND_EVERY,
    MAX_LONE_BYTES,
    MAX_SLOW,
    TURNAROUND_S,
    LoneAppends,
)


def syncs_here(
    lone: LoneAppends, *, is_alone: bool = True, appends: int = 1, size_bytes: int = 100, submitted_s: float = 1.0
) -> bool:
    return lone.syncs_here(is_alone=is_alone, appends=appends, size_bytes=size_bytes, submitted_s=submitted_s)


def after(groups: int, *, gives_up: bool = False) -> LoneAppends:
    """Return the state after this number of lone appends, the last of which was answered at time 0."""
    lone = LoneAppends(gives_up=gives_up)
    for number in range(groups):
        syncs_here(lone, submitted_s=number - groups)
        lone.note_settled(number - groups + 0.5, FAST_SYNC_S)
    lone.note_settled(0.0, FAST_SYNC_S)
    return lone


def test_the_loop_syncs_after_enough_lone_appends() -> None:
    assert syncs_here(after(AFTER_GROUPS), size_bytes=MAX_LONE_BYTES, submitted_s=TURNAROUND_S)
    assert not syncs_here(after(AFTER_GROUPS - 1), size_bytes=MAX_LONE_BYTES, submitted_s=TURNAROUND_S)


def test_once_the_loop_syncs_all_but_every_sixteenth_append_are_committed_at_once() -> None:
    at_once = [after(groups).commits_at_once for groups in range(AFTER_GROUPS + 3 * LOOK_AROUND_EVERY)]

    expected = [groups >= AFTER_GROUPS and groups % LOOK_AROUND_EVERY != 0 for groups in range(len(at_once))]
    assert at_once == expected
    assert sum(expected) == 3 * (LOOK_AROUND_EVERY - 1)


@pytest.mark.parametrize(
    ("is_alone", "appends", "size_bytes", "submitted_s"),
    [
        (False, 1, 100, 1.0), (True, 2, 100, 1.0), (True, 1, MAX_LONE_BYTES + 1, 1.0),
        (True, 1, 100, TURNAROUND_S / 2),
    ],
)  # fmt: skip
def test_a_group_that_is_not_lone_begins_the_count_again(
    is_alone: bool,
    appends: int,
    size_bytes: int,
    submitted_s: float,
) -> None:
    lone = after(AFTER_GROUPS + 10)

    assert not syncs_here(lone, is_alone=is_alone, appends=appends, size_bytes=size_bytes, submitted_s=submitted_s)
    assert [syncs_here(lone) for _ in range(AFTER_GROUPS + 1)] == [False] * AFTER_GROUPS + [True]


@pytest.mark.parametrize("sync_s", [None, 1.1 * FAST_SYNC_S])
def test_a_slow_or_missing_sync_begins_the_count_again(sync_s: float | None) -> None:
    lone = after(AFTER_GROUPS + 10)

    lone.note_settled(0.0, sync_s)

    assert not syncs_here(lone)


def synced_here(lone: LoneAppends, slow: list[bool]) -> list[bool]:
    """Return for each of some lone appends, slow or fast, whether the event loop syncs it."""
    found = []
    for number, is_slow in enumerate(slow, 1):
        found.append(syncs_here(lone, submitted_s=number))
        lone.note_settled(number + 0.5, 2 * FAST_SYNC_S if is_slow else FAST_SYNC_S)
    return found


def test_slow_syncs_that_are_given_up_end_it_only_if_most_are_slow() -> None:
    few = [number % 4 == 0 for number in range(100)]
    assert 0.25 < MAX_SLOW
    assert all(synced_here(after(AFTER_GROUPS, gives_up=True), few))
    lone = after(AFTER_GROUPS, gives_up=True)
    most = synced_here(lone, [True] * 100)
    assert most == sorted(most, reverse=True)
    assert 2 < sum(most) < 32
    # And back, when they are fast again.
    again = synced_here(lone, [False] * 100)
    assert again == sorted(again)
    assert 50 < sum(again) < 100
