#!/usr/bin/env bash
# Prints the C++ sources of the library that differ from a commit, one a line, for clang-tidy. A header stands for the
# source file beside it. New files count, files that are gone do not.
#
#   tools/changed_sources.sh [COMMIT]  default: the merge base with the target of a pull request (GITHUB_BASE_REF), else
#                                      the parent commit
#
# Where there is no such commit, as in a clone of depth one, it says so and exits with status 1.
set -euo pipefail
cd "$(dirname "$0")/.."

if [[ -n "${1:-}" ]]; then
  base=$1
elif [[ -n "${GITHUB_BASE_REF:-}" ]]; then
  base=$(git merge-base HEAD "origin/$GITHUB_BASE_REF" 2>/dev/null) || base="origin/$GITHUB_BASE_REF"
else
  base=HEAD^
fi
if ! git rev-parse --quiet --verify "$base^{commit}" >/dev/null 2>&1; then
  echo "there is no commit $base to compare with" >&2
  exit 1
fi

library=(common planner ir runtime rules passes backend register)
{
  git diff --name-only --diff-filter=d "$base" -- "${library[@]}"
  git ls-files --others --exclude-standard -- "${library[@]}"
} | while read -r file; do
  source=${file%.*}.cpp
  if [[ "$file" =~ \.(h|cpp)$ && -f "$source" ]]; then
    echo "$source"
  fi
done | sort -u
