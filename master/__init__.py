"""The master of one job: hands out pieces of data to whoever is alive, and never loses count."""
