(** T13 under a soft cap: a token with coefficient 1/2 is its row's largest, and the cap narrows
    the gaps below it. *)

Require Import Reals Lra Lia Psatz Ranalysis4.
Require Import Sum Softmax Vectors SoftCap Simplex Energy Capacity Tokens.
Open Scope R_scope.

(* tanh stays below the diagonal. *)
Lemma tanh_below x : 0 <= x -> tanh x <= x.
Proof.
  intros [Hx| <-]; [|rewrite (proj1 (proj2 (tanh_facts 0))); lra].
  set (h := fun y => y * cosh y - sinh y).
  assert (Hd : forall y, 0 <= y <= x ->
    derivable_pt_lim h y ((1 * cosh y + y * sinh y) - cosh y)).
  { intros y _. apply (derivable_pt_lim_minus (fun y => y * cosh y) sinh).
    - apply (derivable_pt_lim_mult id cosh);
        [apply derivable_pt_lim_id|apply derivable_pt_lim_cosh].
    - apply derivable_pt_lim_sinh. }
  destruct (MVT_cor2 h _ 0 x Hx Hd) as (y & E & Hy).
  assert (Hs : 0 <= sinh y).
  { unfold sinh. assert (exp (- y) <= exp y) by (apply exp_mono; lra). lra. }
  assert (Hc : 0 < cosh x)
    by (unfold cosh; assert (H := exp_pos x); assert (H' := exp_pos (- x)); lra).
  assert (H0 : h 0 = 0) by (unfold h; rewrite sinh_0; ring).
  assert (0 <= h x).
  { rewrite H0 in E. ring_simplify (1 * cosh y + y * sinh y - cosh y) in E.
    assert (0 <= y * sinh y) by (apply Rmult_le_pos; lra). nra. }
  unfold h in *. unfold tanh. apply (Rmult_le_reg_r (cosh x)); [exact Hc|].
  unfold Rdiv. rewrite Rmult_assoc, Rinv_l by lra. lra.
Qed.

(* A soft cap never widens a gap, and keeps the order. *)
Lemma cap_gap c x y :
  0 < c -> c * tanh (y / c) <= c * tanh (x / c) -> c * tanh (x / c) - c * tanh (y / c) <= x - y.
Proof.
  intros Hc H. assert (Hic := Rinv_0_lt_compat c Hc).
  destruct (Rle_lt_dec y x) as [Hxy|Hxy].
  - assert (Hq : y / c <= x / c) by (apply Rmult_le_compat_r; lra).
    assert (H1 := tanh_step (x / c) (y / c) Hq).
    assert (H2 := tanh_below ((x / c - y / c) / 2) ltac:(lra)).
    replace (x - y) with (c * (2 * ((x / c - y / c) / 2))) by (field; lra). nra.
  - exfalso. apply (Rmult_le_reg_l c) in H; [|exact Hc]. revert H. apply Rlt_not_le.
    rewrite !tanh_exp. assert (Hq : x / c < y / c) by (apply Rmult_lt_compat_r; lra).
    apply exp_increasing in Hq. assert (P := exp_pos (x / c)).
    set (p := exp (x / c)) in *. set (q := exp (y / c)) in *.
    apply (Rmult_lt_reg_r ((p * p + 1) * (q * q + 1))); [apply Rmult_lt_0_compat; nra|].
    unfold Rdiv. field_simplify; nra.
Qed.

(* T13 under a soft cap: the bound of the logits before the cap holds for p >= 1/2. *)
Theorem T13_soft_cap n d r r' m A a C c u v f g cap bound t p :
  (1 <= n)%nat -> 0 < t -> 1 / 2 <= p -> 0 < cap -> spectrum_le d r r' m A C bound ->
  (forall i, (i < n)%nat -> in_ball r (u i)) -> (forall j, (j < n)%nat -> in_ball r' (v j)) ->
  (forall i, (i < n)%nat -> let l := rows d r r' A a C c u v f g i in
     p <= alpha n (fun j => cap * tanh (l j / cap)) i) ->
  INR n * p <= exp (log_capacity m bound t).
Proof.
  intros Hn Ht Hp Hcap (kappa & HM & Hb) Hu Hv H.
  apply (everyone n (fun i => alpha n (rows d r r' A a C c u v f g i) i)); auto;
    [lra|left; apply exp_pos|
     apply (T13_harmonic n d r r' m A a C c u v f g kappa bound t); assumption|].
  intros i Hi. apply Rle_trans with (1 := H i Hi). assert (Hpi := H i Hi). simpl in Hpi.
  set (l := rows d r r' A a C c u v f g i) in *. set (z := fun j => cap * tanh (l j / cap)) in *.
  assert (HZ := Z_pos n z Hn). assert (HZl := Z_pos n l Hn).
  (* the target is the largest of its row *)
  assert (Top : forall j, (j < n)%nat -> z j <= z i).
  { intros j Hj. destruct (Nat.eq_dec j i) as [->|Hne]; [lra|].
    assert (S := alpha_sum n z Hn). rewrite (sum_split n i) in S by exact Hi.
    assert (T := sum_term n j (fun e => if Nat.eqb e i then 0 else alpha n z e) Hj).
    simpl in T. destruct (Nat.eqb_spec j i) as [|_]; [contradiction|].
    assert (T' : alpha n z j <= alpha n z i).
    { assert (alpha n z j <= sum n (fun e => if Nat.eqb e i then 0 else alpha n z e)); [|lra].
      apply T. intros e _. destruct (Nat.eqb e i); [lra|left; apply alpha_pos, Hn]. }
    unfold alpha in T'. apply (Rmult_le_compat_r (Z n z)) in T'; [|lra].
    unfold Rdiv in T'. rewrite !Rmult_assoc, Rinv_l, !Rmult_1_r in T' by lra.
    destruct (Rle_lt_dec (z j) (z i)) as [|Hlt]; [assumption|].
    apply exp_increasing in Hlt. lra. }
  unfold alpha. apply div_le; [exact HZ|exact HZl|].
  unfold Z. rewrite <- !sum_scal. apply sum_le. intros j Hj. rewrite <- !exp_plus. apply exp_mono.
  assert (G := cap_gap cap (l i) (l j) Hcap (Top j Hj)). unfold z. lra.
Qed.
