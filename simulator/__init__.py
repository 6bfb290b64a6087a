"""A cluster in virtual time: runs the real policy code, and simulates everything around it.

It takes a workload and returns every change of every pod, deterministically. Pure: no clock, no threads and
no network. 500 seconds of a cluster take a few seconds.
"""
