"""The start of a master: from its journal, or from the snapshot of a previous master."""

import logging
from pathlib import Path

from master.durable_ledger import DurableLedger
from master.errors import FencedError
from master.fence import Fence, StoredSnapshot
from master.ledger import Ledger
from master.status import outcome
from master.takeover import for_another_master
from runtime.logs import keys

log = logging.getLogger(__name__)

_MAX_CLAIMS = 5


def open_ledger(empty: Ledger, directory: Path, fence: Fence | None = None) -> DurableLedger:
    """Opens the job's ledger, and fences off all previous masters.

    A restarted container still has its journal and continues with it. A new pod has none and takes
    over from the snapshot, as a new generation. If the snapshot has a later generation than the
    journal, another master has taken over.

    Args:
        empty: An empty ledger, with the job's limits.
        directory: The directory of the journal.
        fence: Stores the snapshots; None for a master without snapshots.

    Raises:
        FencedError: Another master has taken over.
        JournalError: The journal or the snapshot cannot be read or written.
    """
    durable_ledger = DurableLedger(empty, directory)
    try:
        if fence is not None:
            _enter(durable_ledger, fence)
    except BaseException:
        durable_ledger.close()
        raise
    return durable_ledger


def _enter(durable_ledger: DurableLedger, fence: Fence) -> None:
    stored = fence.read()
    if durable_ledger.is_new and stored.state is not None:
        _take_over(durable_ledger, fence, stored)
        return
    ledger = durable_ledger.ledger
    if stored.generation > ledger.generation:
        raise FencedError(
            f"another master, {stored.holder or 'unknown'}, has taken over: generation "
            f"{stored.generation}, this journal is of {ledger.generation}"
        )
    fence.write(ledger.generation, for_another_master(ledger.dump()), outcome(ledger))


def _take_over(durable_ledger: DurableLedger, fence: Fence, stored: StoredSnapshot) -> None:
    """Claims the fence, and then writes the journal.

    A claim fails if the previous master has just stored a newer snapshot; then that snapshot is
    used.
    """
    for attempt in range(_MAX_CLAIMS):
        if stored.state is None:
            break
        ledger = durable_ledger.load_next_generation(stored.state)
        try:
            state = for_another_master(ledger.dump())
            fence.write(ledger.generation, state, outcome(ledger))
        except FencedError as error:
            log.info("claim failed: trying again", extra=keys(tried=attempt + 1, why=str(error)))
            stored = fence.read()
            continue
        durable_ledger.adopt(ledger)
        log.info("took over from another master", extra=keys(generation=ledger.generation))
        return
    raise FencedError(
        f"{stored.holder or 'another master'} keeps writing snapshots: it serves the job"
    )
