"""`edl run`: runs a job's master and trainers as processes of this machine, without a cluster."""
