"""A local page on which people try a sparse network beside its dense twin."""
