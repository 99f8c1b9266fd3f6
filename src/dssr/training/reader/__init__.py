"""Training the reader, and accepting it."""
