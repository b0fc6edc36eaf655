(** A polynomial sum_k a_k y^k with positive a_k and falling ratios (k + 1) a_(k+1) / a_k, times
    e^(- lambda y), is least at an end of an interval [0, top]: it rises and then falls. *)

Require Import Reals Lra Lia Psatz.
Require Import Sum Softmax Convolution.
Open Scope R_scope.

(* A polynomial and its derivative. *)
Definition poly (a : nat -> R) (n : nat) (y : R) : R := sum (S n) (fun k => a k * y ^ k).
Definition poly' (a : nat -> R) (n : nat) (y : R) : R :=
  sum n (fun k => INR (S k) * a (S k) * y ^ k).

(* The second is the derivative of the first. *)
Lemma poly_derivative a n y : derivable_pt_lim (poly a n) y (poly' a n y).
Proof.
  unfold poly, poly'. induction n as [|n IH].
  - exact (derivable_pt_lim_const (0 + a O * 1) y).
  - apply (derivable_pt_lim_plus (fun y => sum (S n) (fun k => a k * y ^ k))
      (fun y => a (S n) * y ^ S n)); [exact IH|].
    replace (INR (S n) * a (S n) * y ^ n) with (a (S n) * (INR (S n) * y ^ pred (S n)))
      by (simpl pred; ring).
    apply (derivable_pt_lim_scal (fun y => y ^ S n)), derivable_pt_lim_pow.
Qed.

(* Numbers that fall stay below lambda once they are. *)
Lemma threshold (rho : nat -> R) lambda n :
  (forall j k, (j <= k)%nat -> rho k <= rho j) ->
  exists m, (m <= n)%nat /\ (forall k, (k < m)%nat -> lambda <= rho k) /\
    (forall k, (m <= k < n)%nat -> rho k <= lambda).
Proof.
  intros Hr. induction n as [|n (m & Hm & H1 & H2)].
  - exists O. split; [lia|]. split; intros; lia.
  - destruct (Nat.eq_dec m n) as [->|Hne].
    + destruct (Rle_lt_dec lambda (rho n)) as [H|H].
      * exists (S n). split; [lia|]. split; intros k Hk; [|lia].
        destruct (Nat.eq_dec k n) as [->|]; [exact H|apply H1; lia].
      * exists n. split; [lia|]. split; [exact H1|]. intros k Hk. replace k with n by lia. lra.
    + exists m. split; [lia|]. split; [exact H1|]. intros k Hk.
      apply Rle_trans with (rho m); [apply Hr; lia|apply H2; lia].
Qed.

(* The logarithmic slope against lambda changes its sign once, from + to -. *)
Lemma one_change a (rho : nat -> R) lambda n y z :
  (forall k, 0 < a k) -> (forall k, INR (S k) * a (S k) = a k * rho k) ->
  (forall j k, (j <= k)%nat -> rho k <= rho j) -> 0 <= lambda -> 0 < y <= z ->
  poly' a n y <= lambda * poly a n y -> poly' a n z <= lambda * poly a n z.
Proof.
  intros Ha Hrec Hr Hl Hyz H.
  destruct (threshold rho lambda n Hr) as (m & Hm & H1 & H2).
  set (q := z / y). assert (Hq : 1 <= q).
  { unfold q. apply (Rmult_le_reg_r y); [lra|]. unfold Rdiv. rewrite Rmult_assoc, Rinv_l; lra. }
  assert (Hz : forall k, z ^ k = q ^ k * y ^ k).
  { intros k. rewrite <- Rpow_mult_distr. f_equal. unfold q. field. lra. }
  assert (E : forall v, poly' a n v - lambda * poly a n v
    = sum n (fun k => a k * (rho k - lambda) * v ^ k) - lambda * (a n * v ^ n)).
  { intros v. unfold poly, poly'. simpl sum at 2. rewrite Rmult_plus_distr_l, <- sum_scal.
    rewrite (sum_ext n (fun k => a k * (rho k - lambda) * v ^ k)
      (fun k => INR (S k) * a (S k) * v ^ k - lambda * (a k * v ^ k)))
      by (intros; rewrite Hrec; ring).
    rewrite sum_minus. ring. }
  assert (Hyp : forall k, 0 < y ^ k) by (intros; apply pow_lt; lra).
  assert (Hqp : forall k, 0 < q ^ k) by (intros; apply pow_lt; lra).
  enough (poly' a n z - lambda * poly a n z <= q ^ m * (poly' a n y - lambda * poly a n y))
    by (assert (0 <= q ^ m * (lambda * poly a n y - poly' a n y))
          by (apply Rmult_le_pos; [left; apply Hqp|lra]); lra).
  rewrite !E, Rmult_minus_distr_l, <- sum_scal. apply Rplus_le_compat.
  - apply sum_le. intros k Hk. rewrite Hz.
    assert (P : 0 < a k * y ^ k) by (apply Rmult_lt_0_compat; [apply Ha|apply Hyp]).
    destruct (Nat.lt_ge_cases k m) as [Hkm|Hkm].
    + assert (q ^ k <= q ^ m) by (apply Rle_pow; [exact Hq|lia]). assert (G := H1 k Hkm).
      assert (0 <= (q ^ m - q ^ k) * (rho k - lambda) * (a k * y ^ k))
        by (apply Rmult_le_pos; [apply Rmult_le_pos|]; lra). lra.
    + assert (q ^ m <= q ^ k) by (apply Rle_pow; [exact Hq|lia]). assert (G := H2 k ltac:(lia)).
      assert (0 <= (q ^ k - q ^ m) * (lambda - rho k) * (a k * y ^ k))
        by (apply Rmult_le_pos; [apply Rmult_le_pos|]; lra). lra.
  - apply Ropp_le_contravar. rewrite Hz.
    assert (q ^ m <= q ^ n) by (apply Rle_pow; [exact Hq|lia]).
    assert (0 < a n * y ^ n) by (apply Rmult_lt_0_compat; [apply Ha|apply Hyp]).
    assert (0 <= (q ^ n - q ^ m) * (lambda * (a n * y ^ n)))
      by (apply Rmult_le_pos; [lra|apply Rmult_le_pos; lra]). lra.
Qed.

(* Hence the least value stands at an end. *)
Lemma least_at_an_end a (rho : nat -> R) lambda n y top :
  (forall k, 0 < a k) -> (forall k, INR (S k) * a (S k) = a k * rho k) ->
  (forall j k, (j <= k)%nat -> rho k <= rho j) -> 0 <= lambda -> 0 <= y <= top ->
  a O <= poly a n y * exp (- lambda * y) \/
  poly a n top * exp (- lambda * top) <= poly a n y * exp (- lambda * y).
Proof.
  intros Ha Hrec Hr Hl Hy.
  set (F := fun v => poly a n v * exp (- lambda * v)).
  set (F' := fun v => poly' a n v * exp (- lambda * v)
                      + poly a n v * (exp (- lambda * v) * - lambda)).
  assert (Hd : forall v, derivable_pt_lim F v (F' v)).
  { intros v. apply (derivable_pt_lim_mult (poly a n) (fun v => exp (- lambda * v)));
      [apply poly_derivative|].
    apply (derivable_pt_lim_comp (fun v => - lambda * v) exp).
    - replace (- lambda) with (- lambda * 1) at 1 by ring.
      apply (derivable_pt_lim_scal id), derivable_pt_lim_id.
    - apply derivable_pt_lim_exp. }
  assert (Hs : forall v, F' v = exp (- lambda * v) * (poly' a n v - lambda * poly a n v))
    by (intros; unfold F'; ring).
  assert (H0 : F 0 = a O).
  { unfold F, poly. rewrite sum_first, (sum_ext n _ (fun _ => 0)), sum_const.
    - rewrite !Rmult_0_r, exp_0. simpl. ring.
    - intros k _. simpl. ring. }
  fold (F y). fold (F top). rewrite <- H0.
  destruct (Rle_lt_or_eq_dec 0 y (proj1 Hy)) as [H0y|<-]; [|left; lra].
  destruct (Rle_lt_or_eq_dec y top (proj2 Hy)) as [Hyt|<-]; [|right; lra].
  destruct (MVT_cor2 F F' 0 y H0y (fun v _ => Hd v)) as (p & Ep & Hp).
  destruct (Rle_lt_dec 0 (F' p)) as [Hpos|Hneg]; [left; nra|right].
  destruct (MVT_cor2 F F' y top Hyt (fun v _ => Hd v)) as (q & Eq & Hq).
  assert (Ep' := exp_pos (- lambda * p)). assert (Eq' := exp_pos (- lambda * q)).
  assert (Hlow : poly' a n q <= lambda * poly a n q).
  { apply (one_change a rho lambda n p q); auto; [lra|]. rewrite Hs in Hneg. nra. }
  assert (F' q <= 0) by (rewrite Hs; nra). nra.
Qed.
