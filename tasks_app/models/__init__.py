"""All models, imported here because Django looks for them here; each noun has a module, however short."""

from tasks_app.models.audit import Action, AuditEntry
from tasks_app.models.browser_session import BrowserSession
from tasks_app.models.day_sums import ChangedDay, DayFigures, ModelUsage, PersonUsage, SummedDay
from tasks_app.models.decision import (
    DECISION_SHOWN_WITH,
    Citation,
    Decision,
    DecisionEvent,
    DecisionEventKind,
    DecisionScope,
    DecisionState,
    ReviewReason,
    counted_confirmations,
)
from tasks_app.models.delivery import Delivery, DeliveryState
from tasks_app.models.event_block import EventBlock
from tasks_app.models.idempotency import IdempotencyKey
from tasks_app.models.indexed_answer import IndexedAnswer
from tasks_app.models.installation import Installation
from tasks_app.models.invitation import Invitation
from tasks_app.models.notification import (
    EVENT_TYPE_OF,
    TASK_EVENT_TYPES,
    Digest,
    EventType,
    Medium,
    Notice,
    Preferences,
    ProjectSelection,
    Target,
    TaskSelection,
)
from tasks_app.models.project import Project
from tasks_app.models.publication import (
    CredentialKind,
    Publication,
    PublicationState,
    PublishCredential,
)
from tasks_app.models.pull_request import PullRequest
from tasks_app.models.push import PushSubscription
from tasks_app.models.question import (
    CLAIM_LASTS,
    KIND_NAMES,
    SHOWN_WITH,
    VERDICTS,
    Channel,
    Question,
    QuestionKind,
    QuestionState,
    Verdict,
)
from tasks_app.models.review import (
    Review,
    ReviewThread,
    ReviewVerdict,
    Side,
    ThreadComment,
    ThreadState,
    ViewedFile,
)
from tasks_app.models.run import Event, EventKind, Outcome, Reason, Run
from tasks_app.models.sent_span import SentSpan
from tasks_app.models.sequence import Sequence
from tasks_app.models.setup import Setup, SetupCache, SetupOutcome
from tasks_app.models.step import Step, StepKind
from tasks_app.models.task import EarlyEnd, Task
from tasks_app.models.token import ApiToken, Scope
from tasks_app.models.transcript import SessionEntry
from tasks_app.models.transition import Change, ChangeKind, SequenceTransition, Transition
from tasks_app.models.user import ACTING_ROLES, Membership, Role, Theme, User
from tasks_app.models.worker import WorkerBeat, WorkerToken

__all__ = [
    "ACTING_ROLES",
    "CLAIM_LASTS",
    "DECISION_SHOWN_WITH",
    "EVENT_TYPE_OF",
    "KIND_NAMES",
    "SHOWN_WITH",
    "TASK_EVENT_TYPES",
    "VERDICTS",
    "Action",
    "ApiToken",
    "AuditEntry",
    "BrowserSession",
    "Change",
    "ChangeKind",
    "ChangedDay",
    "Channel",
    "Citation",
    "CredentialKind",
    "DayFigures",
    "Decision",
    "DecisionEvent",
    "DecisionEventKind",
    "DecisionScope",
    "DecisionState",
    "Delivery",
    "DeliveryState",
    "Digest",
    "EarlyEnd",
    "Event",
    "EventBlock",
    "EventKind",
    "EventType",
    "IdempotencyKey",
    "IndexedAnswer",
    "Installation",
    "Invitation",
    "Medium",
    "Membership",
    "ModelUsage",
    "Notice",
    "Outcome",
    "PersonUsage",
    "Preferences",
    "Project",
    "ProjectSelection",
    "Publication",
    "PublicationState",
    "PublishCredential",
    "PullRequest",
    "PushSubscription",
    "Question",
    "QuestionKind",
    "QuestionState",
    "Reason",
    "Review",
    "ReviewReason",
    "ReviewThread",
    "ReviewVerdict",
    "Role",
    "Run",
    "Scope",
    "SentSpan",
    "Sequence",
    "SequenceTransition",
    "SessionEntry",
    "Setup",
    "SetupCache",
    "SetupOutcome",
    "Side",
    "Step",
    "StepKind",
    "SummedDay",
    "Target",
    "Task",
    "TaskSelection",
    "Theme",
    "ThreadComment",
    "ThreadState",
    "Transition",
    "User",
    "Verdict",
    "ViewedFile",
    "WorkerBeat",
    "WorkerToken",
    "counted_confirmations",
]
