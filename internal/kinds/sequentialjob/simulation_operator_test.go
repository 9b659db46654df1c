package sequentialjob

import (
	"cmp"
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/decision"
	"github.com/yardmaster/yardmaster/test/testbuilder"
)

// errReconciliationEnded ends a reconciliation of the simulated operator: a crash, a conflict, a stale observation.
var errReconciliationEnded = errors.New("reconciliation ended")

// reconcile simulates one reconciliation: observe, decide, record, act, with a random crash between any two requests.
func (w *simulator) reconcile() {
	in := w.observe()
	decision := w.decide(&in)
	_ = w.carryOutDecision(in, decision) // an error ends the reconciliation
}

func (w *simulator) carryOutDecision(in Observation, decision Decision) error {
	read := in.SequentialJob.ResourceVersion
	stored := in.SequentialJob.DeepCopy()
	if err := w.record(&in, stored, &decision); err != nil {
		return err
	}
	refusal, err := w.act(stored, &decision, read)
	if err != nil || refusal == nil {
		return err
	}
	in.SequentialJob, in.Refusal = stored.DeepCopy(), refusal
	decision = w.decide(&in)
	return w.record(&in, stored, &decision)
}

// observe reads stale caches and the remembered Jobs.
func (w *simulator) observe() Observation {
	w.observedVersion = w.advanceCache(w.observedVersion, len(w.objectVersions)-1)
	w.observedJobsVersion = w.advanceCache(w.observedJobsVersion, len(w.jobVersions)-1)
	in := Observation{
		SequentialJob: w.objectVersions[w.observedVersion].DeepCopy(), Now: w.now, ArchiveImage: "yardmaster:test", CreatedJobs: map[string]types.UID{},
		Answers: Answers{JobsByName: map[string]*batchv1.Job{}, PodsByJob: map[types.UID][]corev1.Pod{}, Warnings: map[types.UID]string{}},
	}
	in.HasStored = in.SequentialJob.ResourceVersion == w.storedVersion
	in.Evidence = maps.Clone(w.evidence)
	seen := w.jobVersions[w.observedJobsVersion]
	in.Jobs = slices.Collect(maps.Values(seen))
	for _, name := range slices.Sorted(maps.Keys(w.rememberedJobs)) {
		job := w.rememberedJobs[name]
		in.CreatedJobs[name] = job.UID
		if shown := seen[name]; (shown == nil || shown.UID != job.UID) && w.expiredJobs[job.UID] == nil && w.happensWithChance(50) {
			in.Jobs = append(in.Jobs, job) // trusted to exist for a while
		}
	}
	for _, uid := range slices.Sorted(maps.Keys(w.expiredJobs)) {
		shown, job := len(in.Jobs), w.expiredJobs[uid]
		if current := seen[job.Name]; current != nil && current.UID == uid {
			continue
		}
		if in.Jobs = AddEnded(in.SequentialJob, in.Jobs, in.CreatedJobs, job); len(in.Jobs) == shown {
			delete(w.expiredJobs, uid)
		}
	}
	slices.SortFunc(in.Jobs, func(a, b *batchv1.Job) int { // so that a seed repeats a run
		return cmp.Or(strings.Compare(a.Name, b.Name), strings.Compare(string(a.UID), string(b.UID)))
	})
	for _, job := range in.Jobs {
		in.Pods = append(in.Pods, w.randomPods(job)...)
	}
	return in
}

// randomPods returns what a cache shows of a Job's Pods: none, or one that runs, waits or is being prepared, or in which only a
// container of others still runs.
func (w *simulator) randomPods(job *batchv1.Job) []*corev1.Pod {
	if w.stuckJobs[job.UID] {
		return []*corev1.Pod{stuckPod(job)}
	}
	pod := testbuilder.Pod(job.Labels[v1alpha1.LabelStep]).Created(job.CreationTimestamp.Time).Obj()
	pod.UID, pod.OwnerReferences = "pod", []metav1.OwnerReference{{UID: job.UID, Controller: new(true)}}
	status := &pod.Status.ContainerStatuses[0]
	started := &corev1.ContainerStateRunning{StartedAt: job.CreationTimestamp}
	state := w.rng.IntN(5)
	if w.leftoverJobs[job.UID] {
		state = 3
	}
	switch state {
	case 0:
		return nil
	case 1:
		pod.Status.Phase, status.State.Running = corev1.PodRunning, started
	case 2:
		status.State.Waiting = &corev1.ContainerStateWaiting{Reason: "ErrImagePull", Message: "no"}
	case 3:
		if IsTerminal(job) || isSuspended(job) || isArchiveJob(w.sj, job) {
			return nil
		}
		w.leftoverJobs[job.UID], pod.Status.Phase = true, corev1.PodRunning
		status.State.Terminated = &corev1.ContainerStateTerminated{Message: "output", FinishedAt: job.CreationTimestamp}
		pod.Status.ContainerStatuses = append(pod.Status.ContainerStatuses, corev1.ContainerStatus{Name: "proxy", State: corev1.ContainerState{Running: started}})
	}
	return []*corev1.Pod{&pod}
}

func (w *simulator) endedPod(job *batchv1.Job) corev1.Pod {
	code := int32(0)
	if outcome := decision.FindEndCondition(job); outcome != nil && outcome.Type == batchv1.JobFailed {
		code = 3
	}
	pod := testbuilder.Pod(job.Labels[v1alpha1.LabelStep]).Exited(code, "output").Obj()
	if w.disruptedJobs[job.UID] {
		pod.DeletionTimestamp, pod.Status.ContainerStatuses[0].State.Terminated.FinishedAt = new(metav1.NewTime(w.now)), metav1.NewTime(w.now)
		pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, LastTransitionTime: *pod.DeletionTimestamp}}
	}
	return pod
}

func stuckPod(job *batchv1.Job) *corev1.Pod {
	pod := testbuilder.Pod(job.Labels[v1alpha1.LabelStep]).Created(job.CreationTimestamp.Time).Waiting("ErrImagePull", "no").Obj()
	pod.UID, pod.OwnerReferences = "pod", []metav1.OwnerReference{{UID: job.UID, Controller: new(true)}}
	return &pod
}

func (w *simulator) advanceCache(seen, newest int) int {
	if w.noDisturbances || w.happensWithChance(50) {
		return newest
	}
	return seen + w.rng.IntN(newest-seen+1)
}

func (w *simulator) decide(in *Observation) Decision {
	for range 100 {
		decision := Decide(*in)
		if decision.Question == nil {
			return decision
		}
		w.answer(in, decision.Question)
	}
	w.reportViolation("the core does not stop asking questions: %+v", Decide(*in).Question)
	return Decision{Status: in.SequentialJob.Status}
}

func (w *simulator) answer(in *Observation, question *Question) {
	switch {
	case question.JobNamed != "":
		job := w.jobs[question.JobNamed]
		in.Answers.JobsByName[question.JobNamed] = job
		if job == nil || isArchiveJob(w.sj, job) {
			return
		}
		if remembered := w.rememberedJobs[job.Name]; remembered == nil || remembered.UID != job.UID {
			w.rememberedJobs[job.Name] = job
		}
	case question.PodsOf != nil && question.PodsOf.CreationTimestamp.IsZero(): // the Job was deleted
		if in.Answers.PodsByJob[question.PodsOf.UID] = nil; w.podEnds[question.PodsOf.UID].After(w.now) {
			in.Answers.PodsByJob[question.PodsOf.UID] = []corev1.Pod{{}}
		}
	case question.PodsOf != nil && w.stuckJobs[question.PodsOf.UID]:
		pod := stuckPod(question.PodsOf)
		in.Answers.PodsByJob[question.PodsOf.UID] = []corev1.Pod{*pod}
		w.evidence.change(question.PodsOf.UID, func(e *Evidence) { e.Observe(pod) })
	case question.PodsOf != nil:
		in.Answers.PodsByJob[question.PodsOf.UID] = nil // deleted, if the Job has expired
		if w.expiredJobs[question.PodsOf.UID] == nil {
			in.Answers.PodsByJob[question.PodsOf.UID] = []corev1.Pod{w.endedPod(question.PodsOf)}
		}
	case question.WarningsOf != "":
		in.Answers.Warnings[question.WarningsOf] = "no Pod"
	case question.ApprovalPolicies:
		in.Answers.UnprotectedApprovals = new("")
		if !w.noDisturbances && w.happensWithChance(20) {
			in.Answers.UnprotectedApprovals = new("the policy does not exist")
		}
	case question.Claim != "":
		in.Answers.Claims = map[string]*metav1.PartialObjectMetadata{question.Claim: w.claim.DeepCopy()}
	case question.AllJobs:
		var live []*batchv1.Job
		for _, name := range w.sortedJobNames() {
			live = append(live, w.jobs[name])
		}
		in.AnswerAllJobs(live)
	case question.DryRun != nil:
		in.Answers.DryRun = &DryRunResult{}
	}
}

// maybeCrash randomly ends the process, which then forgets its memory and fills its caches again.
func (w *simulator) maybeCrash() error {
	if w.noDisturbances || w.rng.IntN(w.calm*100) >= 5 {
		return nil
	}
	w.logEvent("operator crashes")
	w.crashes++
	w.markUnrecordedJobs()
	if w.paused == nil && w.happensWithChance(30) {
		w.logEvent("it was only paused")
		w.paused = new(w.operator)
	}
	w.operator = newOperator()
	w.observedVersion = max(0, len(w.objectVersions)-1-w.rng.IntN(4))
	w.observedJobsVersion = max(0, len(w.jobVersions)-1-w.rng.IntN(4))
	return errReconciliationEnded
}

func (w *simulator) wakePaused() {
	w.logEvent("a paused operator wakes up")
	w.markUnrecordedJobs()
	current := w.operator
	w.operator, w.paused = *w.paused, nil
	w.reconcile()
	w.markUnrecordedJobs()
	for name, job := range current.rememberedJobs {
		if created := w.jobs[name]; created != nil && created.UID != job.UID {
			w.strayJobs[created.UID] = true
		}
	}
	for _, step := range w.sj.Status.Steps { // the paused process recorded the Job that it created, which another client had deleted
		if job := w.jobs[step.JobName]; job != nil && step.JobUID != "" && job.UID != step.JobUID {
			w.strayJobs[job.UID] = true
		}
	}
	w.operator = current
}

// markUnrecordedJobs marks the Jobs that another process of the operator may not know.
func (w *simulator) markUnrecordedJobs() {
	recorded := map[types.UID]bool{}
	for _, step := range w.sj.Status.Steps {
		recorded[step.JobUID] = true
	}
	for _, jobs := range []map[string]*batchv1.Job{w.jobs, w.rememberedJobs} {
		for _, job := range jobs {
			if !recorded[job.UID] {
				w.unrecordedJobs[job.UID] = true
			}
		}
	}
}

func (w *simulator) record(in *Observation, stored *v1alpha1.SequentialJob, decision *Decision) error {
	if err := w.maybeCrash(); err != nil {
		return err
	}
	if !decision.StatusChanged {
		return nil
	}
	if decision.RecordWithin > 0 && w.happensWithChance(70) {
		w.logEvent("the status is stored later")
		w.checkLag(&stored.Status, &decision.Status)
		return nil
	}
	knowsJobs := in.KnowsJobs()
	changed := stored.DeepCopy()
	changed.Status = decision.Status
	if err := w.writeLocked(stored, changed); err != nil {
		return err
	}
	for _, name := range w.sortedJobNames() {
		if job := w.jobs[name]; IsFinished(&stored.Status) && !IsTerminal(job) && job.DeletionTimestamp.IsZero() && !isArchiveJob(w.sj, job) {
			w.reportViolation("the run ends while %s may be running", name)
		}
	}
	if knowsJobs {
		w.storedVersion = stored.ResourceVersion
	}
	maps.DeleteFunc(w.rememberedJobs, func(name string, _ *batchv1.Job) bool {
		return !slices.ContainsFunc(stored.Status.Steps, func(step v1alpha1.StepStatus) bool {
			return (step.Phase == v1alpha1.StepStarting || step.Phase == v1alpha1.StepRunning) && step.JobName == name && step.JobUID == ""
		})
	})
	return nil
}

// writeLocked stores the object under the optimistic lock.
func (w *simulator) writeLocked(stored, changed *v1alpha1.SequentialJob) error {
	if stored.ResourceVersion != w.sj.ResourceVersion {
		w.logEvent("conflict")
		return errReconciliationEnded
	}
	w.storeSequentialJob(changed)
	*stored = *w.sj.DeepCopy()
	for _, step := range stored.Status.Steps {
		if step.Phase == v1alpha1.StepSuspending {
			w.interruptedJobs[step.JobUID] = true
		}
		if step.Phase == v1alpha1.StepRetrying {
			w.retryTimes[step.JobUID] = step.NextAttemptTime.Time
		}
	}
	if stored.Status.State.Active > 1 {
		w.reportViolation("%d steps recorded as active", stored.Status.State.Active)
	}
	return w.maybeCrash()
}

func (w *simulator) act(stored *v1alpha1.SequentialJob, d *Decision, read string) (*decision.Refusal, error) {
	if d.NeedsFinalizer {
		if err := w.setFinalizer(stored, true); err != nil {
			return nil, err
		}
	}
	if d.HasActions() && stored.ResourceVersion == read && stored.ResourceVersion != w.sj.ResourceVersion {
		w.logEvent("stale")
		return nil, errReconciliationEnded
	}
	for _, job := range d.DeleteJobs {
		current := w.jobs[job.Name]
		if current == nil {
			continue
		}
		if current != job { // another version: it may have ended, or be another Job
			w.logEvent("conflict")
			return nil, errReconciliationEnded
		}
		w.logEvent("operator deletes %s", job.Name)
		w.checkDeletion(current)
		if step := EvidenceWithoutJob(stored); step != nil && step.JobUID == job.UID {
			w.evidence.watch(job.UID)
			w.replaced++
		}
		w.changeJob(current, func(j *batchv1.Job) { j.DeletionTimestamp = &metav1.Time{Time: w.now} })
	}
	if d.Workspace != nil {
		if err := w.createClaim(d.Workspace); err != nil {
			return nil, err
		}
	}
	if d.CreateJob != nil {
		if refusal, err := w.createJob(d.CreateJob); refusal != nil || err != nil {
			return refusal, err
		}
	}
	w.suspendOrResume(d)
	if d.CreateArchive != nil {
		if refusal, err := w.createArchive(d.CreateArchive); refusal != nil || err != nil {
			return refusal, err
		}
	}
	if d.NeedsFinalizer || d.ReleaseWithin > 0 && !w.noDisturbances && w.happensWithChance(70) {
		return nil, nil
	}
	return nil, w.setFinalizer(stored, false)
}

func (w *simulator) setFinalizer(stored *v1alpha1.SequentialJob, wanted bool) error {
	if slices.Contains(stored.Finalizers, v1alpha1.SequentialJobFinalizer) == wanted {
		return nil
	}
	changed, isOwn := stored.DeepCopy(), stored.ResourceVersion == w.storedVersion
	changed.Finalizers = nil
	if wanted {
		changed.Finalizers = []string{v1alpha1.SequentialJobFinalizer}
	}
	if err := w.writeLocked(stored, changed); err != nil {
		return err
	}
	if isOwn {
		w.storedVersion = stored.ResourceVersion
	}
	return nil
}

func (w *simulator) suspendOrResume(decision *Decision) {
	current := func(job *batchv1.Job) *batchv1.Job {
		if job == nil || w.jobs[job.Name] == nil || w.jobs[job.Name].UID != job.UID {
			return nil
		}
		return w.jobs[job.Name]
	}
	if job := current(decision.SuspendJob); job != nil {
		w.changeJob(job, func(j *batchv1.Job) {
			j.Spec.Suspend = new(true)
			metav1.SetMetaDataAnnotation(&j.ObjectMeta, v1alpha1.AnnotationSuspended, "true")
		})
	}
	if job := current(decision.ResumeJob); job != nil {
		w.changeJob(job, func(j *batchv1.Job) {
			j.Spec.Suspend = new(false)
			delete(j.Annotations, v1alpha1.AnnotationSuspended)
		})
	}
}

func (w *simulator) createArchive(job *batchv1.Job) (*decision.Refusal, error) {
	if w.jobs[job.Name] != nil {
		return nil, nil
	}
	if !w.noDisturbances && w.happensWithChance(20) {
		return &decision.Refusal{Kind: "Job", Name: job.Name, Class: decision.QuotaExceeded, Message: "no"}, nil
	}
	w.storeNewJob(job.DeepCopy())
	return nil, w.maybeCrash()
}

func (w *simulator) storeNewJob(job *batchv1.Job) {
	w.uid++
	w.jobs[job.Name] = testbuilder.Job(job).Created(types.UID("job-"+strconv.Itoa(w.uid)), w.now).Obj()
	w.logEvent("operator creates %s as %s", job.Name, job.UID)
	w.storeJobs()
}

// createJob creates a Job on the simulated API server and checks the invariants.
func (w *simulator) createJob(job *batchv1.Job) (*decision.Refusal, error) {
	if current := w.jobs[job.Name]; current != nil {
		w.rememberedJobs[job.Name] = current
		return nil, nil
	}
	if !w.noDisturbances && w.happensWithChance(5) {
		class := decision.QuotaExceeded
		if w.happensWithChance(10) {
			class = decision.Invalid
		}
		w.logEvent("refused (%s): %s", class, job.Name)
		return &decision.Refusal{Class: class, Message: "no"}, nil
	}
	w.checkJobCreation(job)
	w.created++
	created := job.DeepCopy()
	if isQueueManaged(created) {
		created.Spec.Suspend = new(true)
	}
	w.storeNewJob(created)
	if w.claim != nil {
		w.claimOfJob[created.UID] = w.claim.UID
	}
	w.stuckJobs[created.UID] = w.happensWithChance(20)
	w.jobHistory[stepKey(created)] = append(w.jobHistory[stepKey(created)], created)
	if err := w.maybeCrash(); err != nil {
		return nil, err
	}
	w.rememberedJobs[created.Name] = created
	w.evidence.watch(created.UID)
	return nil, nil
}

func (w *simulator) createClaim(claim *corev1.PersistentVolumeClaim) error {
	if w.claim == nil {
		w.uid++
		w.claim = &metav1.PartialObjectMetadata{ObjectMeta: *claim.ObjectMeta.DeepCopy()}
		w.claim.UID = types.UID("claim-" + strconv.Itoa(w.uid))
		w.logEvent("operator creates the claim as %s", w.claim.UID)
		for uid := range w.unrecordedJobs {
			if !slices.ContainsFunc(w.sortedJobNames(), func(name string) bool { return w.jobs[name].UID == uid }) {
				w.forgottenJobs[uid] = true
			}
		}
	}
	return w.maybeCrash()
}

// checkClaim checks that a Job is created only for an existing claim, and for the one that the
// earlier steps of its run, or of runs whose outcomes it keeps, used. One case cannot be distinguished: the operator crashed before it
// recorded the Job of such a step, the Job was deleted, and so was its claim, which the operator therefore took for unused. Between the operator's read of
// the claim and the creation of the Job, nothing happens in the simulation.
func (w *simulator) checkClaim(job *batchv1.Job) {
	if w.sj.Spec.Workspace == nil {
		return
	}
	if w.claim == nil || !w.claim.DeletionTimestamp.IsZero() {
		w.reportViolation("%s is created for a claim that is missing or being deleted", job.Name)
		return
	}
	for _, step := range w.sj.Status.Steps {
		switch used := w.claimOfJob[step.JobUID]; {
		case step.JobUID == "" || used == "" || used == w.claim.UID:
		case w.forgottenJobs[step.JobUID]:
			w.ambiguous++
		default:
			w.reportViolation("%s is created for %s; step %s used %s", job.Name, w.claim.UID, step.Name, used)
		}
	}
}

func (w *simulator) checkJobCreation(job *batchv1.Job) {
	w.checkClaim(job)
	for name, other := range w.jobs {
		if !IsTerminal(other) && !isArchiveJob(w.sj, other) {
			w.reportViolation("%s is created while %s may be running", job.Name, name)
		}
	}
	if !slices.Contains(w.sj.Finalizers, v1alpha1.SequentialJobFinalizer) {
		w.reportViolation("%s is created without the finalizer", job.Name)
	}
	w.checkStepOrder(job)
	w.checkSingleExecution(job)
	w.checkOptions(job)
}

// checkDeletion checks that the history limit deletes no Job before its outcome is stored. A Job that the operator stops
// may have ended in the meantime.
func (w *simulator) checkDeletion(job *batchv1.Job) {
	if isArchiveJob(w.sj, job) {
		return // its time is over
	}
	archive := w.sj.Status.Archive
	if run, _ := runOf(job); w.sj.Spec.Archive != nil && IsTerminal(job) && (archive == nil || archive.Run < run || archive.Run == run && isArchiving(&w.sj.Status)) {
		w.reportViolation("%s is deleted before its logs are archived", job.Name)
	}
	step := findStepWhere(w.sj.Status.Steps, func(s *v1alpha1.StepStatus) bool { return s.JobName == job.Name })
	isStopped := step == nil || step.Phase == v1alpha1.StepStopping || step.Phase == v1alpha1.StepSuspending
	isRetried := step != nil && step.Phase == v1alpha1.StepRetrying && step.JobUID == job.UID
	if IsTerminal(job) && !isStopped && !isRetried && !w.isOutcomeRecorded(job) {
		w.reportViolation("%s is deleted before its outcome is stored", job.Name)
	}
}

// checkOptions checks that the step was approved if that is necessary, is wanted, and gets the parameter of its run.
func (w *simulator) checkOptions(job *batchv1.Job) {
	options := jobOptions(job)
	if content := approvedContent(job); options.RequireApproval && !w.approved[content] {
		w.reportViolation("%s is created without an approval of its content: %s", job.Name, content)
	}
	if options.When == "false" {
		w.reportViolation("%s is created although its expression is false", job.Name)
	}
	run, value := job.Annotations[v1alpha1.AnnotationRun], parameterOf(job)
	if first, found := w.parameterOfRun[run]; found && first != value && !w.approved[valueOfRun(run, value)] && !options.RequireApproval && w.hasOtherStartedStep(job) && !w.hasUnrecordedJob(run) {
		w.reportViolation("%s is created with the parameter %s, the run has %s", job.Name, value, first)
	}
	w.parameterOfRun[run] = value
}

// hasOtherStartedStep reports whether the status has another step that started in the current run. Without one, the run
// may have started again, for example because its only started step was removed.
func (w *simulator) hasOtherStartedStep(job *batchv1.Job) bool {
	return slices.ContainsFunc(w.sj.Status.Steps, func(step v1alpha1.StepStatus) bool {
		return step.Run == w.sj.Status.Run && !canStart(step.Phase) && step.JobUID != "" && step.Name != job.Labels[v1alpha1.LabelStep]
	})
}

// hasUnrecordedJob reports whether the operator may have forgotten a Job of the run.
func (w *simulator) hasUnrecordedJob(run string) bool {
	for key, jobs := range w.jobHistory {
		if strings.HasPrefix(key, run+"/") && slices.ContainsFunc(jobs, func(job *batchv1.Job) bool { return w.unrecordedJobs[job.UID] }) {
			return true
		}
	}
	return false
}

// checkStepOrder checks that every earlier step has its outcome stored, or succeeded.
func (w *simulator) checkStepOrder(job *batchv1.Job) {
	for _, step := range w.sj.Status.Steps {
		if step.Name == job.Labels[v1alpha1.LabelStep] {
			return
		}
		if canStart(step.Phase) || isActive(step.Phase) {
			w.postponed++
			if step.Run = w.sj.Status.Run; !w.hasCompletedJob(&step) {
				w.reportViolation("%s is created while step %s is stored as %s", job.Name, step.Name, step.Phase)
			}
		}
	}
}

// checkLag checks that a status which is stored later says nothing that is older than maxStatusLag.
func (w *simulator) checkLag(storedStatus, status *v1alpha1.SequentialJobStatus) {
	for i := range status.Steps {
		end := status.Steps[i].CompletionTime
		if stored := &storedStatus.Steps[i]; stored.CompletionTime == nil && end != nil && w.now.Sub(end.Time) > maxStatusLag {
			w.reportViolation("the end of step %s is not stored after %s", stored.Name, w.now.Sub(end.Time))
		}
	}
}

// checkSingleExecution checks that the step has not run in this run, unless it was lost with
// onLostJob: Rerun, or interrupted by a suspension or a disruption. One case cannot be distinguished: the operator
// crashed before it recorded the Job, and another client deleted that Job before the restart.
func (w *simulator) checkSingleExecution(job *batchv1.Job) {
	for uid, end := range w.podEnds {
		if end.After(w.now) && !w.unrecordedJobs[uid] && !w.strayJobs[uid] {
			w.reportViolation("%s is created while a Pod of the deleted Job %s runs", job.Name, uid)
		}
	}
	for _, earlier := range w.jobHistory[stepKey(job)] {
		outcome := decision.FindEndCondition(earlier)
		switch {
		case w.interruptedJobs[earlier.UID]:
		case w.strayJobs[earlier.UID]:
			w.ambiguous++
		case w.stuckJobs[earlier.UID] && (w.jobs[earlier.Name] == nil || w.jobs[earlier.Name].UID != earlier.UID): // no container of it ran
		case w.retryTimes[earlier.UID].After(w.now):
			w.reportViolation("%s is created %s too soon", job.Name, w.retryTimes[earlier.UID].Sub(w.now))
		case !w.retryTimes[earlier.UID].IsZero() && (outcome == nil || outcome.Type == batchv1.JobFailed): // without an outcome, it did not start in time
		case w.unrecordedJobs[earlier.UID] && (w.jobs[earlier.Name] == nil || w.jobs[earlier.Name].UID != earlier.UID):
			w.ambiguous++
		case outcome == nil && w.sj.Spec.OnLostJob == v1alpha1.LostJobRerun:
		case outcome != nil && w.sj.Spec.OnLostJob == v1alpha1.LostJobRerun && w.jobs[earlier.Name] == nil && !w.isOutcomeRecorded(earlier):
			// it ended and was deleted before it was observed: lost as well
		default:
			w.reportViolation("%s is created; %s was created for the step before: %+v", job.Name, earlier.UID, outcome)
		}
	}
}

func (w *simulator) isOutcomeRecorded(job *batchv1.Job) bool {
	ends := []v1alpha1.StepPhase{v1alpha1.StepSucceeded, v1alpha1.StepFailed, v1alpha1.StepSkipped} // after it was interrupted
	return slices.ContainsFunc(w.sj.Status.Steps, func(s v1alpha1.StepStatus) bool { return s.JobUID == job.UID && slices.Contains(ends, s.Phase) })
}
