"""Finds misspelled environment variables, such as EDL_MASTERS.

Who calls: `runtime.settings`, at the start of a component. Unknown variables are reported, not refused,
because other software may use the prefix EDL_ too.
"""

from collections.abc import Collection, Mapping

from policy.nearest import advice

_PREFIX = "EDL_"
_SERVICE = "_SERVICE_HOST"
COMPONENTS = ("extender", "master", "page", "pserver", "reconciler", "webhook")
TRAINERS = (
    "EDL_ADDRESS",
    "EDL_DATA",
    "EDL_EPOCHS",
    "EDL_EXCHANGE_PORT",
    "EDL_GRACE_S",
    "EDL_INDEX",
    "EDL_JOB",
    "EDL_MASTER",
    "EDL_MASTER_HOST",
    "EDL_MAX_TRAINERS",
    "EDL_PARAMETER_SERVERS",
    "EDL_PATIENCE_S",
    "EDL_PROCESSES",
    "EDL_ROLE",
    "EDL_SERVER_HOSTS",
    "EDL_SNAPSHOTS",
    "EDL_SNAPSHOT_BYTES",
    "EDL_SNAPSHOT_ROUND",
    "EDL_TOKEN",
    "EDL_TOKEN_FILE",
    "EDL_TRAINER",
)
"""The variables of trainers, which a job's servers share."""


def unknown_variables(
    environ: Mapping[str, str], component: str, known: Collection[str]
) -> list[str]:
    """Returns a text for each unknown variable, with the nearest known name; never a value.

    A variable without the component's prefix is reported only if its name resembles a known one: other
    variables belong to other software. Variables of other components are left to these components.

    Args:
        environ: The environment.
        component: The component; the variables of "webhook" begin with EDL_WEBHOOK_.
        known: The variables of this component.
    """
    own = f"{_PREFIX}{component}_".upper()
    of_others = tuple(
        f"{_PREFIX}{name}_".upper() for name in COMPONENTS if name != component
    ) + _of_services(environ)
    names = {*known, *TRAINERS}
    texts = []
    for name in sorted(environ.keys() - names):
        if not name.startswith(_PREFIX) or name.startswith(of_others):
            continue
        is_own = name.startswith(own)
        hint = advice(name, known, own) if is_own else advice(name, names, _PREFIX)
        if hint or is_own:
            texts.append(f"{name} does not exist{hint}")
    return texts


def _of_services(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Returns the prefixes of variables that Kubernetes sets for Services named edl-..."""
    services = [name.removesuffix(_SERVICE) for name in environ if name.endswith(_SERVICE)]
    return tuple(f"{service}{part}" for service in services for part in ("_SERVICE_", "_PORT"))
