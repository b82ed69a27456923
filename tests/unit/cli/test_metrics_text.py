"""Metrics are read as Prometheus reads them: names in labels neither hide nor fake a figure."""

import pytest
from prometheus_client import CollectorRegistry, Gauge
from prometheus_client.exposition import generate_latest

from tidelog_cli.commands.top import parse
from tidelog_cli.metrics_text import samples, without_labels

NAMES = [
    "a b",
    "a\u2028tidelog_disk_free_bytes 1",
    "a\x85tidelog_disk_free_bytes 1\x85",
    "a\x0btidelog_disk_free_bytes 1",
    'x"} 1',
    "a\\",
    "a\nb",
    "a\r\ntidelog_disk_free_bytes 1",
    '# TYPE', "le=\"0.1\"", "{}", "\u202e", "\U0001f600",
]  # fmt: skip


def text_of(names: list[str]) -> str:
    registry = CollectorRegistry()
    messages = Gauge("tidelog_mailbox_messages", "Messages of a mailbox.", ["mailbox"], registry=registry)
    for number, name in enumerate(names):
        messages.labels(name).set(number)
    Gauge("tidelog_disk_free_bytes", "Free space.", registry=registry).set(1 << 40)
    return generate_latest(registry).decode()


@pytest.mark.parametrize("name", NAMES)
def test_a_name_in_a_label_changes_no_other_figure(name: str) -> None:
    assert without_labels(text_of([name])) == {"tidelog_disk_free_bytes": float(1 << 40)}
    assert parse(text_of([name])) == ({"tidelog_disk_free_bytes": float(1 << 40)}, [])


def test_each_name_is_read_back() -> None:
    found = {labels["mailbox"]: value for name, labels, value in samples(text_of(NAMES)) if labels}
    assert found == {name: float(number) for number, name in enumerate(NAMES)}


@pytest.mark.parametrize("text", ["<html>no</html>", "a", "a x", "a{", 'a{x="', "\x00 1", "# TYPE a\na 1"])
def test_a_text_of_another_kind_is_an_error_that_names_the_format(text: str) -> None:
    with pytest.raises(ValueError, match="not in the format of Prometheus"):
        without_labels(text)
