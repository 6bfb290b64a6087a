"""Process groups of torch that follow the rounds of the master."""
