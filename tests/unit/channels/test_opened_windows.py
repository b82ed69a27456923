"""On which vchannels a producer is opened. Method: the pure decision, and the bytes of the rows."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog_server.channels.opened_windows import opened_windows
from tidelog_server.core.callers import NO_TENANT, TENANT_BYTES
from tidelog_server.core.errors import InvalidRequestError
from tidelog_server.core.errors.forgotten import ProducerForgottenError
from tidelog_server.core.producers import RESULT_BYTES, ProducerWindow, Result
from tidelog_server.log.rows import WINDOWS

windows = st.builds(
    ProducerWindow,
    epoch=st.integers(0, 1 << 40),
    last_sequence=st.integers(64, 1 << 40),
    results=st.binary(min_size=0, max_size=3 * RESULT_BYTES).map(
        lambda some: some[: len(some) // RESULT_BYTES * RESULT_BYTES]
    ),
    tenant=st.just(NO_TENANT) | st.binary(min_size=TENANT_BYTES, max_size=TENANT_BYTES).filter(any),
    vchannels=st.integers(0, 1_024),
    last_call=st.integers(0, 1 << 40),
).map(lambda window: window if window.vchannels else window._replace(last_call=0))


def opened(
    known: Sequence[ProducerWindow | None], *, is_channel: bool = True, forgotten: bool = False, accept: bool = False
) -> list[ProducerWindow]:
    names = [f"orders/{index}" for index in range(len(known))]
    may_be = [forgotten and window is None for window in known]
    return opened_windows(names, "p", known, NO_TENANT, may_be, is_channel=is_channel, accept_forgotten=accept)


def test_a_new_producer_is_on_all_vchannels_and_their_number_is_recorded() -> None:
    assert opened([None, None, None]) == [ProducerWindow(1, vchannels=3)] * 3


def test_a_producer_stays_on_the_vchannels_that_it_began_with() -> None:
    first = opened([None, None])
    used = [first[0].extended(Result(5, 1, 1, True), call=1), first[1]]

    again = opened([*used, None, None])

    assert [(window.epoch, window.vchannels, window.last_sequence, window.last_call) for window in again] == [
        (2, 2, 1, 1), (2, 2, 0, 0),
    ]  # fmt: skip


def test_a_producer_of_the_only_vchannel_stays_there_when_the_channel_grows() -> None:
    [alone] = opened([None])
    assert alone == ProducerWindow(1)

    assert opened([alone, None, None]) == [ProducerWindow(2)]


def test_all_vchannels_get_one_epoch() -> None:
    assert {window.epoch for window in opened([ProducerWindow(7, vchannels=2), ProducerWindow(3, vchannels=2)])} == {8}


@pytest.mark.parametrize("known", [[None, ProducerWindow(1)], [ProducerWindow(1), ProducerWindow(1)]])
def test_a_producer_of_another_vchannel_is_refused(known: list[ProducerWindow | None]) -> None:
    with pytest.raises(InvalidRequestError, match="was opened on orders/1 alone"):
        opened(known)


def test_a_producer_of_the_channel_is_not_opened_on_one_vchannel() -> None:
    with pytest.raises(InvalidRequestError, match="was opened on the channel"):
        opened([ProducerWindow(1, vchannels=4)], is_channel=False)


def test_a_window_that_is_missing_may_be_forgotten() -> None:
    with pytest.raises(ProducerForgottenError):
        opened([None, None], forgotten=True)
    # One of several was evicted, or a restore to a tick has removed it.
    with pytest.raises(ProducerForgottenError):
        opened([ProducerWindow(1, vchannels=2), None])
    assert [window.epoch for window in opened([ProducerWindow(1, vchannels=2), None], accept=True)] == [2, 2]


@given(windows)
def test_a_window_is_read_as_it_was_written(window: ProducerWindow) -> None:
    key = (7, "p-1")

    assert WINDOWS.decode(WINDOWS.encode_key(key), WINDOWS.encode(key, window)) == (key, window)


@given(windows, st.integers(0, 1 << 62))
def test_a_restore_forgets_a_producer_of_a_channel_whose_last_call_it_removes(
    window: ProducerWindow, tick: int
) -> None:
    kept = WINDOWS.until(window, tick)

    if window.vchannels and kept is not None and kept.last_sequence:
        assert kept == window
