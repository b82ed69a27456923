"""Valid and invalid endpoints. Method: create clients with them, which do no I/O."""

import pytest

from tidelog import AsyncClient, AsyncCluster, Client

GOOD = (
    "127.0.0.1:7420", "localhost:1", "tide_log-1.example.org:65535", "[::1]:7420", "[fe80::1%eth0]:7420",
    "unix:/run/tidelog.sock", "unix:///run/tidelog.sock", "dns:///tidelog.example.org:7420", "dns:7420",
    "ipv4:10.0.0.1:7420,10.0.0.2:7420", "ipv6:[::1]:7420",
)  # fmt: skip
BAD = {
    "": "has no port",
    "foo": "has no port",
    "127.0.0.1": "has no port",
    "http://127.0.0.1:7420": "is a URL",
    "grpc://host:7420": "is a URL",
    ":7420": "has no host",
    "host:": "has the port ''",
    "host:0": "has the port '0'",
    "host:65536": "has the port '65536'",
    "host:grpc": "has the port 'grpc'",
    "host:٣": "has the port '٣'",
    "::1:7420": "in brackets",
    "::1": "in brackets",
    "[::1]": "more than one colon",
    "[host]:7420": "'host' in brackets",
    "a host:7420": "'a host' as its host",
    "user@host:7420": "'user@host' as its host",
    "a:7420,b:7420": "names several servers",
}


@pytest.mark.parametrize("endpoint", GOOD)
def test_an_address_of_a_server_is_taken(endpoint: str) -> None:
    assert AsyncClient(endpoint).endpoint == endpoint


@pytest.mark.parametrize(("endpoint", "wrong"), BAD.items())
def test_what_is_no_address_is_refused_before_anything_is_sent(endpoint: str, wrong: str) -> None:
    for kind in (AsyncClient, Client):
        with pytest.raises(ValueError, match="expected host:port, such as") as refused:
            kind(endpoint)
        assert wrong in str(refused.value)


def test_a_port_alone_is_refused() -> None:
    with pytest.raises(ValueError, match="the endpoint is 7420"):
        AsyncClient(7420)  # type: ignore[arg-type]  # the claim


def test_a_cluster_takes_several_and_looks_at_each() -> None:
    assert AsyncCluster("a:1, b:2").endpoints == ("a:1", "b:2")
    with pytest.raises(ValueError, match="'b' has no port"):
        AsyncCluster("a:1,b")
