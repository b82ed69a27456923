"""The blob calls of the synchronous client."""

from tidelog.admin.blobs import AsyncBlobCalls
from tidelog.sync.generated.blobs import BlobCallsBase


class BlobCalls(BlobCallsBase):
    """Blobs: ``Client.blobs``. See ``AsyncBlobCalls``."""

    def __init__(self, blobs: AsyncBlobCalls) -> None:
        """Run the calls of ``blobs``; does no I/O."""
        self._blobs = blobs
