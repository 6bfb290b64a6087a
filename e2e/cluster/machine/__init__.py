"""Real nodes beside kwok's: kubelet, containerd and kube-proxy that run real containers.

Each node is a process with namespaces of its own (processes, mounts, network), so that the
kernel takes away all it did when it ends, however it ends. Used by `e2e.cluster.local`,
when a cluster is asked for real nodes; nobody else needs what is here. See
docs/decisions/0008-real-node.md.
"""
