"""Unknown options of scans. Method: clients and handles without a server, because nothing is sent."""

from collections.abc import Callable
from typing import Any

import pytest

from tidelog import AsyncClient, Client

CALLS: dict[str, Callable[..., Any]] = {
    "AsyncClient.scan": lambda **options: AsyncClient().scan("orders", **options),
    "Client.scan": lambda **options: Client().scan("orders", **options),
    "Client.tail": lambda **options: Client().tail("orders", **options),
    "Vchannel.scan": lambda **options: Client().vchannel("orders").scan(**options),
    "Channel.scan": lambda **options: Client().channel("orders").scan(**options),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS.keys())
def test_an_unknown_option_is_refused_with_those_that_a_scan_has(call: Callable[..., Any]) -> None:
    with pytest.raises(
        TypeError, match=r"^scan\(\) got an unexpected keyword argument 'from_': expected one of start, until, "
    ) as error:
        call(from_=1)
    assert "watermark_interval_s" in str(error.value)


def test_an_invalid_pattern_is_refused_by_the_call() -> None:
    with pytest.raises(ValueError, match="regular expressions are not supported"):
        Client().scan("orders.*|x")
