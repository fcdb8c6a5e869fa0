"""How fast this machine trains: our engines beside a re-making of the original loop, in one run."""
