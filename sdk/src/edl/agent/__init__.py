"""The agent of a pod, which runs its processes as torchrun does, as one member of the rendezvous."""
