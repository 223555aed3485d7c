"""Certificates: what is claimed of a forgetting, signed, and checked by whoever has the document and a public key."""
