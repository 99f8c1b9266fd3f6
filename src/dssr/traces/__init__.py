"""Logged episodes of any agent: the format, the importers, the facts in them."""
