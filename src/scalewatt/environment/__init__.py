"""What surrounds a run: packages against the lock, nodes, software, flags, variables; nothing personal."""
