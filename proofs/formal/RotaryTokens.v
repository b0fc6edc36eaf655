(** T13 under rotation: keys R_j (C v_j + c), turned by angles of their own, all queries at one
    position. Scales S that commute with the turns cover the keys: with |S^-1 (C v + c)| <= 1 on the
    ball every turned key is S z with |z| <= 1, so the singular values are those of A^T S. *)

Require Import Reals Lra Lia Psatz Arith.
Require Import Sum Softmax Vectors Rotation Simplex Energy Capacity Tokens.
Open Scope R_scope.

(* The diagonal matrix of the scales. *)
Definition diagonal (s : nat -> R) (c b : nat) : R := if Nat.eqb b c then s c else 0.

(* It multiplies each coordinate. *)
Lemma image_diagonal d s z c : (c < d)%nat -> image d (diagonal s) z c = s c * z c.
Proof.
  intros Hc. unfold image, diagonal. rewrite (sum_split d c) by exact Hc.
  rewrite Nat.eqb_refl, (sum_ext d _ (fun _ => 0)), sum_const; [ring|].
  intros b _. destruct (Nat.eqb b c); ring.
Qed.

(* In some context of n keys turned by phi_j the tokens s_0 .. s_(k - 1) get coefficient p each;
   fixed is the part of the key bias on pairs that are never turned. *)
Definition retrieves_turned h r r' A a C c fixed (phi : nat -> nat -> R) n k s p : Prop :=
  exists u v f g sink,
    (forall i, (i < k)%nat -> (s i < n)%nat) /\
    (forall i j, (i < k)%nat -> (j < k)%nat -> s i = s j -> i = j) /\
    (forall i, (i < k)%nat -> in_ball r (u i)) /\ (forall j, (j < n)%nat -> in_ball r' (v j)) /\
    (forall i, 0 <= sink i) /\
    forall i, (i < k)%nat ->
      let l j := dot (2 * h) (point r A a (u i))
                   (rotate (phi j) (fun e => point r' C c (v j) e + fixed e)) + f i + g j in
      p <= exp (l (s i)) / (Z n l + sink i).

(* Under rotation such a context is one without, of the head A, S: so every bound on it holds. *)
Theorem T13_turned h r r' A a C c fixed phi scales n k s p :
  (forall e, (e < 2 * h)%nat -> scales e <> 0) ->
  (forall j, (j < n)%nat -> commutes h scales (phi j)) ->
  (forall j q, (j < n)%nat -> (q < h)%nat ->
     phi j q = 0 \/ fixed (2 * q)%nat = 0 /\ fixed (S (2 * q)) = 0) ->
  (forall v, in_ball r' v -> in_ball (2 * h) (scale (fun e => / scales e) (point r' C c v))) ->
  retrieves_turned h r r' A a C c fixed phi n k s p ->
  retrieves (2 * h) r (2 * h) A a (diagonal scales) fixed n k s p.
Proof.
  intros Hs Hcom Hfix Hcover (u & v & f & g & sink & H1 & H2 & H3 & H4 & H5 & H).
  set (z := fun j => scale (fun e => / scales e) (rotate (phi j) (point r' C c (v j)))).
  exists u, z, f, g, sink. repeat (split; [assumption|]). split; [|split; [exact H5|]].
  - intros j Hj. unfold z, in_ball, norm. rewrite rotate_scaled.
    + apply Hcover, H4, Hj.
    + intros q Hq. destruct (Hcom j Hj q Hq) as [E|E]; [left; rewrite E; reflexivity|auto].
  - intros i Hi. cbv zeta.
    set (l := fun j => dot (2 * h) (point r A a (u i))
      (rotate (phi j) (fun e => point r' C c (v j) e + fixed e)) + f i + g j).
    assert (E : forall j, (j < n)%nat ->
      rows (2 * h) r (2 * h) A a (diagonal scales) fixed u z f g i j = l j).
    { intros j Hj. unfold rows, logit, l. f_equal. f_equal. apply dot_ext; [reflexivity|].
      intros e He.
      rewrite (rotate_fixed h (phi j) (point r' C c (v j)) fixed (fun q Hq => Hfix j q Hj Hq) e He).
      unfold point at 1. rewrite image_diagonal by exact He. unfold z, scale. field. apply Hs, He. }
    rewrite (E (s i)) by (apply H1, Hi).
    replace (Z n (rows (2 * h) r (2 * h) A a (diagonal scales) fixed u z f g i)) with (Z n l).
    + exact (H i Hi).
    + unfold Z. apply sum_ext. intros j Hj. rewrite E by exact Hj. reflexivity.
Qed.

(* T13 under rotation: at most N / p tokens, N from bounds on the singular values of A^T S. *)
Theorem T13_rotary h r r' m A a C c fixed phi scales bound t n k s p :
  0 < t -> 0 < p -> (forall e, (e < 2 * h)%nat -> scales e <> 0) ->
  (forall j, (j < n)%nat -> commutes h scales (phi j)) ->
  (forall j q, (j < n)%nat -> (q < h)%nat ->
     phi j q = 0 \/ fixed (2 * q)%nat = 0 /\ fixed (S (2 * q)) = 0) ->
  (forall v, in_ball r' v -> in_ball (2 * h) (scale (fun e => / scales e) (point r' C c v))) ->
  spectrum_le (2 * h) r (2 * h) m A (diagonal scales) bound ->
  retrieves_turned h r r' A a C c fixed phi n k s p ->
  INR k * p <= exp (log_capacity m bound t).
Proof.
  intros Ht Hp Hs Hcom Hfix Hcover HS HR.
  apply (T13_tokens (2 * h) r (2 * h) m A a (diagonal scales) fixed bound t n k s p Ht Hp HS).
  apply (T13_turned h r r' A a C c fixed phi); assumption.
Qed.
