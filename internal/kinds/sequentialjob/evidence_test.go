package sequentialjob

import (
	"fmt"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/test/assert"
	"github.com/yardmaster/yardmaster/test/require"
	"github.com/yardmaster/yardmaster/test/testbuilder"
)

// A stop is how a Pod is requested to stop, an end is when its program, which handles SIGTERM and exits with 0, ends, and a clock
// is how far that of the node is from that of the API server.
type (
	stop  string
	end   time.Duration
	view  string
	clock time.Duration
)

const (
	notStopped stop = "runs undisturbed"
	evicted    stop = "is evicted"
	deleted    stop = "is deleted"
	preempted  stop = "is preempted"
	nodeLost   stop = "is deleted because its node does not report, which it does again later"

	longBefore = end(-time.Minute)
	justBefore = end(-time.Millisecond)
	justAfter  = end(time.Millisecond)
	longAfter  = end(20 * time.Second)

	seesAll     view = "each version of the Pod"
	seesLast    view = "only the last version of the Pod"
	seesRunning view = "only a running Pod"
	seesNothing view = "no Pod"

	rightClock = clock(0)
	lateClock  = clock(-2 * time.Minute)
)

// outcomeOf is the rule: success is what was seen to have ended by itself. If nothing between the request to stop and the end
// was seen, or only what a lost node had reported before, their times decide, in seconds, unless the clock is known to be late.
func outcomeOf(s stop, e end, v view, c clock) string {
	wasSeen := e < 0 && v == seesAll && s != nodeLost
	switch {
	case v == seesRunning || v == seesNothing:
		return "unknown"
	case s == notStopped || wasSeen || e == longBefore && c == rightClock:
		return "succeeded"
	}
	return "interrupted"
}

// versionsOf returns the versions of a Pod whose stop was requested at noon.
func versionsOf(s stop, e end, c clock) []corev1.Pod {
	noon := metav1.NewTime(time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC))
	pod := testbuilder.Pod("build").Running().Obj()
	pod.UID, pod.CreationTimestamp = "pod", metav1.NewTime(noon.Add(-2*time.Minute))
	tell := func(pod corev1.Pod) corev1.Pod {
		requested := *pod.DeepCopy()
		if reasons := map[stop]string{evicted: "EvictionByEvictionAPI", preempted: "PreemptionByScheduler", nodeLost: "DeletionByTaintManager"}; reasons[s] != "" {
			requested.Status.Conditions = []corev1.PodCondition{{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: reasons[s], LastTransitionTime: noon}}
		}
		if s != preempted {
			requested.DeletionTimestamp, requested.DeletionGracePeriodSeconds = &metav1.Time{Time: noon.Add(30 * time.Second)}, new(int64(30))
		}
		return requested
	}
	finish := func(pod corev1.Pod) corev1.Pod {
		ended := *pod.DeepCopy()
		ended.Status.Phase = corev1.PodSucceeded
		// The API has whole seconds.
		at := metav1.NewTime(noon.Add(500 * time.Millisecond).Add(time.Duration(e) + time.Duration(c)).Truncate(time.Second))
		ended.Status.ContainerStatuses[0].State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
			StartedAt: metav1.NewTime(pod.CreationTimestamp.Add(time.Second + time.Duration(c))), FinishedAt: at,
		}}
		return ended
	}
	switch {
	case s == notStopped:
		return []corev1.Pod{pod, finish(pod)}
	case e < 0 && s != nodeLost:
		return []corev1.Pod{pod, finish(pod), tell(finish(pod))}
	}
	return []corev1.Pod{pod, tell(pod), finish(tell(pod))}
}

func TestACompleteJobProvesOnlyWhatItsPodsShow(t *testing.T) {
	for _, s := range []stop{notStopped, evicted, deleted, preempted, nodeLost} {
		for _, e := range []end{longBefore, justBefore, justAfter, longAfter} {
			for _, v := range []view{seesAll, seesLast, seesRunning, seesNothing} {
				for _, c := range []clock{rightClock, lateClock} {
					for _, onLost := range []v1alpha1.LostJobPolicy{v1alpha1.LostJobFail, v1alpha1.LostJobRerun} {
						want := outcomeOf(s, e, v, c)
						title := fmt.Sprintf("a Pod that %s and ends %v after that, on a node whose clock is off by %v, of which the operator sees %s, with onLostJob %s: %s",
							s, time.Duration(e), time.Duration(c), v, onLost, want)
						t.Run(title, func(t *testing.T) { checkProof(t, versionsOf(s, e, c), v, onLost, want) })
					}
				}
			}
		}
	}
}

// observe lets the operator see some versions of a Pod, and nothing else of the Job.
func observe(s *testEnv, job types.UID, v view, versions []corev1.Pod) {
	var evidence Evidence
	for i := range versions {
		if v == seesAll || v == seesLast && i == len(versions)-1 || v == seesRunning && i == 0 {
			evidence.Observe(&versions[i])
		}
	}
	s.evidence[job] = evidence
}

func checkProof(t *testing.T, versions []corev1.Pod, v view, onLost v1alpha1.LostJobPolicy, want string) {
	builder := sequence("build", "drop")
	if onLost == v1alpha1.LostJobRerun {
		builder.RerunLostJobs()
	}
	s := startRun(t, builder)
	job := s.newestJob("build")
	s.pods[job.UID] = nil // deleted
	observe(s, job.UID, v, versions)
	s.succeedStep("build")
	switch want {
	case "succeeded":
		s.pass(steps("build: Succeeded", "drop: Starting"))
		return
	case "interrupted":
		s.pass(steps("build: Starting, Interrupted", "drop: Pending"))
		s.pass(events(v1alpha1.EventJobStarted, v1alpha1.EventStepInterrupted, v1alpha1.EventJobStarted))
	case "unknown":
		s.pass(steps("build: Starting", "drop: Pending")) // the cache may be late
		s.reconcileAfter(maxPodLag)
		if onLost == v1alpha1.LostJobFail {
			s.pass(steps("build: Failed, OutcomeUnknown", "drop: Skipped, PreviousStepFailed"))
			return
		}
		s.pass(steps("build: Starting, OutcomeUnknown", "drop: Pending"))
		s.pass(events(v1alpha1.EventJobStarted, v1alpha1.EventJobLost, v1alpha1.EventJobStarted))
	}
	s.pass(created("build", "build"))
	s.succeedStep("build") // the second attempt
	s.pass(steps("build: Succeeded", "drop: Starting"))
}

// A failure is how the only Pod of a Job fails that then fails: requests to stop it, and ends of its program before that.
type failure struct {
	title     string
	disrupted bool
	exits     int32 // with code 3, each but the last followed by a restart
}

var failures = []failure{
	{"is deleted by a user", false, 0},
	{"is evicted, preempted or lost with its node", true, 0},
	{"ends with code 3 and is deleted by its Job before it is restarted", false, 1},
	{"ends with code 3 and is evicted before it is restarted", true, 1},
	{"ends with code 3 twice", false, 2},
	{"ends with code 3 twice and is evicted", true, 2},
	{"ends with code 3 four times and is evicted", true, 4},
}

// failedOutcomeOf is the rule: a disruption is no failure of the program, unless the program alone has reached the limit, and the
// exit code is that of the program. With Never, the podFailurePolicy of the Job has decided.
func failedOutcomeOf(f failure, policy corev1.RestartPolicy, limit int32, v view) (outcome string, exitCode int32) {
	restarts := max(0, f.exits-1)
	if policy == corev1.RestartPolicyOnFailure && v != seesNothing && f.disrupted && restarts < max(1, limit) {
		return "interrupted", 0
	}
	if v != seesNothing && f.exits > 0 {
		return "failed", 3
	}
	return "failed", 0
}

func TestAFailedJobProvesOnlyWhatItsPodsShow(t *testing.T) {
	for _, f := range failures {
		for _, policy := range []corev1.RestartPolicy{corev1.RestartPolicyNever, corev1.RestartPolicyOnFailure} {
			for _, limit := range []int32{0, 3} {
				for _, v := range []view{seesAll, seesLast, seesNothing} {
					want, exitCode := failedOutcomeOf(f, policy, limit, v)
					title := fmt.Sprintf("a Pod with restartPolicy %s and backoffLimit %d that %s, of which the operator sees %s: %s", policy, limit, f.title, v, want)
					t.Run(title, func(t *testing.T) { checkFailure(t, f, policy, limit, v, want, exitCode) })
				}
			}
		}
	}
}

func checkFailure(t *testing.T, f failure, policy corev1.RestartPolicy, limit int32, v view, want string, exitCode int32) {
	s := startRun(t, sequence().
		Template(corev1.PodTemplateSpec{Spec: corev1.PodSpec{RestartPolicy: policy}}).
		Step("build", testbuilder.WithStepOptions(func(o *v1alpha1.StepOptions) { o.BackoffLimit = &limit })).Step("drop"))
	job := s.newestJob("build")
	s.pods[job.UID] = nil // deleted
	observe(s, job.UID, v, f.versions(s.now))
	s.failStep("build")
	if v == seesNothing && policy == corev1.RestartPolicyOnFailure {
		s.pass(steps("build: Starting", "drop: Pending")) // the cache may be late
		s.reconcileAfter(maxPodLag)
	}
	if want == "interrupted" {
		s.pass(steps("build: Starting, Interrupted", "drop: Pending"))
		s.pass(events(v1alpha1.EventJobStarted, v1alpha1.EventStepInterrupted, v1alpha1.EventJobStarted))
		return
	}
	s.pass(steps("build: Failed, BackoffLimitExceeded", "drop: Skipped, PreviousStepFailed"))
	step := s.stepStatus("build")
	assert.Equal(t, "exit code", exitCode, ptr.Deref(step.ExitCode, 0))
	require.True(t, exitCode == 0 || step.Message == "container build exited with code 3: no table", "message %q", step.Message)
}

// versions returns the versions of the Pod, whose stop is requested at noon.
func (f failure) versions(noon time.Time) []corev1.Pod {
	pod := testbuilder.Pod("build").Running().Obj()
	pod.UID = "pod"
	versions := []corev1.Pod{pod}
	add := func(change func(*corev1.ContainerStatus)) {
		next := *versions[len(versions)-1].DeepCopy()
		change(&next.Status.ContainerStatuses[0])
		versions = append(versions, next)
	}
	for i := range f.exits {
		end := &corev1.ContainerStateTerminated{ExitCode: 3, Message: "no table", FinishedAt: metav1.NewTime(noon.Add(time.Duration(i-f.exits) * time.Minute))}
		add(func(c *corev1.ContainerStatus) { c.State = corev1.ContainerState{Terminated: end} })
		if i == f.exits-1 {
			break
		}
		add(func(c *corev1.ContainerStatus) {
			c.State, c.RestartCount = corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}, i+1
			c.LastTerminationState = corev1.ContainerState{Terminated: end}
		})
	}
	add(func(*corev1.ContainerStatus) {})
	last := &versions[len(versions)-1]
	last.DeletionTimestamp, last.DeletionGracePeriodSeconds = &metav1.Time{Time: noon.Add(30 * time.Second)}, new(int64(30))
	if f.disrupted {
		last.Status.Conditions = []corev1.PodCondition{{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(noon)}}
	}
	if f.exits == 0 {
		add(func(c *corev1.ContainerStatus) {
			c.State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 143, FinishedAt: metav1.NewTime(noon.Add(time.Second))}}
		})
		versions[len(versions)-1].Status.Phase = corev1.PodFailed
	}
	return versions
}

// seen lets the operator see versions of a Pod of build, which is deleted by now, as with ttlSecondsAfterFinished 0.
func seen(versions ...corev1.Pod) func(*testEnv) {
	return func(s *testEnv) {
		job := s.newestJob("build").UID
		s.pods[job] = nil
		s.evidence.change(job, func(e *Evidence) {
			for i := range versions {
				e.Observe(&versions[i])
			}
		})
	}
}

func TestEvidenceDecidesTheOutcomeOfAStep(t *testing.T) {
	var five []corev1.Pod
	for i := range 5 {
		pod := testbuilder.Pod("build").Created(time.Unix(int64(i), 0)).Exited(0, fmt.Sprint("v", i)).Obj()
		pod.UID = types.UID(fmt.Sprint(i))
		if i == 3 {
			pod = versionsOf(evicted, longAfter, rightClock)[2]
		}
		five = append(five, pod)
	}
	many := func(s *testEnv) { s.newestJob("build").Spec.Completions = new(int32(5)) }
	runScenarios(t, map[string]scenario{
		"a late view of the Pods ends the doubt and the step, which has no end until then": {sequence("one", "build", "test"), story{
			storeLater(true), succeed("one"), storeLater(false), seen(), succeed("build"), steps("one: Succeeded", "build: Starting", "test: Pending"),
			func(s *testEnv) { require.True(s.t, s.stepStatus("build").CompletionTime == nil, "it has an end") },
			seen(versionsOf(deleted, justBefore, rightClock)...), wait(time.Second), steps("one: Succeeded", "build: Succeeded", "test: Starting"),
		}},
		"one interrupted Pod of many repeats the step": {sequence("build", "test"), story{
			many, seen(five...), succeed("build"), steps("build: Starting, Interrupted", "test: Pending"),
		}},
		"of a step with one Pod, one that succeeds after another was interrupted by a suspension is enough": {sequence("build", "test"), story{
			seen(five...), succeed("build"), steps("build: Succeeded", "test: Starting"),
		}},
		"a Pod of many that is deleted at once has succeeded": {sequence("build"), story{
			many, seen(versionsOf(deleted, justBefore, rightClock)...), succeed("build"), steps("build: Succeeded"),
		}},
		"the Job of another controller is believed without Pods": {sequence("build", "test"), story{ // they may be in another cluster
			seen(), func(s *testEnv) { s.newestJob("build").Spec.ManagedBy = new("kueue.x-k8s.io/multikueue") },
			succeed("build"), steps("build: Succeeded", "test: Starting"),
		}},
		"a suspended step that exits with 0 runs again when it is resumed": {sequence("build", "test").SuspendImmediately(), story{
			wait(time.Minute), suspendRun, seen(versionsOf(deleted, longAfter, rightClock)...), succeed("build"),
			steps("build: Interrupted, Interrupted", "test: Pending"),
			resumeRun, steps("build: Starting, Interrupted", "test: Pending"), created("build", "build"),
		}},
		"an output is that of the newest Pod that ended by itself": {sequence().Step("build", testbuilder.RecordOutput()), story{
			seen(five[0], five[1]), succeed("build"), steps("build: Succeeded"),
			func(s *testEnv) { assert.Equal(s.t, "output", "v1", s.stepStatus("build").Output) },
		}},
	})
}

func TestOnlyTheJobOfTheActiveStepNeedsEvidence(t *testing.T) {
	s := startRun(t, sequence("build", "test"))
	build := s.newestJob("build")
	needs := []bool{NeedsEvidence(s.sj, build)} // it runs
	testbuilder.Job(build).Complete(s.now)
	needs = append(needs, NeedsEvidence(s.sj, build))
	s.reconcile()
	test := testbuilder.Job(s.newestJob("test")).Condition(batchv1.JobComplete, "", "", s.now).Obj()
	needs = append(needs, NeedsEvidence(s.sj, build), NeedsEvidence(s.sj, test))
	s.sj.Status.Steps[1] = v1alpha1.StepStatus{Name: "test", Phase: v1alpha1.StepPending} // the status may be stored after the Job was created
	assert.Equal(t, "needs", []bool{false, true, false, true, true}, append(needs, NeedsEvidence(s.sj, test)))
}
