"""What happened, told to whoever watches a service: structured logs, metrics for Prometheus, traces
for OpenTelemetry.

The product logs and counts nothing by itself; `install` hooks these three to the events of a
corpus.
"""

from __future__ import annotations

from unspool.observability.observer import Observer, Request, install
from unspool.observability.sharing import shared_metrics

__all__ = ["Observer", "Request", "install", "shared_metrics"]
