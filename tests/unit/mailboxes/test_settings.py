"""Settings of mailboxes: their ranges, and the schedule of delays. Method: each bound, and the value beyond it."""

import pytest

from tidelog_server.core.errors import InvalidNameError, InvalidRequestError
from tidelog_server.core.limits import (
    MAX_DEDUP_WINDOW_MS,
    MAX_MAILBOX_DELAY_MS,
    MAX_MAILBOX_LEASE_MS,
    MAX_MAILBOX_NAME_BYTES,
)
from tidelog_server.core.mailboxes import (
    DEFAULT_SETTINGS,
    MAX_BACKOFF_DELAYS,
    MAX_BODY_BYTES,
    MAX_DELIVERIES,
    MAX_IN_FLIGHT_MESSAGES,
    MAX_MAILBOX_MESSAGES,
    MIN_DEDUP_WINDOW_MS,
    MailboxSettings,
)
from tidelog_server.core.names import check_mailbox_name, check_new_mailbox_name, is_plain

RANGES = [
    ("max_lease_ms", 1, MAX_MAILBOX_LEASE_MS),
    ("max_deliveries", 0, MAX_DELIVERIES),
    ("delay_ms", 0, MAX_MAILBOX_DELAY_MS),
    ("ttl_ms", 0, MAX_MAILBOX_DELAY_MS),
    ("dedup_window_ms", MIN_DEDUP_WINDOW_MS, MAX_DEDUP_WINDOW_MS),
    ("max_in_flight", 1, MAX_IN_FLIGHT_MESSAGES),
    ("max_messages", 1, MAX_MAILBOX_MESSAGES),
    ("max_body_bytes", 1, MAX_BODY_BYTES),
]


@pytest.mark.parametrize(("name", "least", "greatest"), RANGES)
def test_a_setting_has_a_range(name: str, least: int, greatest: int) -> None:
    others = DEFAULT_SETTINGS.changed(lease_ms=1)
    for value in (least, greatest):
        assert getattr(others.changed(**{name: value}), name) == value
    for value in (least - 1, greatest + 1):
        with pytest.raises(InvalidRequestError, match=rf"{name} is {value}, expected {least} to {greatest}") as caught:
            others.changed(**{name: value})
        assert caught.value.values["field"] == name
    assert DEFAULT_SETTINGS == MailboxSettings()


def test_the_default_lease_is_at_most_the_longest_one() -> None:
    assert DEFAULT_SETTINGS.changed(lease_ms=5, max_lease_ms=5).lease_ms == 5
    for changes in ({"lease_ms": 0}, {"lease_ms": 6, "max_lease_ms": 5}, {"max_lease_ms": 1}):
        with pytest.raises(InvalidRequestError, match="lease_ms is") as caught:
            DEFAULT_SETTINGS.changed(**changes)
        assert caught.value.values["field"] == "lease_ms"


def test_the_schedule_of_delays_has_bounds() -> None:
    longest = (0, MAX_MAILBOX_DELAY_MS) * (MAX_BACKOFF_DELAYS // 2)
    assert DEFAULT_SETTINGS.changed(backoff_ms=longest).backoff_ms == longest
    for backoff_ms in ((*longest, 1), (-1,), (0, MAX_MAILBOX_DELAY_MS + 1)):
        with pytest.raises(InvalidRequestError, match="backoff"):
            DEFAULT_SETTINGS.changed(backoff_ms=backoff_ms)


def test_the_last_delay_of_the_schedule_repeats() -> None:
    settings = DEFAULT_SETTINGS.changed(backoff_ms=(10, 20))
    assert [settings.backoff_after(deliveries) for deliveries in (1, 2, 3, 1_000)] == [10, 20, 20, 20]
    assert DEFAULT_SETTINGS.backoff_after(7) == 0


@pytest.mark.parametrize("name", ["b@remote", "a", "orders/eu west", "ü", "x" * MAX_MAILBOX_NAME_BYTES, "_mailbox.1"])
def test_any_text_without_control_characters_names_a_mailbox(name: str) -> None:
    assert check_mailbox_name(name) == name
    assert check_new_mailbox_name(name) == name


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("", "1 to 256 bytes of UTF-8, not 0"),
        ("x" * (MAX_MAILBOX_NAME_BYTES + 1), "1 to 256 bytes of UTF-8, not 257"),
        ("ü" * (MAX_MAILBOX_NAME_BYTES // 2 + 1), "1 to 256 bytes of UTF-8, not 258"),
        ("a\nb", "without control characters"),
        ("\0", "without control characters"),
        ("a\x7f", "without control characters"),
        ("\x85", "without control characters"),
        ("\ud800", "without control characters"),
    ],
)
def test_other_names_are_refused(name: str, expected: str) -> None:
    with pytest.raises(InvalidNameError, match=expected):
        check_mailbox_name(name)


UNSEEN = [
    "admin\u200b",
    "a\u202eb",
    "a\u2028b",
    "a\u2029",
    "\ufeffa",
    "a\xad",
    " a",
    "a ",
    "a\u00a0",
    "\u3000a",
    "\u2066x",
]


@pytest.mark.parametrize("name", UNSEEN)
def test_a_new_name_shows_what_it_is_and_an_existing_one_is_still_found(name: str) -> None:
    assert check_mailbox_name(name) == name
    assert not is_plain(name)
    with pytest.raises(InvalidNameError, match="without format characters, line separators, and blanks at its ends"):
        check_new_mailbox_name(name)


@pytest.mark.parametrize("name", ["a b", "a\u00a0b", "ü", "\u6771", "\U0001f600", "a\u0301"])
def test_other_text_is_plain(name: str) -> None:
    assert is_plain(name)
