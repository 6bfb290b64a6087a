"""How a master begins: with its own journal, or with what another one left in the cluster."""

import logging
from pathlib import Path

from master.books import Books
from master.errors import FencedError
from master.fence import Fence, Kept
from master.ledger import Ledger
from master.status import outcome
from runtime.logs import keys

log = logging.getLogger(__name__)

_MOST_CLAIMS = 5


def books_of(fresh: Ledger, directory: Path, fence: Fence | None = None) -> Books:
    """The job's books, and the fence closed behind whoever wrote before.

    A pod that is restarted has its journal and goes on with it. A new pod has none: it takes over
    from the snapshot, as a new generation. A journal of an older generation than the snapshot's
    belongs to a master that was replaced.

    Args:
        fresh: Empty books, with the job's limits.
        directory: Of the journal.
        fence: Where snapshots are.

    Raises:
        FencedError: Another master has taken over.
        JournalError: Journal or snapshot cannot be read or written.
    """
    books = Books(fresh, directory)
    try:
        if fence is not None:
            _enter(books, fence)
    except BaseException:
        books.close()
        raise
    return books


def _enter(books: Books, fence: Fence) -> None:
    kept = fence.read()
    if books.is_new and kept.books is not None:
        _take_over(books, fence, kept)
        return
    if kept.generation > books.ledger.generation:
        raise FencedError(
            f"another master, {kept.holder or 'unknown'}, has taken over: generation "
            f"{kept.generation}, this journal is of {books.ledger.generation}"
        )
    ledger = books.ledger
    fence.write(ledger.generation, ledger.dump(), outcome(ledger))


def _take_over(books: Books, fence: Fence, kept: Kept) -> None:
    """Claims first, and only then writes the journal.

    A claim fails where the old master has just stored once more: then that is what to go on from.
    """
    for tried in range(_MOST_CLAIMS):
        if kept.books is None:
            break
        ledger = books.inherited(kept.books)
        try:
            fence.write(ledger.generation, ledger.dump(), outcome(ledger))
        except FencedError as error:
            log.info("claim again", extra=keys(tried=tried + 1, why=str(error)))
            kept = fence.read()
            continue
        books.adopt(ledger)
        log.info("took over from another master", extra=keys(generation=ledger.generation))
        return
    raise FencedError(f"{kept.holder or 'another master'} writes all the time: it serves the job")
