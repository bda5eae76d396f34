"""What a new task is likely to cost and what is left of its budgets, as lines in the terminal."""

from __future__ import annotations

from tasks_app.cli.screen import Screen
from tasks_app.core.dollars import dollars
from tasks_app.core.durations import duration_in_words
from tasks_app.reporting.schemas.costs import BudgetOut, ForecastOut, HasForecast


def say_forecast(known: HasForecast, screen: Screen) -> None:
    """Print what is known; nothing if there are no figures and no budgets."""
    if sentence := _forecast_sentence(known.forecast):
        screen.say(sentence)
    _say_budget("Project budget", known.budgets.project, screen)
    _say_budget("Your budget", known.budgets.person, screen)


def _forecast_sentence(forecast: ForecastOut) -> str:
    cost, working = forecast.cost_usd, forecast.working_seconds
    if cost is None or working is None:
        return ""
    return (
        f"{forecast.tasks} tasks of this pipeline done: median {dollars(cost.median)} and"
        f" {duration_in_words(working.median)} of work, 9 of 10 up to {dollars(cost.p90)} and"
        f" {duration_in_words(working.p90)}."
    )


def _say_budget(name: str, budget: BudgetOut | None, screen: Screen) -> None:
    if budget is None:
        return
    spent = f"{name}: {dollars(budget.spent_usd)} of {dollars(budget.budget_usd)} spent this month (UTC)."
    if budget.used_up:
        screen.say(f"{spent} No run begins until next month, or until it is raised.", style="yellow")
    else:
        screen.say(spent)
