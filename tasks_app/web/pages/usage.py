"""The usage page: tokens and dollars over time and by project, person and model, and how long was waited."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import date, timedelta
from typing import Any
from urllib.parse import urlencode

from django.http import HttpRequest, HttpResponse, QueryDict, StreamingHttpResponse
from django.shortcuts import render
from django.utils import timezone

from tasks_app.core.storable import storable_text
from tasks_app.core.types import Usage
from tasks_app.history.audit import record, truncated_query
from tasks_app.history.statistics import By
from tasks_app.models import Action
from tasks_app.permissions import Principal, projects_visible_to
from tasks_app.reporting import downloads
from tasks_app.reporting.usage import (
    MAX_PERIOD,
    Bucket,
    Period,
    UsageInPeriod,
    by_day,
    first_day,
    runs_in,
    usage_in_period,
    waiting_times,
)
from tasks_app.web.pages.access import principal_of
from tasks_app.web.rendering.chart import Chart, Say, stacked
from tasks_app.web.rendering.words import amount_of_dollars, count

PERIODS = {"7": "7 days", "30": "30 days", "90": "90 days", "365": "12 months", "all": "All time"}
BYS = {"model": By.MODEL, "project": By.PROJECT, "person": By.USER}
#: What stands for "", which no model, person or project is called.
_NAMELESS = {By.MODEL: "unknown", By.USER: "nobody", By.PROJECT: "none"}
MEASURES = {"dollars": "Dollars", "tokens": "Tokens"}
#: Series that have a colour of their own; what the others used is drawn as one.
_SERIES = 5
_OTHERS = "others"
#: More bars than this nobody can tell apart.
_MOST_BUCKETS = 400
#: Before and after them nothing can be added to a day without leaving the calendar.
_YEARS = range(1900, 9000)
_LABELS = {Bucket.DAY: 8, Bucket.WEEK: 8, Bucket.MONTH: 6}
COLUMNS = [
    *("from", "to", "name", "input_tokens", "output_tokens", "cache_write_tokens", "cache_read_tokens"),
    "cost_usd",
]


@dataclass(frozen=True)
class Choice:
    """What the address asks for. `faults`: what of it could not be used."""

    period: Period
    preset: str
    bucket: Bucket
    by: str
    measure: str
    project: str
    faults: list[str] = field(default_factory=list)

    @property
    def dimension(self) -> By:
        return BYS[self.by]

    def query(self, **other: str) -> str:
        """The same, but for what is said."""
        days = {} if self.preset else {"from": self.period.since, "to": self.period.until}
        same: dict[str, Any] = {
            "period": self.preset, **days, "bucket": self.bucket, "by": self.by, "measure": self.measure,
            "project": self.project, **other,
        }  # fmt: skip
        if "period" in other:
            same |= {"from": "", "to": "", "bucket": ""}
        return urlencode({name: value for name, value in same.items() if value})


@dataclass(frozen=True)
class Line:
    """A row of a table: `share` of the largest one, per cent; `number` is its colour."""

    name: str
    usage: Usage
    share: str
    number: int | None = None


def usage(request: HttpRequest) -> HttpResponse:
    principal = principal_of(request)
    choice = _choice(principal, request.GET)
    used = usage_in_period(principal, choice.period, choice.project, choice.dimension)
    series = _series(choice, used)
    context = {
        "choice": choice,
        "used": used,
        "change": _change(used, choice.measure),
        "waiting": waiting_times(principal, choice.period, choice.project),
        "chart": _chart(choice, series),
        "series": list(series),
        "table": _table(choice, series),
        "parts": [(by, _lines(used.parts[one], one, choice.measure)) for by, one in BYS.items()],
        "links": _links(choice),
        "projects": projects_visible_to(principal).order_by("name"),
        "query": choice.query(),
    }
    return render(request, "usage/page.html", context)


def usage_export(request: HttpRequest) -> StreamingHttpResponse:
    """What the chart shows as CSV: a row for each bucket and name."""
    principal = principal_of(request)
    choice = _choice(principal, request.GET)
    record(
        Action.EXPORTED, by=principal.user, subject="usage", form="csv", filters=truncated_query(request.GET)
    )
    days = by_day(runs_in(principal, choice.period, choice.project), choice.dimension)
    return downloads.export_rows(
        COLUMNS, _rows(choice, _bucketed(choice, days)), name="usage", file_format="csv"
    )


def _choice(principal: Principal, asked: QueryDict) -> Choice:
    faults: list[str] = []
    project = storable_text(asked.get("project", ""))[:100].strip()
    preset = asked.get("period", "")
    today = timezone.now().date()
    since, until = _day(asked, "from", faults), _day(asked, "to", faults)
    if preset not in PERIODS and (since or until):
        period, preset = _own_period(since, until, today, faults), ""
    else:
        preset = preset if preset in PERIODS else "30"
        period = _preset_period(preset, principal, project, today)
    bucket = _bucket(asked.get("bucket", ""), period)
    by = asked.get("by", "") if asked.get("by", "") in BYS else "model"
    measure = asked.get("measure", "") if asked.get("measure", "") in MEASURES else "dollars"
    return Choice(period, preset, bucket, by, measure, project, faults)


def _day(asked: QueryDict, name: str, faults: list[str]) -> date | None:
    value = storable_text(asked.get(name, "").strip()[:40])
    try:
        day = date.fromisoformat(value) if value else None
    except ValueError:
        day = date.min
    if day is None or day.year in _YEARS:
        return day
    faults.append(f"“{name.capitalize()}” must be a date such as 2026-03-01, not “{value}”. It was ignored.")
    return None


def _own_period(since: date | None, until: date | None, today: date, faults: list[str]) -> Period:
    until = until or max(today, since or today)
    since = since or until - timedelta(days=29)
    if since > until:
        faults.append("“From” is after “To”. The two were swapped.")
        since, until = until, since
    if until - since > MAX_PERIOD:
        faults.append("A period can be at most ten years. Earlier days were left out.")
        since = until - MAX_PERIOD
    return Period(since, until)


def _preset_period(preset: str, principal: Principal, project: str, today: date) -> Period:
    if preset == "all":
        first = first_day(principal, project) or today
        return Period(max(first, today - MAX_PERIOD), today)
    return Period(today - timedelta(days=int(preset) - 1), today)


def _bucket(asked: str, period: Period) -> Bucket:
    fitting = Bucket.DAY if period.days <= 62 else Bucket.WEEK if period.days <= 400 else Bucket.MONTH
    bucket = Bucket(asked) if asked in set(Bucket) else fitting
    return bucket if len(period.buckets(bucket)) <= _MOST_BUCKETS else Bucket.MONTH


def _bucketed(choice: Choice, days: Mapping[date, Mapping[str, Usage]]) -> dict[date, dict[str, Usage]]:
    """Days put together; every bucket is there."""
    found: dict[date, dict[str, Usage]] = {start: {} for start in choice.period.buckets(choice.bucket)}
    for day, used in days.items():
        bucket = found[choice.bucket.start(day)]
        for name, amount in used.items():
            bucket[name] = bucket.get(name, Usage()) + amount
    return found


def _series(choice: Choice, used: UsageInPeriod) -> dict[str, list[Usage]]:
    """By name, what was used in each bucket: those that used most, and the others together."""
    buckets = _bucketed(choice, used.by_day)
    totals = used.parts[choice.dimension]
    ranked = sorted(totals, key=lambda name: (-_measured(totals[name], choice.measure), name))
    own = ranked if len(ranked) <= _SERIES + 1 else ranked[:_SERIES]
    series = {
        name or _NAMELESS[choice.dimension]: [bucket.get(name, Usage()) for bucket in buckets.values()]
        for name in own
    }
    if rest := ranked[len(own) :]:
        series[_OTHERS] = [
            sum((bucket[name] for name in rest if name in bucket), Usage()) for bucket in buckets.values()
        ]
    return series


def _measured(used: Usage, measure: str) -> float:
    return used.cost_usd if measure == "dollars" else used.read_tokens + used.output_tokens


def _say(measure: str) -> Say:
    return amount_of_dollars if measure == "dollars" else lambda amount: count(round(amount))


def _chart(choice: Choice, series: Mapping[str, list[Usage]]) -> Chart | None:
    names = [_bucket_names(start, choice) for start in choice.period.buckets(choice.bucket)]
    amounts = {name: [_measured(one, choice.measure) for one in used] for name, used in series.items()}
    return stacked(names, amounts, _say(choice.measure), labels=_LABELS[choice.bucket])


def _bucket_names(start: date, choice: Choice) -> tuple[str, str]:
    if choice.bucket is Bucket.MONTH:
        return f"{start:%b %Y}", f"{start:%B %Y}"
    short = f"{start.day} {start:%b}"
    return short, f"{start:%Y-%m-%d}" if choice.bucket is Bucket.DAY else f"week of {start:%Y-%m-%d}"


def _table(choice: Choice, series: Mapping[str, list[Usage]]) -> list[tuple[str, list[str], str]]:
    """The numbers of the chart: those buckets in which something was used."""
    say = _say(choice.measure)
    rows = []
    for number, start in enumerate(choice.period.buckets(choice.bucket)):
        amounts = [_measured(used[number], choice.measure) for used in series.values()]
        if any(amounts):
            cells = [say(amount) if amount else "" for amount in amounts]
            rows.append((_bucket_names(start, choice)[1], cells, say(sum(amounts))))
    return rows


def _lines(used: Mapping[str, Usage], by: By, measure: str) -> list[Line]:
    ranked = sorted(used.items(), key=lambda one: (-_measured(one[1], measure), one[0]))
    largest = max((_measured(amount, measure) for _, amount in ranked), default=0.0) or 1.0
    return [
        Line(name or _NAMELESS[by], amount, f"{_measured(amount, measure) / largest * 100:.1f}%")
        for name, amount in ranked
    ]


def _change(used: UsageInPeriod, measure: str) -> str:
    """In words, against the period before."""
    before, now = _measured(used.before, measure), _measured(used.total, measure)
    if not before:
        return "none in the previous period" if now else ""
    change = (now - before) / before * 100
    sign = "+" if change >= 0 else "−"
    percent = f"{abs(change):,.0f}" if abs(change) < 1000 else f"{now / before:,.0f} times as much"
    words = percent if "times" in percent else f"{sign}{percent} %"
    return f"{words}, {_say(measure)(before)} in the previous period"


def _links(choice: Choice) -> dict[str, list[tuple[str, str, bool]]]:
    """Address, words, and whether it is what is shown."""
    buckets = {one.value: f"by {one}" for one in Bucket if len(choice.period.buckets(one)) <= _MOST_BUCKETS}
    return {
        "periods": [
            (choice.query(period=key), words, key == choice.preset) for key, words in PERIODS.items()
        ],
        "buckets": [
            (choice.query(bucket=key), words, key == choice.bucket) for key, words in buckets.items()
        ],
        "bys": [(choice.query(by=key), f"by {key}", key == choice.by) for key in BYS],
        "measures": [
            (choice.query(measure=key), words, key == choice.measure) for key, words in MEASURES.items()
        ],
    }


def _rows(choice: Choice, buckets: Mapping[date, Mapping[str, Usage]]) -> Iterator[dict[str, Any]]:
    for start, used in buckets.items():
        end = min(choice.bucket.next(start) - timedelta(days=1), choice.period.until)
        for name in sorted(used):
            amount = used[name]
            yield {
                "from": max(start, choice.period.since).isoformat(),
                "to": end.isoformat(),
                "name": name or _NAMELESS[choice.dimension],
                "input_tokens": amount.input_tokens,
                "output_tokens": amount.output_tokens,
                "cache_write_tokens": amount.cache_write_tokens,
                "cache_read_tokens": amount.cache_read_tokens,
                "cost_usd": round(amount.cost_usd, 6),
            }
