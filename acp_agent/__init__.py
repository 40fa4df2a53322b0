"""An ACP agent whose sessions run live against a model or replay from their own recorded logs."""

__version__ = "0.1.0"
