"""The one error of the bench: something that must hold for any figure to mean anything did not."""


class BenchFailed(Exception):
    """The message is for the person at the terminal, who sees nothing else."""
