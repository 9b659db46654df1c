package board

import (
	"bytes"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

var start = time.Unix(1_000_000, 0)

func sequentialJob(phase v1alpha1.SequentialJobPhase, run int32, steps ...v1alpha1.StepStatus) *v1alpha1.SequentialJob {
	return &v1alpha1.SequentialJob{
		ObjectMeta: metav1.ObjectMeta{Name: "etl"},
		Status: v1alpha1.SequentialJobStatus{
			Phase: phase, Run: run, StartTime: &metav1.Time{Time: start}, Steps: steps,
			Progress: v1alpha1.Progress{CurrentStep: "load", Display: "1/4"},
		},
	}
}

func TestRow(t *testing.T) {
	succeeded := v1alpha1.StepStatus{Name: "extract", Phase: v1alpha1.StepSucceeded}
	tests := map[string]struct {
		sj   *v1alpha1.SequentialJob
		want string
	}{
		"not seen by the operator yet": {
			&v1alpha1.SequentialJob{ObjectMeta: metav1.ObjectMeta{Name: "etl"}},
			"  etl                  Pending",
		},
		"running, with finally set apart": {
			sequentialJob(v1alpha1.PhaseRunning, 1, succeeded,
				v1alpha1.StepStatus{Name: "load", Phase: v1alpha1.StepRunning},
				v1alpha1.StepStatus{Name: "clean-up", Phase: v1alpha1.StepPending, Finally: true}),
			"  etl                  Running    ✔▶|·       load           1m5s",
		},
		"failed": {
			sequentialJob(v1alpha1.PhaseFailed, 1, succeeded,
				v1alpha1.StepStatus{Name: "load", Phase: v1alpha1.StepFailed},
				v1alpha1.StepStatus{Name: "verify", Phase: v1alpha1.StepSkipped}),
			"  etl                  Failed     ✔✘-        load           1m5s",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, Style{}.Row(tt.sj, start.Add(65*time.Second))); diff != "" {
				t.Errorf("row (-want +got):\n%s", diff)
			}
		})
	}
}

func TestChangesTellEachPhaseOnce(t *testing.T) {
	running := sequentialJob(v1alpha1.PhaseRunning, 1, v1alpha1.StepStatus{Name: "extract", Phase: v1alpha1.StepRunning, Run: 1})
	failed := sequentialJob(v1alpha1.PhaseFailed, 1,
		v1alpha1.StepStatus{Name: "extract", Phase: v1alpha1.StepFailed, Run: 1, Message: "exited with code 1"})

	want := []string{"step extract: Failed: exited with code 1", "Failed, 1/4 steps"}
	if diff := cmp.Diff(want, Changes(running, failed)); diff != "" {
		t.Errorf("changes (-want +got):\n%s", diff)
	}
	if got := Changes(failed, failed); len(got) > 0 {
		t.Errorf("no change, but told: %q", got)
	}
}

func TestARerunTellsNothingOfTheStepsItKeeps(t *testing.T) {
	before := sequentialJob(v1alpha1.PhaseFailed, 1, v1alpha1.StepStatus{Name: "extract", Phase: v1alpha1.StepSucceeded, Run: 1})
	after := sequentialJob(v1alpha1.PhaseRunning, 2,
		v1alpha1.StepStatus{Name: "extract", Phase: v1alpha1.StepSucceeded, Run: 1},
		v1alpha1.StepStatus{Name: "load", Phase: v1alpha1.StepStarting, Run: 2})
	want := []string{"step load: Starting", "Running, 1/4 steps"}
	if diff := cmp.Diff(want, Changes(before, after)); diff != "" {
		t.Errorf("changes (-want +got):\n%s", diff)
	}
}

func TestALiveScreenDrawsOverWhatItDrew(t *testing.T) {
	var out bytes.Buffer
	s := &Screen{out: &out, live: true}
	s.Draw([]string{"one", "two"})
	s.Draw([]string{"three"})
	s.Say("said")
	s.Draw([]string{"four"})
	s.Keep()
	s.Draw([]string{"five"})

	const want = "one\ntwo\n\x1b[2A\x1b[Jthree\n\x1b[1A\x1b[Jsaid\nfour\nfive\n"
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("written (-want +got):\n%s", diff)
	}
}

func TestWhatIsNotATerminalGetsNoBoard(t *testing.T) {
	var out bytes.Buffer
	s := &Screen{out: &out}
	s.Draw([]string{"one"})
	s.Say("said")
	if got := out.String(); got != "said\n" {
		t.Errorf("written: %q", got)
	}
}
