"""Secrets in addresses: paths, ids and metadata keys.

They are reported and never masked, because callers look things up by them. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from unspool.sources.secrets.masking import mask_secrets

_LISTED = 20
_SHOWN = 120  # characters of an address


def describe_exposed(noun: str, addresses: Iterable[str]) -> list[str]:
    """Return a warning for each address that contains a secret.

    The secret is masked in the warning.
    """
    distinct = list(dict.fromkeys(addresses))
    if not mask_secrets("\n".join(distinct))[1]:  # one scan instead of many
        return []
    warnings = []
    for address in distinct:
        shown, masked = mask_secrets(address)
        if masked:
            warnings.append(
                f"the {noun} {shown[:_SHOWN]!r} contains a secret ({masked[0].kind}), and a "
                f"{noun} is never masked; choose another {noun}"
            )
    return warnings


def limit_warnings(warnings: Sequence[str]) -> list[str]:
    """Return the first warnings, and the number of the others."""
    rest = len(warnings) - _LISTED
    return (
        [*warnings[:_LISTED], f"{rest} more paths, ids or metadata keys contain a secret"]
        if rest > 0
        else list(warnings)
    )


def redact_address(address: str) -> str:
    """Return an address as a report shows it."""
    return mask_secrets(address)[0]
