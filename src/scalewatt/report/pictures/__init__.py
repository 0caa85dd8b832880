"""The drawings of figures, as the report embeds them."""
