(** T9: the spread of a head without rotation. *)

Require Import Reals Lra Lia Psatz.
Require Import FunctionalExtensionality Sum Vectors.
Open Scope R_scope.

(* The pull-back C^T q of a query to the key ball. *)
Definition pull (d : nat) (C : nat -> nat -> R) (q : nat -> R) (b : nat) : R :=
  sum d (fun c => q c * C c b).

(* A product with an image is a product with the pull-back. *)
Lemma dot_image d r C q v : dot d q (image r C v) = dot r (pull d C q) v.
Proof.
  unfold dot, image, pull.
  rewrite (sum_ext d _ (fun c => sum r (fun b => q c * C c b * v b))).
  - rewrite sum_swap. apply sum_ext. intros b _. apply sum_scal_r.
  - intros c _. rewrite <- sum_scal. apply sum_ext. intros b _. ring.
Qed.

(* The key bias cancels from a difference of logits. *)
Lemma logit_difference d r r' A a C c u v v' :
  logit d r r' A a C c u v - logit d r r' A a C c u v'
  = dot r' (pull d C (point r A a u)) (fun b => v b - v' b).
Proof.
  rewrite <- dot_image. unfold logit. rewrite <- dot_minus. apply dot_ext; [reflexivity|].
  intros b _. unfold point. rewrite <- image_minus. ring.
Qed.

(* The difference of two points of a ball has norm at most 2. *)
Lemma ball_difference r v v' :
  in_ball r v -> in_ball r v' -> norm r (fun b => v b - v' b) <= 2.
Proof.
  intros Hv Hv'. apply sq_bound in Hv, Hv'. apply norm_bound; [lra|].
  assert (H := sq_diff r v v'). lra.
Qed.

(* T9: if |C^T (A u + a)| <= b for all u of the ball, the spread of every query is at most 2 b,
   whatever the key bias c. *)
Theorem T9_spread d r r' A a C c b :
  (forall u, in_ball r u -> norm r' (pull d C (point r A a u)) <= b) ->
  forall u v v', in_ball r u -> in_ball r' v -> in_ball r' v' ->
  logit d r r' A a C c u v - logit d r r' A a C c u v' <= 2 * b.
Proof.
  intros Hb u v v' Hu Hv Hv'. rewrite logit_difference.
  set (w := fun b => v b - v' b). set (p := pull d C (point r A a u)).
  assert (H := dot_norm r' p w).
  assert (Hw : norm r' w <= 2) by (apply ball_difference; assumption).
  assert (Hp : norm r' p <= b) by apply Hb, Hu.
  destruct (norm_facts r' p) as [Hp0 _]. destruct (norm_facts r' w) as [Hw0 _].
  apply Rle_trans with (1 := Rle_abs _), Rle_trans with (1 := H).
  rewrite (Rmult_comm 2). apply Rmult_le_compat; assumption.
Qed.

(* T9, attained: every query has two keys 2 |C^T (A u + a)| apart. *)
Theorem T9_attained d r r' A a C c u :
  exists v v', in_ball r' v /\ in_ball r' v' /\
    logit d r r' A a C c u v - logit d r r' A a C c u v' = 2 * norm r' (pull d C (point r A a u)).
Proof.
  set (p := pull d C (point r A a u)). destruct (norm_facts r' p) as [H0 H2].
  destruct (Req_dec (norm r' p) 0) as [Hz|Hz].
  - assert (Hin : in_ball r' (fun _ => 0)).
    { apply norm_bound; [lra|]. unfold sq, dot. rewrite (sum_ext r' _ (fun _ => 0))
        by (intros; ring). rewrite sum_const. lra. }
    exists (fun _ => 0), (fun _ => 0). rewrite Hz. repeat split; try exact Hin. ring.
  - assert (Hin : forall s, s * s = 1 -> in_ball r' (fun b => s / norm r' p * p b)).
    { intros s Hs. apply norm_bound; [lra|]. unfold sq. rewrite dot_scal, dot_comm, dot_scal.
      fold (sq r' p). rewrite <- H2. right.
      replace (s / norm r' p * (s / norm r' p * (norm r' p * norm r' p))) with (s * s)
        by (field; exact Hz). lra. }
    exists (fun b => 1 / norm r' p * p b), (fun b => -1 / norm r' p * p b).
    split; [apply Hin; ring|split; [apply Hin; ring|]].
    rewrite logit_difference. fold p. rewrite dot_minus, !dot_scal. fold (sq r' p).
    rewrite <- H2. field. exact Hz.
Qed.

(* T9 without query bias: the spread is at most 2 sigma. *)
Theorem T9_sigma d r r' A C c sigma :
  0 <= sigma -> norm_le r r' (cross d A C) sigma ->
  forall u v v', in_ball r u -> in_ball r' v -> in_ball r' v' ->
  logit d r r' A (fun _ => 0) C c u v - logit d r r' A (fun _ => 0) C c u v' <= 2 * sigma.
Proof.
  intros Hs HM u v v' Hu Hv Hv'. set (w := fun b => v b - v' b).
  assert (E : logit d r r' A (fun _ => 0) C c u v - logit d r r' A (fun _ => 0) C c u v'
              = dot r u (image r' (cross d A C) w)).
  { rewrite logit_difference, <- dot_image, <- dot_cross. apply dot_ext; [|reflexivity].
    intros b _. unfold point. ring. }
  rewrite E. assert (H := dot_norm r u (image r' (cross d A C) w)).
  assert (Hw : norm r' w <= 2) by (apply ball_difference; assumption).
  assert (HMw := HM w). destruct (norm_facts r u) as [Hu0 _].
  destruct (norm_facts r (image r' (cross d A C) w)) as [Hi0 _].
  apply Rle_trans with (1 := Rle_abs _), Rle_trans with (1 := H).
  apply Rle_trans with (1 * norm r (image r' (cross d A C) w));
    [apply Rmult_le_compat_r; assumption|nra].
Qed.

(* T9, attained without query bias: where some v of the ball has |A^T C v| = sigma, two keys are
   2 sigma apart. *)
Theorem T9_sigma_attained d r r' A C c sigma v :
  0 < sigma -> in_ball r' v -> norm r (image r' (cross d A C) v) = sigma ->
  exists u v', in_ball r u /\ in_ball r' v' /\
    logit d r r' A (fun _ => 0) C c u v - logit d r r' A (fun _ => 0) C c u v' = 2 * sigma.
Proof.
  intros Hs Hv Hn. set (y := image r' (cross d A C) v) in *.
  destruct (norm_facts r y) as [_ H2]. rewrite Hn in H2.
  exists (fun b => / sigma * y b), (fun b => -1 * v b).
  split; [|split].
  - apply norm_bound; [lra|]. unfold sq. rewrite dot_scal, dot_comm, dot_scal.
    fold (sq r y). rewrite <- H2. right. field. lra.
  - apply norm_bound; [lra|]. unfold sq. rewrite dot_scal, dot_comm, dot_scal.
    fold (sq r' v). apply sq_bound in Hv. lra.
  - rewrite !logit_terms. fold y.
    assert (E : image r' (cross d A C) (fun b => -1 * v b) = fun c => -1 * y c)
      by (apply functional_extensionality; intros e; unfold y, image; rewrite <- sum_scal;
          apply sum_ext; intros; ring).
    rewrite E, dot_scal.
    assert (Z0 : forall x, dot d (fun _ => 0) x = 0)
      by (intros; unfold dot; rewrite (sum_ext d _ (fun _ => 0)), sum_const by (intros; ring);
          ring).
    rewrite !Z0, (dot_comm r _ y), dot_scal. fold (sq r y). rewrite <- H2. field. lra.
Qed.

(* T9 with query bias: every lambda that dominates M^T M certifies |M u + m|^2 on the ball, through
   the solution y of (lambda I - M^T M) y = M^T m; M = C^T A and m = C^T a for a head. *)
Theorem T9_dual e r (M : nat -> nat -> R) m y lambda u :
  0 <= lambda -> (forall x, sq e (image r M x) <= lambda * sq r x) ->
  (forall b, (b < r)%nat -> lambda * y b - pull e M (image r M y) b = pull e M m b) ->
  in_ball r u -> sq e (point r M m u) <= lambda + sq e m + dot r (pull e M m) y.
Proof.
  intros Hl HM Hy Hu. apply sq_bound in Hu.
  assert (H := HM (fun b => u b - y b)).
  unfold sq in H at 1. rewrite (dot_ext e _ _ (fun c => image r M u c - image r M y c)
    (fun c => image r M u c - image r M y c)) in H
    by (intros; symmetry; apply image_minus).
  unfold sq in H. rewrite !dot_minus, !dot_minus_l in H.
  rewrite (dot_comm e (image r M y) (image r M u)), (dot_comm r y u) in H.
  assert (E : forall x, lambda * dot r x y - dot e (image r M x) (image r M y)
                        = dot r (pull e M m) x).
  { intros x. rewrite (dot_comm e), dot_image, (dot_comm r x y), <- dot_scal_l, <- dot_minus_l.
    apply dot_ext; [intros b Hb; apply Hy, Hb|reflexivity]. }
  assert (Eu := E u). assert (Ey := E y).
  assert (P : sq e (point r M m u)
    = dot e (image r M u) (image r M u) + 2 * dot r (pull e M m) u + sq e m).
  { rewrite <- dot_image. unfold sq, dot, point. rewrite <- sum_scal, <- !sum_plus.
    apply sum_ext. intros. ring. }
  rewrite P. assert (Hm := sq_nonneg r u). unfold sq in *.
  assert (lambda * dot r u u <= lambda * 1) by (apply Rmult_le_compat_l; lra). lra.
Qed.
