"""The figures of the HyperSparse paper's tables and supplement, as CSV files: what ours are put beside."""
