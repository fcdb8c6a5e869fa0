"""The command line: one file per command. Only here are environment variables read."""
