"""Forms: what a page accepts, and what it says of the rest. However short, they know no page."""
