(** Power series of 1/sqrt(1-u) and of exp, as far as the kernel inequality needs them. *)

Require Import Reals Lra Lia Psatz.
Require Import Sum.
Open Scope R_scope.

(* The coefficients C(2k, k) / 4^k of 1 / sqrt(1 - u). *)
Fixpoint central (k : nat) : R :=
  match k with O => 1 | S j => central j * ((2 * INR j + 1) / (2 * INR j + 2)) end.

(* The beginning of their series. *)
Definition series (n : nat) (u : R) : R := sum n (fun k => central k * u ^ k).

(* The derivative of that beginning. *)
Definition slope (n : nat) (u : R) : R := sum n (fun k => central k * (INR k * u ^ pred k)).

(* The coefficients are positive. *)
Lemma central_pos k : 0 < central k.
Proof.
  induction k as [|k IH]; simpl; [lra|]. assert (0 <= INR k) by apply pos_INR.
  apply Rmult_lt_0_compat; [exact IH|]. apply Rdiv_lt_0_compat; lra.
Qed.

(* Powers differentiate term by term. *)
Lemma series_derivative n u : derivable_pt_lim (series n) u (slope n u).
Proof.
  unfold series, slope. induction n as [|n IH]; simpl.
  - apply derivable_pt_lim_const.
  - apply (derivable_pt_lim_plus _ (fun v => central n * v ^ n)); [exact IH|].
    apply (derivable_pt_lim_scal (fun v => v ^ n)), derivable_pt_lim_pow.
Qed.

(* The differential equation 2 (1 - u) f' = f of 1 / sqrt(1 - u), with the error of stopping. *)
Lemma slope_equation n u :
  2 * (1 - u) * slope n u = series n u - 2 * INR n * central n * u ^ pred n.
Proof.
  unfold series, slope. induction n as [|n IH]; [simpl; ring|].
  change (2 * (1 - u) * (sum n (fun k => central k * (INR k * u ^ pred k))
            + central n * (INR n * u ^ pred n))
          = sum n (fun k => central k * u ^ k) + central n * u ^ n
            - 2 * INR (S n) * central (S n) * u ^ n).
  rewrite Rmult_plus_distr_l, IH.
  replace (2 * INR (S n) * central (S n)) with ((2 * INR n + 1) * central n).
  - destruct n as [|n]; [simpl; ring|].
    simpl pred. change (u ^ S n) with (u * u ^ n). ring.
  - rewrite S_INR. simpl central. field. assert (0 <= INR n) by apply pos_INR. lra.
Qed.

(* (1 - u) times the square of the beginning falls from 1. *)
Lemma series_square n u : 0 <= u < 1 -> series n u * series n u * (1 - u) <= 1.
Proof.
  intros Hu. set (f := fun v => series n v * series n v * (1 - v)).
  assert (H0 : series n 0 <= 1 /\ 0 <= series n 0).
  { unfold series. destruct n as [|n]; [simpl; lra|]. clear.
    replace (sum (S n) (fun k => central k * 0 ^ k)) with 1; [lra|].
    induction n as [|n IH]; [simpl; ring|].
    change (1 = sum (S n) (fun k => central k * 0 ^ k) + central (S n) * 0 ^ S n).
    rewrite <- IH. simpl. ring. }
  destruct (Rle_lt_or_eq_dec 0 u (proj1 Hu)) as [Hlt|<-]; [|nra].
  set (f' := fun v => (slope n v * series n v + series n v * slope n v) * (1 - v)
                      + series n v * series n v * (0 - 1)).
  assert (Hd : forall v, 0 <= v <= u -> derivable_pt_lim f v (f' v)).
  { intros v _. apply (derivable_pt_lim_mult (fun w => series n w * series n w) (fun w => 1 - w)).
    - apply (derivable_pt_lim_mult (series n) (series n)); apply series_derivative.
    - apply (derivable_pt_lim_minus (fct_cte 1) id);
        [apply derivable_pt_lim_const|apply derivable_pt_lim_id]. }
  destruct (MVT_cor2 f f' 0 u Hlt Hd) as (v & Hv & Hin).
  assert (f' v <= 0).
  { unfold f'. assert (He := slope_equation n v).
    assert (Hs : 0 <= series n v).
    { apply sum_nonneg. intros k _. apply Rmult_le_pos; [left; apply central_pos|].
      apply pow_le. lra. }
    assert (0 <= 2 * INR n * central n * v ^ pred n).
    { repeat apply Rmult_le_pos; [lra|apply pos_INR|left; apply central_pos|].
      apply pow_le. lra. }
    nra. }
  assert (f u <= f 0) by nra. unfold f in *. rewrite Rminus_0_r in *. nra.
Qed.

(* The beginning is at most 1 / sqrt(1 - u). *)
Lemma series_bound n u : 0 <= u < 1 -> series n u <= / sqrt (1 - u).
Proof.
  intros Hu. assert (0 < sqrt (1 - u)) by (apply sqrt_lt_R0; lra).
  apply (Rmult_le_reg_r (sqrt (1 - u))); [lra|]. rewrite Rinv_l by lra.
  assert (H2 := series_square n u Hu).
  assert (Hs : sqrt (1 - u) * sqrt (1 - u) = 1 - u) by (apply sqrt_sqrt; lra).
  apply Rsqr_incr_0_var; [unfold Rsqr|lra]. nra.
Qed.

(* The factorials in the two series: ((2k)! / k!^2) (rho/2)^2k = central_k rho^2k. *)
Lemma central_fact k :
  INR (fact (2 * k)) = central k * 4 ^ k * (INR (fact k) * INR (fact k)).
Proof.
  induction k as [|k IH]; [simpl; ring|].
  replace (2 * S k)%nat with (S (S (2 * k))) by lia.
  rewrite !fact_simpl, !mult_INR, IH, !S_INR, mult_INR. simpl central.
  change (4 ^ S k) with (4 * 4 ^ k). change (INR 2) with (1 + 1).
  field. assert (0 <= INR k) by apply pos_INR. lra.
Qed.

(* The beginning of the exponential series tends to it. *)
Lemma exp_series x : Un_cv (fun n => sum (S n) (fun k => / INR (fact k) * x ^ k)) (exp x).
Proof.
  assert (H : infinite_sum (fun k => / INR (fact k) * x ^ k) (exp x))
    by exact (proj2_sig (exist_exp x)).
  intros eps He. destruct (H eps He) as (N & HN). exists N. intros n Hn.
  replace (sum (S n) (fun k => / INR (fact k) * x ^ k))
    with (sum_f_R0 (fun k => / INR (fact k) * x ^ k) n); [apply HN, Hn|].
  clear. induction n as [|n IH]; simpl in *; [ring|]. rewrite IH. reflexivity.
Qed.

(* Limits of finitely many sequences add up. *)
Lemma limit_sum n (F : nat -> nat -> R) (l : nat -> R) :
  (forall i, (i < n)%nat -> Un_cv (fun K => F K i) (l i)) ->
  Un_cv (fun K => sum n (F K)) (sum n l).
Proof.
  induction n as [|n IH]; intros H; simpl.
  - intros eps He. exists O. intros. rewrite R_dist_eq. exact He.
  - apply (CV_plus (fun K => sum n (F K)) (fun K => F K n)); [apply IH; intros|]; apply H; lia.
Qed.

(* A constant factor may leave a limit. *)
Lemma limit_scal c U l : Un_cv U l -> Un_cv (fun K => c * U K) (c * l).
Proof.
  intros H. apply (CV_mult (fun _ => c) U); [|exact H].
  intros eps He. exists O. intros. rewrite R_dist_eq. exact He.
Qed.

(* A limit of numbers that are all at most b is at most b. *)
Lemma limit_le U l b : Un_cv U l -> (forall K, U K <= b) -> l <= b.
Proof.
  intros H Hb. apply (@Rle_cv_lim U (fun _ => b) l b Hb H).
  intros eps He. exists O. intros. rewrite R_dist_eq. exact He.
Qed.
