"""The share of CPU that the hypervisor gave to other machines. Above a few hundredths, a result is not meaningful."""

from dataclasses import replace

from tidelog_server.commands.bench.report import Report


class StolenTime:
    """Measures stolen CPU time since its construction."""

    def __init__(self) -> None:
        self._before = _cpu_seconds()

    def noted(self, report: Report) -> Report:
        """Return ``report`` with ``stolen_cpu_share``, 0 to 1; unchanged if the system does not report stolen time."""
        before, after = self._before, _cpu_seconds()
        if before is None or after is None:
            return report
        return replace(report, details={**report.details, "stolen_cpu_share": share_of(before, after)})


def share_of(before: tuple[float, float], after: tuple[float, float]) -> float:
    """Return the share of CPU time that was stolen between two readings of (stolen, total) seconds."""
    stolen, total = after[0] - before[0], after[1] - before[1]
    return stolen / total if total > 0 else 0.0


def _cpu_seconds() -> tuple[float, float] | None:
    """Return stolen and total CPU seconds since the machine started; None if stolen time is not reported."""
    # Imported here because importing the commands must not need packages of the server.
    import psutil

    times = psutil.cpu_times()
    if not hasattr(times, "steal"):
        return None
    # The kernel counts guests in user time as well.
    total = sum(times) - times.guest - times.guest_nice
    return times.steal, total
