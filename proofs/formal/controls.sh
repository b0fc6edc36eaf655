#!/usr/bin/env bash
# Near misses must not compile: each control changes one number, sign or factor of a statement or a
# definition, and the proof must then fail, in the place named and not for a slip of syntax. Where
# Refuted.v has not_THEOREM, the changed statement is also proved false. Run by make.
set -euo pipefail
export LC_ALL=C
cd "$(dirname "${BASH_SOURCE[0]}")"
coqc=${COQC:-coqc}
work=$(mktemp -d)
trap 'wait; rm -rf "$work"' EXIT

fail() { echo "controls: $*" >&2; exit 1; }

# The file with OLD replaced by NEW from the line that begins BLOCK up to its proof or a blank line.
changed() { # FILE BLOCK OLD NEW
  awk -v block="$2" -v old="$3" -v new="$4" '
    $1 ~ /^(Theorem|Definition|Fixpoint)$/ && $2 == block { inside = 1 }
    /^Proof|^$/ { inside = 0 }
    inside { rest = $0; line = ""
      while ((at = index(rest, old)) > 0) {
        line = line substr(rest, 1, at - 1) new; rest = substr(rest, at + length(old)); done = 1 }
      $0 = line rest }
    { print }
    END { if (!done) exit 3 }' "$1"
}

count=0
linked='Require Import Reals.
Require Import Sum Softmax SetMass Dispersion EntropyFloor Sink SoftCap Vectors Heads Budget.
Require Import Simplex Refuted Statements.
Open Scope R_scope.
'

refused() { # as control; in a folder of its own, so that two can run at once
  local file=$1.v block=$2 old=$3 new=$4 place=${5:-$2} out line at here
  here=$(mktemp -d "$work/XXXXXX")
  ln -s "$PWD"/*.vo "$here"
  rm -f "$here/$1.vo"
  changed "$file" "$block" "$old" "$new" > "$here/$file" || fail "$file: $block has no '$old'"
  if out=$("$coqc" -q -Q "$here" "" "$here/$file" 2>&1); then
    fail "$file: $block compiles with '$new' for '$old'"
  fi
  line=$(sed -n 's/^File .*, line \([0-9]*\), .*/\1/p' <<< "$out" | tail -1)
  [ -n "$line" ] || fail "$file: no line in: $out"
  at=$(awk -v line="$line" 'NR > line { exit }
    $1 ~ /^(Theorem|Lemma|Definition|Fixpoint)$/ { name = $2 } /^Proof/ { proof = name }
    END { print (proof == name ? name : name " before its proof") }' "$here/$file")
  [ "$at" = "$place" ] || fail "$file: '$new' for '$old' fails in $at, not in $place: $out"
  # a goal that does not close or does not match, nothing else
  reasons='No applicable tactic|Cannot find witness|not a valid (ring|field)'
  reasons+='|Unable to unify|Found no subterm|has type'
  grep -qE "$reasons" <<< "$out" || fail "$file: '$new' for '$old' fails for another reason: $out"
}

running=()
control() { # FILE BLOCK OLD NEW [where the proof fails, BLOCK if left out]
  local block=$2 statement
  if [ "${#running[@]}" = 2 ]; then wait "${running[0]}"; running=("${running[1]}"); fi
  refused "$@" &
  running+=("$!")
  count=$((count + 1))
  if grep -q "^Theorem not_$block " Refuted.v; then
    statement=$(changed Statements.v "$block" "$3" "$4") || fail "Statements.v: $block has no '$3'"
    statement=$(sed -n "/^Theorem $block :/,/^Proof/p" <<< "$statement" | sed '1d;$d')
    linked+="Definition claim_$block : Prop :=
$statement
Check $block.
Fail Check ($block : claim_$block).
Check (not_$block : ~ claim_$block).
"
  fi
}

control Dispersion T1_ceiling '(INR n - 1)' '(INR n)'
control Dispersion T1_floor 'exp s)' 'exp (- s))'
control SetMass T2_ceiling 'most' 'least'
control EntropyFloor T3_floor 'H_two n k s <=' 'H_two n k s <'
control Dispersion T4_length '((1 - p) / p)' '(1 - p)'
control Temperature T5 "0 <= b <= b'" "0 <= b' <= b"
control Sink T7_ceiling '(b - hi)' '(b - lo)'
control SoftCap T8_spread '2 * c * tanh' 'c * tanh'
control Heads T9_sigma '2 * sigma' 'sigma'
control Rotation commutes '= s (S (2 * p))' '= 2 * s (S (2 * p))' rotate_scaled
control Budget T11_equal 'INR m * INR g * sqrt' 'INR g * sqrt'
control Simplex T12_ceiling 'sigma * INR n / (INR n - 1)' 'sigma'
control Energy log_capacity 't + sum' 't / 2 + sum' energy_bound
control Energy log_factor '/ 2 * ln' '/ 4 * ln' rate_factor
control Energy log_factor '2 * (kappa / t) - 1' '2 * (kappa / t)' rate_factor
control Series central '2 * INR j + 1' '2 * INR j + 3' slope_equation
control EntropyShape turn '(exp s - 1)' 'exp s' turn_level
control SphereMean mean_term 'z * z / 4' 'z * z / 2' mean_term_exp
control Flat T13_flat 'exp kappa / M' 'exp kappa / (M * M)'
control Steep T13_steep '(2 * second)' 'second'
control Capacity T13_harmonic 'kappa e <= bound e' 'bound e <= kappa e'

for job in "${running[@]}"; do wait "$job"; done

refuted=$(grep -c '^Theorem not_' Refuted.v)
[ "$(grep -c '^Fail Check' <<< "$linked")" = "$refuted" ] ||
  fail "Refuted.v has one that is no control"
echo "$linked" > "$work/Linked.v"
"$coqc" -q -Q . "" -Q "$work" Controls "$work/Linked.v" > "$work/linked.out" 2>&1 ||
  fail "a changed statement is not what Refuted.v refutes: $(cat "$work/linked.out")"
echo "controls: $count near misses refused, $refuted of them proved false"
