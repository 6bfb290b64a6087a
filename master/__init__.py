"""The master of one job: leases records to live trainers and counts each record exactly once."""
