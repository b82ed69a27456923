"""How much CPU the hypervisor gave to others meanwhile: above a few hundredths, a run says more of them than of us."""

from dataclasses import replace

from tidelog_server.cli.bench.report import Report


class StolenTime:
    """Begins to measure when it is made."""

    def __init__(self) -> None:
        self._before = _cpu_seconds()

    def noted(self, report: Report) -> Report:
        """Return ``report`` with ``stolen_cpu_share``, 0 to 1; as it is where the system does not tell."""
        before, after = self._before, _cpu_seconds()
        if before is None or after is None:
            return report
        return replace(report, details={**report.details, "stolen_cpu_share": share_of(before, after)})


def share_of(before: tuple[float, float], after: tuple[float, float]) -> float:
    """Return the share of CPU that was stolen between two readings of (stolen, all) seconds."""
    stolen, total = after[0] - before[0], after[1] - before[1]
    return stolen / total if total > 0 else 0.0


def _cpu_seconds() -> tuple[float, float] | None:
    """Return stolen and all CPU seconds since the machine started; None where nobody counts the stolen ones."""
    # Here: the tree of commands shall do without what only a server has.
    import psutil

    times = psutil.cpu_times()
    if not hasattr(times, "steal"):
        return None
    # The kernel counts guests in user time as well.
    total = sum(times) - times.guest - times.guest_nice
    return times.steal, total
