"""Statistics over games: pure functions on arrays, draws passed in."""
