"""HTML without the white space that has no effect."""

from __future__ import annotations

import re

#: After an opening tag, before a closing one, between two tags, and at the edges of a tag and of its values.
_WITHOUT_EFFECT = re.compile(r'(<[a-zA-Z][^<>]*>) | (?=</)|(?<=>) (?=<)| (?=/?>)|(?<==") ')


def tidy(html: str) -> str:
    """Return the HTML in one line, so that a test need not know where a template breaks its lines."""
    return _WITHOUT_EFFECT.sub(lambda found: found[1] or "", re.sub(r"\s+", " ", html))
