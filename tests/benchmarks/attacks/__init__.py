"""The attacks of ``benchmarks security``.

To add one, write a module in this package with a constant ``ATTACK`` (``attack.py`` says what it consists of), and
name it in ``ATTACKS`` below. ``run`` is executed in a process of its own, at a lower priority, because it stands for
another machine. ``benchmarks security --attack NAME`` runs one.

For each attack, ``siege.attack`` measures in rounds what rate a good client has (a) beside the attack and (b)
beside a process that burns the CPU time that the attack took, without a connection to the server. It reports:

- ``ratio``: (a) to (b), the median over the rounds. Target: at least 0.8.
- ``lost``, ``doubled``, ``failed_appends`` of the good client. Target: 0 each.
- ``server_rss_bytes``: the most memory that the server had. Target: under 1 GB.
- ``restart_s``, and after the restart ``restarted_lost`` and ``restarted_doubled``.
- ``disk_over_limit_bytes``, for an attack with ``disk_bytes``. Target: 0, but for the reserve of the audit log.
- ``log_bytes``: how much the server logged.
- what the attack counted, and what its ``check`` returned.
"""

from typing import Final

from benchmarks.attacks import (
    bad_signatures,
    connections,
    denials,
    http2_frames,
    http_polls,
    malformed_http,
    metrics_polls,
    tenants,
    ticks,
    unread_scans,
)
from benchmarks.attacks.attack import Attack

ATTACKS: Final[tuple[Attack, ...]] = (
    connections.AT_1024_FILES,
    connections.AT_4096_FILES,
    connections.IN_PLAINTEXT,
    *http2_frames.ATTACKS,
    http_polls.ATTACK,
    malformed_http.ATTACK,
    metrics_polls.ATTACK,
    *tenants.ATTACKS,
    bad_signatures.ATTACK,
    denials.ATTACK,
    ticks.ATTACK,
    unread_scans.COLUMNS,
    unread_scans.ROWS,
    unread_scans.FOLLOWERS,
)  # fmt: skip
