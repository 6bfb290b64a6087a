"""The status page: what a person sees who opens the master's address. Pure."""

from html import escape
from typing import Any

Json = dict[str, Any]

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
    """One page that looks again every two seconds by itself."""
    parts = [
        "<!doctype html><html lang=en><meta charset=utf-8><meta http-equiv=refresh content=2>",
        "<meta name=viewport content='width=device-width'>",
        f"<title>{escape(status['job'])}: {escape(status['state'])}</title><style>{_STYLE}</style>",
        f"<h1>{escape(status['job'])}: {escape(status['state'])}</h1>",
        _reason(status),
        _datasets(status["datasets"]),
        _trainers(status["trainers"]),
        _rendezvous(status["rendezvous"]),
        _setbacks(status["setbacks"]),
        _rest(status),
    ]
    return "".join(parts)


def _reason(status: Json) -> str:
    if not status["reason"]:
        return ""
    return f"<p class=bad>{escape(status['reason'])}</p>"


def _datasets(datasets: Json) -> str:
    rows = []
    for name, one in datasets.items():
        share = _share(one)
        bar = "" if share is None else f"<div class=bar><div style='width:{share:.1%}'></div></div>"
        epoch = f"{min(one['epoch'] + 1, one['epochs'])} of {one['epochs']}"
        cells = (one["kind"], epoch, bar, one["done_records"], one["leased_tasks"])
        rows.append(_row(name, *cells, one["returned_tasks"], one["dropped_tasks"]))
    head = ("data set", "kind", "epoch", "", "records done", "leased", "back", "dropped")
    empty = "no data set was described yet: the trainers have not begun"
    return "<h2>Data</h2>" + _table(head, rows, empty)


def _trainers(trainers: Json) -> str:
    rows = [
        _row(
            name,
            "" if one["rank"] is None else one["rank"],
            one["held"],
            one["records"],
            one["steps"],
            one["uncommitted_records"],
            f"{one['heard_s_ago']:.1f} s ago",
        )
        for name, one in trainers.items()
    ]
    head = ("trainer", "rank", "tasks held", "records done", "steps", "not acknowledged", "heard")
    return "<h2>Trainers</h2>" + _table(head, rows, "no trainer has joined")


def _rendezvous(meeting: Json) -> str:
    """Nothing where the trainers work each for itself."""
    if not meeting["round"]:
        return ""
    names = ", ".join(one["trainer"] for one in meeting["members"])
    state = "trains" if meeting["formed"] else "is forming"
    return (
        f"<h2>Trained together</h2><p class=note>Round {meeting['round']:,} {state}, "
        f"with {len(meeting['members']):,}, the oldest first: {escape(names)}.</p>"
    )


def _setbacks(setbacks: Json) -> str:
    if not setbacks["count"]:
        return ""
    lines = "".join(
        f"<li>{escape(one['by'])}: {escape(one['reason'])} "
        f"({one['steps']:,} steps, {one['records']:,} records)</li>"
        for one in reversed(setbacks["newest"])
    )
    return (
        f"<h2>Setbacks</h2><p class=note>{setbacks['steps']:,} steps and "
        f"{setbacks['records']:,} records were lost with the model's state, in "
        f"{setbacks['count']:,} setbacks: they are trained again.</p><ul>{lines}</ul>"
    )


def _rest(status: Json) -> str:
    lines = [
        f"{status['lost_records']} records were trained and lost with their trainer: once more.",
        f"{status['trained_again_records']} records were acknowledged by two trainers.",
        f"Master of generation {status['generation']}.",
    ]
    if status["checkpoint"]:
        kept = status["checkpoint"]
        lines.append(
            f"Newest checkpoint: version {kept['version']}, step {kept['step']}, {kept['path']}."
        )
    notes = "".join(f"<p class=note>{escape(line)}</p>" for line in lines)
    bad = [f"{one['task']}: {one['error']}" for one in status["failures"]]
    failures = "".join(f"<li class=bad>{escape(line)}</li>" for line in bad)
    return f"<h2>Books</h2>{notes}" + (f"<h2>Failures</h2><ul>{failures}</ul>" if bad else "")


def _share(one: Json) -> float | None:
    total: int = (one["records"] or 0) * one["epochs"]
    if not total:
        return None
    over: int = one["done_records"] + one["dropped_records"]
    return min(1.0, over / total)


def _row(first: str, *cells: object) -> str:
    shown = "".join(
        f"<td>{cell if isinstance(cell, str) and cell.startswith('<') else escape(_text(cell))}</td>"
        for cell in cells
    )
    return f"<tr><td>{escape(first)}</td>{shown}</tr>"


def _text(cell: object) -> str:
    return f"{cell:,}" if isinstance(cell, int) else str(cell)


def _table(head: tuple[str, ...], rows: list[str], empty: str) -> str:
    if not rows:
        return f"<p class=note>{empty}</p>"
    names = "".join(f"<th>{name}</th>" for name in head)
    return f"<table><tr>{names}</tr>{''.join(rows)}</table>"
