"""Stands in for the Neuron runtime's library, so that torch_xla runs its own Neuron start-up. Only for tests."""


def configure_environment() -> None:
    """What the real one does is inside the library."""
