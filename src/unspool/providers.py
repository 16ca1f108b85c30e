"""Providers of models by name.

Classes are strings here, so that no provider is imported before it is used.
"""

from __future__ import annotations

import difflib
import importlib
import importlib.util
from collections.abc import Mapping
from typing import Any, NamedTuple

from unspool.errors import ConfigError, MissingDependencyError


class Provider(NamedTuple):
    """Provider of models: its class as `module:class`, the package and extra it needs, and its
    purpose.
    """

    model: str
    driver: str
    extra: str
    about: str


def create_model(
    providers: Mapping[str, Provider], name: str, options: Any, *, setting: str
) -> Any:
    """Create the model called `provider[:model]`, which a setting names."""
    provider, _, model = name.partition(":")
    if provider not in providers:
        near = difflib.get_close_matches(provider, providers, n=1)
        hint = f"did you mean {near[0]!r}? " if near else ""
        raise ConfigError(
            f"provider {provider!r} is not known; {hint}{setting} is provider:model, with one of "
            f"the providers {', '.join(providers)}"
        )
    known = providers[provider]
    if known.driver and importlib.util.find_spec(known.driver) is None:
        package = f"unspool[{known.extra}]" if known.extra else known.driver
        raise MissingDependencyError(
            f"{setting}={provider} needs the package {known.driver}; pip install '{package}'"
        )
    module, _, attribute = known.model.partition(":")
    return getattr(importlib.import_module(module), attribute)(model.strip(), options)
