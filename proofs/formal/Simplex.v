(** T12: of n keys common to all queries, some gets little. Queries A u_i + a and keys C v_j + c,
    to which terms f_i of the query and g_j of the key alone may be added. *)

Require Import Reals Lra Lia Psatz.
Require Import Sum Softmax Vectors.
Open Scope R_scope.

(* The logit of query i against key j. *)
Definition rows d r r' A a C c (u v : nat -> nat -> R) (f g : nat -> R) (i j : nat) : R :=
  logit d r r' A a C c (u i) (v j) + f i + g j.

(* A product through a matrix of norm sigma. *)
Lemma through r r' M sigma u w :
  0 <= sigma -> norm_le r r' M sigma -> 2 * dot r u (image r' M w) <= sigma * (sq r u + sq r' w).
Proof.
  intros Hs HM. assert (H := dot_norm r u (image r' M w)). assert (Hw := HM w).
  assert (Ha := Rle_abs (dot r u (image r' M w))).
  destruct (norm_facts r u) as [Hu Hu2]. destruct (norm_facts r' w) as [Hw0 Hw2].
  rewrite <- Hu2, <- Hw2.
  assert (norm r u * norm r (image r' M w) <= norm r u * (sigma * norm r' w))
    by (apply Rmult_le_compat_l; assumption).
  assert (0 <= sigma * ((norm r u - norm r' w) * (norm r u - norm r' w)))
    by (apply Rmult_le_pos; [exact Hs|apply Rle_0_sqr]).
  lra.
Qed.

(* The squares of the deviations from the mean add up to at most those of the vectors. *)
Lemma deviations n r (v : nat -> nat -> R) :
  (1 <= n)%nat ->
  sum n (fun i => sq r (fun b => v i b - sum n (fun j => v j b) / INR n))
  <= sum n (fun i => sq r (v i)).
Proof.
  intros Hn. apply le_INR in Hn. simpl in Hn. unfold sq, dot.
  rewrite (sum_swap n r (fun i b => v i b * v i b)).
  rewrite (sum_swap n r (fun i b => (v i b - sum n (fun j => v j b) / INR n)
                                    * (v i b - sum n (fun j => v j b) / INR n))).
  apply sum_le. intros b _. set (m := sum n (fun j => v j b) / INR n).
  rewrite (sum_ext n _ (fun i => v i b * v i b - 2 * m * v i b + m * m)) by (intros; ring).
  rewrite sum_plus, sum_minus, sum_const, sum_scal.
  replace (sum n (fun i => v i b)) with (INR n * m) by (unfold m; field; lra).
  assert (0 <= INR n * (m * m)) by (apply Rmult_le_pos; [lra|apply Rle_0_sqr]). lra.
Qed.

(* The logits of targets above the mean of their rows add up to at most sigma n. *)
Lemma targets_above_means n d r r' A a C c u v f g sigma :
  (1 <= n)%nat -> 0 <= sigma -> norm_le r r' (cross d A C) sigma ->
  (forall i, (i < n)%nat -> in_ball r (u i)) -> (forall j, (j < n)%nat -> in_ball r' (v j)) ->
  let l := rows d r r' A a C c u v f g in
  sum n (fun i => l i i - sum n (l i) / INR n) <= INR n * sigma.
Proof.
  intros Hn Hs HM Hu Hv l. assert (Hn1 := Hn). apply le_INR in Hn1. simpl in Hn1.
  set (M := cross d A C) in *. set (k := fun j => dot d a (image r' C (v j)) + g j).
  set (mean := fun b => sum n (fun j => v j b) / INR n).
  assert (E : forall i, l i i - sum n (l i) / INR n
    = dot r (u i) (image r' M (fun b => v i b - mean b)) + (k i - sum n k / INR n)).
  { intros i.
    assert (El : forall j, l i j
      = dot r (u i) (image r' M (v j)) + (dot d (point r A a (u i)) c + f i) + k j).
    { intros j. unfold l, rows, k. rewrite logit_terms. fold M. ring. }
    rewrite (sum_ext n (l i) _ (fun j _ => El j)), El, !sum_plus, !sum_const.
    assert (Em : sum n (fun j => dot r (u i) (image r' M (v j))) / INR n
                 = dot r (u i) (image r' M mean)).
    { unfold dot at 1. rewrite sum_swap. unfold Rdiv. rewrite <- sum_scal_r. apply sum_ext.
      intros e _. rewrite sum_scal. unfold image. rewrite sum_swap, Rmult_assoc. f_equal.
      rewrite <- sum_scal_r. apply sum_ext. intros b _. rewrite sum_scal. unfold mean, Rdiv. ring. }
    rewrite (dot_ext r _ (image r' M (fun b => v i b - mean b)) (u i)
      (fun e => image r' M (v i) e - image r' M mean e))
      by (intros; try rewrite image_minus; reflexivity).
    rewrite dot_minus, <- Em. field. lra. }
  rewrite (sum_ext n _ _ (fun i _ => E i)), sum_plus, sum_minus, sum_const.
  replace (sum n k - INR n * (sum n k / INR n)) with 0 by (field; lra). rewrite Rplus_0_r.
  assert (Hball : forall m (w : nat -> R), in_ball m w -> sq m w <= 1).
  { intros m w Hw. apply sq_bound in Hw. lra. }
  assert (H : sum n (fun i => dot r (u i) (image r' M (fun b => v i b - mean b)))
    <= sum n (fun i => sigma / 2 * 1 + sigma / 2 * sq r' (fun b => v i b - mean b))).
  { apply sum_le. intros i Hi.
    assert (T := through r r' M sigma (u i) (fun b => v i b - mean b) Hs HM).
    assert (U := Hball r (u i) (Hu i Hi)). nra. }
  rewrite sum_plus, sum_const, sum_scal in H.
  assert (D := deviations n r' v Hn). fold mean in D.
  assert (S1 : sum n (fun i => sq r' (v i)) <= INR n * 1)
    by (rewrite <- sum_const; apply sum_le; intros; apply Hball, Hv; assumption).
  unfold mean in *. nra.
Qed.

(* T12: some target gets at most 1 / (1 + (n - 1) e^(- sigma n / (n - 1))). *)
Theorem T12_ceiling n d r r' A a C c u v f g sigma :
  (2 <= n)%nat -> 0 <= sigma -> norm_le r r' (cross d A C) sigma ->
  (forall i, (i < n)%nat -> in_ball r (u i)) -> (forall j, (j < n)%nat -> in_ball r' (v j)) ->
  exists i, (i < n)%nat /\
    alpha n (rows d r r' A a C c u v f g i) i
    <= 1 / (1 + (INR n - 1) * exp (- (sigma * INR n / (INR n - 1)))).
Proof.
  intros Hn Hs HM Hu Hv. set (l := rows d r r' A a C c u v f g).
  assert (H2 : 2 <= INR n) by (apply (le_INR 2), Hn).
  destruct (some_below_average n (fun i => l i i - sum n (l i) / INR n) sigma ltac:(lia)
    (targets_above_means n d r r' A a C c u v f g sigma ltac:(lia) Hs HM Hu Hv)) as (i & Hi & H).
  exists i. split; [exact Hi|]. set (t := - (sigma * INR n / (INR n - 1))).
  assert (Hpos := exp_pos t).
  (* the tangent of the exponential at t, summed over the other keys *)
  assert (HZ : exp (l i i) * (1 + (INR n - 1) * exp t) <= Z n (l i)).
  { assert (Hsum : sum n (fun j => l i j - l i i) >= - (INR n * sigma)).
    { rewrite sum_minus, sum_const.
      apply (Rmult_le_compat_l (INR n)) in H; [|lra].
      replace (INR n * (l i i - sum n (l i) / INR n)) with (INR n * l i i - sum n (l i)) in H
        by (field; lra). lra. }
    assert (Hrest : (INR n - 1) * exp t
      <= sum n (fun j => if Nat.eqb j i then 0 else exp (l i j - l i i))).
    { apply Rle_trans with (sum n (fun j =>
        if Nat.eqb j i then 0 else exp t * (1 + (l i j - l i i - t)))).
      - rewrite (sum_ext n _ (fun j => exp t * (l i j - l i i)
          + (if Nat.eqb j i then 0 else exp t * (1 - t)))).
        + rewrite sum_plus, sum_scal, sum_one by exact Hi.
          assert (Et : (INR n - 1) * t = - (INR n * sigma)) by (unfold t; field; lra).
          assert (exp t * (INR n - 1) * t <= exp t * sum n (fun j => l i j - l i i))
            by (rewrite Rmult_assoc, Et; apply Rmult_le_compat_l; lra).
          lra.
        + intros j _. destruct (Nat.eqb_spec j i) as [->|_]; ring.
      - apply sum_le. intros j _. destruct (Nat.eqb j i); [lra|apply exp_tangent]. }
    assert (EZ : Z n (l i) = exp (l i i) * sum n (fun j => exp (l i j - l i i))).
    { rewrite <- sum_scal. apply sum_ext. intros j _. rewrite <- exp_plus. f_equal. ring. }
    rewrite EZ, (sum_split n i (fun j => exp (l i j - l i i)) Hi).
    replace (l i i - l i i) with 0 by ring. rewrite exp_0.
    apply Rmult_le_compat_l; [left; apply exp_pos|lra]. }
  unfold alpha. apply div_le; [apply Z_pos; lia|nra|lra].
Qed.
