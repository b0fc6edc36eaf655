(** T13, first half: the factors of the capacity N, and a lower bound on the kernel energy of any
    points of the unit ball stretched by square roots of kappa. *)

Require Import Reals Lra Lia Psatz.
Require Import Sum Softmax Vectors Kernel.
Open Scope R_scope.

(* What one singular value kappa adds to ln N at level t. *)
Definition log_factor (t kappa : R) : R :=
  if Rle_lt_dec kappa t then 0 else / 2 * ln ((kappa / t) ^ 2 / (2 * (kappa / t) - 1)).

(* The logarithm of N at level t, for m singular values. *)
Definition log_capacity (m : nat) (kappa : nat -> R) (t : R) : R :=
  t + sum m (fun c => log_factor t (kappa c)).

(* The rho of the kernel inequality: 1 - t / kappa above the level, 0 below it. *)
Definition rate (t kappa : R) : R := if Rle_lt_dec kappa t then 0 else 1 - t / kappa.

(* rho lies in [0, 1), and (1 - rho) kappa <= t. *)
Lemma rate_range t kappa :
  0 < t -> 0 <= kappa -> 0 <= rate t kappa < 1 /\ (1 - rate t kappa) * kappa <= t.
Proof.
  intros Ht Hk. unfold rate. destruct (Rle_lt_dec kappa t) as [H|H]; [lra|].
  assert (0 < t / kappa) by (apply Rdiv_lt_0_compat; lra).
  assert (t / kappa * kappa = t) by (field; lra).
  split; [|lra]. split; [|lra]. nra.
Qed.

(* sqrt (1 - rho^2) is the inverse of the factor. *)
Lemma rate_factor t kappa :
  0 < t -> 0 <= kappa ->
  exp (log_factor t kappa) * sqrt (1 - rate t kappa * rate t kappa) = 1.
Proof.
  intros Ht Hk. unfold log_factor, rate. destruct (Rle_lt_dec kappa t) as [H|H].
  - rewrite Rmult_0_r, Rminus_0_r, sqrt_1, exp_0. ring.
  - set (x := kappa / t).
    assert (Hx : 1 < x).
    { unfold x. apply (Rmult_lt_reg_r t); [exact Ht|]. unfold Rdiv.
      rewrite Rmult_assoc, Rinv_l by lra. lra. }
    replace (t / kappa) with (/ x) by (unfold x; field; lra).
    set (y := x ^ 2 / (2 * x - 1)).
    assert (Hy : 0 < y) by (apply Rdiv_lt_0_compat; nra).
    replace (1 - (1 - / x) * (1 - / x)) with (/ y) by (unfold y; field; lra).
    assert (Hs := sqrt_lt_R0 y Hy).
    assert (He : exp (/ 2 * ln y) = sqrt y).
    { rewrite <- (sqrt_sqrt y) at 1 by lra. rewrite ln_mult by exact Hs.
      replace (/ 2 * (ln (sqrt y) + ln (sqrt y))) with (ln (sqrt y)) by field.
      apply exp_ln, Hs. }
    rewrite He, <- sqrt_mult by (try left; try apply Rinv_0_lt_compat; lra).
    rewrite Rinv_r, sqrt_1 by lra. reflexivity.
Qed.

(* All factors together. *)
Lemma rate_factors t m kappa :
  0 < t -> (forall c, (c < m)%nat -> 0 <= kappa c) ->
  exp (sum m (fun c => log_factor t (kappa c)))
  * prod m (fun c => sqrt (1 - rate t (kappa c) * rate t (kappa c))) = 1.
Proof.
  intros Ht. induction m as [|m IH]; intros Hk; simpl; [rewrite exp_0; ring|].
  rewrite exp_plus.
  transitivity (exp (sum m (fun c => log_factor t (kappa c)))
    * prod m (fun c => sqrt (1 - rate t (kappa c) * rate t (kappa c)))
    * (exp (log_factor t (kappa m)) * sqrt (1 - rate t (kappa m) * rate t (kappa m)))); [ring|].
  rewrite IH, rate_factor by (try apply Hk; try (intros; apply Hk); lia || lra). ring.
Qed.

(* The water level: every point x with x_c^2 = kappa_c w_c^2, |w| <= 1, sees a potential of at
   least e^(-t / 2). *)
Lemma potential t m (kappa x w : nat -> R) :
  0 < t -> (forall c, (c < m)%nat -> 0 <= kappa c) ->
  (forall c, (c < m)%nat -> x c * x c = kappa c * (w c * w c)) -> sq m w <= 1 ->
  exp (- (t / 2))
  <= exp (- (sq m x / 2)) * exp (sum m (fun c => rate t (kappa c) * (x c * x c) / 2)).
Proof.
  intros Ht Hk Hx Hw. rewrite <- exp_plus. apply exp_mono.
  assert (H : sq m x / 2 - sum m (fun c => rate t (kappa c) * (x c * x c) / 2)
              <= t / 2 * sq m w); [|nra].
  unfold sq, dot, Rdiv. rewrite <- sum_scal_r, <- sum_minus, <- sum_scal. apply sum_le.
  intros c Hc. rewrite Hx by exact Hc. destruct (rate_range t (kappa c) Ht (Hk c Hc)) as [_ E].
  assert (W := Rle_0_sqr (w c)). unfold Rsqr in W.
  apply (Rmult_le_compat_r (w c * w c)) in E; [|exact W]. lra.
Qed.

(* |x - y|^2 / 2, expanded. *)
Lemma sq_minus m x y :
  - (sq m (fun c => x c - y c) / 2) = - (sq m x / 2) + - (sq m y / 2) + sum m (fun c => x c * y c).
Proof.
  unfold sq, dot, Rdiv. rewrite <- !sum_scal_r.
  replace (- sum m (fun c => (x c - y c) * (x c - y c) * / 2))
    with (-1 * sum m (fun c => (x c - y c) * (x c - y c) * / 2)) by ring.
  replace (- sum m (fun c => x c * x c * / 2)) with (-1 * sum m (fun c => x c * x c * / 2)) by ring.
  replace (- sum m (fun c => y c * y c * / 2)) with (-1 * sum m (fun c => y c * y c * / 2)) by ring.
  rewrite <- !sum_scal, <- !sum_plus. apply sum_ext. intros c _. field.
Qed.

(* n points x_i with x_ic^2 = kappa_c w_ic^2, |w_i| <= 1, have an energy of at least n^2 / N. *)
Definition energy_at_least (n m : nat) (kappa : nat -> R) (N : R) : Prop :=
  forall x w : nat -> nat -> R,
    (forall i c, (i < n)%nat -> (c < m)%nat -> x i c * x i c = kappa c * (w i c * w i c)) ->
    (forall i, (i < n)%nat -> sq m (w i) <= 1) ->
    INR n * INR n
    <= N * sum n (fun i => sum n (fun j => exp (- (sq m (fun c => x i c - x j c) / 2)))).

(* So it is with the N of T13 at every level t > 0. *)
Lemma energy_bound n m t kappa :
  0 < t -> (forall c, (c < m)%nat -> 0 <= kappa c) ->
  energy_at_least n m kappa (exp (log_capacity m kappa t)).
Proof.
  intros Ht Hk x w Hx Hw.
  set (rho := fun c => rate t (kappa c)).
  set (weight := fun i => exp (- (sq m (x i) / 2))).
  set (E := sum n (fun i => sum n (fun j => exp (- (sq m (fun c => x i c - x j c) / 2))))).
  set (S := sum n (fun i => weight i * exp (sum m (fun c => rho c * (x i c * x i c) / 2)))).
  set (P := prod m (fun c => sqrt (1 - rho c * rho c))).
  set (L := exp (sum m (fun c => log_factor t (kappa c)))).
  assert (HLP : L * P = 1) by (apply rate_factors; assumption).
  assert (HL : 0 < L) by apply exp_pos.
  assert (K : S * S * P <= E).
  { apply Rle_trans with (1 := kernel_inequality n m rho x
      (fun c Hc => proj1 (rate_range t (kappa c) Ht (Hk c Hc))) weight).
    right. apply sum_ext. intros i _. apply sum_ext. intros j _.
    unfold weight. rewrite sq_minus, !exp_plus. reflexivity. }
  assert (HS : INR n * exp (- (t / 2)) <= S).
  { rewrite <- sum_const. apply sum_le. intros i Hi.
    apply (potential t m kappa (x i) (w i)); auto. }
  assert (Hh := exp_pos (- (t / 2))). assert (Hn := pos_INR n).
  assert (Het : exp t * (exp (- (t / 2)) * exp (- (t / 2))) = 1).
  { rewrite <- !exp_plus, <- exp_0. f_equal. field. }
  assert (HS2 : INR n * exp (- (t / 2)) * (INR n * exp (- (t / 2))) <= S * S)
    by (apply Rmult_le_compat; try exact HS; apply Rmult_le_pos; lra).
  assert (HSE : S * S <= L * E).
  { apply (Rmult_le_compat_l L) in K; [|lra].
    replace (L * (S * S * P)) with (L * P * (S * S)) in K by ring. rewrite HLP in K. lra. }
  unfold log_capacity. rewrite exp_plus. fold L. assert (Hp := exp_pos t).
  apply Rle_trans with (exp t * (S * S)).
  - replace (INR n * INR n)
      with (exp t * (INR n * exp (- (t / 2)) * (INR n * exp (- (t / 2))))).
    + apply Rmult_le_compat_l; lra.
    + transitivity (INR n * INR n * (exp t * (exp (- (t / 2)) * exp (- (t / 2))))); [ring|].
      rewrite Het. ring.
  - rewrite Rmult_assoc. apply Rmult_le_compat_l; lra.
Qed.

(* N grows with every singular value. *)
Lemma log_factor_mono t x y : 0 < t -> 0 <= x <= y -> log_factor t x <= log_factor t y.
Proof.
  intros Ht Hxy. unfold log_factor.
  assert (Hin : forall z, t < z -> 1 < z / t).
  { intros z Hz. apply (Rmult_lt_reg_r t); [exact Ht|]. unfold Rdiv.
    rewrite Rmult_assoc, Rinv_l by lra. lra. }
  assert (Hmain : forall p q, 1 <= p <= q -> 1 <= p ^ 2 / (2 * p - 1) <= q ^ 2 / (2 * q - 1)).
  { intros p q Hpq. split.
    - replace 1 with (1 / 1) by field. apply div_le; try lra.
      assert (H := Rle_0_sqr (p - 1)). unfold Rsqr in H. nra.
    - apply div_le; try lra.
      assert (0 <= (q - p) * (2 * p * q - p - q)) by (apply Rmult_le_pos; nra). nra. }
  destruct (Rle_lt_dec x t) as [Hx|Hx], (Rle_lt_dec y t) as [Hy|Hy]; try lra.
  - assert (H1 := Hin y Hy). destruct (Hmain (y / t) (y / t) ltac:(lra)) as [H _].
    assert (0 <= ln ((y / t) ^ 2 / (2 * (y / t) - 1))); [|lra].
    rewrite <- ln_1. apply ln_mono; lra.
  - assert (H1 := Hin x Hx).
    assert (H2 : x / t <= y / t)
      by (apply Rmult_le_compat_r; [left; apply Rinv_0_lt_compat, Ht|lra]).
    destruct (Hmain (x / t) (y / t) ltac:(lra)) as [H H'].
    apply Rmult_le_compat_l; [lra|]. apply ln_mono; lra.
Qed.

(* The same for all of them. *)
Lemma log_capacity_mono m t kappa bound :
  0 < t -> (forall c, (c < m)%nat -> 0 <= kappa c <= bound c) ->
  log_capacity m kappa t <= log_capacity m bound t.
Proof.
  intros Ht H. apply Rplus_le_compat_l, sum_le. intros c Hc. apply log_factor_mono; auto.
Qed.
