package sequentialjob

import (
	"fmt"
	"slices"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/decision"
	"github.com/yardmaster/yardmaster/test/assert"
	"github.com/yardmaster/yardmaster/test/require"
	"github.com/yardmaster/yardmaster/test/testbuilder"
)

// startAtSecondStep returns a run whose first step succeeded, whose second is running and whose third is pending.
func startAtSecondStep(t *testing.T) *testEnv {
	s := startRun(t, sequence("build", "test", "ship").Finally("cleanup"))
	s.pass(succeed("build"), wait(time.Minute))
	return s
}

func TestStartedStepsAreImmutable(t *testing.T) {
	type spec = v1alpha1.SequentialJobSpec
	insert := func(at int) func(*spec) {
		return func(s *spec) { s.Containers = slices.Insert(s.Containers, at, testbuilder.Step("more")) }
	}
	remove := func(from, to int) func(*spec) {
		return func(s *spec) { s.Containers = slices.Delete(s.Containers, from, to) }
	}
	image := func(at int) func(*spec) { return func(s *spec) { s.Containers[at].Image = "other" } }
	for title, test := range map[string]struct {
		edit     func(*spec)
		violates int // the index of the step, -1 for none
	}{
		"no change":                                {func(*spec) {}, -1},
		"a pending step is edited":                 {image(2), -1},
		"a pending step is removed":                {remove(2, 3), -1},
		"a step is appended":                       {insert(3), -1},
		"a step is inserted between pending steps": {insert(2), -1},
		"pending finally steps are edited":         {func(s *spec) { s.Containers = append(s.Containers, finallyStep("more")) }, -1},
		"the template changes":                     {func(s *spec) { s.Template = &v1alpha1.PodTemplate{} }, -1},
		"the running step is edited":               {image(1), 1},
		"the running step's options are edited":    {func(s *spec) { s.Containers[1].Step = &v1alpha1.StepOptions{OnFailure: v1alpha1.OnFailureContinue} }, 1},
		"a finished step is edited":                {func(s *spec) { s.Containers[0].Args = []string{"x"} }, 0},
		"a started step is renamed":                {func(s *spec) { s.Containers[0].Name = "other" }, 0},
		"a started step is removed":                {remove(0, 1), 0},
		"all but the first step are removed":       {remove(1, 3), 1},
		"started steps are reordered":              {func(s *spec) { slices.Reverse(s.Containers[:2]) }, 0},
		"a step is inserted before a started step": {insert(1), 1},
		"a started step gets the option finally":   {func(s *spec) { s.Containers = append(slices.Delete(s.Containers, 1, 2), finallyStep("test")) }, 2},
	} {
		t.Run(title, func(t *testing.T) {
			s := startAtSecondStep(t)
			changed := s.sj.Spec.DeepCopy()
			test.edit(changed)
			var want []string
			if test.violates >= 0 {
				want = []string{fmt.Sprintf("spec.containers[%d]: Forbidden", test.violates)}
			}
			assert.Equal(t, "violations", want, errorFields(ImmutabilityViolations(nil, changed, &s.sj.Status)))
		})
	}
	skipped := startRun(t, sequence().Step("first", when("false")).Step("build"))
	for expression, want := range map[string][]string{"false": nil, "true": {"spec.containers[0]: Forbidden"}} {
		skipped.sj.Spec.Containers[0].Step.When = expression
		assert.Equal(t, "violations by a skipped step", want, errorFields(ImmutabilityViolations(nil, &skipped.sj.Spec, &skipped.sj.Status)))
	}
	finished := startAtSecondStep(t).pass(fail("test"), succeed("cleanup"))
	shorter := sequence("other").Obj().Spec
	for when, status := range map[string]*v1alpha1.SequentialJobStatus{"before the run": {}, "after the run": &finished.sj.Status} {
		errs := ImmutabilityViolations(nil, &shorter, status)
		require.True(t, len(errs) == 0, "%s: %v", when, errs)
	}
}

func finallyStep(name string) v1alpha1.Step {
	return sequence().Finally(name).Obj().Spec.Containers[0]
}

// Without a webhook, also forbidden changes are stored.
func TestAChangeAppliesOnlyToStepsThatHaveNotStarted(t *testing.T) {
	secondStep := func(more ...func(*testEnv)) scenario {
		return scenario{sequence("build", "test", "ship").Finally("cleanup"), append(story{succeed("build"), wait(time.Minute)}, more...)}
	}
	image := func(at int) func(*testEnv) {
		return edit(func(spec *v1alpha1.SequentialJobSpec) { spec.Containers[at].Image = "new" })
	}
	continues := steps("build: Succeeded", "test: Starting", "ship: Pending", "cleanup: Pending")
	endsOnce := func(s *testEnv) {
		s.pass(succeed("test", "ship", "cleanup"), created("build", "test", "ship", "cleanup"), phase(v1alpha1.PhaseCompleted, v1alpha1.ReasonCompleted))
	}
	insert := func(spec *v1alpha1.SequentialJobSpec) {
		spec.Containers = slices.Insert(spec.Containers, 1, testbuilder.Step("more"))
	}
	isReported := func(s *testEnv) {
		c := meta.FindStatusCondition(s.sj.Status.Conditions, v1alpha1.ConditionSpecAccepted)
		assert.Equal(s.t, "SpecAccepted", "False, StartedStepChanged", string(c.Status)+", "+c.Reason)
	}
	runScenarios(t, map[string]scenario{
		"a change of a started step is reported": secondStep(
			forgetEvents, image(1), continues, events(v1alpha1.EventSpecChanged, v1alpha1.EventSpecRejected), isReported, endsOnce,
		),
		"also if only its Job shows that it has started": {sequence("build", "test"), story{storeLater(true), succeed("build"), image(1), isReported}},
		"it is not why a run fails that exceeds its deadline": {sequence("build", "test").ActiveDeadline(600), story{
			func(s *testEnv) { s.startPod("build") }, wait(time.Minute), image(0), isReported, func(s *testEnv) { testbuilder.Job(s.newestJob("build")).Complete(s.now) }, wait(time.Hour),
			steps("build: Succeeded", "test: Skipped, DeadlineExceeded"), phase(v1alpha1.PhaseFailed, v1alpha1.ReasonDeadlineExceeded),
		}},
		"a later step has its new image": secondStep(image(2), continues, succeed("test"), wait(time.Minute), func(s *testEnv) {
			generation := func(step string) string { return s.newestJob(step).Annotations[v1alpha1.AnnotationGeneration] }
			got := []string{s.newestJob("ship").Spec.Template.Spec.Containers[0].Image, generation("build"), generation("ship")}
			assert.Equal(s.t, "image, and generations of the Jobs", []string{"new", "1", "2"}, got)
			assert.Equal(s.t, "observed generation", int64(2), s.sj.Status.ObservedGeneration)
		}),
		"a removed step that has started counts once": secondStep(edit(removeFirstStep), endsOnce, func(s *testEnv) {
			got := s.sj.Status
			require.True(s.t, got.State.Succeeded == 4 && FormatProgress(s.sj, false) == "3/3", "want 4 of 4, got %+v", got.State)
		}),
		"a started step keeps its options": {sequence().Step("lint", testbuilder.ContinueOnFailure()).Step("build"), story{
			edit(func(spec *v1alpha1.SequentialJobSpec) { spec.Containers[0].Step = nil }), fail("lint"), created("lint", "build"),
		}},
		"no step is added before finally steps that have started": {sequence("build").Finally("cleanup"), story{
			succeed("build"),
			func(s *testEnv) {
				changed := s.sj.Spec.DeepCopy()
				insert(changed)
				assert.Equal(s.t, "violations", []string{"spec.containers[1]: Forbidden"}, errorFields(ImmutabilityViolations(nil, changed, &s.sj.Status)))
			},
			edit(insert), succeed("cleanup"), created("build", "cleanup"), phase(v1alpha1.PhaseCompleted, v1alpha1.ReasonCompleted),
		}},
	})
}

// A release of the operator that hashes steps in another way must not take started steps for changed ones.
func TestUpgradeOfTheOperatorDoesNotChangeStartedSteps(t *testing.T) {
	for name, hash := range map[string]string{"without a version": "0123456789abcdef", "of another version": "v1:0123456789abcdef", "none": ""} {
		t.Run(name, func(t *testing.T) {
			s := startAtSecondStep(t)
			for i := range s.sj.Status.Steps {
				s.sj.Status.Steps[i].SpecHash = hash
			}
			for _, job := range s.jobs {
				job.Annotations[v1alpha1.AnnotationSpecHash] = hash
			}
			before := s.sj.Spec.DeepCopy()
			s.pass(edit(func(spec *v1alpha1.SequentialJobSpec) { spec.Containers[2].Image = "other" }))
			require.True(t, meta.IsStatusConditionTrue(s.sj.Status.Conditions, v1alpha1.ConditionSpecAccepted), "%+v", s.sj.Status.Conditions)
			edited := before.DeepCopy()
			edited.Containers[1].Image = "other"
			want := []string{"spec.containers[1]: Forbidden"}
			assert.Equal(t, "violations that the webhook finds", want, errorFields(ImmutabilityViolations(before, edited, &s.sj.Status)))
		})
	}
}

func TestHashOfAStepIsStable(t *testing.T) {
	container := corev1.Container{
		Image: "tool:1", Command: []string{"run"}, Env: []corev1.EnvVar{{Name: "A"}, {Name: "B", Value: "b"}},
		Resources:       corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m")}},
		SecurityContext: &corev1.SecurityContext{RunAsNonRoot: new(false), Capabilities: &corev1.Capabilities{}},
	}
	step := v1alpha1.Step{Name: "build", Container: container, Step: &v1alpha1.StepOptions{BackoffLimit: new(int32(2)), Outputs: true}}
	const want = "v2:a8d9bf3bc344388f"
	assert.Equal(t, "hash; if the change is intended, also change specHashVersion", want, stepHash(&step))
}

func TestDefaultsOfAStepAreNotAChange(t *testing.T) {
	plain := testbuilder.Step("build")
	for title, test := range map[string]struct {
		options v1alpha1.StepOptions
		isSame  bool
	}{
		"defaults":            {v1alpha1.StepOptions{BackoffLimit: new(int32), OnFailure: v1alpha1.OnFailureStop}, true},
		"no options":          {v1alpha1.StepOptions{}, true},
		"onFailure: Continue": {v1alpha1.StepOptions{OnFailure: v1alpha1.OnFailureContinue}, false},
		"backoffLimit: 1":     {v1alpha1.StepOptions{BackoffLimit: new(int32(1))}, false},
	} {
		step := testbuilder.Step("build")
		step.Step = &test.options
		assert.Equal(t, "a step with "+title+" is the same", test.isSame, stepHash(&step) == stepHash(&plain))
	}
}

// obstacle is why a step's container does not start.
type obstacle struct {
	title string
	// pod changes the step's Pod, which runs no container; nil if the Job has none.
	pod    func(*corev1.Pod)
	hasRun bool // true if a container of the Job has run nevertheless, as it shows
	// job changes the Job.
	job func(*batchv1.Job)
	// forgotten changes what the operator has seen of Pods that do not exist any more.
	forgotten func(*Evidence, metav1.Time)
	// refusal of the Job itself, which then does not exist.
	refusal *decision.Refusal
}

func waits(reason string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		pod.Status.ContainerStatuses[0].State.Waiting = &corev1.ContainerStateWaiting{Reason: reason, Message: "no"}
	}
}

func isUnscheduled(reason string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: reason, Message: "no"}}
	}
}

func waitsWithInit(state corev1.ContainerState, id string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		waits("ErrImagePull")(pod)
		pod.Status.InitContainerStatuses = []corev1.ContainerStatus{{Name: "init", State: state, ContainerID: id}}
	}
}

var obstacles = []obstacle{
	{title: "its image does not exist", pod: waits("ErrImagePull")},
	{title: "its image has an invalid name", pod: waits("InvalidImageName")},
	{title: "a Secret is missing", pod: waits("CreateContainerConfigError")},
	{title: "its container cannot be created", pod: waits("CreateContainerError")},
	{title: "a ConfigMap of a volume is missing", pod: func(pod *corev1.Pod) {
		pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReadyToStartContainers, Status: corev1.ConditionFalse}}
	}},
	{title: "no node fits", pod: isUnscheduled("Unschedulable")},
	{title: "its Pod has a scheduling gate", pod: isUnscheduled("SchedulingGated")},
	{title: "a quota refuses its Pod"},
	{title: "a queue holds its Job", job: func(job *batchv1.Job) { job.Labels[queueLabel], job.Spec.Suspend = "q", new(true) }},
	{title: "a quota refuses its Job", refusal: &decision.Refusal{Kind: "Job", Class: decision.QuotaExceeded, Message: "no"}},

	{
		title: "its image does not exist, and an init container has run", hasRun: true,
		pod: waitsWithInit(corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ContainerID: "i"}}, "i"),
	},
	{
		title: "its image does not exist, and a sidecar runs", hasRun: true,
		pod: waitsWithInit(corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}, "i"),
	},
	{
		title: "its image does not exist, and a Pod before it failed", hasRun: true,
		pod: waits("ErrImagePull"), job: func(job *batchv1.Job) { job.Status.Failed = 1 },
	},
	{
		title: "no node fits after an eviction", hasRun: true,
		pod: func(pod *corev1.Pod) {
			isUnscheduled("Unschedulable")(pod)
			pod.CreationTimestamp = metav1.NewTime(pod.CreationTimestamp.Add(5 * time.Second))
		},
		forgotten: evictedPod,
	},
	{title: "a quota refuses another Pod after an eviction", hasRun: true, forgotten: evictedPod},
}

func evictedPod(e *Evidence, now metav1.Time) {
	evicted := testbuilder.Pod("build").Running().Obj()
	evicted.UID, evicted.DeletionTimestamp = "evicted", &now
	e.ObserveDeletion(&evicted, true)
}

// meanwhile is what happens after the operator has decided to replace the Job.
type meanwhile string

const (
	nothing         meanwhile = "nothing happens"
	starts          meanwhile = "its container starts while the Pod is being deleted"
	ends            meanwhile = "its container starts and ends by itself, and the Job expires"
	patchedAgain    meanwhile = "the step is corrected once more"
	patchedBack     meanwhile = "the correction is taken back"
	restartedBefore meanwhile = "the operator restarts before the Job is deleted"
	restartedAfter  meanwhile = "the operator restarts after the Job and its Pods were deleted"
	unseenEnd       meanwhile = "the end of the Pod is not seen"
	undeleted       meanwhile = "the end of the Pod is seen, and not its deletion"
	startsLate      meanwhile = "its container starts while the Pod is being deleted, which the operator sees late"
)

var allMeanwhile = []meanwhile{nothing, starts, ends, patchedAgain, patchedBack, restartedBefore, restartedAfter, unseenEnd, undeleted, startsLate}

// repairOf is the rule: a Job is replaced if what the operator has seen proves that no container has run, from the creation of the Job
// on, or from its first Pod. What it has not seen proves nothing.
func repairOf(o *obstacle, isRestarted bool, m meanwhile) string {
	isSeen := !isRestarted || o.pod != nil && o.job == nil
	switch {
	case o.refusal != nil && (m == patchedAgain || m == patchedBack): // its Job exists, and starts
		return "kept"
	case o.refusal != nil:
		return "created"
	case o.hasRun || !isSeen:
		return "kept"
	case m == restartedBefore && (o.pod == nil || o.job != nil):
		return "kept"
	case (m == starts || m == startsLate) && o.pod != nil:
		return "interrupted"
	case m == restartedAfter, (m == unseenEnd || m == ends) && o.pod != nil:
		return "lost"
	}
	return "replaced"
}

func TestAStepOfWhichNoContainerHasRunIsCorrectedInPlace(t *testing.T) {
	for i := range obstacles {
		for _, isRestarted := range []bool{false, true} {
			for _, m := range allMeanwhile {
				o := &obstacles[i]
				want := repairOf(o, isRestarted, m)
				t.Run(fmt.Sprintf("%s; operator restarted: %t; then %s: %s", o.title, isRestarted, m, want), func(t *testing.T) {
					checkRepair(t, o, isRestarted, m, want)
				})
			}
		}
	}
}

func setImage(image string) func(*v1alpha1.SequentialJobSpec) {
	return func(spec *v1alpha1.SequentialJobSpec) { spec.Containers[0].Image = image }
}

func checkRepair(t *testing.T, o *obstacle, isRestarted bool, m meanwhile, want string) {
	s := newTestEnv(t, sequence("build", "ship").Obj())
	if o.refusal != nil {
		s.createRefusals["build"] = o.refusal
	}
	s.reconcile()
	wrong := s.sj.Spec.Containers[0].Image
	if o.refusal == nil {
		meetObstacle(s, o)
	}
	if isRestarted {
		s.restartOperator()
	}
	s.reconcileAfter(5 * time.Second)
	before := s.stepStatus("build")
	require.True(t, isCorrectable(before) || o.hasRun, "the step cannot be corrected: %+v", before)
	s.changeSpec(setImage("right"))
	errs := ImmutabilityViolations(nil, &s.sj.Spec, &s.sj.Status)
	require.True(t, o.hasRun || len(errs) == 0, "the webhook refuses the correction: %v", errs)
	delete(s.createRefusals, "build")
	if m == restartedBefore {
		s.decideAndRecord(nil)
		s.restartOperator()
	}
	s.events = nil
	image := "right"
	s.reconcile()
	if m == patchedAgain || m == patchedBack {
		if image = "better"; m == patchedBack {
			image = wrong
		}
		s.pass(edit(setImage(image)))
	}
	if job := s.newestJob("build"); want != "created" && job.DeletionTimestamp != nil {
		endDeletion(s, job, o, m)
	}
	s.pass(wait(replacementDelay), wait(maxPodLag), wait(0))
	got, record := "kept", s.stepStatus("build")
	replaced, interrupted := s.hasEvent(v1alpha1.EventJobReplaced), s.hasEvent(v1alpha1.EventStepInterrupted)
	switch {
	case o.refusal != nil && s.newestJob("build").Spec.Template.Spec.Containers[0].Image == image:
		got = "created"
	case replaced:
		got = "replaced"
	case interrupted:
		got = "interrupted"
	case record.Phase == v1alpha1.StepFailed && record.Reason == v1alpha1.ReasonJobLost:
		got = "lost"
	}
	require.True(t, got == want, "the Job is %s, want %s: %+v, events %+v", got, want, record, s.events)
	require.True(t, !replaced && !interrupted || s.newestJob("build").Spec.Template.Spec.Containers[0].Image == image,
		"the next Job has another image than %s", image)
	accepted := meta.IsStatusConditionTrue(s.sj.Status.Conditions, v1alpha1.ConditionSpecAccepted)
	isKept := got == "kept" && (image != wrong || o.refusal != nil)
	require.True(t, accepted != isKept, "SpecAccepted is %t, although the Job is %s", accepted, got)
	require.True(t, !replaced || record.FailedAttempts == 0 && record.Attempt == 2, "the attempt counts as failed: %+v", record)
}

func meetObstacle(s *testEnv, o *obstacle) {
	job := s.newestJob("build")
	job.Status.Ready = nil
	s.warnings[job.UID], s.warnings["first"] = "exceeded quota", "MountVolume.SetUp failed"
	s.pods[job.UID] = nil
	if o.job != nil {
		o.job(job)
	}
	if o.forgotten != nil {
		s.evidence.change(job.UID, func(e *Evidence) { o.forgotten(e, metav1.NewTime(s.now)) })
	}
	if o.pod == nil {
		job.Status.Active = 0
		return
	}
	pod := testbuilder.Pod("build").Created(s.now).Obj()
	pod.UID, pod.OwnerReferences = "first", []metav1.OwnerReference{{UID: job.UID, Controller: new(true)}}
	o.pod(&pod)
	s.pods[job.UID], s.unfinishedPods = []corev1.Pod{pod}, []*corev1.Pod{&pod}
}

func endDeletion(s *testEnv, job *batchv1.Job, o *obstacle, m meanwhile) {
	s.unfinishedPods = nil
	if m == startsLate {
		s.pass(removeJobs, wait(replacementDelay))
	}
	if pods := s.pods[job.UID]; len(pods) > 0 && o.pod != nil {
		last := pods[0]
		last.DeletionTimestamp = new(metav1.NewTime(s.now))
		switch m {
		case starts, startsLate:
			last.Status.ContainerStatuses[0].State = corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
		case undeleted:
			last.Status.Phase = corev1.PodFailed
		case ends:
			last.DeletionTimestamp = nil
			last.Status.ContainerStatuses[0].State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ContainerID: "c", FinishedAt: metav1.NewTime(s.now)}}
		}
		s.evidence.change(job.UID, func(e *Evidence) { e.Observe(&last) })
		if m != undeleted {
			s.evidence.change(job.UID, func(e *Evidence) { e.ObserveDeletion(&last, m != unseenEnd) })
		}
	}
	if m == restartedAfter {
		s.restartOperator()
	}
	removeJobs(s)
}

func (s *testEnv) hasEvent(reason string) bool {
	return slices.ContainsFunc(s.events, func(event decision.Event) bool { return event.Reason == reason })
}

func TestAStepThatRunsIsNotReplaced(t *testing.T) {
	for title, change := range map[string]func(*v1alpha1.SequentialJobSpec){
		"the step":           setImage("right"),
		"nothing in the Job": func(spec *v1alpha1.SequentialJobSpec) { spec.JobHistoryLimit = new(int32(9)) },
		"the template": func(spec *v1alpha1.SequentialJobSpec) {
			spec.Template = &v1alpha1.PodTemplate{SecurityProfile: v1alpha1.SecurityRestricted}
		},
	} {
		for _, runs := range []bool{false, true} {
			t.Run(fmt.Sprintf("a change of %s, runs: %t", title, runs), func(t *testing.T) {
				s := startRun(t, sequence("build"))
				meetObstacle(s, &obstacles[0])
				s.reconcileAfter(5 * time.Second)
				if runs {
					pod := testbuilder.Pod("build").Created(s.now).Running().Obj()
					pod.UID, pod.OwnerReferences = "first", s.unfinishedPods[0].OwnerReferences
					s.pods[s.newestJob("build").UID], s.unfinishedPods = []corev1.Pod{pod}, []*corev1.Pod{&pod}
				}
				s.changeSpec(change)
				d := s.reconcile()
				require.True(t, (len(d.DeleteJobs) > 0) == (!runs && title != "nothing in the Job"), "%d Jobs are deleted", len(d.DeleteJobs))
			})
		}
	}
}

func TestARefusedCorrectionReplacesNothing(t *testing.T) {
	s := startRun(t, sequence("build"))
	meetObstacle(s, &obstacles[0])
	s.reconcileAfter(5 * time.Second)
	s.dryRunRefusals = []decision.Refusal{{Kind: "Job", Step: "build", Class: decision.Invalid, Message: "no"}}
	s.changeSpec(setImage("worse"))
	d := s.reconcile()
	require.True(t, !d.HasActions(), "the operator acts: %+v", d)
	s.pass(hasCondition(v1alpha1.ConditionSpecAccepted, `False StepInvalid: step "build": no`))
}
