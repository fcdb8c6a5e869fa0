"""Tables and figures of stored runs: nothing here trains."""
