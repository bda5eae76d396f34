# Runs in the jail, in the agent's clone. Records the working tree without touching the agent's index,
# HEAD or files: own index, a commit on top of HEAD, a ref, and a pack of what the portal lacks.
#
# Given: GIT_DIR, GIT_WORK_TREE, author and committer, LABEL, MESSAGE, OUTCOME: a folder with the
# file `known` (commits that the portal has, one a line), to write the files `commit` and `pack` into.
set -eu

export GIT_OPTIONAL_LOCKS=0 GIT_NO_REPLACE_OBJECTS=1 GIT_NO_LAZY_FETCH=1 GIT_TERMINAL_PROMPT=0

# Filters (Git LFS) are left in force: they decide what a file's content is, and run in the jail.
git() {
  command git -c core.hooksPath=/dev/null -c core.fsmonitor=false -c core.untrackedCache=false \
    -c core.splitIndex=false -c core.sparseCheckout=false -c core.bare=false -c gc.auto=0 \
    -c advice.addEmbeddedRepo=false "$@"
}

commit_and_tree=$(git rev-parse --quiet 'HEAD^{commit}' 'HEAD^{tree}' 2>/dev/null) || {
  git rev-parse --git-dir >/dev/null
  echo "HEAD does not name a commit." >&2
  exit 1
}
head=${commit_and_tree%%[!0-9a-f]*}

# Files that the agent added although they are ignored are in its index alone.
git diff-index --cached --name-only -z --diff-filter=A "$head" -- >"$OUTCOME/added"

# A fresh index: a copy of the agent's would keep its "assume unchanged" marks, which hide changes.
export GIT_INDEX_FILE="$OUTCOME/index"
git read-tree "$head"
git add --all -- .
if [ -s "$OUTCOME/added" ]; then git update-index --add --remove -z --stdin <"$OUTCOME/added"; fi

tree=$(git write-tree)
commit=$head
if [ "$tree" != "${commit_and_tree##*[!0-9a-f]}" ]; then
  commit=$(git commit-tree -p "$head" -m "$MESSAGE" "$tree")
fi
git update-ref "refs/cat-herder/$LABEL" "$commit"

# Of a commit that the clone lacks (another task's of the sequence) git would not know what it has.
{
  echo "$commit"
  git cat-file --batch-check='%(objecttype) %(objectname)' <"$OUTCOME/known" |
    while read -r type known; do
      if [ "$type" = commit ]; then echo "^$known"; fi
    done
} >"$OUTCOME/wanted"
git pack-objects --revs --stdout -q <"$OUTCOME/wanted" >"$OUTCOME/pack"
echo "$commit" >"$OUTCOME/commit"
