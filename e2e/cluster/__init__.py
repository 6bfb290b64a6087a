"""A real Kubernetes control plane on this machine, without Docker, with simulated nodes.

Used by the demo, the end-to-end tests and `python -m e2e.cluster`. The binaries are built from
the Go modules pinned in `tools/`; nodes and pods are played by kwok after `stages.yaml`.
`e2e.cluster.local.running` starts a cluster and stops it again.
"""
