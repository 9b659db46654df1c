package plugin

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/plugin/follow"
)

// sessionOf the namespace a, in this phase of its first run.
func sessionOf(name string, phase v1alpha1.SessionPhase, changes ...func(*v1alpha1.AgenticSession)) *v1alpha1.AgenticSession {
	s := &v1alpha1.AgenticSession{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "a", UID: "1", Generation: 1}}
	s.Spec = v1alpha1.AgenticSessionSpec{Prompt: "Tidy up.", OperatingMode: v1alpha1.ModeRunning, RunRequest: 1, Timeout: new(int32(600))}
	s.Status = v1alpha1.AgenticSessionStatus{Phase: phase, ObservedGeneration: 1, Run: 1, Attempt: 1}
	for _, change := range changes {
		change(s)
	}
	return s
}

func byUser(s *v1alpha1.AgenticSession) {
	s.Spec.OperatingMode, s.Status.StoppedReason = v1alpha1.ModeStopped, v1alpha1.StopUser
}

func idle(s *v1alpha1.AgenticSession) { s.Status.StoppedReason = v1alpha1.StopInactivity }

func leaving(s *v1alpha1.AgenticSession) {
	s.Status.TotalCostUSD = new(v1alpha1.Number("0.12"))
	s.Status.Result = &v1alpha1.SessionResult{
		Run: 1, Attempt: 1, Summary: "Tidied up.", CostUSD: new(v1alpha1.Number("0.12")), Usage: &apiextensionsv1.JSON{Raw: []byte(`{"tokens":7}`)},
	}
}

func TestListsOfSessions(t *testing.T) {
	for args, row := range map[string]struct{ want, said string }{
		"session list":            {want: "tidy   Completed   -"},
		"as ls":                   {want: "NAME   STATUS"},
		"session list -A":         {want: "a           tidy   Completed"},
		"session list -o name":    {want: "agenticsession.yardmaster.dev/tidy\n"},
		"session list -o yaml":    {want: "kind: AgenticSessionList"},
		"session list -n b":       {said: "No AgenticSessions found in namespace b.\n"},
		"__complete session stop": {want: "tidy\tCompleted\n"},
	} {
		t.Run(args, func(t *testing.T) {
			words := strings.Fields(args)
			if words[0] == "__complete" {
				words = append(words, "")
			}
			code, out, errOut := callWords(t, words, cluster(t, sessionOf("tidy", v1alpha1.SessionCompleted)))
			if code != exitSuccess || !strings.Contains(out, row.want) || row.said != "" && errOut != row.said {
				t.Errorf("code %d, says %q:\n%s", code, errOut, out)
			}
		})
	}
}

func TestWhatIsRefusedAboutSessions(t *testing.T) {
	for args, want := range map[string]string{
		"session list -o wide":          `--output is "wide", must be one of [table json yaml name]`,
		"session watch tidy -A":         "a NAME cannot stand with --all, --all-namespaces or --selector",
		"session watch tidy":            `agenticsessions.yardmaster.dev "tidy" not found`,
		"session logs tidy --tail=-2":   "--tail is -2, must be -1 for all lines, or more",
		"session logs tidy --since=-1m": "--since is -1m0s, must not be negative",
		"session stop":                  "requires at least 1 arg(s)",
		"session restart":               "accepts 1 arg(s), received 0",
		"session result tidy -o table":  `--output is "table", must be one of [text json yaml]`,
		"session result tidy":           `agenticsessions.yardmaster.dev "tidy" not found`,
		"session nothing":               `unknown command "nothing"`,
	} {
		t.Run(args, func(t *testing.T) {
			code, out, errOut := call(t, args)
			if code != exitError || out != "" || !strings.HasPrefix(errOut, "error: ") || !strings.Contains(errOut, want) {
				t.Errorf("code %d, out %q, says %q", code, out, errOut)
			}
		})
	}
}

func TestStop(t *testing.T) {
	const tidy = "agenticsession.yardmaster.dev/tidy "
	for title, row := range map[string]struct {
		session *v1alpha1.AgenticSession
		args    string
		code    int
		out     string
		said    string
	}{
		"one that runs":                      {sessionOf("tidy", v1alpha1.SessionRunning), "tidy", exitSuccess, tidy + "is told to stop\n", ""},
		"one that was told already":          {sessionOf("tidy", v1alpha1.SessionStopped, byUser), "tidy", exitSuccess, tidy + "was told to stop already\n", ""},
		"one that was stopped by itself":     {sessionOf("tidy", v1alpha1.SessionStopped, idle), "tidy", exitSuccess, tidy + "is told to stop\n", ""},
		"one that has ended":                 {sessionOf("tidy", v1alpha1.SessionFailed), "tidy", exitSuccess, tidy + "is told to stop; it has ended, and its next run will not begin\n", ""},
		"the others, if there is one not":    {sessionOf("tidy", v1alpha1.SessionRunning), "no-such tidy", exitError, tidy + "is told to stop\n", "error: agenticsessions.yardmaster.dev \"no-such\" not found\n"},
		"one that waits, before it has run ": {sessionOf("tidy", v1alpha1.SessionPending), "tidy", exitSuccess, tidy + "is told to stop\n", ""},
	} {
		t.Run(title, func(t *testing.T) {
			c := cluster(t, row.session)
			code, out, errOut := callWith(t, "session stop "+row.args, c)
			if code != row.code || out != row.out || errOut != row.said {
				t.Errorf("code %d, out %q, says %q", code, out, errOut)
			}
			if after := stored(t, c); after.Spec.OperatingMode != v1alpha1.ModeStopped {
				t.Errorf("mode %s", after.Spec.OperatingMode)
			}
		})
	}
}

// stored is the session named tidy.
func stored(t *testing.T, c client.Client) *v1alpha1.AgenticSession {
	t.Helper()
	s := &v1alpha1.AgenticSession{}
	if err := c.Get(t.Context(), client.ObjectKey{Namespace: "a", Name: "tidy"}, s); err != nil {
		t.Fatal(err)
	}
	return s
}

func TestRestart(t *testing.T) {
	const tidy, refused = "agenticsession.yardmaster.dev/tidy ", "error: agenticsession.yardmaster.dev/tidy: cannot restart: "
	ended := func(changes ...func(*v1alpha1.AgenticSession)) *v1alpha1.AgenticSession {
		return sessionOf("tidy", v1alpha1.SessionCompleted, changes...)
	}
	for title, row := range map[string]struct {
		session   *v1alpha1.AgenticSession
		run       int32 // that is asked for then; 0: nothing was written
		out, said string
	}{
		"one that its user stopped goes on":        {sessionOf("tidy", v1alpha1.SessionStopped, byUser), 1, tidy + "goes on at run 1\n", ""},
		"... also while it is being stopped":       {sessionOf("tidy", v1alpha1.SessionStopping, byUser), 1, tidy + "goes on at run 1\n", ""},
		"one that was idle begins its next run":    {sessionOf("tidy", v1alpha1.SessionStopped, idle), 2, tidy + "begins run 2\n", ""},
		"one that completed, too":                  {ended(), 2, tidy + "begins run 2\n", ""},
		"one that failed, too":                     {sessionOf("tidy", v1alpha1.SessionFailed), 2, tidy + "begins run 2\n", ""},
		"one that completed, and was told to stop": {ended(byUser), 2, tidy + "begins run 2\n", ""},
		"... of which a run was asked for already": {ended(byUser, func(s *v1alpha1.AgenticSession) { s.Spec.RunRequest = 2 }), 2, tidy + "begins run 2\n", ""},
		"not one that runs":                        {sessionOf("tidy", v1alpha1.SessionRunning), 0, "", refused + "it is Running\n"},
		"not one that the operator has not seen":   {sessionOf("tidy", ""), 0, "", refused + "it is Pending\n"},
		"not one whose next run is about to begin": {ended(func(s *v1alpha1.AgenticSession) { s.Spec.RunRequest = 2 }), 0, "", refused + "run 2 is about to begin\n"},
		"not one that has no time left":            {ended(func(s *v1alpha1.AgenticSession) { s.Status.ActiveSeconds = 600 }), 0, "", refused + "all of its time is used up, 600 of 600 seconds; raise spec.timeout first\n"},
		"one whose time has no end, however long":  {ended(func(s *v1alpha1.AgenticSession) { s.Status.ActiveSeconds, s.Spec.Timeout = 600, new(int32(0)) }), 2, tidy + "begins run 2\n", ""},
		"not one that is being deleted, and not gone": {ended(func(s *v1alpha1.AgenticSession) {
			s.DeletionTimestamp, s.Finalizers = new(metav1.NewTime(noon)), []string{"a/b"}
		}), 0, "", refused + "it is being deleted\n"},
	} {
		t.Run(title, func(t *testing.T) {
			c := cluster(t, row.session)
			_, out, errOut := callWith(t, "session restart tidy", c)
			if out != row.out || errOut != row.said {
				t.Errorf("out %q, says %q", out, errOut)
			}
			after := stored(t, c)
			if row.run == 0 {
				if diff := cmp.Diff(row.session.Spec, after.Spec); diff != "" {
					t.Errorf("it was refused, and something was written (-before +after):\n%s", diff)
				}
			} else if after.Spec.RunRequest != row.run || after.Spec.OperatingMode != v1alpha1.ModeRunning {
				t.Errorf("run %d is asked for, in mode %s", after.Spec.RunRequest, after.Spec.OperatingMode)
			}
		})
	}
}

func TestNeitherStopNorRestartOverwriteAConcurrentChange(t *testing.T) {
	for _, command := range []string{"stop", "restart"} {
		t.Run(command, func(t *testing.T) {
			c := interceptor.NewClient(cluster(t, sessionOf("tidy", v1alpha1.SessionCompleted)), interceptor.Funcs{
				Patch: func(ctx context.Context, c client.WithWatch, object client.Object, patch client.Patch, options ...client.PatchOption) error {
					other := &v1alpha1.AgenticSession{}
					if err := c.Get(ctx, client.ObjectKeyFromObject(object), other); err != nil {
						return err
					}
					other.Spec.DisplayName = "Tidying"
					if err := c.Update(ctx, other); err != nil {
						return err
					}
					return c.Patch(ctx, object, patch, options...)
				},
			})
			code, out, errOut := callWith(t, "session "+command+" tidy", c)
			if code != exitError || out != "" || !strings.Contains(errOut, "was changed by somebody else in this moment; nothing was written") {
				t.Errorf("code %d, out %q, says %q", code, out, errOut)
			}
		})
	}
}

func TestResult(t *testing.T) {
	unreadable := func(s *v1alpha1.AgenticSession) {
		s.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionResultValid, Status: metav1.ConditionFalse, Message: "the result is cut off at 4096 bytes"}}
	}
	for title, row := range map[string]struct {
		session   *v1alpha1.AgenticSession
		args      string
		out, said string
	}{
		"for people":  {sessionOf("tidy", v1alpha1.SessionCompleted, leaving), "", "attempt   run 1, attempt 1\ncost      $0.12\nusage     {\"tokens\":7}\n\nTidied up.\n", ""},
		"for scripts": {sessionOf("tidy", v1alpha1.SessionCompleted, leaving), " -o yaml", "attempt: 1\ncostUSD: 0.12\nrun: 1\nsummary: Tidied up.\nusage:\n  tokens: 7\n", ""},
		"there is none yet": {
			sessionOf("tidy", v1alpha1.SessionRunning), "", "", "error: agenticsession.yardmaster.dev/tidy: there is no result: it is Running\n",
		},
		"it cannot be read, though an earlier one could": {
			sessionOf("tidy", v1alpha1.SessionCompleted, leaving, unreadable), "", "",
			"error: agenticsession.yardmaster.dev/tidy: the result cannot be read: the result is cut off at 4096 bytes\n",
		},
	} {
		t.Run(title, func(t *testing.T) {
			_, out, errOut := call(t, "session result tidy"+row.args, row.session)
			if diff := cmp.Diff(row.out, out); diff != "" || errOut != row.said {
				t.Errorf("says %q, out (-want +got):\n%s", errOut, diff)
			}
		})
	}
}

type sessionSight = follow.ObjectUpdate[*v1alpha1.AgenticSession]

func TestWhenAWatchOfASessionIsOver(t *testing.T) {
	of := func(phase v1alpha1.SessionPhase, changes ...func(*v1alpha1.AgenticSession)) *v1alpha1.AgenticSession {
		return sessionOf("tidy", phase, changes...)
	}
	another := of(v1alpha1.SessionCompleted, func(s *v1alpha1.AgenticSession) { s.UID = "2" })
	asked := of(v1alpha1.SessionCompleted, func(s *v1alpha1.AgenticSession) { s.Generation, s.Spec.RunRequest = 2, 2 })
	gone := errors.New("agenticsession.yardmaster.dev/tidy was deleted")
	for title, row := range map[string]struct {
		from   *v1alpha1.AgenticSession
		sights []sessionSight
		want   bool
		means  error
	}{
		"not while it runs":                      {of(v1alpha1.SessionRunning), []sessionSight{{Object: of(v1alpha1.SessionRunning)}}, false, nil},
		"when it completed":                      {of(v1alpha1.SessionRunning), []sessionSight{{Object: of(v1alpha1.SessionCompleted)}}, true, nil},
		"when it failed":                         {of(v1alpha1.SessionRunning), []sessionSight{{Object: of(v1alpha1.SessionFailed)}}, true, errUnsuccessful},
		"when it is stopped, which is no end":    {of(v1alpha1.SessionStopping), []sessionSight{{Object: of(v1alpha1.SessionStopped)}}, true, errUnsuccessful},
		"not before what was asked for is known": {asked, []sessionSight{{Object: asked}}, false, nil},
		"not for how it stood before":            {asked, []sessionSight{{Object: of(v1alpha1.SessionCompleted)}}, false, nil},
		"when it went":                           {of(v1alpha1.SessionRunning), []sessionSight{{Object: of(v1alpha1.SessionRunning), Deleted: true}}, true, gone},
		"when it went after its end, by that":    {of(v1alpha1.SessionRunning), []sessionSight{{Object: of(v1alpha1.SessionCompleted), Deleted: true}}, true, nil},
		"when another has its name":              {of(v1alpha1.SessionRunning), []sessionSight{{Object: another}}, true, gone},
		"when it had gone before it began":       {of(v1alpha1.SessionRunning), nil, true, gone},
	} {
		t.Run(title, func(t *testing.T) {
			v := &objectView[*v1alpha1.AgenticSession]{environment: still(), kind: watchableSessions(), latest: row.from}
			for _, s := range row.sights {
				v.applyUpdate(s)
			}
			over, err := v.isFinished()
			if over != row.want || (err == nil) != (row.means == nil) || err != nil && err.Error() != row.means.Error() {
				t.Errorf("over: %t, %v; want %t, %v", over, err, row.want, row.means)
			}
		})
	}
}

func TestWhenAWatchOfSeveralSessionsIsOver(t *testing.T) {
	sight := func(name string, phase v1alpha1.SessionPhase, gone bool) sessionSight {
		return sessionSight{Object: sessionOf(name, phase), Deleted: gone}
	}
	for title, row := range map[string]struct {
		endless bool
		sights  []sessionSight
		want    bool
		means   error
	}{
		"never, if it is not to end":                {true, []sessionSight{sight("x", v1alpha1.SessionCompleted, false)}, false, nil},
		"not while one runs":                        {false, []sessionSight{sight("x", v1alpha1.SessionCompleted, false), sight("y", v1alpha1.SessionRunning, false)}, false, nil},
		"when all completed":                        {false, []sessionSight{sight("x", v1alpha1.SessionCompleted, false), sight("y", v1alpha1.SessionCompleted, true)}, true, nil},
		"when one is stopped":                       {false, []sessionSight{sight("x", v1alpha1.SessionStopped, false)}, true, errUnsuccessful},
		"when one went before its end":              {false, []sessionSight{sight("x", v1alpha1.SessionCompleted, false), sight("y", v1alpha1.SessionRunning, true)}, true, errUnsuccessful},
		"without any, there is nothing to wait for": {false, nil, true, errors.New("there is no AgenticSession to wait for")},
	} {
		t.Run(title, func(t *testing.T) {
			v := newListView(still(), watchableSessions())
			v.endless = row.endless
			for _, s := range row.sights {
				v.applyUpdate(s)
			}
			over, err := v.isFinished()
			if over != row.want || (err == nil) != (row.means == nil) || err != nil && err.Error() != row.means.Error() {
				t.Errorf("over: %t, %v; want %t, %v", over, err, row.want, row.means)
			}
		})
	}
}

func TestSessionsAreDrawnByNamespaceAndName(t *testing.T) {
	v := newListView(still(), watchableSessions())
	v.showNamespaces = true
	var told []string
	for _, name := range []string{"tidy", "mend", "tidy"} {
		told = append(told, v.applyUpdate(sessionSight{Object: sessionOf(name, v1alpha1.SessionRunning)})...)
	}
	if diff := cmp.Diff([]string{"a/tidy Running, run 1, attempt 1", "a/mend Running, run 1, attempt 1"}, told); diff != "" {
		t.Errorf("told (-want +got):\n%s", diff)
	}
	lines := v.renderLines()
	if len(lines) != 3 || !strings.HasPrefix(lines[1], "a           mend") || !strings.HasPrefix(lines[2], "a           tidy") {
		t.Errorf("lines %q", lines)
	}
}
