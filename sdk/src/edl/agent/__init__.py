"""The agent of a pod: one member of the rendezvous for all processes of a script of torchrun."""
