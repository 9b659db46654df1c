package sequentialjob

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	k8sruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/decision"
	"github.com/yardmaster/yardmaster/test/require"
	"github.com/yardmaster/yardmaster/test/testbuilder"
)

// The simulation tests the core with random events: Jobs start, end, fail and are deleted by other
// clients; the operator reads stale caches, gets conflicts and quota errors, and crashes between
// any two requests; the user suspends, changes and reruns the sequence. Pods are
// disrupted, and their programs exit with 0; Jobs expire at once. In every case:
//
//   - a Job is created only when no other Job of the sequence may be running,
//   - and only after every earlier step has its outcome stored, or its Job is complete,
//   - the status that is stored later is at most maxStatusLag behind,
//   - and not again for a step that ran, unless the spec allows it: also if the step is corrected because its image does not exist,
//   - no step is skipped in a run that completes, unless its own expression is false,
//   - no step that needs an approval starts with content that no user approved for its run,
//   - all steps of a run have the same parameters, except those that an approval sets,
//   - ended Jobs are not deleted before the logs of their run are archived, or that failed,
//   - and once the disturbances end, the run ends and does not change any more.
//
// SEQUENCE_RUNS is the number of simulated clusters (500 in make test, 3,000 in CI, 100,000 in make soak) and SEQUENCE_SEED the
// first seed.
func TestSimulationRunsStepsOnceAndInOrder(t *testing.T) {
	t.Parallel()
	runs, first := testbuilder.NumberFromEnv(t, "SEQUENCE_RUNS", 500), testbuilder.NumberFromEnv(t, "SEQUENCE_SEED", 1)
	var next atomic.Int64
	next.Store(int64(first) - 1)
	var total counts
	var mu sync.Mutex
	var group sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		group.Go(func() {
			for seed := next.Add(1); seed < int64(first+runs) && !t.Failed(); seed = next.Add(1) {
				w := newSimulator(uint64(seed))
				w.runSimulation()
				for _, violation := range w.violations {
					t.Errorf("seed %d: %s\n%s", seed, violation, strings.Join(w.log, "\n"))
				}
				mu.Lock()
				total.ambiguous, total.created, total.crashes = total.ambiguous+w.ambiguous, total.created+w.created, total.crashes+w.crashes
				total.replaced, total.postponed = total.replaced+w.replaced, total.postponed+w.postponed
				mu.Unlock()
			}
		})
	}
	group.Wait()
	t.Logf("%d runs, %d Jobs, of which %d before the outcome of the step before was stored, %d crashes, %d Jobs replaced because their step was corrected; %d Jobs created again because the operator crashed before it recorded one that another client then deleted",
		runs, total.created, total.postponed, total.crashes, total.replaced, total.ambiguous)
}

type simulator struct {
	rng  *rand.Rand
	now  time.Time
	sj   *v1alpha1.SequentialJob
	jobs map[string]*batchv1.Job

	// What a cache may still show.
	objectVersions []*v1alpha1.SequentialJob
	jobVersions    []map[string]*batchv1.Job

	operator
	paused *operator // an earlier process that has not noticed yet that it lost its lease; nil for none

	// claim is the workspace's claim, and claimOfJob the UID of the one that each Job uses.
	claim      *metav1.PartialObjectMetadata
	claimOfJob map[types.UID]types.UID

	// approved are the contents that a user approved. parameterOfRun is the value that the first Job of each run got, or that an
	// approval set.
	approved       map[string]bool
	parameterOfRun map[string]string

	hasTTL bool // true if a policy of the cluster sets ttlSecondsAfterFinished: 0 of Jobs

	noDisturbances  bool
	calm            int // by which crashes, deletions and changes of the spec are less likely
	uid             int
	jobHistory      map[string][]*batchv1.Job // by run and step
	unrecordedJobs  jobSet                    // created, not recorded, and the operator crashed since
	strayJobs       jobSet                    // created by a paused operator in place of one that another client had deleted
	forgottenJobs   jobSet                    // of unrecordedJobs, deleted before the operator created another claim
	interruptedJobs jobSet                    // ended by suspension, or by a disruption after which the program exited with 0
	disruptedJobs   jobSet                    // ended by a disruption
	stuckJobs       jobSet                    // of which no container has run, because its image cannot be pulled
	leftoverJobs    jobSet                    // whose step has exited with 0 while another container still runs
	retryTimes      map[types.UID]time.Time   // failed and stored as Retrying, until when
	podEnds         map[types.UID]time.Time   // of Jobs that another client deleted, until when their Pods run
	log, violations []string
	counts
}

type jobSet map[types.UID]bool

// counts are numbers of what happened in simulations.
type counts struct{ ambiguous, created, crashes, replaced, postponed int }

// operator is what a process of the operator has in its caches, and remembers.
type operator struct {
	observedVersion, observedJobsVersion int
	rememberedJobs                       map[string]*batchv1.Job
	expiredJobs                          map[types.UID]*batchv1.Job // of which it saw the deletion
	evidence                             evidenceByJob
	storedVersion                        string // of the object that it has written, knowing all of its Jobs
}

func newOperator() operator {
	return operator{rememberedJobs: map[string]*batchv1.Job{}, expiredJobs: map[types.UID]*batchv1.Job{}, evidence: evidenceByJob{}}
}

func newSimulator(seed uint64) *simulator {
	w := &simulator{
		rng: rand.New(rand.NewPCG(seed, 0)), now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), calm: 1, operator: newOperator(),
		jobs: map[string]*batchv1.Job{}, jobHistory: map[string][]*batchv1.Job{}, retryTimes: map[types.UID]time.Time{}, podEnds: map[types.UID]time.Time{},
		claimOfJob: map[types.UID]types.UID{}, approved: map[string]bool{}, parameterOfRun: map[string]string{},
	}
	for _, jobs := range []*jobSet{
		&w.unrecordedJobs, &w.strayJobs, &w.forgottenJobs, &w.interruptedJobs, &w.disruptedJobs, &w.stuckJobs, &w.leftoverJobs,
	} {
		*jobs = jobSet{}
	}
	w.sj = w.randomSequentialJob()
	if w.happensWithChance(30) { // of which most progress is plain
		w.calm = 4
		w.sj.Spec = v1alpha1.SequentialJobSpec{OnLostJob: w.sj.Spec.OnLostJob, SuspendPolicy: w.sj.Spec.SuspendPolicy, JobHistoryLimit: w.sj.Spec.JobHistoryLimit, Parameters: w.sj.Spec.Parameters, ActiveDeadlineSeconds: w.sj.Spec.ActiveDeadlineSeconds}
		for i := range 3 + w.rng.IntN(5) {
			w.sj.Spec.Containers = append(w.sj.Spec.Containers, v1alpha1.Step{Name: fmt.Sprintf("s%d", i), Container: corev1.Container{Image: "image"}})
		}
	}
	w.hasTTL = w.happensWithChance(20)
	w.storeSequentialJob(w.sj)
	w.storeJobs()
	return w
}

func (w *simulator) happensWithChance(percent int) bool { return w.rng.IntN(100) < percent }

// either returns the first value with this chance, else the second.
func either[T any](w *simulator, percent int, first, second T) T {
	if w.happensWithChance(percent) {
		return first
	}
	return second
}

func (w *simulator) logEvent(format string, args ...any) {
	w.log = append(w.log, fmt.Sprintf(format, args...))
}

func (w *simulator) reportViolation(format string, args ...any) {
	w.violations = append(w.violations, fmt.Sprintf(format, args...))
}

func (w *simulator) randomSequentialJob() *v1alpha1.SequentialJob {
	sj := &v1alpha1.SequentialJob{ObjectMeta: metav1.ObjectMeta{Name: "sim", Namespace: "ns", UID: "owner", Generation: 1}}
	for i := range 1 + w.rng.IntN(4) {
		sj.Spec.Containers = append(sj.Spec.Containers, w.randomStep(fmt.Sprintf("s%d", i)))
	}
	if w.happensWithChance(30) {
		step := w.randomStep("f0")
		step.Step.Finally = true
		sj.Spec.Containers = append(sj.Spec.Containers, step)
	}
	sj.Spec.OnLostJob = either(w, 30, v1alpha1.LostJobRerun, v1alpha1.LostJobFail)
	sj.Spec.SuspendPolicy = either(w, 50, v1alpha1.SuspendImmediate, v1alpha1.SuspendAfterCurrent)
	if w.happensWithChance(20) {
		sj.Spec.JobMetadata = &v1alpha1.ObjectMetadata{Labels: map[string]string{"kueue.x-k8s.io/queue-name": "q"}}
	}
	if w.happensWithChance(50) {
		sj.Spec.Template = &v1alpha1.PodTemplate{EndWithStep: w.happensWithChance(60)}
		sj.Spec.Template.Spec.RestartPolicy = either(w, 60, corev1.RestartPolicyOnFailure, "")
	}
	if w.happensWithChance(40) {
		sj.Spec.Workspace = &v1alpha1.Workspace{}
		sj.Spec.Workspace.OnLost = either(w, 50, v1alpha1.LostWorkspaceRecreate, "")
	}
	sj.Spec.JobHistoryLimit = either(w, 20, new(w.rng.Int32N(3)), nil)
	if w.happensWithChance(30) {
		sj.Spec.Archive = &v1alpha1.SequenceArchive{ServiceAccountName: "logs", Archive: v1alpha1.Archive{ClaimRef: &v1alpha1.LocalReference{Name: "logs"}}}
	}
	sj.Spec.Parameters = []v1alpha1.Parameter{{Name: simulatedParameter, Value: "0"}}
	sj.Spec.Suspend = w.happensWithChance(10)
	sj.Spec.ActiveDeadlineSeconds = either(w, 15, new(int64(20)), nil)
	return sj
}

func (w *simulator) randomStep(name string) v1alpha1.Step {
	step := v1alpha1.Step{Name: name, Container: corev1.Container{Image: "image"}, Step: &v1alpha1.StepOptions{}}
	step.Step.OnFailure = either(w, 20, v1alpha1.OnFailureContinue, "")
	step.Step.StartDeadlineSeconds = either(w, 20, new(int64(5)), nil)
	if w.happensWithChance(20) {
		step.Step.Retry = &v1alpha1.StepRetry{Retry: v1alpha1.Retry{Limit: new(1 + w.rng.Int32N(3)), Backoff: duration(time.Duration(1+w.rng.Int32N(5)) * time.Second)}}
	}
	step.Step.Outputs = w.happensWithChance(20)
	step.Step.RequireApproval = w.happensWithChance(10)
	if w.happensWithChance(5) {
		step.Step.When = []string{"true", "false", `sequence.status != "Failed"`, `steps.exists(s, steps[s].phase == "Succeeded")`}[w.rng.IntN(4)]
	}
	if w.happensWithChance(3) {
		step.Step.PodTemplate = &k8sruntime.RawExtension{Raw: []byte(`{"spec": {"nodeSelector": {"pool": "gpu"}}}`)}
	}
	return step
}

const simulatedParameter = "DATE"

// approvedContent returns all of a Job of a simulated step that decides what runs, and for which run.
func approvedContent(job *batchv1.Job) string {
	container, run := &job.Spec.Template.Spec.Containers[0], job.Annotations[v1alpha1.AnnotationRun]
	return fmt.Sprintf("run %s: %s %s %q %s", run, container.Name, container.Image, parameterOf(job), job.Spec.Template.Spec.NodeSelector)
}

func parameterOf(job *batchv1.Job) (value string) {
	for _, variable := range job.Spec.Template.Spec.Containers[0].Env {
		if variable.Name == simulatedParameter {
			value = variable.Value
		}
	}
	return value
}

func valueOfRun(run, value string) string { return "run " + run + " has the value " + value }

// approveStep approves the step that waits; sometimes with a value, and sometimes another step, run, content or object.
func (w *simulator) approveStep() {
	if AwaitingJob(w.sj) == nil || w.sj.Status.ObservedGeneration != w.sj.Generation { // the plugin refuses it
		return
	}
	approval, forged := Approval{SequenceApproval: *w.sj.Status.Approval, By: "ada"}, !w.noDisturbances && w.happensWithChance(40)
	changed := w.sj.DeepCopy()
	switch dice := w.rng.IntN(5); {
	case forged && dice == 0:
		approval.Run++
	case forged && dice == 1:
		approval.Step = "another"
	case forged && dice == 2:
		approval.UID = "another"
	case forged && dice == 3:
		approval.Hash = "another"
	case forged:
		approval.By = ""
	case dice == 0:
		approval.Parameters = []v1alpha1.Parameter{{Name: simulatedParameter, Value: strconv.Itoa(w.rng.IntN(1e6))}}
		changed.Status.Parameters = approval.Parameters
	}
	if err := approval.Write(changed); err != nil {
		w.reportViolation("%v", err)
	}
	w.logEvent("user: approve %+v", approval)
	if !forged {
		for _, p := range approval.Parameters { // of this step and of later ones, also if this step is removed
			w.approved[valueOfRun(strconv.Itoa(int(approval.Run)), p.Value)] = true
		}
		w.approved[approvedContent(AwaitingJob(changed))] = true
	}
	changed.Status = w.sj.Status
	w.storeSequentialJob(changed)
}

// runSimulation applies random events, then lets the run finish without disturbances.
func (w *simulator) runSimulation() {
	for range 20 + w.rng.IntN(40) {
		for range 1 + w.rng.IntN(3) {
			w.applyRandomEvent()
		}
		w.reconcile()
		if w.paused != nil && w.happensWithChance(20) {
			w.wakePaused()
		}
	}
	w.noDisturbances = true
	w.sj = w.sj.DeepCopy()
	if w.sj.Spec.Suspend {
		w.sj.Spec.Suspend = false
		w.sj.Generation++
	}
	w.storeSequentialJob(w.sj)
	for range 60 {
		w.now = w.now.Add(3 * time.Second)
		if w.claim != nil && !w.claim.DeletionTimestamp.IsZero() {
			w.claim = nil
		}
		if AwaitingApproval(w.sj) != "" {
			w.approveStep()
		}
		w.advanceJobs()
		versions := len(w.objectVersions)
		w.reconcile()
		if w.sj.Status.CompletionTime != nil && len(w.objectVersions) == versions && !isArchiving(&w.sj.Status) {
			break
		}
	}
	w.checkFinalState()
}

func (w *simulator) applyRandomEvent() {
	w.now = w.now.Add(time.Duration(w.rng.IntN(3000)) * time.Millisecond)
	if w.happensWithChance(60) {
		w.advanceJobs()
	}
	if w.claim != nil && w.happensWithChance(8) {
		w.disturbClaim()
	}
	if w.happensWithChance(4) {
		w.suspendRandomJob()
	}
	if AwaitingApproval(w.sj) != "" && w.happensWithChance(40) {
		w.approveStep()
	}
	switch dice := w.rng.IntN(w.calm * 100); {
	case dice < 6:
		w.deleteRandomJob()
	case dice < 11:
		w.changeSpec("suspend", func(spec *v1alpha1.SequentialJobSpec) { spec.Suspend = !spec.Suspend })
	case dice < 15:
		w.changeSpec("append a step", func(spec *v1alpha1.SequentialJobSpec) {
			if others := len(withoutFinally(spec)); others < 6 {
				spec.Containers = slices.Insert(spec.Containers, others, w.randomStep(fmt.Sprintf("n%d", w.rng.IntN(1e6))))
			}
		})
	case dice < 19:
		w.changeSpec("drop the last step", func(spec *v1alpha1.SequentialJobSpec) {
			if others := len(withoutFinally(spec)); others > 1 {
				spec.Containers = slices.Delete(spec.Containers, others-1, others)
			}
		})
	case dice < 23:
		w.changeSpec("reverse the steps", func(spec *v1alpha1.SequentialJobSpec) { slices.Reverse(withoutFinally(spec)) })
	case dice < 25, dice < 40 && w.hasStuckJob():
		w.changeSpec("another image", func(spec *v1alpha1.SequentialJobSpec) {
			spec.Containers[w.rng.IntN(len(spec.Containers))].Image = "image:" + strconv.Itoa(w.rng.IntN(3))
		})
	case dice < 27:
		w.changeSpec("parameter", func(spec *v1alpha1.SequentialJobSpec) { spec.Parameters[0].Value = strconv.Itoa(w.rng.IntN(1e6)) })
	case dice < 43 && w.sj.Status.CompletionTime != nil:
		w.changeSpec("rerun", func(spec *v1alpha1.SequentialJobSpec) {
			spec.Rerun = &v1alpha1.SequenceRerun{Rerun: v1alpha1.Rerun{ID: strconv.Itoa(w.rng.IntN(1e9))}, From: []string{"Failed", "Start"}[w.rng.IntN(2)]}
			if w.happensWithChance(50) {
				spec.Rerun.Parameters = []v1alpha1.Parameter{{Name: simulatedParameter, Value: strconv.Itoa(w.rng.IntN(1e6))}}
			}
		})
	}
}

func (w *simulator) suspendRandomJob() {
	for _, name := range w.sortedJobNames() {
		if job := w.jobs[name]; !IsTerminal(job) && job.DeletionTimestamp.IsZero() && !isSuspended(job) {
			w.logEvent("another client suspends %s", name)
			w.changeJob(job, func(j *batchv1.Job) { j.Spec.Suspend = new(true) })
			return
		}
	}
}

// disturbClaim deletes the claim, or replaces it with one from a backup.
func (w *simulator) disturbClaim() {
	switch {
	case w.claim.DeletionTimestamp.IsZero() && w.happensWithChance(60):
		w.logEvent("the claim is being deleted")
		w.claim = w.claim.DeepCopy()
		w.claim.DeletionTimestamp = &metav1.Time{Time: w.now}
	case w.happensWithChance(70):
		w.logEvent("the claim is gone")
		w.claim = nil
	default:
		w.uid++
		w.claim = &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
			Name: w.claim.Name, UID: types.UID("claim-" + strconv.Itoa(w.uid)), Labels: w.claim.Labels, OwnerReferences: w.claim.OwnerReferences,
		}}
		w.logEvent("the claim was restored as %s", w.claim.UID)
	}
}

func (w *simulator) changeSpec(what string, change func(*v1alpha1.SequentialJobSpec)) {
	changed := w.sj.DeepCopy()
	change(&changed.Spec)
	changed.Generation++
	w.logEvent("user: %s (generation %d)", what, changed.Generation)
	w.storeSequentialJob(changed)
}

func (w *simulator) storeSequentialJob(sj *v1alpha1.SequentialJob) {
	stored := sj.DeepCopy()
	stored.ResourceVersion = strconv.Itoa(len(w.objectVersions) + 1)
	w.sj = stored
	w.objectVersions = append(w.objectVersions, stored)
}

func (w *simulator) storeJobs() { w.jobVersions = append(w.jobVersions, maps.Clone(w.jobs)) }

func (w *simulator) changeJob(job *batchv1.Job, change func(*batchv1.Job)) {
	changed := job.DeepCopy()
	change(changed)
	w.jobs[job.Name] = changed
	w.storeJobs()
}

func (w *simulator) sortedJobNames() []string { return slices.Sorted(maps.Keys(w.jobs)) }

// advanceJobs simulates the Job controller, the kubelet, the garbage collector and a queue.
func (w *simulator) advanceJobs() {
	for _, name := range w.sortedJobNames() {
		job := w.jobs[name]
		if IsTerminal(job) && job.DeletionTimestamp.IsZero() {
			continue
		}
		switch {
		case !job.DeletionTimestamp.IsZero():
			if w.noDisturbances || w.happensWithChance(50) {
				w.logEvent("removed: %s", name)
				w.endStuckPod(job)
				delete(w.jobs, name)
				w.storeJobs()
			}
		case isSuspended(job):
			w.advanceSuspendedJob(job)
		case job.Status.StartTime == nil:
			w.changeJob(job, func(j *batchv1.Job) {
				started := metav1.NewTime(w.now)
				j.Status.StartTime, j.Status.Active = &started, 1
				j.Status.Conditions = nil
			})
		case w.stuckJobs[job.UID] && !w.noDisturbances && w.happensWithChance(95):
		case w.noDisturbances || w.happensWithChance(40):
			delete(w.stuckJobs, job.UID) // its image exists now
			w.finishJob(job)
		}
	}
}

func (w *simulator) advanceSuspendedJob(job *batchv1.Job) {
	if job.Annotations[v1alpha1.AnnotationSuspended] == "" && (w.noDisturbances || w.happensWithChance(50)) {
		w.changeJob(job, func(j *batchv1.Job) { j.Spec.Suspend = new(false) }) // a queue admits it
		return
	}
	if w.noDisturbances || w.happensWithChance(50) {
		w.changeJob(job, func(j *batchv1.Job) {
			j.Status.Active, j.Status.StartTime = 0, nil
			j.Status.Conditions = []batchv1.JobCondition{{Type: batchv1.JobSuspended, Status: corev1.ConditionTrue}}
		})
	}
}

func (w *simulator) finishJob(job *batchv1.Job) {
	outcome := batchv1.JobComplete
	if w.happensWithChance(20) {
		outcome = batchv1.JobFailed
	}
	if (outcome == batchv1.JobComplete || restartsContainers(job)) && !w.noDisturbances && w.happensWithChance(10) {
		w.disruptedJobs[job.UID], w.interruptedJobs[job.UID] = true, true
	}
	w.logEvent("%s: %s, disrupted: %t", outcome, job.Name, w.disruptedJobs[job.UID])
	w.changeJob(job, func(j *batchv1.Job) {
		j.Status.Active = 0
		j.Status.Conditions = []batchv1.JobCondition{{Type: outcome, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(w.now)}}
		if outcome == batchv1.JobFailed {
			j.Status.Failed, j.Status.Conditions[0].Reason = 1, batchv1.JobReasonBackoffLimitExceeded
		}
	})
	w.updateJobHistory(job.Name)
	if w.hasTTL && (w.noDisturbances || w.happensWithChance(70)) {
		w.expireJob(w.jobs[job.Name])
	}
}

// expireJob deletes an ended Job and its Pod, as a ttlSecondsAfterFinished of 0 does. Perhaps the operator sees their last versions.
func (w *simulator) expireJob(job *batchv1.Job) {
	w.logEvent("expired: %s", job.Name)
	delete(w.jobs, job.Name)
	w.storeJobs()
	if w.noDisturbances || w.happensWithChance(80) {
		pod := w.endedPod(job)
		w.evidence.change(job.UID, func(e *Evidence) { e.ObserveDeletion(&pod, true) })
	}
	if w.noDisturbances || w.happensWithChance(80) {
		w.expiredJobs[job.UID] = job
	}
}

func (w *simulator) updateJobHistory(name string) {
	job := w.jobs[name]
	key := stepKey(job)
	for i, known := range w.jobHistory[key] {
		if known.UID == job.UID {
			w.jobHistory[key][i] = job
		}
	}
}

func stepKey(job *batchv1.Job) string {
	return job.Annotations[v1alpha1.AnnotationRun] + "/" + job.Labels[v1alpha1.LabelStep]
}

func (w *simulator) deleteRandomJob() {
	names := w.sortedJobNames()
	if len(names) == 0 {
		return
	}
	name := names[w.rng.IntN(len(names))]
	w.logEvent("another client deletes %s", name)
	job := w.jobs[name]
	w.endStuckPod(job)
	if !w.stuckJobs[job.UID] && !isArchiveJob(w.sj, job) && !IsTerminal(job) && job.DeletionTimestamp.IsZero() {
		w.podEnds[job.UID] = w.now.Add(time.Duration(w.rng.IntN(60)) * time.Second)
	}
	delete(w.jobs, name)
	w.storeJobs()
}

func (w *simulator) hasStuckJob() bool {
	return slices.ContainsFunc(w.sortedJobNames(), func(name string) bool {
		return w.stuckJobs[w.jobs[name].UID] && w.jobs[name].DeletionTimestamp.IsZero()
	})
}

// endStuckPod ends the Pod of a Job that is deleted. Perhaps its container starts in the last moment, and perhaps nobody sees it.
func (w *simulator) endStuckPod(job *batchv1.Job) {
	if !w.stuckJobs[job.UID] || job.Status.StartTime == nil {
		return
	}
	pod := stuckPod(job)
	if w.happensWithChance(20) {
		w.logEvent("a container of %s starts while it is deleted", job.Name)
		delete(w.stuckJobs, job.UID)
		pod.Status.ContainerStatuses[0].State = corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
	}
	if w.noDisturbances || w.happensWithChance(80) {
		isComplete := w.noDisturbances || w.happensWithChance(90)
		w.evidence.change(job.UID, func(e *Evidence) {
			e.ObserveDeletion(pod, isComplete)
			w.interruptedJobs[job.UID] = w.interruptedJobs[job.UID] || e.hasRunPod()
		})
	}
}

func (w *simulator) checkFinalState() {
	status := &w.sj.Status
	if status.CompletionTime == nil {
		w.reportViolation("the run did not end: %+v", status)
		return
	}
	if slices.Contains(w.sj.Finalizers, v1alpha1.SequentialJobFinalizer) {
		w.reportViolation("a finished SequentialJob carries the finalizer")
	}
	for _, step := range status.Steps {
		if step.Phase == v1alpha1.StepSucceeded && !w.hasCompletedJob(&step) {
			w.reportViolation("step %s is recorded as succeeded; no Job or container of it completed", step.Name)
		}
	}
	w.checkArchive()
	versions, createdJobs := len(w.objectVersions), w.created
	w.observedVersion, w.observedJobsVersion = len(w.objectVersions)-1, len(w.jobVersions)-1
	w.reconcile()
	if len(w.objectVersions) != versions || w.created != createdJobs {
		w.reportViolation("a reconciliation of a finished run changed something")
	}
}

// checkArchive checks that the logs of the last run are archived as far as it has Jobs.
func (w *simulator) checkArchive() {
	archive := w.sj.Status.Archive
	hasCreatedJob := func(step v1alpha1.StepStatus) bool { return step.Run == w.sj.Status.Run && step.JobUID != "" }
	switch {
	case w.sj.Spec.Archive == nil:
		if archive != nil {
			w.reportViolation("logs are archived without spec.archive")
		}
	case slices.ContainsFunc(w.sj.Status.Steps, hasCreatedJob) && (archive == nil || archive.Run != w.sj.Status.Run || archive.CompletionTime == nil):
		w.reportViolation("the logs of the last run are not archived: %+v", archive)
	}
}

func (w *simulator) hasCompletedJob(step *v1alpha1.StepStatus) bool {
	key := fmt.Sprintf("%d/%s", step.Run, step.Name)
	return slices.ContainsFunc(w.jobHistory[key], func(job *batchv1.Job) bool {
		outcome := decision.FindEndCondition(job)
		return outcome != nil && outcome.Type == batchv1.JobComplete && !w.disruptedJobs[job.UID] || w.leftoverJobs[job.UID]
	})
}

// The simulation makes observations of all kinds, with the answers to questions.
func TestNoStageChangesWhatAnEarlierOneDecided(t *testing.T) {
	t.Parallel()
	stages := cmp.Exporter(func(reflect.Type) bool { return true })
	for seed := range uint64(20) {
		w := newSimulator(seed)
		for range 20 {
			w.applyRandomEvent()
			in := w.observe()
			stored := in.SequentialJob.DeepCopy()
			d := w.decide(&in)
			f := newFacts(in)
			r := newRun(f)
			p := advance(f, &r)
			a := archiveLogs(f, &p.status)
			report(f, &p, &a)
			in.SequentialJob = stored.DeepCopy()
			fresh := newFacts(in)
			freshRun := newRun(fresh)
			freshProgress := advance(fresh, &freshRun)
			in.SequentialJob = stored
			for stage, pair := range map[string][2]any{
				"facts": {newFacts(in), f}, "run": {newRun(fresh), r}, "progress": {freshProgress, p}, "archive": {archiveLogs(fresh, &freshProgress.status), a},
			} {
				if reflect.DeepEqual(pair[0], pair[1]) {
					continue // most stages, in a hundredth of the time
				}
				diff := cmp.Diff(pair[0], pair[1], stages)
				require.True(t, diff == "", "seed %d: a later stage changes %s (-before, +after):\n%s", seed, stage, diff)
			}
			_ = w.carryOutDecision(in, d) // a crash or a conflict ends the reconciliation
		}
	}
}

// For any stored object, such as one with a manually edited status, Decide does not panic, does not
// repeat a question that is answered, and does not make two steps active.
func FuzzDecide(f *testing.F) {
	sj := sequence("build", "test").Finally("clean").Obj()
	started := sj.DeepCopy()
	decision := Decide(Observation{SequentialJob: started, Now: time.Unix(0, 0), Answers: Answers{DryRun: &DryRunResult{}}})
	started.Status = decision.Status
	for _, seed := range []*v1alpha1.SequentialJob{sj, started} {
		object, err := json.Marshal(seed)
		require.NoError(f, err)
		job, err := json.Marshal(decision.CreateJob)
		require.NoError(f, err)
		f.Add(object, job, int64(3))
	}
	f.Fuzz(func(t *testing.T, object, job []byte, seconds int64) {
		sj, owned := &v1alpha1.SequentialJob{}, &batchv1.Job{}
		if json.Unmarshal(object, sj) != nil || json.Unmarshal(job, owned) != nil {
			return
		}
		in := Observation{SequentialJob: sj, Jobs: []*batchv1.Job{owned}, Now: time.Unix(seconds, 0)}
		in.Answers = Answers{JobsByName: map[string]*batchv1.Job{}, PodsByJob: nil, HasAllJobs: true, DryRun: &DryRunResult{}}
		decision := Decide(in)
		require.True(t, decision.Question == nil || decision.Question.DryRun == nil, "it asks an answered question")
		countActive := func(steps []v1alpha1.StepStatus) (count int) {
			for _, step := range steps {
				if isActive(step.Phase) {
					count++
				}
			}
			return count
		}
		active, before := countActive(decision.Status.Steps), countActive(sj.Status.Steps)
		require.True(t, active <= max(1, before), "%d steps are active, %d were", active, before)
	})
}
