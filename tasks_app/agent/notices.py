"""The program's reports beside its work, in words for people: limits, retries, other models."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any

Message = Mapping[str, Any]

#: What the portal's proxy puts before its own refusals, which otherwise look like those of the model's API.
REFUSED = "Refused by the portal: "
#: The refusal of a request that lacks the result of an answered call, and how the log shows it.
MISSING_ANSWER = "This request does not hold the answer that a human gave."
_STOPPED = "The answer did not reach the model; the portal stopped the run."
LIMITS = {
    "five_hour": "5-hour usage limit",
    "seven_day": "weekly usage limit",
    "seven_day_opus": "weekly usage limit for Opus",
    "seven_day_sonnet": "weekly usage limit for Sonnet",
    "seven_day_overage_included": "weekly usage limit for this model",
    "overage": "limit of the extra usage",
}
#: Messages that say in `content` that another model goes on.
FALLBACKS = ("model_fallback", "model_refusal_fallback", "model_consent_fallback")


def notice_words(message: Message) -> str:
    """Return what people should know of a system message, "" if it is only bookkeeping."""
    content = str(message.get("content") or "")
    match message.get("subtype"):
        case "api_retry":
            return _retry_words(message)
        case "model_refusal_no_fallback":
            if content:
                return content
            about = ""
            if category := message.get("api_refusal_category"):
                about = f" (category: {category})"
            why = str(message.get("api_refusal_explanation") or "")
            return f"The model {message.get('original_model')} refused to answer{about}. {why}".rstrip()
        case subtype if subtype in FALLBACKS:
            models = f"{message.get('original_model')} was replaced by {message.get('fallback_model')}"
            return content or f"The model {models} ({message.get('trigger') or subtype})."
        case "informational" if message.get("level") != "info":
            return content
        case "compact_boundary":
            return "The session became long, so Claude Code replaced its beginning by a summary."
        case "status" if message.get("compact_result") == "failed":
            return f"The session could not be shortened by a summary: {message.get('compact_error')}"
    return ""


def limit_words(info: Message, resets_at: datetime | None) -> str:
    """Return what a `rate_limit_event` says about the subscription's limits, "" if all is well."""
    kind = str(info.get("rateLimitType") or info.get("rate_limit_type") or "")
    name = LIMITS.get(kind, f"usage limit {kind}".rstrip())
    resets = ""
    if resets_at:
        resets = f" It resets at {resets_at:%Y-%m-%d %H:%M} UTC."
    if info.get("isUsingOverage") is True or info.get("overageInUse") is True:
        return f"The {name} is used up. Extra usage is being charged.{resets}"
    if info.get("status") == "rejected":
        return f"The {name} is used up.{resets}"
    if info.get("status") == "allowed_warning":
        used = info.get("utilization")
        share = f"{used:.0%} of" if isinstance(used, int | float) and 0 <= used <= 10 else "Most of"
        return f"{share} the {name} is used.{resets}"
    return ""


def _retry_words(message: Message) -> str:
    status = message.get("error_status")
    happened = "sent no whole answer"  # such as one that the portal cut where the dollars ended
    if status:
        happened = f"failed with {status} ({message.get('error')})"
    delay = message.get("retry_delay_ms")
    soon = f" in {delay / 1000:.0f} s" if isinstance(delay, int) and delay >= 500 else ""
    attempts = f"{message.get('attempt')} of {message.get('max_retries')}"
    return f"The model's API {happened}. Retry {attempts} follows{soon}."


def error_words(text: str) -> str:
    """Return an error that the program reports, in the portal's words if it is the portal's own refusal."""
    if MISSING_ANSWER in text:
        return _STOPPED
    refusal = re.search(rf"{REFUSED}[^\n\"\\]+", text)
    return refusal[0] if refusal else text
