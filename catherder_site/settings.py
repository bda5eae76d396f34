"""Django's settings. The variables of an installation are in `environment.py`."""

import os
from typing import Any
from urllib.parse import urlsplit as _urlsplit

import dj_database_url
from csp.constants import NONCE, NONE, SELF
from huey import Huey, RedisHuey
from redis import ConnectionPool

from catherder_site.queue import JobSerializer, QueueFile
from tasks_app.core import environment as _environment
from tasks_app.core.files import prepare_data_dir as _prepare_data_dir

BASE_DIR = _environment.BASE_DIR
ENVIRONMENT = _environment.load(os.environ)
DATA_DIR = _prepare_data_dir(ENVIRONMENT.data_dir)
SECRET_KEY = _environment.secret_key(ENVIRONMENT)
DEBUG = False

ALLOWED_HOSTS = ["localhost", "127.0.0.1", "[::1]"]
CSRF_TRUSTED_ORIGINS: list[str] = []
if ENVIRONMENT.bind.host not in {"0.0.0.0", "::"}:
    ALLOWED_HOSTS.append(ENVIRONMENT.bind.host)
if ENVIRONMENT.url:
    _origin = _urlsplit(ENVIRONMENT.url)
    ALLOWED_HOSTS.append(_origin.netloc.removesuffix(f":{_origin.port}"))
    CSRF_TRUSTED_ORIGINS.append(ENVIRONMENT.url)
_https = bool(ENVIRONMENT.url and ENVIRONMENT.url.startswith("https://"))
SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = _https
if _https:
    # Browsers take such cookies only from this very host over https, so no neighbour can set one.
    SESSION_COOKIE_NAME, CSRF_COOKIE_NAME = "__Host-sessionid", "__Host-csrftoken"
    SECURE_HSTS_SECONDS = 365 * 24 * 3600
SESSION_COOKIE_SAMESITE = CSRF_COOKIE_SAMESITE = "Lax"
SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https") if _https else None
X_FRAME_OPTIONS = "DENY"

INSTALLED_APPS = [
    "catherder_site.admin_config.GroupedAdminConfig",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "allauth",
    "allauth.account",
    "allauth.socialaccount",
    "allauth.socialaccount.providers.openid_connect",
    "allauth.socialaccount.providers.github",
    "allauth.mfa",
    "channels",
    "csp",
    "django_htmx",
    "huey.contrib.djhuey",
    "ninja",  # for the static files of Swagger UI
    "tasks_app",
]

MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "servestatic.middleware.ServeStaticMiddleware",
    "catherder_site.request_slots.request_slots",
    "csp.middleware.CSPMiddleware",
    "tasks_app.web.middleware.NoStore",
    "tasks_app.api.error_middleware.problems_below_api",
    "tasks_app.web.audit.audit_origin",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "tasks_app.web.accounts.sessions.LoginRedirect",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "django_htmx.middleware.HtmxMiddleware",
    "tasks_app.web.middleware.confirm_stored_drafts",
    "tasks_app.web.middleware.reader_time_zone",
    "allauth.account.middleware.AccountMiddleware",
    "tasks_app.web.accounts.sessions.LastSeen",
    "tasks_app.web.accounts.sessions.RequiredSecondFactor",
    "tasks_app.web.accounts.attempts.HashingBusyResponse",
    "tasks_app.web.audit.Refusals",
    "tasks_app.web.middleware.visible_directions",
    "tasks_app.web.middleware.method_not_allowed_page",
    "tasks_app.web.middleware.single_stack_chunk",
]

CONTENT_SECURITY_POLICY: dict[str, Any] = {
    "DIRECTIVES": {
        "default-src": [SELF],
        "script-src": [SELF, NONCE],
        "style-src": [SELF],
        "img-src": [SELF, "data:"],
        "object-src": [NONE],
        "base-uri": [NONE],
        "form-action": [SELF],
        "frame-ancestors": [NONE],
    }
}

ROOT_URLCONF = "catherder_site.urls"
ASGI_APPLICATION = "catherder_site.asgi.application"
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        # Before other applications: some of our templates replace theirs.
        "DIRS": [_environment.shipped_folder("templates")],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
                "tasks_app.web.frame.installation",
            ]
        },
    }
]

DATABASES: dict[str, Any] = {
    "default": dj_database_url.parse(
        ENVIRONMENT.database_url or f"sqlite:///{DATA_DIR / 'catherder.sqlite3'}", conn_health_checks=True
    )
}
if DATABASES["default"]["ENGINE"] == "django.db.backends.sqlite3":
    DATABASES["default"]["ENGINE"] = "catherder_site.sqlite"
    DATABASES["default"]["OPTIONS"] = {
        # Deferred transactions fail under two writers; FULL because an answer must survive a power cut.
        "transaction_mode": "IMMEDIATE",
        "timeout": 20,
        "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; PRAGMA foreign_keys=ON;",
        **DATABASES["default"].get("OPTIONS", {}),
    }
else:
    DATABASES["default"]["ENGINE"] = "catherder_site.postgresql"
    DATABASES["default"]["OPTIONS"] = {
        # A server that is gone, or hangs, must neither hold a worker's slot nor a page for minutes.
        "connect_timeout": 5,
        "answer_seconds": 20,
        # Nor must a worker that is lost in a transaction keep others from its task; see LEASE_SECONDS.
        "idle_seconds": 30,
        "keepalives_idle": 15,
        "keepalives_interval": 5,
        "keepalives_count": 3,
        "tcp_user_timeout": 20_000,
        **DATABASES["default"].get("OPTIONS", {}),
    }
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

AUTH_USER_MODEL = "tasks_app.User"
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": f"django.contrib.auth.password_validation.{name}"}
    for name in ("UserAttributeSimilarityValidator", "MinimumLengthValidator", "CommonPasswordValidator")
]
PASSWORD_HASHERS = ["tasks_app.web.accounts.attempts.QueuedHasher"]
AUTHENTICATION_BACKENDS = ["allauth.account.auth_backends.AuthenticationBackend"]
SESSION_ENGINE = "tasks_app.web.accounts.sessions"

ACCOUNT_ADAPTER = "tasks_app.web.accounts.adapter.AccountAdapter"
ACCOUNT_FORMS = {
    "login": "tasks_app.web.accounts.pages.LoginForm",
    "change_password": "tasks_app.web.accounts.pages.ChangePasswordForm",
    "set_password": "tasks_app.web.accounts.pages.SetPasswordForm",
    "reset_password_from_key": "tasks_app.web.accounts.pages.ResetPasswordKeyForm",
}
ACCOUNT_LOGIN_METHODS = {"username", "email"}
ACCOUNT_SIGNUP_FIELDS = ["username*", "email", "password1*"]
ACCOUNT_EMAIL_VERIFICATION = "none"
ACCOUNT_CHANGE_EMAIL = True
ACCOUNT_EMAIL_UNKNOWN_ACCOUNTS = False
ACCOUNT_EMAIL_SUBJECT_PREFIX = "[Cat Herder] "
ACCOUNT_DEFAULT_HTTP_PROTOCOL = "https" if _https else "http"
ACCOUNT_REAUTHENTICATION_REQUIRED = True
ACCOUNT_SESSION_REMEMBER = True
# Many people may share an IP address, so it may try often; one name from one IP address may not.
ACCOUNT_RATE_LIMITS = {
    "login": "120/m/ip",
    "login_failed": "5/5m/key",
    "login_failed_anywhere": "100/h/key",
    "login_failed_known": "20/h/key",
    # Calls that are refused count by IP address, signed ones by project: nobody can use up the limit of a
    # forge that has the same IP address as they.
    "webhook_refused": "600/m/ip",
    "webhook_signed": "600/m/key",
}

SOCIALACCOUNT_ADAPTER = "tasks_app.web.accounts.adapter.SocialAccountAdapter"
SOCIALACCOUNT_EMAIL_AUTHENTICATION_AUTO_CONNECT = True
SOCIALACCOUNT_QUERY_EMAIL = True
SOCIALACCOUNT_PROVIDERS: dict[str, Any] = {}
if ENVIRONMENT.oidc_issuer:
    SOCIALACCOUNT_PROVIDERS["openid_connect"] = {
        "OAUTH_PKCE_ENABLED": True,
        "APPS": [
            {
                "provider_id": "oidc",
                "name": ENVIRONMENT.oidc_name,
                "client_id": ENVIRONMENT.oidc_client_id,
                "secret": ENVIRONMENT.oidc_client_secret,
                "settings": {"server_url": ENVIRONMENT.oidc_issuer},
            }
        ],
    }
if ENVIRONMENT.github_client_id:
    SOCIALACCOUNT_PROVIDERS["github"] = {
        "APPS": [{"client_id": ENVIRONMENT.github_client_id, "secret": ENVIRONMENT.github_client_secret}],
        **({"GITHUB_URL": ENVIRONMENT.github_url} if ENVIRONMENT.github_url else {}),
    }

MFA_ADAPTER = "tasks_app.web.accounts.adapter.SecondFactorAdapter"
MFA_FORMS = {
    "activate_totp": "tasks_app.web.accounts.pages.ActivateTOTPForm",
    "authenticate": "tasks_app.web.accounts.pages.AuthenticateForm",
    "reauthenticate": "tasks_app.web.accounts.pages.ReauthenticateForm",
}
MFA_SUPPORTED_TYPES = ["totp", "recovery_codes"]
MFA_TOTP_ISSUER = "Cat Herder"
MFA_TOTP_TOLERANCE = 1
MFA_ALLOW_UNVERIFIED_EMAIL = True

LOGIN_URL = "login"
LOGIN_REDIRECT_URL = "tasks"
LOGOUT_REDIRECT_URL = "login"

# Delivery is at most once and a job only says "look at task N": the rows are the truth (ARCHITECTURE.md).
_queue: dict[str, Any] = {
    "name": "cat-herder",
    "results": False,
    "serializer": JobSerializer(secret=_environment.queue_secret(ENVIRONMENT)),
    "immediate": False,
}
if ENVIRONMENT.redis_url:
    # A reader waits for a job for one second; nobody waits for longer than two.
    _pool = ConnectionPool.from_url(ENVIRONMENT.redis_url, socket_connect_timeout=2, socket_timeout=2)
    HUEY = RedisHuey(connection_pool=_pool, **_queue)
else:
    HUEY = Huey(storage_class=QueueFile, filename=DATA_DIR / "huey.sqlite3", **_queue)

# It counts attempts to log in, and a stranger's must not keep the database busy: so memory, not a table. One
# machine has one web process, and a restart is in no stranger's hand; several machines share a Redis.
CACHES = {
    "default": {
        "BACKEND": "tasks_app.web.accounts.attempts.RedisOrMemoryCache",
        "LOCATION": ENVIRONMENT.redis_url,
    }
    if ENVIRONMENT.redis_url
    else {
        "BACKEND": "django.core.cache.backends.locmem.LocMemCache",
        # With Django's 300 a stranger who tries enough other names makes the counts of one forgotten.
        "OPTIONS": {"MAX_ENTRIES": 200_000},
    }
}

#: Whether this installation can send e-mail; pages that would promise one ask this first.
SENDS_EMAIL = ENVIRONMENT.mail_server is not None
if ENVIRONMENT.mail_server:
    EMAIL_HOST = ENVIRONMENT.mail_server.host
    EMAIL_PORT = ENVIRONMENT.mail_server.port
    EMAIL_HOST_USER = ENVIRONMENT.mail_server.user
    EMAIL_HOST_PASSWORD = ENVIRONMENT.mail_server.password
    EMAIL_USE_TLS = ENVIRONMENT.mail_server.tls
    EMAIL_USE_SSL = ENVIRONMENT.mail_server.ssl
else:
    EMAIL_BACKEND = "django.core.mail.backends.dummy.EmailBackend"
EMAIL_TIMEOUT = 10
DEFAULT_FROM_EMAIL = SERVER_EMAIL = ENVIRONMENT.email_from or "cat-herder@localhost"

STATIC_URL = "static/"
STORAGES = {
    "default": {"BACKEND": "django.core.files.storage.FileSystemStorage"},
    "staticfiles": {"BACKEND": "django.contrib.staticfiles.storage.StaticFilesStorage"},
}
# Served from the packages themselves: no collectstatic step between a clone and a running portal.
SERVESTATIC_USE_FINDERS = True

# The form's own limit answers first, with a readable message; this one only bounds memory.
DATA_UPLOAD_MAX_MEMORY_SIZE = 8 * ENVIRONMENT.answer_limit + 1_000_000

LANGUAGE_CODE = "en"
TIME_ZONE = "UTC"
USE_TZ = True
USE_I18N = False
FORMAT_MODULE_PATH = "catherder_site.formats"

LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {
        "text": {
            "()": "catherder_site.logs.Formatter",
            "format": "%(asctime)s %(levelname)s %(name)s: %(message)s",
        },
        "json": {"()": "catherder_site.logs.JsonFormatter"},
    },
    "filters": {
        "seldom_without_services": {"()": "catherder_site.logs.SeldomWithoutServices"},
        "seldom": {"()": "catherder_site.logs.Seldom"},
        "without_secrets": {"()": "catherder_site.logs.WithoutSecrets"},
    },
    "handlers": {
        "console": {
            "class": "logging.StreamHandler",
            "formatter": ENVIRONMENT.log_format,
            "filters": ["seldom_without_services"],
        }
    },
    "root": {"handlers": ["console"], "level": "WARNING"},
    "loggers": {
        # Scanners of the internet name any host and send anything; each gets its 400 and no traceback.
        **{
            f"django.security.{fault}": {"level": "CRITICAL"}
            for fault in ("DisallowedHost", "TooManyFieldsSent", "TooManyFilesSent", "RequestDataTooBig")
        },
        # What a page refuses is told on the page, and an address may hold the secret of an invitation.
        "django.request": {"level": "ERROR"},
        # What strangers can cause as often as they like must not fill the disk.
        "django.security.csrf": {"filters": ["seldom"]},
        "asyncio": {"filters": ["seldom"]},
        "uvicorn.error": {"filters": ["seldom"]},
        "uvicorn.access": {"filters": ["without_secrets"]},
        "tasks_app": {"level": "INFO"},
        "huey": {"level": "WARNING", "filters": ["seldom"]},
        # Logs each attempt to send spans; `span_exporter` logs when that begins to fail, and when it is over.
        "opentelemetry": {"level": "CRITICAL"},
        # Calls an agent that was stopped on purpose a fatal error; how a run ended is told by its row.
        "claude_agent_sdk._internal.query": {"level": "CRITICAL"},
    },
}
if ENVIRONMENT.log_format == "json":  # uvicorn has set up handlers of its own, for people
    _OWN_LINES: dict[str, Any] = {"handlers": ["console"], "level": "INFO", "propagate": False}
    LOGGING["loggers"] |= {  # type: ignore[operator]
        "uvicorn": _OWN_LINES,
        "uvicorn.access": {**_OWN_LINES, "filters": ["without_secrets"]},
    }
