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
	"github.com/yardmaster/yardmaster/internal/testbuilder"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// pod is one of the sequence's, made by a Job so many seconds after noon.
func pod(sj *v1alpha1.SequentialJob, step, job, name string, after int, built *testbuilder.PodBuilder) corev1.Pod {
	p := built.Created(noon.Add(time.Duration(after) * time.Second)).Obj()
	p.Name = job + "-" + name
	p.Labels = map[string]string{
		v1alpha1.LabelSequentialJobUID: string(sj.UID), v1alpha1.LabelStep: step, batchv1.JobNameLabel: job,
	}
	p.OwnerReferences = []metav1.OwnerReference{{Kind: "Job", Name: job, UID: types.UID("uid-of-" + job), Controller: new(true)}}
	return p
}

// at is the sequence with a step's record.
func at(sj *v1alpha1.SequentialJob, step string, phase v1alpha1.StepPhase, job string) *v1alpha1.SequentialJob {
	sj.Status.Run = 1
	record := v1alpha1.StepStatus{Name: step, Phase: phase, JobName: job}
	if job != "" {
		record.JobUID = types.UID("uid-of-" + job)
	}
	sj.Status.Steps = append(sj.Status.Steps, record)
	return sj
}

func TestSources(t *testing.T) {
	plain := testbuilder.SequentialJob("etl", "a").Step("load").Obj()
	running := at(plain.DeepCopy(), "load", v1alpha1.StepRunning, "j2")
	retried := at(testbuilder.SequentialJob("etl", "a").
		Step("load", testbuilder.With(func(o *v1alpha1.StepOptions) { o.BackoffLimit = new(int32(3)) })).Obj(), "load", v1alpha1.StepRunning, "j2")
	stranger := pod(plain, "load", "j2", "x", 0, testbuilder.Pod("load").Running())
	stranger.OwnerReferences[0].UID = "another"
	withInit := pod(plain, "load", "j2", "x", 0, testbuilder.Pod("load"))
	withInit.Status.InitContainerStatuses = []corev1.ContainerStatus{{
		Name: "wait", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 1}},
	}}
	restarted := pod(plain, "load", "j2", "x", 0, testbuilder.Pod("load").Running())
	restarted.Status.ContainerStatuses[0].RestartCount = 2

	for name, row := range map[string]struct {
		sj   *v1alpha1.SequentialJob
		pods []corev1.Pod
		all  bool
		want []containerLog
	}{
		"of the recorded Job only": {
			running,
			[]corev1.Pod{
				pod(plain, "load", "j1", "a", 0, testbuilder.Pod("load").Exited(1, "")),
				pod(plain, "load", "j2", "b", 1, testbuilder.Pod("load").Running()),
			},
			false,
			[]containerLog{{owner: "load", podName: "j2-b", container: "load", label: "load"}},
		},
		"of all attempts, the oldest first": {
			running,
			[]corev1.Pod{
				pod(plain, "load", "j2", "b", 1, testbuilder.Pod("load").Running()),
				pod(plain, "load", "j1", "a", 0, testbuilder.Pod("load").Exited(1, "")),
			},
			true,
			[]containerLog{
				{owner: "load", podName: "j1-a", container: "load", label: "load/a"},
				{owner: "load", podName: "j2-b", container: "load", label: "load/b"},
			},
		},
		"not of a Pod that only carries the labels": {running, []corev1.Pod{stranger}, false, []containerLog{}},
		"not of another step": {
			running, []corev1.Pod{pod(plain, "extract", "j2", "a", 0, testbuilder.Pod("extract").Running())}, false, []containerLog{},
		},
		"before there is a status, of the first step's Job": {
			plain,
			[]corev1.Pod{pod(plain, "load", "j1", "a", 0, testbuilder.Pod("load").Running())},
			false,
			[]containerLog{{owner: "load", podName: "j1-a", container: "load", label: "load"}},
		},
		"a step that is tried again tells its Pods apart from the first one on": {
			retried,
			[]corev1.Pod{pod(plain, "load", "j2", "a", 0, testbuilder.Pod("load").Running())},
			false,
			[]containerLog{{owner: "load", podName: "j2-a", container: "load", label: "load/a"}},
		},
		"a container that never started has no log": {
			running, []corev1.Pod{pod(plain, "load", "j2", "a", 0, testbuilder.Pod("load").Waiting("ErrImagePull", ""))}, false, []containerLog{},
		},
		"an init container that failed has one": {
			running,
			[]corev1.Pod{withInit},
			false,
			[]containerLog{{owner: "load", podName: "j2-x", container: "wait", label: "load:wait"}},
		},
		"a container that was started anew has that of its last start": {
			running,
			[]corev1.Pod{restarted},
			false,
			[]containerLog{{owner: "load", podName: "j2-x", container: "load", restartCount: 2, label: "load"}},
		},
		"... and, of all attempts, that of the start before": {
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
			if diff := cmp.Diff(row.want, append([]containerLog{}, got...), cmp.AllowUnexported(containerLog{})); diff != "" {
				t.Errorf("sources (-want +got):\n%s", diff)
			}
		})
	}
}

func TestWhyAStepHasNoLog(t *testing.T) {
	sequence := func() *v1alpha1.SequentialJob { return testbuilder.SequentialJob("etl", "a").Step("load").Obj() }
	pulling := pod(sequence(), "load", "j1", "a", 0, testbuilder.Pod("load").Waiting("ErrImagePull", ""))
	for name, row := range map[string]struct {
		sj   *v1alpha1.SequentialJob
		pods []*corev1.Pod
		want string
	}{
		"it has not begun":         {sequence(), nil, ""},
		"it was skipped":           {at(sequence(), "load", v1alpha1.StepSkipped, ""), nil, ""},
		"its Job was refused":      {at(sequence(), "load", v1alpha1.StepFailed, ""), nil, "step load has no log: no Job was made for it"},
		"its Pod is gone":          {at(sequence(), "load", v1alpha1.StepSucceeded, "j1"), nil, "step load has no log any more: there is no Pod of its Job j1"},
		"its image is not there":   {at(sequence(), "load", v1alpha1.StepStarting, "j1"), []*corev1.Pod{&pulling}, "step load has no log: no container of Pod j1-a has started: ErrImagePull"},
		"it begins in this moment": {sequence(), []*corev1.Pod{&pulling}, "step load has no log: no container of Pod j1-a has started: ErrImagePull"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := missingLogReason(row.sj, "load", row.pods); got != row.want {
				t.Errorf("it says %q, want %q", got, row.want)
			}
		})
	}
}
