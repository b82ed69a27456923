"""Shows what a crash test measured: how many rounds, acknowledgements and faults a verdict rests on."""

import pytest


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the property ``measured`` of each test that recorded one."""
    for report in terminalreporter.getreports("passed"):
        for name, value in report.user_properties:
            if name == "measured":
                terminalreporter.write_line(f"{report.nodeid.rpartition('::')[2]}: {value}")
