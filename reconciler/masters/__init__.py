"""Masters and parameter servers of jobs: their objects, and the reports of masters."""
