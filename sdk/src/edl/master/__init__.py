"""The client of the job's master: protocol, connection, session, leases, heartbeats, rendezvous."""
