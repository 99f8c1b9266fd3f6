"""The whole study: the sequence of stages from the archive of games to the verdicts, and what it will take."""
