(** T10: logits under rotation, scales that commute with it, and the cells of branching. *)

Require Import Reals Lra Lia Psatz Arith.
Require Import Sum Vectors.
Open Scope R_scope.

(* Coordinates 2p and 2p + 1 are turned by the angle theta p; angle 0 leaves them alone. *)
Definition rotate (theta : nat -> R) (x : nat -> R) (c : nat) : R :=
  let t := theta (Nat.div2 c) in
  if Nat.even c then cos t * x c - sin t * x (S c) else sin t * x (pred c) + cos t * x c.

(* One factor a coordinate. *)
Definition scale (s : nat -> R) (x : nat -> R) (c : nat) : R := s c * x c.

(* Both coordinates of a pair have one scale, unless no rotation turns the pair. *)
Definition commutes (m : nat) (s theta : nat -> R) : Prop :=
  forall p, (p < m)%nat -> s (2 * p)%nat = s (S (2 * p)) \/ theta p = 0.

(* A sum over coordinates is one over pairs. *)
Lemma sum_pairs m f : sum (2 * m) f = sum m (fun p => f (2 * p)%nat + f (S (2 * p))).
Proof.
  induction m as [|m IH]; [reflexivity|]. replace (2 * S m)%nat with (S (S (2 * m))) by lia.
  change (sum (2 * m) f + f (2 * m)%nat + f (S (2 * m))
          = sum m (fun p => f (2 * p)%nat + f (S (2 * p))) + (f (2 * m)%nat + f (S (2 * m)))).
  rewrite IH. ring.
Qed.

(* The two coordinates of a turned pair. *)
Lemma rotate_pair theta x p :
  rotate theta x (2 * p) = cos (theta p) * x (2 * p)%nat - sin (theta p) * x (S (2 * p)) /\
  rotate theta x (S (2 * p)) = sin (theta p) * x (2 * p)%nat + cos (theta p) * x (S (2 * p)).
Proof.
  unfold rotate. rewrite Nat.div2_double, Nat.div2_succ_double.
  rewrite Nat.even_succ, Nat.odd_mul, Nat.even_mul. split; reflexivity.
Qed.

(* Rotation keeps squares, scaled or not. *)
Lemma rotate_scaled m s theta x :
  commutes m s theta -> sq (2 * m) (scale s (rotate theta x)) = sq (2 * m) (scale s x).
Proof.
  intros Hc. unfold sq, dot. rewrite !sum_pairs. apply sum_ext. intros p Hp.
  destruct (rotate_pair theta x p) as [E0 E1]. unfold scale. rewrite E0, E1.
  destruct (Hc p Hp) as [E|E]; rewrite E.
  - assert (Hcs := sin2_cos2 (theta p)). unfold Rsqr in Hcs.
    set (a := sin (theta p)) in *. set (b := cos (theta p)) in *.
    transitivity ((a * a + b * b) * (s (S (2 * p)) * s (S (2 * p)))
      * (x (2 * p)%nat * x (2 * p)%nat + x (S (2 * p)) * x (S (2 * p)))); [ring|].
    rewrite Hcs. ring.
  - rewrite sin_0, cos_0. ring.
Qed.

(* T10: |<R q, R' k>| <= |S^-1 q| |S k| for all rotations that commute with S. *)
Theorem T10_logit m s theta phi q k :
  (forall c, (c < 2 * m)%nat -> s c <> 0) -> commutes m s theta -> commutes m s phi ->
  Rabs (dot (2 * m) (rotate theta q) (rotate phi k))
  <= norm (2 * m) (scale (fun c => / s c) q) * norm (2 * m) (scale s k).
Proof.
  intros Hs Ht Hp.
  assert (Hti : commutes m (fun c => / s c) theta).
  { intros p Hpm. destruct (Ht p Hpm) as [E|E]; [left; rewrite E; reflexivity|right; exact E]. }
  assert (E : dot (2 * m) (rotate theta q) (rotate phi k)
    = dot (2 * m) (scale (fun c => / s c) (rotate theta q)) (scale s (rotate phi k))).
  { apply sum_ext. intros c Hc. unfold scale. field. apply Hs, Hc. }
  rewrite E. apply Rle_trans with (1 := dot_norm (2 * m) _ _). right. unfold norm.
  rewrite !rotate_scaled by assumption. reflexivity.
Qed.

(* T10 for any S: maps S and T with <T x, S y> = <x, y> that commute with two turns which keep
   norms, T = S^-1 for symmetric S. *)
Theorem T10_commuting d (S T turn turn' : (nat -> R) -> nat -> R) q k :
  (forall x y, dot d (T x) (S y) = dot d x y) ->
  (forall x, sq d (turn x) = sq d x) -> (forall x, sq d (turn' x) = sq d x) ->
  (forall c, (c < d)%nat -> T (turn q) c = turn (T q) c) ->
  (forall c, (c < d)%nat -> S (turn' k) c = turn' (S k) c) ->
  Rabs (dot d (turn q) (turn' k)) <= norm d (T q) * norm d (S k).
Proof.
  intros HST Ht Ht' HT HS. rewrite <- HST, (dot_ext d _ _ _ _ HT HS).
  apply Rle_trans with (1 := dot_norm d _ _). right. unfold norm. rewrite Ht, Ht'. reflexivity.
Qed.

(* A bias on pairs that no rotation turns stays where it is. *)
Lemma rotate_fixed m phi k f :
  (forall p, (p < m)%nat -> phi p = 0 \/ f (2 * p)%nat = 0 /\ f (S (2 * p)) = 0) ->
  forall c, (c < 2 * m)%nat -> rotate phi (fun c => k c + f c) c = rotate phi k c + f c.
Proof.
  intros H c Hc.
  assert (Hp : exists p, (p < m)%nat /\ (c = 2 * p \/ c = S (2 * p))%nat).
  { exists (Nat.div2 c). assert (E := Nat.div2_odd c). destruct (Nat.odd c); simpl in E; lia. }
  destruct Hp as (p & Hpm & Hcp).
  destruct (rotate_pair phi (fun c => k c + f c) p) as [E0 E1].
  destruct (rotate_pair phi k p) as [F0 F1].
  destruct Hcp as [-> | ->]; [rewrite E0, F0|rewrite E1, F1];
    (destruct (H p Hpm) as [Z|[Z0 Z1]]; [rewrite Z, sin_0, cos_0; ring|rewrite Z0, Z1; ring]).
Qed.

(* T10: the spread is at most 2 |S^-1 q| max |S k|; the part f of the key bias that no rotation
   turns cancels. *)
Theorem T10_spread m s theta phi phi' q k k' f Q K :
  (forall c, (c < 2 * m)%nat -> s c <> 0) ->
  commutes m s theta -> commutes m s phi -> commutes m s phi' ->
  (forall p, (p < m)%nat ->
    phi p = 0 /\ phi' p = 0 \/ f (2 * p)%nat = 0 /\ f (S (2 * p)) = 0) ->
  norm (2 * m) (scale (fun c => / s c) q) <= Q ->
  norm (2 * m) (scale s k) <= K -> norm (2 * m) (scale s k') <= K ->
  dot (2 * m) (rotate theta q) (rotate phi (fun c => k c + f c))
  - dot (2 * m) (rotate theta q) (rotate phi' (fun c => k' c + f c)) <= 2 * (Q * K).
Proof.
  intros Hs Ht Hp Hp' Hf HQ HK HK'.
  rewrite (dot_ext _ _ (rotate phi (fun c => k c + f c)) (rotate theta q)
    (fun c => rotate phi k c + f c)); [|reflexivity|].
  2:{ apply rotate_fixed. intros p Hpm. destruct (Hf p Hpm) as [[H _]|H]; auto. }
  rewrite (dot_ext _ _ (rotate phi' (fun c => k' c + f c)) (rotate theta q)
    (fun c => rotate phi' k' c + f c)); [|reflexivity|].
  2:{ apply rotate_fixed. intros p Hpm. destruct (Hf p Hpm) as [[_ H]|H]; auto. }
  rewrite !dot_plus.
  assert (H1 := T10_logit m s theta phi q k Hs Ht Hp).
  assert (H2 := T10_logit m s theta phi' q k' Hs Ht Hp').
  destruct (norm_facts (2 * m) (scale (fun c => / s c) q)) as [Hq0 _].
  destruct (norm_facts (2 * m) (scale s k)) as [Hk0 _].
  destruct (norm_facts (2 * m) (scale s k')) as [Hk0' _].
  assert (B1 := Rmult_le_compat _ _ _ _ Hq0 Hk0 HQ HK).
  assert (B2 := Rmult_le_compat _ _ _ _ Hq0 Hk0' HQ HK').
  assert (A1 := Rle_abs (dot (2 * m) (rotate theta q) (rotate phi k))).
  assert (A2 := Rle_abs (- dot (2 * m) (rotate theta q) (rotate phi' k'))).
  rewrite Rabs_Ropp in A2. lra.
Qed.

(* Numbers that begin and end with opposite signs have two neighbours that do. *)
Lemma sign_change K (g : nat -> R) :
  g (S K) = - g O -> exists j, (j <= K)%nat /\ g j * g (S j) <= 0.
Proof.
  assert (H : forall n, (exists j, (j <= n)%nat /\ g j * g (S j) <= 0) \/ 0 < g O * g (S n)).
  { induction n as [|n [(j & Hj & H)|H]].
    - destruct (Rle_lt_dec (g O * g 1%nat) 0); [left; exists O; split; [lia|assumption]|auto].
    - left. exists j. split; [lia|exact H].
    - destruct (Rle_lt_dec (g (S n) * g (S (S n))) 0) as [H1|H1];
        [left; exists (S n); split; [lia|exact H1]|right].
      assert (P := Rmult_lt_0_compat _ _ H H1).
      assert (Hs := Rle_0_sqr (g (S n))). unfold Rsqr in Hs.
      destruct (Rlt_le_dec 0 (g O * g (S (S n)))) as [|N]; [assumption|nra]. }
  intros E. destruct (H K) as [|Hp]; [assumption|exfalso]. rewrite E in Hp.
  assert (Hs := Rle_0_sqr (g O)). unfold Rsqr in Hs. lra.
Qed.

(* T10, branching: with f_(K+1) = - f_0 every z of the ball lies in a cell
   (f_j . z) (f_(j+1) . z) <= 0, and there a form that is at most mu |z|^2 plus a multiple
   lambda >= 0 of that product is at most mu. *)
Theorem T10_cells r K (f : nat -> nat -> R) (form : nat -> (nat -> R) -> R) lambda mu z :
  (forall b, (b < r)%nat -> f (S K) b = - f O b) ->
  (forall j, (j <= K)%nat -> 0 <= lambda j /\ 0 <= mu j /\
     forall y, form j y <= mu j * sq r y + lambda j * (dot r (f j) y * dot r (f (S j)) y)) ->
  in_ball r z ->
  exists j, (j <= K)%nat /\ dot r (f j) z * dot r (f (S j)) z <= 0 /\ form j z <= mu j.
Proof.
  intros Hf Hform Hz. destruct (sign_change K (fun j => dot r (f j) z)) as (j & Hj & H).
  - rewrite !(dot_comm r _ z). rewrite <- (Rmult_1_l (dot r z (f O))), Ropp_mult_distr_l.
    rewrite <- dot_scal. apply dot_ext; [reflexivity|]. intros b Hb. rewrite Hf by exact Hb. ring.
  - exists j. split; [exact Hj|split; [exact H|]].
    destruct (Hform j Hj) as (Hl & Hm & Hq). assert (E := Hq z).
    apply sq_bound in Hz. nra.
Qed.

(* T10, branching: queries L z, cells of z with scales, multipliers and key bounds of their own. *)
Theorem T10_branching h r K (f : nat -> nat -> R) (s : nat -> nat -> R) lambda mu kappa bound L
    theta phi z k :
  (forall b, (b < r)%nat -> f (S K) b = - f O b) ->
  (forall j, (j <= K)%nat ->
     (forall c, (c < 2 * h)%nat -> s j c <> 0) /\ commutes h (s j) theta /\ commutes h (s j) phi /\
     0 <= lambda j /\ 0 <= mu j /\ norm (2 * h) (scale (s j) k) <= kappa j /\
     sqrt (mu j) * kappa j <= bound /\
     forall y, sq (2 * h) (scale (fun c => / s j c) (image r L y))
       <= mu j * sq r y + lambda j * (dot r (f j) y * dot r (f (S j)) y)) ->
  in_ball r z ->
  Rabs (dot (2 * h) (rotate theta (image r L z)) (rotate phi k)) <= bound.
Proof.
  intros Hf H Hz.
  destruct (T10_cells r K f (fun j y => sq (2 * h) (scale (fun c => / s j c) (image r L y)))
    lambda mu z Hf ltac:(intros j Hj; destruct (H j Hj) as (_ & _ & _ & Hl & Hm & _ & _ & Hq);
                         auto) Hz) as (j & Hj & _ & Hc).
  destruct (H j Hj) as (Hs & Ht & Hp & _ & Hm & Hk & Hb & _).
  apply Rle_trans with (1 := T10_logit h (s j) theta phi (image r L z) k Hs Ht Hp).
  apply Rle_trans with (2 := Hb). apply Rmult_le_compat; try apply norm_facts; [|exact Hk].
  apply sqrt_le_1_alt, Hc.
Qed.
