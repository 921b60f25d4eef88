"""The records that are remembered, shared fairly by their tenants: when there are too many, the tenant that has most of
them loses the one it used least recently. So a tenant with many categories takes nothing from one that has few.

Ties go to the tenant that was there least recently, which `fair_lru` would not do, and with a record for each tenant
all are ties.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping

from services.cache.semantic_match.record import Record, ThresholdDecision
from services.cache.semantic_match.traffic import Traffic

RECORDS = 1_000  # remembered, of 20 KB each at the most


class Records:
    """Records by tenant and category, the least recently used first."""

    def __init__(self) -> None:
        self._tenants: OrderedDict[str, OrderedDict[str, Record]] = OrderedDict()
        self._count = 0

    def __iter__(self) -> Iterator[tuple[Traffic, Record]]:
        for tenant, records in list(self._tenants.items()):  # lists: scrapes of the metrics have a thread of their own
            for category, record in list(records.items()):
                yield Traffic(tenant, category), record

    def get(self, traffic: Traffic) -> Record | None:
        return self.of(traffic.tenant).get(traffic.category)

    def of(self, tenant: str) -> Mapping[str, Record]:
        """A tenant's, by category."""
        return self._tenants.get(tenant, {})

    def use(self, traffic: Traffic, threshold: float) -> Record:
        """The record, which is used now; where there is none, a new one with a threshold to begin with."""
        tenant, category = traffic
        records = self._tenants.setdefault(tenant, OrderedDict())
        record = records.get(category)
        if record is None:
            record = records[category] = Record({1.0: ThresholdDecision(threshold)})
            self._count += 1
        records.move_to_end(category)
        self._tenants.move_to_end(tenant)
        if self._count > RECORDS:
            self._make_room()
        return record

    def forget(self, tenant: str) -> None:
        """Remove all records of a tenant."""
        self._count -= len(self._tenants.pop(tenant, {}))

    def clear(self) -> None:
        self._tenants.clear()
        self._count = 0

    def _make_room(self) -> None:
        tenant, records = max(self._tenants.items(), key=lambda each: len(each[1]))  # the first of several
        records.popitem(last=False)
        self._count -= 1
        if not records:
            del self._tenants[tenant]
