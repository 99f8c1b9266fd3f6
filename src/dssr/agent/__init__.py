"""The agent: prompts, memories, the reader, and the episodes they play."""
