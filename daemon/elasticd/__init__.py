"""elasticd: an elastic serving daemon for spot GPUs."""

__version__ = "0.1.0"
