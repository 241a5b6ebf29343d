#!/usr/bin/env bash
# Adds the commit that update.jsonl speaks of, in ./hello, with fixed names and dates.
set -eu
cd hello
echo "Hello again" >> README.md
export GIT_AUTHOR_NAME=Ada GIT_AUTHOR_EMAIL=ada@example.com GIT_AUTHOR_DATE=2026-01-02T00:00:00Z
export GIT_COMMITTER_NAME=Ada GIT_COMMITTER_EMAIL=ada@example.com GIT_COMMITTER_DATE=2026-01-02T00:00:00Z
git -c commit.gpgsign=false commit -q -a -m 'Say hello again'
git rev-parse HEAD
