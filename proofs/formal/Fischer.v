(** Powers of norms against powers of products, in d + 1 coordinates:

      (sum_i w_i |x_i|^2k / k!)^2 <= 4^k rising((d+1)/2, k) sum_ij w_i w_j <x_i, x_j>^2k / (2k)!

    One coordinate at a time, by Cauchy-Schwarz with the weights of Vandermonde's identity. *)

Require Import Reals Lra Lia Psatz.
Require Import Sum Series Kernel Vectors Convolution.
Open Scope R_scope.

(* Forms with equal kernels are equal. *)
Lemma form_ext n K K' w :
  (forall i j, (i < n)%nat -> (j < n)%nat -> K i j = K' i j) -> form n K w = form n K' w.
Proof.
  intros H. apply sum_ext. intros i Hi. apply sum_ext. intros j Hj. rewrite H by assumption.
  reflexivity.
Qed.

(* A sum of kernels z_k(i) z_k(j) K_k is a sum of forms. *)
Lemma form_sum n m (a : nat -> R) (z : nat -> nat -> R) (K : nat -> nat -> nat -> R) w :
  form n (fun i j => sum m (fun k => a k * (z k i * z k j * K k i j))) w
  = sum m (fun k => a k * form n (K k) (fun i => w i * z k i)).
Proof.
  unfold form. symmetry.
  rewrite (sum_ext m _ (fun k => sum n (fun i => sum n (fun j =>
    w i * w j * (a k * (z k i * z k j * K k i j)))))).
  - rewrite sum_swap. apply sum_ext. intros i _. rewrite sum_swap. apply sum_ext. intros j _.
    apply sum_scal.
  - intros k _. rewrite <- sum_scal. apply sum_ext. intros i _. rewrite <- sum_scal.
    apply sum_ext. intros j _. ring.
Qed.

(* A product kernel has a square for its form. *)
Lemma form_square n (z w : nat -> R) :
  form n (fun i j => z i * z j) w = sum n (fun i => w i * z i) * sum n (fun i => w i * z i).
Proof.
  unfold form. rewrite <- sum_scal_r. apply sum_ext. intros i _. rewrite <- sum_scal.
  apply sum_ext. intros j _. ring.
Qed.

(* One more coordinate in a power of a product. *)
Lemma power_dot n d (x : nat -> nat -> R) m w :
  form n (fun i j => power_term (dot (S d) (x i) (x j)) m) w
  = sum (S m) (fun e => / INR (fact (m - e))
      * form n (fun i j => power_term (dot d (x i) (x j)) e) (fun i => w i * x i d ^ (m - e))).
Proof.
  rewrite <- form_sum. apply form_ext. intros i j _ _. unfold dot. simpl sum at 1.
  rewrite <- power_conv. unfold conv. apply sum_ext. intros e _.
  unfold power_term. rewrite Rpow_mult_distr. ring.
Qed.

(* Powers of products are positive definite. *)
Lemma power_psd n d x m w : 0 <= form n (fun i j => power_term (dot d (x i) (x j)) m) w.
Proof.
  revert m w. induction d as [|d IH]; intros m w.
  - destruct m as [|m].
    + rewrite (form_ext n _ (fun i j => 1 * 1)), (form_square n (fun _ => 1)).
      * apply Rle_0_sqr.
      * intros. unfold power_term. simpl. field.
    + rewrite (form_ext n _ (fun i j => 0 * 0)), (form_square n (fun _ => 0)).
      * apply Rle_0_sqr.
      * intros. unfold power_term, dot. simpl. ring.
  - rewrite power_dot. apply sum_nonneg. intros e _.
    apply Rmult_le_pos; [left; apply Rinv_0_lt_compat, INR_fact_lt_0|apply IH].
Qed.

(* The constants of one step. *)
Lemma step_weight d k j :
  (j <= k)%nat ->
  4 ^ j * rising (INR (S d) / 2) j * INR (fact (2 * (k - j)))
  / (INR (fact (k - j)) * INR (fact (k - j)))
  = 4 ^ k * (rising (INR (S d) / 2) j * rising (/ 2) (k - j)).
Proof.
  intros Hj. rewrite double_fact. replace (4 ^ k) with (4 ^ j * 4 ^ (k - j))
    by (rewrite <- pow_add; f_equal; lia).
  assert (INR (fact (k - j)) <> 0) by apply INR_fact_neq_0. field. assumption.
Qed.

(* The inequality at the top of this file. *)
Lemma fischer n d (x : nat -> nat -> R) k w :
  sum n (fun i => w i * power_term (sq (S d) (x i)) k)
  * sum n (fun i => w i * power_term (sq (S d) (x i)) k)
  <= 4 ^ k * rising (INR (S d) / 2) k
     * form n (fun i j => power_term (dot (S d) (x i) (x j)) (2 * k)) w.
Proof.
  revert k w. induction d as [|d IH]; intros k w.
  - right. replace (INR 1 / 2) with (/ 2) by (simpl; field).
    rewrite (form_ext n _ (fun i j => / INR (fact (2 * k)) * (x i O ^ (2 * k) * x j O ^ (2 * k)))).
    + unfold form.
      rewrite (sum_ext n (fun i => sum n _) (fun i => / INR (fact (2 * k)) *
        sum n (fun j => w i * w j * (x i O ^ (2 * k) * x j O ^ (2 * k)))))
        by (intros; rewrite <- sum_scal; apply sum_ext; intros; ring).
      rewrite sum_scal.
      change (sum n (fun i => sum n (fun j => w i * w j * (x i O ^ (2 * k) * x j O ^ (2 * k)))))
        with (form n (fun i j => x i O ^ (2 * k) * x j O ^ (2 * k)) w).
      rewrite (form_square n (fun i => x i O ^ (2 * k))).
      rewrite (sum_ext n _ (fun i => / INR (fact k) * (w i * x i O ^ (2 * k)))), sum_scal.
      * rewrite double_fact. assert (INR (fact k) <> 0) by apply INR_fact_neq_0.
        assert (0 < 4 ^ k) by (apply pow_lt; lra).
        assert (0 < rising (/ 2) k) by (apply rising_pos; lra). field. repeat split; lra.
      * intros i _. unfold power_term, sq, dot. simpl sum.
        rewrite Rplus_0_l, pow_mult. replace (x i O ^ 2) with (x i O * x i O) by ring. ring.
    + intros i j _ _. unfold power_term, dot. simpl sum. rewrite Rplus_0_l, Rpow_mult_distr. ring.
  - assert (Hr : 0 < INR (S d) / 2).
    { assert (0 < INR (S d)) by (apply lt_0_INR; lia). lra. }
    set (tau := fun j => sum n (fun i => w i * x i (S d) ^ (2 * (k - j))
                                         * power_term (sq (S d) (x i)) j)).
    set (q := fun e => / INR (fact (2 * k - e)) *
      form n (fun i j => power_term (dot (S d) (x i) (x j)) e)
        (fun i => w i * x i (S d) ^ (2 * k - e))).
    assert (Hf : forall j, 0 < INR (fact j)) by (intros; apply INR_fact_lt_0).
    assert (HT : sum n (fun i => w i * power_term (sq (S (S d)) (x i)) k)
                 = sum (S k) (fun j => / INR (fact (k - j)) * tau j)).
    { unfold tau.
      rewrite (sum_ext (S k) _ (fun j => sum n (fun i => w i *
        (power_term (sq (S d) (x i)) j * power_term (x i (S d) * x i (S d)) (k - j))))).
      - rewrite sum_swap. apply sum_ext. intros i _. rewrite sum_scal. f_equal.
        rewrite <- (power_conv (sq (S d) (x i)) (x i (S d) * x i (S d))). reflexivity.
      - intros j _. rewrite <- sum_scal. apply sum_ext. intros i _. unfold power_term at 3.
        rewrite pow_mult. replace (x i (S d) ^ 2) with (x i (S d) * x i (S d)) by ring. ring. }
    rewrite HT.
    apply Rle_trans with (1 := cauchy_weighted (S k) (fun j => / INR (fact (k - j))) tau
      (fun j => 4 ^ j * rising (INR (S d) / 2) j * INR (fact (2 * (k - j))))
      ltac:(intros j; repeat apply Rmult_lt_0_compat;
            [apply pow_lt; lra|apply rising_pos, Hr|apply Hf])).
    apply Rmult_le_compat.
    + apply sum_nonneg. intros j _. repeat apply Rmult_le_pos; left;
        try (apply Rinv_0_lt_compat, Hf); [apply pow_lt; lra|apply rising_pos, Hr|apply Hf].
    + apply sum_nonneg. intros j _. apply Rmult_le_pos; [|apply Rle_0_sqr].
      left. apply Rinv_0_lt_compat. repeat apply Rmult_lt_0_compat;
        [apply pow_lt; lra|apply rising_pos, Hr|apply Hf].
    + right. replace (INR (S (S d)) / 2) with (INR (S d) / 2 + / 2)
        by (rewrite (S_INR (S d)); field).
      rewrite <- rising_conv. unfold conv. rewrite <- sum_scal. apply sum_ext. intros j Hj.
      rewrite <- step_weight by lia. assert (H := Hf (k - j)%nat). field. lra.
    + rewrite power_dot. fold q.
      apply Rle_trans with (2 := even_terms k q
        ltac:(intros e; apply Rmult_le_pos;
              [left; apply Rinv_0_lt_compat, Hf|apply power_psd])).
      apply sum_le. intros j Hj. unfold q.
      replace (2 * k - 2 * j)%nat with (2 * (k - j))%nat by lia.
      assert (I := IH j (fun i => w i * x i (S d) ^ (2 * (k - j)))). fold (tau j) in I.
      assert (P : 0 < 4 ^ j * rising (INR (S d) / 2) j)
        by (apply Rmult_lt_0_compat; [apply pow_lt; lra|apply rising_pos, Hr]).
      assert (H := Hf (2 * (k - j))%nat).
      set (u := 4 ^ j * rising (INR (S d) / 2) j) in *.
      apply (Rmult_le_reg_l (u * INR (fact (2 * (k - j))))); [apply Rmult_lt_0_compat; assumption|].
      set (Y := form n _ _) in *. set (N := INR (fact (2 * (k - j)))) in *.
      replace (u * N * (/ (u * N) * (tau j * tau j))) with (tau j * tau j) by (field; lra).
      replace (u * N * (/ N * Y)) with (u * Y) by (field; lra). exact I.
Qed.
