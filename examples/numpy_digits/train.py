"""A classifier of handwritten digits in plain numpy; the loop is elastic by `edl.batches`.

    edl run -n 4 examples/numpy_digits/train.py --out build/digits

Each trainer trains on its own tasks. Now and then all meet at the mean of their weights, which
they exchange as files, and one of them saves a checkpoint. A trainer that comes late begins there.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import edl
import numpy as np

Arrays = dict[str, Any]
"""Weights by name."""

TEST = 360
"""The last images are for the test; the others are trained on."""
BATCH = 32
RATE, MOMENTUM = 0.1, 0.9
MEET_EVERY = 10
"""Steps between two meetings."""

GLYPHS = """
.####... ...#.... .####... .####... ....##.. .#####.. ..####.. .######. .####... .####...
#....#.. ..##.... #....#.. #....#.. ...#.#.. .#...... .#...... ......#. #....#.. #....#..
#....#.. .#.#.... .....#.. .....#.. ..#..#.. .#...... #....... .....#.. #....#.. #....#..
#....#.. ...#.... ....#... ..###... .#...#.. .####... #.###... ....#... .####... .#####..
#....#.. ...#.... ...#.... .....#.. .######. .....#.. ##...#.. ...#.... #....#.. .....#..
#....#.. ...#.... ..#..... #....#.. .....#.. .....#.. #....#.. ..#..... #....#.. .....#..
.####... .#####.. .######. .####... .....#.. .####... .####... ..#..... .####... .####...
"""


def digits() -> tuple[Any, Any]:
    """1 797 images of 64 pixels between 0 and 1, and their digits: scikit-learn's, or drawn ones."""
    try:
        from sklearn.datasets import load_digits  # noqa: PLC0415 - may be missing
    except ImportError:
        images, labels = drawn(1797)
    else:
        images, labels = load_digits(return_X_y=True)
        images = images / 16
    order = np.random.default_rng(3).permutation(len(labels))
    return images[order].astype(np.float32), labels[order]


def drawn(count: int) -> tuple[Any, Any]:
    """Images from `GLYPHS`, moved by a pixel, paler, and with noise; always the same ones."""
    chance = np.random.default_rng(0)
    rows = [line.split() for line in GLYPHS.split("\n") if line]
    glyphs = np.zeros((10, 8, 8))
    for place, row in enumerate(rows):
        for digit, pixels in enumerate(row):
            glyphs[digit, place] = [pixel == "#" for pixel in pixels]
    labels = chance.integers(0, 10, count)
    images = np.empty((count, 64), np.float32)
    for place, digit in enumerate(labels):
        moved = np.roll(glyphs[digit], chance.integers(-1, 2, 2), axis=(0, 1))
        noise = chance.normal(0, 0.15, (8, 8))
        images[place] = (moved * chance.uniform(0.5, 1) + noise).clip(0, 1).ravel()
    return images, labels


def fresh(seed: int = 0) -> Arrays:
    """Weights nobody has trained."""
    chance = np.random.default_rng(seed)
    return {
        "w1": chance.normal(0, 0.15, (64, 64)),
        "b1": np.zeros(64),
        "w2": chance.normal(0, 0.15, (64, 10)),
        "b2": np.zeros(10),
    }


def forward(weights: Arrays, x: Any) -> tuple[Any, Any]:
    """The hidden layer and the probability of each digit."""
    hidden = np.maximum(0, x @ weights["w1"] + weights["b1"])
    scores = hidden @ weights["w2"] + weights["b2"]
    odds = np.exp(scores - scores.max(axis=1, keepdims=True))
    return hidden, odds / odds.sum(axis=1, keepdims=True)


def step(weights: Arrays, speed: Arrays, x: Any, y: Any) -> None:
    """One step of gradient descent with momentum."""
    hidden, odds = forward(weights, x)
    odds[np.arange(len(y)), y] -= 1
    odds /= len(y)
    back = (odds @ weights["w2"].T) * (hidden > 0)
    slopes = {"w1": x.T @ back, "b1": back.sum(0), "w2": hidden.T @ odds, "b2": odds.sum(0)}
    for name, slope in slopes.items():
        speed[name] = MOMENTUM * speed[name] - RATE * slope
        weights[name] = weights[name] + speed[name]


def accuracy(weights: Arrays, x: Any, y: Any) -> float:
    """Share of images that are told right."""
    return float((forward(weights, x)[1].argmax(1) == y).mean())


def meet(folder: Path, name: str, mine: Arrays) -> Arrays:
    """Leaves this trainer's weights for the others, and returns the mean with theirs.

    Only weights that were left since this trainer's last meeting count: a trainer that has gone
    must not hold the others back.
    """
    own = folder / f"{name}.npz"
    since_s = own.stat().st_mtime if own.exists() else float("inf")
    folder.mkdir(parents=True, exist_ok=True)
    with own.with_suffix(".tmp").open("wb") as file:
        np.savez(file, **mine)
    own.with_suffix(".tmp").replace(own)
    paths = [path for path in folder.glob("*.npz") if path.stat().st_mtime > since_s]
    found = [mine, *(load(path) for path in paths if path != own)]
    return {key: np.mean([one[key] for one in found], axis=0) for key in mine}


def load(path: Path) -> Arrays:
    """Weights that somebody left."""
    with np.load(path) as arrays:
        return dict(arrays)


def begin(out: Path) -> Arrays:
    """Where another trainer is; or at the newest checkpoint; or anew."""
    left = sorted((out / "weights").glob("*.npz"), key=lambda path: path.stat().st_mtime)
    if left:
        return load(left[-1])
    saved = edl.latest_checkpoint(out)
    return fresh() if saved is None else saved.arrays()


def train(out: Path, epochs: int, pause_s: float) -> None:
    """Trains until the master says that all is done."""
    images, labels = digits()
    name = edl.session().settings.trainer
    weights = begin(out)
    speed = {key: np.zeros_like(value) for key, value in weights.items()}
    data = edl.from_arrays("digits", images[:-TEST], labels[:-TEST])
    loop = edl.batches(data, BATCH, epochs=epochs, shuffle_seed=1, task_records=BATCH)
    for number, (x, y) in enumerate(loop, 1):
        step(weights, speed, x, y)
        time.sleep(pause_s)
        if number % MEET_EVERY == 0:
            weights = meet(out / "weights", name, weights)
            edl.save_checkpoint(out, weights, step=number)
    weights = meet(out / "weights", name, weights)
    edl.save_checkpoint(out, weights, step=0)
    print(f"test accuracy {accuracy(weights, images[-TEST:], labels[-TEST:]):.3f}")


def main() -> None:
    """Trains, or tells how good the newest checkpoint is."""
    parser = argparse.ArgumentParser(description="Handwritten digits, elastic, in plain numpy.")
    parser.add_argument("--out", type=Path, default=Path("build/digits"), help="for checkpoints")
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument(
        "--pause-s", type=float, default=0.0, help="makes steps slow enough to watch"
    )
    parser.add_argument("--test", action="store_true", help="only tell how good the checkpoint is")
    asked = parser.parse_args()
    if not asked.test:
        train(asked.out, asked.epochs, asked.pause_s)
        return
    saved = edl.latest_checkpoint(asked.out)
    if saved is None:
        raise SystemExit(f"there is no checkpoint in {asked.out}")
    images, labels = digits()
    print(f"test accuracy {accuracy(saved.arrays(), images[-TEST:], labels[-TEST:]):.3f}")


if __name__ == "__main__":
    main()
