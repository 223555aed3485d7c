"""Public data sets, split into clients and turned into features."""

from experiments.data._files import NoFolderError

__all__ = ["NoFolderError"]
