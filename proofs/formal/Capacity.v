(** T13: at most N / p tokens get coefficient p each, in any context. *)

Require Import Reals Lra Lia Psatz.
Require Import Sum Softmax Vectors Simplex Energy.
Open Scope R_scope.

(* Rows U 0 .. U (m - 1) of r coordinates are orthonormal. *)
Definition orthonormal (m r : nat) (U : nat -> nat -> R) : Prop :=
  forall c e, (c < m)%nat -> (e < m)%nat -> dot r (U c) (U e) = if Nat.eqb e c then 1 else 0.

(* Their products with a vector are together no longer than the vector. *)
Definition contraction (m r : nat) (U : nat -> nat -> R) : Prop :=
  forall u, sq m (fun c => dot r (U c) u) <= sq r u.

(* kappa 0 .. kappa (m - 1) stand for the singular values of an r by r' matrix M:
   M = sum_c kappa_c U_c V_c^T. Orthonormal U and V, those of its singular value decomposition, are
   contractions. *)
Definition singular (m r r' : nat) (M : nat -> nat -> R) (kappa : nat -> R) : Prop :=
  (forall c, (c < m)%nat -> 0 <= kappa c) /\
  exists U V, contraction m r U /\ contraction m r' V /\
    forall a b, (a < r)%nat -> (b < r')%nat ->
      M a b = sum m (fun c => kappa c * (U c a * V c b)).

(* Bessel's inequality. *)
Theorem T13_orthonormal m r U : orthonormal m r U -> contraction m r U.
Proof.
  intros HU u.
  set (p := fun a => sum m (fun c => dot r (U c) u * U c a)).
  assert (Hpx : forall x, dot r x p = sum m (fun c => dot r (U c) u * dot r (U c) x)).
  { intros x. unfold dot at 1, p.
    rewrite (sum_ext r _ (fun a => sum m (fun c => dot r (U c) u * (U c a * x a)))).
    - rewrite sum_swap. apply sum_ext. intros c _. apply sum_scal.
    - intros a _. rewrite <- sum_scal. apply sum_ext. intros c _. ring. }
  assert (Hup : dot r u p = sq m (fun c => dot r (U c) u)) by apply Hpx.
  assert (Hpp : dot r p p = sq m (fun c => dot r (U c) u)).
  { rewrite Hpx. apply sum_ext. intros c Hc. f_equal. rewrite Hpx.
    rewrite (sum_split m c) by exact Hc. rewrite HU, Nat.eqb_refl by exact Hc.
    rewrite (sum_ext m _ (fun _ => 0)), sum_const; [ring|].
    intros e He. destruct (Nat.eqb_spec e c) as [|Hne]; [reflexivity|].
    rewrite HU by assumption. destruct (Nat.eqb_spec c e); [congruence|ring]. }
  assert (H := sq_nonneg r (fun a => u a - p a)).
  unfold sq in H. rewrite dot_minus, (dot_comm r _ u), (dot_comm r _ p), !dot_minus in H.
  rewrite (dot_comm r p u), Hup, Hpp in H. unfold sq in *. lra.
Qed.

(* A matrix of norm sigma passes for one whose singular values all equal sigma. *)
Theorem T13_norm r r' M sigma :
  0 < sigma -> norm_le r r' M sigma -> singular r r r' M (fun _ => sigma).
Proof.
  intros Hs HM. split; [intros; lra|].
  exists (fun c a => if Nat.eqb a c then 1 else 0), (fun c b => M c b / sigma).
  split; [|split].
  - intros u. right. apply sum_ext. intros c Hc. unfold dot.
    rewrite (sum_ext r _ (fun a => if Nat.eqb a c then u a else 0)), sum_pick; auto.
    intros a _. destruct (Nat.eqb a c); ring.
  - intros v. assert (H := HM v). apply sq_bound in H. destruct (norm_facts r' v) as [_ E].
    assert (S : sq r (fun c => dot r' (fun b => M c b / sigma) v)
                = / (sigma * sigma) * sq r (image r' M v)).
    { unfold sq, dot at 1. unfold dot at 3. rewrite <- sum_scal. apply sum_ext. intros c _.
      assert (D : dot r' (fun b => M c b / sigma) v = image r' M v c / sigma).
      { unfold dot, image, Rdiv. rewrite <- sum_scal_r. apply sum_ext. intros. ring. }
      rewrite D. field. lra. }
    rewrite S. apply (Rmult_le_reg_l (sigma * sigma)); [apply Rmult_lt_0_compat; exact Hs|].
    rewrite <- Rmult_assoc, Rinv_r, Rmult_1_l by (apply Rgt_not_eq, Rmult_lt_0_compat; exact Hs).
    rewrite <- E. lra.
  - intros a b Ha Hb.
    rewrite (sum_ext r _ (fun c => if Nat.eqb c a then M c b else 0)).
    + symmetry. apply (sum_pick r a (fun c => M c b)), Ha.
    + intros c _. rewrite (Nat.eqb_sym a c). destruct (Nat.eqb c a); field; lra.
Qed.

(* A product through M, in singular coordinates. *)
Lemma singular_dot m r r' M kappa U V (x y : nat -> R) :
  (forall a b, (a < r)%nat -> (b < r')%nat -> M a b = sum m (fun e => kappa e * (U e a * V e b))) ->
  dot r x (image r' M y) = sum m (fun e => kappa e * (dot r (U e) x * dot r' (V e) y)).
Proof.
  intros HM. unfold dot at 1, image.
  rewrite (sum_ext r _ (fun p => sum m (fun e => kappa e * dot r' (V e) y * (U e p * x p)))).
  - rewrite sum_swap. apply sum_ext. intros e _. rewrite sum_scal. unfold dot. ring.
  - intros p Hp.
    rewrite (sum_ext r' _ (fun q => sum m (fun e => kappa e * U e p * (V e q * y q)))).
    + rewrite sum_swap, <- sum_scal. apply sum_ext. intros e _. rewrite sum_scal.
      unfold dot. ring.
    + intros q Hq. rewrite (HM p q Hp Hq), <- sum_scal_r. apply sum_ext. intros e _. ring.
Qed.

(* AM-GM on the pair (i, j), (j, i). *)
Lemma pair_mean x y : 2 * exp ((x + y) / 2) <= exp x + exp y.
Proof.
  assert (H := exp_tangent ((x + y) / 2) x). assert (H' := exp_tangent ((x + y) / 2) y). lra.
Qed.

(* A double sum is at least that of the pairs' means. *)
Lemma pairing n (e : nat -> nat -> R) :
  sum n (fun i => sum n (fun j => exp ((e i j + e j i) / 2)))
  <= sum n (fun i => sum n (fun j => exp (e i j))).
Proof.
  apply (Rmult_le_reg_l 2); [lra|].
  replace (2 * sum n (fun i => sum n (fun j => exp (e i j))))
    with (sum n (fun i => sum n (fun j => exp (e i j + 0)))
          + sum n (fun i => sum n (fun j => exp (e j i)))).
  - rewrite <- sum_scal, <- sum_plus. apply sum_le. intros i _.
    rewrite <- sum_scal, <- sum_plus. apply sum_le. intros j _.
    rewrite Rplus_0_r. apply pair_mean.
  - rewrite (sum_swap n n (fun i j => exp (e j i))).
    rewrite (sum_ext n (fun i => sum n (fun j => exp (e i j + 0)))
      (fun i => sum n (fun j => exp (e i j))))
      by (intros; apply sum_ext; intros; rewrite Rplus_0_r; reflexivity). ring.
Qed.

(* In singular coordinates y, z: the sum of all e^(l_ij - l_ii) is at least n^2 / N. *)
Lemma inverse_shares n m N kappa (y z : nat -> nat -> R) (k : nat -> R) :
  0 <= N -> energy_at_least n m kappa N -> (forall c, (c < m)%nat -> 0 <= kappa c) ->
  (forall i, (i < n)%nat -> sq m (y i) <= 1) -> (forall i, (i < n)%nat -> sq m (z i) <= 1) ->
  INR n * INR n
  <= N * sum n (fun i => sum n (fun j =>
         exp (sum m (fun c => kappa c * (y i c * (z j c - z i c))) + (k j - k i)))).
Proof.
  intros HN HE Hk Hy Hz.
  set (w := fun i c => (y i c + z i c) / 2). set (x := fun i c => sqrt (kappa c) * w i c).
  apply Rle_trans with (1 := HE x w
    ltac:(intros i c _ Hc; unfold x;
          transitivity (sqrt (kappa c) * sqrt (kappa c) * (w i c * w i c)); [ring|];
          rewrite sqrt_sqrt by (apply Hk, Hc); reflexivity)
    ltac:(intros i Hi; apply Rle_trans with (/ 2 * sq m (y i) + / 2 * sq m (z i));
          [|assert (H1 := Hy i Hi); assert (H2 := Hz i Hi); lra];
          unfold sq, dot; rewrite <- !sum_scal, <- sum_plus; apply sum_le; intros c _;
          unfold w; assert (H := Rle_0_sqr (y i c - z i c)); unfold Rsqr in H; lra)).
  apply Rmult_le_compat_l; [exact HN|].
  apply Rle_trans with (2 := pairing n (fun i j =>
    sum m (fun c => kappa c * (y i c * (z j c - z i c))) + (k j - k i))).
  apply sum_le. intros i Hi. apply sum_le. intros j Hj. apply exp_mono.
  (* <a_i - a_j, b_i - b_j> <= |x_i - x_j|^2, coordinate by coordinate *)
  assert (H : sum m (fun c => kappa c * ((y i c - y j c) * (z i c - z j c)))
              <= sq m (fun c => x i c - x j c)).
  { apply sum_le. intros c Hc. unfold x, w.
    assert (Hs := sqrt_sqrt (kappa c) (Hk c Hc)). assert (Hkc := Hk c Hc).
    set (r := sqrt (kappa c)) in *.
    replace ((r * ((y i c + z i c) / 2) - r * ((y j c + z j c) / 2))
             * (r * ((y i c + z i c) / 2) - r * ((y j c + z j c) / 2)))
      with (r * r * (((y i c - y j c) + (z i c - z j c)) * ((y i c - y j c) + (z i c - z j c)) / 4))
      by field.
    rewrite Hs. apply Rmult_le_compat_l; [exact Hkc|].
    assert (Hq := Rle_0_sqr ((y i c - y j c) - (z i c - z j c))). unfold Rsqr in Hq. lra. }
  assert (E : sum m (fun c => kappa c * ((y i c - y j c) * (z i c - z j c)))
    = - (sum m (fun c => kappa c * (y i c * (z j c - z i c)))
         + sum m (fun c => kappa c * (y j c * (z i c - z j c))))).
  { rewrite <- sum_plus.
    match goal with |- _ = - ?s => replace (- s) with (-1 * s) by ring end.
    rewrite <- sum_scal.
    apply sum_ext. intros c _. ring. }
  lra.
Qed.

(* The same for a head: the inverse coefficients of n tokens add up to at least n^2 / N. *)
Lemma harmonic n d r r' m A a C c u v f g kappa N :
  (1 <= n)%nat -> 0 <= N -> energy_at_least n m kappa N -> singular m r r' (cross d A C) kappa ->
  (forall i, (i < n)%nat -> in_ball r (u i)) -> (forall j, (j < n)%nat -> in_ball r' (v j)) ->
  INR n * INR n <= N * sum n (fun i => / alpha n (rows d r r' A a C c u v f g i) i).
Proof.
  intros Hn HN HE [Hk (U & V & HU & HV & HM)] Hu Hv.
  set (y := fun i e => dot r (U e) (u i)). set (z := fun j e => dot r' (V e) (v j)).
  set (k := fun j => dot d a (image r' C (v j)) + g j).
  set (l := rows d r r' A a C c u v f g).
  assert (Ball : forall s (q : nat) (W x : nat -> nat -> R),
            contraction m s W -> in_ball s (x q) -> sq m (fun e => dot s (W e) (x q)) <= 1).
  { intros s q W x HW Hx. apply Rle_trans with (1 := HW (x q)).
    apply sq_bound in Hx. lra. }
  assert (Hl : forall i j, l i j
    = sum m (fun e => kappa e * (y i e * z j e)) + (dot d (point r A a (u i)) c + f i) + k j).
  { intros i j. unfold l, rows, k. rewrite logit_terms.
    assert (E : dot r (u i) (image r' (cross d A C) (v j))
                = sum m (fun e => kappa e * (y i e * z j e))); [|rewrite E; ring].
    apply singular_dot, HM. }
  assert (Hinv : forall i, / alpha n (l i) i = sum n (fun j =>
    exp (sum m (fun e => kappa e * (y i e * (z j e - z i e))) + (k j - k i)))).
  { intros i. unfold alpha. assert (HZ := Z_pos n (l i) Hn). assert (Hp := exp_pos (l i i)).
    replace (/ (exp (l i i) / Z n (l i))) with (Z n (l i) * / exp (l i i)) by (field; lra).
    unfold Z. rewrite <- sum_scal_r. apply sum_ext. intros j _.
    rewrite <- exp_Ropp, <- exp_plus. f_equal. rewrite !Hl.
    rewrite (sum_ext m (fun e => kappa e * (y i e * (z j e - z i e)))
      (fun e => kappa e * (y i e * z j e) - kappa e * (y i e * z i e))) by (intros; ring).
    rewrite sum_minus. ring. }
  rewrite (sum_ext n _ _ (fun i _ => Hinv i)).
  exact (inverse_shares n m N kappa y z k HN HE Hk
    (fun i Hi => Ball r i U u HU (Hu i Hi)) (fun i Hi => Ball r' i V v HV (Hv i Hi))).
Qed.

(* T13: the inverse coefficients of n tokens add up to at least n^2 / N, at every level t > 0;
   bound_c >= kappa_c are upper bounds on the singular values of A^T C. *)
Theorem T13_harmonic n d r r' m A a C c u v f g kappa bound t :
  (1 <= n)%nat -> 0 < t -> singular m r r' (cross d A C) kappa ->
  (forall e, (e < m)%nat -> kappa e <= bound e) ->
  (forall i, (i < n)%nat -> in_ball r (u i)) -> (forall j, (j < n)%nat -> in_ball r' (v j)) ->
  INR n * INR n
  <= exp (log_capacity m bound t)
     * sum n (fun i => / alpha n (rows d r r' A a C c u v f g i) i).
Proof.
  intros Hn Ht HM Hb Hu Hv. assert (Hk := proj1 HM).
  apply Rle_trans with (1 := harmonic n d r r' m A a C c u v f g kappa _ Hn (Rlt_le _ _ (exp_pos _))
    (energy_bound n m t kappa Ht Hk) HM Hu Hv).
  apply Rmult_le_compat_r.
  - apply sum_nonneg. intros i _. left. apply Rinv_0_lt_compat, alpha_pos, Hn.
  - apply exp_mono, log_capacity_mono; [exact Ht|]. intros e He. split; [apply Hk, He|apply Hb, He].
Qed.
