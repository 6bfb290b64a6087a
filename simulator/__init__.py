"""A cluster in virtual time: runs the servers' policy code, and simulates everything around it.

Takes a workload and returns every change of every pod, the same each time. Pure: no clock, no
threads, no network; 500 seconds of a cluster take a few seconds.
"""
