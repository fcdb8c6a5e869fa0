"""Everything that reads or writes the files of runs."""
