"""Stored documents: the one place that knows how JSON of ccenv is written, and hashed."""

from __future__ import annotations

import hashlib
import json
import math
from typing import Any


def canonical_json(value: Any) -> str:
    """Return the one JSON text of a value: sorted keys, no spaces, infinities as text, not-a-number as null."""
    return json.dumps(plain(value), sort_keys=True, separators=(",", ":"), allow_nan=False, ensure_ascii=True)


def plain(value: Any) -> Any:
    """Turn a value into what strict JSON can hold: infinities become the text "inf" or "-inf", not-a-number becomes None."""
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else str(value)
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return value


def hash_of(value: Any) -> str:
    """Return the SHA-256 of a value's canonical JSON, in hexadecimal."""
    return hashlib.sha256(canonical_json(value).encode()).hexdigest()
