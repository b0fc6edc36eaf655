(** Energies of points in a ball against a sphere of squared radius R2 in m dimensions. *)

Require Import Reals Lra Lia Psatz.
Require Import Sum Softmax Vectors Series Kernel Convolution Fischer Unimodal SphereMean Energy.
Open Scope R_scope.

(* The potential of the sphere of radius R, as a polynomial in |x|^2. *)
Definition ring_term (m : nat) (R2 : R) (k : nat) : R :=
  (R2 / 4) ^ k / (INR (fact k) * INR (fact k) * rising (INR m / 2) k).

(* Its energy against that of the points: Cauchy-Schwarz between the powers of |x|^2. *)
Lemma sphere_energy n d (x : nat -> nat -> R) w R2 M K :
  sphere_mean (S d) R2 M ->
  sum n (fun i => w i * poly (ring_term (S d) R2) K (sq (S d) (x i)))
  * sum n (fun i => w i * poly (ring_term (S d) R2) K (sq (S d) (x i)))
  <= M * form n (fun i j => exp (dot (S d) (x i) (x j))) w.
Proof.
  intros HM. assert (Hm : (1 <= S d)%nat) by lia.
  set (b := fun k => (R2 / 4) ^ k / (INR (fact k) * rising (INR (S d) / 2) k)).
  set (tau := fun k => sum n (fun i => w i * power_term (sq (S d) (x i)) k)).
  set (c := fun k => 4 ^ k * rising (INR (S d) / 2) k).
  set (q := fun e => form n (fun i j => power_term (dot (S d) (x i) (x j)) e) w).
  assert (Hf : forall k, 0 < INR (fact k)) by (intros; apply INR_fact_lt_0).
  assert (Hr : forall k, 0 < rising (INR (S d) / 2) k)
    by (intros; apply rising_pos, half_pos, Hm).
  assert (Hc : forall k, 0 < c k)
    by (intros; apply Rmult_lt_0_compat; [apply pow_lt; lra|apply Hr]).
  assert (HA : sum n (fun i => w i * poly (ring_term (S d) R2) K (sq (S d) (x i)))
               = sum (S K) (fun k => b k * tau k)).
  { unfold tau.
    rewrite (sum_ext (S K) _ (fun k => sum n (fun i =>
      w i * (ring_term (S d) R2 k * sq (S d) (x i) ^ k)))).
    - rewrite sum_swap. apply sum_ext. intros i _. unfold poly. symmetry. apply sum_scal.
    - intros k _. rewrite <- sum_scal. apply sum_ext. intros i _.
      unfold b, ring_term, power_term. assert (F := Hf k). assert (R := Hr k). field. lra. }
  rewrite HA. apply Rle_trans with (1 := cauchy_weighted (S K) b tau c Hc).
  apply Rmult_le_compat.
  - apply sum_nonneg. intros k _. apply Rmult_le_pos; [apply Rle_0_sqr|left; apply Hc].
  - apply sum_nonneg. intros k _.
    apply Rmult_le_pos; [left; apply Rinv_0_lt_compat, Hc|apply Rle_0_sqr].
  - apply Rle_trans with (2 := mean_beginning (S d) R2 M K Hm HM). right. apply sum_ext.
    intros k _. unfold b, c, mean_term. assert (F := Hf k). assert (R := Hr k).
    replace (R2 * R2 / 4) with (4 * (R2 / 4 * (R2 / 4))) by field.
    rewrite !Rpow_mult_distr. field. lra.
  - apply Rle_trans with (sum (S K) (fun k => q (2 * k)%nat)).
    + apply sum_le. intros k _. assert (H := fischer n d x k w). fold (tau k) (c k) in H.
      fold (q (2 * k)%nat) in H. assert (C := Hc k).
      apply (Rmult_le_reg_l (c k)); [exact C|]. rewrite <- Rmult_assoc, Rinv_r, Rmult_1_l by lra.
      exact H.
    + apply Rle_trans with (1 := even_terms K q (fun e => power_psd n (S d) x e w)).
      apply (growing_ineq (fun K => sum (S K) q)).
      * intros j. assert (H := power_psd n (S d) x (S j) w). fold (q (S j)) in H. simpl in *. lra.
      * assert (L : Un_cv (fun K => sum n (fun i => sum n (fun j =>
            w i * w j * sum (S K) (power_term (dot (S d) (x i) (x j))))))
          (form n (fun i j => exp (dot (S d) (x i) (x j))) w)).
        { apply (limit_sum n (fun K i => sum n (fun j =>
            w i * w j * sum (S K) (power_term (dot (S d) (x i) (x j)))))).
          intros i _. apply (limit_sum n (fun K j =>
            w i * w j * sum (S K) (power_term (dot (S d) (x i) (x j))))).
          intros j _. apply limit_scal, exp_series. }
        intros eps He. destruct (L eps He) as (N & HN). exists N. intros J HJ.
        replace (sum (S J) q) with (sum n (fun i => sum n (fun j =>
            w i * w j * sum (S J) (power_term (dot (S d) (x i) (x j)))))); [apply HN, HJ|].
        unfold q, form. symmetry. rewrite sum_swap. apply sum_ext. intros i _.
        rewrite sum_swap. apply sum_ext. intros j _. apply sum_scal.
Qed.

(* The potential is least at the centre or at the farthest points. *)
Lemma sphere_potential m R2 K y top :
  (1 <= m)%nat -> 0 < R2 -> 0 <= y <= top ->
  1 <= exp (- (y / 2)) * poly (ring_term m R2) K y \/
  poly (ring_term m R2) K top * exp (- (top / 2)) <= exp (- (y / 2)) * poly (ring_term m R2) K y.
Proof.
  intros Hm HR Hy. assert (Hh := half_pos m Hm).
  assert (Hf : forall k, 0 < INR (fact k)) by (intros; apply INR_fact_lt_0).
  destruct (least_at_an_end (ring_term m R2) (fun k => R2 / 4 / (INR m / 2 + INR k)) (/ 2) K y top)
    as [H|H]; try lra; try assumption.
  - intros k. apply Rdiv_lt_0_compat; [apply pow_lt; lra|apply mean_denominator, Hm].
  - intros k. unfold ring_term. rewrite fact_simpl, mult_INR. simpl pow. simpl rising.
    rewrite S_INR. assert (F := Hf k). assert (P := rising_pos (INR m / 2) k Hh).
    assert (0 <= INR k) by apply pos_INR. field. repeat split; lra.
  - intros j k Hjk. apply le_INR in Hjk. assert (0 <= INR j) by apply pos_INR.
    apply Rmult_le_compat_l; [lra|]. apply Rinv_le_contravar; lra.
  - left. unfold ring_term at 1 in H. simpl in H.
    replace (1 / (1 * 1 * 1)) with 1 in H by field.
    replace (- (y / 2)) with (- / 2 * y) by field. lra.
  - right. replace (- (y / 2)) with (- / 2 * y) by field.
    replace (- (top / 2)) with (- / 2 * top) by field. lra.
Qed.

(* n points of the ball of squared radius top have an energy of at least n^2 / N. *)
Lemma sphere_bound n m kappa R top M M' :
  (1 <= m)%nat -> 0 < R -> 0 <= top -> (forall c, (c < m)%nat -> 0 <= kappa c <= top) ->
  sphere_mean m (R * R) M -> sphere_mean m (R * sqrt top) M' ->
  energy_at_least n m kappa (M * Rmax 1 (exp top / (M' * M'))).
Proof.
  intros Hm HR Htop Hk HM HM' x w Hx Hw.
  set (E := sum n (fun i => sum n (fun j => exp (- (sq m (fun c => x i c - x j c) / 2))))).
  set (wt := fun i => exp (- (sq m (x i) / 2))).
  assert (HE : form n (fun i j => exp (dot m (x i) (x j))) wt = E).
  { apply sum_ext. intros i _. apply sum_ext. intros j _.
    unfold wt. rewrite sq_minus, !exp_plus. reflexivity. }
  assert (HE0 : 0 <= E).
  { apply sum_nonneg. intros. apply sum_nonneg. intros. left. apply exp_pos. }
  assert (H1 : forall z L, sphere_mean m z L -> 1 <= L).
  { intros z L HL. apply Rle_trans with (2 := mean_beginning m z L 0 Hm HL).
    unfold mean_term. simpl. right. field. }
  assert (Hin : forall i, (i < n)%nat -> 0 <= sq m (x i) <= top).
  { intros i Hi. split; [apply sq_nonneg|].
    apply Rle_trans with (top * sq m (w i)); [|assert (W := Hw i Hi); nra].
    unfold sq, dot. rewrite <- sum_scal. apply sum_le. intros c Hc. rewrite Hx by assumption.
    apply Rmult_le_compat_r; [apply Rle_0_sqr|apply Hk, Hc]. }
  set (P := fun K => poly (ring_term m (R * R)) K top).
  assert (Main : forall K low, 0 <= low ->
    (forall i, (i < n)%nat -> low <= wt i * poly (ring_term m (R * R)) K (sq m (x i))) ->
    INR n * low * (INR n * low) <= M * E).
  { intros K low Hlow H. destruct m as [|d]; [lia|].
    rewrite <- HE. apply Rle_trans with (2 := sphere_energy n d x wt (R * R) M K HM).
    assert (S : INR n * low
      <= sum n (fun i => wt i * poly (ring_term (S d) (R * R)) K (sq (S d) (x i))))
      by (rewrite <- sum_const; apply sum_le, H).
    assert (Hn := pos_INR n).
    apply Rmult_le_compat; try exact S; apply Rmult_le_pos; assumption. }
  assert (HM1 := H1 _ _ HM). assert (HM2 := H1 _ _ HM').
  destruct (Rle_lt_dec (INR n * INR n) (M * E)) as [Hdone|Hnot].
  - apply Rle_trans with (1 := Hdone). rewrite Rmult_assoc.
    apply Rmult_le_compat_l; [lra|]. assert (X := Rmax_l 1 (exp top / (M' * M'))).
    apply (Rmult_le_compat_r E) in X; lra.
  - assert (HR2 : 0 < R * R) by (apply Rmult_lt_0_compat; exact HR).
    assert (HP : forall K, 0 <= P K * exp (- (top / 2))).
    { intros K. apply Rmult_le_pos; [|left; apply exp_pos]. apply sum_nonneg. intros k _.
      apply Rmult_le_pos; [|apply pow_le, Htop]. left.
      apply Rdiv_lt_0_compat; [apply pow_lt; lra|apply mean_denominator, Hm]. }
    assert (Hall : forall K, INR n * (P K * exp (- (top / 2))) * (INR n * (P K * exp (- (top / 2))))
                             <= M * E).
    { intros K. destruct (Rle_lt_dec 1 (P K * exp (- (top / 2)))) as [Hbig|Hsmall].
      - exfalso. assert (T := Main K 1 ltac:(lra)). rewrite Rmult_1_r in T.
        apply (Rlt_not_le _ _ Hnot), T. intros i Hi.
        destruct (sphere_potential m (R * R) K (sq m (x i)) top Hm HR2 (Hin i Hi)) as [H|H];
          unfold wt; [exact H|unfold P in Hbig; lra].
      - apply (Main K); [apply HP|]. intros i Hi.
        destruct (sphere_potential m (R * R) K (sq m (x i)) top Hm HR2 (Hin i Hi)) as [H|H];
          unfold wt; [lra|exact H]. }
    assert (HL : INR n * INR n * (exp (- (top / 2)) * exp (- (top / 2))) * (M' * M') <= M * E).
    { apply (limit_le (fun K =>
        INR n * INR n * (exp (- (top / 2)) * exp (- (top / 2))) * (P K * P K))).
      - assert (L : Un_cv P M').
        { intros eps He. destruct (HM' eps He) as (N & HN). exists N. intros K HK.
          replace (P K) with (sum (S K) (mean_term m (R * sqrt top))); [apply HN, HK|].
          apply sum_ext. intros k _. unfold mean_term, ring_term.
          replace (R * sqrt top * (R * sqrt top) / 4) with (R * R / 4 * top)
            by (rewrite <- (sqrt_sqrt top Htop) at 1; field).
          rewrite Rpow_mult_distr. unfold Rdiv. ring. }
        apply limit_scal, (CV_mult P P); exact L.
      - intros K. assert (T := Hall K). lra. }
    assert (He : exp top * (exp (- (top / 2)) * exp (- (top / 2))) = 1).
    { rewrite <- !exp_plus, <- exp_0. f_equal. field. }
    assert (Ht := exp_pos top).
    apply Rle_trans with (exp top / (M' * M') * (M * E)).
    + apply (Rmult_le_compat_l (exp top / (M' * M'))) in HL;
        [|left; apply Rdiv_lt_0_compat; [exact Ht|nra]].
      apply Rle_trans with (2 := HL). right.
      transitivity (INR n * INR n * (exp top * (exp (- (top / 2)) * exp (- (top / 2)))));
        [rewrite He; ring|field; lra].
    + replace (exp top / (M' * M') * (M * E)) with (M * (exp top / (M' * M')) * E) by ring.
      apply Rmult_le_compat_r; [exact HE0|]. apply Rmult_le_compat_l; [lra|apply Rmax_r].
Qed.
