"""Files of strangers: what every reader does with them."""
