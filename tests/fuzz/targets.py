"""All fuzz targets by name: a new one is a function of a `Random`, and a line here."""

from collections.abc import Mapping

from tests.fuzz import files, parsers, worlds
from tests.fuzz.run import Target

TARGETS: Mapping[str, Target] = {
    "worlds": worlds.hostile_world,
    "annotations": worlds.hostile_annotations,
    "policy": parsers.policy_document,
    "quantities": parsers.quantities,
    "accounting": parsers.accounting,
    "reviews": parsers.admission_reviews,
    "extender": parsers.extender_calls,
    "master": parsers.master_calls,
    "answers": parsers.master_answers,
    "json": parsers.json_texts,
    "frames": parsers.array_frames,
    "snapshots": parsers.snapshots,
    "ring": parsers.ring_messages,
    "files": parsers.data_files,
    "checkpoints": parsers.checkpoints,
    "jobfiles": files.job_files,
    "objectfiles": files.object_files,
    "snapshotfiles": files.snapshot_files,
    "statuses": files.master_statuses,
}
