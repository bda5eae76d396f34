"""All models, imported here because Django looks for them here."""

from tasks_app.models.account import ApiToken, BrowserSession, Invitation, Scope
from tasks_app.models.answer_draft import AnswerDraft
from tasks_app.models.asked import Asked, AskedBy, MemberGroup, asked_of, asked_of_groups_of, waits_for_others
from tasks_app.models.audit import Action, AuditEntry
from tasks_app.models.calendar import Calendar
from tasks_app.models.channel import Channel, through
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
from tasks_app.models.idempotency import IdempotencyKey
from tasks_app.models.indexed_answer import IndexedAnswer
from tasks_app.models.installation import Installation
from tasks_app.models.notification import (
    EVENT_TYPE_OF,
    TASK_EVENT_TYPES,
    Digest,
    EventType,
    Medium,
    Notice,
    Preferences,
    ProjectSelection,
    PushSubscription,
    Target,
    TaskSelection,
)
from tasks_app.models.project import Project
from tasks_app.models.publication import (
    CredentialKind,
    Publication,
    PublicationState,
    PublishCredential,
    PullRequest,
)
from tasks_app.models.question import CLAIM_LASTS, SHOWN_WITH, Question
from tasks_app.models.question_kinds import KIND_NAMES, VERDICTS, QuestionKind, QuestionState, Verdict
from tasks_app.models.review import (
    Review,
    ReviewThread,
    ReviewVerdict,
    Side,
    ThreadComment,
    ThreadState,
    ViewedFile,
)
from tasks_app.models.run import (
    Event,
    EventBlock,
    EventKind,
    Outcome,
    Reason,
    Run,
    SessionEntry,
    Setup,
    SetupCache,
    SetupOutcome,
    prefetch_answerers,
)
from tasks_app.models.rung import Rung, RungOutcome, by_urgency, climbed, deadline_of, next_rung
from tasks_app.models.sent_span import SentSpan
from tasks_app.models.sequence import Sequence
from tasks_app.models.step import Step, StepKind
from tasks_app.models.task import EarlyEnd, Task
from tasks_app.models.transition import Change, ChangeKind, SequenceTransition, Transition
from tasks_app.models.user import ACTING_ROLES, Membership, Role, Theme, User
from tasks_app.models.worker import WorkerBeat, WorkerToken
from tasks_app.models.working_hours import WorkingHours
