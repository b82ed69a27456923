"""What tenants use of something that a node has a bounded amount of, and how much each may use. Pure.

A tenant may use a part of the whole that shrinks with what is free: at most ``percent / (100 - percent)`` times as much
as is free. So one tenant alone gets ``percent`` of the whole, and however many tenants take all that they may, some of
it is free for the next one: with 50 percent and n of them, 1 / (n + 1).

Source: the dynamic thresholds of Choudhury and Hahne for buffers that ports of a switch share.
"""

from tidelog_server.core.errors import RateLimitRejectedError
from tidelog_server.core.limits import WHOLE_PERCENT
from tidelog_server.core.tenants import NO_TENANT, Tenant


class Usage:
    """Amounts by tenant.

    Invariant: ``total`` is the sum over all tenants.
    """

    def __init__(self) -> None:
        self.total = 0
        self._by_tenant: dict[Tenant, int] = {}

    def of(self, tenant: Tenant) -> int:
        """Return what a tenant uses."""
        return self._by_tenant.get(tenant, 0)

    def add(self, tenant: Tenant, amount: int) -> None:
        """Note that a tenant uses more, or with a negative amount less."""
        self.total += amount
        used = self.of(tenant) + amount
        assert used >= 0
        if used:
            self._by_tenant[tenant] = used
        else:
            self._by_tenant.pop(tenant, None)

    def check_share(self, tenant: Tenant, amount: int, maximum: int, percent: int, unit: str) -> None:
        """Check that a tenant may use ``amount`` more of ``maximum``, which fits into what is free.

        Everything with NO_TENANT is one principal's, which may use all.

        Raises:
            RateLimitRejectedError: It may not; ``unit`` says of what.
        """
        if tenant == NO_TENANT or percent >= WHOLE_PERCENT:
            return
        allowed = (maximum - self.total) * percent // (WHOLE_PERCENT - percent)
        used = self.of(tenant)
        if used + amount > max(1, allowed):
            raise RateLimitRejectedError(
                f"this principal uses {used} {unit}, and one may use {allowed} while {maximum - self.total} of "
                f"{maximum} are free: give some back first, or raise limits.max_principal_percent",
                limit=unit, used=used, allowed=allowed,
            )  # fmt: skip
