package sequence

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/testbuilder"
)

// The property test plays a whole cluster against the core, at random: Jobs start, end,
// fail and are deleted by strangers; the operator reads stale caches, meets conflicts
// and quotas, and crashes between any two of its requests; the user suspends, edits and
// reruns. Whatever happens:
//
//   - a Job is made only when no other Job of the sequence may be running,
//   - only after every step before it has its outcome stored,
//   - never again for a step that ran, unless the spec says so,
//   - no step is skipped on the way to Completed,
//   - and once the world calms down the run ends, and stays as it is.
//
// SEQUENCE_RUNS sets how many clusters are played (make test plays 100,000) and
// SEQUENCE_SEED the first seed, to play one again.
func TestWhateverHappensStepsRunOneAtATimeOnceAndInOrder(t *testing.T) {
	t.Parallel()
	runs, first := testbuilder.Number(t, "SEQUENCE_RUNS", 5_000), testbuilder.Number(t, "SEQUENCE_SEED", 1)
	var next atomic.Int64
	next.Store(int64(first) - 1)
	var ambiguous, created, crashes atomic.Int64
	var group sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		group.Go(func() {
			for seed := next.Add(1); seed < int64(first+runs) && !t.Failed(); seed = next.Add(1) {
				w := newSimulator(uint64(seed))
				w.play()
				for _, violation := range w.violations {
					t.Errorf("seed %d: %s\n%s", seed, violation, w.history())
				}
				ambiguous.Add(int64(w.ambiguous))
				created.Add(int64(w.created))
				crashes.Add(int64(w.crashes))
			}
		})
	}
	group.Wait()
	t.Logf("%d runs, %d Jobs, %d crashes; %d Jobs made again because the operator crashed before recording one that a stranger then deleted",
		runs, created.Load(), crashes.Load(), ambiguous.Load())
}

// world is a cluster with one SequentialJob.
type simulator struct {
	rng  *rand.Rand
	now  time.Time
	sj   *v1alpha1.SequentialJob
	jobs map[string]*batchv1.Job

	// What a cache may still show.
	sjVersions  []*v1alpha1.SequentialJob
	jobVersions []map[string]*batchv1.Job
	sjSeen      int
	jobsSeen    int

	// What the operator's process remembers.
	memory map[string]*batchv1.Job

	calm       bool
	uid        int
	ran        map[string][]*batchv1.Job // by run and step
	ambiguousS map[types.UID]bool        // made, never recorded, operator crashed since
	excused    map[types.UID]bool        // ended by suspension
	log        []string
	violations []string
	ambiguous  int
	created    int
	crashes    int
}

func newSimulator(seed uint64) *simulator {
	w := &simulator{
		rng:        rand.New(rand.NewPCG(seed, 0)),
		now:        time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC),
		jobs:       map[string]*batchv1.Job{},
		memory:     map[string]*batchv1.Job{},
		ran:        map[string][]*batchv1.Job{},
		ambiguousS: map[types.UID]bool{},
		excused:    map[types.UID]bool{},
	}
	w.sj = w.randomSequentialJob()
	w.storeSJ(w.sj)
	w.storeJobs()
	return w
}

func (w *simulator) chance(percent int) bool { return w.rng.IntN(100) < percent }

func (w *simulator) note(format string, args ...any) {
	w.log = append(w.log, fmt.Sprintf(format, args...))
}

func (w *simulator) violate(format string, args ...any) {
	w.violations = append(w.violations, fmt.Sprintf(format, args...))
}

func (w *simulator) history() string {
	out := ""
	for _, line := range w.log {
		out += line + "\n"
	}
	return out
}

func (w *simulator) randomSequentialJob() *v1alpha1.SequentialJob {
	sj := &v1alpha1.SequentialJob{ObjectMeta: metav1.ObjectMeta{Name: "sim", Namespace: "ns", UID: "owner", Generation: 1}}
	for i := range 1 + w.rng.IntN(4) {
		sj.Spec.Containers = append(sj.Spec.Containers, w.randomStep(fmt.Sprintf("s%d", i)))
	}
	if w.chance(30) {
		sj.Spec.Finally = []v1alpha1.Step{w.randomStep("f0")}
	}
	sj.Spec.OnLostJob = v1alpha1.LostJobFail
	if w.chance(30) {
		sj.Spec.OnLostJob = v1alpha1.LostJobRerun
	}
	sj.Spec.SuspendPolicy = v1alpha1.SuspendAfterCurrent
	if w.chance(50) {
		sj.Spec.SuspendPolicy = v1alpha1.SuspendImmediate
	}
	if w.chance(20) {
		sj.Spec.JobMetadata = &v1alpha1.JobMetadata{Labels: map[string]string{"kueue.x-k8s.io/queue-name": "q"}}
	}
	sj.Spec.Suspend = w.chance(10)
	if w.chance(15) {
		sj.Spec.ActiveDeadlineSeconds = new(int64(20))
	}
	return sj
}

func (w *simulator) randomStep(name string) v1alpha1.Step {
	step := v1alpha1.Step{Name: name, Container: corev1.Container{Image: "image"}, Step: &v1alpha1.StepOptions{}}
	if w.chance(20) {
		step.Step.OnFailure = v1alpha1.OnFailureContinue
	}
	if w.chance(20) {
		step.Step.StartDeadlineSeconds = new(int64(5))
	}
	step.Step.Outputs = w.chance(20)
	return step
}

// play runs the world wild for a while, then calm until nothing moves.
func (w *simulator) play() {
	for range 20 + w.rng.IntN(40) {
		w.happen()
		w.reconcile()
	}
	w.calm = true
	w.sj = w.sj.DeepCopy()
	if w.sj.Spec.Suspend {
		w.sj.Spec.Suspend = false
		w.sj.Generation++
	}
	w.storeSJ(w.sj)
	for range 60 {
		w.now = w.now.Add(3 * time.Second)
		w.progressJobs()
		versions := len(w.sjVersions)
		w.reconcile()
		if w.sj.Status.CompletionTime != nil && len(w.sjVersions) == versions {
			break
		}
	}
	w.assertOver()
}

// happen lets the world do something.
func (w *simulator) happen() {
	w.now = w.now.Add(time.Duration(w.rng.IntN(3000)) * time.Millisecond)
	if w.chance(60) {
		w.progressJobs()
	}
	switch dice := w.rng.IntN(100); {
	case dice < 6:
		w.deleteSomeJob()
	case dice < 11:
		w.changeSpec("suspend", func(spec *v1alpha1.SequentialJobSpec) { spec.Suspend = !spec.Suspend })
	case dice < 15:
		w.changeSpec("append a step", func(spec *v1alpha1.SequentialJobSpec) {
			if len(spec.Containers) < 6 {
				spec.Containers = append(spec.Containers, w.randomStep(fmt.Sprintf("n%d", w.rng.IntN(1e6))))
			}
		})
	case dice < 19:
		w.changeSpec("drop the last step", func(spec *v1alpha1.SequentialJobSpec) {
			if len(spec.Containers) > 1 {
				spec.Containers = spec.Containers[:len(spec.Containers)-1]
			}
		})
	case dice < 23:
		w.changeSpec("reverse the steps", func(spec *v1alpha1.SequentialJobSpec) { slices.Reverse(spec.Containers) })
	case dice < 40 && w.sj.Status.CompletionTime != nil:
		w.changeSpec("rerun", func(spec *v1alpha1.SequentialJobSpec) {
			spec.Rerun = &v1alpha1.Rerun{ID: strconv.Itoa(w.rng.IntN(1e9)), From: []string{"Failed", "Start"}[w.rng.IntN(2)]}
		})
	}
}

func (w *simulator) changeSpec(what string, change func(*v1alpha1.SequentialJobSpec)) {
	changed := w.sj.DeepCopy()
	change(&changed.Spec)
	changed.Generation++
	w.note("user: %s (generation %d)", what, changed.Generation)
	w.storeSJ(changed)
}

func (w *simulator) storeSJ(sj *v1alpha1.SequentialJob) {
	stored := sj.DeepCopy()
	stored.ResourceVersion = strconv.Itoa(len(w.sjVersions) + 1)
	w.sj = stored
	w.sjVersions = append(w.sjVersions, stored)
}

func (w *simulator) storeJobs() {
	w.jobVersions = append(w.jobVersions, maps.Clone(w.jobs))
}

// setJob stores a changed copy of a Job.
func (w *simulator) setJob(job *batchv1.Job, change func(*batchv1.Job)) {
	changed := job.DeepCopy()
	change(changed)
	w.jobs[job.Name] = changed
	w.storeJobs()
}

func (w *simulator) jobNames() []string {
	names := make([]string, 0, len(w.jobs))
	for name := range w.jobs {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// progressJobs plays the Job controller, the kubelet, the garbage collector and a queue.
func (w *simulator) progressJobs() {
	for _, name := range w.jobNames() {
		job := w.jobs[name]
		if IsTerminal(job) {
			continue
		}
		switch {
		case !job.DeletionTimestamp.IsZero():
			if w.calm || w.chance(50) {
				w.note("gone: %s", name)
				delete(w.jobs, name)
				w.storeJobs()
			}
		case isSuspended(job):
			w.progressSuspended(job)
		case job.Status.StartTime == nil:
			w.setJob(job, func(j *batchv1.Job) {
				started := metav1.NewTime(w.now)
				j.Status.StartTime, j.Status.Active = &started, 1
				j.Status.Conditions = nil
			})
		case w.calm || w.chance(40):
			w.endJob(job)
		}
	}
}

func (w *simulator) progressSuspended(job *batchv1.Job) {
	if job.Annotations[v1alpha1.AnnotationSuspended] == "" && (w.calm || w.chance(50)) {
		w.setJob(job, func(j *batchv1.Job) { j.Spec.Suspend = new(false) }) // a queue admits it
		return
	}
	if w.calm || w.chance(50) {
		w.setJob(job, func(j *batchv1.Job) {
			j.Status.Active, j.Status.StartTime = 0, nil
			j.Status.Conditions = []batchv1.JobCondition{{Type: batchv1.JobSuspended, Status: corev1.ConditionTrue}}
		})
	}
}

func (w *simulator) endJob(job *batchv1.Job) {
	outcome := batchv1.JobComplete
	if w.chance(20) {
		outcome = batchv1.JobFailed
	}
	w.note("%s: %s", outcome, job.Name)
	w.setJob(job, func(j *batchv1.Job) {
		j.Status.Active = 0
		j.Status.Conditions = []batchv1.JobCondition{{Type: outcome, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(w.now)}}
		if outcome == batchv1.JobFailed {
			j.Status.Failed = 1
		}
	})
	w.remember(job.Name)
}

// remember keeps the history of a step's Jobs up to date with the Job's last state.
func (w *simulator) remember(name string) {
	job := w.jobs[name]
	key := stepKey(job)
	for i, known := range w.ran[key] {
		if known.UID == job.UID {
			w.ran[key][i] = job
		}
	}
}

func stepKey(job *batchv1.Job) string {
	return job.Annotations[v1alpha1.AnnotationRun] + "/" + job.Labels[v1alpha1.LabelStep]
}

func (w *simulator) deleteSomeJob() {
	names := w.jobNames()
	if len(names) == 0 {
		return
	}
	name := names[w.rng.IntN(len(names))]
	w.note("a stranger deletes %s", name)
	delete(w.jobs, name)
	w.storeJobs()
}

// assertOver checks what must hold when everything has come to rest.
func (w *simulator) assertOver() {
	status := &w.sj.Status
	if status.CompletionTime == nil {
		w.violate("the run never ended: %+v", status)
		return
	}
	if slices.Contains(w.sj.Finalizers, v1alpha1.SequentialJobFinalizer) {
		w.violate("a finished SequentialJob carries the finalizer")
	}
	for _, step := range status.Steps {
		if step.Phase == v1alpha1.StepSucceeded && !w.completedOnce(&step) {
			w.violate("step %s is recorded as succeeded; no Job of it completed", step.Name)
		}
	}
	versions, made := len(w.sjVersions), w.created
	w.sjSeen, w.jobsSeen = len(w.sjVersions)-1, len(w.jobVersions)-1
	w.reconcile()
	if len(w.sjVersions) != versions || w.created != made {
		w.violate("a pass over a finished run changed something")
	}
}

func (w *simulator) completedOnce(step *v1alpha1.StepStatus) bool {
	key := fmt.Sprintf("%d/%s", step.Run, step.Name)
	return slices.ContainsFunc(w.ran[key], func(job *batchv1.Job) bool {
		outcome := terminalCondition(job)
		return outcome != nil && outcome.Type == batchv1.JobComplete
	})
}
