"""Structured logs, metrics for Prometheus and traces for OpenTelemetry.

The product itself logs and counts nothing. `install` connects these three to the events of a
corpus.
"""

from __future__ import annotations

from unspool.observability.context import Request
from unspool.observability.observer import Observer, install
from unspool.observability.sharing import shared_metrics

__all__ = ["Observer", "Request", "install", "shared_metrics"]
