"""Usage: its page, its exports and its charts.

In charts, widths are per cent: the drawing fits every screen, and its letters keep their size. Heights are
pixels.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, timedelta
from typing import Any
from urllib.parse import urlencode

from django.http import HttpRequest, HttpResponse, QueryDict, StreamingHttpResponse
from django.shortcuts import render
from django.utils import timezone

from tasks_app.core.text import storable_text
from tasks_app.core.types import Usage
from tasks_app.history.audit import record, truncated_query
from tasks_app.models import Action, QuestionKind
from tasks_app.permissions import Principal, projects_visible_to
from tasks_app.services import exports
from tasks_app.services.usage.answer_times import COLUMNS as answer_time_columns
from tasks_app.services.usage.answer_times import (
    MOST_QUESTIONS,
    AnswerTimes,
    Stage,
    Waits,
    answer_time_rows,
    answer_times,
)
from tasks_app.services.usage.cost_limits import budget_of
from tasks_app.services.usage.usage import COLUMNS as question_columns
from tasks_app.services.usage.usage import (
    MAX_PERIOD,
    Bucket,
    By,
    Period,
    UsageInPeriod,
    figure_rows,
    first_day,
    question_figures,
    usage_by_day,
    usage_in_period,
    waiting_times,
)
from tasks_app.web.access import principal_of
from tasks_app.web.rendering.words import amount_of_dollars, count

TOP, PLOT, BOTTOM = 14, 192, 22
HEIGHT = TOP + PLOT + BOTTOM
#: Of a bar, per cent: few bars must not become walls.
_WIDEST = 8.0
#: So near to an edge, per cent, a label is no longer put in the middle of its bar.
_NEAR = 5.0

Say = Callable[[float], str]


@dataclass(frozen=True)
class Bar:
    """The bar of one series in one bucket."""

    number: int
    x: str
    width: str
    y: str
    height: str


@dataclass(frozen=True)
class Stack:
    """The bars of one bucket with a description."""

    title: str
    bars: list[Bar]


@dataclass(frozen=True)
class Label:
    """A label of the axis. `spare`: hidden on narrow pages."""

    x: str
    anchor: str
    text: str
    spare: bool


@dataclass(frozen=True)
class Chart:
    """A chart. `ticks`: pixels from the top and labels."""

    ticks: list[tuple[str, str]]
    labels: list[Label]
    stacks: list[Stack]
    height: int = HEIGHT
    bottom: int = TOP + PLOT


def stacked(
    buckets: Sequence[tuple[str, str]], series: Mapping[str, Sequence[float]], say: Say, *, labels: int
) -> Chart | None:
    """Compute a chart from bucket names (short and full) and amounts by series; None if all are zero."""
    totals = [sum(amounts) for amounts in zip(*series.values(), strict=True)]
    highest = max(totals, default=0.0)
    if highest <= 0:
        return None
    step = nice_step(highest)
    top = math.ceil(round(highest / step, 6)) * step
    grid = [number * step for number in range(round(top / step) + 1)]
    ticks = [(f"{TOP + PLOT * (1 - value / top):.1f}", say(value)) for value in grid]
    stacks = [
        _stack(
            number, len(buckets), full, {name: amounts[number] for name, amounts in series.items()}, top, say
        )
        for number, (_, full) in enumerate(buckets)
        if totals[number] > 0
    ]
    return Chart(ticks, _labels_shown([short for short, _ in buckets], labels), stacks)


def nice_step(highest: float) -> float:
    """Return the distance of grid lines, 1, 2 or 5 times a power of ten, for three to five lines."""
    magnitude = 10.0 ** math.floor(math.log10(highest / 4))
    return next(factor * magnitude for factor in (1, 2, 5, 10) if factor * magnitude >= highest / 4 * 0.999)


def _stack(number: int, count: int, full: str, amounts: Mapping[str, float], top: float, say: Say) -> Stack:
    slot = 100 / count
    width = min(slot * (0.8 if count <= 120 else 1.0), _WIDEST)
    x, below, bars = number * slot + (slot - width) / 2, 0.0, []
    for index, amount in enumerate(amounts.values()):
        if amount > 0:
            height = amount / top * PLOT
            y = TOP + PLOT - below / top * PLOT - height
            bars.append(Bar(index, f"{x:.3f}%", f"{width:.3f}%", f"{y:.2f}", f"{height:.2f}"))
            below += amount
    parts = [f"{name}: {say(amount)}" for name, amount in amounts.items() if amount > 0]
    if len(parts) > 1:
        parts.append(f"in all {say(below)}")
    return Stack(f"{full}: {', '.join(parts)}", bars)


def _labels_shown(names: Sequence[str], most: int) -> list[Label]:
    """Return at most this many labels at even distances."""
    stride = math.ceil(len(names) / most)
    shown = []
    for place, number in enumerate(range(0, len(names), stride)):
        middle = (number + 0.5) * 100 / len(names)
        anchor = "middle"
        if middle < _NEAR:
            anchor = "start"
        elif middle > 100 - _NEAR:
            anchor = "end"
        shown.append(Label(f"{middle:.3f}%", anchor, names[number], place % 2 == 1))
    return shown


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
class UsageOptions:
    """The options in the URL; `faults` has messages on ignored ones."""

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
        """Return the URL parameters with some of them changed."""
        same: dict[str, Any] = {
            "period": self.preset, "from": self.period.since, "to": self.period.until, "bucket": self.bucket,
            "by": self.by, "measure": self.measure, "project": self.project, **other,
        }  # fmt: skip
        if same["period"]:
            same |= {"from": "", "to": ""}
        if "period" in other:
            same["bucket"] = ""
        return urlencode({name: value for name, value in same.items() if value})


@dataclass(frozen=True)
class Line:
    """A row of a table. `share`: per cent of the largest one; `number`: its colour."""

    name: str
    usage: Usage
    share: str
    number: int | None = None


def usage(request: HttpRequest) -> HttpResponse:
    principal = principal_of(request)
    options = _parse_options(principal, request.GET)
    used = usage_in_period(principal, options.period, options.project, options.dimension)
    series, measure = _series(options, used), options.measure
    names = [_bucket_names(start, options) for start in options.period.buckets(options.bucket)]
    amounts = {name: [_measured(one, measure) for one in usages] for name, usages in series.items()}
    context = {
        "choice": options,
        "budget": budget_of(principal.user),
        "used": used,
        "change": _change_in_words(used, options.measure),
        "waiting": waiting_times(principal, options.period, options.project),
        "asked": question_figures(principal, options.period, options.project),
        **_answer_times(answer_times(principal, options.period, options.project)),
        "chart": stacked(names, amounts, _format_amount(measure), labels=_LABELS[options.bucket]),
        "series": list(series),
        "table": _table(options, series),
        "parts": [(by, _table_lines(used.parts[one], one, options.measure)) for by, one in BYS.items()],
        "links": _links(options),
        "projects": projects_visible_to(principal).order_by("name"),
        "query": options.query(),
    }
    return render(request, "usage/page.html", context)


def _export_options(request: HttpRequest, subject: str) -> tuple[Principal, UsageOptions]:
    """Return who exports and what they chose, and record it in the audit log."""
    principal = principal_of(request)
    options = _parse_options(principal, request.GET)
    record(
        Action.EXPORTED, by=principal.user, subject=subject, form="csv", filters=truncated_query(request.GET)
    )
    return principal, options


def usage_export(request: HttpRequest) -> StreamingHttpResponse:
    """Export the chart as CSV: a row for each bucket and name."""
    principal, options = _export_options(request, "usage")
    days = usage_by_day(principal, options.period, options.project, options.dimension)
    return exports.export_rows(
        COLUMNS, _export_rows(options, _bucketed(options, days)), name="usage", file_format="csv"
    )


def usage_questions_export(request: HttpRequest) -> StreamingHttpResponse:
    """Export when questions came and what they brought as CSV."""
    principal, options = _export_options(request, "questions asked")
    figures = question_figures(principal, options.period, options.project)
    return exports.export_rows(
        question_columns, figure_rows(figures), name="usage-questions", file_format="csv"
    )


def usage_answer_times_export(request: HttpRequest) -> StreamingHttpResponse:
    """Export how long questions waited as CSV."""
    principal, options = _export_options(request, "answer times")
    times = answer_times(principal, options.period, options.project)
    return exports.export_rows(
        answer_time_columns, answer_time_rows(times), name="usage-answer-times", file_format="csv"
    )


#: What the page calls kinds, nobody in particular, and the rung on which a question was answered.
_WAITED_ON: dict[str, dict[str, str]] = {
    "kind": {kind: label.capitalize() for kind, label in QuestionKind.choices},
    "step": {},
    "person": {"": "Nobody in particular"},
    "rung": {
        Stage.AT_ONCE: "Before a reminder",
        Stage.REMINDED: "After a reminder",
        Stage.EVERYBODY: "After everybody was asked",
    },
}
_WAITED_TITLES = {"kind": "Kind", "step": "Step", "person": "Who was asked", "rung": "Answered"}
#: Steps and people on the page; the export has all.
_MOST_WAITS = 10


def _answer_times(times: AnswerTimes) -> dict[str, Any]:
    """Return the times with their tables: title, named rows, and how many rows are left out."""
    tables: list[tuple[str, list[tuple[str, Waits]], int]] = []
    for by, part in times.parts.items():
        named = [(_WAITED_ON[by].get(one.name, one.name), one) for one in part[:_MOST_WAITS]]
        tables.append((_WAITED_TITLES[by], named, len(part) - len(named)))
    return {"times": times, "waits": tables, "most_waited": MOST_QUESTIONS}


def _parse_options(principal: Principal, asked: QueryDict) -> UsageOptions:
    faults: list[str] = []
    project = storable_text(asked.get("project", ""))[:100].strip()
    preset = asked.get("period", "")
    today = timezone.now().date()
    since, until = _day(asked, "from", faults), _day(asked, "to", faults)
    if preset not in PERIODS and (since or until):
        period, preset = _own_period(since, until, today, faults), ""
    else:
        if preset not in PERIODS:
            preset = "30"
        if preset == "all":
            first = first_day(principal, project) or today
            period = Period(max(first, today - MAX_PERIOD), today)
        else:
            period = Period(today - timedelta(days=int(preset) - 1), today)
    bucket = _fitting_bucket(asked.get("bucket", ""), period)
    by, measure = asked.get("by", ""), asked.get("measure", "")
    if by not in BYS:
        by = "model"
    if measure not in MEASURES:
        measure = "dollars"
    return UsageOptions(period, preset, bucket, by, measure, project, faults)


def _day(asked: QueryDict, name: str, faults: list[str]) -> date | None:
    value = storable_text(asked.get(name, "").strip()[:40])
    if not value:
        return None
    try:
        day = date.fromisoformat(value)
    except ValueError:
        day = date.min
    if day.year in _YEARS:
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


def _fitting_bucket(asked: str, period: Period) -> Bucket:
    if asked in set(Bucket):
        if len(period.buckets(Bucket(asked))) > _MOST_BUCKETS:
            return Bucket.MONTH
        return Bucket(asked)
    if period.days <= 62:
        return Bucket.DAY
    if period.days <= 400:
        return Bucket.WEEK
    return Bucket.MONTH


def _bucketed(
    options: UsageOptions, days: Mapping[date, Mapping[str, Usage]]
) -> dict[date, dict[str, Usage]]:
    """Return usage by bucket, including empty ones."""
    found: dict[date, dict[str, Usage]] = {start: {} for start in options.period.buckets(options.bucket)}
    for day, used in days.items():
        bucket = found[options.bucket.start(day)]
        for name, amount in used.items():
            bucket[name] = bucket.get(name, Usage()) + amount
    return found


def _series(options: UsageOptions, used: UsageInPeriod) -> dict[str, list[Usage]]:
    """Return usage in each bucket by name: the largest ones, and the others together."""
    buckets = _bucketed(options, used.by_day)
    totals = used.parts[options.dimension]
    ranked = sorted(totals, key=lambda name: (-_measured(totals[name], options.measure), name))
    own = ranked
    if len(ranked) > _SERIES + 1:
        own = ranked[:_SERIES]
    series = {
        name or _NAMELESS[options.dimension]: [bucket.get(name, Usage()) for bucket in buckets.values()]
        for name in own
    }
    if rest := ranked[len(own) :]:
        series[_OTHERS] = [
            sum((bucket[name] for name in rest if name in bucket), Usage()) for bucket in buckets.values()
        ]
    return series


def _measured(used: Usage, measure: str) -> float:
    return used.cost_usd if measure == "dollars" else used.read_tokens + used.output_tokens


def _format_amount(measure: str) -> Say:
    return amount_of_dollars if measure == "dollars" else lambda amount: count(round(amount))


def _bucket_names(start: date, options: UsageOptions) -> tuple[str, str]:
    if options.bucket is Bucket.MONTH:
        return f"{start:%b %Y}", f"{start:%B %Y}"
    short = f"{start.day} {start:%b}"
    return short, f"{start:%Y-%m-%d}" if options.bucket is Bucket.DAY else f"week of {start:%Y-%m-%d}"


def _table(options: UsageOptions, series: Mapping[str, list[Usage]]) -> list[tuple[str, list[str], str]]:
    """Return the numbers of the chart, for buckets with usage."""
    say = _format_amount(options.measure)
    rows = []
    for number, start in enumerate(options.period.buckets(options.bucket)):
        amounts = [_measured(used[number], options.measure) for used in series.values()]
        if any(amounts):
            cells = [say(amount) if amount else "" for amount in amounts]
            rows.append((_bucket_names(start, options)[1], cells, say(sum(amounts))))
    return rows


def _table_lines(used: Mapping[str, Usage], by: By, measure: str) -> list[Line]:
    ranked = sorted(used.items(), key=lambda one: (-_measured(one[1], measure), one[0]))
    largest = max((_measured(amount, measure) for _, amount in ranked), default=0.0) or 1.0
    return [
        Line(name or _NAMELESS[by], amount, f"{_measured(amount, measure) / largest * 100:.1f}%")
        for name, amount in ranked
    ]


def _change_in_words(used: UsageInPeriod, measure: str) -> str:
    """Describe the change since the preceding period."""
    before, now = _measured(used.before, measure), _measured(used.total, measure)
    if not before:
        return "none in the previous period" if now else ""
    change = (now - before) / before * 100
    sign = "+" if change >= 0 else "−"
    words = f"{sign}{abs(change):,.0f} %"
    if abs(change) >= 1000:
        words = f"{now / before:,.0f} times as much"
    return f"{words}, {_format_amount(measure)(before)} in the previous period"


def _links(options: UsageOptions) -> dict[str, list[tuple[str, str, bool]]]:
    """Return URL, label, and whether it is selected, of each link."""
    buckets = {one.value: f"by {one}" for one in Bucket if len(options.period.buckets(one)) <= _MOST_BUCKETS}
    return {
        "periods": [
            (options.query(period=key), words, key == options.preset) for key, words in PERIODS.items()
        ],
        "buckets": [
            (options.query(bucket=key), words, key == options.bucket) for key, words in buckets.items()
        ],
        "bys": [(options.query(by=key), f"by {key}", key == options.by) for key in BYS],
        "measures": [
            (options.query(measure=key), words, key == options.measure) for key, words in MEASURES.items()
        ],
    }


def _export_rows(
    options: UsageOptions, buckets: Mapping[date, Mapping[str, Usage]]
) -> Iterator[dict[str, Any]]:
    for start, used in buckets.items():
        end = min(options.bucket.next(start) - timedelta(days=1), options.period.until)
        for name in sorted(used):
            amount = used[name]
            yield {
                "from": max(start, options.period.since).isoformat(),
                "to": end.isoformat(),
                "name": name or _NAMELESS[options.dimension],
                "input_tokens": amount.input_tokens,
                "output_tokens": amount.output_tokens,
                "cache_write_tokens": amount.cache_write_tokens,
                "cache_read_tokens": amount.cache_read_tokens,
                "cost_usd": round(amount.cost_usd, 6),
            }
