"""Prints the measurements of crash tests: rounds, acknowledgements and faults behind a verdict."""

import pytest


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the property ``measured`` of each test that recorded one."""
    for report in terminalreporter.getreports("passed"):
        for name, value in report.user_properties:
            if name == "measured":
                terminalreporter.write_line(f"{report.nodeid.rpartition('::')[2]}: {value}")
