package agenticsession

import (
	"maps"
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/decision"
)

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
