"""EDL on a GPU: cells that check and measure it on one card, run by `make gpu`.

Each cell is a process of its own with a time limit (`player`), so one that hangs or crashes is a result, not
the end of the run. CI runs the cells that train in PyTorch on the stand-in of `tests/support/standin`.
"""
