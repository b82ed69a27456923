"""The tables of transactions: outcomes, last commits of applications, and floors of what was evicted from both."""

import struct
from collections.abc import Mapping
from hashlib import blake2b
from typing import Final

from tidelog_server.core.callers import NO_TENANT, TENANT_BYTES, Tenant
from tidelog_server.core.entries import HASH_BYTES
from tidelog_server.core.errors import DataLossError
from tidelog_server.core.shares import FloorKey, FloorTable
from tidelog_server.core.ticks import NO_TICK
from tidelog_server.core.transactions import CONTENT_BYTES, AppCommit, AppKey, TxnOutcome, TxnRun
from tidelog_server.log.rows import TENANT_VERSION, split_tenant
from tidelog_server.storage.format.seals import ROW_VERSION, check_version
from tidelog_server.storage.rows import Facts, Row, Table

# version, first tick, whether synced; then the tenant in version 2, and the runs.
_OUTCOME: Final = struct.Struct(">BQ?")
_RUN: Final = struct.Struct(">II")
# version, the numbers of AppCommit in order, flags; in version 2 the content, and the length of the query id and the
# id; then the application's name.
_APP: Final = struct.Struct(">B3QB")
_APP_CONTENT: Final = struct.Struct(f">{CONTENT_BYTES}sB")
_CONTENT_VERSION: Final = 2
_APP_SYNCED: Final = 1
_APP_LAST: Final = 2
_APP_ANY_VCHANNEL: Final = 4
# version, number.
_FLOOR: Final = struct.Struct(">BQ")
_FLOOR_TABLES: Final = {table.value.encode(): table for table in FloorTable}
_NO_TENANT: Final = bytes(TENANT_BYTES)


class _Outcomes(Table[int, TxnOutcome]):
    number = 3
    name = "outcomes of transactions"
    prefix = b"o"
    key_bytes = 8
    since_format = 1

    def encode_key(self, key: int) -> bytes:
        return key.to_bytes(self.key_bytes)

    def encode(self, key: int, value: TxnOutcome) -> bytes:
        version = TENANT_VERSION if value.tenant else ROW_VERSION
        body = _OUTCOME.pack(version, value.first_tick, value.is_synced) + value.tenant
        return body + b"".join(_RUN.pack(*run) for run in value.runs)

    def decode(self, key: bytes, body: bytes) -> tuple[int, TxnOutcome]:
        (_, first_tick, is_synced), tenant, rest = split_tenant(self.name, body, _OUTCOME)
        runs = tuple(TxnRun._make(fields) for fields in _RUN.iter_unpack(rest))
        return int.from_bytes(key), TxnOutcome(first_tick, bool(is_synced), runs, tenant)

    def check(self, key: int, value: TxnOutcome, facts: Facts) -> None:
        for run in value.runs:
            if facts.staged.get((run.vchannel_id, key)) == NO_TICK:
                raise DataLossError(
                    f"transaction {key} was committed, but its batches on vchannel id {run.vchannel_id} are marked "
                    "as not committed: restore the data folder",
                    vchannel_id=run.vchannel_id, txn_id=key,
                )  # fmt: skip
        # An outcome without messages has a tick that no entry has.
        if value.runs and facts.last_tick < value.last_tick:
            raise DataLossError(
                f"transaction {key} was committed up to tick {value.last_tick}, but the store ends at "
                f"{facts.last_tick}: restore the data folder",
                txn_id=key, tick=value.last_tick,
            )  # fmt: skip

    def until(self, value: TxnOutcome, tick: int) -> TxnOutcome | None:
        return value if value.last_tick <= tick else None


class _AppCommits(Table[AppKey, AppCommit]):
    number = 4
    name = "applications"
    prefix = b"a"
    key_bytes = HASH_BYTES
    since_format = 1

    def encode_key(self, key: AppKey) -> bytes:
        return blake2b(app_name(key), digest_size=HASH_BYTES).digest()

    def encode(self, key: AppKey, value: AppCommit) -> bytes:
        flags = _APP_SYNCED * value.is_synced | _APP_LAST * value.is_last | _APP_ANY_VCHANNEL * value.any_vchannel
        numbers = (value.version, value.first_tick, value.messages, flags)
        if value.content is None:
            assert not value.query_id
            return _APP.pack(ROW_VERSION, *numbers) + app_name(key)
        query_id = value.query_id.encode()
        content = _APP_CONTENT.pack(value.content.to_bytes(CONTENT_BYTES), len(query_id))
        return _APP.pack(_CONTENT_VERSION, *numbers) + content + query_id + app_name(key)

    def decode(self, key: bytes, body: bytes) -> tuple[AppKey, AppCommit]:
        version, app_version, first_tick, messages, flags = _APP.unpack_from(body)
        check_version(self.name, version, ROW_VERSION, _CONTENT_VERSION)
        content, query_id, name_at = None, "", _APP.size
        if version == _CONTENT_VERSION:
            packed, query_bytes = _APP_CONTENT.unpack_from(body, _APP.size)
            name_at += _APP_CONTENT.size
            content, query_id = int.from_bytes(packed), body[name_at : name_at + query_bytes].decode()
            name_at += query_bytes
        app = parse_app_name(body[name_at:])
        if self.encode_key(app) != key:
            raise ValueError("the name is not the one in the key")
        return app, AppCommit(
            app_version, first_tick, messages, bool(flags & _APP_SYNCED), bool(flags & _APP_LAST),
            bool(flags & _APP_ANY_VCHANNEL), content, query_id,
        )  # fmt: skip

    def check(self, key: AppKey, value: AppCommit, facts: Facts) -> None:
        if value.messages and facts.last_tick < value.last_tick:
            raise DataLossError(
                f"application {key.app_id!r} has committed up to tick {value.last_tick}, but the store ends at "
                f"{facts.last_tick}: restore the data folder",
                app_id=key.app_id, tick=value.last_tick,
            )  # fmt: skip

    def until(self, value: AppCommit, tick: int) -> AppCommit | None:
        # A commit without messages has a tick too.
        return value if max(value.first_tick, value.last_tick) <= tick else None


class _Floors(Table[FloorKey, int]):
    number = 5
    name = "floors"
    prefix = b"g"
    key_bytes = 1 + TENANT_BYTES
    since_format = 1

    def encode_key(self, key: FloorKey) -> bytes:
        return key.table.value.encode() + (key.tenant or _NO_TENANT)

    def encode(self, key: FloorKey, value: int) -> bytes:
        return _FLOOR.pack(ROW_VERSION, value)

    def decode(self, key: bytes, body: bytes) -> tuple[FloorKey, int]:
        version, number = _FLOOR.unpack(body)
        check_version(self.name, version, ROW_VERSION)
        table, tenant = _FLOOR_TABLES.get(key[:1]), key[1:]
        if table is None:
            raise ValueError(f"no table has the letter {key[:1]!r}")
        return FloorKey(table, NO_TENANT if tenant == _NO_TENANT else tenant), number

    def until(self, value: int, tick: int) -> int:
        # What was evicted before the tick stays unknown, and the time of an eviction is not recorded.
        return value


OUTCOMES: Final = _Outcomes()
APP_COMMITS: Final = _AppCommits()
FLOORS: Final = _Floors()


def floor_rows(table: FloorTable, floors: Mapping[Tenant, int | None]) -> list[Row]:
    """Return the changes that set the floors of tenants in a table, or delete those that are None."""
    return FLOORS.changes({FloorKey(table, tenant): number for tenant, number in floors.items()})


def app_name(app: AppKey) -> bytes:
    """Return an application's name in a row: its id, prefixed with its owner and a line feed if it has an owner.

    Ids have no control characters, so the id follows the last line feed, and different applications have different
    names.
    """
    assert "\n" not in app.app_id
    return (f"{app.owner}\n{app.app_id}" if app.owner else app.app_id).encode()


def parse_app_name(name: bytes) -> AppKey:
    """Return the application with a name that ``app_name`` made."""
    owner, _, app_id = name.decode().rpartition("\n")
    return AppKey(owner, app_id)
