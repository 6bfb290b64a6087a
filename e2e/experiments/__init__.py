"""`make experiments`: the experiments that EDL is held to, on a real control plane and in virtual time."""
