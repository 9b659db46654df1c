package render

import (
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/decision"
	"github.com/yardmaster/yardmaster/internal/plugin/terminal"
	"github.com/yardmaster/yardmaster/test/require"
)

func seconds(n int) v1alpha1.Duration {
	return v1alpha1.Duration{Duration: metav1.Duration{Duration: time.Duration(n) * time.Second}}
}

// runningSession returns a session whose second attempt started ten seconds before start.
func runningSession(changes ...func(*v1alpha1.AgenticSession)) *v1alpha1.AgenticSession {
	at := func(seconds int) *metav1.Time {
		return &metav1.Time{Time: startTime.Add(time.Duration(seconds) * time.Second)}
	}
	s := &v1alpha1.AgenticSession{ObjectMeta: metav1.ObjectMeta{Name: "tidy", Namespace: "data", CreationTimestamp: *at(-120)}}
	s.Spec.Runner, s.Spec.Limits.Timeout = "default", v1alpha1.NewDuration(30*time.Minute)
	s.Status = v1alpha1.AgenticSessionStatus{
		Phase: v1alpha1.SessionRunning, RunStatus: v1alpha1.RunStatus{Run: 1}, ActiveDuration: seconds(40), TotalCostUSD: new(v1alpha1.Number("0.12")),
		Attempt: v1alpha1.SessionAttempt{JobAttempt: v1alpha1.JobAttempt{AttemptNumber: v1alpha1.AttemptNumber{Run: 1, Attempt: 2}, JobName: "tidy-r1-a2", Times: v1alpha1.Times{StartTime: at(-10)}}, ActiveSince: at(-10)},
		Attempts: []v1alpha1.SessionAttempt{{
			JobAttempt: v1alpha1.JobAttempt{AttemptNumber: v1alpha1.AttemptNumber{Run: 1, Attempt: 1}, JobName: "tidy-r1-a1", Times: v1alpha1.Times{StartTime: at(-60), CompletionTime: at(-20)}, Explanation: v1alpha1.Explanation{Reason: v1alpha1.ReasonExitedWithError, Message: "the runner exited\nwith code 3"}}, Outcome: v1alpha1.RunRetried, CostUSD: new(v1alpha1.Number("0.12")),
		}},
		ObservedStatus: v1alpha1.ObservedStatus{
			Conditions: []metav1.Condition{{Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonRunning}},
		},
	}
	for _, change := range changes {
		change(s)
	}
	return s
}

// completeAttempt completes the current attempt of runningSession.
func completeAttempt(s *v1alpha1.AgenticSession) {
	s.Status.Phase, s.Status.Attempt, s.Status.ActiveDuration = v1alpha1.SessionCompleted, v1alpha1.SessionAttempt{}, seconds(52)
	s.Status.Conditions[0].Reason = string(v1alpha1.SessionCompleted)
	s.Status.Attempts = append(s.Status.Attempts, v1alpha1.SessionAttempt{
		JobAttempt: v1alpha1.JobAttempt{AttemptNumber: v1alpha1.AttemptNumber{Run: 1, Attempt: 2}, JobName: "tidy-r1-a2", Explanation: v1alpha1.Explanation{Reason: string(v1alpha1.RunCompleted)}, Times: v1alpha1.Times{StartTime: &metav1.Time{Time: startTime.Add(-10 * time.Second)}, CompletionTime: &metav1.Time{Time: startTime.Add(2 * time.Second)}}}, Outcome: v1alpha1.RunCompleted,
	})
	s.Status.Result = &v1alpha1.SessionResult{AttemptNumber: v1alpha1.AttemptNumber{Run: 1, Attempt: 2}, Summary: "Removed\n3 functions."}
}

func waitForRunner(s *v1alpha1.AgenticSession) {
	s.Status = v1alpha1.AgenticSessionStatus{Phase: v1alpha1.SessionPending, RunStatus: v1alpha1.RunStatus{Run: 1}}
	s.Status.Conditions = []metav1.Condition{{
		Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonRunnerNotFound, Message: "SessionRunner default does not exist",
	}}
}

func TestSessionTable(t *testing.T) {
	named := func(name string, changes ...func(*v1alpha1.AgenticSession)) *v1alpha1.AgenticSession {
		s := runningSession(changes...)
		s.Name = name
		return s
	}
	table := SessionTable(terminal.Style{}, []*v1alpha1.AgenticSession{
		{ObjectMeta: metav1.ObjectMeta{Name: "without-status", Namespace: "data"}},
		named("running"),
		named("without-limit", func(s *v1alpha1.AgenticSession) { s.Spec.Limits.Timeout = v1alpha1.NewDuration(0) }),
		named("stopped", func(s *v1alpha1.AgenticSession) {
			s.Status.Phase, s.Status.StoppedReason = v1alpha1.SessionStopped, v1alpha1.StopInactivity
		}),
		named("waiting", waitForRunner),
		named("deleted", func(s *v1alpha1.AgenticSession) { s.DeletionTimestamp = &metav1.Time{Time: startTime} }),
	}, startTime)
	want := []string{
		"NAMESPACE   NAME             STATUS     REASON                  RUN   ATTEMPT   TIME        COST    RUNNER    AGE",
		"data        without-status   Pending    -                       -     -         0s/4h0m0s   -",
		"data        running          Running    -                       1     2         50s/30m0s   $0.12   default   2m",
		"data        without-limit    Running    -                       1     2         50s         $0.12   default   2m",
		"data        stopped          Stopped    Inactivity              1     2         50s/30m0s   $0.12   default   2m",
		"data        waiting          Pending    SessionRunnerNotFound   1     -         0s/30m0s    -       default   2m",
		"data        deleted          Deleting   -                       1     2         50s/30m0s   $0.12   default   2m",
	}
	require.Equal(t, want, table.Lines(true))
}

func TestSessionDetailShowsEachAttempt(t *testing.T) {
	for title, row := range map[string]struct {
		session *v1alpha1.AgenticSession
		want    []string
	}{
		"running": {runningSession(), []string{
			"tidy   Running   50s/30m0s   $0.12",
			"  ✘ run 1, attempt 1   Retried   40s   $0.12   ExitedWithError: the runner exited with code 3",
			"  ▶ run 1, attempt 2   Running   10s",
		}},
		"completed": {runningSession(completeAttempt), []string{
			"tidy   Completed   52s/30m0s   $0.12",
			"  ✘ run 1, attempt 1   Retried     40s   $0.12   ExitedWithError: the runner exited with code 3",
			"  ✔ run 1, attempt 2   Completed   12s   -",
			"  Removed 3 functions.",
		}},
		"stopped": {
			runningSession(func(s *v1alpha1.AgenticSession) {
				s.Status.Phase, s.Status.Attempt = v1alpha1.SessionStopped, v1alpha1.SessionAttempt{}
				s.Status.Attempts[0].Outcome, s.Status.Attempts[0].Reason, s.Status.Attempts[0].Message = v1alpha1.RunStopped, string(v1alpha1.StopUser), ""
			}),
			[]string{"tidy   Stopped   40s/30m0s   $0.12", "  ■ run 1, attempt 1   Stopped   40s   $0.12   User"},
		},
		"of a Schedule": {
			runningSession(waitForRunner, func(s *v1alpha1.AgenticSession) {
				s.OwnerReferences = decision.ControllerReferences("Schedule", &v1alpha1.Schedule{ObjectMeta: metav1.ObjectMeta{Name: "weekly"}})
			}),
			[]string{"tidy   Pending   0s/30m0s   -", "  a run of Schedule weekly", "  SessionRunnerNotFound: SessionRunner default does not exist"},
		},
		"waiting": {runningSession(waitForRunner), []string{"tidy   Pending   0s/30m0s   -", "  SessionRunnerNotFound: SessionRunner default does not exist"}},
	} {
		t.Run(title, func(t *testing.T) {
			require.Equal(t, row.want, SessionDetail(terminal.Style{}, row.session, startTime))
		})
	}
}

func TestSessionChangesAreReportedOnce(t *testing.T) {
	malformed := runningSession(completeAttempt, func(s *v1alpha1.AgenticSession) {
		s.Status.Conditions = append(s.Status.Conditions, metav1.Condition{
			Type: v1alpha1.ConditionRunnerReporting, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonResultMalformed, Message: "the result is cut off",
		})
	})
	for title, row := range map[string]struct {
		before, after *v1alpha1.AgenticSession
		want          []string
	}{
		"everything for the first state": {nil, runningSession(), []string{
			"run 1, attempt 1: Retried: ExitedWithError: the runner exited with code 3", "Running, run 1, attempt 2",
		}},
		"nothing without a change":  {runningSession(), runningSession(), nil},
		"the outcome of an attempt": {runningSession(), runningSession(completeAttempt), []string{"run 1, attempt 2: Completed", "Completed, run 1, attempt 2"}},
		"the reason for waiting":    {nil, runningSession(waitForRunner), []string{"SessionRunnerNotFound: SessionRunner default does not exist", "Pending"}},
		"an unreadable result":      {runningSession(completeAttempt), malformed, []string{"ResultMalformed: the result is cut off"}},
		"nothing without a status":  {nil, &v1alpha1.AgenticSession{}, nil},
	} {
		t.Run(title, func(t *testing.T) {
			require.Equal(t, row.want, texts(SessionChanges(row.before, row.after)))
		})
	}
}

func TestSessionResultShowsTheReportOfTheRunner(t *testing.T) {
	s := runningSession(completeAttempt, func(s *v1alpha1.AgenticSession) {
		s.Status.Attempts[1].CostUSD = new(v1alpha1.Number("0.1"))
		s.Status.Result.Usage = &apiextensionsv1.JSON{Raw: []byte(`{"tokens":12}`)}
		s.Status.Result.SDKSessionID = "abc"
	})
	want := []string{
		"attempt        run 1, attempt 2", "cost           $0.1", "all runs       $0.12", `usage          {"tokens":12}`, "sdkSessionID   abc",
		"", "Removed", "3 functions.",
	}
	require.Equal(t, want, SessionResult(terminal.Style{}, s))
	if diff := cmp.Diff([]string{"attempt    run 1, attempt 2", "all runs   $0.12"}, SessionResult(terminal.Style{}, runningSession(completeAttempt, func(s *v1alpha1.AgenticSession) {
		s.Status.Result.Summary = ""
	}))); diff != "" {
		t.Errorf("without a summary (-want +got):\n%s", diff)
	}
}

func TestSessionEventsAreRendered(t *testing.T) {
	const long = `one\ntwo\nthree\nfour\nfive\nsix\nseven`
	for title, row := range map[string]struct {
		line, want string
		full       bool
	}{
		"the start":               {`{"type":"started","conversation":"c-1","model":"small"}`, "started small in conversation c-1", false},
		"a text with indentation": {`{"type":"text","text":"Do:\n\tgo test\n"}`, "Do:\n    go test", false},
		"thinking":                {`{"type":"thinking","text":"First,\nthen"}`, "… First,\n  then", false},
		"a command":               {`{"type":"toolCall","tool":{"name":"Bash","input":{"command":"go test ./...","description":"x"}}}`, "▸ Bash go test ./...", false},
		"a command of Codex":      {`{"type":"toolCall","tool":{"name":"shell","input":{"cmd":"ls"}}}`, "▸ shell ls", false},
		"a file that is read":     {`{"type":"toolCall","tool":{"name":"Read","input":{"file_path":"/w/a.go"}}}`, "▸ Read /w/a.go", false},
		"another tool":            {`{"type":"toolCall","tool":{"name":"search","input":{"q":"x"}}}`, `▸ search {"q":"x"}`, false},
		"a folded change":         {`{"type":"toolCall","tool":{"name":"Edit","input":{"file_path":"/w/a.go","old_string":"a\nb\n","new_string":"c"}}}`, "▸ Edit /w/a.go (+1 -2)", false},
		"an unfolded change":      {`{"type":"toolCall","tool":{"name":"edit","input":{"filePath":"/w/a.go","oldString":"a\nb\n","newString":"c"}}}`, "▸ edit /w/a.go (+1 -2)\n  - a\n  - b\n  + c", true},
		"a new file":              {`{"type":"toolCall","tool":{"name":"Write","input":{"file_path":"a","content":"x\ny\n"}}}`, "▸ Write a (+2 -0)", false},
		"a folded result":         {`{"type":"toolResult","text":"` + long + `"}`, "  one\n  two\n  three\n  four\n  five\n  … 2 more lines", false},
		"a whole result":          {`{"type":"toolResult","text":"` + long + `"}`, "  " + strings.ReplaceAll(long, `\n`, "\n  "), true},
		"an empty result":         {`{"type":"toolResult"}`, "", false},
		"tokens of a request":     {`{"type":"usage","usage":{"inputTokens":1}}`, "", false},
		"tokens of the session":   {`{"type":"usage","total":true,"usage":{"inputTokens":1,"cacheWriteTokens":2,"cacheReadTokens":3,"outputTokens":4},"costUSD":0.12345}`, "3 tokens in, 3 from the cache, 4 out, $0.1235", false},
		"a retry":                 {`{"type":"retry","text":"status 429"}`, "retry: status 429", false},
		"an error":                {`{"type":"error","text":"no"}`, "error: no", false},
		"the end":                 {`{"type":"result","text":"All done."}`, "finished", false},
		"a failure":               {`{"type":"result","text":"no credit","failed":true}`, "failed: no credit", false},
		"the runner":              {`{"type":"runner","text":"Starting"}`, "Starting", false},
		"omitted bytes":           {`{"type":"output","omitted":7}`, "\n  … 7 bytes omitted", false},
		"a time before the line":  {`2026-11-26T04:00:00Z {"type":"text","text":"a\nb"}`, "2026-11-26T04:00:00Z a\n2026-11-26T04:00:00Z b", false},
		"other programs":          {`plain text`, "plain text", false},
		"other JSON":              {`{"level":"info"}`, `{"level":"info"}`, false},
		"an input without a tool": {`{"type":"toolCall"}`, "", false},
	} {
		t.Run(title, func(t *testing.T) {
			r := &SessionEvents{Full: row.full}
			require.Equal(t, row.want, strings.Join(r.Lines([]byte(row.line)), "\n"))
		})
	}
}

// An agent can write any characters, for example those that rename the window or hide what was printed before.
func FuzzRenderedEventsHaveNoControlCharacters(f *testing.F) {
	for _, line := range []string{
		"\x1b]0;title\x07", `{"type":"text","text":"\u001b[2J\r\u0008\u0000\u202e"}`, `{"type":"toolCall","tool":{"name":"\u001b[1A","input":{"command":"\u001b[2K"}}}`,
		`{"type":"toolCall","tool":{"name":"Edit","input":{"file_path":"\u001b","content":"\u001b\n\u009b"}}}`, `{"type":"\u001b","text":"\u2028"}`,
		"\x1b[0m {\"type\":\"text\",\"text\":\"x\"}",
	} {
		f.Add(line)
	}
	f.Fuzz(func(t *testing.T, line string) {
		for _, full := range []bool{false, true} {
			r := &SessionEvents{Style: terminal.Style{}, Full: full}
			for _, got := range r.Lines([]byte(line)) {
				require.True(t, !strings.ContainsFunc(got, func(c rune) bool { return !unicode.IsPrint(c) && c != ' ' }), "%q is rendered as %q", line, got)
			}
		}
	})
}
