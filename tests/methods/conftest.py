import pytest

pytest.register_assert_rewrite("rescind.testing.methods")
