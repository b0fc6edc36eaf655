(** M(z), the mean of e^(z x) over the first coordinate x of the unit sphere in m dimensions, as its
    power series sum_k (z^2/4)^k / (k! (m/2)(m/2 + 1) .. (m/2 + k - 1)). *)

Require Import Reals Lra Lia Psatz.
Require Import Sum Series Convolution.
Open Scope R_scope.

Definition mean_term (m : nat) (z : R) (k : nat) : R :=
  (z * z / 4) ^ k / (INR (fact k) * INR (fact k) * rising (INR m / 2) k).
Definition sphere_mean (m : nat) (z M : R) : Prop :=
  Un_cv (fun K => sum (S K) (mean_term m z)) M.

(* Half of a positive number of coordinates is positive. *)
Lemma half_pos m : (1 <= m)%nat -> 0 < INR m / 2.
Proof. intros H. apply le_INR in H. simpl in H. lra. Qed.

(* Denominators are positive. *)
Lemma mean_denominator m k :
  (1 <= m)%nat -> 0 < INR (fact k) * INR (fact k) * rising (INR m / 2) k.
Proof.
  intros H. repeat apply Rmult_lt_0_compat; try apply INR_fact_lt_0.
  apply rising_pos, half_pos, H.
Qed.

(* The terms are not negative. *)
Lemma mean_term_nonneg m z k : (1 <= m)%nat -> 0 <= mean_term m z k.
Proof.
  intros H. apply Rmult_le_pos; [|left; apply Rinv_0_lt_compat, mean_denominator, H].
  apply pow_le. assert (S := Rle_0_sqr z). unfold Rsqr in S. lra.
Qed.

(* The series stays above its beginnings, so M >= 1. *)
Lemma mean_beginning m z M K :
  (1 <= m)%nat -> sphere_mean m z M -> sum (S K) (mean_term m z) <= M.
Proof.
  intros Hm HM. apply (growing_ineq (fun K => sum (S K) (mean_term m z))); [|exact HM].
  intros j. assert (H := mean_term_nonneg m z (S j) Hm). simpl in *. lra.
Qed.

(* (m/2)^k <= k! rising (m/2, k). *)
Lemma rising_power a k : 0 < a -> a ^ k <= INR (fact k) * rising a k.
Proof.
  intros Ha. induction k as [|k IH]; [simpl; lra|].
  rewrite fact_simpl, mult_INR. rewrite Rmult_assoc, (Rmult_comm (INR (fact k))), <- Rmult_assoc.
  rewrite rising_step. assert (0 <= INR k) by apply pos_INR.
  assert (P := rising_pos a k Ha). assert (Q := INR_fact_lt_0 k). simpl pow.
  replace ((a + 1 * INR k) * rising a k * INR (fact k))
    with (a * (INR (fact k) * rising a k) + INR k * (INR (fact k) * rising a k)) by ring.
  assert (0 <= INR k * (INR (fact k) * rising a k))
    by (apply Rmult_le_pos; [assumption|apply Rmult_le_pos; lra]).
  apply (Rmult_le_compat_l a) in IH; lra.
Qed.

(* The terms are at most those of e^(z^2 / 2m). *)
Lemma mean_term_exp m z k : (1 <= m)%nat -> mean_term m z k <= power_term (z * z / (2 * INR m)) k.
Proof.
  intros Hm. assert (Hh := half_pos m Hm). assert (Q := INR_fact_lt_0 k).
  assert (P := rising_pos _ k Hh). assert (E := rising_power _ k Hh).
  assert (W : 0 < (INR m / 2) ^ k) by (apply pow_lt, Hh).
  unfold mean_term, power_term.
  replace (z * z / (2 * INR m)) with (z * z / 4 * / (INR m / 2)) by (field; lra).
  rewrite Rpow_mult_distr, pow_inv by lra.
  assert (S : 0 <= (z * z / 4) ^ k)
    by (apply pow_le; assert (S := Rle_0_sqr z); unfold Rsqr in S; lra).
  replace (/ INR (fact k) * ((z * z / 4) ^ k * / (INR m / 2) ^ k))
    with ((z * z / 4) ^ k / (INR (fact k) * (INR m / 2) ^ k)) by (field; lra).
  apply Rmult_le_compat_l; [exact S|]. rewrite Rmult_assoc. apply Rinv_le_contravar.
  - apply Rmult_lt_0_compat; assumption.
  - apply Rmult_le_compat_l; lra.
Qed.

(* The mean exists. *)
Theorem T13_mean m z : (1 <= m)%nat -> exists M, sphere_mean m z M.
Proof.
  intros Hm. destruct (growing_cv (fun K => sum (S K) (mean_term m z))) as (M & HM).
  - intros j. assert (H := mean_term_nonneg m z (S j) Hm). simpl in *. lra.
  - exists (exp (z * z / (2 * INR m))). intros y (K & ->).
    apply Rle_trans with (sum (S K) (power_term (z * z / (2 * INR m))));
      [apply sum_le; intros; apply mean_term_exp, Hm|].
    apply (growing_ineq (fun K => sum (S K) (power_term (z * z / (2 * INR m)))));
      [|apply exp_series].
    intros j.
    assert (0 <= power_term (z * z / (2 * INR m)) (S j)); [|simpl in *; lra].
    apply Rmult_le_pos; [left; apply Rinv_0_lt_compat, INR_fact_lt_0|]. apply pow_le.
    assert (S := Rle_0_sqr z). unfold Rsqr in S. apply le_INR in Hm. simpl in Hm.
    apply Rmult_le_pos; [lra|left; apply Rinv_0_lt_compat; lra].
  - exists M. exact HM.
Qed.

(* M(z) <= e^(z^2 / 2m). *)
Lemma mean_bound m z M : (1 <= m)%nat -> sphere_mean m z M -> M <= exp (z * z / (2 * INR m)).
Proof.
  intros Hm HM. apply (@Rle_cv_lim (fun K => sum (S K) (mean_term m z))
    (fun K => sum (S K) (power_term (z * z / (2 * INR m))))); [|exact HM|apply exp_series].
  intros K. apply sum_le. intros. apply mean_term_exp, Hm.
Qed.
