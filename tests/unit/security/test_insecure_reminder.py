"""A server that is open to other machines warns in its log at the start and once a day. Method: a day of checks."""

from tidelog_server.core.limits import SECURITY_CHECK_INTERVAL_S
from tidelog_server.security.service import INSECURE_REMINDER_S, _Every

DAY_S = 86_400


def test_an_open_server_repeats_its_warning_once_a_day() -> None:
    reminder = _Every(INSECURE_REMINDER_S, now_s=0.0)
    checks = (number * SECURITY_CHECK_INTERVAL_S for number in range(int(DAY_S / SECURITY_CHECK_INTERVAL_S) + 1))
    assert [now_s for now_s in checks if reminder.is_due(now_s)] == [DAY_S]
