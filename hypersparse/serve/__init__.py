"""A local page that compares a sparse network with its dense twin."""
