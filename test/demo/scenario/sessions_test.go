package scenario

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/session"
)

// readSessions reads the sessions of a file of examples/.
func readSessions(t *testing.T, name string) []v1alpha1.AgenticSession {
	t.Helper()
	file, err := os.Open(filepath.Join("../../../examples", name))
	if err != nil {
		t.Fatal(err)
	}
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
		if errs := session.Validate(&s); len(errs) > 0 {
			t.Errorf("%s: validation says %v", s.Name, errs)
		}
	}
	for _, s := range SessionExamples() {
		got = append(got, s.Name)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("sessions of %s and stories (-file +stories):\n%s", SessionsFile, diff)
	}
}

func TestSessionActionsAreDueInOrder(t *testing.T) {
	e := SessionExample{Actions: []SessionAction{
		{When: v1alpha1.SessionRunning, After: 2 * time.Second, Description: "stop"},
		{When: v1alpha1.SessionStopped, Description: "go on"},
	}}
	for name, row := range map[string]struct {
		phase v1alpha1.SessionPhase
		done  int
		since time.Duration
		want  string
	}{
		"not yet":                 {v1alpha1.SessionRunning, 0, time.Second, ""},
		"now":                     {v1alpha1.SessionRunning, 0, 2 * time.Second, "stop"},
		"done already":            {v1alpha1.SessionRunning, 1, time.Minute, ""},
		"the next":                {v1alpha1.SessionStopped, 1, 0, "go on"},
		"not before its turn":     {v1alpha1.SessionStopped, 0, time.Minute, ""},
		"there is nothing to do":  {v1alpha1.SessionStopped, 2, time.Minute, ""},
		"in another phase, never": {v1alpha1.SessionFailed, 0, time.Minute, ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := &v1alpha1.AgenticSession{Status: v1alpha1.AgenticSessionStatus{Phase: row.phase}}
			got := ""
			if action := e.DueAction(s, row.done, row.since); action != nil {
				got = action.Description
			}
			if got != row.want {
				t.Errorf("%q is due, want %q", got, row.want)
			}
		})
	}
}

func TestSessionMismatches(t *testing.T) {
	e := SessionExample{
		Phase: v1alpha1.SessionCompleted, Attempts: []string{"Retried: ExitedWithError", "Completed"}, Summary: "done", Cost: "0.5",
	}
	good := func() *v1alpha1.AgenticSession {
		cost := v1alpha1.Number("0.5")
		return &v1alpha1.AgenticSession{Status: v1alpha1.AgenticSessionStatus{
			Phase: v1alpha1.SessionCompleted,
			Runs: []v1alpha1.SessionRun{
				{Outcome: v1alpha1.RunRetried, Reason: v1alpha1.ReasonExitedWithError}, {Outcome: v1alpha1.RunCompleted, Reason: v1alpha1.ReasonCompleted},
			},
			Result: &v1alpha1.SessionResult{Summary: "done"}, TotalCostUSD: &cost,
		}}
	}
	for name, row := range map[string]struct {
		change func(status *v1alpha1.AgenticSessionStatus)
		want   []string
	}{
		"as it should be": {func(*v1alpha1.AgenticSessionStatus) {}, nil},
		"another phase": {
			func(status *v1alpha1.AgenticSessionStatus) { status.Phase = v1alpha1.SessionFailed },
			[]string{`its phase is "Failed", it should be "Completed"`},
		},
		"an attempt is missing": {
			func(status *v1alpha1.AgenticSessionStatus) { status.Runs = status.Runs[:1] },
			[]string{`the end of attempt 2 is "", it should be "Completed"`},
		},
		"one attempt too many": {func(status *v1alpha1.AgenticSessionStatus) {
			status.Runs = append(status.Runs, v1alpha1.SessionRun{Outcome: v1alpha1.RunStopped, Reason: "User"})
		}, []string{`the end of attempt 3 is "Stopped: User", it should be ""`}},
		"no result": {
			func(status *v1alpha1.AgenticSessionStatus) { status.Result = nil },
			[]string{`its result is "", it should be "done"`},
		},
		"no cost": {
			func(status *v1alpha1.AgenticSessionStatus) { status.TotalCostUSD = nil },
			[]string{`its cost is "", it should be "0.5"`},
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := good()
			row.change(&s.Status)
			if diff := cmp.Diff(row.want, e.Mismatches(s)); diff != "" {
				t.Errorf("faults (-want +got):\n%s", diff)
			}
		})
	}
}
