"""The services of docker-compose.yml work, as plain processes: commands, variables, health checks and how they end.

Method: `tidelog_testing.servers.compose` reads the file and does what a container engine would. One test applies a
container's restrictions with tools of the system: a read-only root, and no capabilities.
"""

import contextlib
import os
import re
import shutil
import socket
import ssl
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import tidelog
from tidelog_testing.parts.missing import missing
from tidelog_testing.servers.compose import ComposeProcesses, as_user_of_image, read_compose
from tidelog_testing.servers.etcd import WHY_NOT
from tidelog_testing.servers.kafka import KafkaProcesses
from tidelog_testing.servers.pulsar import PulsarProcess

NODES = ("node-1", "node-2", "node-3")


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[ComposeProcesses]:
    with ComposeProcesses(tmp_path) as started:
        yield started


def test_the_default_profile_is_one_server_alone() -> None:
    services = read_compose()["services"]
    assert [name for name, service in services.items() if "profiles" not in service] == ["tidelog"]


def test_up_alone_gives_a_server_that_keeps_what_it_acknowledged(processes: ComposeProcesses) -> None:
    processes.start("tidelog")
    processes.wait_ready("tidelog")
    with tidelog.Client(processes.endpoint("tidelog")) as client:
        client.create_channel("orders")
        client.vchannel("orders").append([b"one", b"two"])
    assert processes.stop("tidelog") == 0
    assert (processes.volumes["data"] / "data" / "FORMAT").is_file()
    processes.start("tidelog")
    processes.wait_ready("tidelog")
    with tidelog.Client(processes.endpoint("tidelog")) as client:
        assert [payload for batch in client.vchannel("orders").scan() for payload in batch.payloads] == [b"one", b"two"]


def test_the_health_check_is_green_only_while_the_server_serves(processes: ComposeProcesses) -> None:
    assert processes.health("tidelog").returncode != 0
    processes.start("tidelog")
    processes.wait_healthy("tidelog")
    assert processes.stop("tidelog") == 0
    assert processes.health("tidelog").returncode != 0


def test_a_backup_goes_to_the_volume_that_is_there_for_it(processes: ComposeProcesses) -> None:
    processes.start("tidelog")
    processes.wait_ready("tidelog")
    for command in (["create", "/backups"], ["verify", "/backups"]):
        done = processes.execute("tidelog", ["tidelog", "backup", *command])
        assert done.returncode == 0, done.stderr
    assert (processes.volumes["backups"] / "BACKUPS").is_file()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a mount that is read-only")
def test_a_server_needs_no_capability_and_writes_to_its_volume_only(processes: ComposeProcesses) -> None:
    volume = processes.volumes["data"]
    script = (
        f"mount --bind {volume} {volume} && mount -o remount,bind,ro / "
        "&& ! touch /tidelog-was-here 2>/dev/null "
        '&& exec setpriv --bounding-set=-all --inh-caps=-all --no-new-privs "$@"'
    )
    processes.start("tidelog", wrapper=["unshare", "--mount", "sh", "-c", script, "sh"])
    processes.wait_ready("tidelog")
    with tidelog.Client(processes.endpoint("tidelog")) as client:
        client.create_channel("orders")
        client.vchannel("orders").append(b"one")
    assert processes.stop("tidelog") == 0


def test_the_profile_etcd_gives_three_servers_that_share_their_channels(processes: ComposeProcesses) -> None:
    if shutil.which("etcd") is None or shutil.which("etcdctl") is None:
        missing(WHY_NOT)
    processes.start("etcd")
    processes.wait_healthy("etcd")
    for node in NODES:
        processes.start(node)
    for node in NODES:
        processes.wait_ready(node)
    names = [f"channel-{number}" for number in range(6)]
    with tidelog.Cluster(processes.endpoint("node-1")) as cluster:
        for name in names:
            cluster.create_channel(name)
            cluster.vchannel(name).append(name.encode())
        # Two per node: a channel is created on the node with the fewest.
        owners = {cluster.owner_of(name).address for name in names}
        assert owners == {processes.endpoint(node) for node in NODES}
    for node in NODES:
        with tidelog.Cluster(processes.endpoint(node)) as cluster:
            for name in names:
                payloads = [each for batch in cluster.vchannel(name).scan() for each in batch.payloads]
                assert payloads == [name.encode()]
    for node in NODES:
        left = re.search(rf'(?m)^tidelog_lease_remaining_seconds{{node="{node}"}} (\S+)$', processes.metrics(node))
        assert left is not None
        assert 0 < float(left[1]) <= 10
        assert processes.stop(node) == 0


def test_the_profile_kafka_gives_a_server_whose_folder_may_be_deleted(
    processes: ComposeProcesses, tmp_path: Path
) -> None:
    """The broker is that of the tests, since its image is not built here."""
    with KafkaProcesses(tmp_path / "kafka") as kafka:
        processes.ports["kafka", 9092] = int(kafka.servers.rpartition(":")[2])
        check_profile_of(processes, "kafka")


def test_the_profile_pulsar_gives_a_server_whose_folder_may_be_deleted(
    processes: ComposeProcesses, tmp_path: Path
) -> None:
    """As for Kafka; and the health check asks the broker itself."""
    *command, script = processes.services["pulsar"]["healthcheck"]["test"][1:]
    with PulsarProcess(tmp_path / "pulsar") as pulsar:
        for number, url in ((6650, pulsar.url), (8080, pulsar.admin_url)):
            processes.ports["pulsar", number] = int(url.rpartition(":")[2])
        web = processes.ports["pulsar", 8080]
        assert subprocess.run([*command, script.replace("/8080;", f"/{web};")], check=False).returncode == 0
        check_profile_of(processes, "pulsar")
    assert subprocess.run([*command, script.replace("/8080;", f"/{web};")], check=False).returncode != 0


def check_profile_of(processes: ComposeProcesses, engine: str) -> None:
    """Check that the server of a profile keeps its log in the engine, which runs."""
    server = f"tidelog-{engine}"
    # Each `up` runs the job.
    for _ in range(2):
        assert processes.run(f"{engine}-log") == 0, processes.output(f"{engine}-log")
    processes.start(server)
    processes.wait_ready(server)
    with tidelog.Client(processes.endpoint(server)) as client:
        client.create_channel("orders")
        client.vchannel("orders").append([b"one", b"two"])
    assert processes.stop(server) == 0
    view = processes.volumes[f"{engine}-view"]
    assert (view / "data" / "FORMAT").read_text().startswith("tidelog view format 1\n")
    shutil.rmtree(view / "data")
    processes.start(server)
    processes.wait_ready(server)
    with tidelog.Client(processes.endpoint(server)) as client:
        found = [each for batch in client.vchannel("orders").scan() for each in batch.payloads]
    assert found == [b"one", b"two"]
    assert processes.stop(server) == 0


def test_the_certificates_of_the_profile_tls_are_good_for_the_names_of_its_server(
    processes: ComposeProcesses,
) -> None:
    assert processes.run("certificates") == 0
    folder = processes.volumes["certificates"]
    for name in ("tidelog-tls", "localhost", "127.0.0.1"):
        assert handshake(folder, name) == "TLSv1.3"
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(folder, "elsewhere")
    assert {path.name: path.stat().st_mode & 0o777 for path in folder.glob("*.key")} == {
        "client.key": 0o600, "server.key": 0o600,
    }  # fmt: skip
    before = (folder / "server.pem").read_bytes()
    assert processes.run("certificates") == 0
    assert (folder / "server.pem").read_bytes() == before


def test_the_certificates_of_the_profile_tls_are_good_for_more_names_from_variables(tmp_path: Path) -> None:
    with ComposeProcesses(tmp_path, {"TIDELOG_TLS_NAMES": "log.example, 192.0.2.7"}) as processes:
        assert processes.run("certificates") == 0
        for name in ("tidelog-tls", "localhost", "127.0.0.1", "log.example", "192.0.2.7"):
            assert handshake(processes.volumes["certificates"], name) == "TLSv1.3"


def handshake(folder: Path, name: str) -> str | None:
    """Connect to a server that shows the certificate, by name, showing the client's own; return the version of TLS."""
    of_server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=folder / "authority.pem")
    of_server.verify_mode = ssl.CERT_REQUIRED
    of_server.load_cert_chain(folder / "server.pem", folder / "server.key")
    of_client = ssl.create_default_context(cafile=folder / "authority.pem")
    of_client.load_cert_chain(folder / "client.pem", folder / "client.key")
    ours, theirs = socket.socketpair()

    def serve() -> None:
        with theirs, contextlib.suppress(ssl.SSLError, OSError):
            with of_server.wrap_socket(theirs, server_side=True) as accepted:
                accepted.recv(1)

    serving = threading.Thread(target=serve)
    serving.start()
    try:
        with ours, of_client.wrap_socket(ours, server_hostname=name) as connection:
            return connection.version()
    finally:
        ours.close()
        serving.join()


def test_the_profile_tls_gives_a_server_that_is_closed(processes: ComposeProcesses) -> None:
    assert processes.run("certificates") == 0
    processes.start("tidelog-tls")
    processes.wait_until_written("tidelog-tls", '"event": "ready"')
    processes.wait_healthy("tidelog-tls")
    with (
        tidelog.Client(processes.endpoint("tidelog-tls"), timeout_s=5.0) as client,
        pytest.raises(tidelog.TidelogError),
    ):
        client.create_channel("orders")
    assert processes.stop("tidelog-tls") == 0


@pytest.mark.spark
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can run a process as the user of the image")
def test_the_job_of_the_profile_spark_reads_the_log_as_the_user_of_its_image(
    processes: ComposeProcesses, tmp_path: Path
) -> None:
    (tmp_path / "etc").mkdir()
    processes.start("tidelog")
    processes.wait_ready("tidelog")
    with tidelog.Client(processes.endpoint("tidelog")) as client:
        for name in ("orders", "payments"):
            client.create_channel(name, vchannels=2)
            client.append(f"{name}/1", [b"one", b"three"])
    wrapper = as_user_of_image(processes.services["spark"], tmp_path / "etc")
    assert processes.run("spark", wrapper) == 0, processes.output("spark")
    rows = re.findall(r"(?m)^\|(\w+) *\|(\d+) *\|(\d+) *\|(\d+) *\|", processes.output("spark"))
    assert rows == [("orders", "1", "2", "8"), ("payments", "1", "2", "8")]
