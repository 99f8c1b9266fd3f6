"""Games: kinds of worlds, and archives of games."""
