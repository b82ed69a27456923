"""The synchronous twin of streams, on the background event loop of the synchronous client."""

from collections.abc import Iterator

from tidelog.errors import ClosedError
from tidelog.msgstream._generated_stream import MsgStreamCalls
from tidelog.msgstream._interface import AsyncMsgStream
from tidelog.msgstream._pack import MsgPack
from tidelog.transport.background import background


class MsgStream(MsgStreamCalls):
    """Sends packs of typed messages to channels, and receives packs from channels. See ``AsyncMsgStream``.

    Any thread may use it. ``with`` starts it, and closes it at the end of the block. A repack function and the
    templates of the dispatcher run on the event loop of the client, so they must not block or use the client.

    Attributes:
        dispatcher: Decodes received messages; add templates for custom types.
    """

    def __init__(self, stream: AsyncMsgStream) -> None:
        self.dispatcher = stream.dispatcher
        self._stream = stream
        self._is_closed = False
        if not stream._survives_pause:  # noqa: SLF001 - the twin of the stream
            background.add(self)

    async def pause(self) -> bool:
        """Return whether a fork may stop the event loop: once the stream is closed."""
        return self._is_closed

    def close(self) -> None:
        """Stop. See ``AsyncMsgStream.close``."""
        self._is_closed = True
        background.run(self._stream.close())

    def chan(self) -> Iterator[MsgPack]:
        """Yield packs until the stream is closed. See ``AsyncMsgStream.chan``."""
        while True:
            try:
                pack = self.consume()
            except ClosedError:
                if self._is_closed:
                    return
                raise
            yield pack
