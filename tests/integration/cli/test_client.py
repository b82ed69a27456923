"""The client commands: output formats, framings, exit codes and interruption.

Method: one real server for the module, and each command in a separate process, without a terminal.
"""

import json
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Sequence
from pathlib import Path

import pytest
import yaml

import tidelog
from tidelog_cli.child_environment import child_environment
from tidelog_cli.exit_codes import ExitCode
from tidelog_testing.servers.commands import COMMAND, Commands, records

COMMANDS = Commands()
run, succeeds, refused = COMMANDS.run, COMMANDS.succeeds, COMMANDS.refused


@pytest.fixture
def channel(endpoint: str) -> str:
    name = f"c-{uuid.uuid4().hex[:8]}"
    succeeds(endpoint, "channel", "create", name, "--vchannels", "2")
    return name


def test_a_channel_is_created_listed_described_and_removed(endpoint: str) -> None:
    name = f"c-{uuid.uuid4().hex[:8]}"

    [created] = records(succeeds(endpoint, "channel", "create", name, "--vchannels", "3", "--owner", "tests"))
    assert (created["name"], created["vchannels"], created["owner"]) == (name, 3, "tests")
    assert records(succeeds(endpoint, "channel", "ls", name))[0]["name"] == name
    assert succeeds(endpoint, "channel", "ls", name, "--names").decode().split() == [name]
    assert [row["name"] for row in records(succeeds(endpoint, "channel", "describe", name))] == [
        f"{name}/0", f"{name}/1", f"{name}/2",
    ]  # fmt: skip
    succeeds(endpoint, "channel", "rm", name, "--yes")
    assert succeeds(endpoint, "channel", "ls", name) == b""


def test_patterns_stand_for_channels(endpoint: str) -> None:
    name = f"c-{uuid.uuid4().hex[:8]}"
    for part in ("eu", "us"):
        succeeds(endpoint, "channel", "create", f"{name}.{part}")
        succeeds(endpoint, "append", f"{name}.{part}", stdin=part.encode())

    assert succeeds(endpoint, "scan", f"{name}.*", "-o", "text").split() == [b"eu", b"us"]
    assert succeeds(endpoint, "tail", "-n", "1", f"{name}.*", "-o", "text").split() == [b"us"]
    assert succeeds(endpoint, "channel", "ls", f"{name}.?s", "-n").decode().split() == [f"{name}.us"]
    described = records(succeeds(endpoint, "channel", "describe", f"{name}.us", f"{name}.*"))
    assert [row["name"] for row in described] == [f"{name}.us/0", f"{name}.eu/0"]
    for refusing in (("scan",), ("channel", "describe"), ("cluster", "where")):
        assert "no channel matches the pattern" in refused(endpoint, ExitCode.NOT_FOUND, *refusing, f"{name}x*")
    assert "regular expressions are not supported" in refused(endpoint, ExitCode.USAGE, "channel", "ls", "(a|b)*")
    for command in (("broadcast", "send", f"{name}.*", "-m", "x"), ("broadcast", "ack", "1", f"{name}.*")):
        assert "is a pattern: name each channel" in refused(endpoint, ExitCode.USAGE, *command)


def test_retention_is_set_shown_altered_and_taken_away(endpoint: str) -> None:
    name = f"c-{uuid.uuid4().hex[:8]}"
    options = ("--retention-age", "3d", "--retention-bytes", "1GiB")

    [created] = records(succeeds(endpoint, "channel", "create", name, *options))
    assert created["retention"] == "age=259200s bytes=1073741824"
    changes = ("--retention-hard-bytes", "2GiB", "--retention-age", "none")
    [altered] = records(succeeds(endpoint, "channel", "alter", name, *changes))
    assert altered["retention"] == "bytes=1073741824 hard=2147483648"
    assert records(succeeds(endpoint, "channel", "ls", name)) == [altered]
    [row] = records(succeeds(endpoint, "channel", "describe", name))
    assert (row["retention"], row["cut_messages"], row["cut_groups"]) == (altered["retention"], 0, "")

    assert "no change given" in refused(endpoint, ExitCode.USAGE, "channel", "alter", name)
    assert "not a valid size" in refused(endpoint, ExitCode.USAGE, "channel", "alter", name, "--retention-bytes", "big")
    assert "below retention.bytes" in refused(
        endpoint, ExitCode.USAGE, "channel", "create", "x", "--retention-bytes", "2", "--retention-hard-bytes", "1"
    )
    assert "the hard cap would remove" in refused(
        endpoint, ExitCode.USAGE, "channel", "alter", name, "--retention-hard-bytes", "1"
    )


def test_vchannels_are_added_and_commands_on_the_channel_follow(endpoint: str) -> None:
    name = f"c-{uuid.uuid4().hex[:8]}"
    succeeds(endpoint, "channel", "create", name)
    [sent] = records(succeeds(endpoint, "broadcast", "send", name, "-m", "before"))

    [grown] = records(succeeds(endpoint, "channel", "alter", name, "--vchannels", "3"))
    assert (grown["vchannels"], sent["tick"] < grown["grown_tick"]) == (3, True)
    assert records(succeeds(endpoint, "channel", "alter", name, "--vchannels", "3")) == [grown]
    assert "vchannels are only added" in refused(endpoint, ExitCode.USAGE, "channel", "alter", name, "--vchannels", "2")
    succeeds(endpoint, "append", f"{name}/2", stdin=b"after\n")
    assert succeeds(endpoint, "scan", name, f"{name}/2", "-o", "text").decode().split() == ["before", "after"]
    succeeds(endpoint, "broadcast", "ack", str(sent["broadcast_id"]), name)
    [status] = records(succeeds(endpoint, "broadcast", "status", str(sent["broadcast_id"])))
    assert status["missing"] == []


@pytest.mark.parametrize(("form", "first"), [("table", "name"), ("json", "["), ("jsonl", "{"), ("text", "c-")])
def test_every_form_of_output_is_printed(form: str, first: str, endpoint: str, channel: str) -> None:
    assert succeeds(endpoint, "channel", "ls", channel, "-o", form).decode().startswith(first)


def test_a_listing_has_the_formats_of_kubectl(endpoint: str, channel: str) -> None:
    [listed] = records(succeeds(endpoint, "channel", "ls", channel))
    described = records(succeeds(endpoint, "channel", "describe", channel))

    assert yaml.safe_load(succeeds(endpoint, "channel", "ls", channel, "-o", "yaml")) == [listed]
    # The watermark rises meanwhile.
    assert [
        {**each, "watermark": ""}
        for each in yaml.safe_load(succeeds(endpoint, "channel", "describe", channel, "-o", "yaml"))
    ] == [{**each, "watermark": ""} for each in described]
    assert succeeds(endpoint, "channel", "ls", channel, "-o", "name").decode() == f"{channel}\n"
    assert succeeds(endpoint, "channel", "describe", channel, "-o", "name").decode().splitlines() == [
        each["name"] for each in described
    ]
    # Without an owner, the table has no such column.
    assert b"owner" not in succeeds(endpoint, "channel", "ls", channel, "-o", "table")
    assert b"owner" in succeeds(endpoint, "channel", "ls", channel, "-o", "wide")


def test_a_channel_of_one_vchannel_stands_for_it_and_its_full_name_is_told(endpoint: str) -> None:
    name = f"c-{uuid.uuid4().hex[:8]}"
    succeeds(endpoint, "channel", "create", name)

    for command in (("append", name), ("append", name, "--txn"), ("channel", "trim", name, "--all", "--yes")):
        [told] = records(succeeds(endpoint, *command, stdin=b"one\n"))
        assert told["vchannel"] == f"{name}/0"


def test_lines_come_back_as_text(endpoint: str, channel: str) -> None:
    lines = b"".join(b"line %d \xff\n" % number for number in range(20_000))

    [answer] = records(succeeds(endpoint, "append", f"{channel}/0", stdin=lines))

    assert answer["messages"] == 20_000
    assert int(answer["first_tick"]) < int(answer["last_tick"])
    assert succeeds(endpoint, "scan", channel, "-o", "text") == lines


def test_messages_with_lengths_come_back(endpoint: str, channel: str, tmp_path: Path) -> None:
    path = tmp_path / "input"
    path.write_bytes(b"\0\0\0\3a\nb\0\0\0\0\0\0\0\1c")

    succeeds(endpoint, "append", f"{channel}/1", "--framing", "length", "-i", str(path))

    assert succeeds(endpoint, "scan", channel, "-o", "text", "--framing", "length") == path.read_bytes()


def test_a_whole_file_comes_back(endpoint: str, channel: str) -> None:
    content = os.urandom(100_000)

    succeeds(endpoint, "append", f"{channel}/0", "--framing", "none", stdin=content)

    assert succeeds(endpoint, "scan", channel, "-o", "text", "--framing", "none") == content


def test_scanned_json_lines_can_be_appended_elsewhere(endpoint: str, channel: str) -> None:
    lines = (
        b'{"payload": "a", "key": "k", "type": 7, "properties": {"p": "q"}, "event_time_ms": 5}\n'
        b'{"payload_base64": "/w==", "key_base64": "/g=="}\n'
    )
    succeeds(endpoint, "append", f"{channel}/0", "--framing", "jsonl", stdin=lines)
    first = succeeds(endpoint, "scan", f"{channel}/0")

    succeeds(endpoint, "append", f"{channel}/1", "--framing", "jsonl", stdin=first)

    own = {"vchannel", "tick", "time"}
    stripped = [
        [{key: value for key, value in record.items() if key not in own} for record in records(output)]
        for output in (first, succeeds(endpoint, "scan", f"{channel}/1"))
    ]
    assert stripped[0] == stripped[1]
    assert stripped[0][0]["type"] == 7


def test_a_bad_line_is_refused_with_its_number(endpoint: str, channel: str) -> None:
    text = refused(
        endpoint, ExitCode.USAGE, "append", f"{channel}/0", "--framing", "jsonl", stdin=b'{"payload": "a"}\n{}\n'
    )

    assert "line 2" in text
    plain = refused(endpoint, ExitCode.USAGE, "append", f"{channel}/0", "--framing", "jsonl", stdin=b"one\n")
    assert "line 1 of the input is not valid JSON" in plain


def test_a_scan_with_a_limit_says_what_it_is_called(endpoint: str, channel: str) -> None:
    assert "use -n 5 or --count 5" in refused(endpoint, ExitCode.USAGE, "scan", channel, "--limit", "5")


def test_a_scan_is_bounded_by_positions_count_and_type(endpoint: str, channel: str) -> None:
    lines = b"".join(b'{"payload": "%d", "type": %d}\n' % (number, number % 3) for number in range(10))
    [answer] = records(succeeds(endpoint, "append", f"{channel}/0", "--framing", "jsonl", stdin=lines))
    second, last = str(int(answer["first_tick"]) + 1), answer["last_tick"]

    def payloads(*arguments: str) -> list[str]:
        return succeeds(endpoint, "scan", f"{channel}/0", "-o", "text", *arguments).decode().split()

    assert payloads("--from", second, "--to", last) == list("12345678")
    assert payloads("-n", "3") == list("012")
    assert payloads("--type", "1", "--type", "2", "-n", "4") == list("1245")
    assert payloads("--from", "@-1h") == list("0123456789")
    assert payloads("--to", "@-1h") == []


def test_a_scan_is_resumed_behind_a_tick_of_each_vchannel(endpoint: str, channel: str) -> None:
    names = [f"{channel}/0", f"{channel}/1"]
    for payload in (b"one", b"two"):
        with tidelog.Client(endpoint) as client:
            client.broadcast(names, payload)
    stored = records(succeeds(endpoint, "scan", channel, "-o", "jsonl"))
    positions = dict.fromkeys(names, "0")
    for count in range(len(stored)):
        after = [text for name in names for text in ("--after", f"{name}={positions[name]}")]
        assert records(succeeds(endpoint, "scan", channel, "-o", "jsonl", *after)) == stored[count:]
        positions[stored[count]["vchannel"]] = stored[count]["tick"]

    usage = ExitCode.USAGE
    assert "no position for" in refused(endpoint, usage, "scan", channel, "--after", f"{names[0]}=7")
    assert "VCHANNEL=TICK" in refused(endpoint, usage, "scan", channel, "--after", "7")
    assert "twice" in refused(endpoint, usage, "scan", channel, "--after", "a=7", "--after", "a=8")
    assert "invalid tick 'b' of a" in refused(endpoint, usage, "scan", channel, "--after", "a=b")
    assert "both given" in refused(endpoint, usage, "scan", channel, "--after", "a=7", "--from", "7")


def test_tail_prints_the_last_messages_of_all_vchannels_in_order(endpoint: str, channel: str) -> None:
    for number in range(6):
        succeeds(endpoint, "append", f"{channel}/{number % 2}", stdin=b"%d\n" % number)

    assert succeeds(endpoint, "tail", channel, "-n", "4", "-o", "text").decode().split() == list("2345")
    assert succeeds(endpoint, "tail", channel, "-n", "0", "-o", "text") == b""
    assert succeeds(endpoint, "tail", channel, "--since", "1h", "-o", "text").decode().split() == list("012345")


def test_a_followed_tail_goes_on_and_sums_up_when_interrupted(endpoint: str, channel: str) -> None:
    succeeds(endpoint, "append", f"{channel}/0", stdin=b"before\n")
    process = subprocess.Popen(
        [*COMMAND, "tail", "-f", channel, "-o", "text", "--endpoint", endpoint],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=child_environment(),
    )  # fmt: skip
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == b"before\n"
        succeeds(endpoint, "append", f"{channel}/1", stdin=b"after\n")
        assert process.stdout.readline() == b"after\n"

        process.send_signal(signal.SIGINT)

        _, stderr = process.communicate(timeout=240)
        assert process.returncode == ExitCode.INTERRUPTED
        assert b"interrupted: 2 messages" in stderr
        assert b"Traceback" not in stderr
    finally:
        process.kill()
        process.communicate()


def test_an_interrupted_append_says_how_much_was_sent(endpoint: str, channel: str) -> None:
    process = subprocess.Popen(
        [*COMMAND, "append", f"{channel}/0", "--endpoint", endpoint],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=child_environment(),
    )  # fmt: skip
    assert process.stdin is not None
    try:
        process.stdin.write(b"one\ntwo\n")
        process.stdin.flush()
        while len(records(succeeds(endpoint, "scan", f"{channel}/0"))) < 2:
            assert process.poll() is None
        process.send_signal(signal.SIGINT)

        process.wait(240)

        assert process.returncode == ExitCode.INTERRUPTED
        assert process.stderr is not None
        assert b"interrupted: 2 messages were sent" in process.stderr.read()
    finally:
        process.kill()
        process.communicate()


def test_a_reader_that_wants_no_more_is_no_failure(endpoint: str, channel: str) -> None:
    succeeds(endpoint, "append", f"{channel}/0", stdin=b"x" * 100 + b"\n" + b"line\n" * 100_000)
    process = subprocess.Popen(
        [*COMMAND, "scan", f"{channel}/0", "--endpoint", endpoint],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=child_environment(),
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stderr is not None
    assert process.stdout.readline()
    process.stdout.close()

    assert process.stderr.read() == b""
    assert process.wait(240) == ExitCode.OK
    process.stderr.close()


def test_trim_removes_what_is_before_a_position(endpoint: str, channel: str) -> None:
    [answer] = records(succeeds(endpoint, "append", f"{channel}/0", stdin=b"a\nb\nc\n"))
    keep = answer["last_tick"]

    [trimmed] = records(succeeds(endpoint, "channel", "trim", f"{channel}/0", "--before", keep, "-y"))

    assert trimmed["first_available_tick"] == keep
    assert succeeds(endpoint, "scan", f"{channel}/0", "-o", "text") == b"c\n"
    assert "trimmed" in refused(endpoint, ExitCode.CONFLICT, "scan", f"{channel}/0", "--from", answer["first_tick"])


def test_a_fenced_vchannel_takes_appends_with_its_token_only(endpoint: str, channel: str) -> None:
    [fenced] = records(succeeds(endpoint, "channel", "fence", f"{channel}/0", "8"))
    assert fenced == {"vchannel": f"{channel}/0", "fencing_token": "8"}

    late = refused(endpoint, ExitCode.CONFLICT, "append", f"{channel}/0", "--fencing-token", "7", stdin=b"late\n")

    assert "a newer writer has taken over" in late
    assert "is 8, not 7" in refused(endpoint, ExitCode.CONFLICT, "channel", "fence", f"{channel}/0", "7")
    succeeds(endpoint, "append", f"{channel}/0", "--fencing-token", "8", stdin=b"new\n")
    assert succeeds(endpoint, "scan", f"{channel}/0", "-o", "text") == b"new\n"
    assert records(succeeds(endpoint, "channel", "describe", channel))[0]["fencing_token"] == "8"


def test_nothing_is_removed_without_a_word(endpoint: str, channel: str) -> None:
    assert "--yes" in refused(endpoint, ExitCode.USAGE, "channel", "rm", channel)
    assert "--yes" in refused(endpoint, ExitCode.USAGE, "channel", "destroy", channel)
    assert "nothere" in refused(endpoint, ExitCode.NOT_FOUND, "channel", "rm", channel, "nothere")
    assert "--yes" in refused(endpoint, ExitCode.USAGE, "channel", "rm", "nothere", "--ignore-missing")
    assert "--yes" in refused(endpoint, ExitCode.USAGE, "channel", "trim", f"{channel}/0", "--all")
    assert succeeds(endpoint, "channel", "ls", channel, "-n").decode().split() == [channel]


def test_exit_codes_tell_what_went_wrong(endpoint: str, channel: str) -> None:
    assert "does not exist" in refused(endpoint, ExitCode.NOT_FOUND, "scan", "nowhere")
    assert "does not exist" in refused(endpoint, ExitCode.NOT_FOUND, "append", "nowhere", "-i", os.devnull)
    assert "already exists" in refused(endpoint, ExitCode.CONFLICT, "channel", "create", channel)
    assert "not allowed" in refused(endpoint, ExitCode.USAGE, "channel", "create", "Not A Name")
    assert "expected a tick" in refused(endpoint, ExitCode.USAGE, "scan", channel, "--from", "yesterday")
    assert "--timeout" in refused(endpoint, ExitCode.TIMEOUT, "tail", "-f", channel, "--timeout", "0.5")
    assert "cannot read" in refused(endpoint, ExitCode.NOT_FOUND, "append", f"{channel}/0", "-i", "/nothing/here")
    assert "no connection" in refused("127.0.0.1:1", ExitCode.UNAVAILABLE, "channel", "ls")
    # The timeout of the command does not hide the reason.
    for command in (["channel", "ls"], ["scan", channel], ["tail", channel], ["append", channel, "-i", os.devnull]):
        assert "refused" in refused("127.0.0.1:1", ExitCode.UNAVAILABLE, *command, "--timeout", "2")
    refused(endpoint, ExitCode.USAGE, "scan")


def test_the_endpoint_may_stand_before_the_command_and_that_of_the_command_counts(endpoint: str, channel: str) -> None:
    elsewhere = "127.0.0.1:1"

    assert channel in succeeds(elsewhere, "--endpoint", endpoint, "channel", "ls", "--names").decode()
    assert (
        channel
        in succeeds(elsewhere, "--endpoint", elsewhere, "channel", "ls", "--names", "--endpoint", endpoint).decode()
    )
    assert elsewhere in refused(endpoint, ExitCode.UNAVAILABLE, "--endpoint", elsewhere, "channel", "ls")


@pytest.mark.parametrize("command", [("channel", "ls"), ("doctor",), ("group", "describe", "g")])
def test_an_endpoint_that_is_none_is_a_usage_error_of_one_line(command: tuple[str, ...]) -> None:
    [line] = refused("http://127.0.0.1:7420", ExitCode.USAGE, *command).splitlines()

    assert line.startswith("tidelog: the endpoint 'http://127.0.0.1:7420' is a URL: expected host:port, such as ")


@pytest.mark.extended
def test_an_error_that_cannot_be_written_keeps_its_exit_code() -> None:
    command = [*COMMAND, "channel", "ls", "--endpoint", "127.0.0.1:1"]
    with Path("/dev/full").open("wb") as full:
        ended = subprocess.run(command, stdout=full, stderr=full, env=child_environment(), check=False)

    assert ended.returncode == ExitCode.UNAVAILABLE


def test_the_doctor_reports_a_server_and_misses_one_that_was_named(endpoint: str, tmp_path: Path) -> None:
    flags = ["--storage.data_dir", str(tmp_path), "--limits.min_free_disk_bytes", "0"]

    healthy = run(endpoint, "doctor", *flags)
    missing = run("127.0.0.1:1", "doctor", *flags)

    assert healthy.returncode in (ExitCode.OK, ExitCode.DEGRADED)
    findings = {record["check"]: record for record in records(healthy.stdout)}
    assert findings["server"] == {"check": "server", "severity": "ok", "text": f"{endpoint} is serving"}
    assert {"disk sync", "free space", "clock pace", "open files", "version of tidelog"} <= findings.keys()
    assert missing.returncode == ExitCode.UNHEALTHY


def test_the_doctor_checks_what_it_can_where_the_server_is_not_installed(endpoint: str, tmp_path: Path) -> None:
    # Packages that only the extra `server` installs. Not pydantic: typer needs it too.
    absent = {
        "aetcd",
        "aiohttp",
        "cryptography",
        "grpc_health",
        "grpc_reflection",
        "jwt",
        "prometheus_client",
        "psutil",
        "rocksdict",
        "structlog",
    }
    program = (
        "import sys\n"
        "class Absent:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        f"        if name.partition('.')[0] in {absent}:\n"
        "            raise ModuleNotFoundError(f'No module named {name}', name=name)\n"
        "sys.meta_path.insert(0, Absent())\n"
        "from tidelog_cli import main\n"
        "main(sys.argv[1:])"
    )
    flags = ["--storage.data_dir", str(tmp_path), "--limits.min_free_disk_bytes", "0"]

    def doctor(*more: str) -> subprocess.CompletedProcess[bytes]:
        command = [sys.executable, "-c", program, "doctor", *flags, *more]
        environment = child_environment() | {"TIDELOG_ENDPOINT": endpoint}
        return subprocess.run(command, capture_output=True, env=environment, timeout=240, check=False)

    done = doctor()
    assert done.returncode in (ExitCode.OK, ExitCode.DEGRADED), done.stderr
    findings = {record["check"]: record["text"] for record in records(done.stdout)}
    assert findings["server"] == f"{endpoint} is serving"
    assert {"disk sync", "clock pace", "open files", "version of tidelog"} <= findings.keys()
    with_tls = records(doctor("--tls.cert", "c.pem", "--tls.key", "k.pem").stdout)
    assert {r["check"]: r["text"] for r in with_tls}[
        "TLS files"
    ] == "not checked: needs `pip install '.[server]'` in a clone of Tidelog"


def test_the_audit_log_of_a_server_without_authentication_is_reported_as_absent(endpoint: str) -> None:
    for command in ("ls", "verify"):
        text = refused(endpoint, ExitCode.NOT_FOUND, "audit", command)
        assert "has no audit log" in text
        assert "auth.kind" in text
        assert "channel create" not in text


def test_a_held_key_is_reported_in_the_words_of_the_protocol(endpoint: str, channel: str) -> None:
    target = (f"{channel}/0", "-m", "x", "--key", f"schema:{channel}")
    succeeds(endpoint, "broadcast", "send", *target)

    text = refused(endpoint, ExitCode.CONFLICT, "broadcast", "send", *target)

    assert "wait_timeout_ms" in text
    assert "--wait" not in text


def test_the_configuration_is_shown_with_origins_and_validated(endpoint: str, tmp_path: Path) -> None:
    path = tmp_path / "tidelog.toml"
    path.write_text('[log]\nlevel = "debug"\n[tracing]\nendpoint = "http://me:hunter2@otel:4317"\n')

    shown = {
        record["key"]: record
        for record in records(succeeds(endpoint, "config", "show", "-c", str(path), "--server.grpc_port", "9"))
    }
    path.write_text('[log]\nlevel = "loud"\n')

    assert (shown["log.level"]["value"], shown["log.level"]["origin"]) == ("debug", f"{path}:2")
    assert shown["tracing.endpoint"]["value"] == "http://me:********@otel:4317"
    assert shown["server.grpc_port"]["origin"] == "flag --server.grpc_port"
    assert shown["server.host"]["origin"] == "built-in"
    assert f"{path}:2" in refused(endpoint, ExitCode.BAD_CONFIG, "config", "validate", "-c", str(path))


def test_versions_are_shown(endpoint: str) -> None:
    assert {record["name"] for record in records(succeeds(endpoint, "version"))} >= {"tidelog", "python", "grpcio"}


def run_without(modules: Sequence[str], *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command in a process in which ``modules`` cannot be imported."""
    program = (
        f"import sys; sys.modules.update(dict.fromkeys({modules!r})); from tidelog_cli import main; main({arguments!r})"
    )
    return subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env=child_environment(), check=False
    )


@pytest.mark.parametrize(
    ("module", "command", "extra"),
    [
        ("typer", ("channel", "ls"), "cli"),
        ("uvloop", ("channel", "ls"), "cli"),
        ("typer", ("serve",), "server"),
        ("typer", ("config", "show"), "server"),
        ("pydantic", ("config", "show"), "server"),
        ("structlog", ("serve",), "server"),
    ],
)
def test_a_missing_extra_is_answered_with_the_command_that_installs_it(
    module: str, command: tuple[str, ...], extra: str
) -> None:
    done = run_without([module], *command)

    assert done.returncode == ExitCode.FAILURE
    assert f"run `pip install '.[{extra}]'` in a clone" in done.stderr


def test_client_commands_run_without_what_only_a_server_needs(endpoint: str, channel: str) -> None:
    # Packages that only the extra `server` installs.
    modules = [
        "aetcd", "aiohttp", "cryptography", "grpc_health", "grpc_reflection", "jwt", "numpy", "prometheus_client",
        "psutil", "rocksdict", "structlog",
    ]  # fmt: skip

    done = run_without(modules, "channel", "ls", channel, "--names", "--endpoint", endpoint)

    assert (done.stdout.split(), done.stderr) == ([channel], "")


def test_an_input_is_appended_as_one_transaction(endpoint: str, channel: str) -> None:
    lines = b"".join(b"%d\n" % i for i in range(30_000))
    [appended] = records(succeeds(endpoint, "append", f"{channel}/0", "--txn", stdin=lines))

    assert appended["messages"] == 30_000
    assert int(appended["last_tick"]) - int(appended["first_tick"]) == 29_999
    shown = records(succeeds(endpoint, "scan", f"{channel}/0", "--output", "jsonl"))
    assert {message["txn_id"] for message in shown} == {appended["txn_id"]}
    again = b"".join(json.dumps(message).encode() + b"\n" for message in shown[:10])
    succeeds(endpoint, "append", f"{channel}/1", "--framing", "jsonl", stdin=again)

    [nothing] = records(succeeds(endpoint, "append", f"{channel}/0", "--txn"))
    assert (nothing["messages"], nothing["txn_id"]) == (0, None)


def test_open_transactions_are_listed_described_and_aborted(endpoint: str, channel: str) -> None:
    with tidelog.Client(endpoint, client_id="loader") as client:
        txn = client.txn()
        txn.append(f"{channel}/0", [bytes(1_000)] * 2_000)

        [listed] = [row for row in records(succeeds(endpoint, "txn", "ls")) if row["client_id"] == "loader"]
        txn_id = listed["txn_id"]
        [described] = records(succeeds(endpoint, "txn", "describe", txn_id))
        assert (described["state"], described["vchannels"]) == ("open", [f"{channel}/0"])
        refused(endpoint, ExitCode.USAGE, "txn", "abort", txn_id)
        succeeds(endpoint, "txn", "abort", txn_id, "--reason", "test")
        assert "an operator aborted it" in refused(endpoint, ExitCode.CONFLICT, "txn", "describe", txn_id)
        assert "not begun" in refused(endpoint, ExitCode.NOT_FOUND, "txn", "describe", str((1 << 63) - 1))
        with pytest.raises(tidelog.TransactionExpiredError):
            txn.commit()


def test_a_broadcast_is_sent_shown_acknowledged_and_waited_for(endpoint: str, channel: str) -> None:
    key = f"schema:{channel}"
    [sent] = records(succeeds(endpoint, "broadcast", "send", channel, "-m", "new column", "--key", key))
    broadcast_id = sent["broadcast_id"]
    assert sent["vchannels"] == 2
    shown = records(succeeds(endpoint, "scan", channel, "--output", "jsonl"))
    assert [(m["payload"], m["tick"], m["broadcast_id"]) for m in shown] == [
        ("new column", sent["tick"], sent["broadcast_id"])
    ] * 2
    again = b"".join(json.dumps(message).encode() + b"\n" for message in shown)
    succeeds(endpoint, "append", f"{channel}/1", "--framing", "jsonl", stdin=again)

    [status] = records(succeeds(endpoint, "broadcast", "status", broadcast_id))
    assert (status["state"], status["acked"], status["vchannels"], status["keys"]) == ("wait_ack", 0, 2, [key])
    assert (status["shared_keys"], status["missing"]) == ([], [f"{channel}/0", f"{channel}/1"])
    assert "is held by broadcast" in refused(
        endpoint, ExitCode.CONFLICT, "broadcast", "send", channel, "-m", "x", "--key", key
    )
    told = refused(endpoint, ExitCode.TIMEOUT, "broadcast", "wait", key, "--timeout", "0.2")
    assert f"waiting for {channel}/0 {channel}/1: `tidelog broadcast ack {broadcast_id} " in told
    assert "waiting for" not in refused(endpoint, ExitCode.TIMEOUT, "broadcast", "wait", key, "--timeout", "0", "-q")
    refused(endpoint, ExitCode.USAGE, "broadcast", "ack", broadcast_id, "nowhere/0")
    succeeds(endpoint, "broadcast", "ack", broadcast_id, f"{channel}/0")
    succeeds(endpoint, "broadcast", "wait", broadcast_id, "--once")
    succeeds(endpoint, "broadcast", "ack", broadcast_id, f"{channel}/1")
    succeeds(endpoint, "broadcast", "wait", key)
    listed = [row["broadcast_id"] for row in records(succeeds(endpoint, "broadcast", "ls"))]
    assert sent["broadcast_id"] not in listed
    finished = {row["broadcast_id"]: row for row in records(succeeds(endpoint, "broadcast", "ls", "--all"))}
    assert finished[sent["broadcast_id"]]["state"] == "done"


def test_a_broadcast_that_nobody_acknowledges_is_aborted(endpoint: str, channel: str) -> None:
    key = f"schema:{channel}"
    arguments = ("broadcast", "send", f"{channel}/0", "--shared-key", key)
    [sent] = records(succeeds(endpoint, *arguments, stdin=b"from a pipe"))
    broadcast_id = sent["broadcast_id"]

    [aborted] = records(succeeds(endpoint, "broadcast", "abort", broadcast_id, "--reason", "the consumer is gone"))

    assert (aborted["state"], aborted["abort_reason"]) == ("aborted", "the consumer is gone")
    refused(endpoint, ExitCode.CONFLICT, "broadcast", "wait", broadcast_id)
    refused(endpoint, ExitCode.USAGE, "broadcast", "send", f"{channel}/0", "-m", "x", "--key", "nocolon")
    refused(endpoint, ExitCode.USAGE, "broadcast", "send", f"{channel}/0", "-m", "x", "--key", ":empty")
    refused(endpoint, ExitCode.NOT_FOUND, "broadcast", "status", "5")
