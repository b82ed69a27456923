"""Every bound of the server, in one place. Defaults; those that ``Limits`` carries can be configured."""

from dataclasses import dataclass
from typing import Final

KIB: Final = 1 << 10
MIB: Final = 1 << 20
GIB: Final = 1 << 30
WHOLE_PERCENT: Final = 100

# Names and metadata.
MAX_CHANNEL_NAME_CHARACTERS: Final = 127
MAX_GROUP_NAME_CHARACTERS: Final = 127
MAX_CHANNELS: Final = 10_000
MAX_VCHANNELS_PER_CHANNEL: Final = 1_024
MAX_VCHANNELS: Final = 100_000
# Created or destroyed in one atomic change of the metadata store. etcd allows 128 operations in a transaction; one of
# them looks at the fence.
MAX_CHANNELS_PER_REQUEST: Final = 100
MAX_CHANGES_PER_COMMIT: Final = 127
MAX_OWNER_FIELD_BYTES: Final = 256
MAX_LIST_PAGE: Final = 1_000

# Retention. Its ages and sizes stay far from where sums of them leave 64 bits; an age of 2^43 ms is 278 years.
MAX_RETENTION_AGE_MS: Final = 1 << 43
MAX_RETENTION_BYTES: Final = 1 << 60
# Names that a vchannel remembers of those it was cut past.
MAX_CUT_GROUPS: Final = 16

# Messages.
MAX_MESSAGES_PER_BATCH: Final = 10_000
MAX_KEY_BYTES: Final = 1 * KIB
MAX_PROPERTIES_PER_MESSAGE: Final = 16
MAX_PROPERTY_BYTES_PER_MESSAGE: Final = 8 * KIB
# The years 1 to 9999, which every reader has: datetimes of Python and SQL, timestamps of Arrow and Spark.
MIN_EVENT_TIME_MS: Final = -62_135_596_800_000
MAX_EVENT_TIME_MS: Final = 253_402_300_799_999
MAX_BATCH_BYTES_CEILING: Final = 64 * MIB

# Transactions.
MAX_TXN_VCHANNELS: Final = 256
# Of one that travels in one request: each is some 40 us of the event loop.
MAX_TXN_BATCHES: Final = 512
# Of a begun one: its commit writes a header for each in one go of the event loop.
MAX_STAGED_BATCHES_PER_TXN: Final = 4_096
# Of all begun ones of a node: some 200 bytes of memory each.
MAX_STAGED_BATCHES: Final = 131_072
MIN_KEEPALIVE_US: Final = 1_000
MAX_KEEPALIVE_US: Final = 3_600_000_000
# Prepared ones: how long one may wait to be committed, how many one call names, and how many batches they may have
# that are committed in one go of the event loop.
MAX_PREPARED_KEEPALIVE_US: Final = 86_400_000_000
MAX_PREPARED_TXNS: Final = 1_000
MAX_PREPARED_BATCHES: Final = 16_384
# Applications whose last commit is remembered; who has not committed for longest is forgotten. Those that make no other
# commit are counted by themselves, so that no number of them makes a lasting one forgotten.
MAX_APP_ID_BYTES: Final = 128
MAX_QUERY_ID_BYTES: Final = 128
MAX_APPS: Final = 10_000
MAX_FINISHED_APPS: Final = 1_000
# Outcomes of begun transactions that are kept on disk; those with the greatest ids stay.
MAX_TXN_OUTCOMES: Final = 10_000
# Begun transactions that ended without a commit and are remembered, so that their owners learn why.
MAX_ENDED_TXNS: Final = 10_000
MAX_CLIENT_ID_BYTES: Final = 64
# Principals whose evictions from a table are remembered one by one; past that, the smallest floor holds for all.
MAX_FLOORS: Final = 1_000
# A name that is used once, of a producer or an application, is repeated within this time of its first use.
MAX_REPEAT_AGE_MS: Final = 60 * 60 * 1_000

# Idempotent producers: batches that a window remembers, and windows of a node; past that, the principal with the most
# loses its oldest one.
MAX_PRODUCER_ID_BYTES: Final = 64
MAX_WINDOW_BATCHES: Final = 64
MAX_PRODUCERS: Final = 10_000

# Broadcasts. A message stands in one value of the metadata until it is in the log, and etcd takes 1.5 MiB at once; on
# all vchannels together it is written in one go, as a group is.
MAX_BROADCAST_VCHANNELS: Final = 1_024
MAX_BROADCAST_MESSAGE_BYTES: Final = 1 * MIB + 64 * KIB
MAX_BROADCAST_BYTES: Final = 8 * MIB
MAX_RESOURCE_KEYS: Final = 64
MAX_RESOURCE_DOMAIN_BYTES: Final = 64
MAX_RESOURCE_KEY_BYTES: Final = 256
MAX_OPEN_BROADCASTS: Final = 10_000
# Of all open broadcasts together: their names are in memory.
MAX_OPEN_BROADCAST_VCHANNELS: Final = 1_000_000
# Messages of broadcasts that wait for keys or for the log.
MAX_WAITING_BROADCAST_BYTES: Final = 64 * MIB
# Calls that wait for keys or acknowledgements.
MAX_BROADCAST_WAITERS: Final = 10_000
# Over all of them: some 200 bytes each.
MAX_WATCHED_BROADCASTS: Final = 200_000
MAX_RESOURCE_WAIT_MS: Final = 10 * 60 * 1_000
MAX_ACK_WAIT_MS: Final = 60_000
MAX_ABORT_REASON_BYTES: Final = 256
MAX_BROADCASTS_PAGE: Final = 100
# That a broadcast is in the log is noted so much later, or with its first acknowledgement: nobody waits for it.
BROADCAST_NOTE_WITHIN_S: Final = 0.01
# Finished broadcasts are remembered so long, and so many of them.
MAX_TOMBSTONE_AGE_MS: Final = 24 * 60 * 60 * 1_000
MAX_TOMBSTONES: Final = 8_192
TOMBSTONE_SWEEP_INTERVAL_S: Final = 5 * 60.0

# Consumer groups.
MAX_GROUPS: Final = 10_000
# A group on a vchannel: some 300 bytes of memory each.
MAX_GROUP_POSITIONS: Final = 200_000
# Written in one go of the event loop: some 3 us each.
MAX_POSITIONS_PER_GROUP: Final = 10_000
MAX_GROUP_CHANNELS_PER_REQUEST: Final = 100
MAX_COMMITS_PER_REQUEST: Final = 1_024
MAX_COMMITS_PER_TXN: Final = 256
MAX_MEMBERS_PER_GROUP: Final = 256
MAX_MEMBERS: Final = 10_000
MAX_MEMBER_ID_BYTES: Final = 64
MAX_MEMBER_DESCRIPTION_BYTES: Final = 256
DEFAULT_LEASE_MS: Final = 10_000
MIN_LEASE_MS: Final = 500
MAX_LEASE_MS: Final = 600_000
DEFAULT_RELEASE_WITHIN_MS: Final = 30_000
MAX_RELEASE_WITHIN_MS: Final = 3_600_000
# A member whose stream broke has so long to come back before its vchannels go to others.
RECONNECT_WITHIN_S: Final = 0.5
# Commits of one member that were not answered yet.
MAX_COMMITS_IN_FLIGHT: Final = 1_000
# Calls of Consume that took messages at once and may be repeated, for each group and vchannel.
MAX_REMEMBERED_CONSUMES: Final = 16
MAX_CONSUME_MESSAGES: Final = 100_000
MAX_CONSUME_WAIT_MS: Final = 60_000

# A stop: calls in flight get this share of the time, closing the log the rest, so long at least.
CALLS_SHARE_OF_GRACE: Final = 0.6
# Of that, new calls are answered with a refusal for so long at most, before nobody listens any more.
REFUSING_SHARE: Final = 0.2
MIN_STOP_S: Final = 2.0

# Checkpoints. Each keeps files on the disk that reclaim would remove, so few live, and not for long by themselves.
MAX_CHECKPOINTS: Final = 2
DEFAULT_CHECKPOINT_LEASE_MS: Final = 60_000
MIN_CHECKPOINT_LEASE_MS: Final = 1_000
MAX_CHECKPOINT_LEASE_MS: Final = 3_600_000

# Backups. The manifest of one has some 250 bytes for each file.
MAX_BACKUP_MANIFEST_BYTES: Final = 64 * MIB
MAX_BACKUP_FILE_BYTES: Final = 1 << 50

# Scans.
MAX_SOURCES_PER_SCAN: Final = 1_024
MAX_FILTER_TYPES: Final = 1_024
MAX_FILTERS_PER_SCAN: Final = 16
DEFAULT_RESPONSE_BYTES: Final = 1 * MIB
MAX_RESPONSE_BYTES: Final = 4 * MIB
DEFAULT_WATERMARK_INTERVAL_MS: Final = 200
MIN_WATERMARK_INTERVAL_MS: Final = 10
MAX_WATERMARK_INTERVAL_MS: Final = 60_000
# Memory for responses that clients have not taken. A reader (a principal, or an address without authentication) has at
# most this part of what the other readers leave of the server's; a scan this part of what its reader has free. This
# much a scan always gets. After this time without memory a scan is ended.
READER_PART: Final = 3
SCAN_PART: Final = 8
SMALL_PAGE_BYTES: Final = 64 * KIB
READ_MEMORY_WITHIN_S: Final = 30.0
# Turns of all following scans in a tick, of some 0.2 ms each: the most while the event loop is on time, the fewest
# while it is late.
FOLLOW_TICK_S: Final = 0.002
FOLLOW_TURN_BYTES: Final = 16 * KIB
FOLLOW_TURN_ENTRIES: Final = 16
MAX_FOLLOW_TURNS_PER_TICK: Final = 8
MIN_FOLLOW_TURNS_PER_TICK: Final = 1
DEFAULT_SPLIT_BYTES: Final = 64 * MIB
MAX_SPLITS: Final = 100_000
# Headers that a plan reads of chunks that its range cuts, to count them exactly: some 150 ms.
MAX_EDGE_HEADERS: Final = 65_536

# A cluster.
ETCD_CALL_TIMEOUT_S: Final = 3.0
ETCD_PAGE_KEYS: Final = 1_000
MAX_NODES: Final = 64
PEER_CALL_TIMEOUT_S: Final = 2.0
# How late a watch of owners tells that one has changed.
OWNERS_LOOK_INTERVAL_S: Final = 0.2
# How often a node tries to create channels while others create some.
MAX_CREATE_ATTEMPTS: Final = 32
MAX_NODE_ID_CHARACTERS: Final = 63
# From this part of a lease on, unless it was renewed, its node serves nothing any more; etcd forgets it later.
LEASE_HELD_PART: Final = 2 / 3

# Security. Tokens of a cluster are in the memory of each node, some 1 kB each.
MAX_TOKENS: Final = 10_000
MAX_GRANTS: Final = 64
MAX_TOKEN_DESCRIPTION_BYTES: Final = 256
DEFAULT_TOKEN_LIFETIME_MS: Final = 30 * 24 * 60 * 60 * 1_000
MAX_TOKEN_LIFETIME_MS: Final = 366 * 24 * 60 * 60 * 1_000
# Tokens that ended are remembered so much longer.
TOKEN_KEPT_MS: Final = 30 * 24 * 60 * 60 * 1_000
# What other nodes revoked is known, and files that changed are read, so much later; open calls are looked at as often.
TOKENS_RELOAD_INTERVAL_S: Final = 2.0
SECURITY_CHECK_INTERVAL_S: Final = 1.0
DENY_LIST_INTERVAL_S: Final = 10.0
BOOTSTRAP_LIFETIME_MS: Final = 15 * 60 * 1_000
MAX_AUTHORIZATION_BYTES: Final = 4 * KIB
MAX_JWT_FIELD_BYTES: Final = 256
# A request that permissions forbid counts as this many in the quota of its principal: it costs its caller nothing.
DENIAL_COST_REQUESTS: Final = 20
# A refusal that tells how long to wait is answered this much later, so that a client that repeats it at once is slow.
REFUSAL_DELAY_S: Final = 0.05
# Signatures of tokens that are checked in vain, each some 0.2 ms: of each connection, at once and in the long run, and
# of all connections that have used theirs up.
BAD_SIGNATURES_PER_CONNECTION: Final = 3
BAD_SIGNATURES_PER_CONNECTION_PER_S: Final = 1 / 30
MAX_BAD_SIGNATURES_PER_S: Final = 100
MAX_REMEMBERED_CONNECTIONS: Final = 16_384
# Signed tokens that were verified, forged ones, client certificates, callers with quotas, addresses with failures.
MAX_REMEMBERED_CREDENTIALS: Final = 4_096
MAX_REMEMBERED_CALLERS: Final = 4_096
MAX_JWKS_BYTES: Final = 256 * KIB
MAX_JWKS_KEYS: Final = 64
JWKS_REFRESH_INTERVAL_S: Final = 300.0
# With an unknown key, or after a failed attempt.
JWKS_HURRIED_INTERVAL_S: Final = 10.0
JWKS_TIMEOUT_S: Final = 5.0
MAX_SECURITY_FILE_BYTES: Final = 1 * MIB
# Permissions that one call has looked up and remembers.
MAX_REMEMBERED_PERMISSIONS: Final = 1_024
# Audit events that wait to be written; of more only the number is kept.
MAX_WAITING_AUDIT_EVENTS: Final = 10_000
MAX_AUDIT_GROUP_EVENTS: Final = 256
AUDIT_WITHIN_S: Final = 5.0
# Refusals that become events, of one principal or address and of all; the others are counted, and told once in a while
# with the number of each of some callers.
MAX_REFUSAL_EVENTS_PER_CALLER_PER_S: Final = 1
MAX_REFUSAL_EVENTS_PER_CALLER_AT_ONCE: Final = 10
MAX_REFUSAL_EVENTS_PER_S: Final = 20
MAX_REFUSAL_EVENTS_AT_ONCE: Final = 100
LOST_EVENT_INTERVAL_S: Final = 5.0
MAX_LOST_CALLERS: Final = 16
# What audited calls may write while the disk is too full for appends; of the free-disk limit a quarter at most.
AUDIT_RESERVE_BYTES: Final = 8 * MIB

# Ticks.
MAX_TICKS_PER_REQUEST: Final = 1_000_000
# AllocateTicks may put the oracle ahead of the wall clock by this much; requests for no more ticks than the second
# number are answered in any case, because 5,000 of them a second move the oracle by 20 ms.
MAX_TICK_LEAD_MS: Final = 5_000
MAX_TICKS_WHILE_AHEAD: Final = 1_024
TICK_SAVE_AHEAD_MS: Final = 3_000
# What a node of a cluster gets from the leader at once: twice as many as it used of the range before, and at most a
# millisecond's worth. Why not always that: a node asks 50 times a second, and 20 nodes would move the clock of the log
# faster than time passes. It uses them for at most the time below, and waits for a leader before it refuses.
MIN_TICK_RANGE: Final = 1 << 12
TICK_RANGE: Final = 1 << 18
MAX_TICK_RANGE: Final = 4 * MAX_TICKS_PER_REQUEST
TICK_RANGE_AGE_S: Final = 1.0
TICK_RANGE_WAIT_S: Final = 3.0
MAX_BARRIER_WAIT_S: Final = 60.0

# The write path. A group is one write and one sync; it bounds how long rocksdict holds the GIL in one write.
MAX_GROUP_BYTES: Final = 8 * MIB
MAX_GROUP_BATCHES: Final = 4_096
# The sparse index: one row each so many bytes of a vchannel.
CHUNK_BYTES: Final = 4 * MIB
# Free on the disk, beside as much as the write-ahead log has, before a store is opened: MANIFEST, OPTIONS, LOG, HEAD.
OPEN_SPARE_BYTES: Final = 8 * MIB
# The durable head is at most so old.
HEAD_INTERVAL_MS: Final = 100

# What a process needs of the system's limits. File descriptors (RLIMIT_NOFILE): RocksDB keeps this number of tables and
# blob files open. Others are its WAL, MANIFEST, LOG and folders, and what flushes, compactions and checkpoints write.
STORE_TABLE_FILES: Final = 512
STORE_OTHER_FILES: Final = 64
STORE_FILES: Final = STORE_TABLE_FILES + STORE_OTHER_FILES
# The rest of the process: standard streams, event loop, listening sockets, HEAD, LOCK, the check of a start.
PROCESS_FILES: Final = 64
# Connections from here to others: each node of a cluster, etcd, the key set of signed tokens, traces.
OUTGOING_FILES: Final = 80
# The HTTP port. A connection is ended when no request begins on it for this time, or another one needs its place. The
# rates are above what probes and scrapes need; each request takes some 0.3 ms of the event loop, with its connection.
MAX_HTTP_CONNECTIONS: Final = 64
MAX_HTTP_ACCEPTS_AT_ONCE: Final = 16
MAX_HTTP_ACCEPTS_PER_S: Final = 100
MAX_HTTP_REQUESTS_PER_S: Final = 100
HTTP_REQUEST_WITHIN_S: Final = 10.0
# Metrics are rendered once a second at most, after this number at once; callers that come meanwhile share what is
# rendered next.
METRICS_RENDERS_PER_S: Final = 1
METRICS_RENDERS_AT_ONCE: Final = 10
# A kind of log line that a stranger can cause is written once in this time, with the number of its occurrences.
STRANGER_LOG_INTERVAL_S: Final = 1.0
# Connections that gRPC accepts above its limit, to close them at once: one at a time was measured.
REFUSED_FILES: Final = 16
# What a socket of a client never takes.
RESERVED_FILES: Final = (
    STORE_FILES + PROCESS_FILES + OUTGOING_FILES + MAX_HTTP_CONNECTIONS + MAX_HTTP_ACCEPTS_AT_ONCE + REFUSED_FILES
)
# Connections of gRPC clients: at least this number, or the server does not start; at most that.
MIN_CONNECTIONS: Final = 32
MAX_CONNECTIONS: Final = 10_000
# Below this number a store is not opened; what the limit has above it is for connections.
MIN_OPEN_FILES: Final = RESERVED_FILES + MIN_CONNECTIONS
# The soft limit is raised to the hard one, to this number at most.
MAX_RAISED_OPEN_FILES: Final = 65_536
# Address space (RLIMIT_AS): threads and allocators reserve far more of it than they use, an idle server 1.4 GiB.
MIN_ADDRESS_SPACE_BYTES: Final = 4 * GIB


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds that an operator may move; all bytes, all positive."""

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
        assert MIN_KEEPALIVE_US <= 1_000 * self.txn_keepalive_ms <= MAX_KEEPALIVE_US


assert DEFAULT_RESPONSE_BYTES <= MAX_RESPONSE_BYTES
