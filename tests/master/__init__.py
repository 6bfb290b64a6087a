"""Tests of the master: ledger, journal, protocol, takeover."""
