"""Masters and parameter servers of jobs: their objects, and what masters report."""
