"""Words of questions about software: without meaning, with little, with the same, with the opposite one."""

from __future__ import annotations

_STOP_WORDS = """
    a about after all already also am an and any are as at be because been before being both but by can
    cannot could did do does doing done each either else for from get give go had has have having here
    how i if in into is it its itself just like ll may me might more most must my need needs neither no
    nor now of off on once one only or other our out over own please prefer preferred re s same shall
    she should so some such t than that the their them then there these they this those though to too
    under until up us very want was way we were what when where whether which while who whom why will
    with within would yes you your yours
"""
#: Words that say nothing about what is asked.
STOP_WORDS = frozenset(_STOP_WORDS.split())

_SAME = """
    authentication auth authenticate authn login signin
    authorization authorisation authorize authz
    database db databases datastore
    configuration config configure configs settings setting options
    repository repo repos repositories
    delete remove drop deleting removing dropping removed deleted dropped removal deletion
    add introduce adding introducing added
    create make creating making generate generating created
    store save keep persist storing saving keeping persisting stored saved kept persisted storage
    endpoint route endpoints routes
    parameter param argument arg parameters params arguments args
    library package dependency libraries packages dependencies module
    javascript js
    typescript ts
    postgresql postgres pg psql
    kubernetes k8s
    environment env
    directory folder dir directories folders
    error exception failure errors exceptions failures
    fail failing fails failed
    log logging logs logged
    documentation docs doc document
    test tests testing tested
    job task worker jobs tasks
    field column attribute fields columns attributes
    update change modify edit updating changing modifying changed updated modified
    rename renaming renamed
    version release versions
    request call requests calls
    wait timeout waiting
    retry retries retrying reattempt
    limit maximum max cap
    size length
    date day time timestamp dates times datetime
    timezone zone tz
    message text messages
    email mail emails mails
    user account users accounts person people customer customers
    implement build write implementing building writing
    use adopt using choose pick go used select
    approach strategy way method
    format layout
    support handle supporting handling handled supported
    api interface
    ui frontend
    backend server
    permission role permissions roles access
    branch branches
    cache caching cached memoize
    expire expiry expiration expired expires
    session sessions
    validate validation check verify validating checking
    image picture images pictures
    sort order sorting ordering sorted ordered
    page pagination paging paginate pages paginated
    round rounding rounded
    price amount prices amounts
    encrypt encryption encrypted
    hash hashing hashed
"""
#: The word that stands for each of those that programmers use for the same thing.
MEANS: dict[str, str] = {
    word: line.split()[0] for line in _SAME.strip().splitlines() for word in reversed(line.split())
}

_COMMON = """
    add create use update implement support approach test file code function class new existing current
    default error api version format user request configuration endpoint value type name data list field
    different two first handle happen behaviour behavior project app application service option question
    set store delete document library
"""
#: Words that questions share without being about the same thing.
COMMON = frozenset(_COMMON.split())

_OPPOSITES = """
    add/delete store/delete enable/disable allow/forbid allow/deny read/write client/server
    frontend/backend staging/production development/production old/new import/export upload/download
    start/stop input/output public/private internal/external minimum/maximum admin/user encrypt/hash
    upgrade/downgrade push/pull encode/decode increase/decrease open/close show/hide local/remote
    authentication/authorization create/delete ascending/descending sync/async subscribe/unsubscribe
    install/uninstall lock/unlock get/post ios/android row/column success/failure unit/integration
    light/dark
"""
#: Pairs of words: a question about one is not answered by an answer about the other.
OPPOSITES = [(one, other) for pair in _OPPOSITES.split() for one, other in [pair.split("/")]]
