"""Limits that several modules of the server use. The defaults; those in ``Limits`` can be configured."""

from dataclasses import dataclass
from typing import Final

KIB: Final = 1 << 10
MIB: Final = 1 << 20
GIB: Final = 1 << 30

WHOLE_PERCENT: Final = 100

# Names and metadata.
MAX_VCHANNELS_PER_CHANNEL: Final = 1_024
# Created or destroyed in one atomic change of the metadata store. etcd allows 128 operations in a transaction; one of
# them checks the fence.
MAX_CHANNELS_PER_REQUEST: Final = 100
MAX_CHANGES_PER_COMMIT: Final = 127
MAX_OWNER_FIELD_BYTES: Final = 256
MAX_JOURNAL_NAME_CHARACTERS: Final = 512
MAX_LIST_PAGE: Final = 1_000
# Lists and watches. A look compares a record with a term, checks a permission or converts a part of a record, about
# 2 us. After LIST_STEP_LOOKS a call waits for a turn, as a scan that follows does. A page of a list ends after
# MAX_PAGE_LOOKS, with the token of the next one.
LIST_STEP_LOOKS: Final = 128
MAX_PAGE_LOOKS: Final = 65_536

# Messages.
MAX_MESSAGES_PER_BATCH: Final = 10_000
MAX_BATCH_BYTES_CEILING: Final = 64 * MIB

# Transactions.
MAX_TXN_VCHANNELS: Final = 256
MIN_KEEPALIVE_US: Final = 1_000
MAX_KEEPALIVE_US: Final = 3_600_000_000
# A producer or application name that is used once is retried only within this time after its first use.
MAX_REPEAT_AGE_MS: Final = 60 * 60 * 1_000

# Broadcasts.
MAX_OPEN_BROADCASTS: Final = 10_000

# Consumer groups.
MAX_GROUP_CHANNELS_PER_REQUEST: Final = 100
MAX_COMMITS_PER_REQUEST: Final = 1_024
MAX_COMMITS_PER_TXN: Final = 256

# Scans.
DEFAULT_RESPONSE_BYTES: Final = 1 * MIB
MAX_RESPONSE_BYTES: Final = 4 * MIB
MAX_SPLITS: Final = 100_000

# A cluster.
ETCD_CALL_TIMEOUT_S: Final = 3.0
MAX_NODES: Final = 64
# Attempts of a node to create channels while other nodes create channels.
MAX_CREATE_ATTEMPTS: Final = 32
MAX_NODE_ID_CHARACTERS: Final = 63
# Part of a lease after which its node stops serving unless it was renewed; in etcd the lease expires later.
LEASE_HELD_PART: Final = 2 / 3

# Security. Interval at which changed files and the credentials of open calls are checked.
SECURITY_CHECK_INTERVAL_S: Final = 1.0
MAX_JWT_FIELD_BYTES: Final = 256
# Calls of a principal wait for turns while another principal was active within PRINCIPAL_ACTIVE_S. A call that would
# wait longer than MAX_TURN_WAIT_S is refused.
PRINCIPAL_ACTIVE_S: Final = 1.0
MAX_TURN_WAIT_S: Final = 1.0
# A call costs 1 for each of this many bytes of its request.
CALL_COST_BYTES: Final = 64 * KIB
# Of each cache: callers with quotas, addresses with failures.
MAX_REMEMBERED_CALLERS: Final = 4_096
# A request above this size with many small parts takes tens of milliseconds to parse. Only calls that carry messages,
# or labels, may have larger ones, of callers with a permission for such calls, and with at most this number of fields.
MAX_DENSE_REQUEST_BYTES: Final = 3 * MIB // 2
MAX_LARGE_REQUEST_FIELDS: Final = 4_096
# A larger request is parsed in pieces of about this size, with turns for other work between them: 3 ms to find the
# ends of the fields.
PARSE_STEP_BYTES: Final = 256 * KIB
# What is read field by field in Python, as AppendStream is, has turns for other work after this size: 16 ms for fields
# of two bytes.
READ_STEP_BYTES: Final = 32 * KIB
# Interval at which the counts of refusals that do not become events are reported.
LOST_EVENT_INTERVAL_S: Final = 5.0

# Mailboxes.
MAX_MAILBOX_NAME_BYTES: Final = 256
MAX_MAILBOX_LEASE_MS: Final = 7 * 24 * 60 * 60 * 1_000
MAX_MAILBOX_DELAY_MS: Final = 366 * 24 * 60 * 60 * 1_000
MAX_DEDUP_WINDOW_MS: Final = 7 * 24 * 60 * 60 * 1_000
# Of the hash under which a key is remembered.
DEDUP_HASH_BYTES: Final = 16
# Memory of what mailboxes hold, measured in processes that hold a million of each: of a message beyond its entries in
# queues; of such an entry, by its size; of a deduplication key; of a message in a group; of a reference to a blob; of
# an ended lock; and of a tenant that has stored or counted a blob.
ROW_MEMORY_BYTES: Final = 58
SMALL_ENTRY_MEMORY_BYTES: Final = 40
ENTRY_MEMORY_BYTES: Final = 56
DEDUP_KEY_MEMORY_BYTES: Final = 168
MEMBER_MEMORY_BYTES: Final = 56
BLOB_REFERENCE_MEMORY_BYTES: Final = 200
ENDED_LOCK_MEMORY_BYTES: Final = 142
BLOB_TENANT_MEMORY_BYTES: Final = 160
MAX_PRIORITY: Final = 255
# Messages, locks or ids in one request, and operations in one request of a stream.
MAX_MAILBOX_BATCH: Final = 1_000
# Ended locks that a mailbox remembers, to distinguish an expired lease or a repeated acknowledgement from a wrong lock.
# At this number it forgets the older half.
MAX_ENDED_LOCKS: Final = 4_096
LOCK_BYTES: Final = 20

# Blobs. A chunk is a message of the log.
BLOB_CHUNK_BYTES: Final = 512 * KIB
# Bodies that are stored as blobs are part of deliveries up to this size.
MAX_DELIVERED_BODY_BYTES: Final = 4 * MIB
MAX_BLOB_REFERENCES: Final = 1_000_000_000
DEFAULT_BLOB_GRACE_S: Final = 60 * 60.0

# Ticks.
MAX_TICKS_PER_REQUEST: Final = 1_000_000
TICK_SAVE_AHEAD_MS: Final = 3_000
MAX_BARRIER_WAIT_S: Final = 60.0

# The write path. A group is one write and one sync; its size limits the time that rocksdict holds the GIL in a write.
MAX_GROUP_BYTES: Final = 8 * MIB
MAX_GROUP_BATCHES: Final = 4_096
# The sparse index: bytes of a vchannel per row.
CHUNK_BYTES: Final = 4 * MIB

# Resource limits of the process. File descriptors (RLIMIT_NOFILE): RocksDB holds this number of tables and blob files
# open. Others are its WAL, MANIFEST, LOG and folders, and the output of flushes, compactions and checkpoints.
STORE_TABLE_FILES: Final = 512
STORE_OTHER_FILES: Final = 64
STORE_FILES: Final = STORE_TABLE_FILES + STORE_OTHER_FILES
# The rest of the process: standard streams, event loop, listening sockets, HEAD, LOCK, the check of a start.
PROCESS_FILES: Final = 64
# Outgoing connections: each node of a cluster, etcd, the key set of signed tokens, traces.
OUTGOING_FILES: Final = 80
# Connections of the HTTP port.
MAX_HTTP_CONNECTIONS: Final = 64
MAX_HTTP_ACCEPTS_AT_ONCE: Final = 16
# Calls of the HTTP API at a time, each with its connection, which does not count to MAX_HTTP_CONNECTIONS meanwhile.
MAX_API_CALLS: Final = 128
# Requests and answers above this size are parsed and written on a thread, one at a time; below it takes 10 ms at most.
API_INLINE_BYTES: Final = 8 * KIB
# Connections that gRPC accepts above its limit and closes at once: measurements showed one at a time.
REFUSED_FILES: Final = 16
# File descriptors that client connections never use.
RESERVED_FILES: Final = (
    STORE_FILES
    + PROCESS_FILES
    + OUTGOING_FILES
    + MAX_HTTP_CONNECTIONS
    + MAX_HTTP_ACCEPTS_AT_ONCE
    + MAX_API_CALLS
    + REFUSED_FILES
)
# Connections of gRPC clients: with less than the minimum the server does not start.
MIN_CONNECTIONS: Final = 32
MAX_CONNECTIONS: Final = 10_000


@dataclass(frozen=True, slots=True)
class Limits:
    """Configurable limits; all positive, except that ``min_free_disk_bytes`` may be 0."""

    max_message_bytes: int = 1 * MIB
    max_batch_bytes: int = 4 * MIB
    max_in_flight_bytes_per_stream: int = 8 * MIB
    max_in_flight_bytes: int = 256 * MIB
    max_unread_bytes: int = 256 * MIB
    max_open_streams: int = 10_000
    max_open_streams_per_principal: int = 2_000
    tail_ring_bytes: int = 64 * MIB
    min_free_disk_bytes: int = 1 * GIB
    max_txn_bytes: int = 1 * GIB
    max_staged_bytes: int = 8 * GIB
    max_open_txns: int = 1_000
    max_open_txns_per_client: int = 256
    txn_keepalive_ms: int = 10_000
    max_principal_percent: int = 50
    max_mailbox_messages: int = 10_000_000
    max_mailbox_memory_bytes: int = 512 * MIB

    def __post_init__(self) -> None:
        assert 0 < self.max_message_bytes <= self.max_batch_bytes
        assert self.max_batch_bytes <= self.max_in_flight_bytes_per_stream
        assert self.max_batch_bytes <= MAX_BATCH_BYTES_CEILING
        assert self.max_in_flight_bytes_per_stream <= self.max_in_flight_bytes
        assert MAX_RESPONSE_BYTES <= self.max_unread_bytes
        assert 0 < self.max_open_streams_per_principal
        assert 0 < self.max_open_streams
        assert 0 < self.tail_ring_bytes
        assert 0 <= self.min_free_disk_bytes
        assert self.max_batch_bytes <= self.max_txn_bytes <= self.max_staged_bytes
        assert 0 < self.max_open_txns
        assert 0 < self.max_open_txns_per_client
        assert 0 < self.max_principal_percent <= WHOLE_PERCENT
        assert 0 < self.max_mailbox_messages
        assert 0 < self.max_mailbox_memory_bytes
        assert MIN_KEEPALIVE_US <= 1_000 * self.txn_keepalive_ms <= MAX_KEEPALIVE_US


assert DEFAULT_RESPONSE_BYTES <= MAX_RESPONSE_BYTES
