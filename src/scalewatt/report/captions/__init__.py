"""What the report says below each figure, from its table."""
