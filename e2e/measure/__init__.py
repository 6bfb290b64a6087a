"""Measuring a run: what every pod did and when, and the figures and criteria computed from it.

`pods` and `record` write down each change as the watch reports it; everything else is pure
and works on the finished `Timeline`, so that figures are exact and not sampled.
"""
