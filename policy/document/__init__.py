"""The policy document of a cluster admin: its model, and its parser."""
