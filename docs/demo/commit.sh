#!/usr/bin/env bash
# Makes the repository that state.json speaks of, in ./hello. Names and dates are fixed, so that the
# commit has the id that was signed.
set -eu
git init -q -b main hello
cd hello
echo "Hello, GRASP" > README.md
git add README.md
export GIT_AUTHOR_NAME=Ada GIT_AUTHOR_EMAIL=ada@example.com GIT_AUTHOR_DATE=2026-01-01T00:00:00Z
export GIT_COMMITTER_NAME=Ada GIT_COMMITTER_EMAIL=ada@example.com GIT_COMMITTER_DATE=2026-01-01T00:00:00Z
git -c commit.gpgsign=false commit -q -m 'Say hello'
git rev-parse HEAD
