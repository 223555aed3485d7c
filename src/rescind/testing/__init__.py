"""Suites that an implementation of your own can be held against: derive from one in your tests."""
