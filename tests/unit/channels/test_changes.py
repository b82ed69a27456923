"""How many vchannels a change adds to a channel. Method: each case, and the words of each refusal."""

import pytest

from tidelog_server.channels.changes import ChannelChange
from tidelog_server.core.errors import InvalidRequestError


@pytest.mark.parametrize(("wanted", "added"), [(0, 0), (3, 0), (4, 1), (1_024, 1_021)])
def test_a_channel_gets_what_it_lacks(wanted: int, added: int) -> None:
    assert ChannelChange(vchannels=wanted).added_to("orders", 3, "") == added


def test_a_channel_never_loses_vchannels() -> None:
    with pytest.raises(InvalidRequestError, match="'orders' has 3 vchannels, and 2 are wanted: ") as no:
        ChannelChange(vchannels=2).added_to("orders", 3, "")
    assert no.value.values["field"] == "vchannels"


def test_a_channel_with_one_order_keeps_its_only_vchannel() -> None:
    assert ChannelChange(vchannels=1).added_to("_journal.1", 1, "a/journal") == 0
    with pytest.raises(InvalidRequestError, match="'a/journal', which has one order"):
        ChannelChange(vchannels=2).added_to("_journal.1", 1, "a/journal")
