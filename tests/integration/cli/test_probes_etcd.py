"""What ``tidelog doctor`` says of an etcd. Method: a real one, with and without TLS, and none."""

from pathlib import Path

from tidelog_server.commands.probes import Severity
from tidelog_server.commands.probes_etcd import check_etcd
from tidelog_server.metadata.etcd_connection import EtcdAccess
from tidelog_testing.servers.certificates import Authority, make_pair
from tidelog_testing.servers.etcd import EtcdProcess
from tidelog_testing.servers.ports import free_port


async def test_an_etcd_tells_its_version_size_and_latency(etcd: EtcdProcess) -> None:
    findings = await check_etcd(EtcdAccess((etcd.endpoint,)), timeout_s=20.0)
    assert [each.check for each in findings] == ["etcd", "etcd size", "etcd latency"]
    assert findings[0].severity is Severity.OK
    assert "version 3." in findings[0].text


async def test_an_etcd_with_tls_is_asked_as_the_server_asks_it(tmp_path: Path) -> None:
    authority = Authority.make(tmp_path)
    server = make_pair("etcd", authority.pair, has_loopback=True).write(tmp_path, "etcd")
    client = make_pair("node", authority.pair, dns=("node",)).write(tmp_path, "node")
    with EtcdProcess(tmp_path / "etcd", tls=(authority.ca, *server)) as etcd:
        access = EtcdAccess((etcd.endpoint,), ca_file=authority.ca, cert_file=client[0], key_file=client[1])
        assert (await check_etcd(access, timeout_s=20.0))[0].severity is Severity.OK
        [finding] = await check_etcd(EtcdAccess((etcd.endpoint,)), timeout_s=2.0)
        assert finding.severity is Severity.FAILURE


async def test_an_etcd_that_is_not_there_fails_by_name() -> None:
    endpoint = f"127.0.0.1:{free_port()}"
    for asked in (endpoint, "nowhere"):
        [finding] = await check_etcd(EtcdAccess((asked,)), timeout_s=2.0)
        assert finding.severity is Severity.FAILURE
        assert asked in finding.text
