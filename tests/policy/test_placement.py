import pytest

from policy.cluster.placement import admits, score, tolerated
from policy.cluster.snapshot import ANYWHERE, Constraints, Node, Requirement, Taint, Toleration
from policy.document.model import NodePool
from policy.reasons import Reason
from tests.support.builders import node

_TAINT = Taint("dedicated", "gpu", "NoSchedule")


def _wanting(key: str, operator: str, *values: str) -> Constraints:
    return Constraints(terms=((Requirement(key, operator, values),),))


@pytest.mark.parametrize(
    ("place", "reason"),
    [
        (node("n0"), None),
        (node("n0", ready=False), Reason.NODE_NOT_READY),
        (node("n0", unschedulable=True), Reason.NODE_UNSCHEDULABLE),
        (node("n0", taints=(_TAINT,)), Reason.NODE_TAINTED),
        (node("n0", taints=(Taint("a", "", "NoExecute"),)), Reason.NODE_TAINTED),
        (node("n0", taints=(Taint("a", "", "PreferNoSchedule"),)), None),
    ],
)
def test_a_node_is_open_or_says_why_not(place: Node, reason: Reason | None) -> None:
    """Not ready, cordoned and tainted nodes take no new pod; a soft taint is only a preference."""
    assert admits(place, ANYWHERE) is reason


@pytest.mark.parametrize(
    ("toleration", "is_tolerated"),
    [
        (Toleration("dedicated", "Equal", "gpu", "NoSchedule"), True),
        (Toleration("dedicated", "Equal", "gpu", ""), True),
        (Toleration("dedicated", "", "gpu", ""), True),
        (Toleration("dedicated", "Equal", "cpu", ""), False),
        (Toleration("dedicated", "Exists", "", ""), True),
        (Toleration("dedicated", "Exists", "", "NoExecute"), False),
        (Toleration("other", "Exists", "", ""), False),
        (Toleration("", "Exists", "", ""), True),
        (Toleration("", "Equal", "gpu", ""), False),
    ],
)
def test_tolerations_are_read_as_upstream_does(
    toleration: Toleration, *, is_tolerated: bool
) -> None:
    """Key, operator, value and effect, empty ones meaning all."""
    assert tolerated(_TAINT, [toleration]) is is_tolerated


@pytest.mark.parametrize(
    ("operator", "value", "is_tolerated"),
    [
        *(("Gt", "94", True), ("Gt", "95", False), ("Lt", "96", True), ("Lt", "95", False)),
        *(("Gt", "many", False), ("Lt", "", False)),
    ],
)
def test_tolerations_may_compare_numbers(operator: str, value: str, *, is_tolerated: bool) -> None:
    """The taint's value must be greater or smaller; an equal one is neither."""
    taint = Taint("reliability", "95", "NoExecute")

    assert tolerated(taint, [Toleration("reliability", operator, value, "")]) is is_tolerated


def test_every_taint_needs_a_toleration() -> None:
    """One that is not tolerated closes the node."""
    place = node("n0", taints=(_TAINT, Taint("spot", "", "NoSchedule")))
    toleration = Toleration("dedicated", "Exists", "", "")
    two = Toleration("spot", "Exists", "", "")

    assert admits(place, Constraints(tolerations=(toleration,))) is Reason.NODE_TAINTED
    assert admits(place, Constraints(tolerations=(toleration, two))) is None


@pytest.mark.parametrize(
    ("key", "operator", "values", "matches"),
    [
        ("zone", "In", ("a", "b"), True),
        ("zone", "In", ("b",), False),
        ("absent", "In", ("a",), False),
        ("zone", "NotIn", ("b",), True),
        ("zone", "NotIn", ("a",), False),
        ("absent", "NotIn", ("a",), True),
        ("zone", "Exists", (), True),
        ("absent", "Exists", (), False),
        ("absent", "DoesNotExist", (), True),
        ("zone", "DoesNotExist", (), False),
        ("cores", "Gt", ("7",), True),
        ("cores", "Gt", ("8",), False),
        ("cores", "Lt", ("9",), True),
        ("cores", "Lt", ("8",), False),
        ("zone", "Gt", ("1",), False),
        ("absent", "Lt", ("1",), False),
        ("cores", "Gt", (), False),
        ("metadata.name", "In", ("n0",), True),
        ("metadata.name", "In", ("n1",), False),
        ("zone", "Near", ("a",), False),
    ],
)
def test_affinity_operators(
    key: str, operator: str, values: tuple[str, ...], *, matches: bool
) -> None:
    """Each operator of node affinity; what cannot be read holds nowhere."""
    place = node("n0", labels={"zone": "a", "cores": "8"})
    reason = None if matches else Reason.NODE_SELECTOR

    assert admits(place, _wanting(key, operator, *values)) is reason


def test_terms_are_alternatives_of_conjunctions() -> None:
    """One whole term is enough; half of each is not."""
    in_a, big = Requirement("zone", "In", ("a",)), Requirement("cores", "Gt", ("16",))
    place = node("n0", labels={"zone": "a", "cores": "8"})

    assert admits(place, Constraints(terms=((in_a, big), (in_a,)))) is None
    assert admits(place, Constraints(terms=((in_a, big), (big,)))) is Reason.NODE_SELECTOR


def test_pools_bound_where_pods_may_go() -> None:
    """A node must be in one of them, by all of its labels; no pool at all means every node."""
    pools = (
        NodePool(name="gpu", labels={"pool": "gpu", "zone": "a"}),
        NodePool(name="cpu", labels={"pool": "cpu"}),
    )

    assert admits(node("n0", labels={"pool": "cpu"}), ANYWHERE, pools) is None
    assert admits(node("n0", labels={"pool": "gpu"}), ANYWHERE, pools) is Reason.NODE_POOL
    assert admits(node("n0"), ANYWHERE, pools) is Reason.NODE_POOL
    assert admits(node("n0"), ANYWHERE) is None


def test_two_costs_are_the_ends_of_the_scale() -> None:
    """The cheaper 10, the other 0; one cost alone is the best there is."""
    assert score({"n0": (0, 4), "n1": (0, 9)}) == {"n0": 10, "n1": 0}
    assert score({"n0": (3, 4), "n1": (3, 4)}) == {"n0": 10, "n1": 10}
