"""The suite of each test: the core, which ``make test`` runs, or the extended suite, which ``make test-all`` adds.

The core finds a regression of any feature within ten minutes. It has a short form of every kind of test: reads, writes
and streams of Spark, a storm of kills, failpoints, and faults of storage. Single values of a parameter are extended
with ``parts.soaks.extended``.
"""

from pathlib import PurePath
from typing import Final

# The modules of the extended suite, by what they need.
EXTENDED: Final = {
    "Spark queries that are killed or lose their server": (
        "tests/crash/test_kill_spark_sink.py",
        "tests/crash/test_kill_spark_stream.py",
        "tests/integration/spark/test_other_folder.py",
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
        "tests/integration/spark/test_golden_archive.py",
        "tests/integration/spark/test_growth.py",
        "tests/integration/spark/test_journals.py",
        "tests/integration/spark/test_offsets.py",
        "tests/integration/spark/test_partitioning.py",
        "tests/integration/spark/test_payloads.py",
        "tests/integration/spark/test_pipelines.py",
        "tests/integration/spark/test_programs.py",
        "tests/integration/spark/test_read_cluster.py",
        "tests/integration/spark/test_read_following.py",
    ),
    "several servers, hosts or services": (
        "tests/crash/test_cluster_storm.py",
        "tests/crash/test_etcd_storm.py",
        "tests/crash/test_kill_standbys.py",
        "tests/deploy/test_compose.py",
        "tests/integration/cluster/test_following.py",
        "tests/integration/cluster/test_growth.py",
        "tests/integration/cluster/test_hosts.py",
        "tests/integration/cluster/test_standbys.py",
        "tests/integration/gazette/test_journal_cluster.py",
        "tests/integration/mailboxes/test_mailbox_cluster.py",
    ),
    "each table of a state restored; the core has backups, restores, and restarts of each feature": (
        "tests/integration/backup/test_whole_state.py",
        "tests/integration/mailboxes/test_restore_to_tick.py",
    ),
    "the synchronous form of calls to a server that does not answer; the core has the asynchronous one": (
        "tests/integration/client/test_bounds_sync.py",
    ),
    "a storm of kills for one feature; the core has one for all writes, and kills at the failpoints of mailboxes": (
        "tests/crash/test_kill_backup.py",
        "tests/crash/test_kill_blob_copies.py",
        "tests/crash/test_kill_blobs.py",
        "tests/crash/test_kill_broadcasts.py",
        "tests/crash/test_kill_deliveries.py",
        "tests/crash/test_kill_engine_server.py",
        "tests/crash/test_kill_engine_store.py",
        "tests/crash/test_kill_fencing.py",
        "tests/crash/test_kill_gazette.py",
        "tests/crash/test_kill_groups.py",
        "tests/crash/test_kill_growth.py",
        "tests/crash/test_kill_idempotence.py",
        "tests/crash/test_kill_import.py",
        "tests/crash/test_kill_journals.py",
        "tests/crash/test_kill_partitioned.py",
        "tests/crash/test_kill_prepared.py",
        "tests/crash/test_kill_retention.py",
        "tests/crash/test_kill_transactions.py",
    ),
    "many callers or hostile ones beside others; the core has each limit and each refusal": (
        "tests/crash/test_concurrency.py",
        "tests/integration/mailboxes/test_http_hostile.py",
        "tests/integration/mailboxes/test_http_limits.py",
        "tests/integration/security/test_audit_storm.py",
        "tests/unit/log/scan/test_read_budget.py",
    ),
    "a browser; the core has the answers that it shows": ("tests/integration/mailboxes/test_http_page.py",),
    "each byte of a folder damaged; the core damages each kind of row and file": (
        "tests/crash/test_corruption_sweep.py",
    ),
    "a system that refuses each resource, or whose clock jumps; the core has a full disk, and failing syncs": (
        "tests/crash/test_connections_exhausted.py",
        "tests/crash/test_faults_clock.py",
        "tests/crash/test_faults_denials.py",
        "tests/crash/test_start_resources.py",
    ),
    "commands of features whose calls the core has, and every command with hostile text and on a terminal": (
        "tests/integration/cli/test_hostile_text.py",
        "tests/integration/cli/test_journals.py",
        "tests/integration/cli/test_mailbox_messages.py",
        "tests/integration/cli/test_terminal.py",
    ),
    "every benchmark, every document in order, and all of them as a site": (
        "tests/integration/cli/test_bench.py",
        "tests/integration/documents/test_in_order.py",
        "tests/integration/documents/test_site.py",
    ),
}

# The folders and modules that `make test-all` runs again, with servers on the engine store.
ON_ENGINE: Final = (
    "tests/crash/test_kill_blobs.py",
    "tests/crash/test_kill_broadcasts.py",
    "tests/crash/test_kill_deliveries.py",
    "tests/crash/test_kill_fencing.py",
    "tests/crash/test_kill_gazette.py",
    "tests/crash/test_kill_groups.py",
    "tests/crash/test_kill_idempotence.py",
    "tests/crash/test_kill_journals.py",
    "tests/crash/test_kill_mailboxes.py",
    "tests/crash/test_kill_mixed.py",
    "tests/crash/test_kill_partitioned.py",
    "tests/crash/test_kill_prepared.py",
    "tests/crash/test_kill_retention.py",
    "tests/crash/test_kill_transactions.py",
    "tests/integration/append",
    "tests/integration/broadcast",
    "tests/integration/channels",
    "tests/integration/cluster/test_following.py",
    "tests/integration/engine/test_tested_store.py",
    "tests/integration/gazette",
    "tests/integration/groups",
    "tests/integration/mailboxes",
    "tests/integration/read",
    "tests/integration/retention",
    "tests/integration/txn",
)

_KAFKA: Final = "tests/integration/kafka/"
_PULSAR: Final = (
    "tests/integration/pulsar/", "tests/crash/test_kill_engine_on_pulsar.py", "tests/crash/test_kill_pulsar.py",
)  # fmt: skip
_MODULES: Final = frozenset(module for modules in EXTENDED.values() for module in modules)


def is_extended(nodeid: str) -> bool:
    """Return whether a test belongs to the extended suite."""
    return nodeid.partition("::")[0] in _MODULES or engine_of(nodeid) is not None


def runs_on_engine(module: PurePath) -> bool:
    """Return whether a module, by its path in the repository, runs with servers on the engine store, too."""
    return any(module.is_relative_to(each) for each in ON_ENGINE)


def engine_of(nodeid: str) -> str | None:
    """Return the broker that a test runs on, if any: its module does, or it has the parameter."""
    module, _, test = nodeid.partition("::")
    if module.endswith("/test_without_broker.py"):
        return None
    parameters = test.partition("[")[2]
    if "pulsar" in parameters or module.startswith(_PULSAR):
        return "pulsar"
    return "kafka" if "kafka" in parameters or module.startswith(_KAFKA) else None
