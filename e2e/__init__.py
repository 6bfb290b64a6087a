"""A real local Kubernetes, the demo and the end-to-end tests. Never collected by a plain pytest."""
