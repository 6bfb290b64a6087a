"""The status page: HTML for users at the master's address. Pure."""

from html import escape

from master.types import Json

_STYLE = """
body{font:15px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:60rem;padding:0 1rem;color:#222}
h1{font-size:1.4rem;margin:0}h2{font-size:1.05rem;margin:1.6rem 0 .4rem}
table{border-collapse:collapse;width:100%}th,td{text-align:right;padding:.25rem .6rem;
border-bottom:1px solid #ddd;font-variant-numeric:tabular-nums}
th:first-child,td:first-child{text-align:left}th{font-weight:600;color:#555}
.bar{background:#e4e7eb;height:.6rem;border-radius:.3rem;overflow:hidden;min-width:8rem}
.bar div{background:#2f7d5b;height:100%}.bad{color:#a32020}.note{color:#555}
@media(prefers-color-scheme:dark){body{background:#16181b;color:#ddd}th,.note{color:#aaa}
th,td{border-color:#333}.bar{background:#333}.bad{color:#ff8f8f}}
"""


def render(status: Json) -> str:
    """A page that reloads itself every two seconds."""
    parts = [
        "<!doctype html><html lang=en><meta charset=utf-8><meta http-equiv=refresh content=2>",
        "<meta name=viewport content='width=device-width'>",
        f"<title>{escape(status['job'])}: {escape(status['state'])}</title><style>{_STYLE}</style>",
        f"<h1>{escape(status['job'])}: {escape(status['state'])}</h1>",
        _reason(status),
        _datasets(status["datasets"]),
        _trainers(status["trainers"]),
        _rendezvous(status["rendezvous"]),
        _rollbacks(status),
        _ledger(status),
    ]
    return "".join(parts)


def _reason(status: Json) -> str:
    texts = [status["reason"]] if status["reason"] else []
    texts += status["storage_errors"]
    for name, dataset in status["datasets"].items():
        if dataset["outage"]:
            texts.append(f"{name} cannot be read, trainers wait: {dataset['outage']}")
    return "".join(f"<p class=bad>{escape(text)}</p>" for text in texts)


def _datasets(datasets: Json) -> str:
    rows = []
    for name, dataset in datasets.items():
        share = _done_share(dataset)
        bar = "" if share is None else f"<div class=bar><div style='width:{share:.1%}'></div></div>"
        epoch = f"{min(dataset['epoch'] + 1, dataset['epochs'])} of {dataset['epochs']}"
        cells = (dataset["kind"], epoch, bar, dataset["done_records"], dataset["leased_tasks"])
        rows.append(_row(name, *cells, dataset["returned_tasks"], dataset["dropped_tasks"]))
    head = ("data set", "kind", "epoch", "", "records done", "leased", "returned", "dropped")
    empty = "no data set was described yet: the trainers have not begun"
    return "<h2>Data</h2>" + _table(head, rows, empty)


def _trainers(trainers: Json) -> str:
    rows = [
        _row(
            name,
            "" if trainer["rank"] is None else trainer["rank"],
            trainer["held"],
            trainer["records"],
            trainer["steps"],
            trainer["uncommitted_records"],
            f"{trainer['heard_s_ago']:.1f} s ago",
        )
        for name, trainer in trainers.items()
    ]
    head = (
        "trainer",
        "rank",
        "tasks leased",
        "records done",
        "steps",
        "not acknowledged",
        "last call",
    )
    return "<h2>Trainers</h2>" + _table(head, rows, "no trainer has joined")


def _rendezvous(round_: Json) -> str:
    """The round; "" for a job without a rendezvous."""
    if not round_["round"]:
        return ""
    names = ", ".join(member["trainer"] for member in round_["members"])
    state = "trains" if round_["formed"] else "is forming"
    return (
        f"<h2>Synchronous training</h2><p class=note>Round {round_['round']:,} {state}, "
        f"with {len(round_['members']):,}, the oldest first: {escape(names)}.</p>"
    )


def _rollbacks(status: Json) -> str:
    rollbacks = status["setbacks"]
    if not rollbacks["count"]:
        return ""
    redone = sum(dataset["redone_records"] for dataset in status["datasets"].values())
    lines = "".join(
        f"<li>{escape(event['by'])}: {escape(event['reason'])} "
        f"({event['steps']:,} steps, {event['records']:,} records)</li>"
        for event in reversed(rollbacks["newest"])
    )
    return (
        f"<h2>Rollbacks</h2><p class=note>{rollbacks['steps']:,} steps and "
        f"{rollbacks['records']:,} records were lost with the model's state, in "
        f"{rollbacks['count']:,} rollbacks; the data was set back by {redone:,} records, which are "
        f"trained again.</p><ul>{lines}</ul>"
    )


def _ledger(status: Json) -> str:
    lines = [
        f"{status['lost_records']} records were trained and lost with their trainer: trained again.",
        f"{status['trained_again_records']} records were acknowledged by two trainers.",
        f"The master's generation is {status['generation']}.",
    ]
    if status["checkpoint"]:
        saved = status["checkpoint"]
        lines.append(
            f"Newest checkpoint: version {saved['version']}, step {saved['step']}, {saved['path']}."
        )
    notes = "".join(f"<p class=note>{escape(line)}</p>" for line in lines)
    errors = [f"{failure['task']}: {failure['error']}" for failure in status["failures"]]
    items = "".join(f"<li class=bad>{escape(error)}</li>" for error in errors)
    return f"<h2>Ledger</h2>{notes}" + (f"<h2>Failures</h2><ul>{items}</ul>" if errors else "")


def _done_share(dataset: Json) -> float | None:
    total: int = (dataset["records"] or 0) * dataset["epochs"]
    if not total:
        return None
    finished: int = dataset["done_records"] + dataset["dropped_records"]
    return min(1.0, finished / total)


def _row(first: str, *cells: object) -> str:
    data = "".join(
        f"<td>{cell if isinstance(cell, str) and cell.startswith('<') else escape(_format(cell))}</td>"
        for cell in cells
    )
    return f"<tr><td>{escape(first)}</td>{data}</tr>"


def _format(cell: object) -> str:
    return f"{cell:,}" if isinstance(cell, int) else str(cell)


def _table(head: tuple[str, ...], rows: list[str], empty: str) -> str:
    if not rows:
        return f"<p class=note>{empty}</p>"
    names = "".join(f"<th>{name}</th>" for name in head)
    return f"<table><tr>{names}</tr>{''.join(rows)}</table>"
