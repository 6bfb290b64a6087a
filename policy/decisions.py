"""Decision records: a stable code, and the figures on which the decision rests.

The sentence in events and conditions is formatted from code and figures in this module only, so
the two cannot disagree (`policy.explanations`, docs/decisions/0005).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import ceil
from string import Formatter

from policy import quantity
from policy.reasons import Reason
from policy.snapshot import Resources
from policy.timestamps import timestamp

Figure = int | float | str | Resources
"""A count, a share, a name, or amounts in the units of `policy.quantity`."""
Figures = Mapping[str, Figure]
NONE: Figures = {}
NODES_HELD = "nodes are held until"
"""In the sentence of a job for which the plan holds nodes: a condition is written anew for it."""

SENTENCES: Mapping[Reason, tuple[str, ...]] = {
    Reason.AT_MAX: ("it has all of its {max} trainers",),
    Reason.AT_CEILING: ("no allowed number of trainers lies between {trainers} and {max}",),
    Reason.NO_ROOM: (
        "no node has room for one more trainer ({needs}); nearest is {nearest} with {free} free",
        "no node has room for one more trainer ({needs})",
    ),
    Reason.RESERVE_HELD: (
        "{used} {resource} of {limit} are in use; more is kept free for services",
    ),
    Reason.QUOTA_REACHED: (
        "{job} starts in the same quota",
        "{missing} more must start: the quota of {scope} allows {resource} {limit}, {short} too little",
        "the quota of {scope} allows {resource} {limit}, {short} too little",
    ),
    Reason.SIZE_NOT_ALLOWED: ("{live} live, and {size} is the next allowed number below",),
    Reason.GROWING: ("{waiting} trainers of all jobs are being scheduled, enough for now",),
    Reason.WAITING_FOR_ROOM: (
        "no room for {missing} guaranteed trainers ({needs} each); " + NODES_HELD + " {until}",
        "no room for {missing} guaranteed trainers ({needs} each); nodes are held from {held_from} on",
        "no room for {servers} parameter servers ({needs} each)",
        "no room for {missing} guaranteed trainers ({needs} each)",
    ),
    Reason.FITS_NO_NODE: (
        "a trainer asks for {needs}; of {nodes} nodes that it may use, the largest has {largest}",
        "a trainer asks for {needs}, and there is no node it may use",
    ),
    Reason.QUEUED: ("{job} is older and waits for room: its nodes are held until {until}",),
    Reason.NODES_REQUESTED: (
        "{pending} pods of its start wait for an autoscaler to add nodes, until {until}",
    ),
    Reason.SUSPENDED: ("spec.suspend is true",),
    Reason.ENDING: (
        "trainers that finished the work: {succeeded}",
        "the job is over or being deleted",
    ),
    Reason.BACKING_OFF: ("{failures} failures in a row, the next try at {until}",),
    Reason.REPLACING: (
        "podReplacementPolicy is Failed: {trainers} more trainers that leave must have ended",
    ),
    Reason.CHECKING: ("the API server has not answered yet what it makes of a trainer",),
    Reason.UNPLACED: (
        "kube-scheduler placed {trainers} trainers and no more; one more is tried from {until} on",
    ),
    Reason.CHANGED_OFTEN: (
        "{changes} changes of its demand and {failures} failures in an hour; others gave {gains} trainers, no more until {until}",
    ),
    Reason.GATED: ("{gated} trainers have scheduling gates",),
    Reason.INVALID: ("{error}",),
    Reason.QUARANTINED: ("{error}",),
    Reason.ABOVE_MAX: ("{live} live, {wanted} wanted",),
    Reason.ABOVE_MIN: (
        "{job} needs its room, and its own job has its minimum of {min} without it",
        "it waits for a node, and its job has its minimum of {min} without it",
    ),
    Reason.JOB_STOPPED: ("{live} live, {wanted} wanted",),
    Reason.MASTER_MOVES: (
        "the job's master restarts on {new_node}, with a new trainer",
        "it hosts the job's master, and its node {lost_node} is not ready",
    ),
    Reason.SERVER_MOVES: ("parameter server {server} restarts on {new_node}",),
    Reason.SCHEDULER_CHANGED: ("{why}",),
    Reason.SERVICES_FIRST: ("{service} waits for {needs}",),
    Reason.RESERVE_RESTORED: ("{used} {resource} in use, {limit} allowed by the reserve",),
    Reason.FAIR_SHARE: (
        "{to} has {to_trainers} (share {to_share}), {of} has {of_trainers} (share {of_share})",
    ),
    Reason.SHARE_RETURNED: (
        "{to} asks for its queue's share: queue {of_queue} uses {used} {resource}, {nominal} are its own",
    ),
    Reason.NOT_SCHEDULED: ("{why} for {waited_s} s",),
    Reason.NODES_NOT_ADDED: ("{pending} pods waited in vain for nodes, until {until}",),
    Reason.NODE_NOT_NEEDED: ("for {unneeded_s} s only surplus has used its node",),
    Reason.START_REFUSED: (
        "{live} of the first {min} trainers were created; the API server refused others: {error}",
    ),
    Reason.REFUSED: ("{error}",),
    Reason.NODE_PROMISED: ("{free} free, {promised} promised, {needs} needed",),
    Reason.NODE_AVOIDED: (
        "trainers failed there at their start; none is created there until {until}",
    ),
    Reason.NODE_COOLING_DOWN: ("for another {left_s} s",),
}
"""Code -> sentence templates; the first one whose figures are all present is used."""


@dataclass(frozen=True, slots=True)
class Decision:
    """One recorded decision."""

    about: str
    """`job`, `pod` or `node`, a space, and namespace/name or the node's name."""
    code: Reason
    figures: Figures = field(default_factory=dict)
    at_s: float = 0.0
    """Seconds since the epoch."""

    @property
    def text(self) -> str:
        """The decision as a sentence."""
        return sentence(self.code, self.figures)

    def to_json(self) -> dict[str, object]:
        """The record as a JSON object; amounts as Kubernetes writes them."""
        figures = {name: plain(figure) for name, figure in self.figures.items()}
        return {
            "about": self.about,
            "code": str(self.code),
            "text": self.text,
            "figures": figures,
            "at": self.at_s,
        }


def sentence(code: Reason, figures: Figures) -> str:
    """The sentence for a decision; "" for a code that needs none."""
    texts = {name: _format(figure) for name, figure in figures.items()}
    for template in SENTENCES.get(code, ()):
        if fields(template) <= texts.keys():
            return template.format_map(texts)
    return ""


def time(epoch_s: float) -> str:
    """A time as a figure. Unlike the seconds left it does not change while it is waited for."""
    return timestamp(ceil(epoch_s))


def fields(template: str) -> frozenset[str]:
    """The names of the figures in a sentence template."""
    return frozenset(name for _, name, _, _ in Formatter().parse(template) if name)


def plain(figure: Figure) -> object:
    """A figure as a JSON value."""
    if isinstance(figure, Mapping):
        return {name: quantity.show(name, amount) for name, amount in figure.items()}
    return round(figure, 4) if isinstance(figure, float) else figure


def _format(figure: Figure) -> str:
    if isinstance(figure, Mapping):
        counted = {name: amount for name, amount in figure.items() if name != "pods"}
        if not any(counted.values()):
            return "nothing"
        texts = [f"{quantity.show(name, amount)} {name}" for name, amount in counted.items()]
        return ", ".join(texts)
    return f"{figure:.4g}" if isinstance(figure, float) else str(figure)
