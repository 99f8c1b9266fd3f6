"""dssr measures and reduces write-time regret in constant-context LLM agents."""

__version__ = "0.1.0"
