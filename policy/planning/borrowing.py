"""Borrowing between queues: surplus may use other queues' unused nominal quotas.

All queues with a nominal quota lend to each other. Minimums and parameter servers stay within their own
queue's quota, and only surplus borrows. A borrowed share can therefore always be returned at once without
releasing a guaranteed trainer (docs/decisions/0053). All amounts are requests.
"""

from collections.abc import Iterable

from policy import quantity
from policy.cluster import amounts
from policy.cluster.snapshot import Resources
from policy.decisions import NONE, Figures
from policy.document.queue_model import Queue

_ALL = "all queues together"
_NOTHING: Resources = {}


class Borrowing:
    """The amounts that queues use while a plan is made, compared with their nominal quotas.

    Queues without a nominal quota, and jobs without a queue, neither lend nor borrow: nothing limits them.
    """

    def __init__(self, queues: Iterable[Queue]) -> None:
        lenders = [queue for queue in queues if queue.nominal_quota]
        self._nominal = {q.name: quantity.parse_all(q.nominal_quota) for q in lenders}
        self._total: dict[str, int] = {}
        for nominal in self._nominal.values():
            amounts.add(self._total, nominal)
        self._highest = {q.name: self._ceiling(q) for q in lenders}
        self._used = {name: dict.fromkeys(self._total, 0) for name in self._nominal}
        self._used_by_all = dict.fromkeys(self._total, 0)
        self._claims = {name: dict.fromkeys(self._total, 0) for name in self._nominal}
        """Queue -> requests of minimums and parameter servers."""

    def _ceiling(self, queue: Queue) -> dict[str, int]:
        limits = quantity.parse_all(queue.borrowing_limit)
        return {
            name: min(total, self._nominal[queue.name][name] + limits.get(name, total))
            for name, total in self._total.items()
        }

    def __bool__(self) -> bool:
        """Whether any queue lends."""
        return bool(self._nominal)

    def covers(self, queue: str) -> bool:
        """Returns whether a queue lends and borrows."""
        return queue in self._nominal

    def count(self, queue: str, requests: Resources, sign: int) -> None:
        """Adds (sign 1) or subtracts (sign -1) the requests of a queue's trainers or servers."""
        for name in self._total if queue in self._nominal else ():
            amount = sign * requests.get(name, 0)
            self._used[queue][name] += amount
            self._used_by_all[name] += amount

    def claim(self, queue: str, requests: Resources) -> None:
        """Adds the requests of a minimum and its parameter servers to the claims on the nominal quota."""
        if queue in self._nominal:
            amounts.add(self._claims[queue], _of(requests, self._total))

    def room_for_minimum(
        self, queue: str, requests: Resources, count: int, servers: Resources
    ) -> int:
        """Returns how many of `count` more guaranteed trainers a queue's nominal quota allows with `servers`."""
        if queue not in self._nominal:
            return count
        nominal, claims = self._nominal[queue], self._claims[queue]
        for name, limit in nominal.items():
            free = limit - claims[name] - servers.get(name, 0)
            if free < 0 and servers.get(name, 0) > 0:
                return 0
            if requests.get(name, 0) > 0:
                count = min(count, max(0, free) // requests[name])
        return count

    def lack_for_minimum(self, queue: str, requests: Resources) -> Figures:
        """Returns the first resource in which a minimum exceeds the queue's nominal quota, and by how much."""
        nominal, claims = self._nominal[queue], self._claims[queue]
        scope = f"queue {queue} without borrowing"
        return _lack(scope, nominal, amounts.plus(claims, _of(requests, self._total)))

    def allows(self, queue: str, requests: Resources) -> bool:
        """Returns whether another `requests` stay within the queue's borrowing limit and all nominal quotas."""
        if queue not in self._nominal:
            return True
        used, highest = self._used[queue], self._highest[queue]
        return all(
            used[name] + requests[name] <= highest[name]
            and self._used_by_all[name] + requests[name] <= total
            for name, total in self._total.items()
            if requests.get(name, 0) > 0
        )

    def lack(self, queue: str, requests: Resources) -> Figures:
        """Returns the first limit that another `requests` would exceed, and by how much; empty for none."""
        if queue not in self._nominal:
            return NONE
        needed = _of(requests, self._total)
        limits = {n: limit for n, limit in self._highest[queue].items() if limit < self._total[n]}
        own = _lack(f"queue {queue}", limits, amounts.plus(self._used[queue], needed))
        return own or _lack(_ALL, self._total, amounts.plus(self._used_by_all, needed))

    def owns(self, queue: str, requests: Resources) -> bool:
        """Returns whether another `requests` stay within the queue's own nominal quota."""
        if queue not in self._nominal:
            return True
        used, nominal = self._used[queue], self._nominal[queue]
        return all(used[name] + requests.get(name, 0) <= nominal[name] for name in nominal)

    def borrowed(self, queue: str, of: Iterable[str], freed: Resources = _NOTHING) -> list[str]:
        """Returns the resources in `of` that a queue uses beyond its nominal quota, after `freed` is released."""
        if queue not in self._nominal:
            return []
        used, nominal = self._used[queue], self._nominal[queue]
        return [n for n in of if n in nominal and used[n] - freed.get(n, 0) > nominal[n]]

    def exceeded(self, queue: str) -> list[str]:
        """Returns the resources in which a queue is above a limit, so that it must release trainers.

        If all queues together use too much, the queues that borrow release trainers.
        """
        if queue not in self._nominal:
            return []
        used, highest = self._used[queue], self._highest[queue]
        above = [n for n, total in self._total.items() if self._used_by_all[n] > total]
        own = [name for name in highest if used[name] > highest[name]]
        return own + [name for name in self.borrowed(queue, above) if name not in own]

    def relieves(self, queue: str, requests: Resources, giver: str, freed: Resources) -> bool:
        """Returns whether releasing `freed` in queue `giver` helps to start another `requests` in `queue`.

        A queue releases only borrowed amounts for another queue.
        """
        if queue not in self._nominal or giver not in self._nominal:
            return False
        lacking = [
            name
            for name, total in self._total.items()
            if requests.get(name, 0) > 0
            and freed.get(name, 0) > 0
            and self._used_by_all[name] + requests[name] > total
        ]
        if giver != queue:
            return bool(self.borrowed(giver, lacking))
        return bool(lacking) or not self.allows(queue, requests)

    def keeps_nominal(self, queue: str, of: Iterable[str], freed: Resources) -> bool:
        """Returns whether a queue still uses its whole nominal quota after `freed` is released."""
        used, nominal = self._used[queue], self._nominal[queue]
        return all(used[n] - freed.get(n, 0) >= nominal[n] for n in of if n in nominal)

    def figures(self, queue: str, of: Iterable[str]) -> Figures:
        """Returns a queue's use and nominal quota of the resource of which it borrows most."""
        used, nominal = self._used[queue], self._nominal[queue]
        name = max((n for n in of if n in nominal), key=lambda n: used[n] / max(1, nominal[n]))
        return {
            "of_queue": queue,
            "resource": name,
            "used": quantity.show(name, used[name]),
            "nominal": quantity.show(name, nominal[name]),
        }


def _of(requests: Resources, names: Iterable[str]) -> dict[str, int]:
    return {name: requests.get(name, 0) for name in names}


def _lack(scope: str, ceilings: Resources, used: Resources) -> Figures:
    for name, limit in ceilings.items():
        if used[name] > limit:
            return {
                "scope": scope,
                "resource": name,
                "limit": quantity.show(name, limit),
                "short": quantity.show(name, used[name] - limit),
            }
    return NONE
