"""scalewatt: what data-parallel training of neural networks costs in energy."""

__version__ = "0.1.0"
