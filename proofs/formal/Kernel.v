(** The kernel inequality behind T13: for points x_i, real weights w_i and every 0 <= rho_c < 1,

      (sum_i w_i exp(sum_c rho_c x_ic^2 / 2))^2 prod_c sqrt(1 - rho_c^2)
        <= sum_ij w_i w_j exp(sum_c x_ic x_jc).

    One coordinate at a time: both exponentials are power series, Cauchy-Schwarz compares their
    terms, and the square root comes from the central binomial coefficients. No integral. *)

Require Import Reals Lra Lia Psatz.
Require Import Sum Series.
Open Scope R_scope.

(* Every second term of a sum of terms that are not negative. *)
Lemma even_terms K g :
  (forall m, 0 <= g m) -> sum (S K) (fun k => g (2 * k)%nat) <= sum (S (2 * K)) g.
Proof.
  intros H. induction K as [|K IH]; [simpl; lra|].
  replace (2 * S K)%nat with (S (S (2 * K))) by lia.
  change (sum (S K) (fun k => g (2 * k)%nat) + g (2 * S K)%nat
          <= sum (S (2 * K)) g + g (S (2 * K)) + g (S (S (2 * K)))).
  replace (2 * S K)%nat with (S (S (2 * K))) by lia.
  assert (0 <= g (S (2 * K))) by apply H. lra.
Qed.

(* Cauchy-Schwarz with a positive weight c on one side and 1/c on the other. *)
Lemma cauchy_weighted n a T c :
  (forall k, 0 < c k) ->
  sum n (fun k => a k * T k) * sum n (fun k => a k * T k)
  <= sum n (fun k => a k * a k * c k) * sum n (fun k => / c k * (T k * T k)).
Proof.
  intros Hc. assert (Hs : forall k, sqrt (c k) * sqrt (c k) = c k)
    by (intros; apply sqrt_sqrt; left; apply Hc).
  assert (Hp : forall k, 0 < sqrt (c k)) by (intros; apply sqrt_lt_R0, Hc).
  assert (H := cauchy_schwarz n (fun k => a k * sqrt (c k)) (fun k => T k / sqrt (c k))).
  rewrite (sum_ext n (fun k => a k * T k) (fun k => a k * sqrt (c k) * (T k / sqrt (c k)))),
    (sum_ext n (fun k => a k * a k * c k) (fun k => a k * sqrt (c k) * (a k * sqrt (c k)))),
    (sum_ext n (fun k => / c k * (T k * T k)) (fun k => T k / sqrt (c k) * (T k / sqrt (c k)))).
  - exact H.
  - intros k _. assert (Hk := Hp k). rewrite <- (Hs k) at 1. field. lra.
  - intros k _. rewrite <- (Hs k) at 1. ring.
  - intros k _. assert (Hk := Hp k). field. lra.
Qed.

(* A quadratic form in w. *)
Definition form (n : nat) (K : nat -> nat -> R) (w : nat -> R) : R :=
  sum n (fun i => sum n (fun j => w i * w j * K i j)).

(* Forms of sums of kernels. *)
Lemma form_exp_limit n K x w :
  Un_cv (fun M => sum (S M) (fun m => / INR (fact m) * form n K (fun i => w i * x i ^ m)))
        (form n (fun i j => K i j * exp (x i * x j)) w).
Proof.
  assert (H : forall M,
    sum (S M) (fun m => / INR (fact m) * form n K (fun i => w i * x i ^ m))
    = sum n (fun i => sum n (fun j =>
        w i * w j * K i j * sum (S M) (fun k => / INR (fact k) * (x i * x j) ^ k)))).
  { intros M. unfold form.
    rewrite (sum_ext (S M) _ (fun m => sum n (fun i => sum n (fun j =>
      w i * w j * K i j * (/ INR (fact m) * (x i * x j) ^ m))))).
    - rewrite sum_swap. apply sum_ext. intros i _. rewrite sum_swap. apply sum_ext. intros j _.
      apply sum_scal.
    - intros m _. rewrite <- sum_scal. apply sum_ext. intros i _. rewrite <- sum_scal.
      apply sum_ext. intros j _. rewrite Rpow_mult_distr. ring. }
  intros eps He.
  assert (L : Un_cv (fun M => sum n (fun i => sum n (fun j =>
      w i * w j * K i j * sum (S M) (fun k => / INR (fact k) * (x i * x j) ^ k))))
    (form n (fun i j => K i j * exp (x i * x j)) w)).
  { unfold form. apply (limit_sum n (fun M i => sum n (fun j =>
      w i * w j * K i j * sum (S M) (fun k => / INR (fact k) * (x i * x j) ^ k)))).
    intros i _. apply (limit_sum n (fun M j =>
      w i * w j * K i j * sum (S M) (fun k => / INR (fact k) * (x i * x j) ^ k))
      (fun j => w i * w j * (K i j * exp (x i * x j)))).
    intros j _. rewrite <- Rmult_assoc. apply limit_scal, exp_series. }
  destruct (L eps He) as (N & HN). exists N. intros M HM. rewrite H. apply HN, HM.
Qed.

(* One more coordinate. *)
Lemma kernel_step n f K P x rho :
  0 <= rho < 1 -> 0 < P ->
  (forall w, sum n (fun i => w i * f i) * sum n (fun i => w i * f i) * P <= form n K w) ->
  forall w,
    sum n (fun i => w i * (f i * exp (rho * (x i * x i) / 2)))
    * sum n (fun i => w i * (f i * exp (rho * (x i * x i) / 2)))
    * (P * sqrt (1 - rho * rho))
    <= form n (fun i j => K i j * exp (x i * x j)) w.
Proof.
  intros Hr HP HK w.
  set (B := form n (fun i j => K i j * exp (x i * x j)) w).
  set (Q := fun m => form n K (fun i => w i * x i ^ m)).
  set (T := fun m => sum n (fun i => w i * x i ^ m * f i)).
  set (a := fun k => (rho / 2) ^ k * / INR (fact k)).
  set (A := fun M => sum (S M) (fun k => a k * T (2 * k)%nat)).
  assert (Hfact : forall k, 0 < INR (fact k)) by (intros; apply INR_fact_lt_0).
  assert (HTQ : forall m, T m * T m * P <= Q m) by (intros m; apply HK).
  assert (HQ : forall m, 0 <= Q m).
  { intros m. apply Rle_trans with (2 := HTQ m).
    apply Rmult_le_pos; [apply Rle_0_sqr|lra]. }
  assert (HB : forall M, sum (S M) (fun m => / INR (fact m) * Q m) <= B).
  { apply growing_ineq; [|apply form_exp_limit]. intros M.
    change (sum (S M) (fun m => / INR (fact m) * Q m)
            <= sum (S M) (fun m => / INR (fact m) * Q m) + / INR (fact (S M)) * Q (S M)).
    assert (0 <= / INR (fact (S M)) * Q (S M)); [|lra].
    apply Rmult_le_pos; [left; apply Rinv_0_lt_compat, Hfact|apply HQ]. }
  assert (HA : forall M, A M * A M * (P * sqrt (1 - rho * rho)) <= B).
  { intros M.
    assert (Hrr : 0 <= rho * rho < 1) by nra.
    assert (Hsq : 0 < sqrt (1 - rho * rho)) by (apply sqrt_lt_R0; lra).
    set (second := sum (S M) (fun k => / INR (fact (2 * k)) * (T (2 * k)%nat * T (2 * k)%nat))).
    assert (Hcs : A M * A M <= series (S M) (rho * rho) * second).
    { unfold A, second.
      assert (H := cauchy_weighted (S M) a (fun k => T (2 * k)%nat)
        (fun k => INR (fact (2 * k))) (fun k => Hfact (2 * k)%nat)).
      apply Rle_trans with (1 := H), Req_le. f_equal. unfold series. apply sum_ext. intros k _.
      unfold a. rewrite central_fact, Rpow_mult_distr. unfold Rdiv.
      rewrite Rpow_mult_distr, pow_inv by lra.
      replace (4 ^ k) with (2 ^ k * 2 ^ k) by (rewrite <- Rpow_mult_distr; f_equal; lra).
      assert (Hk := Hfact k). assert (0 < 2 ^ k) by (apply pow_lt; lra). field. lra. }
    assert (Hsec : 0 <= second * P <= B).
    { split.
      - apply Rmult_le_pos; [|lra]. apply sum_nonneg. intros k _.
        apply Rmult_le_pos; [left; apply Rinv_0_lt_compat, Hfact|apply Rle_0_sqr].
      - unfold second. rewrite <- sum_scal_r.
        apply Rle_trans with (2 := HB (2 * M)%nat).
        apply Rle_trans with (2 := even_terms M (fun m => / INR (fact m) * Q m)
          ltac:(intros m; apply Rmult_le_pos;
                [left; apply Rinv_0_lt_compat, Hfact|apply HQ])).
        apply sum_le. intros k _. rewrite Rmult_assoc.
        apply Rmult_le_compat_l; [left; apply Rinv_0_lt_compat, Hfact|apply HTQ]. }
    assert (Hser := series_bound (S M) _ Hrr).
    assert (Hone : series (S M) (rho * rho) * sqrt (1 - rho * rho) <= 1).
    { apply Rle_trans with (/ sqrt (1 - rho * rho) * sqrt (1 - rho * rho)).
      - apply Rmult_le_compat_r; lra.
      - rewrite Rinv_l; lra. }
    apply Rle_trans with (series (S M) (rho * rho) * second * (P * sqrt (1 - rho * rho))).
    - apply Rmult_le_compat_r; [|exact Hcs]. apply Rmult_le_pos; lra.
    - replace (series (S M) (rho * rho) * second * (P * sqrt (1 - rho * rho)))
        with (series (S M) (rho * rho) * sqrt (1 - rho * rho) * (second * P)) by ring.
      apply Rle_trans with (1 * (second * P)); [|lra].
      apply Rmult_le_compat_r; lra. }
  assert (HL : Un_cv A (sum n (fun i => w i * (f i * exp (rho * (x i * x i) / 2))))).
  { assert (HAe : forall M, A M = sum n (fun i => w i * f i *
      sum (S M) (fun k => / INR (fact k) * (rho * (x i * x i) / 2) ^ k))).
    { intros M. unfold A, T, a.
      rewrite (sum_ext (S M) _ (fun k => sum n (fun i =>
        w i * f i * (/ INR (fact k) * (rho * (x i * x i) / 2) ^ k)))).
      - rewrite sum_swap. apply sum_ext. intros i _. apply sum_scal.
      - intros k _. rewrite <- sum_scal. apply sum_ext. intros i _.
        replace (rho * (x i * x i) / 2) with (rho / 2 * (x i * x i)) by field.
        rewrite pow_mult, Rpow_mult_distr.
        replace (x i ^ 2) with (x i * x i) by ring. ring. }
    assert (L : Un_cv (fun M => sum n (fun i => w i * f i *
        sum (S M) (fun k => / INR (fact k) * (rho * (x i * x i) / 2) ^ k)))
      (sum n (fun i => w i * (f i * exp (rho * (x i * x i) / 2))))).
    { apply (limit_sum n (fun M i => w i * f i *
        sum (S M) (fun k => / INR (fact k) * (rho * (x i * x i) / 2) ^ k))
        (fun i => w i * (f i * exp (rho * (x i * x i) / 2)))).
      intros i _. rewrite <- (Rmult_assoc (w i)). apply limit_scal, exp_series. }
    intros eps He. destruct (L eps He) as (N & HN).
    exists N. intros M HM. rewrite HAe. apply HN, HM. }
  rewrite Rmult_comm.
  apply (limit_le (fun M => P * sqrt (1 - rho * rho) * (A M * A M))).
  - apply limit_scal, (CV_mult A A); exact HL.
  - intros M. rewrite Rmult_comm. apply HA.
Qed.

(* The kernel inequality in r coordinates. *)
Theorem kernel_inequality n r (rho : nat -> R) (x : nat -> nat -> R) :
  (forall c, (c < r)%nat -> 0 <= rho c < 1) ->
  forall w,
    sum n (fun i => w i * exp (sum r (fun c => rho c * (x i c * x i c) / 2)))
    * sum n (fun i => w i * exp (sum r (fun c => rho c * (x i c * x i c) / 2)))
    * prod r (fun c => sqrt (1 - rho c * rho c))
    <= sum n (fun i => sum n (fun j => w i * w j * exp (sum r (fun c => x i c * x j c)))).
Proof.
  induction r as [|r IH]; intros Hr w; simpl.
  - rewrite exp_0, Rmult_1_r, <- sum_scal_r. apply Req_le, sum_ext. intros i _.
    rewrite <- sum_scal. apply sum_ext. intros j _. ring.
  - assert (HP : 0 < prod r (fun c => sqrt (1 - rho c * rho c))).
    { apply prod_pos. intros c Hc. apply sqrt_lt_R0. assert (H := Hr c ltac:(lia)). nra. }
    assert (H := kernel_step n (fun i => exp (sum r (fun c => rho c * (x i c * x i c) / 2)))
      (fun i j => exp (sum r (fun c => x i c * x j c))) _ (fun i => x i r) (rho r)
      (Hr r ltac:(lia)) HP (IH ltac:(intros; apply Hr; lia)) w).
    unfold form in H. simpl in H.
    rewrite (sum_ext n _ (fun i => w i * (exp (sum r (fun c => rho c * (x i c * x i c) / 2))
      * exp (rho r * (x i r * x i r) / 2)))) by (intros; rewrite exp_plus; ring).
    apply Rle_trans with (1 := H), Req_le, sum_ext. intros i _. apply sum_ext. intros j _.
    rewrite exp_plus. ring.
Qed.
