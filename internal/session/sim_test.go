package session

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
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

// The property test plays a cluster against the core, at random: runners start, end, fail,
// hang and ignore that they are to end; Pods are evicted; Jobs are deleted by somebody;
// images cannot be had; the API server refuses; the operator reads stale caches, meets
// conflicts, and crashes between any two of its requests; the user stops, starts and asks
// for runs. Whatever happens:
//
//   - there are never two Jobs that run,
//   - all of them together do not run longer than the session's timeout, but for a second each,
//   - no attempt is made twice,
//   - how a Job really ended is what is recorded, and a record never changes,
//   - and once the world calms down the session comes to rest, as its user wants it, and
//     nothing of it runs.
//
// SESSION_RUNS sets how many clusters are played, and SESSION_SEED the first seed, to play
// one again.
func TestWhateverHappensASessionKeepsItsPromises(t *testing.T) {
	t.Parallel()
	runs, first := testbuilder.Number(t, "SESSION_RUNS", 2000), testbuilder.Number(t, "SESSION_SEED", 1)
	var next, jobs, crashes, conflicts, stops, over atomic.Int64
	next.Store(int64(first) - 1)
	var group sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		group.Go(func() {
			for seed := next.Add(1); seed < int64(first+runs) && !t.Failed(); seed = next.Add(1) {
				w := newWorld(uint64(seed))
				w.play()
				for _, violation := range w.violations {
					t.Errorf("seed %d: %s\n%s", seed, violation, strings.Join(w.log, "\n"))
				}
				jobs.Add(int64(len(w.made)))
				crashes.Add(w.crashes)
				conflicts.Add(w.conflicts)
				stops.Add(w.stops)
				over.Add(w.deadlines)
			}
		})
	}
	group.Wait()
	t.Logf("%d runs: %d Jobs, %d crashes, %d conflicts, %d stops, %d deadlines",
		runs, jobs.Load(), crashes.Load(), conflicts.Load(), stops.Load(), over.Load())
	if jobs.Load() == 0 || crashes.Load() == 0 || conflicts.Load() == 0 || stops.Load() == 0 || over.Load() == 0 {
		t.Error("the world was too calm to tell anything")
	}
}

// world is a cluster with one session.
type world struct {
	rng     *rand.Rand
	now     time.Time
	session *v1alpha1.AgenticSession
	version int
	runner  *v1alpha1.SessionRunner
	jobs    []*simJob

	// seen is what caches that lag still show.
	seen struct {
		session *v1alpha1.AgenticSession
		version int
		jobs    []*batchv1.Job
		pods    []corev1.Pod
	}
	// created is what the operator's process remembers.
	created map[string]types.UID

	// made are the Jobs that were ever made, by name; meddled those that somebody deleted.
	made    map[string]int
	meddled map[string]bool
	// truth is how Jobs really ended, by name.
	truth map[string]string
	// ran is how long all Jobs together ran until they had to end.
	ran     time.Duration
	records map[string]v1alpha1.SessionRun
	uids    int

	calm                                 bool
	log                                  []string
	violations                           []string
	crashes, conflicts, stops, deadlines int64
}

// simJob is a Job with the Pod in it.
type simJob struct {
	job *batchv1.Job
	pod *corev1.Pod
	// ends is when the runner ends by itself, and with what.
	ends time.Time
	code int32
	// image cannot be had.
	stuck bool
	// told is when the Pod was told to end, and lasts how long it then takes.
	told  time.Time
	lasts time.Duration
	why   string
}

func (j *simJob) alive() bool { return ended(j.job) == nil }

const simTimeout = 600

func newWorld(seed uint64) *world {
	w := &world{
		rng: rand.New(rand.NewPCG(seed, 0)), now: noon, created: map[string]types.UID{},
		made: map[string]int{}, meddled: map[string]bool{}, truth: map[string]string{}, records: map[string]v1alpha1.SessionRun{},
	}
	w.runner = runner()
	w.runner.Spec.ActivityLease = true
	w.session = &v1alpha1.AgenticSession{ObjectMeta: metav1.ObjectMeta{Name: "sim", Namespace: "ns", UID: "session", Generation: 1}}
	spec := &w.session.Spec
	spec.Prompt, spec.RunRequest, spec.OperatingMode = "x", 1, v1alpha1.ModeRunning
	spec.Timeout, spec.StartupTimeout = new(int32(simTimeout)), new(int32(120))
	spec.Interactive = w.chance(30)
	if w.chance(50) {
		spec.Retry = &v1alpha1.SessionRetry{Limit: int32(w.rng.IntN(4)), OnDisruption: w.chance(50)}
	}
	if w.chance(30) {
		spec.InactivityTimeout = new(int32(60))
	}
	w.remember()
	return w
}

func (w *world) chance(percent int) bool { return w.rng.IntN(100) < percent }

func (w *world) note(format string, args ...any) {
	w.log = append(w.log, w.now.Format("15:04:05 ")+fmt.Sprintf(format, args...))
}

func (w *world) violate(format string, args ...any) {
	w.note("VIOLATION "+format, args...)
	w.violations = append(w.violations, fmt.Sprintf(format, args...))
}

// play runs the world wild for a while, then calm until nothing moves.
func (w *world) play() {
	for range 60 + w.rng.IntN(100) {
		w.happen()
		w.pass()
		w.check()
		if len(w.violations) > 0 {
			return
		}
	}
	w.calm = true
	if w.runner == nil {
		w.runner = runner()
		w.runner.Spec.ActivityLease = true
	}
	quiet := 0
	for range 500 {
		w.now = w.now.Add(5 * time.Second)
		w.work()
		w.remember()
		wrote := w.pass()
		w.check()
		if wrote || !w.atRest() {
			quiet = 0
			continue
		}
		quiet++
		if quiet > 3 {
			return
		}
	}
	w.violate("it never comes to rest: %s, %+v", w.session.Status.Phase, w.session.Status)
}

// atRest tells whether all is as it should be in the end.
func (w *world) atRest() bool {
	for _, j := range w.jobs {
		if j.alive() {
			return false
		}
	}
	switch w.session.Status.Phase {
	case v1alpha1.SessionStopped:
		return w.session.Spec.OperatingMode == v1alpha1.ModeStopped || w.session.Status.StoppedReason == v1alpha1.StopInactivity
	case v1alpha1.SessionCompleted, v1alpha1.SessionFailed:
		return w.session.Status.Run == w.session.Spec.RunRequest
	default:
		return false
	}
}

// happen lets the world do something.
func (w *world) happen() {
	w.now = w.now.Add(time.Duration(w.rng.IntN(8000)) * time.Millisecond)
	switch dice := w.rng.IntN(100); {
	case dice < 6:
		w.change("mode", func(spec *v1alpha1.AgenticSessionSpec) {
			if spec.OperatingMode == v1alpha1.ModeStopped {
				spec.OperatingMode = v1alpha1.ModeRunning
			} else {
				spec.OperatingMode = v1alpha1.ModeStopped
			}
		})
	case dice < 12:
		w.change("run again", again)
	case dice < 14:
		w.change("inputs", func(spec *v1alpha1.AgenticSessionSpec) { spec.DisplayName += "x" })
	case dice < 16:
		if w.runner != nil {
			w.runner = nil
		} else {
			w.runner = runner()
			w.runner.Spec.ActivityLease = true
		}
		w.note("SessionRunner: %t", w.runner != nil)
	case dice < 20 && len(w.jobs) > 0:
		w.disturb(w.jobs[w.rng.IntN(len(w.jobs))])
	}
	w.work()
	if w.chance(75) {
		w.remember()
	}
}

func (w *world) change(what string, change func(*v1alpha1.AgenticSessionSpec)) {
	w.session = w.session.DeepCopy()
	change(&w.session.Spec)
	w.session.Generation++
	w.version++
	w.note("user: %s: %s, run %d", what, w.session.Spec.OperatingMode, w.session.Spec.RunRequest)
}

// disturb does something to a Job that nobody asked for.
func (w *world) disturb(j *simJob) {
	if !j.alive() || j.job.DeletionTimestamp != nil {
		return
	}
	switch w.rng.IntN(2) {
	case 0:
		w.note("somebody deletes %s", j.job.Name)
		w.meddled[j.job.Name] = true
		w.delete(j)
	case 1:
		if j.told.IsZero() && j.pod.Status.Phase != corev1.PodSucceeded {
			w.note("%s is evicted", j.job.Name)
			j.pod.Status.Conditions = append(j.pod.Status.Conditions, corev1.PodCondition{
				Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: "EvictionByEvictionAPI",
			})
			w.tell(j, v1alpha1.ReasonEvicted)
		}
	}
}

// tell has a Pod end, as long as it takes.
func (w *world) tell(j *simJob, why string) {
	if !j.told.IsZero() {
		return
	}
	j.told, j.why, j.lasts = w.now, why, time.Duration(w.rng.IntN(25))*time.Second
	w.ran += w.now.Sub(j.job.Status.StartTime.Time)
}

// delete does what the API server does with a Job that is deleted in the foreground.
func (w *world) delete(j *simJob) {
	if j.job.DeletionTimestamp != nil {
		return
	}
	j.job.DeletionTimestamp = new(metav1.NewTime(w.now.Truncate(time.Second)))
	j.job.Generation++
	if j.alive() {
		w.tell(j, "deleted")
	}
}

// work lets the Job controller and the kubelet go on.
func (w *world) work() {
	var left []*simJob
	for _, j := range w.jobs {
		w.workOne(j)
		if j.job.DeletionTimestamp != nil && (!j.alive() || j.why == "gone") {
			w.note("%s is gone", j.job.Name)
			continue
		}
		left = append(left, j)
	}
	w.jobs = left
}

func (w *world) workOne(j *simJob) {
	if !j.alive() {
		return
	}
	runner := &j.pod.Status.ContainerStatuses[0]
	begun := j.job.Status.StartTime.Time
	if deadline := j.job.Spec.ActiveDeadlineSeconds; deadline != nil && j.told.IsZero() {
		if over := begun.Add(time.Duration(*deadline) * time.Second); !over.After(w.now) && !(j.running() && j.ends.Before(over)) {
			late := w.now
			w.now = over // the Job controller is on time
			w.tell(j, v1alpha1.ReasonDeadlineExceeded)
			w.now = late
			w.deadlines++
		}
	}
	switch {
	case !j.told.IsZero() && !j.told.Add(j.lasts).After(w.now):
		if j.job.DeletionTimestamp != nil {
			j.why = "gone"
			return
		}
		runner.State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 143}}
		w.end(j, batchv1.JobFailed, j.why)
	case !j.told.IsZero():
	case runner.State.Running != nil && !j.ends.After(w.now):
		runner.State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: j.code, Message: `{"costUSD": 0.01}`}}
		w.ran += j.ends.Sub(begun)
		if j.code == 0 {
			j.pod.Status.Phase = corev1.PodSucceeded
			w.end(j, batchv1.JobComplete, "")
			return
		}
		w.end(j, batchv1.JobFailed, v1alpha1.ReasonExitedWithError)
	case runner.State.Running == nil && j.stuck && !w.calm:
		runner.State.Waiting = &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff"}
	case runner.State.Running == nil && (w.calm || w.chance(60)):
		runner.State = corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(w.now.Truncate(time.Second))}}
		runner.Ready = true
		j.ends = w.now.Add(time.Duration(w.rng.IntN(90)) * time.Second)
		if w.chance(10) {
			j.ends = w.now.Add(24 * time.Hour)
		}
	}
}

func (j *simJob) running() bool { return j.pod.Status.ContainerStatuses[0].State.Running != nil }

// end ends a Job for good.
func (w *world) end(j *simJob, kind batchv1.JobConditionType, why string) {
	reason := batchv1.JobReasonBackoffLimitExceeded
	if why == v1alpha1.ReasonDeadlineExceeded {
		reason = why
	}
	at := metav1.NewTime(w.now.Truncate(time.Second))
	j.job.Status.Conditions = append(j.job.Status.Conditions, batchv1.JobCondition{Type: kind, Status: corev1.ConditionTrue, Reason: reason, LastTransitionTime: at})
	j.job.Generation++
	w.truth[j.job.Name] = string(v1alpha1.RunCompleted)
	if kind == batchv1.JobFailed {
		w.truth[j.job.Name] = why
	}
	w.note("%s ends: %s", j.job.Name, w.truth[j.job.Name])
}

// remember is what the caches show from now on.
func (w *world) remember() {
	w.seen.session, w.seen.version = w.session.DeepCopy(), w.version
	w.seen.jobs, w.seen.pods = w.live()
}

func (w *world) live() ([]*batchv1.Job, []corev1.Pod) {
	var jobs []*batchv1.Job
	var pods []corev1.Pod
	for _, j := range w.jobs {
		jobs = append(jobs, j.job.DeepCopy())
		pods = append(pods, *j.pod.DeepCopy())
	}
	return jobs, pods
}

// check looks at what must hold at any time.
func (w *world) check() {
	alive := 0
	for _, j := range w.jobs {
		if j.alive() {
			alive++
		}
	}
	if alive > 1 {
		w.violate("%d Jobs run", alive)
	}
	// The API server's times have no parts of a second.
	if w.ran > simTimeout*time.Second+time.Duration(len(w.made))*time.Second {
		w.violate("all Jobs together ran %s", w.ran)
	}
	for _, run := range w.session.Status.Runs {
		key := fmt.Sprintf("%d/%d/%s", run.Run, run.Attempt, run.Job)
		if was, known := w.records[key]; known {
			if was.Outcome != run.Outcome || was.Reason != run.Reason {
				w.violate("%s was %s (%s), and is %s (%s) now", key, was.Outcome, was.Reason, run.Outcome, run.Reason)
			}
			continue
		}
		w.records[key] = run
		w.checkRecord(&run)
	}
	if s := &w.session.Status; s.Phase == v1alpha1.SessionRunning && s.StartedTime == nil {
		w.violate("it runs, and has never started")
	}
}

// checkRecord compares what was recorded with what happened.
func (w *world) checkRecord(run *v1alpha1.SessionRun) {
	truth, ended := w.truth[run.Job]
	switch {
	case run.Outcome == v1alpha1.RunStopped:
	case ended && run.Outcome == v1alpha1.RunCompleted && truth != string(v1alpha1.RunCompleted),
		ended && run.Outcome != v1alpha1.RunCompleted && run.Reason != truth && run.Reason != v1alpha1.ReasonPodLost && run.Reason != v1alpha1.ReasonImagePull:
		w.violate("%s ended as %s, and is recorded as %s (%s)", run.Job, truth, run.Outcome, run.Reason)
	case !ended && run.Outcome == v1alpha1.RunCompleted:
		w.violate("%s has not ended, and is recorded as Completed", run.Job)
	case run.Reason == v1alpha1.ReasonPodLost && !w.meddled[run.Job]:
		w.violate("%s is recorded as lost, and nobody took it", run.Job)
	}
}
