"""The admin pages: every row, searchable. History that machines or humans wrote is read-only.

Each noun has its module; Django only needs them to be imported here.
"""

from tasks_app.web.admin import (
    accounts,
    audit,
    day_sums,
    notifications,
    projects,
    publications,
    questions,
    reviews,
    tasks,
    workers,
)
