package agenticsession

import (
	"maps"
	"slices"
	"strconv"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/decision"
	"github.com/yardmaster/yardmaster/test/testbuilder"
)

// This property test simulates sessions that share a workspace, in a cluster with random events: users delete, stop,
// resume and rerun sessions, and delete Jobs, Pods and the claim; Pods are evicted and ignore their termination; the Job
// controller creates Pods for Jobs that are deleted already; other Pods mount the claim. The operator reads stale
// caches, crashes between any two requests, and its last requests before that arrive late. The invariants are:
//
//   - at most one Pod that mounts the claim can run at a time,
//   - a session that does not accept an empty workspace never runs in another claim than before,
//   - when the events end, every session ends.
//
// WORKSPACE_RUNS sets the number of simulations, and WORKSPACE_SEED the first seed, to repeat one.
func TestRunnersNeverShareAWorkspace(t *testing.T) {
	t.Parallel()
	runs, first := testbuilder.NumberFromEnv(t, "WORKSPACE_RUNS", 60), testbuilder.NumberFromEnv(t, "WORKSPACE_SEED", 1)
	events := []string{"runner", "crash", "late request", "late Pod", "waited for a Pod", "reservation failed", "lost", "conflict"}
	simulateSeeds(t, runs, first, events, func(seed uint64) *world {
		w := newWorkspaceSimulation(seed)
		w.runToCompletion()
		return &w.world
	})
}

// workspaceSimulation is a simulated cluster with a claim and the sessions that use it.
type workspaceSimulation struct {
	world

	sessions map[string]*v1alpha1.AgenticSession
	claim    *metav1.PartialObjectMetadata
	jobs     map[string]*batchv1.Job
	pods     map[types.UID]*workspacePod
	// late are requests of a crashed operator, and Pods of the Job controller, that arrive later.
	late []func()
	// cached is the content of the operator's cache.
	cached struct {
		sessions map[string]*v1alpha1.AgenticSession
		jobs     []*batchv1.Job
		pods     []corev1.Pod
	}
	// isInterleaved is set while a second operator acts.
	isInterleaved bool
	created       map[string]map[string]types.UID
	usedUIDs      map[types.UID]types.UID
}

// workspacePod is a Pod that mounts the claim.
type workspacePod struct {
	*corev1.Pod
	// endTime is when it ends by itself, or after its termination.
	endTime  time.Time
	deleted  bool
	exitCode int32
}

// canRun reports whether nothing keeps the Pod from running.
func (p *workspacePod) canRun() bool { return !isGated(p.Pod) && !decision.HasPodEnded(p.Pod) }

func newWorkspaceSimulation(seed uint64) *workspaceSimulation {
	w := &workspaceSimulation{
		world: newWorld(seed, 1), sessions: map[string]*v1alpha1.AgenticSession{}, jobs: map[string]*batchv1.Job{},
		pods: map[types.UID]*workspacePod{}, created: map[string]map[string]types.UID{}, usedUIDs: map[types.UID]types.UID{},
	}
	for _, name := range sharers {
		w.createSession(name)
	}
	w.refreshCache()
	return w
}

// sharers are the names of the sessions: the first creates the claim.
var sharers = []string{"parent", "a", "b", "c"}

func (w *workspaceSimulation) fault(percent int) bool { return !w.faultsDisabled && w.chance(percent) }

func (w *workspaceSimulation) createSession(name string) {
	s := &v1alpha1.AgenticSession{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "ns", UID: w.newUID(name), Generation: 1, ResourceVersion: "1"}}
	spec := &s.Spec
	spec.Prompt = "x"
	spec.Limits.Timeout, spec.Limits.StartupTimeout = seconds(0), seconds(300)
	spec.Retry = &v1alpha1.SessionRetry{Retry: v1alpha1.Retry{Limit: new(int32(w.rng.IntN(3)))}, OnDisruption: w.chance(70)}
	if name == "parent" {
		setPersistent(spec)
		if w.chance(50) {
			setRecreate(spec)
		}
	} else {
		spec.ContinueFrom = &v1alpha1.LocalReference{Name: "parent"}
	}
	w.sessions[name] = s
	w.logf("%s is created", s.UID)
}

func (w *workspaceSimulation) runToCompletion() {
	for range 150 + w.rng.IntN(150) {
		w.now = w.now.Add(time.Duration(w.rng.IntN(4000)) * time.Millisecond)
		w.simulateEvent()
		w.advance()
		if w.chance(60) {
			w.refreshCache()
		}
		w.reconcile(sharers[w.rng.IntN(len(sharers))])
		w.check()
		if len(w.violations) > 0 {
			return
		}
	}
	w.faultsDisabled = true
	for _, s := range w.sessions {
		s.Spec.Suspend = false
		bump(s)
	}
	for range 400 {
		w.now = w.now.Add(5 * time.Second)
		w.advance()
		w.refreshCache()
		for _, name := range sharers {
			w.reconcile(name)
			w.check()
		}
		if len(w.violations) > 0 || w.isSettled() {
			return
		}
	}
	for name, s := range w.sessions {
		w.logf("%s: %s, Job %q, %+v", name, s.Status.Phase, s.Status.Attempt.JobName, s.Status.Conditions)
	}
	w.violate("the sessions do not end")
}

func (w *workspaceSimulation) isSettled() bool {
	return !slices.ContainsFunc(slices.Collect(maps.Values(w.sessions)), func(s *v1alpha1.AgenticSession) bool { return !isSessionFinished(s) })
}

func bump(object metav1.Object) {
	version, err := strconv.Atoi(object.GetResourceVersion())
	if err != nil {
		panic(err)
	}
	object.SetResourceVersion(strconv.Itoa(version + 1))
}

func (w *workspaceSimulation) simulateEvent() {
	name := sharers[w.rng.IntN(len(sharers))]
	s := w.sessions[name]
	switch dice := w.rng.IntN(1000); {
	case s == nil && dice < 100:
		w.createSession(name)
	case s == nil:
	case dice < 25:
		w.logf("user deletes %s", s.UID)
		delete(w.sessions, name)
	case dice < 55:
		w.logf("user stops or resumes %s", s.UID)
		s.Spec.Suspend = !s.Spec.Suspend
		bump(s)
	case dice < 85:
		w.logf("user reruns %s", s.UID)
		requestNextRun(&s.Spec)
		bump(s)
	case dice < 115:
		if job := w.jobs[s.Status.Attempt.JobName]; job != nil {
			w.deleteJob(job, w.chance(30))
		}
	case dice < 145:
		w.terminateRandomPod()
	case dice < 150 && w.claim != nil:
		w.logf("user deletes the claim")
		w.claim.DeletionTimestamp = new(metav1.NewTime(w.now))
		bump(w.claim)
	case dice < 170 && w.claim != nil && len(w.pods) == 0 && len(w.late) == 0:
		w.addPod(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "others", Namespace: "ns"}})
	}
}

func (w *workspaceSimulation) terminateRandomPod() {
	for _, uid := range slices.Sorted(maps.Keys(w.pods)) {
		if pod := w.pods[uid]; w.chance(50) && !decision.HasPodEnded(pod.Pod) {
			pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: "EvictionByEvictionAPI"}}
			w.terminate(pod)
			return
		}
	}
}

// terminate requests the end of a Pod, whose runner may ignore that for its grace period.
func (w *workspaceSimulation) terminate(pod *workspacePod) {
	if pod.deleted {
		return
	}
	pod.deleted, pod.DeletionTimestamp = true, new(metav1.NewTime(w.now.Add(gracePeriod)))
	pod.endTime, pod.exitCode = w.now, 143
	if !isGated(pod.Pod) {
		pod.endTime = w.now.Add(time.Duration(w.rng.IntN(25)) * time.Second)
	}
	w.logf("%s is terminated until %s", pod.UID, pod.endTime.Format("15:04:05"))
}

func (w *workspaceSimulation) deleteJob(job *batchv1.Job, inForeground bool) {
	w.logf("%s is deleted, in the foreground: %t", job.UID, inForeground)
	if !inForeground {
		delete(w.jobs, job.Name)
		return
	}
	if job.DeletionTimestamp.IsZero() {
		job.DeletionTimestamp = new(timestamp(w.now))
	}
}

func (w *workspaceSimulation) addPod(pod *corev1.Pod) {
	pod.UID = w.newUID("pod")
	pod.Spec.Volumes = newPodThatMounts("", ClaimName("parent")).Spec.Volumes
	pod.Status.Phase = corev1.PodPending
	pod.CreationTimestamp = metav1.NewTime(w.now)
	w.pods[pod.UID] = &workspacePod{Pod: pod, endTime: w.now.Add(time.Duration(5+w.rng.IntN(60)) * time.Second), exitCode: int32(max(w.rng.IntN(4)-2, 0))}
	w.logf("%s is created for %s", pod.UID, pod.Labels[batchv1.JobNameLabel])
}

// advance simulates the controllers of Kubernetes and the kubelet.
func (w *workspaceSimulation) advance() {
	if w.faultsDisabled || w.chance(20) {
		late := w.late
		w.late = nil
		for _, request := range late {
			request()
		}
	}
	for _, name := range slices.Sorted(maps.Keys(w.jobs)) {
		w.advanceJob(w.jobs[name])
	}
	for _, uid := range slices.Sorted(maps.Keys(w.pods)) {
		w.advancePod(w.pods[uid])
	}
	w.collectClaim()
}

// advanceJob simulates the Job controller and the garbage collector.
func (w *workspaceSimulation) advanceJob(job *batchv1.Job) {
	owner := w.sessions[job.Labels[LabelSession]]
	if (owner == nil || !metav1.IsControlledBy(job, owner)) && w.chance(50) {
		w.deleteJob(job, false)
		return
	}
	var pod *workspacePod
	for _, p := range w.pods {
		if metav1.IsControlledBy(p, job) {
			pod = p
		}
	}
	switch {
	case !job.DeletionTimestamp.IsZero() && (pod == nil || decision.HasPodEnded(pod.Pod)):
		delete(w.jobs, job.Name)
	case !job.DeletionTimestamp.IsZero():
		w.terminate(pod)
	case pod == nil && job.Status.StartTime == nil:
		job.Status.StartTime = new(timestamp(w.now))
		created := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
			Name: job.Name + "-x", Namespace: "ns", Labels: map[string]string{LabelSession: job.Labels[LabelSession], LabelSessionUID: job.Labels[LabelSessionUID], batchv1.JobNameLabel: job.Name},
			OwnerReferences: []metav1.OwnerReference{{Kind: "Job", Name: job.Name, UID: job.UID, Controller: new(true)}},
		}}
		created.Spec.SchedulingGates = job.Spec.Template.Spec.SchedulingGates
		created.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: v1alpha1.RunnerContainer}}
		if w.fault(30) {
			w.counts["late Pod"]++
			w.late = append(w.late, func() { w.addPod(created) })
			return
		}
		w.addPod(created)
	case job.Status.StartTime != nil && decision.FindEndCondition(job) == nil && (pod != nil && decision.HasPodEnded(pod.Pod) || pod == nil && len(w.late) == 0):
		kind := batchv1.JobFailed
		if pod != nil && pod.Status.Phase == corev1.PodSucceeded {
			kind = batchv1.JobComplete
		}
		job.Status.Conditions = []batchv1.JobCondition{{Type: kind, Status: corev1.ConditionTrue, LastTransitionTime: timestamp(w.now)}}
		w.logf("%s is %s", job.UID, kind)
	}
}

// advancePod simulates the kubelet, and the garbage collector.
func (w *workspaceSimulation) advancePod(pod *workspacePod) {
	job := w.jobs[pod.Labels[batchv1.JobNameLabel]]
	isOrphan := len(pod.OwnerReferences) > 0 && (job == nil || !metav1.IsControlledBy(pod, job))
	switch {
	case isOrphan && decision.HasPodEnded(pod.Pod):
		delete(w.pods, pod.UID)
	case isOrphan && !pod.deleted && w.chance(50):
		w.terminate(pod)
	case decision.HasPodEnded(pod.Pod):
		if pod.deleted || len(pod.OwnerReferences) == 0 {
			delete(w.pods, pod.UID)
		}
	case isGated(pod.Pod) && !pod.deleted:
	case w.now.After(pod.endTime):
		w.endPod(pod)
	case pod.Status.Phase == corev1.PodPending && !pod.deleted && w.chance(70):
		pod.Status.Phase = corev1.PodRunning
		if len(pod.OwnerReferences) > 0 {
			pod.Status.ContainerStatuses[0].State.Running = &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(w.now)}
		}
		w.counts["runner"]++
	}
}

func (w *workspaceSimulation) endPod(pod *workspacePod) {
	pod.Status.Phase = corev1.PodSucceeded
	if pod.exitCode != 0 {
		pod.Status.Phase = corev1.PodFailed
	}
	if len(pod.OwnerReferences) > 0 {
		pod.Status.ContainerStatuses[0].State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: pod.exitCode, FinishedAt: metav1.NewTime(w.now)}}
	}
	w.logf("%s ends with %d", pod.UID, pod.exitCode)
}

// collectClaim simulates the garbage collector, and the protection of claims that Pods use.
func (w *workspaceSimulation) collectClaim() {
	if w.claim == nil {
		return
	}
	var owners []metav1.OwnerReference
	for _, owner := range w.claim.OwnerReferences {
		if s := w.sessions[owner.Name]; s != nil && s.UID == owner.UID {
			owners = append(owners, owner)
		}
	}
	if len(owners) < len(w.claim.OwnerReferences) && w.chance(50) {
		w.claim.OwnerReferences = owners
		if len(owners) == 0 && w.claim.DeletionTimestamp.IsZero() {
			w.claim.DeletionTimestamp = new(metav1.NewTime(w.now))
		}
		bump(w.claim)
	}
	if !w.claim.DeletionTimestamp.IsZero() && !slices.ContainsFunc(slices.Collect(maps.Values(w.pods)), (*workspacePod).canRun) {
		w.logf("claim %s is gone", w.claim.UID)
		w.claim = nil
	}
}

func (w *workspaceSimulation) refreshCache() {
	w.cached.sessions, w.cached.jobs, w.cached.pods = map[string]*v1alpha1.AgenticSession{}, nil, nil
	for name, s := range w.sessions {
		w.cached.sessions[name] = s.DeepCopy()
	}
	for _, job := range w.jobs {
		w.cached.jobs = append(w.cached.jobs, job.DeepCopy())
	}
	w.cached.pods = w.listPods()
}

func (w *workspaceSimulation) listPods() []corev1.Pod {
	var pods []corev1.Pod
	for _, uid := range slices.Sorted(maps.Keys(w.pods)) {
		pods = append(pods, *w.pods[uid].DeepCopy())
	}
	return pods
}

func (w *workspaceSimulation) check() {
	var running []types.UID
	for _, uid := range slices.Sorted(maps.Keys(w.pods)) {
		if w.pods[uid].canRun() {
			running = append(running, uid)
		}
	}
	if len(running) > 1 {
		w.violate("%v can run in one workspace", running)
	}
}

// reconcile simulates a reconciliation of a session by an operator without any memory but its cache, as after a crash.
func (w *workspaceSimulation) reconcile(name string) {
	cached := w.cached.sessions[name]
	if cached == nil {
		return
	}
	in := Observation{Session: cached.DeepCopy(), Runner: newTestRunner(), Now: w.now, CreatedJobs: w.created[string(cached.UID)]}
	if cached.Spec.ContinueFrom != nil {
		in.Parent = w.cached.sessions["parent"]
	}
	for _, other := range w.cached.sessions {
		if other.UID != cached.UID && other.Status.Workspace.ClaimRef.Name == ClaimName("parent") && other.Status.Attempt.JobName != "" {
			in.WorkspaceUser = other.Name
		}
	}
	observeJobs(&in, w.cached.jobs, w.cached.pods)
	decision := w.decide(&in)
	for _, run := range decision.Status.Attempts {
		if run.Reason == v1alpha1.ReasonWorkspaceLost {
			w.counts["lost"]++
		}
	}
	wrote := decision.ChangesStatus(in.Session)
	if wrote && !w.recordStatus(in.Session, &decision) || w.crashes() {
		return
	}
	stored := w.sessions[name]
	isFresh := stored != nil && stored.UID == cached.UID && (wrote || stored.ResourceVersion == cached.ResourceVersion)
	if (len(decision.DeleteJobs) > 0 || decision.CreateJob != nil) && !isFresh {
		w.counts["conflict"]++
		return
	}
	if refusal := w.act(in.Session, &decision); refusal != nil && isFresh {
		in.Session, in.Refusal = stored.DeepCopy(), refusal
		decision = w.decide(&in)
		w.recordStatus(in.Session, &decision)
	}
}

func observeJobs(in *Observation, jobs []*batchv1.Job, pods []corev1.Pod) {
	in.Jobs, in.Pods = nil, nil
	for _, job := range jobs {
		if metav1.IsControlledBy(job, in.Session) {
			in.Jobs = append(in.Jobs, job)
		}
	}
	for i := range pods {
		if pods[i].Labels[LabelSessionUID] == string(in.Session.UID) {
			in.Pods = append(in.Pods, pods[i])
		}
	}
}

// decide answers questions with live objects. Anything can happen between two of them.
func (w *workspaceSimulation) decide(in *Observation) Decision {
	in.Answers = Answers{Jobs: map[string]*batchv1.Job{}, Claims: map[string]*metav1.PartialObjectMetadata{}, Mounts: map[string][]corev1.Pod{}, Secrets: map[string]bool{}}
	for range 8 {
		d := Decide(*in)
		question := d.Question
		if question == nil {
			return d
		}
		jobs := slices.Collect(maps.Values(w.jobs))
		for i := range jobs {
			jobs[i] = jobs[i].DeepCopy()
		}
		switch {
		case question.AllJobs:
			observeJobs(in, jobs, w.listPods())
			in.Answers.Listed = true
		case question.Claim != "":
			in.Answers.Claims[question.Claim] = w.claim.DeepCopy()
		case question.Mounts != "":
			in.Answers.Mounts[question.Mounts] = slices.DeleteFunc(w.listPods(), func(pod corev1.Pod) bool { return decision.HasPodEnded(&pod) })
			if slices.ContainsFunc(in.Answers.Mounts[question.Mounts], func(pod corev1.Pod) bool { return pod.Labels[LabelSessionUID] != string(in.Session.UID) }) {
				w.counts["waited for a Pod"]++
			}
		case question.Secret != "":
			in.Answers.Secrets[question.Secret] = true
		default:
			in.Answers.Jobs[question.JobName] = nil
			if job := w.jobs[question.JobName]; job != nil && metav1.IsControlledBy(job, in.Session) {
				in.Answers.Jobs[question.JobName] = job.DeepCopy()
			}
		}
		w.interleave()
	}
	w.violate("Decide keeps asking questions")
	return Decision{}
}

// interleave simulates what happens between two requests of a reconciliation: other events, and another operator that does
// not know yet that it is not the leader any more, or is.
func (w *workspaceSimulation) interleave() {
	if w.isInterleaved || !w.fault(25) {
		return
	}
	w.isInterleaved = true
	w.advance()
	if w.chance(50) {
		w.refreshCache()
	}
	w.reconcile(sharers[w.rng.IntN(len(sharers))])
	w.check()
	w.isInterleaved = false
}

func (w *workspaceSimulation) crashes() bool {
	if !w.fault(4) {
		return false
	}
	w.logf("operator crashes")
	w.counts["crash"]++
	w.created = map[string]map[string]types.UID{}
	return true
}

func (w *workspaceSimulation) recordStatus(read *v1alpha1.AgenticSession, decision *Decision) bool {
	stored := w.sessions[read.Name]
	if w.crashes() {
		return false
	}
	if stored == nil || stored.UID != read.UID || stored.ResourceVersion != read.ResourceVersion {
		w.counts["conflict"]++
		return false
	}
	if stored.Status.Phase != decision.Status.Phase || stored.Status.Attempt.JobName != decision.Status.Attempt.JobName {
		w.logf("%s is %s, Job %q", stored.UID, decision.Status.Phase, decision.Status.Attempt.JobName)
	}
	stored.Status = *decision.Status.DeepCopy()
	bump(stored)
	return true
}

// send executes a request now, or after the operator crashed. It returns false if the operator crashed.
func (w *workspaceSimulation) send(request func() bool) bool {
	if w.fault(4) {
		w.counts["late request"]++
		w.late = append(w.late, func() { request() })
		w.logf("operator crashes, its last request is late")
		w.created = map[string]map[string]types.UID{}
		return false
	}
	return request() && !w.crashes()
}

func (w *workspaceSimulation) act(s *v1alpha1.AgenticSession, d *Decision) (refusal *decision.Refusal) {
	var requests []func() bool
	for _, job := range d.DeleteJobs {
		requests = append(requests, func() bool {
			if stored := w.jobs[job.Name]; stored != nil && stored.UID == job.UID {
				w.deleteJob(stored, true)
			}
			return true
		})
	}
	for _, object := range d.ApplyObjects {
		if object.GetObjectKind().GroupVersionKind().Kind == "PersistentVolumeClaim" {
			requests = append(requests, func() bool {
				refusal = w.createClaim(object)
				return refusal == nil
			})
		}
	}
	if claim := d.ShareClaim; claim != nil {
		requests = append(requests, func() bool {
			if w.claim == nil || w.claim.UID != claim.UID {
				return false
			}
			if !isClaimOwner(s.UID, w.claim) {
				w.claim.OwnerReferences = append(w.claim.OwnerReferences, metav1.OwnerReference{Name: s.Name, UID: s.UID})
				bump(w.claim)
			}
			return true
		})
	}
	if reservation := d.ReserveWorkspace; reservation != nil {
		requests = append(requests, func() bool { return w.reserve(s, reservation) }, func() bool { return w.removeGate(reservation) })
	}
	if d.CreateJob != nil {
		requests = append(requests, func() bool { return w.createJob(s, d.CreateJob) })
	}
	for _, request := range requests {
		w.interleave()
		if w.crashes() || !w.send(request) {
			return refusal
		}
	}
	return nil
}

func (w *workspaceSimulation) createClaim(object metav1.Object) *decision.Refusal {
	if w.claim != nil {
		if w.claim.Labels[LabelSessionUID] != object.GetLabels()[LabelSessionUID] {
			return decision.NameTaken(decision.Refusal{Kind: "PersistentVolumeClaim", Name: w.claim.Name}, "AgenticSession")
		}
		return nil
	}
	w.claim = &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
		Name: object.GetName(), UID: w.newUID("claim"), ResourceVersion: "1", Labels: object.GetLabels(), OwnerReferences: object.GetOwnerReferences(),
	}}
	w.logf("%s is created", w.claim.UID)
	return nil
}

// reserve reserves the claim, and checks that a session that does not accept an empty one uses the same as before.
func (w *workspaceSimulation) reserve(s *v1alpha1.AgenticSession, reservation *WorkspaceReservation) bool {
	pod := string(reservation.Pod.UID)
	if reservation.Claim.Annotations[AnnotationWorkspacePod] != pod {
		if w.claim == nil || w.claim.UID != reservation.Claim.UID || w.claim.ResourceVersion != reservation.Claim.ResourceVersion {
			w.counts["reservation failed"]++
			return false
		}
		w.claim.Annotations = map[string]string{AnnotationWorkspacePod: pod}
		bump(w.claim)
		w.logf("%s is reserved for %s", w.claim.UID, pod)
	}
	before := w.usedUIDs[s.UID]
	if mayChange := s.Spec.Workspace != nil && s.Spec.Workspace.OnLost == v1alpha1.LostWorkspaceRecreate; before != "" && before != reservation.Claim.UID && !mayChange {
		w.violate("%s used %s and now %s", s.UID, before, reservation.Claim.UID)
	}
	w.usedUIDs[s.UID] = reservation.Claim.UID
	return true
}

func (w *workspaceSimulation) removeGate(reservation *WorkspaceReservation) bool {
	pod := w.pods[reservation.Pod.UID]
	if pod == nil {
		return false
	}
	if isGated(pod.Pod) {
		w.logf("%s may run", pod.UID)
		pod.Spec.SchedulingGates = nil
	}
	return true
}

func (w *workspaceSimulation) createJob(s *v1alpha1.AgenticSession, job *batchv1.Job) bool {
	existing := w.jobs[job.Name]
	if existing == nil {
		existing = job.DeepCopy()
		existing.UID, existing.CreationTimestamp = w.newUID(job.Name), metav1.NewTime(w.now)
		w.jobs[job.Name] = existing
		w.logf("%s is created", existing.UID)
	}
	if metav1.IsControlledBy(existing, s) {
		w.created[string(s.UID)] = map[string]types.UID{job.Name: existing.UID}
	}
	return true
}
