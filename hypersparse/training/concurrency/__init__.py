"""Several runs on one machine: threads and streams on a GPU, processes on a CPU."""
