"""The admin pages: every row, searchable. History that machines or humans wrote is read-only.

Django only needs the modules to be imported here.
"""

from tasks_app.web.admin import accounts, audit, installation, notifications, projects, tasks
