from edl.master import variables as of_trainers

from runtime import variables
from runtime.variables import unknown_variables

KNOWN = ("EDL_WEBHOOK_LISTEN", "EDL_WEBHOOK_MASTER_IMAGE", "EDL_WEBHOOK_HOSTS")


def _reported(*names: str) -> list[str]:
    return unknown_variables(dict.fromkeys(names, "a-secret"), "webhook", KNOWN)


def test_an_unknown_variable_is_reported_with_the_nearest() -> None:
    """The component's own always, others where they resemble one of EDL's; never a value."""
    assert _reported(
        "EDL_WEBHOOK_IMAGE", "EDL_WEBHOOK_COLOUR", "EDL_WEBHOK_LISTEN", "EDL_MASTERS"
    ) == [
        "EDL_MASTERS does not exist (did you mean EDL_MASTER?)",
        "EDL_WEBHOK_LISTEN does not exist (did you mean EDL_WEBHOOK_LISTEN?)",
        "EDL_WEBHOOK_COLOUR does not exist",
        "EDL_WEBHOOK_IMAGE does not exist (did you mean EDL_WEBHOOK_MASTER_IMAGE?)",
    ]


def test_variables_of_others_are_not_reported() -> None:
    """Those that exist, of other components, of other software, of Services."""
    assert _reported(*KNOWN, *variables.TRAINERS) == []
    assert _reported("EDL_MASTER_LISTEN", "EDL_PAGE_LISTEN", "EDL_CACHE", "PATH", "MASTERS") == []
    assert _reported("EDL_TOKEN_SERVICE_HOST", "EDL_TOKEN_SERVICE_PORT", "EDL_TOKEN_PORT") == []
    assert _reported("EDL_WEBHOOK_SERVICE_HOST", "EDL_WEBHOOK_PORT_443_TCP_ADDR") == []
    assert _reported("EDL_SERVICE_HOST", "EDL_PORT", "EDL_TOKEM") != []


def test_both_distributions_know_the_same_variables() -> None:
    """Those of trainers are listed here and in the SDK, which know nothing of each other."""
    assert sorted(variables.TRAINERS) == sorted(of_trainers.TRAINERS)
    assert variables.COMPONENTS == of_trainers.COMPONENTS
