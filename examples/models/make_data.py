"""Writes the data of these examples: digits as .npz files, clicks as .csv files.

    python examples/models/make_data.py build/data

Digits are scikit-learn's if it is installed, otherwise generated; clicks are generated.
"""

import argparse
import csv
import runpy
from pathlib import Path

import numpy as np

HERE = Path(__file__).parent
TEST = 360
"""Number of test images, the last ones."""
USERS, ITEMS, HOURS, TASTES = 100, 150, 24, 2
CLICKS, CLICKS_TEST = 24_000, 4_000


def digits(folder: Path) -> None:
    """Writes images of 64 pixels, and their digits."""
    images, labels = runpy.run_path(str(HERE.parent / "numpy_digits/train.py"))["digits"]()
    train, test = slice(None, -TEST), slice(-TEST, None)
    for name, part in (("train", train), ("test", test)):
        np.savez(folder / f"digits-{name}.npz", images=images[part], labels=labels[part])


def clicks(folder: Path) -> None:
    """Writes clicks of users on items, by hidden tastes of the users."""
    chance = np.random.default_rng(5)
    tastes, kinds = chance.normal(0, 1, (USERS, TASTES)), chance.normal(0, 1, (ITEMS, TASTES))
    liked = chance.normal(0, 0.5, ITEMS)
    users = chance.integers(0, USERS, CLICKS + CLICKS_TEST)
    items = chance.integers(0, ITEMS, CLICKS + CLICKS_TEST)
    hours = chance.integers(0, HOURS, CLICKS + CLICKS_TEST)
    odds = 2 * (tastes[users] * kinds[items]).sum(1) + liked[items] + (hours > HOURS / 2) - 0.5
    clicked = chance.random(len(odds)) < 1 / (1 + np.exp(-odds))
    rows = list(zip(users, items, hours, clicked.astype(int), strict=True))
    for name, part in (("train", rows[:CLICKS]), ("test", rows[CLICKS:])):
        with (folder / f"clicks-{name}.csv").open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(("user", "item", "hour", "clicked"))
            writer.writerows(part)


def main() -> None:
    """Reads the command line."""
    parser = argparse.ArgumentParser(description="Writes the data of the examples.")
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    folder.mkdir(parents=True, exist_ok=True)
    digits(folder)
    clicks(folder)


if __name__ == "__main__":
    main()
