"""EDL on a GPU: cells that check and measure it on one card, played by `make gpu`.

Each cell is a process of its own with a time limit (`player`), so one that hangs or crashes is a result, not
the end of the run. The cells play on any accelerator that torch has; CI plays those that need no NVIDIA
card on the stand-in of `tests/support/standin`.
"""
