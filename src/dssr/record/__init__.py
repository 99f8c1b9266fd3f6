"""Every run is its own directory: written once, append-only, never trusted blindly."""
