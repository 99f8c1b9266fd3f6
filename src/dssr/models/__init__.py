"""Models behind one interface: scripted, local, served, and cached."""
