"""What a pod is in training: its name, controller and class decide, and labels where these do not."""

import pytest

from policy.cluster import membership
from policy.cluster.membership import NO_CONTROLLER, Controller, Membership
from policy.names import LABEL_JOB, LABEL_ROLE, Role, Tier, server_name

RESNET = Controller("uid-1", "resnet", is_job=True)
LONG = "x" * 70
SHOP = Controller("uid-2", "shop")
SURPLUS, GUARANTEED, SUPPORT = "edl-surplus", "edl-guaranteed", "edl-support"
LOW_SHARE = "edl-surplus-low-share"


def of(
    name: str,
    controller: Controller = NO_CONTROLLER,
    labels: dict[str, str] | None = None,
    priority_class: str = "",
    priority: int = 0,
) -> Membership:
    """Most arguments do not matter to a test."""
    return membership.of(name, controller, labels or {}, priority_class, priority)


@pytest.mark.parametrize("labels", [{}, {LABEL_JOB: "other", LABEL_ROLE: "pserver"}])
@pytest.mark.parametrize(
    ("name", "priority_class", "member"),
    [
        ("resnet-trainer-7", SURPLUS, Membership("resnet", Role.TRAINER, Tier.SURPLUS, 7)),
        ("resnet-trainer-0", GUARANTEED, Membership("resnet", Role.TRAINER, Tier.GUARANTEED, 0)),
        ("resnet-ps-3", SUPPORT, Membership("resnet", Role.PSERVER, Tier.SUPPORT, server=3)),
    ],
)
def test_name_and_controller_decide_before_labels(
    name: str, priority_class: str, member: Membership, labels: dict[str, str]
) -> None:
    """Neither can be edited by who may edit the labels of a pod."""
    assert of(name, RESNET, labels, priority_class) == member


def test_a_long_job_is_recognized_by_its_servers() -> None:
    """Their names have a hash of the job's in them."""
    assert of(server_name(LONG, 5), Controller("u", LONG, is_job=True)).server == 5


@pytest.mark.parametrize(
    ("name", "controller"),
    [
        ("resnet-trainer-7", Controller("uid", "resnet")),
        ("resnet-trainer-7", NO_CONTROLLER),
        ("resnet-trainer-x", RESNET),
        ("resnet-7", RESNET),
        ("other-trainer-7", RESNET),
        ("other-ps-7", RESNET),
        ("resnet-ps-x", RESNET),
        ("resnet-ps-07", RESNET),
    ],
)
def test_other_names_and_controllers_are_not_of_edl(name: str, controller: Controller) -> None:
    """A Job of another API group may name its pods alike."""
    assert of(name, controller) == Membership()


@pytest.mark.parametrize("labelled", ["trainer", "pserver", "master", "cook", ""])
@pytest.mark.parametrize(
    ("priority_class", "tier", "roles"),
    [
        (SURPLUS, Tier.SURPLUS, {Role.TRAINER}),
        (LOW_SHARE, Tier.SURPLUS, {Role.TRAINER}),
        (GUARANTEED, Tier.GUARANTEED, {Role.TRAINER}),
        (SUPPORT, Tier.SUPPORT, {Role.PSERVER, Role.MASTER}),
    ],
)
def test_a_class_of_edl_is_training_whatever_the_role_in_the_label(
    priority_class: str, tier: Tier, roles: set[Role], labelled: str
) -> None:
    """A pod does not become a service, or of another tier, by a label."""
    member = of("web-1", SHOP, {LABEL_ROLE: labelled}, priority_class)

    assert member.tier is tier
    assert member.role in roles


@pytest.mark.parametrize(
    ("role", "priority", "tier"),
    [
        ("trainer", -1000, Tier.SURPLUS),
        ("trainer", -1_000_000, Tier.SURPLUS),
        ("trainer", -999, Tier.GUARANTEED),
        ("trainer", 0, Tier.GUARANTEED),
        ("pserver", -1_000_000, Tier.SUPPORT),
        ("master", 0, Tier.SUPPORT),
    ],
)
def test_the_tier_in_a_foreign_class_is_that_of_its_priority(
    role: str, priority: int, tier: Tier
) -> None:
    """Such pods were created while the webhook was down, or have a lower class of their own."""
    member = of("own-1", SHOP, {LABEL_ROLE: role, LABEL_JOB: "net"}, "batch", priority)

    assert member == Membership("net", Role(role), tier)


def test_the_job_of_a_training_pod_is_the_one_that_controls_it() -> None:
    """So it is for pods of a Job that the built-in controller manages."""
    labels = {LABEL_JOB: "other", LABEL_ROLE: "trainer"}

    assert of("resnet-abcde", RESNET, labels).job == "resnet"
    assert of("web-1", SHOP, labels).job == "other"
    assert of("resnet-abcde", RESNET).job == ""
