package sequence

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/apierror"
	"github.com/yardmaster/yardmaster/internal/core"
)

// errPassEnded ends a pass of the simulated operator: a crash, a conflict, stale input.
var errPassEnded = errors.New("pass ended")

// pass plays one pass of the operator, as the reconciler makes it: observe, ask, record,
// act, with a chance of a crash between any two requests.
func (w *simulator) reconcile() {
	in := w.observe()
	decision := w.decide(&in)
	if err := w.carryOut(in, decision); err != nil {
		return
	}
}

func (w *simulator) carryOut(in Observation, decision Decision) error {
	read := in.SequentialJob.ResourceVersion
	held := in.SequentialJob.DeepCopy()
	if err := w.record(held, &decision); err != nil {
		return err
	}
	refusal, err := w.act(held, &decision, read)
	if err != nil || refusal == nil {
		return err
	}
	in.SequentialJob, in.Refusal = held.DeepCopy(), refusal
	decision = w.decide(&in)
	return w.record(held, &decision)
}

// observe reads caches that lag behind, and what the process remembers.
func (w *simulator) observe() Observation {
	w.sjSeen = w.lag(w.sjSeen, len(w.sjVersions)-1)
	w.jobsSeen = w.lag(w.jobsSeen, len(w.jobVersions)-1)
	in := Observation{
		SequentialJob: w.sjVersions[w.sjSeen].DeepCopy(),
		Now:           w.now,
		CreatedJobs:   map[string]types.UID{},
		Answers:       Answers{JobsByName: map[string]*batchv1.Job{}, PodsByJob: map[types.UID][]corev1.Pod{}},
	}
	seen := w.jobVersions[w.jobsSeen]
	for _, job := range seen {
		in.Jobs = append(in.Jobs, job)
	}
	for name, job := range w.memory {
		in.CreatedJobs[name] = job.UID
		if shown := seen[name]; (shown == nil || shown.UID != job.UID) && w.chance(50) {
			in.Jobs = append(in.Jobs, job) // trusted to exist for a while
		}
	}
	slices.SortFunc(in.Jobs, func(a, b *batchv1.Job) int { return compareStrings(a.Name, b.Name) })
	return in
}

func compareStrings(a, b string) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	default:
		return 0
	}
}

// lag moves a cache some way towards the newest version.
func (w *simulator) lag(seen, newest int) int {
	if w.calm || w.chance(50) {
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
	w.violate("the core never stops asking")
	return Decision{Status: in.SequentialJob.Status}
}

func (w *simulator) answer(in *Observation, question *Question) {
	switch {
	case question.JobNamed != "":
		job := w.jobs[question.JobNamed]
		in.Answers.JobsByName[question.JobNamed] = job
		if job != nil && w.memory[job.Name] == nil {
			w.memory[job.Name] = job
		}
	case question.PodsOf != nil:
		in.Answers.PodsByJob[question.PodsOf.UID] = []corev1.Pod{}
	case question.DryRun != nil:
		in.Answers.DryRun = &DryRunResult{}
	}
}

// crash may end the process, which then forgets everything and reads its caches anew.
func (w *simulator) crash() bool {
	if w.calm || !w.chance(5) {
		return false
	}
	w.note("operator crashes")
	w.crashes++
	recorded := map[types.UID]bool{}
	for _, step := range w.sj.Status.Steps {
		recorded[step.JobUID] = true
	}
	for _, job := range w.jobs {
		if !recorded[job.UID] {
			w.ambiguousS[job.UID] = true
		}
	}
	for _, job := range w.memory {
		if !recorded[job.UID] {
			w.ambiguousS[job.UID] = true
		}
	}
	w.memory = map[string]*batchv1.Job{}
	w.sjSeen = max(0, len(w.sjVersions)-1-w.rng.IntN(4))
	w.jobsSeen = max(0, len(w.jobVersions)-1-w.rng.IntN(4))
	return true
}

func (w *simulator) record(held *v1alpha1.SequentialJob, decision *Decision) error {
	if w.crash() {
		return errPassEnded
	}
	if !decision.StatusChanged {
		return nil
	}
	changed := held.DeepCopy()
	changed.Status = decision.Status
	if err := w.write(held, changed); err != nil {
		return err
	}
	maps.DeleteFunc(w.memory, func(name string, _ *batchv1.Job) bool {
		return !slices.ContainsFunc(held.Status.Steps, func(step v1alpha1.StepStatus) bool {
			return (step.Phase == v1alpha1.StepStarting || step.Phase == v1alpha1.StepRunning) && step.JobName == name && step.JobUID == ""
		})
	})
	return nil
}

// write stores the object under the optimistic lock.
func (w *simulator) write(held, changed *v1alpha1.SequentialJob) error {
	if held.ResourceVersion != w.sj.ResourceVersion {
		w.note("conflict")
		return errPassEnded
	}
	w.storeSJ(changed)
	*held = *w.sj.DeepCopy()
	for _, step := range held.Status.Steps {
		if step.Phase == v1alpha1.StepSuspending {
			w.excused[step.JobUID] = true
		}
	}
	if held.Status.State.Active > 1 {
		w.violate("%d steps recorded as active", held.Status.State.Active)
	}
	if w.crash() {
		return errPassEnded
	}
	return nil
}

func (w *simulator) act(held *v1alpha1.SequentialJob, decision *Decision, read string) (*core.Refusal, error) {
	if decision.NeedsFinalizer {
		if err := w.setFinalizer(held, true); err != nil {
			return nil, err
		}
	}
	if decision.HasActions() && held.ResourceVersion == read && held.ResourceVersion != w.sj.ResourceVersion {
		w.note("stale")
		return nil, errPassEnded
	}
	if decision.CreateJob != nil {
		if refusal, err := w.create(decision.CreateJob); refusal != nil || err != nil {
			return refusal, err
		}
	}
	w.hold(decision)
	for _, job := range decision.DeleteJobs {
		if current := w.jobs[job.Name]; current != nil && current.UID == job.UID {
			w.note("operator deletes %s", job.Name)
			w.setJob(current, func(j *batchv1.Job) { j.DeletionTimestamp = &metav1.Time{Time: w.now} })
		}
	}
	if decision.NeedsFinalizer {
		return nil, nil
	}
	return nil, w.setFinalizer(held, false)
}

// setFinalizer adds or removes the finalizer.
func (w *simulator) setFinalizer(held *v1alpha1.SequentialJob, wanted bool) error {
	if slices.Contains(held.Finalizers, v1alpha1.SequentialJobFinalizer) == wanted {
		return nil
	}
	changed := held.DeepCopy()
	changed.Finalizers = nil
	if wanted {
		changed.Finalizers = []string{v1alpha1.SequentialJobFinalizer}
	}
	return w.write(held, changed)
}

func (w *simulator) hold(decision *Decision) {
	if decision.SuspendJob != nil && w.jobs[decision.SuspendJob.Name] != nil && w.jobs[decision.SuspendJob.Name].UID == decision.SuspendJob.UID {
		w.setJob(w.jobs[decision.SuspendJob.Name], func(j *batchv1.Job) {
			j.Spec.Suspend = new(true)
			metav1.SetMetaDataAnnotation(&j.ObjectMeta, v1alpha1.AnnotationSuspended, "true")
		})
	}
	if decision.ResumeJob != nil && w.jobs[decision.ResumeJob.Name] != nil && w.jobs[decision.ResumeJob.Name].UID == decision.ResumeJob.UID {
		w.setJob(w.jobs[decision.ResumeJob.Name], func(j *batchv1.Job) {
			j.Spec.Suspend = new(false)
			delete(j.Annotations, v1alpha1.AnnotationSuspended)
		})
	}
}

// create makes a Job on the simulated API server, where the promises are checked.
func (w *simulator) create(job *batchv1.Job) (*core.Refusal, error) {
	if current := w.jobs[job.Name]; current != nil {
		w.memory[job.Name] = current
		return nil, nil
	}
	if !w.calm && w.chance(5) {
		class := apierror.QuotaExceeded
		if w.chance(10) {
			class = apierror.Invalid
		}
		w.note("refused (%s): %s", class, job.Name)
		return &core.Refusal{Class: class, Message: "no"}, nil
	}
	w.checkPromises(job)
	w.uid++
	w.created++
	made := job.DeepCopy()
	made.UID = types.UID("job-" + strconv.Itoa(w.uid))
	made.CreationTimestamp = metav1.NewTime(w.now)
	if isQueueManaged(made) {
		made.Spec.Suspend = new(true)
	}
	w.note("operator makes %s as %s", made.Name, made.UID)
	w.jobs[made.Name] = made
	w.ran[stepKey(made)] = append(w.ran[stepKey(made)], made)
	w.storeJobs()
	if w.crash() {
		return nil, errPassEnded
	}
	w.memory[made.Name] = made
	return nil, nil
}

func (w *simulator) checkPromises(job *batchv1.Job) {
	for name, other := range w.jobs {
		if !IsTerminal(other) {
			w.violate("%s is made while %s may be running", job.Name, name)
		}
	}
	if !slices.Contains(w.sj.Finalizers, v1alpha1.SequentialJobFinalizer) {
		w.violate("%s is made without the finalizer", job.Name)
	}
	w.checkOrder(job)
	w.checkOnce(job)
}

// checkOrder: every step before this one has its outcome stored.
func (w *simulator) checkOrder(job *batchv1.Job) {
	for _, step := range w.sj.Status.Steps {
		if step.Name == job.Labels[v1alpha1.LabelStep] {
			return
		}
		if canStart(step.Phase) || isActive(step.Phase) {
			w.violate("%s is made while step %s is stored as %s", job.Name, step.Name, step.Phase)
		}
	}
}

// checkOnce: the step has not run in this run, unless it was lost under onLostJob: Rerun,
// or interrupted by suspension. One case no status can tell: the operator crashed before
// it could record the Job, and a stranger deleted that Job before the operator was back.
func (w *simulator) checkOnce(job *batchv1.Job) {
	for _, earlier := range w.ran[stepKey(job)] {
		outcome := terminalCondition(earlier)
		switch {
		case w.excused[earlier.UID]:
		case w.ambiguousS[earlier.UID] && w.jobs[earlier.Name] == nil:
			w.ambiguous++
		case outcome == nil && w.sj.Spec.OnLostJob == v1alpha1.LostJobRerun:
		case outcome != nil && w.sj.Spec.OnLostJob == v1alpha1.LostJobRerun && w.jobs[earlier.Name] == nil && !w.outcomeStored(earlier):
			// it ended and vanished before anybody saw: lost, too
		default:
			w.violate("%s is made; %s was made for the step before (%s)", job.Name, earlier.UID, describe(outcome))
		}
	}
}

func (w *simulator) outcomeStored(job *batchv1.Job) bool {
	for _, step := range w.sj.Status.Steps {
		if step.JobUID == job.UID && (step.Phase == v1alpha1.StepSucceeded || step.Phase == v1alpha1.StepFailed) {
			return true
		}
	}
	return false
}

func describe(outcome *batchv1.JobCondition) string {
	if outcome == nil {
		return "no outcome"
	}
	return fmt.Sprint(outcome.Type)
}
