"""Records as tables, JSON and text. Method: the output on a terminal of 80 columns is compared."""

import json
import re

import pytest

from tidelog import Tick
from tidelog_cli.output.records import Output, print_records
from tidelog_server.runtime.logging import wide_as_text

TXN_ID = 470644499796459521
RECORDS = [
    {"txn_id": TXN_ID, "tick": TXN_ID + 1, "vchannels": ["orders/0", "payments/0"], "reason": "because " * 9, "n": 5},
    {"txn_id": TXN_ID + 2, "tick": TXN_ID + 3, "vchannels": [], "reason": "", "n": 123},
]


def test_a_number_stays_whole_on_a_narrow_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")

    print_records(RECORDS, Output.TABLE)

    table = capsys.readouterr().out
    assert all(str(TXN_ID + offset) in table for offset in range(4))
    assert max(map(len, table.splitlines())) <= 80
    assert table.count("because") == 9


def test_a_lone_record_that_is_too_wide_stands_upright(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "40")

    print_records(RECORDS[:1], Output.TABLE)
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[:2] for line in lines[:3]] == [
        ["txn", "id"], ["tick", str(TXN_ID + 1)], ["vchannels", "orders/0"]
    ]  # fmt: skip
    assert max(map(len, lines)) <= 40

    print_records([{"a": 1, "b": "x"}], Output.TABLE)
    assert capsys.readouterr().out.split() == ["a", "b", "1", "x"]


DESCRIBED = [
    {
        "name": f"a-channel-with-a-name/{number}",
        "messages": 1_000_000 + number,
        "bytes": 123_456_789_012 + number,
        "trim_tick": TXN_ID + number,
        "last_tick": TXN_ID + 10 + number,
        "retention": "age=259200s bytes=1073741824",
    }
    for number in range(3)
]


@pytest.mark.parametrize("columns", [80, 60])
def test_records_that_are_too_wide_stand_upright_one_after_the_other(
    columns: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))

    print_records(DESCRIBED, Output.TABLE)

    shown = capsys.readouterr().out
    assert max(map(len, shown.splitlines())) <= columns
    blocks = [dict(re.split(r" {2,}", line.strip()) for line in block.splitlines()) for block in shown.split("\n\n")]
    assert blocks == [{name.replace("_", " "): str(value) for name, value in record.items()} for record in DESCRIBED]


def test_what_no_terminal_is_wide_enough_for_goes_on_in_the_next_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "20")

    print_records(DESCRIBED, Output.TABLE)

    shown = capsys.readouterr().out
    assert max(map(len, shown.splitlines())) <= 20
    values = "".join(line[11:].strip() for line in shown.splitlines())
    assert values == "".join(str(value).replace(" ", "") for record in DESCRIBED for value in record.values())


def test_a_table_leaves_out_columns_without_anything(capsys: pytest.CaptureFixture[str]) -> None:
    print_records(
        [{"a": "", "b": [], "c": None, "d": "", "n": 0}, {"a": "", "b": [], "c": None, "d": "x", "n": 0}], Output.TABLE
    )

    assert capsys.readouterr().out.split() == ["d", "n", "0", "x", "0"]


def test_lists_stay_lists_in_json(capsys: pytest.CaptureFixture[str]) -> None:
    print_records(RECORDS, Output.JSON)
    shown = json.loads(capsys.readouterr().out)
    assert [(row["vchannels"], row["n"]) for row in shown] == [(["orders/0", "payments/0"], 5), ([], 123)]
    print_records(RECORDS, Output.JSONL)
    assert [json.loads(line) for line in capsys.readouterr().out.splitlines()] == shown


def test_text_has_a_record_on_each_line(capsys: pytest.CaptureFixture[str]) -> None:
    print_records(RECORDS, Output.TEXT)

    first, second = (line.split("\t") for line in capsys.readouterr().out.splitlines())
    assert first[:3] == [str(TXN_ID), str(TXN_ID + 1), "orders/0 payments/0"]
    assert second == [str(TXN_ID + 2), str(TXN_ID + 3), "", "", "123"]


def test_numbers_that_floats_would_round_are_texts_in_json_wherever_they_stand(
    capsys: pytest.CaptureFixture[str],
) -> None:
    nested = {
        "first_tick": TXN_ID,
        "lanes": [{"trim_tick": 0, "end_ticks": (TXN_ID, 1)}],
        "last_tick": None,
        "attick": 1,
    }

    print_records([nested], Output.JSONL)

    assert json.loads(capsys.readouterr().out) == {
        "first_tick": str(TXN_ID), "lanes": [{"trim_tick": "0", "end_ticks": [str(TXN_ID), "1"]}], "last_tick": None,
        "attick": 1,
    }  # fmt: skip


def test_a_log_line_in_json_has_ids_as_texts() -> None:
    event = {"event": "aborted", "txn_id": Tick(TXN_ID), "last_tick": 0, "bytes": 1 << 60, "tick": None}

    assert wide_as_text(None, "info", event) == {**event, "txn_id": str(TXN_ID), "last_tick": "0"}
