"""Training writers and readers."""
