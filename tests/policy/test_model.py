import pytest

from policy.document.model import Policy, Selector, Training
from policy.names import Role


@pytest.mark.parametrize(
    ("selector", "namespace", "labels", "matches"),
    [
        (Selector(), "any", {}, True),
        (Selector(namespaces=("team-*",)), "team-a", {}, True),
        (Selector(namespaces=("team-*",)), "prod", {}, False),
        (Selector(namespaces=("a", "b")), "b", {}, True),
        (Selector(labels={"app": "train-?"}), "any", {"app": "train-1"}, True),
        (Selector(labels={"app": "train-?"}), "any", {"app": "train-10"}, False),
        (Selector(labels={"app": "*"}), "any", {}, False),
        (Selector(labels={"app": "*", "gpu": "yes"}), "any", {"app": "x"}, False),
        (Selector(namespaces=()), "any", {}, False),
    ],
)
def test_selectors_match_namespace_and_all_labels(
    selector: Selector, namespace: str, labels: dict[str, str], *, matches: bool
) -> None:
    """Wildcards work in both; a label must be present, and every one must match."""
    assert selector.matches(namespace, labels) is matches


def test_the_first_matching_selector_gives_the_role() -> None:
    """The first match decides; a pod that no selector matches is not a training pod."""
    policy = Policy(
        training=(
            Training(name="servers", labels={"app": "ps-*"}, role=Role.PSERVER),
            Training(name="others", namespaces=("ml",)),
        )
    )

    assert policy.training_role("ml", {"app": "ps-1"}) is Role.PSERVER
    assert policy.training_role("ml", {}) is Role.TRAINER
    assert policy.training_role("shop", {}) is None


def test_a_training_selector_names_something() -> None:
    """Namespaces alone are enough, as long as they are not all of them."""
    with pytest.raises(ValueError, match="would make every pod"):
        Training(name="all", namespaces=("ml", "*"))
    assert Training(name="some", namespaces=("ml",)).labels == {}


def test_namespaces_are_protected_by_pattern() -> None:
    """The control plane is out of reach by default."""
    assert Policy().protects("kube-system")
    assert not Policy().protects("ml")


def test_edl_acts_in_named_namespaces_alone() -> None:
    """Protection holds among them too; without a name, everywhere else."""
    policy = Policy(namespaces=("ml", "vision-*"), protected_namespaces=("vision-x",))
    protected = [policy.protects(name) for name in ("ml", "vision-a", "vision-x", "shop")]

    assert protected == [False, False, True, True]
