"""From a drawing to its files: pictures, and its small print as captions."""
