"""What happened, durably and erasably: journal, recorder, retention, requests, erasure, integrity."""
