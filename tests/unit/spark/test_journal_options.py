"""Goal: options of reads of journals have the documented meaning, and the error of an invalid one says how to fix it.

Method: parse single sets of options as Spark hands them over, in lower case and as text.
"""

import pytest

from tidelog.gazette import InvalidSelectorError, LabelSelector, LabelTerm
from tidelog.spark.errors import OptionError
from tidelog.spark.journals.options import JournalOptions, parse_journal_options
from tidelog.spark.journals.plan import held_messages
from tidelog.spark.options import parse_options, reads_journals
from tidelog.spark.stream.options import parse_stream_options
from tidelog_testing.servers.processes import ROOT


def parse_with(**options: str) -> JournalOptions:
    return parse_journal_options({"journal": "my/journal", **options})


def test_a_journal_or_a_selector_makes_it_a_read_of_journals() -> None:
    assert reads_journals({"Journal": "my/journal"})
    assert reads_journals({"journalselector": ""})
    assert not reads_journals({"channel": "orders", "isolation": "read_committed"})


def test_names_are_taken_in_any_case_and_have_defaults() -> None:
    parsed = parse_journal_options({"JOURNAL": "my/journal", "uuidfield": "id", "ISOLATION": "Read_Uncommitted"})
    assert parsed == parse_with(uuidField="id", isolation="read_uncommitted")
    assert (parsed.is_committed, parsed.uuid_field_number, parsed.max_held_messages) == (False, 1, 0)
    parsed = parse_with(endpoint="a:1", asOfTick="7", failOnDataLoss="false", payloadFormat="string")
    assert (parsed.is_committed, parsed.uuid_field, parsed.connection.endpoint) == (True, "UUID", "a:1")
    assert (parsed.end_tick, parsed.cut, parsed.fail_on_data_loss) == (8, "asOfTick=7", False)
    assert parsed.payloads.kind == "string"


def test_a_journal_is_selected_by_its_name() -> None:
    assert parse_with().selector == LabelSelector((LabelTerm("name", "my/journal"),))
    parsed = parse_journal_options({"journalSelector": "topic=clicks, !retired"})
    assert (parsed.journal, parsed.selector_text) == ("", "topic=clicks, !retired")
    assert parsed.selector == LabelSelector((LabelTerm("topic", "clicks"),), (LabelTerm("retired"),))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"journal": "a/journal", "journalSelector": "topic=a"}, "contradict each other"),
        ({"journal": ""}, "no journal is set"),
        ({"journalSelector": ""}, "no journal is set"),
        ({"isolation": "serializable"}, "expected read_committed or read_uncommitted"),
        ({"uuidField": ""}, "'uuidField' is empty"),
        ({"uuidFieldNumber": "0"}, "from 1 to 536870911"),
        ({"uuidFieldNumber": "19500"}, "protobuf reserves 19000 to 19999"),
        ({"maxHeldMessages": "0"}, "from 1 to 1000000"),
        ({"path": "orders"}, r"load\(...\) names a channel"),
        ({"channels": "orders"}, "of channels or of journals"),
        ({"startingTick": "5"}, "filter on the column 'begin'"),
        ({"minPartitions": "5"}, "a journal is one partition"),
        ({"pushFilters": "true"}, "evaluated by Spark"),
        ({"archive": "/tmp/x"}, "archives are of channels"),
        ({"moreColumns": "txn_id"}, "for journals choose from _corrupt_record"),
        ({"isolationLevel": "x"}, "did you mean 'isolation'"),
    ],
)
def test_the_error_names_the_option_and_what_to_do(options: dict[str, str], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        parse_journal_options({"journal": "my/journal"} | options if "journalSelector" not in options else options)


def test_an_invalid_selector_is_shown() -> None:
    with pytest.raises(InvalidSelectorError, match="topic"):
        parse_journal_options({"journalSelector": "topic in (a"})


def test_options_of_journals_are_refused_for_channels() -> None:
    for parse in (parse_options, parse_stream_options):
        with pytest.raises(OptionError, match="'isolation' is for reads of journals"):
            parse({"channel": "orders", "isolation": "read_committed"})


def test_a_task_holds_some_megabytes_of_messages() -> None:
    assert held_messages(0, 0) == 8_192
    assert held_messages(1_000_000, 100_000_000) == 8_192
    assert held_messages(1_000, 65_536_000) == 1_024
    assert held_messages(10, 10 << 30) == 16


def test_the_options_are_those_that_the_document_has() -> None:
    document = (ROOT / "docs/guides/spark/reading.md").read_text()
    for name in ("journal", "journalSelector", "isolation", "uuidField", "uuidFieldNumber", "maxHeldMessages"):
        assert f"`{name}`" in document or f'"{name}"' in document
