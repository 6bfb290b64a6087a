"""What each reason means to a person: docs/reasons.md is written from this (`make reference`).

The figures are those of the decision record; `policy.decisions` has the sentences.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from policy.reasons import Reason
from policy.records import Observation


@dataclass(frozen=True, slots=True)
class Explanation:
    """A reason in words, as Markdown."""

    meaning: str
    """What is the case."""
    figures: str = ""
    """The figures that records with this reason have."""
    way_out: str = ""
    """What a user or an admin can do; "" where there is nothing to do."""


TARGETS: Mapping[Reason, Explanation] = {
    Reason.AT_MAX: Explanation(
        "It has its maximum.",
        figures="`max`",
        way_out="Raise `edl.training/max-trainers`.",
    ),
    Reason.AT_CEILING: Explanation(
        "No allowed number of trainers lies between what it has and its maximum.",
        figures="`trainers`, `max`",
        way_out="Change the maximum, or `sizes` in the policy.",
    ),
    Reason.NO_ROOM: Explanation(
        "No node has room for one more trainer.",
        figures=(
            "`trainers`, `needs`; in records also `nodes` it may use, the `nearest` to having "
            "room, and what is `free` there"
        ),
        way_out="Wait, add nodes, or lower the trainers' requests.",
    ),
    Reason.RESERVE_HELD: Explanation(
        "One more would use what is kept free for services.",
        figures="`resource`, `used`, `limit`",
        way_out="Raise `reserve.maxLoad` or lower `reserve.headroom` in the policy.",
    ),
    Reason.QUOTA_REACHED: Explanation(
        "A quota is used up; or, of a trainer, it gave way to a minimum in the same quota.",
        figures=(
            "`scope`, `resource`, `limit`, `short`; `missing` below the minimum; `job` that "
            "starts instead"
        ),
        way_out="Raise the quota in the policy, or lower the minimum.",
    ),
    Reason.SIZE_NOT_ALLOWED: Explanation(
        "Its number of trainers lies between two allowed ones, so the rest goes.",
        figures="`live`, `size`",
        way_out="Change `sizes` in the policy.",
    ),
    Reason.GROWING: Explanation(
        "It gets more as soon as the scheduler has placed those under way.",
        figures="`waiting`",
        way_out="None needed.",
    ),
    Reason.UNPLACED: Explanation(
        (
            "kube-scheduler placed `trainers` of its trainers and no more, although the plan "
            "sees room: anti-affinity, host ports, volumes, claims. One is tried again in free "
            "room after a pause that doubles to five minutes, and in that of another job "
            "after one that doubles to an hour."
        ),
        figures="`trainers`, `until`",
        way_out=(
            "See the events of its pending trainer; lower the maximum, or change what its "
            "template asks for."
        ),
    ),
    Reason.CHANGED_OFTEN: Explanation(
        (
            "Its weight, queue, minimum, maximum, sizes or `suspend` changed more than once within an hour "
            "(or, of surplus, its trainers failed more than once), and other jobs have given as many trainers for "
            "it as it gave up meanwhile, and four more. They give no further ones until some time has passed."
        ),
        figures="`changes`, `failures`, `gains`: the trainers, `until` when at the latest",
        way_out="Wait; it grows where room is free. Leave what it asks for as it is.",
    ),
    Reason.GATED: Explanation(
        (
            "`gated` of its trainers have scheduling gates, from its template or from an admission "
            "webhook: kube-scheduler does not look at them, and it gets no more meanwhile."
        ),
        figures="`gated`",
        way_out="Whoever set the gates removes them; or leave them out of the template.",
    ),
    Reason.CHECKING: Explanation(
        (
            "The API server has not answered yet what it makes of a trainer; after 10 s the job "
            "starts without."
        ),
        way_out="None needed; if it lasts, look for slow admission webhooks.",
    ),
    Reason.WAITING_FOR_ROOM: Explanation(
        (
            "Its missing guaranteed trainers, with the parameter servers they start with, do "
            "not fit all together, even if all surplus left."
        ),
        figures=(
            "`missing` trainers or `servers`, `needs`; with `admission.order: strictFifo` "
            "`held_from`, when nodes begin to be held for it, and then `until`"
        ),
        way_out="Wait, or lower `edl.training/min-trainers` or what the servers ask for.",
    ),
    Reason.FITS_NO_NODE: Explanation(
        "A trainer is larger than every node it may use, or it may use none.",
        figures="`needs`, `nodes`, `largest`",
        way_out=(
            "Lower the trainers' requests, widen their node selector, or add a larger node; it "
            "then starts by itself."
        ),
    ),
    Reason.QUEUED: Explanation(
        (
            "An older job waits for room, and the policy has `admission.order: strictFifo`: its "
            "nodes are held for it, and this job fits nowhere else."
        ),
        figures="`job` that is older, `until`",
        way_out="Wait; lower `admission.holdSeconds`, or see why the older job waits.",
    ),
    Reason.NODES_REQUESTED: Explanation(
        (
            "Its minimum found no room for a while, and the policy has `autoscaling`: its "
            "missing guaranteed trainers, and the parameter servers they start with, are pods "
            "without a node, so that an autoscaler adds nodes."
        ),
        figures="`pending` pods, `until` when",
        way_out="None needed; if no nodes come, see the pods' events and the autoscaler's log.",
    ),
    Reason.SUSPENDED: Explanation(
        "`spec.suspend` is true.",
        way_out="Set it to false.",
    ),
    Reason.ENDING: Explanation(
        "A trainer finished the work, or the Job is over or being deleted.",
        figures="`succeeded` where that is why",
        way_out="None needed.",
    ),
    Reason.BACKING_OFF: Explanation(
        "Its trainers failed, the next try comes later.",
        figures="`failures`, `until`",
        way_out="See the logs of the failed trainers.",
    ),
    Reason.REPLACING: Explanation(
        (
            "`podReplacementPolicy` is `Failed`, so trainers that are leaving count until they "
            "have ended."
        ),
        figures="`trainers` that must end first",
        way_out="None needed; for a pod that hangs in Terminating, look at its node.",
    ),
    Reason.INVALID: Explanation(
        "The Job's annotations or template cannot be elastic.",
        figures="`error`",
        way_out="Correct what the error names.",
    ),
    Reason.QUARANTINED: Explanation(
        (
            "EDL failed on something of this Job, so it is kept out of planning, for 10 s at "
            "first and at most 10 minutes; it gets no more trainers, and loses surplus to "
            "others as any job. Other jobs are planned as without it."
        ),
        figures="`error`",
        way_out=(
            "See the reconciler's log, which has the trace, and report it; if somebody edited "
            "the Job's annotations, correct them."
        ),
    ),
}
"""How many trainers a job has."""
RELEASES: Mapping[Reason, Explanation] = {
    Reason.ABOVE_MAX: Explanation(
        "The job has more than its maximum.",
        figures="`live`, `wanted`",
        way_out="Raise the maximum.",
    ),
    Reason.ABOVE_MIN: Explanation(
        (
            "It is labelled as guaranteed, but its job has its minimum without it: the minimum "
            "was lowered, or nodes that were closed opened again. Another job starts in its "
            "room, or it had no node yet."
        ),
        figures="`min`; `job` that starts",
        way_out="None needed: where there is room, a surplus trainer follows it.",
    ),
    Reason.SERVICES_FIRST: Explanation(
        "A service needs the room.",
        figures="`service`, `needs`",
        way_out="None: this is what surplus is for. Raise the minimum for more that stay.",
    ),
    Reason.RESERVE_RESTORED: Explanation(
        "More is in use than the reserve allows.",
        figures="`resource`, `used`, `limit`",
        way_out="Raise `reserve.maxLoad`, or look at the time windows.",
    ),
    Reason.SHARE_RETURNED: Explanation(
        "Its queue borrows, and a job of a queue that lends asks for that queue's own share.",
        figures="`to` job that asks, `of_queue` that borrows, `resource`, `used`, `nominal`",
        way_out="Raise `nominalQuota` of its queue; a higher minimum of the job counts as far as that goes.",
    ),
    Reason.FAIR_SHARE: Explanation(
        "A job with less gets it.",
        figures="`to`, `to_trainers`, `to_share`, `of`, `of_trainers`, `of_share`",
        way_out="Change weights in the policy.",
    ),
    Reason.NOT_SCHEDULED: Explanation(
        "It waited too long for its node.",
        figures="`why`, `waited_s`",
        way_out="None needed: it is made again where there is room; see `Unplaced`.",
    ),
    Reason.NODES_NOT_ADDED: Explanation(
        (
            "It is of a start, or a replacement, for which an autoscaler was to add nodes, and "
            "they did not come in time."
        ),
        figures="`pending` pods, `until` when they waited",
        way_out=(
            "See the autoscaler's log and limits; the job asks again after a pause of 5 "
            "minutes, which doubles up to an hour."
        ),
    ),
    Reason.NODE_NOT_NEEDED: Explanation(
        (
            "Only surplus has used its node for a while, and `autoscaling.vacate` wants such "
            "nodes empty, so that an autoscaler removes them."
        ),
        figures="`unneeded_s`",
        way_out="None needed.",
    ),
    Reason.START_REFUSED: Explanation(
        (
            "The API server refused others of the job's first trainers, which start all or not "
            "at all."
        ),
        figures="`live`, `min`, `error`",
        way_out="Do what the error says; it is tried again after a minute or more.",
    ),
    Reason.MASTER_MOVES: Explanation(
        (
            "The pod that hosted the job's master is gone, and a master only comes with a new "
            "trainer; or the trainer hosts it and its node is lost: its kubelet is silent, or "
            "has not been ready for a minute."
        ),
        figures="`new_node` where the new one is made; `lost_node`",
        way_out="None needed.",
    ),
    Reason.SERVER_MOVES: Explanation(
        "No node has room for a parameter server of its job that was lost.",
        figures="`server`, `new_node`",
        way_out="None needed.",
    ),
    Reason.SCHEDULER_CHANGED: Explanation(
        (
            "It waits for a scheduler that training does not use any more, or requests "
            "`edl.training/trainer` from one that is not known to have the extender. Not where "
            "another webhook named the scheduler after EDL."
        ),
        figures="`why`",
        way_out="None: it is made again for the scheduler in force.",
    ),
    Reason.JOB_STOPPED: Explanation(
        "The job is suspended, over or being deleted.",
        figures="`live`, `wanted`",
        way_out="None needed.",
    ),
}
"""Why a trainer is given up."""
CREATIONS: Mapping[Reason, Explanation] = {
    Reason.GUARANTEED: Explanation(
        "It is one of the job's minimum.",
    ),
    Reason.SURPLUS: Explanation(
        "There is room, and it is the job's turn.",
    ),
    Reason.REFUSED: Explanation(
        (
            "The API server did not take the pod, would not (it is asked before a job starts), or "
            "did not let the Job's trainer accounting or the objects of its master and servers "
            "be written. Also why a job has no more."
        ),
        figures="`error`, `tier`, `made`",
        way_out=(
            "Do what the error says: a ResourceQuota (surplus of the namespace has given way "
            "already where that suffices), an admission webhook, a template that is no pod. It "
            "is tried again after a pause that doubles to a minute."
        ),
    ),
}
"""Why a trainer was, or was not, made."""
NODES: Mapping[Reason, Explanation] = {
    Reason.NODE_UNKNOWN: Explanation(
        "The extender has not seen the node yet.",
        way_out="Wait a second.",
    ),
    Reason.NODE_NOT_READY: Explanation(
        "The node is not ready.",
        way_out="Look at the node.",
    ),
    Reason.NODE_UNSCHEDULABLE: Explanation(
        "The node is cordoned.",
        way_out="`kubectl uncordon`.",
    ),
    Reason.NODE_TAINTED: Explanation(
        "A taint is not tolerated.",
        way_out="Add a toleration.",
    ),
    Reason.NODE_SELECTOR: Explanation(
        "Node selector or affinity exclude it.",
        way_out="Widen them.",
    ),
    Reason.NODE_POOL: Explanation(
        "The policy keeps trainers to other nodes.",
        way_out="Change `nodePools` in the policy.",
    ),
    Reason.NODE_PROMISED: Explanation(
        "What is free is promised to a pod of higher priority.",
        figures="`free`, `promised`, `needs`",
        way_out="Wait until that pod runs.",
    ),
    Reason.NODE_AVOIDED: Explanation(
        (
            "Trainers of the job, or of several other jobs, failed there within 30 s of their "
            "containers' start, or its kubelet refused them."
        ),
        figures="`until`",
        way_out=(
            "Look at the node and at the trainers' logs. After a repair delete the Job's failed "
            "pods there; the node is then used again at once."
        ),
    ),
    Reason.NODE_COOLING_DOWN: Explanation(
        "The node just gave capacity back, and somebody still waits for room.",
        figures="`left_s`",
        way_out="Wait, or lower `stability.coolDownSeconds`.",
    ),
}
"""Why a node is no place for a pod."""
OBSERVATIONS: Mapping[Observation, Explanation] = {
    Observation.PREEMPTED: Explanation(
        "kube-scheduler preempted a trainer for a service, or for a guaranteed pod of another job.",
        figures="`service` or the job `to`, `node`, `lostSeconds` of training",
        way_out="None: this is what surplus is for. Raise the minimum for more that stay.",
    ),
    Observation.EVICTED: Explanation(
        "Somebody else ended a trainer: a drain, a user, or its node was lost.",
        figures="`node`, `lostSeconds`",
        way_out="None needed: it is made again where there is room.",
    ),
    Observation.TRAINER_FAILED: Explanation(
        "The program of a trainer failed.",
        figures="`node`, `exit` code, `lostSeconds`",
        way_out="See its log: `kubectl logs`.",
    ),
    Observation.JOB_COMPLETE: Explanation("The job is done.", figures="`seconds` since creation"),
    Observation.JOB_FAILED: Explanation(
        "The job has failed.",
        figures="`seconds` since creation",
        way_out="See the logs of its trainers and master, and `backoffLimit`.",
    ),
    Observation.JOB_DELETED: Explanation(
        "The Job was deleted.", figures="`seconds` since creation"
    ),
    Observation.RECLAIMING: Explanation(
        "Services wait for capacity of training.", figures="as `Reclaimed`, so far"
    ),
    Observation.RECLAIMED: Explanation(
        "A burst of services that took capacity of training is over.",
        figures=(
            "`services` that asked and `trainers` that gave, with counts; `stages`, median and "
            "longest: `decide` until trainers were chosen, `free` until the service had its node, "
            "`start` until it ran; `lostSeconds`"
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
        "How `objectives.reclaim` stands.",
        figures="`kept`, `missed`, `budgetLeft`, `burn` by span",
    ),
}
"""What was observed, beside decisions."""
EXPLANATIONS: Mapping[Reason, Explanation] = {**TARGETS, **RELEASES, **CREATIONS, **NODES}
"""Of every reason."""
