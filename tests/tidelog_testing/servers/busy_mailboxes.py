"""A server with housekeeping of mailboxes and blobs all the time: ``python -m tidelog_testing.servers.busy_mailboxes``.

Its limits are so small that a storm of seconds has thousands of pages, copies and trims. Its wall clock has the offset
that ``SKEW_FILE`` states, see ``servers.skewed``.
"""

import asyncio
import sys
from typing import Final

from tidelog_server.fold import keeping, pages
from tidelog_server.mailboxes import housekeeping
from tidelog_testing.servers import skewed

_LIMITS: Final = {
    # Every body is copied at each opportunity.
    "SNAPSHOT_AFTER_CHANGES": 200, "_SNAPSHOT_RATIO": 0, "TRIM_ABOVE_BYTES": 2_000, "CLEAN_ABOVE_BYTES": -1 << 40,
}  # fmt: skip


if __name__ == "__main__":
    for name, value in _LIMITS.items():
        assert hasattr(keeping, name)
        setattr(keeping, name, value)
    housekeeping._COPY_MESSAGES = 20  # type: ignore[misc]  # a limit, made small
    pages.PAGE_BYTES = 2_000  # type: ignore[misc]  # a limit, made small
    asyncio.run(skewed._serve(sys.argv[1:]))
