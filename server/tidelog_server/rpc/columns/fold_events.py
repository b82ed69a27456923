"""Events of folded logs, and lines of the audit log, as batches; see ``fold.events.EventCodec``."""

from array import array
from collections.abc import Sequence
from itertools import accumulate, pairwise

from tidelog.wire import protowire
from tidelog_server.core.errors import DataLossError
from tidelog_server.log.batch import Batch
from tidelog_server.rpc.columns.view import ColumnsView


class FoldEvents:
    """Codec of the events of folded logs: each event is a message whose type is its kind."""

    def encode(self, types: Sequence[int], payloads: Sequence[bytes]) -> Batch:
        """Return a batch with one message per event."""
        view = ColumnsView(count=len(payloads))
        offsets = array("i", (0, *accumulate(map(len, payloads))))
        view.columns = {
            "payload_offsets": memoryview(offsets).cast("B"),
            "payloads": memoryview(b"".join(payloads)),
        }
        if len(set(types)) == 1:
            view.uniform_type = types[0]
        else:
            view.columns["types"] = memoryview(array("I", types)).cast("B")
        columns, crc32c = view.sealed()
        return Batch(view.count, view.message_type, crc32c, columns)

    def decode(self, columns: bytes) -> tuple[Sequence[int], Sequence[bytes]]:
        """Return the types and the payloads of a batch. Raises DataLossError."""
        try:
            view = ColumnsView.parse(columns)
            offsets, payloads = view.offsets("payload_offsets").tolist(), bytes(view.column("payloads"))
            types = view.types().tolist()
        except (protowire.WireFormatError, ValueError, KeyError) as error:
            raise DataLossError(
                f"events of a mailbox cannot be read ({error!r}): restore the server from a backup"
            ) from error
        return types, [payloads[begin:end] for begin, end in pairwise(offsets)]
