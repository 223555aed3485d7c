"""SIFU, Sequential Informed Federated Unlearning, as a Flower baseline."""
