"""The client of a job's master: protocol, connection, session, leases, heartbeats, rendezvous."""
