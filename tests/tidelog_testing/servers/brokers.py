"""The engines that have logs in tests: each has settings of a server on a topic, and flags of commands."""

from typing import TypeAlias

from tidelog_testing.servers.kafka import KafkaProcesses
from tidelog_testing.servers.pulsar import PulsarProcess

Broker: TypeAlias = KafkaProcesses | PulsarProcess
