(** Every definition that Statements.v uses, repeated: one that is changed elsewhere no longer
    equals what is written here. *)

Require Import Reals.
Require Import Sum Softmax Vectors.
Require Import Energy Convolution Dispersion SetMass EntropyFloor EntropyShape NormRow
  Temperature Schedules Sink SoftCap Heads Rotation Gains Cover Budget Simplex SimplexAttained
  Tokens Kernel Capacity CapTokens Level RotaryTokens SphereMean Flat Steep SteepAttained.
Open Scope R_scope.

Goal forall f, sum 0 f = 0. reflexivity. Qed.
Goal forall n f, sum (S n) f = sum n f + f n. reflexivity. Qed.
Goal forall f, prod 0 f = 1. reflexivity. Qed.
Goal forall n f, prod (S n) f = prod n f * f n. reflexivity. Qed.
Goal forall A, card 0 A = 0%nat. reflexivity. Qed.
Goal forall n A, card (S n) A = ((if A n then 1 else 0) + card n A)%nat. reflexivity. Qed.
Goal Z = fun n l => sum n (fun j => exp (l j)). reflexivity. Qed.
Goal alpha = fun n l i => exp (l i) / Z n l. reflexivity. Qed.
Goal mass = fun n A l => sum n (fun i => if A i then alpha n l i else 0). reflexivity. Qed.
Goal entropy = fun n l => - sum n (fun i => alpha n l i * ln (alpha n l i)). reflexivity. Qed.
Goal spread_le = fun n l s =>
  forall i j, (i < n)%nat -> (j < n)%nat -> l i - l j <= s. reflexivity. Qed.
Goal most = fun n m s => m / (m + (n - m) * exp (- s)). reflexivity. Qed.
Goal least = fun n m s => m / (m + (n - m) * exp s). reflexivity. Qed.
Goal H_two = fun n k s =>
  let r := (INR n - INR k) * exp (- s) / INR k in
  ln (INR k) + ln (1 + r) + s * r / (1 + r). reflexivity. Qed.
Goal turn = fun n s => n * (s / (1 - exp (- s)) - 1) / (exp s - 1). reflexivity. Qed.
Goal ratio = fun s => s / (1 - exp (- s)). reflexivity. Qed.
Goal centred = fun n l j => l j - sum n l / INR n. reflexivity. Qed.
Goal scaled_ceiling = fun n c d => 1 / (1 + (n - 1) * Rpower n (- (c * d))). reflexivity. Qed.
Goal sunk = fun n l b i => exp (l i) / (Z n l + exp b). reflexivity. Qed.
Goal share = fun n l b => exp b / (Z n l + exp b). reflexivity. Qed.
Goal within = fun n l lo hi => forall i, (i < n)%nat -> lo <= l i <= hi. reflexivity. Qed.
Goal sq = fun d x => sum d (fun c => x c * x c). reflexivity. Qed.
Goal norm = fun d x => sqrt (sq d x). reflexivity. Qed.
Goal in_ball = fun d x => norm d x <= 1. reflexivity. Qed.
Goal image = fun r M x c => sum r (fun b => M c b * x b). reflexivity. Qed.
Goal cross = fun d A C a b => sum d (fun c => A c a * C c b). reflexivity. Qed.
Goal pull = fun d C q b => sum d (fun c => q c * C c b). reflexivity. Qed.
Goal point = fun r A a u c => image r A u c + a c. reflexivity. Qed.
Goal logit = fun d r r' A a C c u v =>
  sum d (fun e => point r A a u e * point r' C c v e). reflexivity. Qed.
Goal norm_le = fun r r' M sigma =>
  forall x, norm r (image r' M x) <= sigma * norm r' x. reflexivity. Qed.
Goal rotate = fun theta x c => let t := theta (Nat.div2 c) in
  if Nat.even c then cos t * x c - sin t * x (S c) else sin t * x (pred c) + cos t * x c.
reflexivity. Qed.
Goal scale = fun s x c => s c * x c. reflexivity. Qed.
Goal commutes = fun m s theta =>
  forall p, (p < m)%nat -> s (2 * p)%nat = s (S (2 * p)) \/ theta p = 0. reflexivity. Qed.
Goal gains_le = fun h g g' theta phi G => forall p, (p < h)%nat ->
  (forall c e, (c = 2 * p \/ c = S (2 * p))%nat -> (e = 2 * p \/ e = S (2 * p))%nat ->
     Rabs (g c) * Rabs (g' e) <= G) \/
  theta p = 0 /\ phi p = 0 /\
  forall c, (c = 2 * p \/ c = S (2 * p))%nat -> Rabs (g c) * Rabs (g' c) <= G. reflexivity. Qed.
Goal unit = fun c e => if Nat.eqb e c then 1 else 0. reflexivity. Qed.
Goal shares = fun r M a w c b =>
  if Nat.ltb b r then M c b / sqrt w else a c / sqrt (1 - w). reflexivity. Qed.
Goal modulus = fun d q k => Rabs (dot d q k) / sqrt (INR d). reflexivity. Qed.
Goal heads = fun m g => sum m (fun a => INR (g a)). reflexivity. Qed.
Goal rows = fun d r r' A a C c u v f g i j =>
  logit d r r' A a C c (u i) (v j) + f i + g j. reflexivity. Qed.
Goal identity = fun x c b => if Nat.eqb b c then x else 0. reflexivity. Qed.
Goal corner = fun n i b =>
  sqrt (INR n / (INR n - 1)) * ((if Nat.eqb b i then 1 else 0) - / INR n). reflexivity. Qed.
Goal orthonormal = fun m r U => forall c e, (c < m)%nat -> (e < m)%nat ->
  sum r (fun a => U c a * U e a) = if Nat.eqb e c then 1 else 0. reflexivity. Qed.
Goal contraction = fun m r U => forall u,
  sq m (fun c => sum r (fun a => U c a * u a)) <= sq r u. reflexivity. Qed.
Goal singular = fun m r r' M kappa => (forall c, (c < m)%nat -> 0 <= kappa c) /\
  exists U V, contraction m r U /\ contraction m r' V /\
    forall a b, (a < r)%nat -> (b < r')%nat -> M a b = sum m (fun c => kappa c * (U c a * V c b)).
reflexivity. Qed.
Goal spectrum_le = fun d r r' m A C bound =>
  exists kappa, singular m r r' (cross d A C) kappa /\ forall e, (e < m)%nat -> kappa e <= bound e.
reflexivity. Qed.
Goal log_capacity = fun m kappa t => t + sum m (fun c =>
  if Rle_lt_dec (kappa c) t then 0
  else / 2 * ln ((kappa c / t) ^ 2 / (2 * (kappa c / t) - 1))). reflexivity. Qed.
Goal retrieves = fun d r r' A a C c n k s p => exists u v f g sink,
  (forall i, (i < k)%nat -> (s i < n)%nat) /\
  (forall i j, (i < k)%nat -> (j < k)%nat -> s i = s j -> i = j) /\
  (forall i, (i < k)%nat -> in_ball r (u i)) /\ (forall j, (j < n)%nat -> in_ball r' (v j)) /\
  (forall i, 0 <= sink i) /\ forall i, (i < k)%nat -> let l := rows d r r' A a C c u v f g i in
    p <= exp (l (s i)) / (Z n l + sink i). reflexivity. Qed.
Goal diagonal = fun s c b => if Nat.eqb b c then s c else 0. reflexivity. Qed.
Goal retrieves_turned = fun h r r' A a C c fixed phi n k s p => exists u v f g sink,
  (forall i, (i < k)%nat -> (s i < n)%nat) /\
  (forall i j, (i < k)%nat -> (j < k)%nat -> s i = s j -> i = j) /\
  (forall i, (i < k)%nat -> in_ball r (u i)) /\ (forall j, (j < n)%nat -> in_ball r' (v j)) /\
  (forall i, 0 <= sink i) /\ forall i, (i < k)%nat ->
    let l j := dot (2 * h) (point r A a (u i))
      (rotate (phi j) (fun e => point r' C c (v j) e + fixed e)) + f i + g j in
    p <= exp (l (s i)) / (Z n l + sink i). reflexivity. Qed.
Goal sphere_mean = fun m z M => Un_cv (fun K => sum (S K) (fun k => (z * z / 4) ^ k
  / (INR (fact k) * INR (fact k) * rising (INR m / 2) k))) M. reflexivity. Qed.
Goal forall a, rising a 0 = 1. reflexivity. Qed.
Goal forall a k, rising a (S k) = rising a k * ((a + INR k) / (INR k + 1)). reflexivity. Qed.
Goal ends = fun n j (b : nat) => if Nat.leb j (Nat.div2 (n - 1)) then 1 else -1. reflexivity. Qed.
