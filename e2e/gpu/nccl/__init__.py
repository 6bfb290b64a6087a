"""Losing and adding NCCL ranks that share one card, each as a different NCCL host."""
