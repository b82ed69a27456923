"""Objects of the client say what they are, in a terminal and in a notebook, and show no secret.

Method: objects that do no I/O; a batch that was made here.
"""

from typing import Any

import pytest

from tidelog import (
    AsyncClient,
    AsyncCluster,
    Batch,
    ChannelDescription,
    Client,
    Cluster,
    GroupDescription,
    GroupPosition,
    Message,
    OwnerDescription,
    Tick,
    VchannelDescription,
)
from tidelog.wire.columns import encode_messages
from tidelog.wire.html import MAX_ROWS, html_table

ENDPOINT = "127.0.0.1:1"
TOKEN = "tdl_secret"
SHOWN = {
    "": "of 127.0.0.1:1>",
    "channel": "<{}Channel 'orders'>",
    "vchannel": "<{}Vchannel 'orders/0'>",
    "mailbox": "<{}Mailbox 'jobs'>",
    "scan": "<{}Scan that is not opened yet>",
    "producer": "<{}Producer of orders/0, 0 bytes in flight>",
    "consumer": "<{}Consumer of group 'g', 0 vchannels>",
    "txn": "<{}Transaction, open>",
}
ARGUMENTS: dict[str, tuple[Any, ...]] = {
    "channel": ("orders",), "vchannel": ("orders/0",), "mailbox": ("jobs",), "scan": ("orders",),
    "producer": ("orders/0",), "consumer": ("g", ["orders"]), "txn": (),
}  # fmt: skip


@pytest.mark.parametrize("name", ARGUMENTS)
@pytest.mark.parametrize("kind", [AsyncClient, Client])
async def test_what_a_client_makes_says_what_it_is(kind: Any, name: str) -> None:
    client = kind(ENDPOINT, token=TOKEN)
    prefix = "Async" if kind is AsyncClient else ""
    assert repr(getattr(client, name)(*ARGUMENTS[name])) == SHOWN[name].format(prefix)


@pytest.mark.parametrize("kind", [AsyncClient, Client, AsyncCluster, Cluster])
def test_a_client_shows_its_endpoint_and_no_token(kind: Any) -> None:
    assert repr(kind(ENDPOINT, token=TOKEN)) == f"<{kind.__name__} of {ENDPOINT}>"


async def test_a_client_that_was_closed_says_so() -> None:
    client = AsyncClient(ENDPOINT)
    await client.aclose()
    assert repr(client) == f"<AsyncClient of {ENDPOINT}, closed>"


def test_a_notebook_shows_a_batch_as_a_table_with_escaped_texts() -> None:
    messages = [Message(b"<b>\xff", key=b"k", properties={"a": "<i>"}), *(Message(b"%d" % i) for i in range(30))]
    shown = Batch("orders/0", encode_messages(messages), range(5, 36))._repr_html_()

    assert "<caption>31 messages of orders/0</caption>" in shown
    assert "<td>&lt;b&gt;\\xff</td>" in shown
    assert "&lt;i&gt;" in shown
    assert shown.count("<tr>") == MAX_ROWS + 1
    assert shown.endswith("<p>and 11 more</p>")


def test_a_notebook_shows_channels_and_groups_as_tables() -> None:
    vchannel = VchannelDescription("orders/0", Tick(1), Tick(9), 3, 300)
    channel = ChannelDescription("orders", OwnerDescription(), Tick(1), Tick(9), "", (vchannel,))
    assert "<td>orders/0</td><td>3</td><td>300</td>" in channel._repr_html_()

    position = GroupPosition("orders/0", Tick(5), 0, None, 2, 200, 0.5, is_trimmed=False)
    group = GroupDescription("g", Tick(1), {"orders/0": position}, ())
    assert "<caption>group g, 0 members</caption>" in group._repr_html_()
    assert "<td>orders/0</td>" in group._repr_html_()


def test_a_long_text_is_cut() -> None:
    assert "…</td>" in html_table("t", ["a"], [("x" * 1_000,)], 1)
    assert "…</td>" in html_table("t", ["a"], [(b"x" * 1_000,)], 1)
    assert "…" not in html_table("t", ["a"], [(b"x" * 80,), (None,)], 2)
