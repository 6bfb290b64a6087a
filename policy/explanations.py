"""The table of reasons: the sentence of each code, its meaning, its figures, and what to do.

Sentences stand in conditions, events and decision records, after the name of the job, pod or node.
`policy.decisions` fills in the figures. docs/reasons.md is written from this table (`make reference`).
"""

from collections.abc import Mapping
from dataclasses import dataclass

from policy.reasons import Observation, Reason

NODES_HELD = "nodes are held until"
"""Part of the sentence of a job for which the plan holds nodes; its condition is updated for it."""


@dataclass(frozen=True, slots=True)
class Explanation:
    """What one code means to a person. Meaning, figures and way out are Markdown."""

    meaning: str
    sentences: tuple[str, ...] = ()
    """Templates; the first one whose figures are all present is used. `{n:trainer}` counts trainers."""
    figures: str = ""
    """The figures that records with this code have."""
    way_out: str = ""
    """Advice for a user or an admin; "" if no action is needed."""


TARGETS: Mapping[Reason, Explanation] = {
    Reason.AT_MAX: Explanation(
        "The job has its maximum.",
        sentences=("the job has its maximum of {max:trainer}",),
        figures="`max`",
        way_out="For more trainers, raise `edl.training/max-trainers`.",
    ),
    Reason.AT_CEILING: Explanation(
        "No allowed size lies between the current number of trainers and the maximum.",
        sentences=("no allowed size lies above {trainers}, up to the maximum of {max:trainer}",),
        figures="`trainers`, `max`",
        way_out="Change the maximum, or `sizes` in the policy.",
    ),
    Reason.NO_ROOM: Explanation(
        "No node has capacity for one more trainer.",
        sentences=(
            "no node has capacity for one more trainer ({needs}); closest is {nearest} with {free} free",
            "no node has capacity for one more trainer ({needs})",
        ),
        figures=(
            "`trainers`, `needs`; in records also the `nodes` that it may use, the `nearest` to "
            "fitting it, and what is `free` there"
        ),
        way_out="Wait, add nodes, or lower the trainers' requests.",
    ),
    Reason.RESERVE_HELD: Explanation(
        "One more trainer would use capacity that the reserve keeps free for services.",
        sentences=(
            "{used} of {limit} {resource} are in use; the reserve keeps the rest free for services",
        ),
        figures="`resource`, `used`, `limit`",
        way_out="Raise `reserve.maxLoad` or lower `reserve.headroom` in the policy.",
    ),
    Reason.QUOTA_REACHED: Explanation(
        (
            "A quota is used up. A trainer with this code was released because its quota is exceeded, or "
            "for a minimum within the same quota."
        ),
        sentences=(
            "{job} starts first within the same quota",
            "the quota of {scope} ({limit} {resource}) is {short} too small for {missing:more trainer}",
            "the quota of {scope} ({limit} {resource}) is {short} too small",
        ),
        figures=(
            "`scope`, `resource`, `limit`, `short`; `missing` trainers of the minimum; the `job` "
            "that starts first"
        ),
        way_out="Raise the quota in the policy, or lower the minimum.",
    ),
    Reason.SIZE_NOT_ALLOWED: Explanation(
        "The number of trainers lies between two allowed sizes; trainers above the smaller one are released.",
        sentences=("{live:trainer} is not an allowed size; the next smaller one is {size}",),
        figures="`live`, `size`",
        way_out="Change `sizes` in the policy.",
    ),
    Reason.GROWING: Explanation(
        "The job gets more trainers as soon as kube-scheduler has placed those that wait for it.",
        sentences=("waiting for kube-scheduler to place {waiting:trainer} first",),
        figures="`waiting`",
        way_out="No action needed.",
    ),
    Reason.UNPLACED: Explanation(
        (
            "kube-scheduler placed only `trainers` trainers, although the plan finds capacity for "
            "more, for example because of anti-affinity, host ports, volumes or claims. EDL tries one more "
            "trainer in free capacity after a pause that doubles up to five minutes, and in capacity "
            "of another job after a pause that doubles up to an hour."
        ),
        sentences=("kube-scheduler placed only {trainers:trainer}; next attempt at {until}",),
        figures="`trainers`, `until`",
        way_out=(
            "See the events of the pending trainer; lower the maximum, or change what the "
            "template requests."
        ),
    ),
    Reason.CHANGED_OFTEN: Explanation(
        (
            "The job's weight, queue, minimum, maximum, sizes or `suspend` changed more than once "
            "within an hour (for surplus, its trainers failed more than once), and it has taken back "
            "from other jobs what it gave up, plus four trainers. It takes no more for a while."
        ),
        sentences=(
            (
                "the job takes no more trainers from others until {until}: within an hour it changed "
                "{changes:time}, failed {failures:time} and took {gains:trainer}"
            ),
        ),
        figures="`changes`, `failures`, the trainers that it `gains`, `until` when at the latest",
        way_out="Wait, and leave its demand as it is. It still grows into free capacity.",
    ),
    Reason.GATED: Explanation(
        (
            "`gated` trainers have scheduling gates, from the template or from an admission webhook. "
            "kube-scheduler ignores them, and the job gets no more trainers until the gates are removed."
        ),
        sentences=("waiting for the scheduling gates of {gated:trainer} to be removed",),
        figures="`gated`",
        way_out="Have the component that set the gates remove them, or delete them from the template.",
    ),
    Reason.CHECKING: Explanation(
        (
            "EDL waits for the API server's dry run of a trainer pod. After 10 s the job starts "
            "without it."
        ),
        sentences=("waiting for the API server's dry run of a trainer pod",),
        way_out="If this lasts, look for slow admission webhooks.",
    ),
    Reason.WAITING_FOR_ROOM: Explanation(
        (
            "The missing guaranteed trainers, and the parameter servers that start with them, do not "
            "all fit, even if all surplus trainers are released."
        ),
        sentences=(
            "no capacity for {missing:guaranteed trainer} ({needs} each); "
            + NODES_HELD
            + " {until}",
            "no capacity for {missing:guaranteed trainer} ({needs} each); nodes are held from {held_from} on",
            "no capacity for {servers:parameter server} ({needs} each)",
            "no capacity for {missing:guaranteed trainer} ({needs} each)",
        ),
        figures=(
            "`missing` trainers or `servers`, `needs`; with `admission.order: strictFifo` "
            "`held_from`, when EDL begins to hold nodes for the job, and then `until`"
        ),
        way_out="Wait, or lower `edl.training/min-trainers` or the requests of the servers.",
    ),
    Reason.FITS_NO_NODE: Explanation(
        "A trainer is larger than every node that it may use, or it may use none.",
        sentences=(
            "a trainer requests {needs}; the largest of {nodes:node} that it may use has {largest}",
            "a trainer requests {needs}, and there is no node that it may use",
        ),
        figures="`needs`, `nodes`, `largest`",
        way_out=(
            "Lower the trainers' requests, widen their node selector, or add a larger node. The job "
            "then starts by itself."
        ),
    ),
    Reason.QUEUED: Explanation(
        (
            "An older job waits for capacity, and the policy has `admission.order: strictFifo`. EDL "
            "holds nodes for the older job, and this job fits on no others."
        ),
        sentences=("{job} is older and waits for capacity; nodes are held for it until {until}",),
        figures="the older `job`, `until`",
        way_out="Wait; lower `admission.holdSeconds`, or see why the older job waits.",
    ),
    Reason.NODES_REQUESTED: Explanation(
        (
            "There was no capacity for the job's minimum for a while, and the policy has "
            "`autoscaling`. EDL has created the missing guaranteed trainers, and the parameter "
            "servers that start with them, as pending pods, so that an autoscaler adds nodes."
        ),
        sentences=(
            "waiting until {until} for an autoscaler to add nodes for {pending:pending pod}",
        ),
        figures="`pending` pods, `until` when",
        way_out="If no nodes are added, see the pods' events and the autoscaler's log.",
    ),
    Reason.SUSPENDED: Explanation(
        "`spec.suspend` is true.",
        sentences=("spec.suspend is true",),
        way_out="Set `spec.suspend` to false.",
    ),
    Reason.ENDING: Explanation(
        "A trainer finished the work, or the Job has ended or is being deleted.",
        sentences=(
            "{succeeded:trainer} finished the work",
            "the job has ended or is being deleted",
        ),
        figures="`succeeded` trainers, if any",
        way_out="No action needed.",
    ),
    Reason.BACKING_OFF: Explanation(
        "Trainers failed; EDL waits before it creates the next one.",
        sentences=("{failures:failure} in a row; next attempt at {until}",),
        figures="`failures`, `until`",
        way_out="See the logs of the failed trainers.",
    ),
    Reason.REPLACING: Explanation(
        "`podReplacementPolicy` is `Failed`, so terminating trainers count until they have ended.",
        sentences=(
            "podReplacementPolicy is Failed: waiting for {trainers:terminating trainer} to end",
        ),
        figures="`trainers` that must end first",
        way_out="If a pod hangs in Terminating, look at its node.",
    ),
    Reason.INVALID: Explanation(
        "The Job's annotations or template are invalid.",
        sentences=("{error}",),
        figures="`error`",
        way_out="Correct what the error names.",
    ),
    Reason.QUARANTINED: Explanation(
        (
            "EDL failed on data of this Job and leaves the Job out of planning, for 10 s at first and "
            "at most 10 minutes. Meanwhile it gets no trainers and can lose surplus trainers. Other "
            "jobs are planned as usual."
        ),
        sentences=("{error}",),
        figures="`error`",
        way_out=(
            "If somebody edited the Job's annotations, correct them. Otherwise report the trace in the "
            "reconciler's log."
        ),
    ),
}
"""Why a job has its number of trainers."""
RELEASES: Mapping[Reason, Explanation] = {
    Reason.ABOVE_MAX: Explanation(
        "The job has more trainers than its maximum.",
        sentences=("its job has {live:trainer} and may keep {wanted}",),
        figures="`live`, `wanted`",
        way_out="To keep the trainers, raise the maximum.",
    ),
    Reason.ABOVE_MIN: Explanation(
        (
            "The trainer was guaranteed, but its job has its minimum without it: the minimum was "
            "lowered, or closed nodes opened again. Another job starts in its place, or it "
            "had no node yet."
        ),
        sentences=(
            "{job} starts in its place; its own job keeps its minimum of {min}",
            "it has no node yet, and its job has its minimum of {min} without it",
        ),
        figures="`min`; the `job` that starts",
        way_out="No action needed. If there is capacity, EDL creates a surplus trainer instead.",
    ),
    Reason.SERVICES_FIRST: Explanation(
        "A service needs the capacity.",
        sentences=("{service} needs {needs}",),
        figures="`service`, `needs`",
        way_out="To keep more trainers, raise the job's minimum.",
    ),
    Reason.RESERVE_RESTORED: Explanation(
        "More is in use than the reserve allows.",
        sentences=("{used} {resource} are in use; the reserve allows {limit}",),
        figures="`resource`, `used`, `limit`",
        way_out="Raise `reserve.maxLoad`, or check the policy's time windows.",
    ),
    Reason.SHARE_RETURNED: Explanation(
        "The job's queue borrows, and a job of the queue that lends needs that queue's own share.",
        sentences=(
            "{to} needs its queue's share; queue {of_queue} owns {nominal} {resource} and uses {used}",
        ),
        figures="`to`, the job that gets it; `of_queue`, which borrows; `resource`, `used`, `nominal`",
        way_out=(
            "Raise `nominalQuota` of the job's queue. A higher minimum of the job counts within that quota."
        ),
    ),
    Reason.FAIR_SHARE: Explanation(
        "A job with a smaller share gets the capacity.",
        sentences=(
            (
                "{to} has {to_trainers:trainer} (share {to_share}); {of} has "
                "{of_trainers} (share {of_share})"
            ),
        ),
        figures="`to`, `to_trainers`, `to_share`, `of`, `of_trainers`, `of_share`",
        way_out="Change weights in the policy.",
    ),
    Reason.NOT_SCHEDULED: Explanation(
        "The trainer waited too long for a node.",
        sentences=("{why} for {waited_s} s",),
        figures="`why`, `waited_s`",
        way_out="No action needed. EDL creates it again when there is capacity; see `Unplaced`.",
    ),
    Reason.NODES_NOT_ADDED: Explanation(
        "The pod of a start or a replacement waited for an autoscaler, which did not add nodes in time.",
        sentences=("no nodes were added for {pending:pending pod} by {until}",),
        figures="`pending` pods, `until` when they waited",
        way_out=(
            "See the autoscaler's log and limits. The job requests nodes again after a pause of 5 "
            "minutes, which doubles up to an hour."
        ),
    ),
    Reason.NODE_NOT_NEEDED: Explanation(
        (
            "Only surplus trainers used the node for a while, and `autoscaling.vacate` empties "
            "such nodes, so that an autoscaler removes them."
        ),
        sentences=("only surplus trainers used its node for {unneeded_s} s",),
        figures="`unneeded_s`",
        way_out="No action needed.",
    ),
    Reason.START_REFUSED: Explanation(
        "The API server refused others of the job's first trainers, which start all together or not at all.",
        sentences=("only {live} of the first {min} trainers were created: {error}",),
        figures="`live`, `min`, `error`",
        way_out="Correct what the error names. EDL tries again after a minute or more.",
    ),
    Reason.MASTER_MOVES: Explanation(
        (
            "The pod that hosted the job's master is gone, and a new trainer must host it; or this "
            "trainer hosts the master on a lost node, whose kubelet is silent or has not been ready for "
            "a minute."
        ),
        sentences=(
            "a new trainer on {new_node} takes its place and hosts the job's master",
            "it hosts the job's master, and its node {lost_node} is not ready",
        ),
        figures="`new_node` of the new trainer; `lost_node`",
        way_out="No action needed.",
    ),
    Reason.SERVER_MOVES: Explanation(
        "A parameter server of the job was lost, and no node has capacity for its replacement.",
        sentences=("parameter server {server} restarts on {new_node} in its place",),
        figures="`server`, `new_node`",
        way_out="No action needed.",
    ),
    Reason.SCHEDULER_CHANGED: Explanation(
        (
            "The pod waits for a scheduler that training no longer uses, or it requests "
            "`edl.training/trainer` from a scheduler that is not known to have the extender. Pods "
            "whose scheduler another webhook set after EDL are kept."
        ),
        sentences=("{why}",),
        figures="`why`",
        way_out="No action needed. EDL creates the trainer again for the scheduler in force.",
    ),
    Reason.JOB_STOPPED: Explanation(
        "The job is suspended, has ended or is being deleted.",
        sentences=("its job is suspended, has ended or is being deleted",),
        figures="`live`, `wanted`",
        way_out="No action needed.",
    ),
}
"""Why a trainer is released."""
CREATIONS: Mapping[Reason, Explanation] = {
    Reason.GUARANTEED: Explanation("The trainer belongs to the job's minimum."),
    Reason.SURPLUS: Explanation("There is free capacity, and the job has the smallest share."),
    Reason.REFUSED: Explanation(
        (
            "The API server refused the pod, in a dry run before the job's start or on creation; or "
            "it refused the Job's trainer accounting or an object of the job's master and servers. "
            "Also the reason why a job has no more trainers."
        ),
        sentences=("{error}",),
        figures="`error`, `tier`, `made`",
        way_out=(
            "Correct what the error names: a ResourceQuota (EDL has already released surplus "
            "trainers of the namespace if that suffices), an admission webhook, an invalid template. "
            "EDL tries again after a pause that doubles up to a minute."
        ),
    ),
}
"""Why a trainer is created, or is not."""
NODES: Mapping[Reason, Explanation] = {
    Reason.NODE_UNKNOWN: Explanation(
        "The extender has not seen the node yet.",
        way_out="Wait a second.",
    ),
    Reason.NODE_NOT_READY: Explanation(
        "The node is not ready.",
        way_out="Look at the node: `kubectl describe node`.",
    ),
    Reason.NODE_UNSCHEDULABLE: Explanation(
        "The node is cordoned.",
        way_out="`kubectl uncordon`.",
    ),
    Reason.NODE_TAINTED: Explanation(
        "The pod does not tolerate a taint of the node.",
        way_out="Add a toleration.",
    ),
    Reason.NODE_SELECTOR: Explanation(
        "The pod's node selector or affinity excludes the node.",
        way_out="Widen the selector or the affinity.",
    ),
    Reason.NODE_POOL: Explanation(
        "The policy keeps trainers on other nodes.",
        way_out="Change `nodePools` in the policy.",
    ),
    Reason.NODE_PROMISED: Explanation(
        "The node's free capacity is promised to a pod of higher priority.",
        sentences=("{free} free, {promised} promised to other pods, {needs} needed",),
        figures="`free`, `promised`, `needs`",
        way_out="Wait until that pod runs.",
    ),
    Reason.NODE_AVOIDED: Explanation(
        (
            "Trainers of the job, or of several other jobs, failed on the node within 30 s of their "
            "containers' start, or its kubelet refused them."
        ),
        sentences=("trainers failed at their start on this node; it is avoided until {until}",),
        figures="`until`",
        way_out=(
            "Look at the node and at the trainers' logs. After a repair, delete the Job's failed "
            "pods on the node; EDL then uses it again at once."
        ),
    ),
    Reason.NODE_COOLING_DOWN: Explanation(
        "Trainers on the node were just released, and a pod still waits for capacity.",
        sentences=("no new trainers for another {left_s} s",),
        figures="`left_s`",
        way_out="Wait, or lower `stability.coolDownSeconds`.",
    ),
}
"""Why a pod cannot run on a node."""
OBSERVATIONS: Mapping[Observation, Explanation] = {
    Observation.PREEMPTED: Explanation(
        "kube-scheduler preempted a trainer for a service, or for a guaranteed pod of another job.",
        figures="the `service`, or `to`, the job that gets its capacity; `node`, `lostSeconds` of training",
        way_out="To keep more trainers, raise the job's minimum.",
    ),
    Observation.EVICTED: Explanation(
        "Something other than EDL and kube-scheduler ended a trainer: a drain, a user, or a lost node.",
        figures="`node`, `lostSeconds`",
        way_out="No action needed. EDL creates it again when there is capacity.",
    ),
    Observation.TRAINER_FAILED: Explanation(
        "The program of a trainer failed.",
        figures="`node`, `exit` code, `lostSeconds`",
        way_out="See its log: `kubectl logs`.",
    ),
    Observation.JOB_COMPLETE: Explanation(
        "The job has finished its work.", figures="`seconds` since creation"
    ),
    Observation.JOB_FAILED: Explanation(
        "The job has failed.",
        figures="`seconds` since creation",
        way_out="See the logs of its trainers and master, and `backoffLimit`.",
    ),
    Observation.JOB_DELETED: Explanation(
        "The Job was deleted.", figures="`seconds` since creation"
    ),
    Observation.RECLAIMING: Explanation(
        "Services wait for capacity that trainers use.", figures="as `Reclaimed`, so far"
    ),
    Observation.RECLAIMED: Explanation(
        "A burst of services that took capacity from training is over.",
        figures=(
            "the `services` that waited and the `trainers` that were evicted, with counts; `stages`, "
            "median and longest: `decide` until trainers were chosen, `free` until the service had "
            "its node, `start` until it ran; `lostSeconds`"
        ),
    ),
    Observation.OBJECTIVE_MISSED: Explanation(
        "A service took longer than `objectives.reclaim` allows.",
        figures="`seconds`, `limit`, `cause`, `stages`",
        way_out=(
            "See which stage took longest: `free` is the trainers' grace period, `start` is image "
            "and containers of the service."
        ),
    ),
    Observation.OBJECTIVE: Explanation(
        "The state of `objectives.reclaim`.",
        figures="`kept`, `missed`, `budgetLeft`, `burn` by span",
    ),
}
"""Observations, in addition to decisions."""
EXPLANATIONS: Mapping[Reason, Explanation] = {**TARGETS, **RELEASES, **CREATIONS, **NODES}
"""Reason -> explanation, of every reason."""
