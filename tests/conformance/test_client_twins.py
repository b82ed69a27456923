"""``Client`` and ``AsyncClient`` are twins. Method: compare the public methods of each pair and their parameters."""

import inspect

import pytest

import tidelog
from tidelog import msgstream, rocksmq

PAIRS = [
    (tidelog.AsyncClient, tidelog.Client),
    (tidelog.AsyncCluster, tidelog.Cluster),
    (tidelog.AsyncChannel, tidelog.Channel),
    (tidelog.AsyncVchannel, tidelog.Vchannel),
    (tidelog.AsyncProducer, tidelog.Producer),
    (tidelog.AsyncScan, tidelog.Scan),
    (tidelog.AsyncTransaction, tidelog.Transaction),
    (tidelog.AsyncMailbox, tidelog.Mailbox),
    (tidelog.AsyncDelivery, tidelog.Delivery),
    (tidelog.AsyncMailboxWorker, tidelog.MailboxWorker),
    (tidelog.AsyncWal, tidelog.Wal),
    (tidelog.AsyncWalTransaction, tidelog.WalTransaction),
    (tidelog.AsyncWalBroadcast, tidelog.WalBroadcast),
    (tidelog.AsyncWalScanner, tidelog.WalScanner),
    (msgstream.AsyncMsgStream, msgstream.MsgStream),
    (msgstream.AsyncMsgStreamFactory, msgstream.MsgStreamFactory),
    (rocksmq.AsyncRocksMQ, rocksmq.RocksMQ),
    (rocksmq.AsyncRocksMQConsumer, rocksmq.RocksMQConsumer),
    (rocksmq.AsyncIDAllocator, rocksmq.IDAllocator),
]
# Used internally by the synchronous twin and by other packages of the client.
INTERNAL = {
    "take_ready", "pause", "add", "stage", "check_open", "scanner_core", "owners_feed", "scan_core", "scan_one",
    "reach", "within",
    "append_numbered", "put", "found", "fetch_response", "feed", "settle", "take",
}  # fmt: skip
# Libraries read it by calls that block.
SYNCHRONOUS = {"to_arrow_reader"}
RENAMED = {"aclose": "close"}


def public_members(kind: type) -> dict[str, object]:
    return {
        RENAMED.get(name, name): member
        for name, member in inspect.getmembers(kind)
        if not name.startswith("_") and name not in INTERNAL | SYNCHRONOUS
    }


def parameters(member: object) -> list[tuple[str, object, object]]:
    assert callable(member)
    return [(p.name, p.kind, p.default) for p in inspect.signature(member).parameters.values()]


@pytest.mark.parametrize(("asynchronous", "synchronous"), PAIRS)
def test_twins_have_the_same_public_members(asynchronous: type, synchronous: type) -> None:
    assert public_members(asynchronous).keys() == public_members(synchronous).keys()


@pytest.mark.parametrize(("asynchronous", "synchronous"), PAIRS)
def test_twins_take_the_same_parameters(asynchronous: type, synchronous: type) -> None:
    twins = public_members(synchronous)

    for name, member in public_members(asynchronous).items():
        if callable(member):
            assert parameters(member) == parameters(twins[name]), name


def test_the_clients_are_made_alike() -> None:
    assert parameters(tidelog.AsyncClient) == parameters(tidelog.Client)
