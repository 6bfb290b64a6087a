"""`make experiments`: EDL's acceptance experiments, on a real control plane and in virtual time."""
