"""TextWorld cooking."""
