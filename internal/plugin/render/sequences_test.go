package render

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/plugin/terminal"
	"github.com/yardmaster/yardmaster/test/require"
)

var startTime = time.Unix(1_000_000, 0)

func sequentialJob(phase v1alpha1.SequentialJobPhase, run int32, steps ...v1alpha1.StepStatus) *v1alpha1.SequentialJob {
	return &v1alpha1.SequentialJob{
		ObjectMeta: metav1.ObjectMeta{Name: "etl", Namespace: "data", CreationTimestamp: metav1.Time{Time: startTime}},
		Spec:       v1alpha1.SequentialJobSpec{Containers: []v1alpha1.Step{{Name: "clean-up", Step: &v1alpha1.StepOptions{Finally: true}}}},
		Status: v1alpha1.SequentialJobStatus{
			Phase: phase, RunStatus: v1alpha1.RunStatus{Run: run, Times: v1alpha1.Times{StartTime: &metav1.Time{Time: startTime}}}, Steps: steps,
			Progress: v1alpha1.Progress{CurrentStep: "load"},
		},
	}
}

func TestSequenceTable(t *testing.T) {
	succeeded := v1alpha1.StepStatus{Name: "extract", Phase: v1alpha1.StepSucceeded}
	many := make([]v1alpha1.StepStatus, 110)
	for name, row := range map[string]struct {
		sj   *v1alpha1.SequentialJob
		want []string
	}{
		"without a status": {
			&v1alpha1.SequentialJob{ObjectMeta: metav1.ObjectMeta{Name: "etl"}},
			[]string{
				"NAME   STATUS    REASON   STEPS   STEP   TIME   AGE",
				"etl    Pending",
			},
		},
		"running, with a finally step": {
			sequentialJob(v1alpha1.PhaseRunning, 1, succeeded,
				v1alpha1.StepStatus{Name: "load", Phase: v1alpha1.StepRunning},
				v1alpha1.StepStatus{Name: "clean-up", Phase: v1alpha1.StepPending}),
			[]string{
				"NAME   STATUS    REASON   STEPS   STEP       TIME   AGE",
				"etl    Running            ✔▶|·    load       1m5s   65s",
			},
		},
		"failed": {
			sequentialJob(v1alpha1.PhaseFailed, 1, succeeded,
				v1alpha1.StepStatus{Name: "load", Phase: v1alpha1.StepFailed},
				v1alpha1.StepStatus{Name: "verify", Phase: v1alpha1.StepSkipped}),
			[]string{
				"NAME   STATUS   REASON   STEPS   STEP      TIME   AGE",
				"etl    Failed            ✔✘-     load      1m5s   65s",
			},
		},
		"blocked": {
			func() *v1alpha1.SequentialJob {
				sj := sequentialJob(v1alpha1.PhaseRunning, 1, succeeded, v1alpha1.StepStatus{Name: "load", Phase: v1alpha1.StepQueued})
				sj.Status.Reason = v1alpha1.ReasonQueued
				return sj
			}(),
			[]string{
				"NAME   STATUS    REASON   STEPS   STEP      TIME   AGE",
				"etl    Running   Queued   ✔‖      load      1m5s   65s",
			},
		},
		"with too many steps for symbols": {
			sequentialJob(v1alpha1.PhaseRunning, 1, many...),
			[]string{
				"NAME   STATUS    REASON   STEPS   STEP   TIME   AGE",
				"etl    Running            0/110   load   1m5s   65s",
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := SequenceTable(terminal.Style{}, []*v1alpha1.SequentialJob{row.sj}, startTime.Add(65*time.Second)).Lines(false)
			require.Equal(t, row.want, got)
		})
	}
}

func TestColorsDoNotChangeTheWidthOfATable(t *testing.T) {
	sjs := []*v1alpha1.SequentialJob{
		sequentialJob(v1alpha1.PhaseRunning, 1, v1alpha1.StepStatus{Name: "load", Phase: v1alpha1.StepRunning}),
		sequentialJob(v1alpha1.PhaseFailed, 1, v1alpha1.StepStatus{Name: "load", Phase: v1alpha1.StepFailed, Tolerated: true}),
	}
	plain := SequenceTable(terminal.Style{}, sjs, startTime).Lines(false)
	for i, line := range SequenceTable(terminal.Style{ColorEnabled: true}, sjs, startTime).Lines(false) {
		require.True(t, line != plain[i] && terminal.DisplayWidth(line) == terminal.DisplayWidth(plain[i]), "%q with colors is %q", plain[i], line)
	}
}
