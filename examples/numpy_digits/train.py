"""A classifier of handwritten digits in plain numpy; the loop is elastic by `edl.batches`.

    edl run -n 4 examples/numpy_digits/train.py --out build/digits

Each trainer trains on its own tasks and saves its weights to a file after each step. Every few steps
it continues from the mean of all saved weights; a trainer that joins later starts from it. The job's
last task, which one trainer runs, writes this mean as the model.

A record is acknowledged when the next batch is requested; by then the weights trained on it are
saved. So any trainer may be killed at any time, and its acknowledged work is in the mean.
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
"""Number of test images, the last ones; the others are for training."""
BATCH = 32
RATE, MOMENTUM = 0.1, 0.9
AVERAGE_EVERY = 10
"""Steps of a trainer between two averagings."""
MODEL = "model.npz"

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
    """1 797 images of 64 pixels between 0 and 1, and their digits, from scikit-learn or generated."""
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
    """Generates images from `GLYPHS`, shifted by a pixel, paler and with noise; deterministic."""
    chance = np.random.default_rng(0)
    rows = [line.split() for line in GLYPHS.split("\n") if line]
    glyphs = np.zeros((10, 8, 8))
    for line_number, row in enumerate(rows):
        for digit, pixels in enumerate(row):
            glyphs[digit, line_number] = [pixel == "#" for pixel in pixels]
    labels = chance.integers(0, 10, count)
    images = np.empty((count, 64), np.float32)
    for line_number, digit in enumerate(labels):
        glyph = np.roll(glyphs[digit], chance.integers(-1, 2, 2), axis=(0, 1))
        noise = chance.normal(0, 0.15, (8, 8))
        images[line_number] = (glyph * chance.uniform(0.5, 1) + noise).clip(0, 1).ravel()
    return images, labels


def fresh(seed: int = 0) -> Arrays:
    """Returns initial weights."""
    chance = np.random.default_rng(seed)
    return {
        "w1": chance.normal(0, 0.15, (64, 64)),
        "b1": np.zeros(64),
        "w2": chance.normal(0, 0.15, (64, 10)),
        "b2": np.zeros(10),
    }


def forward(weights: Arrays, x: Any) -> tuple[Any, Any]:
    """Returns the hidden layer and the probability of each digit."""
    hidden = np.maximum(0, x @ weights["w1"] + weights["b1"])
    scores = hidden @ weights["w2"] + weights["b2"]
    odds = np.exp(scores - scores.max(axis=1, keepdims=True))
    return hidden, odds / odds.sum(axis=1, keepdims=True)


def step(weights: Arrays, speed: Arrays, x: Any, y: Any) -> None:
    """Makes one step of gradient descent with momentum."""
    hidden, odds = forward(weights, x)
    odds[np.arange(len(y)), y] -= 1
    odds /= len(y)
    back = (odds @ weights["w2"].T) * (hidden > 0)
    slopes = {"w1": x.T @ back, "b1": back.sum(0), "w2": hidden.T @ odds, "b2": odds.sum(0)}
    for name, slope in slopes.items():
        speed[name] = MOMENTUM * speed[name] - RATE * slope
        weights[name] = weights[name] + speed[name]


def accuracy(weights: Arrays, x: Any, y: Any) -> float:
    """Returns the share of correct predictions."""
    return float((forward(weights, x)[1].argmax(1) == y).mean())


def save(path: Path, weights: Arrays, age: int) -> None:
    """Saves weights atomically.

    Their age is the number of steps that they contain, including those of averaged weights.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    hidden = path.with_suffix(".tmp")
    with hidden.open("wb") as file:
        np.savez(file, age=age, **weights)
    hidden.replace(path)


def load(path: Path) -> tuple[Arrays, int]:
    """Reads saved weights and their age."""
    with np.load(path) as arrays:
        weights = dict(arrays)
    return weights, int(weights.pop("age"))


def mean(folder: Path) -> tuple[Arrays, int]:
    """Returns the mean of all saved weights and their greatest age; initial weights if none exist.

    Older weights count less, by half for each averaging that they lag behind, so that a dead or new
    trainer does not hold back the others.
    """
    saved_weights = [load(path) for path in folder.glob("*.npz")]
    if not saved_weights:
        return fresh(), 0
    ages = np.array([age for _, age in saved_weights])
    shares = 0.5 ** ((ages.max() - ages) / AVERAGE_EVERY)
    return {
        name: np.average([weights[name] for weights, _ in saved_weights], axis=0, weights=shares)
        for name in saved_weights[0][0]
    }, int(ages.max())


def train(out: Path, epochs: int, pause_s: float) -> None:
    """Trains until the job is done."""
    images, labels = digits()
    export = edl.Export()
    own_file = out / "weights" / f"{edl.session().settings.trainer}.npz"
    weights, age = mean(own_file.parent)
    speed = {name: np.zeros_like(value) for name, value in weights.items()}
    data = edl.from_arrays("digits", images[:-TEST], labels[:-TEST])
    loop = edl.batches(data, BATCH, epochs=epochs, shuffle_seed=1, task_records=BATCH)
    for number, (x, y) in enumerate(loop, 1):
        step(weights, speed, x, y)
        time.sleep(pause_s)
        age += 1
        save(own_file, weights, age)
        if number % AVERAGE_EVERY == 0:
            weights, age = mean(own_file.parent)
    export.run(lambda: save(out / MODEL, *mean(own_file.parent)))


def main() -> None:
    """Trains, or tells how good the model is."""
    parser = argparse.ArgumentParser(description="Handwritten digits, elastic, in plain numpy.")
    parser.add_argument("--out", type=Path, default=Path("build/digits"), help="for the model")
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument(
        "--pause-s", type=float, default=0.0, help="makes steps slow enough to watch"
    )
    parser.add_argument("--test", action="store_true", help="only tell how good the model is")
    args = parser.parse_args()
    if not args.test:
        train(args.out, args.epochs, args.pause_s)
        return
    path = args.out / MODEL
    if not path.exists():
        raise SystemExit(f"there is no {path}: the job is not done")
    images, labels = digits()
    print(f"test accuracy {accuracy(load(path)[0], images[-TEST:], labels[-TEST:]):.3f}")


if __name__ == "__main__":
    main()
