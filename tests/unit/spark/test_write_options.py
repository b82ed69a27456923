"""The options of a write: valid ones are parsed, and contradictions are refused."""

import pytest

from tidelog.spark.errors import OptionError
from tidelog.spark.write.options import parse_write_options


def test_what_is_given_is_understood() -> None:
    options = parse_write_options(
        {"path": "orders", "txnappid": "etl", "TXNVERSION": "7", "durability": "OS", "txntimeout": "60"},
        is_stream=False,
    )
    assert (options.channel, options.app_id, options.app_version) == ("orders", "etl", 7)
    assert (options.delivery, options.durability, options.timeout_s) == ("exactlyOnce", "os", 60)


def test_a_stream_may_have_what_spark_adds() -> None:
    options = parse_write_options({"txnAppId": "a", "checkpointLocation": "/c", "queryName": "q"}, is_stream=True)
    assert options.app_version is None
    assert options.channel == ""


@pytest.mark.parametrize(
    ("raw", "is_stream", "match"),
    [
        ({"path": "a", "channel": "b"}, False, "and by save"),
        ({"path": "a", "channel": "b"}, True, "and by start"),
        ({}, True, "needs the option 'txnAppId'"),
        ({"txnAppId": "a", "txnVersion": "1"}, True, "numbers its batches itself"),
        ({"txnAppId": "a"}, False, "'txnAppId' requires 'txnVersion'"),
        ({"txnVersion": "1"}, False, "'txnVersion' requires 'txnAppId'"),
        ({"txnAppId": "a", "delivery": "atLeastOnce"}, True, "require exactly-once delivery"),
        ({"txnAppId": "x" * 129, "txnVersion": "1"}, False, "129 bytes, expected 1 to 128"),
        ({"txnAppId": "", "txnVersion": "1"}, False, "0 bytes"),
        ({"txnAppId": "a", "txnVersion": "-1"}, False, "whole number from 0"),
        ({"txnTimeout": "0"}, False, "whole number from 1 to 86400"),
        ({"durability": "maybe"}, False, "choose from sync, os"),
        ({"startingTick": "1"}, False, "no option 'startingTick'"),
        ({"endpoint": "a:1,b:2"}, False, "a batch goes to one node of a cluster"),
    ],
)
def test_what_cannot_be_meant_is_refused(raw: dict[str, str], is_stream: bool, match: str) -> None:
    with pytest.raises(OptionError, match=match):
        parse_write_options(raw, is_stream=is_stream)
