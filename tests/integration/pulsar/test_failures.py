"""What cannot work on Pulsar gets an error of its own."""

import base64
import secrets
from collections.abc import AsyncIterator, Iterator

import jwt
import pytest

import tidelog
from tidelog.msgstream import (
    AsyncPulsarMsgStreamFactory,
    AsyncTimeTicker,
    BadPositionError,
    InsertMsg,
    MessageTooLargeError,
    MsgPack,
    MsgPosition,
    PartialProduceError,
    PulsarBroker,
    StreamStateError,
)
from tidelog_testing.parts.pulsar_topics import NewTopics
from tidelog_testing.parts.streams import ids_from, pack, subscribed
from tidelog_testing.servers.pulsar import PulsarProcess

LIMIT_BYTES = 5 << 20


async def test_unknown_topics_are_reported(factory: AsyncPulsarMsgStreamFactory, broker: PulsarBroker) -> None:
    async with factory.new_msg_stream() as stream:
        with pytest.raises(tidelog.ChannelNotFoundError, match="create the topic, or let the broker create topics"):
            await stream.as_producer(["unknown"])
    with pytest.raises(tidelog.ChannelNotFoundError):
        await AsyncTimeTicker(broker, ["unknown"]).start()


async def test_a_message_over_the_limit_of_the_broker_is_refused(
    factory: AsyncPulsarMsgStreamFactory, new_topics: NewTopics
) -> None:
    factory.set_params({"max_message_bytes": 2 * LIMIT_BYTES})
    async with factory.new_msg_stream() as stream:
        await subscribed(stream, await new_topics(1))
        with pytest.raises(MessageTooLargeError, match="raise maxMessageSize of the broker") as refused:
            await stream.produce(MsgPack(msgs=[InsertMsg(row_data=[bytes(LIMIT_BYTES + 1)])]))
        assert refused.value.effect == "none"
        await stream.produce(pack(1))

        assert await ids_from(stream, 1) == [1]


async def test_a_pack_that_is_sent_in_part_says_which_topics_have_it(
    factory: AsyncPulsarMsgStreamFactory, new_topics: NewTopics
) -> None:
    one, two = await new_topics(2)
    factory.set_params({"max_message_bytes": 2 * LIMIT_BYTES})
    large = InsertMsg(id=2, row_data=[bytes(LIMIT_BYTES + 1)], hash_keys=[1])
    async with factory.new_msg_stream() as stream:
        await subscribed(stream, [one, two])
        with pytest.raises(PartialProduceError, match=f"{one} has 1 messages") as partial:
            await stream.produce(MsgPack(msgs=[*pack(1, key=0).msgs, large]))
        assert await ids_from(stream, 1) == [1]

    assert partial.value.effect == "unknown"
    assert list(partial.value.sent) == [one]
    assert isinstance(partial.value.errors[two], MessageTooLargeError)


@pytest.mark.parametrize("message_id", [b"", b"text", b"\x08\x01", None])
async def test_invalid_positions_are_refused(
    factory: AsyncPulsarMsgStreamFactory, new_topics: NewTopics, message_id: bytes
) -> None:
    [topic] = await new_topics(1)
    async with factory.new_tt_msg_stream() as stream:
        await subscribed(stream, [topic])
        with pytest.raises(BadPositionError, match="expected a serialized id of Pulsar"):
            await stream.seek([MsgPosition(topic, message_id)])


async def test_without_the_administration_api_the_error_names_it(
    pulsar: PulsarProcess, namespace: str, new_topics: NewTopics
) -> None:
    [topic] = await new_topics(1)
    async with PulsarBroker(pulsar.url, namespace=namespace) as plain:
        factory = AsyncPulsarMsgStreamFactory(plain)
        async with factory.new_msg_stream() as stream:
            with pytest.raises(StreamStateError, match=f"creating the topic {topic}-tidelog-sub.* pass admin_url"):
                await stream.as_consumer([topic], "sub")
        with pytest.raises(StreamStateError, match="destroying topics needs the administration API"):
            await factory.dispose([topic], "sub", destroys_channels=True)


# ------------------------------------------------------------------------------------------------- credentials


@pytest.fixture(scope="module")
def secret() -> bytes:
    return secrets.token_bytes(32)


def token(secret: bytes, role: str) -> str:
    return jwt.encode({"sub": role}, secret, algorithm="HS256")


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory, secret: bytes) -> Iterator[PulsarProcess]:
    settings = {
        "authenticationEnabled": "true", "authorizationEnabled": "true", "superUserRoles": "admin",
        "authenticationProviders": "org.apache.pulsar.broker.authentication.AuthenticationProviderToken",
        "tokenSecretKey": f"data:;base64,{base64.b64encode(secret).decode()}",
        "brokerClientAuthenticationPlugin": "org.apache.pulsar.client.impl.auth.AuthenticationToken",
        "brokerClientAuthenticationParameters": f"token:{token(secret, 'admin')}",
    }  # fmt: skip
    with PulsarProcess(tmp_path_factory.mktemp("secured"), settings, token=token(secret, "admin")) as running:
        yield running


@pytest.fixture
async def admin(secured: PulsarProcess, secret: bytes) -> AsyncIterator[PulsarBroker]:
    granted = token(secret, "admin")
    async with PulsarBroker(secured.url, admin_url=secured.admin_url, token=lambda: granted) as connection:
        yield connection


async def test_a_token_opens_the_streams_that_its_role_may_use(
    secured: PulsarProcess, admin: PulsarBroker, secret: bytes
) -> None:
    topic = admin.topic("guarded")
    secured.create_topic(topic)
    async with AsyncPulsarMsgStreamFactory(admin).new_msg_stream() as stream:
        await subscribed(stream, [topic])
        await stream.produce(pack(1))
        assert await ids_from(stream, 1) == [1]
    refused = {token(b"x" * 32, "admin"): tidelog.UnauthenticatedError, None: tidelog.UnauthenticatedError,
               token(secret, "stranger"): tidelog.PermissionDeniedError}  # fmt: skip
    for given, error in refused.items():
        async with PulsarBroker(secured.url, token=given) as connection:
            async with AsyncPulsarMsgStreamFactory(connection).new_msg_stream() as stream:
                with pytest.raises(error):
                    await stream.as_producer([topic])
