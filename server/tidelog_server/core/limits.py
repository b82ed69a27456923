"""All limits of the server. The defaults; those in ``Limits`` can be configured."""

from dataclasses import dataclass
from typing import Final

KIB: Final = 1 << 10
MIB: Final = 1 << 20
GIB: Final = 1 << 30

MAX_CONFIG_BYTES: Final = MIB
"""Size of a configuration file."""
WHOLE_PERCENT: Final = 100

# Names and metadata.
MAX_CHANNEL_NAME_CHARACTERS: Final = 127
MAX_GROUP_NAME_CHARACTERS: Final = 127
MAX_CHANNELS: Final = 10_000
MAX_VCHANNELS_PER_CHANNEL: Final = 1_024
MAX_VCHANNELS: Final = 100_000
# Created or destroyed in one atomic change of the metadata store. etcd allows 128 operations in a transaction; one of
# them checks the fence.
MAX_CHANNELS_PER_REQUEST: Final = 100
MAX_CHANGES_PER_COMMIT: Final = 127
MAX_OWNER_FIELD_BYTES: Final = 256
# Journals changed in one atomic change of the metadata store: a new one is two records, and 120 records and a counter
# fit. The specifications of a request have at most 1 MiB, because etcd accepts at most 1.5 MiB.
MAX_JOURNALS_PER_REQUEST: Final = 60
MIN_JOURNAL_NAME_CHARACTERS: Final = 4
MAX_JOURNAL_NAME_CHARACTERS: Final = 512
MIN_LABEL_NAME_CHARACTERS: Final = 2
MAX_LABEL_NAME_CHARACTERS: Final = 64
MAX_LABEL_VALUE_CHARACTERS: Final = 1_024
# Names and values of one journal together.
MAX_JOURNAL_LABELS_BYTES: Final = 16 * KIB
# A term costs a binary search in the labels of a journal, so a call makes at most MAX_PAGE_LOOKS of them.
MAX_SELECTOR_TERMS: Final = 256
MAX_LIST_PAGE: Final = 1_000
# Lists and watches. A look compares a record with a term, checks a permission or converts a part of a record, about
# 2 us; a part is LOOK_BYTES or a label. After LIST_STEP_LOOKS a call waits for a turn, as a scan that follows does, and
# for each LOOKS_PER_COST it costs 1 more. A page of a list ends after MAX_PAGE_LOOKS, with the token of the next one.
LIST_STEP_LOOKS: Final = 128
LOOKS_PER_COST: Final = 512
MAX_PAGE_LOOKS: Final = 65_536
LOOK_BYTES: Final = 64
# Names that a table remembers as changed, for those that watch it. A watch that is further behind looks at all names.
MAX_RECENT_CHANGES: Final = 10_000
# What all watches of a node remember to have sent. A dict takes at most 45 bytes for an item that it shares.
WATCHED_NAME_BYTES: Final = 64
# A watch counts its names in steps of this number.
WATCHED_NAMES_STEP: Final = 64
MAX_WATCH_MEMORY_BYTES: Final = 256 * MIB

# Retention. Sums of ages or sizes stay far below 64 bits; an age of 2^43 ms is 278 years.
MAX_RETENTION_AGE_MS: Final = 1 << 43
MAX_RETENTION_BYTES: Final = 1 << 60
# Channels ahead of the wall clock that a line of the log or the metric names.
MAX_AHEAD_CHANNELS: Final = 100
# Groups that a vchannel remembers whose unconsumed data the hard cap removed.
MAX_CUT_GROUPS: Final = 16

# Messages.
MAX_MESSAGES_PER_BATCH: Final = 10_000
# Appends that share a message of a stream: they are submitted in one step of the event loop.
MAX_APPENDS_PER_REQUEST: Final = 256
MAX_KEY_BYTES: Final = 1 * KIB
MAX_PROPERTIES_PER_MESSAGE: Final = 16
MAX_PROPERTY_BYTES_PER_MESSAGE: Final = 8 * KIB
# The years 1 to 9999, which every reader supports: datetimes of Python and SQL, timestamps of Arrow and Spark.
MIN_EVENT_TIME_MS: Final = -62_135_596_800_000
MAX_EVENT_TIME_MS: Final = 253_402_300_799_999
MAX_BATCH_BYTES_CEILING: Final = 64 * MIB

# Transactions.
MAX_TXN_VCHANNELS: Final = 256
# In a transaction sent in one request: each takes about 40 us of the event loop.
MAX_TXN_BATCHES: Final = 512
# In a staged transaction: its commit writes a header for each in one step of the event loop.
MAX_STAGED_BATCHES_PER_TXN: Final = 4_096
# In all staged transactions of a node: about 200 bytes of memory each.
MAX_STAGED_BATCHES: Final = 131_072
MIN_KEEPALIVE_US: Final = 1_000
MAX_KEEPALIVE_US: Final = 3_600_000_000
# Prepared transactions: time that one may wait for its commit, transactions per commit, and their batches, which are
# committed in one step of the event loop.
MAX_PREPARED_KEEPALIVE_US: Final = 86_400_000_000
MAX_PREPARED_TXNS: Final = 1_000
MAX_PREPARED_BATCHES: Final = 16_384
# Applications whose last commit is remembered; the one with the oldest commit is evicted first. Finished applications
# are counted separately, so that they never evict an active one.
MAX_APP_ID_BYTES: Final = 128
MAX_QUERY_ID_BYTES: Final = 128
MAX_APPS: Final = 10_000
MAX_FINISHED_APPS: Final = 1_000
# Outcomes of staged transactions on disk; above that, the principal with the most loses the one with its smallest id.
MAX_TXN_OUTCOMES: Final = 10_000
# Aborted staged transactions that are remembered, so that their clients learn the cause.
MAX_ENDED_TXNS: Final = 10_000
MAX_CLIENT_ID_BYTES: Final = 64
# Principals with their own floor in a table; above that, the smallest floor is merged into the one for all.
MAX_FLOORS: Final = 1_000
# A producer or application name that is used once is retried only within this time after its first use.
MAX_REPEAT_AGE_MS: Final = 60 * 60 * 1_000

# Idempotent producers: batches that a window remembers, and windows of a node; above that, the principal with the most
# windows loses its oldest one.
MAX_PRODUCER_ID_BYTES: Final = 64
MAX_WINDOW_BATCHES: Final = 64
MAX_PRODUCERS: Final = 10_000

# Broadcasts. A message is one metadata value until it is in the log, and etcd accepts at most 1.5 MiB per request; its
# copies on all vchannels are written at once, like a group.
MAX_BROADCAST_VCHANNELS: Final = 1_024
MAX_BROADCAST_MESSAGE_BYTES: Final = 1 * MIB + 64 * KIB
MAX_BROADCAST_BYTES: Final = 8 * MIB
MAX_RESOURCE_KEYS: Final = 64
MAX_RESOURCE_DOMAIN_BYTES: Final = 64
MAX_RESOURCE_KEY_BYTES: Final = 256
MAX_OPEN_BROADCASTS: Final = 10_000
# Sum over all open broadcasts: their names are in memory.
MAX_OPEN_BROADCAST_VCHANNELS: Final = 1_000_000
# Messages of broadcasts that wait for keys or for the log.
MAX_WAITING_BROADCAST_BYTES: Final = 64 * MIB
# Calls that wait for keys or acknowledgements.
MAX_BROADCAST_WAITERS: Final = 10_000
# Sum over all waiting calls: about 200 bytes each.
MAX_WATCHED_BROADCASTS: Final = 200_000
MAX_RESOURCE_WAIT_MS: Final = 10 * 60 * 1_000
MAX_ACK_WAIT_MS: Final = 60_000
MAX_ABORT_REASON_BYTES: Final = 256
MAX_BROADCASTS_PAGE: Final = 100
# Delay until the metadata records that a broadcast is in the log, unless an acknowledgement comes first: no call waits.
BROADCAST_NOTE_WITHIN_S: Final = 0.01
# Age and number of finished broadcasts that are remembered.
MAX_TOMBSTONE_AGE_MS: Final = 24 * 60 * 60 * 1_000
MAX_TOMBSTONES: Final = 8_192
TOMBSTONE_SWEEP_INTERVAL_S: Final = 5 * 60.0

# Consumer groups.
MAX_GROUPS: Final = 10_000
# Positions of groups on vchannels: about 300 bytes of memory each.
MAX_GROUP_POSITIONS: Final = 200_000
# Written in one step of the event loop: about 3 us each.
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
# Time for a member whose stream broke to reconnect before its vchannels are reassigned.
RECONNECT_WITHIN_S: Final = 0.5
# Unanswered commits of one member.
MAX_COMMITS_IN_FLIGHT: Final = 1_000
# Callers of Consume whose last call is remembered for a retry, per group and vchannel.
MAX_REMEMBERED_CONSUMES: Final = 16
MAX_CONSUME_MESSAGES: Final = 100_000
MAX_CONSUME_WAIT_MS: Final = 60_000

# A stop: calls in flight get this share of the grace period, closing the log the rest, but at least MIN_STOP_S.
CALLS_SHARE_OF_GRACE: Final = 0.6
# Share of that during which new calls are still refused with an answer, before the port is closed.
REFUSING_SHARE: Final = 0.2
MIN_STOP_S: Final = 2.0
# A node that lost its lease stops before it starts in the same process. A stop that takes longer ends the process.
MAX_STOP_BEFORE_START_S: Final = 30.0

# Checkpoints. Each retains files that reclaim would delete, so there are few, and each has a lease.
MAX_CHECKPOINTS: Final = 2
DEFAULT_CHECKPOINT_LEASE_MS: Final = 60_000
MIN_CHECKPOINT_LEASE_MS: Final = 1_000
MAX_CHECKPOINT_LEASE_MS: Final = 3_600_000

# Backups. A manifest has about 250 bytes per file.
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
# Memory for responses that clients have not read. A reader (a principal, or an address without authentication) has at
# most 1/READER_PART of the memory that other readers leave free; a scan 1/SCAN_PART of its reader's free memory. A scan
# always gets SMALL_PAGE_BYTES. A scan that waits READ_MEMORY_WITHIN_S for memory is ended.
READER_PART: Final = 3
SCAN_PART: Final = 8
SMALL_PAGE_BYTES: Final = 64 * KIB
READ_MEMORY_WITHIN_S: Final = 30.0
# Turns of all following scans per tick, about 0.2 ms each: the maximum while the event loop is on time, the minimum
# while it is late.
FOLLOW_TICK_S: Final = 0.002
FOLLOW_TURN_BYTES: Final = 16 * KIB
FOLLOW_TURN_ENTRIES: Final = 16
MAX_FOLLOW_TURNS_PER_TICK: Final = 8
MIN_FOLLOW_TURNS_PER_TICK: Final = 1
# Followers of one reader that wait for a turn. Above it, turns are granted at the pace of crowds.
FOLLOW_CROWD: Final = 16
MIN_CROWD_TURNS_PER_TICK: Final = 0.25
DEFAULT_SPLIT_BYTES: Final = 64 * MIB
MAX_SPLITS: Final = 100_000
# Headers that a plan reads from chunks at the edges of its range, to count exactly: about 150 ms.
MAX_EDGE_HEADERS: Final = 65_536

# A cluster.
ETCD_CALL_TIMEOUT_S: Final = 3.0
ETCD_PAGE_KEYS: Final = 1_000
MAX_NODES: Final = 64
PEER_CALL_TIMEOUT_S: Final = 2.0
# Interval of the heartbeats that a watch may ask for.
MIN_HEARTBEAT_INTERVAL_MS: Final = 100
MAX_HEARTBEAT_INTERVAL_MS: Final = 60_000
# Maximum delay until a watch of owners reports a change.
OWNERS_LOOK_INTERVAL_S: Final = 0.2
# Attempts of a node to create channels while other nodes create channels.
MAX_CREATE_ATTEMPTS: Final = 32
MAX_NODE_ID_CHARACTERS: Final = 63
# Part of a lease after which its node stops serving unless it was renewed; in etcd the lease expires later.
LEASE_HELD_PART: Final = 2 / 3

# Security. Tokens of a cluster are in the memory of each node, about 1 kB each.
MAX_TOKENS: Final = 10_000
MAX_GRANTS: Final = 64
MAX_TOKEN_DESCRIPTION_BYTES: Final = 256
DEFAULT_TOKEN_LIFETIME_MS: Final = 30 * 24 * 60 * 60 * 1_000
MAX_TOKEN_LIFETIME_MS: Final = 366 * 24 * 60 * 60 * 1_000
# Time that expired and revoked tokens are still listed.
TOKEN_KEPT_MS: Final = 30 * 24 * 60 * 60 * 1_000
# Intervals at which revocations by other nodes, changed files and the credentials of open calls are checked.
TOKENS_RELOAD_INTERVAL_S: Final = 2.0
SECURITY_CHECK_INTERVAL_S: Final = 1.0
DENY_LIST_INTERVAL_S: Final = 10.0
BOOTSTRAP_LIFETIME_MS: Final = 15 * 60 * 1_000
MAX_AUTHORIZATION_BYTES: Final = 4 * KIB
MAX_JWT_FIELD_BYTES: Final = 256
# Bytes of requests that a connection accepts before the server reads them. Left to itself, gRPC lets this grow with the
# bandwidth times the round trip, without a bound. With 512 KiB a connection has 25 MB/s at a round trip of 20 ms.
MAX_UNREAD_REQUEST_BYTES: Final = 512 * KIB
# Calls of a principal wait for turns while another principal was active within PRINCIPAL_ACTIVE_S and their own cost
# exceeds UNPACED_COST_PER_S. A turn begins every TURN_S; a call that would wait longer than MAX_TURN_WAIT_S is refused.
TURN_S: Final = 0.05
PRINCIPAL_ACTIVE_S: Final = 1.0
UNPACED_COST_PER_S: Final = 50
MAX_TURN_WAIT_S: Final = 1.0
# Cost of a call: 1 by default, more where it writes metadata, and 1 for each of this many bytes of its request.
AUDITED_CALL_COST: Final = 5
BROADCAST_EXTRA_COST: Final = 2
# A call that a limit refuses costs this in addition, because it costs the caller nothing.
REFUSAL_COST: Final = 10
CALL_COST_BYTES: Final = 64 * KIB
# A request that is denied counts as this many in the quota of its principal, because it costs the caller nothing.
DENIAL_COST_REQUESTS: Final = 100
# Delay of a refusal that has a retry delay, so that a client that ignores it is slowed down.
REFUSAL_DELAY_S: Final = 0.05
# Failed signature checks of tokens, about 0.2 ms each: burst and rate per connection, and the rate of all connections
# that exceed theirs.
BAD_SIGNATURES_PER_CONNECTION: Final = 3
BAD_SIGNATURES_PER_CONNECTION_PER_S: Final = 1 / 30
MAX_BAD_SIGNATURES_PER_S: Final = 100
MAX_REMEMBERED_CONNECTIONS: Final = 16_384
# Caches: verified and forged signed tokens, client certificates, callers with quotas, addresses with failures.
MAX_REMEMBERED_CREDENTIALS: Final = 4_096
MAX_REMEMBERED_CALLERS: Final = 4_096
MAX_JWKS_BYTES: Final = 256 * KIB
MAX_JWKS_KEYS: Final = 64
JWKS_REFRESH_INTERVAL_S: Final = 300.0
# Interval with an unknown key, or after a failed attempt.
JWKS_HURRIED_INTERVAL_S: Final = 10.0
JWKS_TIMEOUT_S: Final = 5.0
MAX_SECURITY_FILE_BYTES: Final = 1 * MIB
# A request above this size with many small parts takes tens of milliseconds to parse. Only calls that carry messages,
# or labels, may have larger ones, of callers with a permission for such calls, and with at most this number of fields.
MAX_DENSE_REQUEST_BYTES: Final = 3 * MIB // 2
MAX_LARGE_REQUEST_FIELDS: Final = 4_096
# A larger request is parsed in pieces of about this size, with turns for other work between them: 10 ms for the many
# small parts of one, 3 ms to find the ends of the fields.
PARSE_STEP_BYTES: Final = 256 * KIB
PARSE_STEP_FIELDS: Final = 4_096
# What is read field by field in Python, as AppendStream is, has turns for other work after this size: 16 ms for fields
# of two bytes.
READ_STEP_BYTES: Final = 32 * KIB
# Fields of a transaction of AppendStream and of its parts, together, without those of its batches. The other limits
# allow half as many.
MAX_TXN_FIELDS: Final = 8_192
# Fields of a batch in columns; the format has 17.
MAX_COLUMNS_FIELDS: Final = 128
# Requests of calls that are written to the audit log as a whole.
MAX_ADMIN_REQUEST_BYTES: Final = 128 * KIB
# Names of one request whose permissions are checked, before its other limits are.
MAX_CHECKED_NAMES: Final = 16_384
# Permissions that one call caches.
MAX_REMEMBERED_PERMISSIONS: Final = 1_024
# Audit events that wait to be written; further ones are only counted.
MAX_WAITING_AUDIT_EVENTS: Final = 10_000
MAX_AUDIT_GROUP_EVENTS: Final = 256
AUDIT_WITHIN_S: Final = 5.0
# Refusals that become events, per principal or address and in total. Others are counted, and the counts of some callers
# are reported periodically.
MAX_REFUSAL_EVENTS_PER_CALLER_PER_S: Final = 1
MAX_REFUSAL_EVENTS_PER_CALLER_AT_ONCE: Final = 10
MAX_REFUSAL_EVENTS_PER_S: Final = 20
MAX_REFUSAL_EVENTS_AT_ONCE: Final = 100
LOST_EVENT_INTERVAL_S: Final = 5.0
MAX_LOST_CALLERS: Final = 16
# Bytes that audited calls may write while the disk is too full for appends; at most a quarter of the free-disk limit.
AUDIT_RESERVE_BYTES: Final = 8 * MIB

# Mailboxes.
MAX_MAILBOX_NAME_BYTES: Final = 256
MAX_MAILBOX_MESSAGES: Final = 10_000_000
DEFAULT_MAILBOX_MESSAGES: Final = 1_000_000
MAX_IN_FLIGHT_MESSAGES: Final = 1_000_000
DEFAULT_IN_FLIGHT_MESSAGES: Final = 100_000
DEFAULT_MAILBOX_LEASE_MS: Final = 30_000
DEFAULT_MAX_MAILBOX_LEASE_MS: Final = 12 * 60 * 60 * 1_000
MAX_MAILBOX_LEASE_MS: Final = 7 * 24 * 60 * 60 * 1_000
MAX_MAILBOX_DELAY_MS: Final = 366 * 24 * 60 * 60 * 1_000
MAX_DELIVERIES: Final = 1_000
MAX_BACKOFF_DELAYS: Final = 32
MIN_DEDUP_WINDOW_MS: Final = 1_000
DEFAULT_DEDUP_WINDOW_MS: Final = 5 * 60 * 1_000
MAX_DEDUP_WINDOW_MS: Final = 7 * 24 * 60 * 60 * 1_000
# Deduplication keys that a mailbox remembers; a send with a further one is refused.
MAX_DEDUP_KEYS: Final = 1_000_000
# Of the hash under which a key is remembered.
DEDUP_HASH_BYTES: Final = 16
# Memory of what mailboxes hold, measured in processes that hold a million of each: of a message beyond its entries in
# queues; of such an entry, by its size; of a lease; of a deduplication key; of a group beyond its name; of a message in
# a group; of a reference to a blob; of an ended lock; of a blob without its chunks, of the place of a chunk, and of a
# tenant that has stored or counted a blob.
ROW_MEMORY_BYTES: Final = 58
SMALL_ENTRY_MEMORY_BYTES: Final = 40
ENTRY_MEMORY_BYTES: Final = 56
LEASE_MEMORY_BYTES: Final = 184
DEDUP_KEY_MEMORY_BYTES: Final = 168
GROUP_MEMORY_BYTES: Final = 360
MEMBER_MEMORY_BYTES: Final = 56
BLOB_REFERENCE_MEMORY_BYTES: Final = 200
ENDED_LOCK_MEMORY_BYTES: Final = 142
BLOB_MEMORY_BYTES: Final = 680
BLOB_PLACE_MEMORY_BYTES: Final = 48
BLOB_TENANT_MEMORY_BYTES: Final = 160
DEFAULT_BODY_BYTES: Final = 1 * MIB
MAX_BODY_BYTES: Final = 64 * MIB
MAX_PRIORITY: Final = 255
MAX_MESSAGE_GROUP_BYTES: Final = 256
MAX_DEDUP_KEY_BYTES: Final = 256
MAX_MESSAGE_HEADERS: Final = 64
MAX_MESSAGE_HEADERS_BYTES: Final = 8 * KIB
# Messages, locks or ids in one request, and operations in one request of a stream.
MAX_MAILBOX_BATCH: Final = 1_000
MAX_FETCH_WAIT_MS: Final = 60_000
# On a node; about 2 kB each.
MAX_WAITING_FETCHES: Final = 10_000
DEFAULT_FETCH_BYTES: Final = 1 * MIB
MAX_FETCH_BYTES: Final = 4 * MIB
# Ended locks that a mailbox remembers, to distinguish an expired lease or a repeated acknowledgement from a wrong lock.
# At this number it forgets the older half. A node with many mailboxes remembers fewer in each, so that they take about
# 1/ENDED_LOCKS_PART of the memory of mailboxes, but at least MIN_ENDED_LOCKS.
MAX_ENDED_LOCKS: Final = 4_096
MIN_ENDED_LOCKS: Final = 64
ENDED_LOCKS_PART: Final = 16
LOCK_BYTES: Final = 20

# Blobs. A chunk is a message of the log.
BLOB_CHUNK_BYTES: Final = 512 * KIB
MAX_BLOB_BYTES: Final = MAX_BODY_BYTES
# Bodies of messages above this size are stored as blobs; they are part of deliveries up to the second size.
MIN_BLOB_BODY_BYTES: Final = 64 * KIB
MAX_DELIVERED_BODY_BYTES: Final = 4 * MIB
MAX_BLOB_KEY_BYTES: Final = 32
# Blobs of a node, which the memory of mailboxes bounds as well.
MAX_BLOBS: Final = 1_000_000
MAX_BLOB_TENANTS: Final = 1_000
# Memory for blobs that are being received, of all callers together, with a share of what is free for each principal.
# An upload that sends nothing for UPLOAD_IDLE_S ends.
MAX_UPLOAD_BYTES: Final = 128 * MIB
UPLOAD_IDLE_S: Final = 10.0
MAX_BLOB_REFERENCES: Final = 1_000_000_000
DEFAULT_BLOB_GRACE_S: Final = 60 * 60.0

# Ticks.
MAX_TICKS_PER_REQUEST: Final = 1_000_000
# Maximum lead over the wall clock that AllocateTicks may cause. Requests for at most MAX_TICKS_WHILE_AHEAD ticks are
# always answered, because 5,000 of them per second move the oracle by 20 ms.
MAX_TICK_LEAD_MS: Final = 5_000
MAX_TICKS_WHILE_AHEAD: Final = 1_024
TICK_SAVE_AHEAD_MS: Final = 3_000
# Ticks that a node of a cluster gets from the leader at once: twice the number it used of the previous range, at most
# those of a millisecond. Why not always that: a node asks 50 times a second, and 20 nodes would move the clock of the
# log faster than time passes. A range is used for TICK_RANGE_AGE_S; a node waits TICK_RANGE_WAIT_S for a leader.
MIN_TICK_RANGE: Final = 1 << 12
TICK_RANGE: Final = 1 << 18
MAX_TICK_RANGE: Final = 4 * MAX_TICKS_PER_REQUEST
TICK_RANGE_AGE_S: Final = 1.0
TICK_RANGE_WAIT_S: Final = 3.0
MAX_BARRIER_WAIT_S: Final = 60.0

# The write path. A group is one write and one sync; its size limits the time that rocksdict holds the GIL in a write.
MAX_GROUP_BYTES: Final = 8 * MIB
MAX_GROUP_BATCHES: Final = 4_096
# The sparse index: bytes of a vchannel per row.
CHUNK_BYTES: Final = 4 * MIB
# Free disk space needed to open a store, in addition to the size of its write-ahead log: MANIFEST, OPTIONS, LOG, HEAD.
OPEN_SPARE_BYTES: Final = 8 * MIB
# Maximum age of the durable head.
HEAD_INTERVAL_MS: Final = 100

# Resource limits of the process. File descriptors (RLIMIT_NOFILE): RocksDB holds this number of tables and blob files
# open. Others are its WAL, MANIFEST, LOG and folders, and the output of flushes, compactions and checkpoints.
STORE_TABLE_FILES: Final = 512
STORE_OTHER_FILES: Final = 64
STORE_FILES: Final = STORE_TABLE_FILES + STORE_OTHER_FILES
# The rest of the process: standard streams, event loop, listening sockets, HEAD, LOCK, the check of a start.
PROCESS_FILES: Final = 64
# Outgoing connections: each node of a cluster, etcd, the key set of signed tokens, traces.
OUTGOING_FILES: Final = 80
# The HTTP port. A connection is closed if no request begins on it for HTTP_REQUEST_WITHIN_S, or another one needs its
# place. The rates exceed what probes and scrapes need; a request with its connection takes about 0.3 ms of the event
# loop.
MAX_HTTP_CONNECTIONS: Final = 64
MAX_HTTP_ACCEPTS_AT_ONCE: Final = 16
MAX_HTTP_ACCEPTS_PER_S: Final = 100
MAX_HTTP_REQUESTS_PER_S: Final = 100
HTTP_REQUEST_WITHIN_S: Final = 10.0
# A client gets this time to read the answer to a request whose content is not read.
HTTP_LINGER_S: Final = 1.0
# Calls of the HTTP API at a time, each with its connection, which does not count to MAX_HTTP_CONNECTIONS meanwhile; at
# most MAX_API_WAITS of them may be fetches that wait for a message. A call begins with valid credentials. Without
# authentication it begins once its content has arrived, but MAX_ARRIVING_PER_ADDRESS of an address begin before that.
# At most MAX_API_READS contents above API_SMALL_BYTES arrive at a time. Principals share the three (D-102); callers
# without credentials share the last by address.
MAX_API_CALLS: Final = 128
MAX_API_WAITS: Final = 96
MAX_API_READS: Final = 16
MAX_ARRIVING_PER_ADDRESS: Final = 8
MAX_API_REQUEST_BYTES: Final = 2 * MIB
API_SMALL_BYTES: Final = 64 * KIB
# Less than HTTP_REQUEST_WITHIN_S, so that a request that is too slow is answered before its connection is closed.
API_READ_WITHIN_S: Final = 9.0
# Requests and answers above this size are parsed and written on a thread, one at a time; below it takes 10 ms at most.
API_INLINE_BYTES: Final = 8 * KIB
# Values of one JSON content, members of an object, and levels of nesting; fields of a form. An array has at most
# MAX_MAILBOX_BATCH elements. They bound the time to parse a content, about 4 microseconds for a value.
MAX_API_VALUES: Final = MAX_MAILBOX_BATCH * (MAX_MESSAGE_HEADERS + 16)
MAX_API_MEMBERS: Final = 2 * MAX_MESSAGE_HEADERS
MAX_API_DEPTH: Final = 16
MAX_FORM_FIELDS: Final = 4_096
# Locks that the HTTP API remembers with their mailboxes; the mailbox of another one is searched.
MAX_REMEMBERED_LOCKS: Final = 16_384
# Rate and burst of rendering metrics; callers that come in between share the next result.
METRICS_RENDERS_PER_S: Final = 1
METRICS_RENDERS_AT_ONCE: Final = 10
# Interval at which a log message that unauthenticated clients can cause is written, with the number of occurrences.
STRANGER_LOG_INTERVAL_S: Final = 1.0
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
# Below this limit a store is not opened; descriptors above it are for connections.
MIN_OPEN_FILES: Final = RESERVED_FILES + MIN_CONNECTIONS
# The soft limit is raised to the hard limit, but at most to this number.
MAX_RAISED_OPEN_FILES: Final = 65_536
# Address space (RLIMIT_AS): threads and allocators reserve far more than they use; an idle server reserves 1.4 GiB.
MIN_ADDRESS_SPACE_BYTES: Final = 4 * GIB


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
