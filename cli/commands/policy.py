"""`policy`: checks a policy file, shows the cluster's policy, or compares both."""

from pathlib import Path
from typing import Any

import click
import yaml
from rich.console import Console

from cli import snapshots
from cli.errors import CODES, CliError
from cli.frame import Frame, command
from policy.document.model import Policy
from policy.document.parser import parse
from policy.errors import DocumentError
from policy.names import POLICY_CONFIGMAP, SYSTEM_NAMESPACE

_ABSENT = "(not set)"


@click.group("policy", epilog=CODES, no_args_is_help=False, invoke_without_command=True)
@click.pass_context
def policy(ctx: click.Context) -> None:
    """Check a policy file, show the cluster's policy, or compare both."""
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


@command("check", whole_cluster=True)
@click.argument("file", type=click.Path(path_type=Path))
def check(frame: Frame, file: Path) -> None:
    """Check the policy in FILE as the webhook does; needs no cluster."""
    fields = _fields(snapshots.read_policy(file))
    result = {"file": str(file), "valid": True, "fields": fields}
    summary = f"sets {', '.join(fields)}" if fields else "is the default policy"
    frame.show(result, lambda _: frame.say(f"{file} is a valid policy: it {summary}."))


@command("show", whole_cluster=True)
def show(frame: Frame) -> None:
    """Show the fields in which the cluster's policy differs from the default."""
    text = snapshots.policy_text(frame)
    try:
        fields = _fields(parse(text))
    except DocumentError as error:
        problem = "the cluster's policy is invalid, and the last valid one is in force"
        way_out = f"correct the ConfigMap {SYSTEM_NAMESPACE}/{POLICY_CONFIGMAP}"
        raise CliError(f"{problem}: {error}; {way_out}") from error
    result: dict[str, Any] = {"source": "configmap" if text else "default", "policy": fields}
    frame.show(result, lambda console: _print_policy(console, frame, result))


@command("diff", whole_cluster=True)
@click.argument("file", type=click.Path(path_type=Path))
def diff(frame: Frame, file: Path) -> None:
    """Compare the policy in FILE with the cluster's.

    To see its effect, use `plan --policy FILE`.
    """
    new = flat(_fields(snapshots.read_policy(file)))
    old = flat(_fields(snapshots.policy_in_force(frame)))
    changes = [
        {"field": name, "cluster": old.get(name), "file": new.get(name)}
        for name in sorted(old.keys() | new.keys())
        if old.get(name) != new.get(name)
    ]
    frame.show(changes, lambda _: _print_changes(frame, changes))


for _command in (check, show, diff):
    policy.add_command(_command)


def flat(value: object, prefix: str = "") -> dict[str, object]:
    """Flattens `{"reserve": {"maxLoad": {"cpu": 0.9}}}` to `{"reserve.maxLoad.cpu": 0.9}`.

    The key of a list item contains the item's name, or its index if it has no name.
    """
    if isinstance(value, dict):
        items = [(str(name), part) for name, part in value.items()]
    elif isinstance(value, list):
        items = [(str(_name_of(part, index)), part) for index, part in enumerate(value)]
    else:
        return {prefix: value}
    return {
        name: leaf
        for key, part in items
        for name, leaf in flat(part, f"{prefix}.{key}" if prefix else key).items()
    }


def _name_of(part: object, index: int) -> object:
    """Returns the name of a list element, or its index if it has none."""
    return part.get("name", index) if isinstance(part, dict) else index


def _fields(policy: Policy) -> dict[str, Any]:
    """Returns the fields in which a policy differs from the default, named as in the document."""
    fields: dict[str, Any] = policy.model_dump(mode="json", exclude_defaults=True, by_alias=True)
    return fields


def _print_policy(console: Console, frame: Frame, result: dict[str, Any]) -> None:
    if not result["policy"]:
        frame.say("The default policy is in force.")
        return
    text = yaml.safe_dump(result["policy"], sort_keys=False, allow_unicode=True)
    console.out(text, end="", highlight=False)


def _print_changes(frame: Frame, changes: list[dict[str, Any]]) -> None:
    if not changes:
        frame.say("The file and the cluster have the same policy.")
    for change in changes:
        old, new = (_ABSENT if change[k] is None else change[k] for k in ("cluster", "file"))
        frame.say(f"{change['field']}: {old} -> {new}")
