"""The agent of a pod, which runs the pod's processes in place of torchrun."""
