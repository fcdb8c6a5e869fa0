"""The report: stored runs as one HTML file with tables and charts that needs nothing else."""
