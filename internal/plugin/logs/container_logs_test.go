package logs

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/test/require"
	"github.com/yardmaster/yardmaster/test/testbuilder"
)

var testTime = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// stepPod returns a Pod of a step's Job, created a number of seconds after testTime.
func stepPod(sj *v1alpha1.SequentialJob, step, job, name string, after int, built *testbuilder.PodBuilder) corev1.Pod {
	p := built.Created(testTime.Add(time.Duration(after) * time.Second)).Obj()
	p.Name = job + "-" + name
	p.Labels = map[string]string{
		v1alpha1.LabelSequentialJobUID: string(sj.UID), v1alpha1.LabelStep: step, batchv1.JobNameLabel: job,
	}
	p.OwnerReferences = []metav1.OwnerReference{{Kind: "Job", Name: job, UID: types.UID("uid-of-" + job), Controller: new(true)}}
	return p
}

// withStepStatus adds the status of a step to the sequence.
func withStepStatus(sj *v1alpha1.SequentialJob, step string, phase v1alpha1.StepPhase, job string) *v1alpha1.SequentialJob {
	sj.Status.Run = 1
	status := v1alpha1.StepStatus{Name: step, Phase: phase, JobAttempt: v1alpha1.JobAttempt{JobName: job}}
	if job != "" {
		status.JobUID = types.UID("uid-of-" + job)
	}
	sj.Status.Steps = append(sj.Status.Steps, status)
	return sj
}

func TestContainerLogsOfAStep(t *testing.T) {
	plain := testbuilder.SequentialJob("etl", "a").Step("load").Obj()
	running := withStepStatus(plain.DeepCopy(), "load", v1alpha1.StepRunning, "j2")
	retried := withStepStatus(testbuilder.SequentialJob("etl", "a").
		Step("load", testbuilder.WithStepOptions(func(o *v1alpha1.StepOptions) { o.BackoffLimit = new(int32(3)) })).Obj(), "load", v1alpha1.StepRunning, "j2")
	unrelated := stepPod(plain, "load", "j2", "x", 0, testbuilder.Pod("load").Running())
	unrelated.OwnerReferences[0].UID = "another"
	withInit := stepPod(plain, "load", "j2", "x", 0, testbuilder.Pod("load"))
	withInit.Status.InitContainerStatuses = []corev1.ContainerStatus{{
		Name: "wait", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 1}},
	}}
	restarted := stepPod(plain, "load", "j2", "x", 0, testbuilder.Pod("load").Running())
	restarted.Status.ContainerStatuses[0].RestartCount = 2

	for name, row := range map[string]struct {
		sj   *v1alpha1.SequentialJob
		pods []corev1.Pod
		all  bool
		want []containerLog
	}{
		"only logs of the Job in the status": {
			running,
			[]corev1.Pod{
				stepPod(plain, "load", "j1", "a", 0, testbuilder.Pod("load").Exited(1, "")),
				stepPod(plain, "load", "j2", "b", 1, testbuilder.Pod("load").Running()),
			},
			false,
			[]containerLog{{owner: "load", podName: "j2-b", container: "load", label: "load"}},
		},
		"logs of all attempts, the oldest first": {
			running,
			[]corev1.Pod{
				stepPod(plain, "load", "j2", "b", 1, testbuilder.Pod("load").Running()),
				stepPod(plain, "load", "j1", "a", 0, testbuilder.Pod("load").Exited(1, "")),
			},
			true,
			[]containerLog{
				{owner: "load", podName: "j1-a", container: "load", label: "load/a"},
				{owner: "load", podName: "j2-b", container: "load", label: "load/b"},
			},
		},
		"a Pod with the labels and another owner is ignored": {running, []corev1.Pod{unrelated}, false, []containerLog{}},
		"a Pod of another step is ignored": {
			running, []corev1.Pod{stepPod(plain, "extract", "j2", "a", 0, testbuilder.Pod("extract").Running())}, false, []containerLog{},
		},
		"logs of any Job of the step if there is no status yet": {
			plain,
			[]corev1.Pod{stepPod(plain, "load", "j1", "a", 0, testbuilder.Pod("load").Running())},
			false,
			[]containerLog{{owner: "load", podName: "j1-a", container: "load", label: "load"}},
		},
		"the label of a step with retries contains the Pod name, even with one Pod": {
			retried,
			[]corev1.Pod{stepPod(plain, "load", "j2", "a", 0, testbuilder.Pod("load").Running())},
			false,
			[]containerLog{{owner: "load", podName: "j2-a", container: "load", label: "load/a"}},
		},
		"a container that never started has no log": {
			running, []corev1.Pod{stepPod(plain, "load", "j2", "a", 0, testbuilder.Pod("load").Waiting("ErrImagePull", ""))}, false, []containerLog{},
		},
		"a failed init container has a log": {
			running,
			[]corev1.Pod{withInit},
			false,
			[]containerLog{{owner: "load", podName: "j2-x", container: "wait", label: "load:wait"}},
		},
		"a restarted container has the log of its last start": {
			running,
			[]corev1.Pod{restarted},
			false,
			[]containerLog{{owner: "load", podName: "j2-x", container: "load", restartCount: 2, label: "load"}},
		},
		"with all attempts, a restarted container also has the log of its previous start": {
			running,
			[]corev1.Pod{restarted},
			true,
			[]containerLog{
				{owner: "load", podName: "j2-x", container: "load", restartCount: 1, previous: true, label: "load"},
				{owner: "load", podName: "j2-x", container: "load", restartCount: 2, label: "load"},
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := containerLogsOf(row.sj, "load", podsOfStep(row.sj, "load", row.pods, row.all), row.all)
			require.Equal(t, row.want, append([]containerLog{}, got...), cmp.AllowUnexported(containerLog{}))
		})
	}
}

func TestMissingLogReason(t *testing.T) {
	sequence := func() *v1alpha1.SequentialJob { return testbuilder.SequentialJob("etl", "a").Step("load").Obj() }
	pulling := stepPod(sequence(), "load", "j1", "a", 0, testbuilder.Pod("load").Waiting("ErrImagePull", ""))
	for name, row := range map[string]struct {
		sj   *v1alpha1.SequentialJob
		pods []*corev1.Pod
		want string
	}{
		"the step has not started":             {sequence(), nil, ""},
		"the step was skipped":                 {withStepStatus(sequence(), "load", v1alpha1.StepSkipped, ""), nil, ""},
		"the Job was refused":                  {withStepStatus(sequence(), "load", v1alpha1.StepFailed, ""), nil, "step load has no log: no Job was created for it"},
		"the Pod was deleted":                  {withStepStatus(sequence(), "load", v1alpha1.StepSucceeded, "j1"), nil, "step load has no log: its Job j1 no longer has a Pod"},
		"the image cannot be pulled":           {withStepStatus(sequence(), "load", v1alpha1.StepStarting, "j1"), []*corev1.Pod{&pulling}, "step load has no log: no container of Pod j1-a has started: ErrImagePull"},
		"the step has a Pod but no status yet": {sequence(), []*corev1.Pod{&pulling}, "step load has no log: no container of Pod j1-a has started: ErrImagePull"},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, row.want, missingLogReason(row.sj, "load", row.pods))
		})
	}
}
