"""``tidelog mailbox``: create, configure, list, describe and remove.

Method: one real server for the module, and each command in a separate process, without a terminal.
"""

import pytest

from tidelog_cli.exit_codes import ExitCode
from tidelog_testing.servers.commands import Commands, records

COMMANDS = Commands("mailbox")
succeeds, refused = COMMANDS.succeeds, COMMANDS.refused


def test_a_mailbox_is_created_configured_listed_and_removed(endpoint: str, path: str) -> None:
    jobs, dead = f"{path}/jobs", f"{path}/dead"
    succeeds(endpoint, "create", dead)
    options = (
        "--lease", "20s", "--max-lease", "1h", "--max-deliveries", "5", "--dead-letter", dead, "--backoff", "1s,1m30s",
        "--delay", "250ms", "--ttl", "3d", "--dedup-window", "10m", "--max-in-flight", "7", "--max-messages", "8",
        "--max-body", "64KiB",
    )  # fmt: skip
    (created,) = records(succeeds(endpoint, "create", jobs, *options))
    expected = {
        "name": jobs, "lease_ms": 20_000, "max_lease_ms": 3_600_000, "max_deliveries": 5, "dead_letter": dead,
        "backoff_ms": [1_000, 90_000], "delay_ms": 250, "ttl_ms": 259_200_000, "dedup_window_ms": 600_000,
        "max_in_flight": 7, "max_messages": 8, "max_body_bytes": 65_536,
    }  # fmt: skip
    assert {name: created[name] for name in expected} == expected
    assert created["channel"].startswith("_mailbox.")
    assert "exists already" in refused(endpoint, ExitCode.CONFLICT, "create", jobs)
    assert records(succeeds(endpoint, "create", jobs, "--if-not-exists")) == [created]

    (altered,) = records(succeeds(endpoint, "configure", jobs, "--backoff", "", "--delay", "0s"))
    assert (altered["backoff_ms"], altered["delay_ms"], altered["lease_ms"]) == ([], 0, 20_000)
    (described,) = records(succeeds(endpoint, "describe", jobs))
    assert {name: described[name] for name in altered} == altered
    assert [each["name"] for each in records(succeeds(endpoint, "ls", f"{path}/"))] == [dead, jobs]
    assert succeeds(endpoint, "ls", path, "--names").decode().split() == [dead, jobs]

    assert "--yes" in refused(endpoint, ExitCode.USAGE, "rm", jobs)
    assert "dead letters" in refused(endpoint, ExitCode.CONFLICT, "rm", dead, "--yes")
    assert "does not exist" in refused(endpoint, ExitCode.NOT_FOUND, "rm", f"{path}/other")
    succeeds(endpoint, "rm", jobs, f"{path}/other", dead, "--ignore-missing", "--yes")
    assert succeeds(endpoint, "ls", path) == b""


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("create", "x", "--lease", "soon"), "invalid duration 'soon'"),
        (("create", "x", "--max-body", "big"), "'big' is not a valid size"),
        (("create", "x", "--max-deliveries", "many"), "valid integer"),
        (("configure", "x"), "no change given"),
    ],
)
def test_wrong_options_are_refused_before_a_call(endpoint: str, arguments: tuple[str, ...], problem: str) -> None:
    assert problem in refused(endpoint, ExitCode.USAGE, *arguments)


def test_an_unknown_mailbox_and_a_setting_out_of_range_are_reported(endpoint: str, path: str) -> None:
    assert "does not exist" in refused(endpoint, ExitCode.NOT_FOUND, "describe", path)
    assert "lease_ms is 0" in refused(endpoint, ExitCode.USAGE, "create", path, "--lease", "0s")
    assert "max_deliveries is -1" in refused(endpoint, ExitCode.USAGE, "create", path, "--max-deliveries", "-1")


def test_help_names_each_setting(endpoint: str) -> None:
    for command in ("create", "configure"):
        text = succeeds(endpoint, command, "--help").decode()
        for option in ("--lease", "--dead-letter", "--backoff", "--max-body", "--dedup-window"):
            assert option in text
