"""Everything that a browser sees: pages, forms, rendering, live updates, accounts, the audit log.

Pages show rows and call services; they decide nothing. Templates are in `templates/`.
"""
