"""Usage of a bounded resource of the node by tenant, and the limit of each tenant. Pure.

A tenant may use at most ``percent / (100 - percent)`` times the amount that is free. So a single tenant gets
``percent`` of the whole, and part of it stays free for the next tenant: with 50 percent and n tenants at their limit,
1 / (n + 1).

Source: dynamic thresholds (Choudhury and Hahne) for buffers shared by the ports of a switch.
"""

from tidelog_server.core.callers import NO_TENANT, Tenant
from tidelog_server.core.errors import RateLimitRejectedError
from tidelog_server.core.limits import WHOLE_PERCENT


class Usage:
    """Amounts by tenant.

    Invariant: ``total`` is the sum over all tenants.

    Attributes:
        by_tenant: The amount of each tenant that uses something.
    """

    def __init__(self) -> None:
        self.total = 0
        self.by_tenant: dict[Tenant, int] = {}

    def of(self, tenant: Tenant) -> int:
        """Return the amount that a tenant uses."""
        return self.by_tenant.get(tenant, 0)

    def add(self, tenant: Tenant, amount: int) -> None:
        """Add ``amount`` to a tenant's usage; negative to release."""
        self.total += amount
        used = self.of(tenant) + amount
        assert used >= 0
        if used:
            self.by_tenant[tenant] = used
        else:
            self.by_tenant.pop(tenant, None)

    def check(
        self, tenant: Tenant, amount: int, maximum: int, percent: int, *, unit: str, name: str, full: str, **values: str
    ) -> None:
        """Check that ``amount`` more fits into ``maximum``, and that a tenant may use it.

        Args:
            tenant: The tenant.
            amount: What it would use.
            maximum: What all tenants may use together.
            percent: See the module.
            unit: What is used, for the error of ``check_share``.
            name: What is used, as a value of the error without room.
            full: Its text, with places for ``total`` and ``maximum``.
            values: Its further values.

        Raises:
            RateLimitRejectedError: There is no room, or the tenant may not use it.
        """
        if (total := self.total + amount) > maximum:
            text = full.format(total=total, maximum=maximum)
            raise RateLimitRejectedError(text, **values, **{name: total, f"max_{name}": maximum})
        self.check_share(tenant, amount, maximum, percent, unit)

    def fits_share(self, tenant: Tenant, amount: int, maximum: int, percent: int) -> bool:
        """Return whether a tenant may use ``amount`` more of ``maximum``. See ``check_share``."""
        if tenant == NO_TENANT or percent >= WHOLE_PERCENT:
            return True
        return self.of(tenant) + amount <= max(1, self._allowed(maximum, percent))

    def _allowed(self, maximum: int, percent: int) -> int:
        return (maximum - self.total) * percent // (WHOLE_PERCENT - percent)

    def check_share(self, tenant: Tenant, amount: int, maximum: int, percent: int, unit: str) -> None:
        """Check that a tenant may use ``amount`` more of ``maximum``; the amount fits into what is free.

        NO_TENANT stands for a single principal, which may use all.

        Raises:
            RateLimitRejectedError: It may not; the text names ``unit``.
        """
        if self.fits_share(tenant, amount, maximum, percent):
            return
        used, allowed = self.of(tenant), self._allowed(maximum, percent)
        raise RateLimitRejectedError(
            f"this principal uses {used} {unit}; with {maximum - self.total} of {maximum} free, a principal may "
            f"use {allowed}: release some first, or raise limits.max_principal_percent",
            limit=unit, used=used, allowed=allowed,
        )  # fmt: skip
