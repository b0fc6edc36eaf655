(** T3', the ceiling: rows whose centred logits have 2-norm at most sigma. *)

Require Import Reals Lra Lia Psatz.
Require Import Sum Softmax Vectors SimplexAttained.
Open Scope R_scope.

(* The logits less their mean. *)
Definition centred (n : nat) (l : nat -> R) (j : nat) : R := l j - sum n l / INR n.

(* They add up to 0. *)
Lemma centred_sum n l : (1 <= n)%nat -> sum n (centred n l) = 0.
Proof.
  intros Hn. assert (H := INR_ge_1 n Hn). unfold centred. rewrite sum_minus, sum_const. field. lra.
Qed.

(* So each is at most sigma sqrt ((n - 1) / n). *)
Lemma centred_square n x i :
  (2 <= n)%nat -> (i < n)%nat -> sum n x = 0 -> x i * x i * INR n <= (INR n - 1) * sq n x.
Proof.
  intros Hn Hi H0. assert (H2 : 2 <= INR n) by (apply (le_INR 2), Hn).
  rewrite (sum_split n i) in H0 by exact Hi.
  set (y := fun j => if Nat.eqb j i then 0 else x j) in *.
  assert (C := cauchy_schwarz n (fun j => if Nat.eqb j i then 0 else 1) y).
  cbv beta in C.
  rewrite (sum_ext n (fun j => (if Nat.eqb j i then 0 else 1) * y j) y) in C
    by (intros j _; unfold y; destruct (Nat.eqb j i); ring).
  rewrite (sum_ext n (fun j => _ * _) (fun j => if Nat.eqb j i then 0 else 1)) in C
    by (intros j _; destruct (Nat.eqb j i); ring).
  rewrite sum_one in C by exact Hi.
  assert (E : sq n x = x i * x i + sum n (fun j => y j * y j)).
  { unfold sq, dot. rewrite (sum_split n i) by exact Hi. f_equal. apply sum_ext. intros j _.
    unfold y. destruct (Nat.eqb j i); ring. }
  rewrite E. replace (sum n y) with (- x i) in C by lra. lra.
Qed.

(* T3', ceiling: 1 / (1 + (n - 1) e^(- sigma sqrt (n / (n - 1)))). *)
Theorem T3_norm_ceiling n l sigma i :
  (2 <= n)%nat -> (i < n)%nat -> 0 <= sigma -> norm n (centred n l) <= sigma ->
  alpha n l i <= 1 / (1 + (INR n - 1) * exp (- (sigma * sqrt (INR n / (INR n - 1))))).
Proof.
  intros Hn Hi Hs Hl. assert (H2 : 2 <= INR n) by (apply (le_INR 2), Hn).
  set (x := centred n l) in *. assert (H0 : sum n x = 0) by (apply centred_sum; lia).
  set (w := sqrt (INR n / (INR n - 1))).
  assert (Hw0 : 0 <= w) by apply sqrt_pos.
  assert (Hw : w * w = INR n / (INR n - 1)).
  { apply sqrt_sqrt. apply Rmult_le_pos; [lra|]. left. apply Rinv_0_lt_compat. lra. }
  assert (Gap : x i * (INR n / (INR n - 1)) <= sigma * w).
  { destruct (Rle_lt_dec (x i) 0) as [Hneg|Hpos].
    - apply Rle_trans with 0; [|apply Rmult_le_pos; assumption].
      assert (0 <= INR n / (INR n - 1)) by (rewrite <- Hw; apply Rmult_le_pos; assumption). nra.
    - assert (C := centred_square n x i Hn Hi H0). apply sq_bound in Hl.
      apply Rsqr_incr_0_var; [|apply Rmult_le_pos; assumption]. unfold Rsqr.
      replace (sigma * w * (sigma * w)) with (sigma * sigma * (w * w)) by ring. rewrite Hw.
      replace (x i * (INR n / (INR n - 1)) * (x i * (INR n / (INR n - 1))))
        with (x i * x i * INR n / (INR n - 1) * (INR n / (INR n - 1))) by (field; lra).
      apply Rmult_le_compat_r; [rewrite <- Hw; apply Rmult_le_pos; assumption|].
      apply (Rmult_le_reg_r (INR n - 1)); [lra|]. unfold Rdiv.
      rewrite Rmult_assoc, Rinv_l by lra. nra. }
  set (t := - (sigma * w)).
  assert (HZ : exp (l i) * (1 + (INR n - 1) * exp t) <= Z n l).
  { assert (EZ : Z n l = exp (l i) * sum n (fun j => exp (x j - x i))).
    { rewrite <- sum_scal. apply sum_ext. intros j _. rewrite <- exp_plus. f_equal.
      unfold x, centred. ring. }
    rewrite EZ. apply Rmult_le_compat_l; [left; apply exp_pos|].
    rewrite (sum_split n i) by exact Hi. replace (x i - x i) with 0 by ring. rewrite exp_0.
    apply Rplus_le_compat_l.
    (* the tangent of the exponential at the mean gap of the other items *)
    set (c := - (x i * (INR n / (INR n - 1)))).
    apply Rle_trans with ((INR n - 1) * exp c).
    - apply Rmult_le_compat_l; [lra|]. apply exp_mono. unfold t, c. lra.
    - apply Rle_trans with (sum n (fun j =>
        if Nat.eqb j i then 0 else exp c * (1 + (x j - x i - c)))).
      + rewrite (sum_ext n _ (fun j => exp c * (x j - x i)
          + (if Nat.eqb j i then 0 else exp c * (1 - c)))).
        * rewrite sum_plus, sum_scal, sum_minus, sum_const, sum_one, H0 by exact Hi.
          right. unfold c. field. lra.
        * intros j _. destruct (Nat.eqb_spec j i) as [->|_]; ring.
      + apply sum_le. intros j _. destruct (Nat.eqb j i); [lra|apply exp_tangent]. }
  assert (Hpos := exp_pos t). unfold alpha. apply div_le; [apply Z_pos; lia|nra|lra].
Qed.

(* T3', attained: by a corner of the simplex. *)
Theorem T3_norm_attained n sigma i :
  (2 <= n)%nat -> (i < n)%nat -> 0 <= sigma ->
  let l := fun j => sigma * corner n i j in
  norm n (centred n l) = sigma /\
  alpha n l i = 1 / (1 + (INR n - 1) * exp (- (sigma * sqrt (INR n / (INR n - 1))))).
Proof.
  intros Hn Hi Hs l. assert (H2 : 2 <= INR n) by (apply (le_INR 2), Hn).
  assert (S0 : sum n l = 0).
  { unfold l, corner. rewrite !sum_scal, sum_minus, sum_const, sum_one by exact Hi. field. lra. }
  split.
  - unfold norm. transitivity (sqrt (sigma * sigma)); [|apply sqrt_square, Hs]. f_equal.
    assert (C := corner_dot n i i Hn Hi Hi). rewrite Nat.eqb_refl in C.
    unfold sq. rewrite (dot_ext n _ _ l l) by (intros; unfold centred; rewrite S0; field; lra).
    unfold l. rewrite dot_scal, dot_scal_l, C. ring.
  - unfold alpha, Z, l, corner. set (w := sqrt (INR n / (INR n - 1))).
    rewrite Nat.eqb_refl.
    rewrite (sum_ext n _ (fun j => if Nat.eqb j i then exp (sigma * (w * (1 - / INR n)))
                                   else exp (sigma * (w * (0 - / INR n)))))
      by (intros j _; destruct (Nat.eqb j i); reflexivity).
    rewrite sum_one by exact Hi.
    replace (sigma * (w * (0 - / INR n)))
      with (sigma * (w * (1 - / INR n)) + - (sigma * w)) by ring.
    rewrite exp_plus. assert (P := exp_pos (sigma * (w * (1 - / INR n)))).
    assert (Q := exp_pos (- (sigma * w))).
    assert (0 <= (INR n - 1) * exp (- (sigma * w))) by (apply Rmult_le_pos; lra).
    field. split; [lra|]. nra.
Qed.
