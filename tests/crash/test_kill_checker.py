"""The judge of the crash tests fails on each planted fault, and only then.

Method: a small correct run, then the same run with one fault.
"""

import pytest

from tidelog_testing.oracles.history import Following, History, Kind, Row, check

Rows = dict[str, list[Row]]


def a_run() -> tuple[History, Rows]:
    """Three producers on two vchannels: acknowledged batches, one unknown and in the log, one unknown and absent."""
    history = History()
    log: Rows = {"a/0": [], "a/1": []}

    def append(producer: str, vchannel: str, count: int, first_tick: int, *, is_acknowledged: bool = True) -> None:
        intent = history.intend(producer, vchannel, count)
        if first_tick:
            log[vchannel] += [(first_tick + index, value) for index, value in enumerate(intent.values())]
        if is_acknowledged:
            intent.acknowledge(first_tick)

    append("p", "a/0", 3, 100)
    append("q", "a/1", 2, 103)
    append("p", "a/0", 2, 105)
    append("r", "a/0", 2, 107, is_acknowledged=False)
    append("r", "a/1", 2, 0, is_acknowledged=False)
    append("q", "a/1", 1, 200)
    history.intend("q", "a/0", 4).refuse()
    return history, log


def kinds_after(history: History, log: Rows) -> set[Kind]:
    return {anomaly.kind for anomaly in check(history, log)}


def test_a_log_that_keeps_all_promises_has_no_anomalies() -> None:
    assert check(*a_run()) == []


def test_a_lost_message_is_found() -> None:
    history, log = a_run()
    del log["a/0"][4]
    assert kinds_after(history, log) == {Kind.LOST}


def test_a_lost_tail_is_found() -> None:
    history, log = a_run()
    log["a/1"].pop()
    assert kinds_after(history, log) == {Kind.LOST}


def test_a_duplicate_is_found() -> None:
    history, log = a_run()
    log["a/1"].append((300, "q:0"))
    assert Kind.DUPLICATE in kinds_after(history, log)


def test_a_message_at_another_tick_is_found() -> None:
    history, log = a_run()
    log["a/1"][-1] = (201, "q:2")
    assert kinds_after(history, log) == {Kind.MOVED}


def test_messages_that_changed_places_within_a_batch_are_found() -> None:
    history, log = a_run()
    log["a/0"][0], log["a/0"][1] = (100, "p:1"), (101, "p:0")
    assert kinds_after(history, log) == {Kind.MOVED}


def test_an_unknown_batch_that_is_there_in_part_is_found() -> None:
    history, log = a_run()
    log["a/0"].remove((108, "r:1"))
    assert kinds_after(history, log) == {Kind.TORN}


def test_a_message_that_nobody_wrote_is_found() -> None:
    history, log = a_run()
    log["a/0"].append((400, "z:0"))
    assert kinds_after(history, log) == {Kind.PHANTOM}


def test_a_message_in_another_vchannel_is_found() -> None:
    history, log = a_run()
    log["a/0"].append(log["a/1"].pop())
    assert kinds_after(history, log) == {Kind.PHANTOM}


def test_a_refused_batch_that_is_there_is_found() -> None:
    history, log = a_run()
    log["a/0"] += [(500, "q:3"), (501, "q:4"), (502, "q:5"), (503, "q:6")]
    assert kinds_after(history, log) == {Kind.REFUSED}


def test_ticks_that_fall_are_found() -> None:
    history, log = a_run()
    log["a/0"][-2:] = [(50, "r:0"), (51, "r:1")]
    assert kinds_after(history, log) == {Kind.TICK_REGRESSION, Kind.REAL_TIME_ORDER}


def test_a_producers_appends_in_another_order_are_found() -> None:
    history, log = a_run()
    first, second = history.appends[0], history.appends[2]
    first.first_tick, second.first_tick = 102, 100
    log["a/0"][:5] = [(100, "p:3"), (101, "p:4"), (102, "p:0"), (103, "p:1"), (104, "p:2")]
    assert Kind.SEND_ORDER in kinds_after(history, log)


def test_an_append_placed_before_one_that_was_acknowledged_earlier_is_found() -> None:
    history, log = a_run()
    history.appends[5].first_tick = 99
    log["a/1"] = [(99, "q:2"), (103, "q:0"), (104, "q:1")]
    assert Kind.REAL_TIME_ORDER in kinds_after(history, log)


def test_a_trim_without_an_answer_may_have_happened_whole_or_not_at_all() -> None:
    history, log = a_run()
    history.trims["a/0"].tried_tick = 102
    assert check(history, log) == []
    del log["a/0"][:2]
    assert check(history, log) == []
    del log["a/0"][0]
    assert kinds_after(history, log) == {Kind.LOST}


def test_messages_below_an_acknowledged_trim_are_found() -> None:
    history, log = a_run()
    history.trims["a/0"].tried_tick = history.trims["a/0"].done_tick = 102
    assert kinds_after(history, log) == {Kind.TRIMMED}


def a_following(log: Rows) -> Following:
    following = Following(["a/0", "a/1"])
    for tick, value, vchannel in sorted((tick, value, name) for name, rows in log.items() for tick, value in rows):
        following.saw(vchannel, tick, value)
    following.told(250)
    return following


def test_a_follower_that_saw_everything_has_no_anomalies() -> None:
    _, log = a_run()
    assert a_following(log).check(log) == []


def test_a_follower_need_not_have_seen_what_came_after_its_watermark() -> None:
    _, log = a_run()
    following = a_following(log)
    log["a/0"].append((251, "p:5"))
    assert following.check(log) == []


@pytest.mark.parametrize(
    ("kind", "row"), [(Kind.VANISHED, (260, "p:5")), (Kind.SKIPPED, (240, "p:5")), (Kind.LATE, (240, "p:5"))]
)
def test_what_a_follower_must_not_see_is_found(kind: Kind, row: Row) -> None:
    _, log = a_run()
    following = a_following(log)
    if kind is not Kind.VANISHED:
        log["a/0"].append(row)
    if kind is not Kind.SKIPPED:
        following.saw("a/0", *row)
    assert {anomaly.kind for anomaly in following.check(log)} == {kind}
