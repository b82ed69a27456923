"""Messages that a server's own limits refuse, whatever they share a batch with. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tidelog.append.sizes import Appendable
from tidelog.errors import InvalidRequestError, TidelogError, copy_of
from tidelog.types import AppendResult


@dataclass(frozen=True, slots=True)
class PartlyAppended:
    """The outcome of messages of which the server has refused some.

    Attributes:
        result: Position of the others; None without any.
        refused: Errors of the refused ones, by index.
    """

    result: AppendResult | None
    refused: Mapping[int, TidelogError]

    def part(self, begin: int, end: int) -> AppendResult:
        """Return the position of messages ``begin`` to ``end``. Raises the error of the first refused one of them."""
        for index in range(begin, end):
            if index in self.refused:
                raise copy_of(self.refused[index])
        assert self.result is not None
        before = sum(index < begin for index in self.refused)
        return self.result.part(begin - before, end - before)


def oversized(messages: Sequence[Appendable], error: TidelogError) -> dict[int, TidelogError]:
    """Return the errors of messages, by index, with larger payloads than ``error``, the refusal of all, permits.

    Empty if the refusal has another reason, or may not concern all attempts to append them.
    """
    values = error.values
    is_of_size = "bytes" in values and "max_bytes" in values and values.get("part", "payload") == "payload"
    if not isinstance(error, InvalidRequestError) or error.effect != "none" or not is_of_size:
        return {}
    max_bytes = int(values["max_bytes"])
    sizes = [len(each if isinstance(each, bytes) else each.payload) for each in messages]
    return {index: _too_large(size, max_bytes) for index, size in enumerate(sizes) if size > max_bytes}


def _too_large(size_bytes: int, max_bytes: int) -> InvalidRequestError:
    return InvalidRequestError(
        f"the payload of the message has {size_bytes} bytes, the server takes at most {max_bytes}: split the message, "
        "or raise the server's limits",
        values={"bytes": str(size_bytes), "max_bytes": str(max_bytes)},
    )
