(** One row of attention: logits l 0 .. l (n-1), their coefficients, mass of a set, entropy. *)

Require Import Reals Lra Lia Psatz.
Require Import Sum.
Open Scope R_scope.

(* The denominator of softmax. *)
Definition Z (n : nat) (l : nat -> R) : R := sum n (fun j => exp (l j)).

(* The coefficient of item i. *)
Definition alpha (n : nat) (l : nat -> R) (i : nat) : R := exp (l i) / Z n l.

(* The spread of the row, max l - min l, is at most s. *)
Definition spread_le (n : nat) (l : nat -> R) (s : R) : Prop :=
  forall i j, (i < n)%nat -> (j < n)%nat -> l i - l j <= s.

(* What the items of a set hold together. *)
Definition mass (n : nat) (A : nat -> bool) (l : nat -> R) : R :=
  sum n (fun i => if A i then alpha n l i else 0).

(* The entropy of the row, in nats. *)
Definition entropy (n : nat) (l : nat -> R) : R :=
  - sum n (fun i => alpha n l i * ln (alpha n l i)).

(* The entropy of k items at the top and n - k at the bottom of a row of spread s. *)
Definition H_two (n k : nat) (s : R) : R :=
  let r := (INR n - INR k) * exp (- s) / INR k in ln (INR k) + ln (1 + r) + s * r / (1 + r).

(* The denominator is positive. *)
Lemma Z_pos n l : (1 <= n)%nat -> 0 < Z n l.
Proof. intros Hn. apply sum_pos; [exact Hn|]. intros. apply exp_pos. Qed.

(* Coefficients are positive. *)
Lemma alpha_pos n l i : (1 <= n)%nat -> 0 < alpha n l i.
Proof. intros Hn. apply Rdiv_lt_0_compat; [apply exp_pos|apply Z_pos, Hn]. Qed.

(* Coefficients add up to 1. *)
Lemma alpha_sum n l : (1 <= n)%nat -> sum n (alpha n l) = 1.
Proof.
  intros Hn. unfold alpha, Rdiv. rewrite sum_scal_r. fold (Z n l).
  apply Rinv_r. assert (H := Z_pos n l Hn). lra.
Qed.

(* A number of items, as a real, is at least 1. *)
Lemma INR_ge_1 n : (1 <= n)%nat -> 1 <= INR n.
Proof. intros H. apply le_INR in H. exact H. Qed.

(* The exponential does not fall. *)
Lemma exp_mono x y : x <= y -> exp x <= exp y.
Proof. intros [H| ->]; [left; apply exp_increasing, H|right; reflexivity]. Qed.

(* The natural logarithm does not fall. *)
Lemma ln_mono x y : 0 < x -> x <= y -> ln x <= ln y.
Proof. intros Hx [H| ->]; [left; apply ln_increasing; assumption|right; reflexivity]. Qed.

(* The logarithm lies below its tangent at 1. *)
Lemma ln_tangent x : 0 < x -> ln x <= x - 1.
Proof. intros Hx. assert (H := exp_ineq1_le (ln x)). rewrite exp_ln in H by exact Hx. lra. Qed.

(* The exponential lies above its tangent at c. *)
Lemma exp_tangent c x : exp c * (1 + (x - c)) <= exp x.
Proof.
  replace x with (c + (x - c)) at 2 by ring. rewrite exp_plus.
  apply Rmult_le_compat_l; [left; apply exp_pos|apply exp_ineq1_le].
Qed.

(* Quotients are compared by cross multiplication. *)
Lemma div_le a b c d : 0 < b -> 0 < d -> a * d <= c * b -> a / b <= c / d.
Proof.
  intros Hb Hd H. apply (Rmult_le_reg_r (b * d)); [apply Rmult_lt_0_compat; assumption|].
  replace (a / b * (b * d)) with (a * d) by (field; lra).
  replace (c / d * (b * d)) with (c * b) by (field; lra). exact H.
Qed.

(* e^s e^-s = 1. *)
Lemma exp_inv s : exp s * exp (- s) = 1.
Proof. rewrite <- exp_plus, <- exp_0. f_equal. ring. Qed.

(* A common shift of the logits changes no coefficient. *)
Lemma alpha_shift n l b i : (1 <= n)%nat -> alpha n (fun j => l j + b) i = alpha n l i.
Proof.
  intros Hn. unfold alpha, Z. rewrite exp_plus.
  rewrite (sum_ext n _ (fun j => exp (l j) * exp b)) by (intros; apply exp_plus).
  rewrite sum_scal_r. assert (H := Z_pos n l Hn). unfold Z in H. assert (Hb := exp_pos b).
  field. lra.
Qed.

(* Only the first n logits matter. *)
Lemma alpha_ext n l l' i :
  (i < n)%nat -> (forall j, (j < n)%nat -> l j = l' j) -> alpha n l i = alpha n l' i.
Proof.
  intros Hi H. unfold alpha, Z. rewrite (H i Hi). f_equal. apply sum_ext.
  intros j Hj. rewrite (H j Hj). reflexivity.
Qed.

(* The same for the entropy. *)
Lemma entropy_ext n l l' :
  (forall j, (j < n)%nat -> l j = l' j) -> entropy n l = entropy n l'.
Proof.
  intros H. unfold entropy. f_equal. apply sum_ext. intros i Hi.
  rewrite (alpha_ext n l l' i Hi H). reflexivity.
Qed.

(* A common shift of the logits changes no entropy. *)
Lemma entropy_shift n l b : (1 <= n)%nat -> entropy n (fun j => l j + b) = entropy n l.
Proof.
  intros Hn. unfold entropy. f_equal. apply sum_ext. intros i _.
  rewrite alpha_shift by exact Hn. reflexivity.
Qed.

(* The logarithm of a coefficient is its logit less ln Z. *)
Lemma ln_alpha n l i : (1 <= n)%nat -> ln (alpha n l i) = l i - ln (Z n l).
Proof.
  intros Hn. assert (H := Z_pos n l Hn). unfold alpha, Rdiv.
  rewrite ln_mult, ln_Rinv, ln_exp; [ring|exact H|apply exp_pos|apply Rinv_0_lt_compat, H].
Qed.

(* The entropy is ln Z less the mean logit. *)
Lemma entropy_Z n l :
  (1 <= n)%nat -> entropy n l = ln (Z n l) - sum n (fun i => alpha n l i * l i).
Proof.
  intros Hn. unfold entropy.
  rewrite (sum_ext n _ (fun i => alpha n l i * l i - alpha n l i * ln (Z n l)))
    by (intros; rewrite ln_alpha by exact Hn; ring).
  rewrite sum_minus, sum_scal_r, alpha_sum by exact Hn. ring.
Qed.

(* Gibbs: the entropy of one row is at most its cross entropy with another. *)
Lemma gibbs n l l' :
  (1 <= n)%nat -> entropy n l <= ln (Z n l') - sum n (fun i => alpha n l i * l' i).
Proof.
  intros Hn. unfold entropy.
  assert (H : sum n (fun i => alpha n l i * (l' i - ln (Z n l')) - alpha n l i * ln (alpha n l i))
              <= sum n (fun i => alpha n l' i - alpha n l i)).
  { apply sum_le. intros i _. rewrite <- (ln_alpha n l' i Hn).
    assert (Hp := alpha_pos n l i Hn). assert (Hq := alpha_pos n l' i Hn).
    assert (Ht := ln_tangent (alpha n l' i / alpha n l i) (Rdiv_lt_0_compat _ _ Hq Hp)).
    unfold Rdiv in Ht. rewrite ln_mult, ln_Rinv in Ht; try assumption;
      [|apply Rinv_0_lt_compat, Hp].
    apply (Rmult_le_compat_l (alpha n l i)) in Ht; [|lra].
    replace (alpha n l i * (alpha n l' i * / alpha n l i - 1)) with (alpha n l' i - alpha n l i)
      in Ht by (field; lra). lra. }
  rewrite !sum_minus, !alpha_sum in H by exact Hn.
  rewrite (sum_ext n (fun i => alpha n l i * (l' i - ln (Z n l')))
    (fun i => alpha n l i * l' i - alpha n l i * ln (Z n l'))) in H by (intros; ring).
  rewrite sum_minus, sum_scal_r, alpha_sum in H by exact Hn. lra.
Qed.
