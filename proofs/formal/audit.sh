#!/usr/bin/env bash
# No unproved step, no axiom of our own, no theorem that escapes the audit. Run by make.
set -euo pipefail
export LC_ALL=C
cd "$(dirname "${BASH_SOURCE[0]}")"
coqc=${COQC:-coqc}

fail() { echo "audit: $*" >&2; exit 1; }

# 1. Words that leave a proof open, add an assumption or loosen the checker.
words='Admitted|admit|give_up|Abort|Axioms?|Parameters?|Conjectures?|Hypothes[ie]s|Variables?'
words+='|Context|Declare|Unset|Primitive|bypass_check|type_in_type|Load|Extraction'
if grep -nwE "$words" ./*.v; then fail "forbidden words, above"; fi

# 2. Every T-theorem of a file is stated in Statements.v, and all of those are in the audit.
stated=$(sed -n 's/^Theorem \([A-Za-z0-9_]*\).*/\1/p' Statements.v | sort)
[ -z "$(uniq -d <<< "$stated")" ] || fail "a statement twice: $(uniq -d <<< "$stated")"
shopt -s extglob
proved=$(sed -n 's/^Theorem \(T[0-9][A-Za-z0-9_]*\).*/\1/p' !(Statements|Refuted).v | sort)
missing=$(comm -23 <(echo "$proved") <(echo "$stated"))
[ -z "$missing" ] || fail "not in Statements.v: $missing"
audited=$(tr -c 'A-Za-z0-9_\n' '\n' < Audit.v | grep -xE '(T[0-9][A-Za-z0-9_]*|[a-z]+(_[a-z]+)*)' |
  sort -u | comm -12 - <(echo "$stated"))
missing=$(comm -13 <(echo "$audited") <(echo "$stated"))
[ -z "$missing" ] || fail "not in Audit.v: $missing"

# 3. Together they rest on the axioms of Coq's real numbers, and on nothing else.
found=$("$coqc" -q -Q . "" Audit.v) || fail "Audit.v does not compile"
# a name at the beginning of a line; its type is indented
axioms=$(sed -n 's/^\([^ :][^ :]*\).*/\1/p' <<< "$found" | grep -vx 'Axioms' | sort)
if ! diff <(echo "$axioms") <(sort expected-axioms.txt); then
  fail "the axioms (<) are not those of expected-axioms.txt (>)"
fi
theorems=$(grep -c . <<< "$stated")
echo "audit: $theorems theorems rest on $(grep -c . <<< "$axioms") axioms of Coq's reals"
