"""Commands of an admin: is a cluster ready for EDL, is EDL well, what remains of it."""
