"""A real local Kubernetes, the demo and the journeys. Never collected by a plain pytest."""
