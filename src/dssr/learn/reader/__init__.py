"""The reader: behaviour cloning of the reference action over many kinds of context, then DAgger."""
