package scenario

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/kinds/agenticsession"
	"github.com/yardmaster/yardmaster/test/require"
)

// readSessions reads the sessions of a file in examples/.
func readSessions(t *testing.T, name string) []v1alpha1.AgenticSession {
	t.Helper()
	file, err := os.Open(filepath.Join("../../../examples", name))
	require.NoError(t, err)
	defer file.Close()
	const buffer = 4096
	documents := utilyaml.NewYAMLOrJSONDecoder(file, buffer)
	var found []v1alpha1.AgenticSession
	for {
		var s v1alpha1.AgenticSession
		if documents.Decode(&s) != nil {
			return found
		}
		if s.Kind == "AgenticSession" {
			found = append(found, s)
		}
	}
}

func TestEverySessionHasAnExpectation(t *testing.T) {
	var want, got []string
	for _, s := range readSessions(t, SessionsFile) {
		want = append(want, s.Name)
		if errs := agenticsession.Validate(&s); len(errs) > 0 {
			t.Errorf("%s: validation: %v", s.Name, errs)
		}
	}
	for _, s := range SessionExamples() {
		got = append(got, s.Name)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("sessions of %s and expectations (-file +expectations):\n%s", SessionsFile, diff)
	}
}

func TestSessionActionsAreDueInOrder(t *testing.T) {
	e := SessionExample{Actions: []SessionAction{
		{When: v1alpha1.SessionRunning, After: 2 * time.Second, Description: "stop"},
		{When: v1alpha1.SessionStopped, Description: "restart"},
	}}
	for name, row := range map[string]struct {
		phase v1alpha1.SessionPhase
		done  int
		since time.Duration
		want  string
	}{
		"too early in its phase":         {v1alpha1.SessionRunning, 0, time.Second, ""},
		"in its phase for long enough":   {v1alpha1.SessionRunning, 0, 2 * time.Second, "stop"},
		"already done":                   {v1alpha1.SessionRunning, 1, time.Minute, ""},
		"the next action":                {v1alpha1.SessionStopped, 1, 0, "restart"},
		"in the phase of a later action": {v1alpha1.SessionStopped, 0, time.Minute, ""},
		"all actions done":               {v1alpha1.SessionStopped, 2, time.Minute, ""},
		"in another phase":               {v1alpha1.SessionFailed, 0, time.Minute, ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := &v1alpha1.AgenticSession{Status: v1alpha1.AgenticSessionStatus{Phase: row.phase}}
			got := ""
			if action := e.DueAction(s, row.done, row.since); action != nil {
				got = action.Description
			}
			require.Equal(t, row.want, got)
		})
	}
}

func TestSessionMismatches(t *testing.T) {
	e := SessionExample{
		Phase: v1alpha1.SessionCompleted, Attempts: []string{"Retried: ExitedWithError", "Completed"}, Summary: "done", Cost: "0.5",
	}
	expected := func() *v1alpha1.AgenticSession {
		cost := v1alpha1.Number("0.5")
		return &v1alpha1.AgenticSession{Status: v1alpha1.AgenticSessionStatus{
			Phase: v1alpha1.SessionCompleted,
			Attempts: []v1alpha1.SessionAttempt{
				{Outcome: v1alpha1.RunRetried, JobAttempt: v1alpha1.JobAttempt{Explanation: v1alpha1.Explanation{Reason: v1alpha1.ReasonExitedWithError}}}, {Outcome: v1alpha1.RunCompleted, JobAttempt: v1alpha1.JobAttempt{Explanation: v1alpha1.Explanation{Reason: v1alpha1.ReasonCompleted}}},
			},
			Result: &v1alpha1.SessionResult{Summary: "done"}, TotalCostUSD: &cost,
		}}
	}
	for name, row := range map[string]struct {
		change func(status *v1alpha1.AgenticSessionStatus)
		want   []string
	}{
		"as expected": {func(*v1alpha1.AgenticSessionStatus) {}, nil},
		"another phase": {
			func(status *v1alpha1.AgenticSessionStatus) { status.Phase = v1alpha1.SessionFailed },
			[]string{`phase is "Failed", expected "Completed"`},
		},
		"an attempt is missing": {
			func(status *v1alpha1.AgenticSessionStatus) { status.Attempts = status.Attempts[:1] },
			[]string{`outcome of attempt 2 is "", expected "Completed"`},
		},
		"an additional attempt": {func(status *v1alpha1.AgenticSessionStatus) {
			status.Attempts = append(status.Attempts, v1alpha1.SessionAttempt{Outcome: v1alpha1.RunStopped, JobAttempt: v1alpha1.JobAttempt{Explanation: v1alpha1.Explanation{Reason: "User"}}})
		}, []string{`outcome of attempt 3 is "Stopped: User", expected ""`}},
		"no result": {
			func(status *v1alpha1.AgenticSessionStatus) { status.Result = nil },
			[]string{`summary is "", expected "done"`},
		},
		"no cost": {
			func(status *v1alpha1.AgenticSessionStatus) { status.TotalCostUSD = nil },
			[]string{`cost is "", expected "0.5"`},
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := expected()
			row.change(&s.Status)
			require.Equal(t, row.want, e.Mismatches(s))
		})
	}
}
