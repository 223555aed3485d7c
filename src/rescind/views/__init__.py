"""What people and services are shown of a history: how it stands, in words and in numbers."""
