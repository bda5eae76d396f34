"""Amounts of money as people read them."""

from __future__ import annotations


def dollars(amount: float) -> str:
    """Format dollars with two digits: `$0.00`, `<$0.01`, `$0.14`, `$1,250.00`."""
    return "<$0.01" if 0 < amount < 0.005 else f"${amount:,.2f}"
