(** T10 in closed form: gains alone, queries g u and keys g' v coordinate by coordinate, u and v in
    unit balls (RMS QK norm before the rotation, no bias). *)

Require Import Reals Lra Lia Psatz Arith.
Require Import Sum Vectors Rotation SimplexAttained.
Open Scope R_scope.

(* G bounds the products of gains within a pair that is turned, and coordinate by coordinate in one
   that is not. *)
Definition gains_le (h : nat) (g g' theta phi : nat -> R) (G : R) : Prop :=
  forall p, (p < h)%nat ->
    (forall c e, (c = 2 * p \/ c = S (2 * p))%nat -> (e = 2 * p \/ e = S (2 * p))%nat ->
       Rabs (g c) * Rabs (g' e) <= G) \/
    theta p = 0 /\ phi p = 0 /\
    forall c, (c = 2 * p \/ c = S (2 * p))%nat -> Rabs (g c) * Rabs (g' c) <= G.

(* A square of a product is at most that of a larger one. *)
Lemma square_le x y : Rabs x <= y -> x * x <= y * y.
Proof.
  intros H. assert (P := Rabs_pos x). assert (E := Rsqr_abs x). unfold Rsqr in E. rewrite E.
  apply Rmult_le_compat; assumption.
Qed.

(* The part of one pair that is turned. *)
Lemma turned_pair g0 g1 g0' g1' G u0 u1 v0 v1 s :
  Rabs g0 * Rabs g0' <= G -> Rabs g0 * Rabs g1' <= G ->
  Rabs g1 * Rabs g0' <= G -> Rabs g1 * Rabs g1' <= G ->
  s * s <= (g0 * u0 * (g0 * u0) + g1 * u1 * (g1 * u1))
           * (g0' * v0 * (g0' * v0) + g1' * v1 * (g1' * v1)) ->
  Rabs (2 * s) <= G * (u0 * u0 + u1 * u1 + (v0 * v0 + v1 * v1)).
Proof.
  intros H00 H01 H10 H11 Hs.
  assert (HG : 0 <= G) by (apply Rle_trans with (2 := H00); apply Rmult_le_pos; apply Rabs_pos).
  assert (S2 : forall a b, Rabs a * Rabs b <= G -> a * a * (b * b) <= G * G).
  { intros a b H. rewrite <- Rabs_mult in H. apply square_le in H. lra. }
  assert (P : forall x, 0 <= x * x) by (intros; apply Rle_0_sqr).
  assert (T : s * s <= G * G * ((u0 * u0 + u1 * u1) * (v0 * v0 + v1 * v1))).
  { apply Rle_trans with (1 := Hs).
    assert (Q : forall a b x y, Rabs a * Rabs b <= G ->
      a * x * (a * x) * (b * y * (b * y)) <= G * G * (x * x * (y * y))).
    { intros a b x y H. replace (a * x * (a * x) * (b * y * (b * y)))
        with (a * a * (b * b) * (x * x * (y * y))) by ring.
      apply Rmult_le_compat_r; [apply Rmult_le_pos; apply P|apply S2, H]. }
    assert (Q00 := Q _ _ u0 v0 H00). assert (Q01 := Q _ _ u0 v1 H01).
    assert (Q10 := Q _ _ u1 v0 H10). assert (Q11 := Q _ _ u1 v1 H11). lra. }
  set (U := u0 * u0 + u1 * u1) in *. set (V := v0 * v0 + v1 * v1) in *.
  assert (HU : 0 <= U) by (unfold U; assert (A := P u0); assert (B := P u1); lra).
  assert (HV : 0 <= V) by (unfold V; assert (A := P v0); assert (B := P v1); lra).
  assert (R : 0 <= G * (U + V)) by (apply Rmult_le_pos; lra).
  apply Rsqr_incr_0_var; [|exact R]. rewrite <- Rsqr_abs. unfold Rsqr.
  assert (0 <= G * G * ((U - V) * (U - V))) by (apply Rmult_le_pos; apply P). lra.
Qed.

(* T10, closed form: no logit exceeds G, whatever the angles. *)
Theorem T10_gains h g g' theta phi G u v :
  gains_le h g g' theta phi G -> 0 <= G -> in_ball (2 * h) u -> in_ball (2 * h) v ->
  Rabs (dot (2 * h) (rotate theta (scale g u)) (rotate phi (scale g' v))) <= G.
Proof.
  intros Hg HG Hu Hv. apply sq_bound in Hu, Hv.
  set (t := fun p => rotate theta (scale g u) (2 * p) * rotate phi (scale g' v) (2 * p)
    + rotate theta (scale g u) (S (2 * p)) * rotate phi (scale g' v) (S (2 * p))).
  set (w := fun p => u (2 * p)%nat * u (2 * p)%nat + u (S (2 * p)) * u (S (2 * p))
    + (v (2 * p)%nat * v (2 * p)%nat + v (S (2 * p)) * v (S (2 * p)))).
  assert (Pair : forall p, (p < h)%nat -> Rabs (2 * t p) <= G * w p).
  { intros p Hp. unfold t, w.
    destruct (rotate_pair theta (scale g u) p) as [E0 E1].
    destruct (rotate_pair phi (scale g' v) p) as [F0 F1]. rewrite E0, E1, F0, F1. unfold scale.
    destruct (Hg p Hp) as [H|(Zt & Zp & H)].
    - apply (turned_pair (g (2 * p)%nat) (g (S (2 * p))) (g' (2 * p)%nat) (g' (S (2 * p))));
        try (apply H; auto).
      assert (A := sin2_cos2 (theta p)). assert (B := sin2_cos2 (phi p)). unfold Rsqr in A, B.
      set (x0 := g (2 * p)%nat * u (2 * p)%nat). set (x1 := g (S (2 * p)) * u (S (2 * p))).
      set (y0 := g' (2 * p)%nat * v (2 * p)%nat). set (y1 := g' (S (2 * p)) * v (S (2 * p))).
      set (c := cos (theta p)) in *. set (s := sin (theta p)) in *.
      set (c' := cos (phi p)) in *. set (s' := sin (phi p)) in *.
      set (a0 := c * x0 - s * x1). set (a1 := s * x0 + c * x1).
      set (b0 := c' * y0 - s' * y1). set (b1 := s' * y0 + c' * y1).
      replace (x0 * x0 + x1 * x1) with (a0 * a0 + a1 * a1)
        by (transitivity ((s * s + c * c) * (x0 * x0 + x1 * x1)); [unfold a0, a1; ring|];
            rewrite A; ring).
      replace (y0 * y0 + y1 * y1) with (b0 * b0 + b1 * b1)
        by (transitivity ((s' * s' + c' * c') * (y0 * y0 + y1 * y1)); [unfold b0, b1; ring|];
            rewrite B; ring).
      assert (Q := Rle_0_sqr (a0 * b1 - a1 * b0)). unfold Rsqr in Q. lra.
    - rewrite Zt, Zp, sin_0, cos_0.
      assert (One : forall c, (c = 2 * p \/ c = S (2 * p))%nat ->
        Rabs (2 * (g c * u c * (g' c * v c))) <= G * (u c * u c + v c * v c)).
      { intros c Hc. replace (2 * (g c * u c * (g' c * v c))) with (g c * g' c * (2 * (u c * v c)))
          by ring.
        rewrite Rabs_mult, (Rabs_mult (g c)). apply Rmult_le_compat; try apply Rabs_pos;
          [apply Rmult_le_pos; apply Rabs_pos|apply H, Hc|].
        assert (Q := Rle_0_sqr (u c - v c)). assert (Q' := Rle_0_sqr (u c + v c)).
        unfold Rsqr in Q, Q'. apply Rabs_le. lra. }
      assert (O0 := One (2 * p)%nat ltac:(auto)). assert (O1 := One (S (2 * p)) ltac:(auto)).
      eapply Rle_trans; [|apply Rle_trans with (1 := Rplus_le_compat _ _ _ _ O0 O1); right; ring].
      eapply Rle_trans; [|apply Rabs_triang]. right. f_equal. ring. }
  assert (W : sum h w = sq (2 * h) u + sq (2 * h) v).
  { unfold w, sq, dot. rewrite sum_plus, !sum_pairs. reflexivity. }
  assert (D : dot (2 * h) (rotate theta (scale g u)) (rotate phi (scale g' v)) = sum h t)
    by (unfold dot; apply sum_pairs).
  rewrite D.
  assert (B1 : sum h (fun p => 2 * t p) <= sum h (fun p => G * w p)).
  { apply sum_le. intros p Hp. apply Rle_trans with (1 := Rle_abs _), Pair, Hp. }
  assert (B2 : sum h (fun p => -2 * t p) <= sum h (fun p => G * w p)).
  { apply sum_le. intros p Hp. replace (-2 * t p) with (- (2 * t p)) by ring.
    apply Rle_trans with (1 := Rle_abs _). rewrite Rabs_Ropp. apply Pair, Hp. }
  rewrite !sum_scal, W in B1, B2.
  assert (G * (sq (2 * h) u + sq (2 * h) v) <= G * 2) by (apply Rmult_le_compat_l; lra).
  apply Rabs_le. lra.
Qed.

(* One coordinate alone. *)
Definition unit (c e : nat) : R := if Nat.eqb e c then 1 else 0.

(* T10, closed form, attained at free angles: two coordinates of a pair can meet. *)
Theorem T10_gains_attained h g g' p c e :
  (p < h)%nat -> (c = 2 * p \/ c = S (2 * p))%nat -> (e = 2 * p \/ e = S (2 * p))%nat ->
  in_ball (2 * h) (unit c) /\ in_ball (2 * h) (unit e) /\
  exists phi,
    Rabs (dot (2 * h) (rotate (fun _ => 0) (scale g (unit c))) (rotate phi (scale g' (unit e))))
    = Rabs (g c) * Rabs (g' e).
Proof.
  intros Hp Hc He.
  assert (Ball : forall c, (c = 2 * p \/ c = S (2 * p))%nat -> in_ball (2 * h) (unit c)).
  { intros d Hd. apply norm_bound; [lra|]. unfold sq, dot, unit.
    rewrite (sum_ext (2 * h) _ (fun e => if Nat.eqb e d then 1 else 0)).
    - rewrite (sum_pick (2 * h) d (fun _ => 1)) by lia. lra.
    - intros b _. destruct (Nat.eqb b d); ring. }
  split; [apply Ball, Hc|split; [apply Ball, He|]].
  set (angle := if Nat.eqb c e then 0 else if Nat.ltb c e then - (PI / 2) else PI / 2).
  exists (fun _ => angle). rewrite <- Rabs_mult. f_equal. unfold dot. rewrite sum_pairs.
  rewrite (sum_ext h _ (fun q => if Nat.eqb q p then g c * g' e else 0));
    [apply (sum_pick h p (fun _ => g c * g' e)), Hp|].
  intros q _.
  destruct (rotate_pair (fun _ => 0) (scale g (unit c)) q) as [E0 E1].
  destruct (rotate_pair (fun _ => angle) (scale g' (unit e)) q) as [F0 F1].
  cbv beta. rewrite E0, E1, F0, F1. unfold scale, unit, angle. rewrite sin_0, cos_0.
  destruct (Nat.eqb_spec q p) as [->|Hqp].
  - destruct Hc as [-> | ->], He as [-> | ->]; rewrite ?Nat.eqb_refl;
      repeat match goal with
      | |- context [Nat.eqb ?a ?b] => destruct (Nat.eqb_spec a b); [lia|]
      | |- context [Nat.ltb ?a ?b] => destruct (Nat.ltb_spec a b); try lia
      end;
      rewrite ?sin_neg, ?cos_neg, ?sin_PI2, ?cos_PI2, ?sin_0, ?cos_0; ring.
  - destruct (Nat.eqb_spec (2 * q) c), (Nat.eqb_spec (S (2 * q)) c); try lia. ring.
Qed.
