"""Kubernetes objects that the reconciler creates, as JSON. Pure."""
