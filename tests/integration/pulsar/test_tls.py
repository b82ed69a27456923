"""TLS: the broker proves itself by a certificate, clients by a token or a certificate."""

import base64
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import jwt
import pytest

import tidelog
from tidelog import TlsOptions
from tidelog.msgstream import AsyncPulsarMsgStreamFactory, PulsarBroker
from tidelog_testing.parts.streams import ids_from, pack, subscribed
from tidelog_testing.servers.certificates import Authority
from tidelog_testing.servers.ports import free_ports
from tidelog_testing.servers.pulsar import PulsarProcess

AUTHENTICATION = "org.apache.pulsar.broker.authentication.AuthenticationProvider"


class Secured(NamedTuple):
    """A broker with TLS.

    Attributes:
        url, admin_url: Its addresses with TLS.
        token: That of an administrator.
    """

    process: PulsarProcess
    authority: Authority
    url: str
    admin_url: str
    token: str


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    folder = tmp_path_factory.mktemp("tls")
    authority, secret = Authority.make(folder), secrets.token_bytes(32)
    files = authority.server()
    authority.client("admin")
    token = jwt.encode({"sub": "admin"}, secret, algorithm="HS256")
    broker, web = free_ports(2)
    settings = {
        "brokerServicePortTls": broker, "webServicePortTls": web, "numHttpServerThreads": 8,
        "tlsCertificateFilePath": files["tls__cert"], "tlsKeyFilePath": files["tls__key"],
        "tlsTrustCertsFilePath": authority.ca,
        "authenticationEnabled": "true", "authorizationEnabled": "true", "superUserRoles": "admin",
        "authenticationProviders": f"{AUTHENTICATION}Token,{AUTHENTICATION}Tls",
        "tokenSecretKey": f"data:;base64,{base64.b64encode(secret).decode()}",
        "brokerClientAuthenticationPlugin": "org.apache.pulsar.client.impl.auth.AuthenticationToken",
        "brokerClientAuthenticationParameters": f"token:{token}",
    }  # fmt: skip
    with PulsarProcess(folder / "broker", settings, token=token) as process:
        yield Secured(process, authority, f"pulsar+ssl://127.0.0.1:{broker}", f"https://127.0.0.1:{web}", token)


async def round_trip(secured: Secured, broker: PulsarBroker, name: str) -> list[int]:
    topic = broker.topic(name)
    broker.admin("the test").create_topic(topic)
    async with AsyncPulsarMsgStreamFactory(broker).new_msg_stream() as stream:
        await subscribed(stream, [topic])
        await stream.produce(pack(1, 2))
        return await ids_from(stream, 2)


async def test_a_token_opens_streams_over_tls(secured: Secured) -> None:
    tls = TlsOptions(ca=secured.authority.ca)
    async with PulsarBroker(secured.url, admin_url=secured.admin_url, token=secured.token, tls=tls) as broker:
        assert await round_trip(secured, broker, "token") == [1, 2]


async def test_a_client_certificate_opens_streams(secured: Secured) -> None:
    folder = secured.authority.folder
    tls = TlsOptions(ca=secured.authority.ca, cert=folder / "admin.pem", key=folder / "admin.key")
    async with PulsarBroker(secured.url, admin_url=secured.admin_url, tls=tls) as broker:
        assert await round_trip(secured, broker, "certificate") == [1, 2]


async def test_a_broker_of_another_authority_is_not_trusted(secured: Secured, tmp_path: Path) -> None:
    tls = TlsOptions(ca=Authority.make(tmp_path, "other").ca)
    async with PulsarBroker(secured.url, token=secured.token, tls=tls, operation_timeout_s=1) as broker:
        async with AsyncPulsarMsgStreamFactory(broker).new_msg_stream() as stream:
            with pytest.raises(tidelog.UnavailableError, match="certificate verify failed"):
                await stream.as_producer(["topic"])


async def test_without_credentials_the_broker_refuses(secured: Secured) -> None:
    tls = TlsOptions(ca=secured.authority.ca)
    async with PulsarBroker(secured.url, tls=tls, operation_timeout_s=1) as broker:
        async with AsyncPulsarMsgStreamFactory(broker).new_msg_stream() as stream:
            with pytest.raises(tidelog.UnauthenticatedError, match="check the token or the client certificate"):
                await stream.as_producer(["topic"])
