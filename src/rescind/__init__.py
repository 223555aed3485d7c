"""rescind makes a federated training run revocable: record, plan, forget, verify."""

__version__ = "0.1.0.dev0"
