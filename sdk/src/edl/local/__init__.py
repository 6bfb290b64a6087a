"""`edl run`: a job's master and trainers as processes of this machine, no cluster needed."""
