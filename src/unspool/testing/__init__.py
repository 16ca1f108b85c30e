"""Contract suites for what others write.

Only test suites import this: it needs pytest, which unspool itself does not.
"""

from __future__ import annotations

import pytest

# so that a failed assertion shows its values
pytest.register_assert_rewrite(
    "unspool.testing.embedder_contract",
    "unspool.testing.vector_contract",
    "unspool.testing.vector_setup",
)
