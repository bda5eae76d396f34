"""One negative test per threat. What is attacked, and where the attack is tried:

| Threat | Tests |
| --- | --- |
| An agent reads the portal's secrets, database or another task | test_sandboxed_agent: no_secret_is_read |
| … sees worker, environment or machine | test_sandboxed_agent: the_worker, the_environment, machine |
| … writes orders, permissions, gate or answers | test_sandboxed_agent: a_run_can_write_neither, an_answer |
| … forges messages of its own program | test_sandboxed_agent: a_forged_message |
| … leaves processes behind | test_sandboxed_agent: nothing_outlives_the_run |
| … plants settings, hooks, servers or an "all hooks off" | test_sandboxed_agent: planted_settings |
| … uses the API key beyond its run | test_key; integration/test_key_proxy |
| … links PLAN.md or CLAUDE.md to a secret | test_texts: no_file_of_the_portal_gets_into_a_prompt |
| … replaces .git, plants filters and hooks for the portal's git | integration/test_workspace_git |
| … forges notes of `cat-herder ask` | test_texts: notes_of_any_name; integration/test_agent_home |
| … asks equal, empty, odd or a hundred questions | test_texts: equal_questions, an_ask_of_any_shape |
| … forges lines of a log, sections of a prompt, titles of terminals | test_texts: passes_for, title |
| … stalls the worker or a page with a command, a glob, YAML or Markdown | test_texts: holds_up, bomb |
| … writes calls of no known shape, numbers that are none | test_web: any_shape; test_texts: numbers |
| A repository runs programs in the portal | test_texts: a_hostile_repository, no_odd_source |
| Stored script in titles, questions, answers, logs, names | test_web: hostile_text; unit/test_rendering |
| Ways round `askBefore` that are plain bash | test_shell |
| The address of a chat has a file read and posted | test_chats |
| A call looks harmless to who approves it | test_approvals |
| A stranger or an outsider sees or does something | integration/test_access, test_live_socket |
| What others put into Redis | integration/test_login_attempts_cache; test_queue |
| Guessing passwords and codes; the own login of the admin pages | integration/test_login |
| Taking over an account by its address, or through another service | integration/test_single_sign_on |
| A stolen table of sessions, one that is over, any cookie | integration/test_login, test_sessions |
| Formulas in files that are taken away | test_exports |
| Staff who become site admins, or take the audit away | test_audit_log |
| Tokens that are over, made up or shown to pages; cookies without their token at the API | test_tokens |
| Links in mails to another port, counts of failures gone round | test_accounts |
| Invitations: guessed, used twice, left open by who was removed | integration/test_invitations |
| Another site, or another port, posts or listens for a user | test_web: no_other_site; test_live_socket |
| Framing, script without policy, pages kept by caches | test_web: every_page_has_its_policy |
| Session fixation, open redirect, foreign Host | test_web: a_session, the_login, only_known_hosts |
| Numbers and words of forms that are none | test_numbers |
| Bodies without end, JSON and numbers of any shape | test_web: a_body, json_of_any_shape, odd_numbers |
| An answer lost, doubled, or given to another question | test_answers; integration/test_answers |
| A step without a network reaches something | integration/test_step_network |
| A database or Redis of the portal that lets agents in without a password | test_open_services |
| No sandbox, and nobody notices | test_web: a_missing_sandbox; test_start |

Not bounded here: processes, memory and disk of an agent; logins that an attacker keeps throttled; services on
loopback that ask for no password. Without a sandbox an agent has the powers of the portal's own user, which
every page says.
"""
