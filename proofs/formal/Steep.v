(** T13'': a steep spectrum. The query of the median key along the first singular direction has half
    of the keys at most 2 kappa_2 behind. *)

Require Import Reals Lra Lia Psatz.
Require Import Sum Softmax Vectors Simplex Capacity.
Open Scope R_scope.

(* Which keys lie at or below key i, and at or above it. *)
Definition below (x : nat -> R) (i j : nat) : bool := if Rle_dec (x j) (x i) then true else false.
Definition above (x : nat -> R) (i j : nat) : bool := if Rle_dec (x i) (x j) then true else false.

(* A larger set has more items. *)
Lemma card_mono n (A B : nat -> bool) :
  (forall j, (j < n)%nat -> A j = true -> B j = true) -> (card n A <= card n B)%nat.
Proof.
  induction n as [|n IH]; intros H; simpl; [lia|].
  assert (card n A <= card n B)%nat by (apply IH; intros; apply H; [lia|assumption]).
  destruct (A n) eqn:E; [rewrite (H n ltac:(lia) E); lia|destruct (B n); lia].
Qed.

(* For every rank k some key has k others at or below it and the other n - 1 - k at or above. *)
Lemma ranked n k (x : nat -> R) :
  (k < n)%nat ->
  exists i, (i < n)%nat /\ (S k <= card n (below x i))%nat /\ (n - k <= card n (above x i))%nat.
Proof.
  revert k. induction n as [|n IH]; intros k Hk; [lia|].
  assert (Low : forall i, x i <= x n -> (card n (below x i) <= card n (below x n))%nat).
  { intros i Hi. apply card_mono. intros j _. unfold below.
    destruct (Rle_dec (x j) (x i)), (Rle_dec (x j) (x n)); auto; lra. }
  assert (High : forall i, x n <= x i -> (card n (above x i) <= card n (above x n))%nat).
  { intros i Hi. apply card_mono. intros j _. unfold above.
    destruct (Rle_dec (x i) (x j)), (Rle_dec (x n) (x j)); auto; lra. }
  assert (Self : below x n n = true /\ above x n n = true).
  { unfold below, above. destruct (Rle_dec (x n) (x n)); [auto|lra]. }
  destruct Self as [Sb Sa]. simpl card.
  destruct (Nat.eq_dec k 0) as [->|Hk0].
  - (* the smallest *)
    destruct n as [|n]; [exists O; rewrite Sb, Sa; split; [lia|cbv iota; lia]|].
    destruct (IH O ltac:(lia)) as (i & Hi & H1 & H2).
    destruct (Rle_dec (x i) (x (S n))) as [Hc|Hc].
    + exists i. split; [lia|]. unfold above at 1.
      destruct (Rle_dec (x i) (x (S n))); [cbv iota; lia|lra].
    + exists (S n). rewrite Sb, Sa. assert (E := High i ltac:(lra)). split; [lia|]. cbv iota; lia.
  - destruct (IH (pred k) ltac:(lia)) as (i & Hi & H1 & H2).
    destruct (Rle_dec (x n) (x i)) as [Hc|Hc].
    + exists i. split; [lia|]. unfold below at 1.
      destruct (Rle_dec (x n) (x i)); [cbv iota; lia|lra].
    + assert (E := Low i ltac:(lra)). destruct (Nat.eq_dec k n) as [->|Hkn].
      * exists n. rewrite Sb, Sa. split; [lia|]. cbv iota; lia.
      * destruct (IH k ltac:(lia)) as (i' & Hi' & H1' & H2').
        destruct (Rle_dec (x i') (x n)) as [Hd|Hd].
        -- exists i'. split; [lia|]. unfold above at 1.
           destruct (Rle_dec (x i') (x n)); [cbv iota; lia|lra].
        -- assert (E' := High i' ltac:(lra)). exists n. rewrite Sb, Sa.
           split; [lia|]. cbv iota; lia.
Qed.

(* Without key-only terms the logits of a row differ by what lies in singular coordinates. *)
Lemma singular_rows d r r' m A C c kappa u v f :
  singular m r r' (cross d A C) kappa ->
  exists y z : nat -> nat -> R,
    (forall i, in_ball r (u i) -> sq m (y i) <= 1) /\
    (forall j, in_ball r' (v j) -> sq m (z j) <= 1) /\
    forall i j, let l := rows d r r' A (fun _ => 0) C c u v f (fun _ => 0) in
      l i j - l i i = sum m (fun e => kappa e * (y i e * (z j e - z i e))).
Proof.
  intros [Hk (U & V & HU & HV & HM)].
  exists (fun i e => dot r (U e) (u i)), (fun j e => dot r' (V e) (v j)).
  assert (Ball : forall s W x, contraction m s W -> in_ball s x ->
            sq m (fun e => dot s (W e) x) <= 1).
  { intros s W x HW Hx. apply Rle_trans with (1 := HW x).
    apply sq_bound in Hx. lra. }
  split; [intros; apply Ball; assumption|split; [intros; apply Ball; assumption|]].
  intros i j. unfold rows. rewrite !logit_terms.
  assert (Z0 : forall x, dot d (fun _ => 0) x = 0).
  { intros. unfold dot. rewrite (sum_ext d _ (fun _ => 0)), sum_const by (intros; ring). ring. }
  rewrite !Z0.
  assert (E : forall j, dot r (u i) (image r' (cross d A C) (v j))
    = sum m (fun e => kappa e * (dot r (U e) (u i) * dot r' (V e) (v j))))
    by (intros; apply singular_dot, HM).
  rewrite !E.
  rewrite (sum_ext m (fun e => kappa e * (_ * (_ - _)))
    (fun e => kappa e * (dot r (U e) (u i) * dot r' (V e) (v j))
              - kappa e * (dot r (U e) (u i) * dot r' (V e) (v i)))) by (intros; ring).
  rewrite sum_minus. ring.
Qed.

(* What the directions after the first take away, and what all take away. *)
Lemma behind m (kappa y z z' : nat -> R) first second :
  0 <= second <= first -> (forall e, (e < S m)%nat -> 0 <= kappa e) -> kappa m <= first ->
  (forall e, (e < m)%nat -> kappa e <= second) ->
  sq (S m) y <= 1 -> sq (S m) z <= 1 -> sq (S m) z' <= 1 ->
  let gap := sum (S m) (fun e => kappa e * (y e * (z' e - z e))) in
  - (2 * first) <= gap /\ (0 <= y m * (z' m - z m) -> - (2 * second) <= gap).
Proof.
  intros Hs Hk H1 H2 Hy Hz Hz' gap.
  assert (Hd := sq_diff (S m) z' z). unfold gap. unfold sq, dot in *. simpl sum in *.
  assert (T : forall e, - (y e * (z' e - z e)) <= y e * y e + (z' e - z e) * (z' e - z e) / 4).
  { intros e. assert (Q := Rle_0_sqr (y e + (z' e - z e) / 2)). unfold Rsqr in Q. lra. }
  set (Y := sum m (fun e => y e * y e)) in *.
  set (D := sum m (fun e => (z' e - z e) * (z' e - z e))) in *.
  assert (Q0 : forall e, 0 <= y e * y e + (z' e - z e) * (z' e - z e) / 4).
  { intros e. assert (P := Rle_0_sqr (y e)). assert (P' := Rle_0_sqr (z' e - z e)).
    unfold Rsqr in *. lra. }
  assert (Rest : - (second * (Y + D / 4)) <= sum m (fun e => kappa e * (y e * (z' e - z e)))).
  { assert (E : second * (Y + D / 4)
      = sum m (fun e => second * (y e * y e + (z' e - z e) * (z' e - z e) / 4))).
    { rewrite sum_scal, sum_plus. unfold Rdiv. rewrite sum_scal_r. reflexivity. }
    rewrite E. apply Ropp_le_cancel. rewrite Ropp_involutive.
    replace (- sum m (fun e => kappa e * (y e * (z' e - z e))))
      with (-1 * sum m (fun e => kappa e * (y e * (z' e - z e)))) by ring.
    rewrite <- sum_scal. apply sum_le. intros e He.
    assert (K := Hk e ltac:(lia)). assert (K2 := H2 e He). assert (Te := T e). assert (Qe := Q0 e).
    apply Rle_trans with (kappa e * (y e * y e + (z' e - z e) * (z' e - z e) / 4)); [nra|].
    apply Rmult_le_compat_r; assumption. }
  assert (Hkm := Hk m ltac:(lia)). assert (Tm := T m). assert (Qm := Q0 m).
  assert (HYD : 0 <= Y + D / 4).
  { assert (0 <= Y) by (apply sum_nonneg; intros; apply Rle_0_sqr).
    assert (0 <= D) by (apply sum_nonneg; intros; apply Rle_0_sqr). lra. }
  assert (Total : Y + D / 4 + (y m * y m + (z' m - z m) * (z' m - z m) / 4) <= 2) by lra.
  split.
  - assert (- (first * (y m * y m + (z' m - z m) * (z' m - z m) / 4))
            <= kappa m * (y m * (z' m - z m))) by nra.
    assert (second * (Y + D / 4) <= first * (Y + D / 4)) by (apply Rmult_le_compat_r; lra). nra.
  - intros Hpos. assert (0 <= kappa m * (y m * (z' m - z m))) by (apply Rmult_le_pos; assumption).
    assert (second * (Y + D / 4) <= second * 2) by (apply Rmult_le_compat_l; lra). lra.
Qed.

(* n - 1 keys are div2 (n - 1) on one side and div2 n on the other. *)
Lemma halves n : (1 <= n)%nat -> (Nat.div2 n + Nat.div2 (n - 1) = n - 1)%nat.
Proof.
  destruct n as [|n]; [lia|intros _]. replace (S n - 1)%nat with n by lia.
  enough (H : (Nat.div2 (S n) + Nat.div2 n = n /\ Nat.div2 (S (S n)) + Nat.div2 (S n) = S n)%nat)
    by apply H.
  induction n as [|n [H1 H2]]; [simpl; lia|]. split; [exact H2|].
  change (Nat.div2 (S (S (S n)))) with (S (Nat.div2 (S n))).
  change (Nat.div2 (S (S n))) with (S (Nat.div2 n)) in *. lia.
Qed.

(* T13'': without rotation and query bias, some token gets at most
   1 / (1 + (ceil(n/2) - 1) e^(-2 kappa_2) + floor(n/2) e^(-2 kappa_1)). *)
Theorem T13_steep n d r r' m A C c u v f kappa first second :
  (1 <= n)%nat -> singular (S m) r r' (cross d A C) kappa ->
  0 <= second <= first -> kappa m <= first -> (forall e, (e < m)%nat -> kappa e <= second) ->
  (forall i, (i < n)%nat -> in_ball r (u i)) -> (forall j, (j < n)%nat -> in_ball r' (v j)) ->
  exists i, (i < n)%nat /\
    alpha n (rows d r r' A (fun _ => 0) C c u v f (fun _ => 0) i) i
    <= 1 / (1 + INR (Nat.div2 (n - 1)) * exp (- (2 * second))
            + INR (Nat.div2 n) * exp (- (2 * first))).
Proof.
  intros Hn HS Hs H1 H2 Hu Hv.
  destruct (singular_rows d r r' (S m) A C c kappa u v f HS) as (y & z & Hy & Hz & Hl).
  set (l := rows d r r' A (fun _ => 0) C c u v f (fun _ => 0)) in *.
  assert (Hh := halves n Hn). set (near := Nat.div2 (n - 1)) in *. set (far := Nat.div2 n) in *.
  assert (Hfar : far = (n - 1 - near)%nat) by lia.
  assert (Hnf : (near <= far)%nat).
  { unfold near, far. destruct n as [|n]; [lia|]. replace (S n - 1)%nat with n by lia.
    clear. enough (H : (Nat.div2 n <= Nat.div2 (S n) <= S (Nat.div2 n))%nat) by apply H.
    induction n as [|n IH]; [simpl; lia|]. simpl in *. destruct n; simpl in *; lia. }
  destruct (ranked n near (fun j => z j m) ltac:(lia)) as (i & Hi & Hb & Ha).
  exists i. split; [exact Hi|].
  set (e1 := exp (- (2 * first))). set (e2 := exp (- (2 * second))).
  assert (He : 0 < e1 <= e2) by (split; [apply exp_pos|apply exp_mono; lra]).
  assert (Side : exists B, B i = true /\ (S near <= card n B)%nat /\
    forall j, (j < n)%nat -> B j = true -> 0 <= y i m * (z j m - z i m)).
  { destruct (Rle_lt_dec 0 (y i m)) as [Hp|Hp].
    - exists (above (fun j => z j m) i). unfold above. split; [|split; [unfold above in Ha; lia|]].
      + destruct (Rle_dec (z i m) (z i m)); [reflexivity|lra].
      + intros j _. destruct (Rle_dec (z i m) (z j m)); [intros _; nra|discriminate].
    - exists (below (fun j => z j m) i). unfold below. split; [|split; [exact Hb|]].
      + destruct (Rle_dec (z i m) (z i m)); [reflexivity|lra].
      + intros j _. destruct (Rle_dec (z j m) (z i m)); [intros _; nra|discriminate]. }
  destruct Side as (B & HBi & HBc & HB).
  assert (Hgap : forall j, (j < n)%nat -> (if B j then e2 else e1) <= exp (l i j - l i i)).
  { intros j Hj. rewrite Hl.
    destruct (behind m kappa (y i) (z i) (z j) first second Hs (proj1 HS) H1 H2
      (Hy i (Hu i Hi)) (Hz i (Hv i Hi)) (Hz j (Hv j Hj))) as [G1 G2].
    destruct (B j) eqn:E; apply exp_mono; [apply G2, HB; assumption|exact G1]. }
  assert (HZ : Z n (l i) = exp (l i i) * sum n (fun j => exp (l i j - l i i))).
  { rewrite <- sum_scal. apply sum_ext. intros j _. rewrite <- exp_plus. f_equal. ring. }
  assert (Hsum : 1 + INR near * e2 + INR far * e1 <= sum n (fun j => exp (l i j - l i i))).
  { rewrite (sum_split n i) by exact Hi. replace (l i i - l i i) with 0 by ring. rewrite exp_0.
    assert (T := sum_two n B e2 e1). rewrite (sum_split n i) in T by exact Hi. rewrite HBi in T.
    assert (L : sum n (fun j => if Nat.eqb j i then 0 else if B j then e2 else e1)
      <= sum n (fun j => if Nat.eqb j i then 0 else exp (l i j - l i i))).
    { apply sum_le. intros j Hj. destruct (Nat.eqb j i); [lra|apply Hgap, Hj]. }
    apply le_INR in HBc. rewrite S_INR in HBc.
    assert (F : INR far = INR n - 1 - INR near)
      by (rewrite Hfar, !minus_INR by lia; simpl; ring).
    rewrite F. assert (0 <= (INR (card n B) - (INR near + 1)) * (e2 - e1))
      by (apply Rmult_le_pos; lra). lra. }
  assert (Hpos := exp_pos (l i i)). assert (0 <= INR near) by apply pos_INR.
  assert (0 <= INR far) by apply pos_INR.
  assert (0 <= INR near * e2) by (apply Rmult_le_pos; lra).
  assert (0 <= INR far * e1) by (apply Rmult_le_pos; lra).
  unfold alpha. apply div_le; [apply Z_pos, Hn|lra|]. rewrite HZ, Rmult_1_l.
  apply Rmult_le_compat_l; lra.
Qed.
