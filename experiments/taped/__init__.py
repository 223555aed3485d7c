"""Methods that go back by what clients once sent: comparisons, which keep more than a certified history may."""
