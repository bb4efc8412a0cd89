"""Statistical mechanics of attention: state equations, transitions, phase diagrams."""

__version__ = "0.1.0"
