(** T5: entropy falls as inverse temperature grows. *)

Require Import Reals Lra Lia Psatz.
Require Import Sum Softmax.
Open Scope R_scope.

(* The mean of the logits l under the coefficients of b l. *)
Definition mean_at (n : nat) (l : nat -> R) (b : R) : R :=
  sum n (fun i => alpha n (fun j => b * l j) i * l i).

(* Gibbs between two temperatures. *)
Lemma gibbs_at n l b b' :
  (1 <= n)%nat ->
  entropy n (fun j => b * l j) <= ln (Z n (fun j => b' * l j)) - b' * mean_at n l b.
Proof.
  intros Hn. assert (H := gibbs n (fun j => b * l j) (fun j => b' * l j) Hn).
  unfold mean_at. rewrite <- sum_scal.
  rewrite (sum_ext n (fun i => b' * _) (fun i => alpha n (fun j => b * l j) i * (b' * l i)))
    by (intros; ring). exact H.
Qed.

(* The entropy at a temperature. *)
Lemma entropy_at n l b :
  (1 <= n)%nat -> entropy n (fun j => b * l j) = ln (Z n (fun j => b * l j)) - b * mean_at n l b.
Proof.
  intros Hn. rewrite entropy_Z by exact Hn. unfold mean_at. rewrite <- sum_scal.
  f_equal. apply sum_ext. intros. ring.
Qed.

(* T5: the larger the inverse temperature, the smaller the entropy. *)
Theorem T5 n l b b' :
  (1 <= n)%nat -> 0 <= b <= b' -> entropy n (fun j => b' * l j) <= entropy n (fun j => b * l j).
Proof.
  intros Hn Hb.
  assert (H1 := gibbs_at n l b b' Hn). assert (H2 := gibbs_at n l b' b Hn).
  rewrite (entropy_at n l b), (entropy_at n l b') in * by exact Hn.
  destruct (Rle_lt_or_eq_dec b b' (proj2 Hb)) as [H|H]; [|subst; lra].
  assert (mean_at n l b <= mean_at n l b') by nra. nra.
Qed.
