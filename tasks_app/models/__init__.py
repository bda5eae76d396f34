"""The rows. Django looks for models here; everything else is in the module of its noun."""

from tasks_app.models.people import Membership, Role, User
from tasks_app.models.project import Project
from tasks_app.models.question import Channel, Question, QuestionKind, QuestionState
from tasks_app.models.run import Event, EventKind, Outcome, Reason, Run
from tasks_app.models.sequence import Sequence
from tasks_app.models.task import Step, Task
from tasks_app.models.trail import Change, ChangeKind, Transition
from tasks_app.models.transcript import SessionEntry

__all__ = [
    "Change",
    "ChangeKind",
    "Channel",
    "Event",
    "EventKind",
    "Membership",
    "Outcome",
    "Project",
    "Question",
    "QuestionKind",
    "QuestionState",
    "Reason",
    "Role",
    "Run",
    "Sequence",
    "SessionEntry",
    "Step",
    "Task",
    "Transition",
    "User",
]
