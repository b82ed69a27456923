"""``tidelog scan`` as CSV, YAML, an Arrow stream, Parquet and by a template, and with messages selected by key.

Method: one real server, each command in a process of its own, and the formats' own readers.
"""

import csv
import io
import json
import os
import re
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from rich.cells import cell_len

from tidelog import Client, Message, arrow_schema
from tidelog_cli.child_environment import child_environment
from tidelog_cli.exit_codes import ExitCode
from tidelog_testing.servers.commands import COMMAND, Commands, records, run_command

COMMANDS = Commands()
succeeds, refused = COMMANDS.succeeds, COMMANDS.refused

MESSAGES = [
    Message(b'a "quoted", text\nin two lines', key=b"k1", type=1, properties={"x": "y"}),
    Message(b"\xff\x00", key=b"\xfe", event_time=datetime(1960, 1, 1, tzinfo=UTC)),
    Message("größe".encode(), key=b"k2"),
    Message(b"=1+1"),
]


@pytest.fixture
def channel(endpoint: str, path: str) -> str:
    name = path.replace("/", "-")
    with Client(endpoint) as client:
        client.create_channel(name)
        client.append(name, MESSAGES)
    return name


def test_csv_has_each_field_of_json_in_a_column(endpoint: str, channel: str) -> None:
    text = succeeds(endpoint, "scan", channel, "-o", "csv").decode()

    rows = list(csv.DictReader(io.StringIO(text)))
    expected = records(succeeds(endpoint, "scan", channel, "-o", "jsonl"))
    for row in rows:
        assert row.keys() == rows[0].keys()
    assert [
        {name: json.loads(value) if name == "properties" else value for name, value in row.items() if value != ""}
        for row in rows
    ] == [{name: value if name == "properties" else str(value) for name, value in each.items()} for each in expected]
    assert (rows[1]["key"], rows[1]["key_base64"], rows[1]["payload_base64"]) == ("", "/g==", "/wA=")


def test_csv_of_nothing_has_the_names(endpoint: str, channel: str) -> None:
    text = succeeds(endpoint, "scan", channel, "-o", "csv", "--key", "absent")
    assert text.decode().splitlines() == [
        "vchannel,tick,time,txn_id,broadcast_id,key,key_base64,type,properties,event_time_ms,payload,payload_base64"
    ]


@pytest.mark.parametrize("stdout", ["file", "pipe"])
def test_arrow_is_a_stream_of_the_table_of_the_scan(endpoint: str, channel: str, stdout: Any) -> None:
    done = run_command(
        ("scan", channel, "-o", "arrow"),
        environment={"TIDELOG_ENDPOINT": endpoint},
        stdout=stdout,
    )
    assert done.returncode == 0, done.stderr
    with Client(endpoint) as client:
        assert pa.ipc.open_stream(done.stdout).read_all() == client.scan(channel).to_arrow()


@pytest.mark.parametrize("stdout", ["file", "pipe"])
def test_parquet_has_the_table_of_the_scan(endpoint: str, channel: str, stdout: Any, tmp_path: Path) -> None:
    done = run_command(
        ("scan", channel, "-o", "parquet"),
        environment={"TIDELOG_ENDPOINT": endpoint},
        stdout=stdout,
    )
    assert done.returncode == 0, done.stderr
    with Client(endpoint) as client:
        table = client.scan(channel).to_arrow()
    assert pq.read_table(io.BytesIO(done.stdout)).equals(table)
    (tmp_path / "rows.parquet").write_bytes(done.stdout)
    assert duckdb.execute(f"SELECT count(*) FROM '{tmp_path}/rows.parquet'").fetchall() == [(len(MESSAGES),)]


@pytest.mark.parametrize("output", ["arrow", "parquet"])
def test_files_of_many_batches_end_at_the_count(endpoint: str, channel: str, output: str) -> None:
    with Client(endpoint) as client, client.producer(channel) as producer:
        producer.send_many([b"%d" % i for i in range(30_000)])

    content = io.BytesIO(succeeds(endpoint, "scan", channel, "-o", output, "-n", "20004"))

    table = pa.ipc.open_stream(content).read_all() if output == "arrow" else pq.read_table(content)
    assert table.column("payload").to_pylist()[4:] == [b"%d" % i for i in range(20_000)]


@pytest.mark.parametrize("output", ["arrow", "parquet"])
def test_an_empty_scan_is_a_file_without_rows(endpoint: str, channel: str, output: str) -> None:
    content = io.BytesIO(succeeds(endpoint, "scan", channel, "-o", output, "--to", "0"))
    table = pa.ipc.open_stream(content).read_all() if output == "arrow" else pq.read_table(content)
    assert table.schema.equals(arrow_schema())
    assert table.num_rows == 0


@pytest.mark.parametrize("output", ["arrow", "parquet"])
def test_a_reader_that_stops_early_is_no_failure(endpoint: str, channel: str, output: str) -> None:
    with Client(endpoint) as client, client.producer(channel) as producer:
        producer.send_many([os.urandom(1_000) for _ in range(20_000)])
    done = subprocess.run(
        ["bash", "-c", 'set -o pipefail; "$@" | head -c 10', "bash", *COMMAND, "scan", channel, "-o", output],
        env=child_environment() | {"TIDELOG_ENDPOINT": endpoint}, capture_output=True, timeout=120, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.parametrize("output", ["arrow", "parquet"])
def test_a_terminal_gets_no_binary_format(endpoint: str, channel: str, output: str) -> None:
    done = run_command(("scan", channel, "-o", output), environment={"TIDELOG_ENDPOINT": endpoint}, stdout="terminal")
    assert f"-o {output} is not for terminals: redirect it to a file or to a program" in done.stderr.decode()
    assert (done.returncode, done.stdout) == (ExitCode.USAGE, b"")


def test_without_pyarrow_the_extra_is_named(endpoint: str, channel: str) -> None:
    program = "import sys; sys.modules['pyarrow'] = None; from tidelog_cli import main; main(sys.argv[1:])"
    done = subprocess.run(
        [sys.executable, "-c", program, "scan", channel, "-o", "arrow"],
        env=child_environment() | {"TIDELOG_ENDPOINT": endpoint}, capture_output=True, text=True, timeout=120,
        check=False,
    )  # fmt: skip
    assert done.returncode == ExitCode.FAILURE
    assert done.stderr == "tidelog: this command needs pyarrow: run `pip install '.[arrow]'` in a clone of Tidelog\n"


def test_yaml_has_the_values_of_json_in_one_sequence(endpoint: str, channel: str) -> None:
    expected = records(succeeds(endpoint, "scan", channel, "-o", "jsonl"))
    assert yaml.safe_load(succeeds(endpoint, "scan", channel, "-o", "yaml")) == expected
    assert yaml.safe_load(succeeds(endpoint, "scan", channel, "-o", "yaml", "--key", "absent")) == []


def test_a_template_prints_what_kcat_prints(endpoint: str, channel: str) -> None:
    first, second, *_ = records(succeeds(endpoint, "scan", channel))
    ms = int(first["tick"]) >> 18

    def printed(template: str, *arguments: str) -> bytes:
        return succeeds(endpoint, "scan", channel, "--format", template, *arguments)

    payload = MESSAGES[0].payload
    assert printed(r"%k %s\n", "-n", "2") == b"k1 " + payload + b"\n\xfe \xff\x00\n"
    assert printed(r"%t/%p@%o %T %h %S %K\x00\t\r\\%%|", "-n", "1") == (
        f"{channel}/0@{first['tick']} {ms} x=y {len(payload)} 2\0\t\r\\%|".encode()
    )
    assert printed("%T %h ", "--key", "k2").endswith(b"  ")
    assert printed("%T,", "-n", "2") == f"{ms},{second['event_time_ms']},".encode()
    assert printed("%K ", "-n", "4") == b"2 1 2 -1 "
    assert printed("größe") == "größe".encode() * len(MESSAGES)
    assert succeeds(endpoint, "tail", channel, "-n", "1", "--format", r"%s\n") == b"=1+1\n"


@pytest.mark.parametrize(
    ("template", "problem"),
    [
        ("%z", "unknown '%z' in --format: expected %s payload, %S bytes of the payload, %k key"),
        ("%s%", "unknown '%' in --format"),
        (r"%s\q", r"unknown '\q' in --format: expected \n, \t, \r, \\ or \xNN"),
        (r"\xg0", r"unknown '\x' in --format"),
    ],
)
def test_a_template_with_an_unknown_letter_is_refused_with_those_that_exist(
    endpoint: str, channel: str, template: str, problem: str
) -> None:
    assert problem in refused(endpoint, ExitCode.USAGE, "scan", channel, "--format", template)


def test_a_template_is_no_format(endpoint: str, channel: str) -> None:
    assert "use one of them" in refused(endpoint, ExitCode.USAGE, "scan", channel, "--format", "%s", "-o", "json")
    default = {"TIDELOG_ENDPOINT": endpoint, "TIDELOG_OUTPUT": "json"}
    done = run_command(["scan", channel, "-n", "1", "--format", "%k\\n"], environment=default)
    assert (done.returncode, done.stdout) == (ExitCode.OK, b"k1\n")
    assert "messages have ticks" in refused(endpoint, ExitCode.USAGE, "tail", channel, "-o", "name")


def terminal(endpoint: str, columns: int, *arguments: str) -> list[str]:
    """Return the lines that a command shows on a pseudo-terminal of ``columns``, without their styles."""
    done = run_command(arguments, environment={"TIDELOG_ENDPOINT": endpoint}, stdout="terminal", columns=columns)
    assert done.returncode == ExitCode.OK, done.stderr
    return [line.rstrip() for line in re.sub(r"\x1b\[[0-9;]*m", "", done.stdout.decode()).splitlines()]


def test_a_table_on_a_terminal_of_60_columns_stands_upright_and_fits(endpoint: str, channel: str) -> None:
    with Client(endpoint) as client:
        client.append(channel, Message("größe 日本語 ".encode() * 50, key=b"k" * 100))

    lines = terminal(endpoint, 60, "scan", channel)

    assert max(map(cell_len, lines)) <= 60
    blocks = [block.splitlines() for block in "\n".join(lines).strip().split("\n\n")]
    assert [[line.split()[0] for line in block] for block in blocks] == [
        ["tick", "time", "vchannel", "type", "key", "payload"]
    ] * (len(MESSAGES) + 1)
    assert blocks[-1][-1].startswith("payload   größe 日本語")
    assert blocks[-1][-1].endswith("…")
    assert blocks[-1][4] == f"key       {'k' * 23}…"


def test_a_table_on_a_wider_terminal_has_a_line_for_each_message(endpoint: str, channel: str) -> None:
    with Client(endpoint) as client:
        client.append(channel, Message("größe 日本語 ".encode() * 50))

    lines = terminal(endpoint, 110, "scan", channel)

    assert lines[0].split() == ["TICK", "TIME", "VCHANNEL", "TYPE", "KEY", "PAYLOAD"]
    assert len(lines) == len(MESSAGES) + 2
    assert max(map(cell_len, lines)) <= 110
    assert lines[-1].endswith("…")


def test_a_table_on_a_usual_terminal_has_a_line_for_each_message(endpoint: str, channel: str) -> None:
    assert len(terminal(endpoint, 80, "scan", channel)) == len(MESSAGES) + 1


def test_records_of_a_wide_table_are_lines_in_a_pipe(endpoint: str, channel: str) -> None:
    head, line = succeeds(endpoint, "channel", "ls", channel, "-o", "wide").decode().splitlines()
    assert head.split()[:2] == ["name", "vchannels"]
    assert line.split()[:2] == [channel, "1"]


def test_a_wide_table_has_all_fields_whole(endpoint: str, channel: str) -> None:
    with Client(endpoint) as client:
        client.append(channel, Message(b"x" * 300))

    head, first, *_, last = succeeds(endpoint, "scan", channel, "-o", "wide").decode().splitlines()

    assert head.split() == [
        "TICK", "TIME", "VCHANNEL", "TYPE", "KEY", "TXN_ID", "BROADCAST_ID", "EVENT_TIME_MS", "PROPERTIES", "PAYLOAD",
    ]  # fmt: skip
    assert '{"x": "y"}' in first
    assert last.endswith(" " + "x" * 300)


def test_keys_select_what_scan_and_tail_print(endpoint: str, channel: str) -> None:
    def keys(*arguments: str) -> list[str | None]:
        return [each.get("key", each.get("key_base64")) for each in records(succeeds(endpoint, *arguments))]

    assert keys("scan", channel, "--key", "k1") == ["k1"]
    assert keys("scan", channel, "--key-prefix", "k") == ["k1", "k2"]
    assert keys("scan", channel, "--key-prefix", "k", "-n", "1") == ["k1"]
    assert keys("tail", channel, "--key-prefix", "k", "-n", "1") == ["k2"]
    assert keys("tail", channel, "--key", "k1", "--since", "1h") == ["k1"]
    assert "both given" in refused(endpoint, ExitCode.USAGE, "scan", channel, "--key", "a", "--key-prefix", "a")


def test_a_tail_finds_a_rare_key_far_back(endpoint: str, channel: str) -> None:
    with Client(endpoint) as client, client.producer(channel) as producer:
        producer.send_many([Message(b"x", key=b"often")] * 50_000)

    [found] = records(succeeds(endpoint, "tail", channel, "--key", "k1", "-n", "3"))

    assert found["key"] == "k1"
