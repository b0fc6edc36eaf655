(** T11: layerwise QK norm with unit gains. m groups of query heads, one key head a group, g a
    query heads in group a; queries of all heads together have squared norm H d, keys m d. *)

Require Import Reals Lra Lia Psatz.
Require Import FunctionalExtensionality Sum Vectors.
Open Scope R_scope.

(* The modulus of a head's logit, scale 1 / sqrt d. *)
Definition modulus (d : nat) (q k : nat -> R) : R := Rabs (dot d q k) / sqrt (INR d).

(* The number of query heads. *)
Definition heads (m : nat) (g : nat -> nat) : R := sum m (fun a => INR (g a)).

(* d / sqrt d = sqrt d. *)
Lemma over_sqrt d : (1 <= d)%nat -> INR d / sqrt (INR d) = sqrt (INR d).
Proof.
  intros Hd. apply le_INR in Hd. simpl in Hd.
  assert (H := sqrt_lt_R0 (INR d) ltac:(lra)).
  rewrite <- (sqrt_sqrt (INR d)) at 1 by lra. field. lra.
Qed.

(* A bound of x d becomes x sqrt d. *)
Lemma scaled d y x : (1 <= d)%nat -> y <= x * INR d -> y * / sqrt (INR d) <= x * sqrt (INR d).
Proof.
  intros Hd H. assert (E := over_sqrt d Hd). apply le_INR in Hd. simpl in Hd.
  assert (Hr := sqrt_lt_R0 (INR d) ltac:(lra)). rewrite <- E at 2. unfold Rdiv.
  rewrite <- Rmult_assoc. apply Rmult_le_compat_r; [left; apply Rinv_0_lt_compat, Hr|exact H].
Qed.

(* T11: one query token against one key token, groups of at most s heads. *)
Theorem T11_total d m g s q k :
  (1 <= d)%nat -> 0 < heads m g -> (forall a, (a < m)%nat -> INR (g a) <= s) ->
  sum m (fun a => sum (g a) (fun b => sq d (q a b))) <= heads m g * INR d ->
  sum m (fun a => sq d (k a)) <= INR m * INR d ->
  sum m (fun a => sum (g a) (fun b => modulus d (q a b) (k a)))
  <= sqrt (s * heads m g * INR m * INR d).
Proof.
  intros Hd HH Hs Hq Hk. set (H := heads m g) in *.
  assert (Hd1 : 1 <= INR d) by (apply le_INR in Hd; exact Hd).
  assert (Hm : (1 <= m)%nat).
  { destruct m; [unfold H, heads in HH; simpl in HH; lra|lia]. }
  assert (Hm1 : 1 <= INR m) by (apply le_INR in Hm; exact Hm).
  assert (Hs0 : 0 < s).
  { destruct (Rlt_le_dec 0 s) as [|Hn]; [assumption|exfalso].
    assert (H <= 0); [|lra]. unfold H, heads.
    rewrite <- (Rmult_0_r (INR m)), <- sum_const. apply sum_le. intros a Ha.
    assert (Ha' := Hs a Ha). lra. }
  assert (Hp : 0 < s * H * INR m) by (repeat apply Rmult_lt_0_compat; lra).
  set (t := sqrt (s * H * INR m)). assert (Ht : 0 < t) by (apply sqrt_lt_R0, Hp).
  assert (Ht2 : t * t = s * H * INR m) by (apply sqrt_sqrt; lra).
  rewrite sqrt_mult by lra. fold t. unfold modulus, Rdiv.
  assert (Hw : 0 < t / H) by (apply Rdiv_lt_0_compat; lra).
  assert (Hsum : sum m (fun a => sum (g a) (fun b => Rabs (dot d (q a b) (k a)))) <= t * INR d).
  { assert (Hh : forall a b, Rabs (dot d (q a b) (k a))
                   <= t / H / 2 * sq d (q a b) + H / t / 2 * sq d (k a)).
    { intros a b. assert (E := dot_half d (t / H) (q a b) (k a) Hw).
      replace (sq d (k a) / (t / H)) with (H / t * sq d (k a)) in E by (field; lra). lra. }
    apply Rle_trans with (sum m (fun a => t / H / 2 * sum (g a) (fun b => sq d (q a b))
                                         + H / t / 2 * s * sq d (k a))).
    - apply sum_le. intros a Ha. rewrite <- sum_scal.
      apply Rle_trans with (sum (g a) (fun b => t / H / 2 * sq d (q a b) + H / t / 2 * sq d (k a)));
        [apply sum_le; intros; apply Hh|].
      rewrite sum_plus, sum_const. apply Rplus_le_compat_l.
      assert (0 <= H / t / 2) by (apply Rmult_le_pos; [left; apply Rdiv_lt_0_compat|]; lra).
      assert (Hk0 := sq_nonneg d (k a)). assert (Hsa := Hs a Ha).
      assert (0 <= H / t / 2 * sq d (k a)) by (apply Rmult_le_pos; assumption). nra.
    - rewrite sum_plus, !sum_scal.
      apply Rle_trans with (t / H / 2 * (H * INR d) + H / t / 2 * s * (INR m * INR d)).
      + apply Rplus_le_compat; apply Rmult_le_compat_l; try assumption;
          repeat apply Rmult_le_pos; try lra; left; apply Rinv_0_lt_compat; lra.
      + right. replace (H / t / 2 * s * (INR m * INR d)) with (s * H * INR m * / t / 2 * INR d)
          by (field; lra). rewrite <- Ht2. field. lra. }
  rewrite (sum_ext m _ (fun a => sum (g a) (fun b => Rabs (dot d (q a b) (k a))) * / sqrt (INR d)))
    by (intros; apply sum_scal_r).
  rewrite sum_scal_r. apply scaled; assumption.
Qed.

(* T11, equal groups: the moduli of all H = m g heads add up to at most H sqrt d. *)
Theorem T11_equal d m g q k :
  (1 <= d)%nat -> (1 <= m)%nat -> (1 <= g)%nat ->
  sum m (fun a => sum g (fun b => sq d (q a b))) <= INR m * INR g * INR d ->
  sum m (fun a => sq d (k a)) <= INR m * INR d ->
  sum m (fun a => sum g (fun b => modulus d (q a b) (k a))) <= INR m * INR g * sqrt (INR d).
Proof.
  intros Hd Hm Hg Hq Hk. apply le_INR in Hm, Hg. simpl in Hm, Hg.
  assert (E : heads m (fun _ => g) = INR m * INR g) by (unfold heads; apply sum_const).
  assert (HH : 0 < INR m * INR g) by (apply Rmult_lt_0_compat; lra).
  assert (H := T11_total d m (fun _ => g) (INR g) q k Hd).
  rewrite E in H. specialize (H HH (fun _ _ => Rle_refl _) Hq Hk).
  apply Rle_trans with (1 := H), Req_le.
  replace (INR g * (INR m * INR g) * INR m) with (INR m * INR g * (INR m * INR g)) by ring.
  rewrite sqrt_mult by (try apply pos_INR; nra). rewrite sqrt_square by lra. reflexivity.
Qed.

(* T11: one head alone, H and m any numbers of query and key heads. *)
Theorem T11_single d H m q k :
  (1 <= d)%nat -> 0 <= H -> 0 <= m -> sq d q <= H * INR d -> sq d k <= m * INR d ->
  modulus d q k <= sqrt (H * m) * sqrt (INR d).
Proof.
  intros Hd HH Hm Hq Hk. assert (Hd0 := pos_INR d). unfold modulus. apply (scaled d); [exact Hd|].
  apply Rle_trans with (1 := dot_norm d q k). unfold norm.
  rewrite <- sqrt_mult by apply sq_nonneg. rewrite <- (sqrt_square (INR d)) by lra.
  rewrite <- sqrt_mult by nra. apply sqrt_le_1_alt.
  replace (H * m * (INR d * INR d)) with (H * INR d * (m * INR d)) by ring.
  apply Rmult_le_compat; try assumption; apply sq_nonneg.
Qed.

(* T11: where each head picks a key token of its own, there is no such budget. *)
Theorem T11_apart d H m q k :
  (1 <= d)%nat -> (1 <= m)%nat -> sum H (fun h => sq d (q h)) <= INR H * INR d ->
  (forall h, (h < H)%nat -> sq d (k h) <= INR m * INR d) ->
  sum H (fun h => modulus d (q h) (k h)) <= INR H * sqrt (INR m * INR d).
Proof.
  intros Hd Hm Hq Hk. rewrite sqrt_mult by apply pos_INR. apply le_INR in Hm. simpl in Hm.
  set (w := sqrt (INR m)). assert (Hw : 0 < w) by (apply sqrt_lt_R0; lra).
  assert (Hw2 : w * w = INR m) by (apply sqrt_sqrt; lra).
  unfold modulus, Rdiv. rewrite sum_scal_r, <- Rmult_assoc. apply scaled; [exact Hd|].
  apply Rle_trans with (sum H (fun h => w / 2 * sq d (q h) + w * INR d / 2)).
  - apply sum_le. intros h Hh. assert (E := dot_half d w (q h) (k h) Hw).
    assert (sq d (k h) / w <= w * INR d); [|lra].
    apply (Rmult_le_reg_r w); [exact Hw|]. unfold Rdiv. rewrite Rmult_assoc, Rinv_l by lra.
    assert (Hkh := Hk h Hh). rewrite <- Hw2 in Hkh. lra.
  - rewrite sum_plus, sum_scal, sum_const.
    apply (Rmult_le_compat_l (w / 2)) in Hq; [|lra]. lra.
Qed.

(* T11, attained, all three: by multiples of the vector of ones. *)
Theorem T11_attained d m g (one := fun _ : nat => 1) (H := INR m * INR g) :
  (1 <= d)%nat ->
  (sum m (fun _ => sum g (fun _ => sq d one)) = H * INR d /\
   sum m (fun _ => sq d one) = INR m * INR d /\
   sum m (fun _ => sum g (fun _ => modulus d one one)) = H * sqrt (INR d)) /\
  (sq d (fun c => sqrt H * one c) = H * INR d /\
   sq d (fun c => sqrt (INR m) * one c) = INR m * INR d /\
   modulus d (fun c => sqrt H * one c) (fun c => sqrt (INR m) * one c)
     = sqrt (H * INR m) * sqrt (INR d)) /\
  sum m (fun _ => sum g (fun _ => modulus d one (fun c => sqrt (INR m) * one c)))
    = H * sqrt (INR m * INR d).
Proof.
  intros Hd. assert (Hd0 := pos_INR d). assert (Hm0 := pos_INR m).
  assert (HH : 0 <= H) by (apply Rmult_le_pos; apply pos_INR).
  assert (H1 : sq d one = INR d) by (unfold sq, dot, one; rewrite sum_const; ring).
  assert (Hsq : forall x, 0 <= x -> sq d (fun c => sqrt x * one c) = x * INR d).
  { intros x Hx. unfold sq. rewrite dot_scal, dot_comm, dot_scal. fold (sq d one).
    rewrite H1, <- Rmult_assoc, sqrt_sqrt by exact Hx. reflexivity. }
  assert (Hmod : forall x y, 0 <= x -> 0 <= y -> modulus d (fun c => x * one c)
            (fun c => y * one c) = x * y * sqrt (INR d)).
  { intros x y Hx Hy. unfold modulus. rewrite dot_scal, dot_comm, dot_scal. fold (sq d one).
    rewrite H1, Rabs_pos_eq; [rewrite <- (over_sqrt d Hd) at 2; unfold Rdiv; ring|].
    repeat apply Rmult_le_pos; assumption. }
  assert (Hone : one = fun c => 1 * one c) by (apply functional_extensionality; intros; ring).
  rewrite !H1, !sum_const. split; [|split].
  - repeat split; try (unfold H; ring). rewrite Hone at 1 2. rewrite Hmod by lra.
    unfold H. ring.
  - rewrite !Hsq, Hmod by (try apply sqrt_pos; assumption).
    rewrite sqrt_mult by assumption. auto.
  - rewrite Hone at 1. rewrite Hmod by (try apply sqrt_pos; lra).
    rewrite sqrt_mult by assumption. unfold H. ring.
Qed.
