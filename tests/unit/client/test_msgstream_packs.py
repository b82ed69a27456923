"""Boundaries of packs. Method: an assembler that is fed batches and watermarks by hand."""

from tidelog.msgstream._log.assembler import Grid, PackAssembler, RawPack
from tidelog.msgstream._pursuit import Pursuit
from tidelog_testing.oracles.packs import DROP, FakeBatch, assembled, at, batch

STARTS = {"a/0": at(1_000) - 1, "b/0": at(1_000) - 1}


def spans(packs: list[RawPack]) -> list[tuple[int, int, int]]:
    """Return the first and last millisecond of each pack, and its number of messages."""
    return [
        ((pack.begin_tick + 1) >> 18, pack.end_tick >> 18, sum(piece.end - piece.begin for piece in pack.pieces))
        for pack in packs
    ]


def test_intervals_begin_at_the_epoch_and_end_with_their_last_tick() -> None:
    grid = Grid(200)

    assert grid.end_of(at(0)) == grid.end_of(at(199, 5)) == at(200) - 1
    assert grid.end_before(at(200)) == grid.last_end(at(200) - 1) == at(200) - 1
    assert grid.last_end(at(399, 5)) == at(200) - 1


def test_a_pack_is_an_interval_once_the_watermark_has_passed_it() -> None:
    messages = batch("a/0", at(1_010), [b"x", b"y"])

    assert assembled([messages, at(1_100) - 2], STARTS) == []
    assert spans(assembled([messages, at(1_100) - 1], STARTS)) == [(1_000, 1_099, 2)]


def test_a_later_message_says_that_an_interval_is_complete() -> None:
    packs = assembled([batch("a/0", at(1_010), [b"x"]), batch("b/0", at(1_350), [b"y"])], STARTS)

    assert spans(packs) == [(1_000, 1_099, 1), (1_100, 1_299, 0)]
    assert [pack.next_ticks for pack in packs] == [{"b/0": at(1_350)}] * 2


def test_empty_intervals_that_are_known_at_once_are_one_pack() -> None:
    assert spans(assembled([at(9_999), at(10_150)], STARTS)) == [(1_000, 9_899, 0), (9_900, 10_099, 0)]


def test_a_transaction_is_never_divided_by_the_end_of_an_interval() -> None:
    end = at(1_100) - 1
    txn = [batch("a/0", end - 1, [b"x"] * 3, txn_id=7), batch("b/0", end + 2, [b"y"] * 2, txn_id=7)]

    packs = assembled([*txn, batch("a/0", end + 9, [b"z"]), at(1_200)], STARTS)

    assert [pack.end_tick for pack in packs] == [end + 3, at(1_200) - 1]
    assert [sum(piece.end - piece.begin for piece in pack.pieces) for pack in packs] == [5, 1]


def test_transactions_that_share_batches_stay_together() -> None:
    end = at(1_100) - 1
    one, two = {"txn_id": 7}, {"txn_id": 8}
    events = [batch("a/0", end, [b"x"], **one), batch("a/0", end + 1, [b"x"], **two)]
    events += [batch("b/0", end + 2, [b"y"], **one), batch("b/0", end + 3, [b"y"], **two)]

    [pack, *_] = assembled([*events, at(1_200)], STARTS)

    assert (pack.end_tick, len(pack.pieces)) == (end + 3, 4)


def test_a_plain_batch_is_divided_by_the_ticks_of_its_messages() -> None:
    packs = assembled([batch("a/0", at(1_100) - 2, [b"1", b"2", b"3"]), at(1_200)], STARTS)

    assert spans(packs) == [(1_000, 1_099, 2), (1_100, 1_199, 1)]
    assert packs[0].next_ticks == {"a/0": at(1_100)}


def test_a_drop_of_a_collection_ends_its_pack_at_once() -> None:
    packs = assembled(
        [batch("a/0", at(1_010), [b"drop"], kind=DROP), batch("b/0", at(1_020), [b"x"]), at(1_100)], STARTS
    )

    assert [(pack.end_tick, pack.ends_early) for pack in packs] == [(at(1_010), True), (at(1_100) - 1, False)]


def test_a_broadcast_drop_ends_the_pack_behind_all_its_channels() -> None:
    drops = [batch(name, at(1_010), [b"drop"], kind=DROP) for name in STARTS]

    [pack] = assembled([*drops, at(1_050)], STARTS)

    assert (pack.end_tick, len(pack.pieces)) == (at(1_010), 2)


def test_a_pack_ends_early_when_it_is_full() -> None:
    packs = assembled([batch("a/0", at(1_010), [b"x" * 15] * 5), at(1_100)], STARTS)

    assert [sum(piece.end - piece.begin for piece in pack.pieces) for pack in packs] == [3, 2]
    assert packs[0].end_tick == at(1_010, 2)


def test_a_channel_that_begins_later_gives_nothing_before() -> None:
    starts = {"a/0": at(1_000) - 1, "b/0": at(1_050)}
    events: list[FakeBatch | int] = [batch("b/0", at(1_050), [b"no"]), batch("b/0", at(1_050, 1), [b"yes"]), at(1_100)]

    [pack] = assembled(events, starts)

    assert [piece.batch.payloads[piece.begin] for piece in pack.pieces] == [b"yes"]


def test_what_waits_behind_a_pack_is_bounded_by_one_delivery() -> None:
    assembler = PackAssembler(Grid(100), STARTS, 1 << 20)
    for number in range(1_000):
        assembler.add(batch("a/0", at(1_000 + number), [b"x"]))
        while assembler.next_pack() is not None:
            pass
        assert len(assembler._pieces) <= 101


def test_pursuit_merges_what_is_far_behind_up_to_its_bounds() -> None:
    pursuit = Pursuit[RawPack]()
    packs = assembled(
        [each for ms in range(1_000, 1_500, 100) for each in (batch("a/0", at(ms), [b"x"]), at(ms + 100) - 1)], STARTS
    )
    fed = [pursuit.feed(pack, now_ms=11_250) for pack in packs]

    # The first three packs are more than 10 s behind.
    assert [merged is None for merged in fed] == [True, True, False, False, False]
    assert fed[2] is not None
    assert spans([fed[2]]) == [(1_000, 1_299, 3)]


def test_pursuit_stops_at_a_drop_and_when_it_has_much() -> None:
    far = 1 << 40
    [drop] = assembled([batch("a/0", at(1_010), [b""], kind=DROP), at(1_050)], STARTS)
    full = RawPack(0, at(1_100), (), {}, size_bytes=8 << 20)
    long = RawPack(0, at(60_000), (), {})

    assert [Pursuit[RawPack]().feed(pack, far) for pack in (drop, full, long)] == [drop, full, long]
