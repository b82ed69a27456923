"""The suite of each test: the core, which ``make test`` runs, or the extended suite, which ``make test-all`` adds.

The core finds a regression of any feature within ten minutes. It has a short form of every kind of test: reads, writes
and streams of Spark, a storm of kills, failpoints, and faults of storage.
"""

from typing import Final

# The modules of the extended suite, by what they need.
EXTENDED: Final = {
    "Spark queries that are killed or lose their server": (
        "tests/crash/test_kill_spark_sink.py",
        "tests/crash/test_kill_spark_stream.py",
        "tests/integration/spark/test_recreation_storm.py",
        "tests/integration/spark/test_spark_outages.py",
    ),
    "Spark as an engine of pipelines, clusters and demonstrations": (
        "tests/integration/spark/test_archive_reads.py",
        "tests/integration/spark/test_compaction.py",
        "tests/integration/spark/test_connect.py",
        "tests/integration/spark/test_cuts.py",
        "tests/integration/spark/test_demo.py",
        "tests/integration/spark/test_examples.py",
        "tests/integration/spark/test_payloads.py",
        "tests/integration/spark/test_pipelines.py",
        "tests/integration/spark/test_programs.py",
        "tests/integration/spark/test_read_cluster.py",
    ),
    "several servers, hosts or services": (
        "tests/crash/test_cluster_storm.py",
        "tests/crash/test_etcd_storm.py",
        "tests/deploy/test_compose.py",
        "tests/integration/cluster/test_hosts.py",
    ),
    "the synchronous form of calls to a server that does not answer; the core has the asynchronous one": (
        "tests/integration/client/test_bounds_sync.py",
    ),
    "a storm of kills for one feature; the core has one for all writes, and kills at the failpoints of mailboxes": (
        "tests/crash/test_kill_backup.py",
        "tests/crash/test_kill_blobs.py",
        "tests/crash/test_kill_broadcasts.py",
        "tests/crash/test_kill_deliveries.py",
        "tests/crash/test_kill_fencing.py",
        "tests/crash/test_kill_gazette.py",
        "tests/crash/test_kill_groups.py",
        "tests/crash/test_kill_idempotence.py",
        "tests/crash/test_kill_journals.py",
        "tests/crash/test_kill_prepared.py",
        "tests/crash/test_kill_retention.py",
        "tests/crash/test_kill_transactions.py",
    ),
    "a system that refuses each resource at the start; the core has faults of the disk at any time": (
        "tests/crash/test_start_resources.py",
    ),
    "every command with every form of hostile text; the core has hostile input, files, streams and terminals": (
        "tests/integration/cli/test_hostile_text.py",
    ),
    "every benchmark, and every document in order": (
        "tests/integration/cli/test_bench.py",
        "tests/integration/documents/test_in_order.py",
    ),
}

_PULSAR: Final = ("tests/integration/pulsar/", "tests/crash/test_kill_pulsar.py")
_MODULES: Final = frozenset(module for modules in EXTENDED.values() for module in modules)


def is_extended(nodeid: str) -> bool:
    """Return whether a test belongs to the extended suite."""
    return nodeid.partition("::")[0] in _MODULES or needs_pulsar(nodeid)


def needs_pulsar(nodeid: str) -> bool:
    """Return whether a test runs on a Pulsar broker: its module does, or it has the parameter."""
    module, _, test = nodeid.partition("::")
    if module == "tests/integration/pulsar/test_without_broker.py":
        return False
    return module.startswith(_PULSAR) or "pulsar" in test.partition("[")[2]
