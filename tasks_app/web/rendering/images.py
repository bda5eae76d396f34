"""Which files a browser may show as images."""

from __future__ import annotations

#: The first bytes of raster images. SVG is not among them: it can contain scripts.
_SIGNATURES = {
    b"\x89PNG\r\n\x1a\n": "image/png",
    b"\xff\xd8\xff": "image/jpeg",
    b"GIF87a": "image/gif",
    b"GIF89a": "image/gif",
}


def image_type(content: bytes) -> str:
    """Return the media type of a raster image, by its first bytes; "" for everything else."""
    if content[:4] == b"RIFF" and content[8:12] == b"WEBP":
        return "image/webp"
    return next((kind for signature, kind in _SIGNATURES.items() if content.startswith(signature)), "")
